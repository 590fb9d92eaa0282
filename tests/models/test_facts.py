from __future__ import annotations

import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from engine_log import loading_log
from gguf_files import TOKENS, key_u32, raw_gguf, string, tensor, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.facts import ModelFacts, read_facts

HIDDEN, FFN, VOCABULARY = 64, 96, len(TOKENS)
BASE = {
    "block_count": 4,
    "context_length": 2048,
    "embedding_length": HIDDEN,
    "feed_forward_length": FFN,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def facts_of(folder: Path, architecture: str = "llama", **more: Any) -> ModelFacts:
    keys = {**BASE, **more.pop("keys", {})}
    tensors = more.pop("tensors", {"token_embd.weight": (HIDDEN, VOCABULARY)})
    return read_facts(write_gguf(folder / "m.gguf", architecture, keys=keys, tensors=tensors, **more))


def layer(number: int, experts: int = 0) -> dict[str, tuple[int, ...]]:
    """Tensors of one layer; F16 throughout."""
    stack = (experts,) if experts else ()
    suffix = "_exps" if experts else ""
    tensors: dict[str, tuple[int, ...]] = {
        f"blk.{number}.attn_q.weight": (HIDDEN, HIDDEN),
        f"blk.{number}.ffn_gate{suffix}.weight": (HIDDEN, FFN, *stack),
        f"blk.{number}.ffn_up{suffix}.weight": (HIDDEN, FFN, *stack),
        f"blk.{number}.ffn_down{suffix}.weight": (FFN, HIDDEN, *stack),
    }
    if experts:
        tensors[f"blk.{number}.ffn_gate_inp.weight"] = (HIDDEN, experts)
    return tensors


TABLE, ATTENTION, NETWORK = 2 * HIDDEN * VOCABULARY, 2 * HIDDEN * HIDDEN, 2 * 3 * HIDDEN * FFN


def test_dense_model_with_its_own_output_matrix(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": (HIDDEN, VOCABULARY), "output.weight": (HIDDEN, VOCABULARY), **layer(0), **layer(1)}
    facts = facts_of(tmp_path, "qwen3", keys={"block_count": 2, "attention.key_length": 32}, tensors=tensors)
    assert (facts.architecture, facts.layers, facts.hidden, facts.heads, facts.kv_heads) == ("qwen3", 2, HIDDEN, 4, 2)
    assert (facts.head_dim_k, facts.head_dim_v, facts.ffn, facts.context_length) == (32, 16, FFN, 2048)
    assert (facts.experts, facts.experts_used, facts.expert_ffn) == (0, 0, None)
    weights = facts.weights
    assert weights.size_bytes == 2 * weights.parameters == 2 * TABLE + 2 * (ATTENTION + NETWORK)
    assert weights.active_parameters == weights.parameters
    assert weights.always_read_bytes == TABLE + 2 * (ATTENTION + NETWORK)
    assert weights.lookup_bytes == 2 * HIDDEN
    assert weights.bytes_per_token == weights.always_read_bytes + 2 * HIDDEN
    assert [(share.type, share.tensors) for share in weights.quantization] == [("F16", 10)]
    assert facts.file_bytes == (tmp_path / "m.gguf").stat().st_size


def test_tied_embeddings_are_read_whole_and_once(tmp_path: Path) -> None:
    weights = facts_of(tmp_path).weights
    assert (weights.always_read_bytes, weights.lookup_bytes) == (TABLE, 2 * HIDDEN)


def test_mixture_of_experts(tmp_path: Path) -> None:
    keys = {"block_count": 2, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": FFN}
    tensors = {"token_embd.weight": (HIDDEN, VOCABULARY), **layer(0), **layer(1, experts=8)}
    facts = facts_of(tmp_path, "qwen3moe", keys=keys, tensors=tensors)
    weights = facts.weights
    assert (facts.experts, facts.experts_used, facts.experts_shared, facts.expert_ffn) == (8, 2, 0, FFN)
    assert (weights.expert_bytes, weights.active_expert_bytes) == (NETWORK, 2 * NETWORK)
    router = 2 * HIDDEN * 8
    assert weights.always_read_bytes == TABLE + 2 * ATTENTION + NETWORK + router
    assert weights.parameters - weights.active_parameters == 6 * NETWORK // 2


def test_experts_in_tensors_of_their_own(tmp_path: Path) -> None:
    names = ("ffn_gate", "ffn_up", "ffn_down")
    tensors = {f"blk.0.{name}.{expert}.weight": (HIDDEN, FFN) for name in names for expert in range(4)}
    weights = facts_of(tmp_path, keys={"expert_count": 4, "expert_used_count": 2}, tensors=tensors).weights
    assert (weights.expert_bytes, weights.active_expert_bytes, weights.always_read_bytes) == (NETWORK, 2 * NETWORK, 0)


def test_expert_biases_and_shared_experts(tmp_path: Path) -> None:
    keys = {"expert_count": 4, "expert_used_count": 1, "expert_shared_feed_forward_length": FFN}
    tensors = {"blk.0.ffn_up_exps.bias": (FFN, 4), "blk.0.ffn_up_shexp.weight": (HIDDEN, FFN)}
    facts = facts_of(tmp_path, "qwen35moe", keys=keys, tensors=tensors)
    assert facts.experts_shared == 1
    assert facts.weights.expert_bytes == 2 * FFN
    assert facts.weights.always_read_bytes == NETWORK // 3


def test_draft_heads_are_not_read_by_plain_decoding(tmp_path: Path) -> None:
    keys = {"block_count": 3, "nextn_predict_layers": 1}
    facts = facts_of(tmp_path, "qwen35", keys=keys, tensors={**layer(0), **layer(1), **layer(2)})
    assert (facts.layers, facts.draft_head_layers) == (2, 1)
    assert facts.weights.draft_head_bytes == ATTENTION + NETWORK
    assert facts.weights.always_read_bytes == 2 * (ATTENTION + NETWORK)
    assert facts.weights.parameters - facts.weights.active_parameters == (ATTENTION + NETWORK) // 2


SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.group_count": 2}
SSM_STATE = 4 * (3 * (128 + 2 * 2 * 16) + 16 * 128)
PER_LAYER = 2 * 16  # K (or V) elements per token and layer: two heads of 16


@pytest.mark.parametrize(
    ("architecture", "keys", "kind", "layers", "kv_bytes", "state"),
    [
        ("llama", {}, "attention", (4, 0, 0), 4 * 2 * 2 * PER_LAYER, 0),
        ("qwen2", {"attention.head_count_kv": [2, 2, 1, 1]}, "attention", (4, 0, 0), 2 * 2 * 16 * 6, 0),
        ("olmoe", {"attention.key_length": 8, "attention.value_length": 4}, "attention", (4, 0, 0), 4 * 2 * 2 * 12, 0),
        ("gpt-oss", {"attention.sliding_window": 128}, "attention", (2, 2, 0), 4 * 2 * 2 * PER_LAYER, 0),
        ("gemma3", {"attention.sliding_window": 128, "block_count": 7}, "attention", (1, 6, 0), 7 * 4 * PER_LAYER, 0),
        (
            "gemma4",
            {"attention.sliding_window": 128, "attention.sliding_window_pattern": [True, True, False, False]},
            "attention", (2, 2, 0), 4 * 4 * PER_LAYER, 0,
        ),
        ("gemma4", {"attention.shared_kv_layers": 1}, "attention", (3, 0, 0), 3 * 4 * PER_LAYER, 0),
        ("llama", {"attention.sliding_window": 128}, "attention", (4, 0, 0), 4 * 4 * PER_LAYER, 0),
        ("qwen35", SSM, "hybrid", (1, 0, 3), 4 * PER_LAYER, 3 * SSM_STATE),
        ("qwen35moe", {**SSM, "full_attention_interval": 2}, "hybrid", (2, 0, 2), 2 * 4 * PER_LAYER, 2 * SSM_STATE),
        (
            "qwen3next", {**SSM, "attention.recurrent_layers": [True, False, False, False]},
            "hybrid", (3, 0, 1), 3 * 4 * PER_LAYER, SSM_STATE,
        ),
        ("jamba", {**SSM, "attention.head_count_kv": [0, 0, 0, 2]}, "hybrid", (1, 0, 3), 4 * PER_LAYER, 3 * SSM_STATE),
        (
            "nemotron_h", {**SSM, "attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 96, 0, 0]},
            "hybrid", (1, 0, 2), 4 * PER_LAYER, 2 * SSM_STATE,
        ),
        ("falcon-h1", SSM, "hybrid", (4, 0, 4), 4 * 4 * PER_LAYER, 4 * SSM_STATE),
        (
            "lfm2", {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, 0, 2]},
            "hybrid", (1, 0, 3), 4 * PER_LAYER, 3 * 4 * HIDDEN * 2,
        ),
        ("mamba2", {**SSM, "attention.head_count": 0}, "recurrent", (0, 0, 4), 0, 4 * SSM_STATE),
        ("rwkv7", {"wkv.head_size": 16}, "recurrent", (0, 0, 4), 0, 4 * 4 * HIDDEN * (2 + 16)),
        (
            "kimi-linear", {"kda.head_dim": 8, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 0, 0, 1]},
            "hybrid", (1, 0, 3), 4 * 16, 3 * 4 * 4 * 8 * (9 + 8),
        ),
        ("jamba", {"attention.head_count_kv": [0, 0, 0, 2]}, "hybrid", (1, 0, 3), 4 * PER_LAYER, None),
        (
            "deepseek2",
            {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512,
             "attention.key_length_mla": 192, "attention.value_length_mla": 128},
            "attention", (4, 0, 0), 4 * 2 * 576, 0,
        ),
    ],
)  # fmt: skip
def test_memory_of_architectures(
    tmp_path: Path,
    architecture: str,
    keys: dict[str, Any],
    kind: str,
    layers: tuple[int, int, int],
    kv_bytes: int,
    state: int | None,
) -> None:
    facts = facts_of(tmp_path, architecture, keys=keys)
    memory = facts.memory
    assert memory is not None
    assert (memory.kind, memory.full_layers, memory.sliding_layers, memory.recurrent_layers) == (kind, *layers)
    assert facts.kv_bytes_per_token() == kv_bytes
    assert memory.recurrent_state_bytes == state
    assert facts.is_recurrent == (kind != "attention")


def test_kv_types_and_windows(tmp_path: Path) -> None:
    memory = facts_of(tmp_path, "gpt-oss", keys={"attention.sliding_window": 128}).memory
    assert memory is not None
    assert memory.bytes_per_token("q8_0", "f32") == 4 * PER_LAYER // 32 * 34 + 4 * PER_LAYER * 4
    assert memory.window == 128
    assert memory.kv_bytes(100) == 100 * memory.bytes_per_token()
    assert memory.kv_bytes(10_000) == (10_000 + 768) * memory.bytes_per_token() // 2


def test_unknown_architectures_degrade(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "novel-net", tensors={"some.weight": (32, 2)}, tokens=None)
    facts = read_facts(path)
    assert facts.architecture == "novel-net"
    assert (facts.layers, facts.hidden, facts.heads, facts.context_length, facts.memory) == (None,) * 5
    assert facts.kv_bytes_per_token() is None
    assert not facts.is_recurrent
    assert (facts.vocabulary.size, facts.vocabulary.sha256) == (None, None)
    assert facts.weights.bytes_per_token == 128


@pytest.mark.parametrize("keys", [{"attention.indexer.key_length": 64}, {"embedding_length": "wide"}])
def test_caches_that_cannot_be_derived_are_unknown(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert facts_of(tmp_path, "glm-dsa", keys=keys).memory is None


@pytest.mark.parametrize(("key", "value"), [("block_count", 513), ("block_count", 2**32 - 1), ("expert_count", 10**6)])
def test_more_than_llama_cpp_can_load(tmp_path: Path, key: str, value: int) -> None:
    with pytest.raises(ModelError, match=f"{key} is {value}"):
        facts_of(tmp_path, keys={key: value})


def test_per_layer_values_that_are_too_few_are_unknown(tmp_path: Path) -> None:
    assert facts_of(tmp_path, keys={"attention.head_count": [4, 4]}).memory is None


def test_a_file_without_anything(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw_gguf(data=0))
    facts = read_facts(path)
    assert (facts.architecture, facts.name, facts.weights.parameters) == (None, None, 0)


KEYS = [
    "block_count", "embedding_length", "context_length", "feed_forward_length", "expert_count", "expert_used_count",
    "expert_shared_count", "expert_feed_forward_length", "nextn_predict_layers", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length_swa", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.recurrent_layers", "full_attention_interval", "ssm.conv_kernel",
    "ssm.inner_size", "ssm.state_size", "wkv.head_size", "shortconv.l_cache", "kda.head_dim",
]  # fmt: skip
SCALARS = {"<I": 4, "<i": 5, "<f": 6, "<?": 7, "<Q": 10, "<q": 11, "<d": 12}


@st.composite
def metadata_values(draw: st.DrawFn) -> bytes:
    """A value of any type: sane, extreme, not a number, or an array of such."""
    code = draw(st.sampled_from(list(SCALARS)))
    size = 8 * struct.calcsize(code)
    numbers = {
        "f": st.floats(width=32), "d": st.floats(), "?": st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1), "q": st.integers(-(2**63), 2**63 - 1),
    }.get(code[1], st.one_of(st.integers(0, 9), st.integers(0, 2**size - 1)))  # fmt: skip
    if draw(st.booleans()):
        return struct.pack("<I", SCALARS[code]) + struct.pack(code, draw(numbers))
    values = draw(st.lists(numbers, max_size=9))
    return struct.pack("<IIQ", 9, SCALARS[code], len(values)) + b"".join(struct.pack(code, value) for value in values)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    architecture=st.sampled_from(
        ["llama", "qwen35moe", "gpt-oss", "jamba", "rwkv7", "nemotron_h", "kimi-linear", "new"]
    ),
    values=st.dictionaries(st.sampled_from(KEYS), metadata_values()),
)
def test_whatever_the_metadata_say_there_are_facts_or_an_error(
    tmp_path: Path, architecture: str, values: dict[str, bytes]
) -> None:
    name = architecture.encode()
    keys = [string(b"general.architecture") + struct.pack("<I", 8) + string(name)]
    keys += [string(name + b"." + key.encode()) + value for key, value in values.items()]
    experts = [tensor(b"blk.0.ffn_up_exps.weight", [32, 2, 4]), tensor(b"blk.99999.x", [32], offset=512)]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw_gguf(keys, experts))
    with suppress(ModelError):
        facts = read_facts(path)
        assert facts.model_dump_json()
        assert facts.weights.bytes_per_token >= 0
        assert (facts.kv_bytes_per_token() or 0) >= 0


# --- vocabulary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        ({"model": "llama"}, ("spm", 1, 2, True, False)),
        ({"model": "gpt2"}, ("bpe", 11, 11, False, False)),
        ({"model": "gpt2", "pre": "llama-bpe"}, ("bpe", 11, 11, True, False)),
        ({"model": "gpt2", "pre": "llama-bpe", "add_bos_token": False}, ("bpe", 11, 11, False, False)),
        ({"model": "gpt2", "pre": "glm4"}, ("bpe", None, 11, False, False)),
        ({"model": "gpt2", "bos_token_id": 1, "eos_token_id": 2, "add_eos_token": True}, ("bpe", 1, 2, False, True)),
        ({"model": "gpt2", "bos_token_id": 999}, ("bpe", 11, 11, False, False)),
        ({"model": "bert"}, ("wpm", None, None, True, False)),
        ({"model": "t5"}, ("ugm", None, 1, False, True)),
        ({"model": "gemma4", "add_bos_token": False}, ("bpe", None, None, True, False)),
        ({"model": "of tomorrow"}, (None, None, None, False, False)),
    ],
)
def test_special_tokens_are_resolved_as_llama_cpp_does(
    tmp_path: Path, vocabulary: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = facts_of(tmp_path, vocabulary=vocabulary).vocabulary
    assert (found.type, found.bos, found.eos, found.add_bos, found.add_eos) == expected
    assert found.size == VOCABULARY


def test_end_of_turn_is_found_by_its_text(tmp_path: Path) -> None:
    assert facts_of(tmp_path).vocabulary.eot == TOKENS.index("<|im_end|>")
    assert facts_of(tmp_path, vocabulary={"eot_token_id": 3}).vocabulary.eot == 3
    # The bytes of a token that only look like length and text of another one.
    hidden = ["x" + string(b"<|im_end|>").decode() + "y", *TOKENS]
    assert facts_of(tmp_path, tokens=hidden).vocabulary.eot == len(TOKENS)


def test_fingerprint(tmp_path: Path) -> None:
    same = facts_of(tmp_path).vocabulary.sha256
    assert same == facts_of(tmp_path, "qwen3", keys={"block_count": 1}).vocabulary.sha256
    assert same != facts_of(tmp_path, tokens=[*TOKENS, "g"]).vocabulary.sha256
    assert same != facts_of(tmp_path, tokens=TOKENS[::-1]).vocabulary.sha256
    swapped = ["ab", "c", *TOKENS], ["a", "bc", *TOKENS]
    assert len({facts_of(tmp_path, tokens=tokens).vocabulary.sha256 for tokens in swapped}) == 2


def test_chat_template(tmp_path: Path) -> None:
    assert facts_of(tmp_path).vocabulary.chat_template is None
    path = tmp_path / "m.gguf"
    path.write_bytes(raw_gguf([string(b"tokenizer.chat_template") + b"\x08\0\0\0" + string(b"{{ x }}")]))
    assert read_facts(path).vocabulary.chat_template == "{{ x }}"


# --- split files -----------------------------------------------------------------------------------------------------


def write_parts(folder: Path, count: int = 3) -> Path:
    def key_u16(name: bytes, value: int) -> bytes:
        return string(name) + b"\x02\0\0\0" + value.to_bytes(2, "little")

    for number in range(count):
        keys = [key_u16(b"split.no", number), key_u16(b"split.count", count)]
        if number == 0:
            keys += [
                string(b"general.architecture") + b"\x08\0\0\0" + string(b"llama"),
                key_u32(b"llama.block_count", 1),
            ]
        content = raw_gguf(keys, [tensor(b"t%d.weight" % number, [32, 4])], data=256)
        (folder / f"m-{number + 1:05d}-of-{count:05d}.gguf").write_bytes(content)
    return folder / f"m-00001-of-{count:05d}.gguf"


def test_split_models_are_read_whole(tmp_path: Path) -> None:
    facts = read_facts(write_parts(tmp_path))
    assert facts.files == tuple(f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3))
    assert facts.weights.parameters == 3 * 128
    assert facts.file_bytes == sum(path.stat().st_size for path in tmp_path.glob("m-*.gguf"))


def test_split_models_with_faults(tmp_path: Path) -> None:
    first = write_parts(tmp_path)
    second, third = (tmp_path / f"m-0000{number}-of-00003.gguf" for number in (2, 3))
    with pytest.raises(ModelError, match="not the first part"):
        read_facts(second)
    renamed = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match="one of 3 parts, but its name"):
        read_facts(renamed)
    renamed.rename(first)
    second.write_bytes(third.read_bytes())
    with pytest.raises(ModelError, match="is not part 2"):
        read_facts(first)
    second.unlink()
    third.unlink()
    with pytest.raises(ModelError, match=r"2 of 3 parts are missing: m-00002-of-00003\.gguf, m-00003"):
        read_facts(first)


# --- against the engine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["moe", "hybrid"])
def test_sizes_are_those_that_the_engine_allocates(tmp_path: Path, name: str) -> None:
    if name not in bench.shipped():
        pytest.skip(f"there is no core {name}")
    path = bench.shipped()[name].path
    log = loading_log(tmp_path, path)
    facts = read_facts(path)
    assert facts.memory is not None
    kv = re.search(r"llama_kv_cache: size = +([\d.]+) MiB \( *1024 cells, +(\d+) layers", log)
    assert kv, log[-2000:]
    assert float(kv[1]) == pytest.approx(facts.memory.kv_bytes(1024) / 2**20, abs=0.01)
    assert int(kv[2]) == facts.memory.full_layers
    state = re.search(r"llama_memory_recurrent: size = +([\d.]+) MiB", log)
    expected = (facts.memory.recurrent_state_bytes or 0) / 2**20
    assert (float(state[1]) if state else 0.0) == pytest.approx(expected, abs=0.01)
    for key, value in (("n_vocab", facts.vocabulary.size), ("n_layer", facts.layers), ("n_expert", facts.experts)):
        printed = re.search(rf"print_info: {key} += (\d+)", log)
        assert printed, key
        assert int(printed[1]) == value
