"""A twin says what its dense model says, and reads what an MoE reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_files import write_gguf

from specmeter.errors import ModelError
from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model
from specmeter.models import twin
from specmeter.models.facts import read_facts
from specmeter.models.gguf import read_header
from specmeter.models.gguf_writer import TensorSource
from specmeter.models.gguf_writer import write_gguf as write
from specmeter.models.reference import absolute, locate, made_of, peek, resolve
from specmeter.models.routers import fitted_router
from specmeter.probe.routing import unions
from specmeter.record import EngineSettings
from specmeter.theory.roofline import union_of_draws

pytestmark = pytest.mark.usefixtures("own_cache")

_TEXT = "The train leaves at nine and comes back before the shops close, so bring the list."
_DENSE = "bench:dense"


def _logits(path: Path) -> np.ndarray:
    with Model(path) as model, Context(model, EngineSettings(context=256), threads=1) as context:
        tokens = model.tokenize(_TEXT, add_special=True, parse_special=False)[:24]
        return context.decode(tokens, "all").copy()


def _made(form: str, parent: Path, router: str = "random") -> Path:
    return twin.build(twin.of(str(parent), form, router), parent)


def _random(path: Path, architecture: str, *, width: int = 96) -> Path:
    """A small model of random weights with the tokenizer of a bench core."""
    core = read_header(locate(_DENSE, base_dir=Path()))
    rng = np.random.default_rng(5)
    vocabulary = next(it.shape[1] for it in core.tensors if it.name == "token_embd.weight")
    hidden, heads, kv_heads = 64, 4, 2
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    for layer in range(2):
        kv = hidden // heads * kv_heads
        part = {
            "attn_q": (hidden, hidden),
            "attn_k": (kv, hidden),
            "attn_v": (kv, hidden),
            "attn_output": (hidden, hidden),
        }
        part |= {"ffn_gate": (width, hidden), "ffn_up": (width, hidden), "ffn_down": (hidden, width)}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in part.items()}
        shapes |= {f"blk.{layer}.{name}_norm.weight": (hidden,) for name in ("attn", "ffn")}
        if architecture == "qwen2":
            shapes |= {f"blk.{layer}.{name}.bias": part[name][:1] for name in ("attn_q", "attn_k", "attn_v")}
    numbers = {
        "block_count": 2, "context_length": 256, "embedding_length": hidden, "feed_forward_length": width,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads,
    }  # fmt: skip
    kept = {key: value for key, value in core.metadata.items() if key.startswith("tokenizer.")}
    fields = {"general.architecture": architecture, **kept}
    fields |= {f"{architecture}.{key}": value for key, value in numbers.items()}
    fields |= {f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5, f"{architecture}.rope.freq_base": 1e4}

    def source(name: str, shape: tuple[int, ...]) -> TensorSource:
        values = rng.standard_normal(shape).astype(np.float32) * (0.3 if len(shape) > 1 else 0.5)
        values += name.endswith("_norm.weight")
        return TensorSource(name, shape, "F32", lambda: [values.tobytes()])

    with path.open("wb") as file:
        write(file, fields, [source(name, shape) for name, shape in shapes.items()])
    return path


@pytest.mark.parametrize("form", ["4x1", "4x2", "dense2"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_twin_computes_what_the_dense_model_computes(architecture: str, form: str, tmp_path: Path) -> None:
    core = locate(_DENSE, base_dir=Path())
    dense = core if architecture == "qwen3" else _random(tmp_path / "dense.gguf", architecture)
    expected, found = _logits(dense), _logits(_made(form, dense))
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.9


def test_weights_are_copied_byte_for_byte() -> None:
    dense = read_header(locate("bench:dense?quant=Q8_0", base_dir=Path()))
    made = read_header(locate("twin:4x2:bench:dense?quant=Q8_0", base_dir=Path()))
    old, new = ({it.name: it for it in header.tensors} for header in (dense, made))
    one, stacked = old["blk.1.ffn_down.weight"], new["blk.1.ffn_down_exps.weight"]
    assert stacked.shape == (*one.shape, 4)
    content = dense.path.read_bytes()[one.offset : one.offset + one.bytes]
    assert made.path.read_bytes()[stacked.offset : stacked.offset + stacked.bytes] == 4 * content


def test_it_says_what_it_is_and_reads_what_an_moe_reads() -> None:
    dense, made = (read_facts(locate(it, base_dir=Path())) for it in (_DENSE, f"twin:8x2:{_DENSE}"))
    assert made.twin is not None
    assert (made.twin.form, made.twin.router, dense.twin) == ("8x2", "random", None)
    assert (made.experts, made.experts_used, made.expert_ffn) == (8, 2, dense.ffn)
    one = made.weights.expert_bytes
    router = made.weights.bytes_per_token - dense.weights.bytes_per_token - one
    assert 0 < router < 0.05 * one  # twice the feed-forward part, and the routers


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_fitted_router_meets_its_union_with_even_loads(share: float) -> None:
    rng = np.random.default_rng(3)
    slow = np.zeros((3000, 48))
    for token in range(1, len(slow)):  # neighbours correlate, some directions more than others
        slow[token] = slow[token - 1] * np.linspace(0.0, 0.97, 48) + rng.standard_normal(48)
    states = slow @ rng.standard_normal((48, 64)) + 5 * rng.standard_normal(64)
    rows = fitted_router(states[:1500], 16, 2, share, rng)
    chosen = np.argsort(-(states[1500:] @ rows.T), axis=1)[:, :2].astype(np.uint16)
    found = unions(chosen[np.newaxis], (2, 5, 9))
    wanted = [union_of_draws(float(n), 16, 2, share) for n in (2, 5, 9)]
    assert found == pytest.approx(wanted, rel=0.12)
    assert np.bincount(chosen.ravel(), minlength=16).max() < 2 * chosen.size / 16


def test_references() -> None:
    spec = twin.parse("twin:16x2?router=uniform:bench:dense?size=20MB")
    assert (spec.parent, spec.form, spec.router) == ("bench:dense?size=20MB", "16x2", "uniform")
    assert spec.reference == "twin:16x2?router=uniform:bench:dense?size=20MB"
    assert made_of(spec.reference) == spec.parent
    assert absolute("twin:4x1:model.gguf") == f"twin:4x1:{Path('model.gguf').absolute()}"
    size, there = peek(f"twin:4x1:{_DENSE}")
    model = resolve("twin", f"twin:4x1:{_DENSE}", base_dir=Path())
    assert (size, there, model.origin) == (model.size_bytes, False, "bench")


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("twin:bench:dense", "is not a twin"),
        ("twin:4x5:bench:dense", "4 experts of which 5 are active"),
        ("twin:2000x1:bench:dense", "2000 experts"),
        ("twin:dense3:bench:dense", "dense control"),
        ("twin:4x1?router=best:bench:dense", "no such router"),
        ("twin:4x1:twin:4x1:bench:dense", "is a twin already"),
        ("twin:4x1:bench:moe", "has no twin"),
        ("twin:4x1:bench:hybrid", "has no twin"),
    ],
)
def test_refusals_name_what_is_wrong(reference: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        locate(reference, base_dir=Path())


def test_gemma_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "gemma.gguf", "gemma3", keys={"block_count": 1}, tensors={"token_embd.weight": (32, 12)}
    )
    with pytest.raises(ModelError, match="'gemma3' has no twin"):
        locate(f"twin:4x1:{path}", base_dir=Path())


def test_a_file_of_the_users_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    """Whatever appears while it works; `NAME.part` is a name like any other."""
    parent, out, own = locate(_DENSE, base_dir=Path()), tmp_path / "twin.gguf", tmp_path / "twin.gguf.part"
    own.write_text("mine", encoding="utf-8")
    spec = twin.of(_DENSE, "2x1")

    def appears(_done: int, _total: int) -> None:
        out.write_text("mine as well", encoding="utf-8")

    with pytest.raises(ModelError, match="exists"):
        twin.build(spec, parent, out=out, progress=appears)
    assert (out.read_text(encoding="utf-8"), own.read_text(encoding="utf-8")) == ("mine as well", "mine")
    out.unlink()
    assert twin.build(spec, parent, out=out) == out
    assert sorted(it.name for it in tmp_path.iterdir() if it.is_file()) == ["twin.gguf", "twin.gguf.part"]
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(ModelError, match="cannot be written") as refused:
        twin.build(spec, parent, out=tmp_path / "plain" / "twin.gguf")
    assert "SPECMETER_CACHE" not in (refused.value.fix or "")
