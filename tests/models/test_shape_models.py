from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench_engine import generate

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.bench import build, describe, parse
from specmeter.models.gguf import Metadata, read_header
from specmeter.models.gguf_writer import write_gguf
from specmeter.models.shapes import SHAPES, Shape, shape_metadata, shape_tensors

_PARAMETERS = {
    "qwen3.5-35b-a3b": 34.7e9,
    "qwen3-30b-a3b": 30.5e9,
    "mixtral-8x7b": 46.7e9,
    "gpt-oss-20b": 20.9e9,
    "olmoe-1b-7b": 6.92e9,
    "qwen3.5-0.8b": 0.75e9,
    "qwen3.5-2b": 1.88e9,
    "qwen3.5-4b": 4.21e9,
    "qwen3.5-9b": 8.95e9,
}
"""Published parameter counts of the language models, without vision and multi-token-prediction parts."""


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_parameters_of_the_real_model(name: str) -> None:
    plan = describe(parse(f"bench:shape/{name}"))
    assert plan.parameters == pytest.approx(_PARAMETERS[name], rel=0.005)
    assert plan.timing_only


@pytest.mark.parametrize("name", SHAPES)
def test_scaling_keeps_everything_but_the_number_of_layers(name: str) -> None:
    full, small = SHAPES[name], SHAPES[name].scaled(0.05)
    assert replace(small, layers=full.layers) == full
    assert small.layers % small.group == 0
    assert full.scaled(1) == full


def _small(shape: Shape) -> Shape:
    """Few layers, experts and tokens, all kinds of tensors: small enough to load in a test."""
    experts = {"experts": 8, "experts_used": 2} if shape.experts else {}
    return replace(shape.scaled(0.01), hidden=256, width=256, vocabulary=2100, **experts)


@pytest.mark.parametrize("name", SHAPES)
def test_the_engine_loads_and_decodes_every_shape(name: str, tmp_path: Path) -> None:
    shape = _small(SHAPES[name])
    if shape.architecture == "olmoe":  # here a head is a share of the hidden size
        shape = replace(shape, heads=2, kv_heads=2)
    path = tmp_path / f"{name}.gguf"
    tokenizer = read_header(bench.shipped()["dense"].path)
    with path.open("wb") as file:
        write_gguf(file, shape_metadata(shape, name, "Q8_0", tokenizer), shape_tensors(shape, "Q8_0"))
    (reply,) = generate(path, ["Where is the river?"], 4, 1)
    assert len(reply["tokens"]) == 4
    for step in reply["completion_probabilities"]:
        assert -100 < step["logprob"] <= 0
    facts = Metadata(read_header(path))
    assert facts.flag("specmeter.timing_only") is True
    assert len(facts.strings("tokenizer.ggml.tokens") or ()) == 2100
    assert "Timing only" in (facts.text("general.description") or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["olmoe-1b-7b", "qwen3.5-0.8b"])
def test_a_built_shape_runs_with_its_whole_vocabulary(name: str) -> None:
    spec = parse(f"bench:shape/{name}?scale=0.01&quant=Q4_0")
    path = build(spec)
    assert path.stat().st_size == describe(spec).size_bytes
    assert len(generate(path, ["Hello"], 4, 1)[0]["tokens"]) == 4


def test_expert_formats_are_for_experts() -> None:
    kinds = {t.name: t.kind for t in shape_tensors(SHAPES["gpt-oss-20b"].scaled(0.01), "MXFP4")}
    assert kinds["blk.0.ffn_up_exps.weight"] == "MXFP4"
    assert kinds["blk.0.attn_q.weight"] == kinds["token_embd.weight"] == "Q8_0"
    with pytest.raises(ModelError, match="for experts"):
        shape_tensors(SHAPES["qwen3.5-9b"], "MXFP4")
