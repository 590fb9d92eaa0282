"""Models by shape: totals against published ones, shares of routed experts, names in all their spellings."""

from __future__ import annotations

from decimal import Decimal
from math import prod

import pytest

from specmeter.errors import UsageError
from specmeter.models.gguf import TYPE_BY_NAME
from specmeter.models.shapes import SHAPES, shape_tensors
from specmeter.theory.catalogue import models as catalogue
from specmeter.theory.catalogue.models import ModelEntry, find, formats, model, models, number_format


def _half_digit(value: float) -> float:
    """Half a unit of the last digit that a published number has."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0 ** min(exponent, 0)


@pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)
def test_counted_parameters_are_the_published_ones(entry: ModelEntry) -> None:
    assert entry.total_parameters / 1e9 == pytest.approx(
        entry.total, abs=max(0.02 * entry.total, _half_digit(entry.total))
    )


@pytest.mark.parametrize("entry", [entry for entry in models() if entry.active], ids=lambda entry: entry.name)
def test_active_parameters_are_the_published_ones(entry: ModelEntry) -> None:
    """Makers count active parameters with both embedding matrices, with one, or with none."""
    assert entry.active is not None
    lookup, active = entry.embedding_parameters / 1e9, entry.active_parameters / 1e9
    slack = max(0.03 * entry.active, _half_digit(entry.active))
    assert active - lookup - slack <= entry.active <= active + lookup + slack


def test_the_totals_that_names_do_not_tell() -> None:
    exact = {"Qwen3-30B-A3B": 30.53, "Mixtral-8x7B": 46.70, "gpt-oss-20b": 20.91, "OLMoE-1B-7B": 6.92}
    for name, billions in exact.items():
        assert model(name).total_parameters / 1e9 == pytest.approx(billions, abs=0.01)
    assert model("Qwen3.5-35B-A3B").total_parameters / 1e9 == pytest.approx(35, rel=0.02)
    assert model("DeepSeek-V3").total_parameters / 1e9 == pytest.approx(671.0, abs=0.1)


@pytest.mark.parametrize(
    ("name", "number", "share"),
    [
        ("Qwen3.5-35B-A3B", "F16", 0.342),
        ("Qwen3-30B-A3B", "F16", 0.596),
        ("OLMoE-1B-7B", "F16", 0.684),
        ("Mixtral-8x7B", "F16", 0.884),
        ("gpt-oss-20b", "MXFP4", 0.343),
    ],
)
def test_routed_share_of_the_bytes_of_one_token(name: str, number: str, share: float) -> None:
    one = model(name).footprint(number)
    assert one.used * one.expert_bytes / one.bytes_per_token == pytest.approx(share, abs=0.0015)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "experts", "used", "width", "vocabulary"),
    [
        ("Qwen3.6-35B-A3B", 40, 2048, 256, 8, 512, 248_320),
        ("Qwen3-30B-A3B", 48, 2048, 128, 8, 768, 151_936),
        ("Mixtral-8x7B", 32, 4096, 8, 2, 14_336, 32_000),
        ("gpt-oss-20b", 24, 2880, 32, 4, 2880, 201_088),
        ("gpt-oss-120b", 36, 2880, 128, 4, 2880, 201_088),
        ("DeepSeek-V3", 61, 7168, 256, 8, 2048, 129_280),
        ("OLMoE-1B-7B", 16, 2048, 64, 8, 1024, 50_304),
    ],
)
def test_shapes(name: str, layers: int, hidden: int, experts: int, used: int, width: int, vocabulary: int) -> None:
    entry = model(name)
    assert entry.experts is not None
    assert (entry.layers, entry.hidden, entry.vocabulary) == (layers, hidden, vocabulary)
    assert (entry.experts.count, entry.experts.used, entry.experts.width) == (experts, used, width)


@pytest.mark.parametrize("name", SHAPES)
def test_the_tensors_of_timing_models_count_as_many_parameters(name: str) -> None:
    counted = sum(prod(tensor.shape) for tensor in shape_tensors(SHAPES[name], "F16"))
    assert model(name).total_parameters == pytest.approx(counted, rel=0.001)


def file_bytes(entry: ModelEntry, format_name: str) -> float:
    made = entry.footprint(format_name)
    tables = entry.embedding_parameters * number_format(format_name).bits / 8
    return made.always_bytes + tables + made.experts * made.expert_bytes


def test_bytes_of_formats() -> None:
    entry = model("Qwen3.5-35B-A3B")
    half = entry.footprint("F16")
    assert half.bytes_per_token == pytest.approx(2 * entry.active_parameters, rel=1e-5)
    # The file of the 306-run study is 20.6 GB.
    assert file_bytes(entry, "Q4_K_M") == pytest.approx(20.6e9, rel=0.04)
    assert file_bytes(model("Llama-3.1-8B"), "Q4_K_M") == pytest.approx(4.58 * 2**30, rel=0.01)
    assert file_bytes(model("Llama-3.1-8B"), "Q8_0") == pytest.approx(7.95 * 2**30, rel=0.01)


@pytest.mark.parametrize("name", ["F16", "Q8_0", "Q6_K", "Q4_0", "MXFP4"])
def test_plain_formats_are_those_of_ggml(name: str) -> None:
    kind, form = TYPE_BY_NAME[name.lower()], number_format(name)
    assert form.bits_of_experts == 8 * kind.block_bytes / kind.block


def test_cache_and_state() -> None:
    hybrid = model("Qwen3.5-35B-A3B")
    assert hybrid.kv_per_position == 10 * 2 * 2 * 256
    assert hybrid.footprint("F16").kv_bytes_per_position == 20_480
    assert hybrid.footprint("F16").state_bytes == 2 * 4 * 30 * (32 * 128 * 128 + 8192 * 3)
    assert model("DeepSeek-V3").kv_per_position == 61 * 576
    assert model("gpt-oss-20b").kv_per_position == 12 * 2 * 8 * 64
    assert model("Llama-3.1-8B").footprint("F16").state_bytes == 0


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("qwen3.5-35b-a3b", "Qwen3.5-35B-A3B"),
        ("Qwen3.6 35B A3B", "Qwen3.5-35B-A3B"),
        ("unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M", "Qwen3.5-35B-A3B"),
        ("models/Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf", "Qwen3.5-35B-A3B"),
        ("mixtral-8x7b-instruct-v0.1.Q4_K_M.gguf", "Mixtral-8x7B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen3-30B-A3B-Thinking-2507-Q8_0", "Qwen3-30B-A3B"),
        ("allenai/OLMoE-1B-7B-0924", "OLMoE-1B-7B"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
        ("Phi-3.5-MoE-instruct", "Phi-3.5-MoE"),
    ],
)
def test_spellings(spelled: str, name: str) -> None:
    assert model(spelled).name == name


@pytest.mark.parametrize(
    ("unknown", "near"),
    [
        ("Qwen3.5-28B", "Qwen3.5-2B"),
        ("Mixtral", "Mixtral-8x7B"),
        ("DeepSeek-R1-Distill-Qwen-7B", ""),
        ("Phi-3.5-mini-instruct", "Phi-3.5-MoE"),
        ("", ""),
        ("x" * 100_000, ""),
    ],
)
def test_unknown_names_get_the_nearest_ones(unknown: str, near: str) -> None:
    assert find(unknown) == ()
    with pytest.raises(UsageError, match="not in the catalogue") as caught:
        model(unknown)
    assert near in caught.value.fix
    assert len(str(caught.value)) < 1500


def test_unknown_formats() -> None:
    with pytest.raises(UsageError, match="Q4_K_L") as caught:
        number_format("Q4_K_L")
    assert "Q4_K_M" in caught.value.fix


def test_the_catalogue_is_sound() -> None:
    assert len(models()) >= 20
    assert all(len(entries) == 1 for entries in catalogue._index().values())
    assert all(entry.source.startswith("https://") for entry in models())
    assert all(form.source for form in formats())
    assert {"F16", "Q8_0", "Q6_K", "Q4_K_M"} <= {form.name for form in formats()}
