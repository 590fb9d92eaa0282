"""The shipped cores: intact, small, read alike by llama.cpp and by what they were trained with."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
import pytest

from specmeter.llama_binding.context import Context, Rows
from specmeter.llama_binding.model import Model
from specmeter.models.bench import Core, shipped
from specmeter.record import EngineSettings

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data" / "cores"
BENCH = ROOT / "src" / "specmeter" / "workloads" / "bench"
KINDS = ("fact", "code", "reason", "zh", "edit")

# training/ is not part of the package; these of its modules need nothing but numpy.
sys.path.insert(0, str(ROOT / "training"))
benchtext = importlib.import_module("benchtext")
prompts = importlib.import_module("prompts")


WINDOW = 512
# Largest difference of a logit seen between torch (32-bit) and llama.cpp, rounded up; see docs/bench-models.md.
TOLERANCE = {"dense": 0.02, "moe": 0.5, "draft-large": 0.02, "draft-small": 0.02}


@contextmanager
def opened(name: str) -> Iterator[Context]:
    """A core in this process, with room for the logits of a whole window."""
    settings = EngineSettings(context=WINDOW, batch=WINDOW, ubatch=WINDOW)
    with Model(shipped()[name].path) as model, Context(model, settings, threads=1, rows=WINDOW) as context:
        yield context


def tokenized(context: Context, text: str, *, special: bool = False) -> list[int]:
    return context.model.tokenize(text, add_special=False, parse_special=special)


def logits_of(context: Context, tokens: list[int]) -> Rows:
    """Logits after every token of one sequence, decoded in one batch from nothing."""
    context.cut(0)
    return context.decode(tokens, "all")


# Files and manifest


def test_manifest_names_every_file_and_its_checksum() -> None:
    folder = shipped()["dense"].path.parent
    assert {core.file for core in shipped().values()} == {path.name for path in folder.glob("*.gguf")}
    assert all(core.is_intact() for core in shipped().values())


def test_all_cores_together_stay_under_forty_three_megabytes() -> None:
    assert sum(core.path.stat().st_size for core in shipped().values()) <= 43_000_000


@pytest.fixture(scope="module")
def headers() -> dict[str, gguf.GGUFReader]:
    return {name: gguf.GGUFReader(core.path) for name, core in shipped().items()}


def _value(reader: gguf.GGUFReader, key: str) -> object:
    return reader.fields[key].contents()


@pytest.mark.parametrize("core", shipped().values(), ids=lambda core: core.name)
def test_manifest_says_what_the_header_says(core: Core, headers: dict[str, gguf.GGUFReader]) -> None:
    reader = headers[core.name]
    assert _value(reader, "general.architecture") == core.architecture
    assert sum(int(tensor.n_elements) for tensor in reader.tensors) == core.parameters
    assert _value(reader, f"{core.architecture}.context_length") >= 4096  # type: ignore[operator]


def test_experts_are_many_and_few_of_them_active(headers: dict[str, gguf.GGUFReader]) -> None:
    experts = _value(headers["moe"], "qwen3moe.expert_count")
    used = _value(headers["moe"], "qwen3moe.expert_used_count")
    assert experts == 32
    assert used == 4


def test_rows_of_the_dense_target_suit_every_quantization(headers: dict[str, gguf.GGUFReader]) -> None:
    matrices = [t for t in headers["dense"].tensors if t.tensor_type != gguf.GGMLQuantizationType.F32]
    assert all(t.shape[0] % 256 == 0 for t in matrices)


@pytest.mark.parametrize("name", ["moe", "hybrid", "draft-large", "draft-small", "hybrid-eagle3"])
def test_compatible_cores_share_one_vocabulary(name: str, headers: dict[str, gguf.GGUFReader]) -> None:
    keys = [key for key in headers["dense"].fields if key.startswith("tokenizer.")]
    assert [_value(headers[name], key) for key in keys] == [_value(headers["dense"], key) for key in keys]


def test_incompatible_drafts_differ_where_they_say(headers: dict[str, gguf.GGUFReader]) -> None:
    right, vocabulary, special = headers["draft-small"], headers["draft-other-vocab"], headers["draft-other-special"]
    assert len(_value(vocabulary, "tokenizer.ggml.tokens")) == 1536  # type: ignore[arg-type]
    assert _value(special, "tokenizer.ggml.tokens") == _value(right, "tokenizer.ggml.tokens")
    for key in ("bos_token_id", "eos_token_id", "add_bos_token"):
        assert _value(special, f"tokenizer.ggml.{key}") != _value(right, f"tokenizer.ggml.{key}")
    for mine, other in zip(right.tensors, special.tensors, strict=True):
        assert np.array_equal(mine.data, other.data)


# Tokenizer


def test_ten_thousand_strings_are_tokenized_as_in_training() -> None:
    known = np.load(DATA / "tokenization.npz")
    texts = known["texts"].tobytes().decode().split("\x01")
    expected = np.split(known["ids"].astype(np.int64), np.cumsum(known["counts"])[:-1])
    assert len(texts) == len(expected) == 10_000
    with opened("draft-small") as core:
        differing = [t for t, ids in zip(texts, expected, strict=True) if tokenized(core, t) != ids.tolist()]
    assert differing == []


def test_special_tokens_are_single_tokens(headers: dict[str, gguf.GGUFReader]) -> None:
    with opened("draft-small") as core:
        ids = tokenized(core, "<|im_start|>user\nhello<|im_end|>\n", special=True)
    assert ids[0] == 2046
    assert 2047 in ids
    assert _value(headers["draft-small"], "tokenizer.ggml.eos_token_id") == 2045


# Parity with torch


@pytest.mark.parametrize(
    "name", ["draft-small", *(pytest.param(it, marks=pytest.mark.slow) for it in ("dense", "moe", "draft-large"))]
)
def test_llama_cpp_and_torch_agree(name: str) -> None:
    """Torch continued 200 held-out beginnings greedily; llama.cpp must prefer the same tokens.

    Where torch's two best logits lie closer than twice the arithmetic difference between the two (F16 or Q8_0 products
    here, 32-bit ones there) either token is right.
    """
    known = np.load(DATA / f"{name}.npz")
    sequences, best = known["tokens"].astype(np.int64), known["best"].astype(np.int64)
    differing, largest = 0, 0.0
    with opened(name) as core:
        for row, tokens in enumerate(sequences):
            logits = logits_of(core, tokens.tolist())
            largest = max(largest, float(np.abs(logits[-1, known["columns"]] - known["logits"][row]).max()))
            wrong = logits.argmax(-1) != best[row]
            assert (known["margin"][row][wrong] < 2 * TOLERANCE[name]).all()
            differing += int(wrong.sum())
    assert largest < TOLERANCE[name]
    assert differing <= best.size * 0.01


def test_the_hybrid_says_what_the_large_draft_says() -> None:
    """Its recurrent layers and routed experts are silent, so only rounding to Q8_0 may show."""
    texts = [text for kind in KINDS for text in _prompts(kind)[:4]]
    with opened("hybrid") as hybrid, opened("draft-large") as base:
        sequences = [tokenized(base, text) for text in texts]
        same = [logits_of(hybrid, ids).argmax(-1) == logits_of(base, ids).argmax(-1) for ids in sequences]
    assert np.concatenate(same).mean() > 0.98


# Held-out text


def _prompts(kind: str) -> list[str]:
    lines = (BENCH / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def test_prompts_are_many_distinct_and_end_where_an_item_ends() -> None:
    for kind in KINDS:
        texts = _prompts(kind)
        assert len(texts) >= 40
        assert len(set(texts)) == len(texts)
        assert all(text.endswith("\n") for text in texts)


def test_long_texts_reach_1024_tokens() -> None:
    lines = (BENCH / "long.jsonl").read_text(encoding="utf-8").splitlines()
    with opened("draft-small") as core:
        assert all(len(tokenized(core, json.loads(line)["text"])) >= 1024 for line in lines)
    assert len((BENCH / "heldout.txt").read_text(encoding="utf-8")) >= 60_000


def test_held_out_text_was_never_trained_on() -> None:
    """The generator gives the shipped prompts again, and their first items do not occur in training documents."""
    for kind in KINDS:
        assert _prompts(kind) == [prompts.prompt(kind, i) for i in range(len(_prompts(kind)))]
    towns = {prompts.prompt("fact", i).split(" from ")[1].split(" to ")[0] for i in range(48)}
    for index in range(400):
        text = "".join(benchtext.document("fact", prompts.TEXT_SEED, index, held_out=False))
        assert not any(f"was {name} founded" in text for name in towns)
