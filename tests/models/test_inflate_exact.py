"""The inflated model says what its core says, to the last bit of the log-probabilities, on the real engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_engine import generate

import specmeter.workloads
from specmeter.models.bench import build, parse

_TEXTS = Path(specmeter.workloads.__file__).parent / "bench"
_KINDS = ("fact", "code", "reason", "zh", "edit")
_FORMATS = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


pytestmark = pytest.mark.usefixtures("own_cache")


def _prompt(kind: str) -> str:
    first = (_TEXTS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()[0]
    return json.loads(first)["text"]


def _same(core: str, inflated: str, kinds: tuple[str, ...], tokens: int) -> None:
    prompts = [_prompt(kind) for kind in kinds]
    expected, found = (generate(build(parse(reference)), prompts, tokens) for reference in (core, inflated))
    for kind, one, other in zip(kinds, expected, found, strict=True):
        assert len(one["tokens"]) == tokens
        assert one["tokens"] == other["tokens"], kind
        assert one["content"] == other["content"], kind
        assert one["completion_probabilities"] == other["completion_probabilities"], kind


@pytest.mark.parametrize(("core", "size"), [("dense", "16MB&layers=9"), ("moe", "50MB")])
def test_the_inflated_model_says_what_the_core_says(core: str, size: str) -> None:
    _same(f"bench:{core}?quant=Q8_0", f"bench:{core}?size={size}&quant=Q8_0", ("code", "zh"), 32)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(7), ids=_FORMATS)
@pytest.mark.parametrize(("core", "size"), [("dense", "20MB&layers=9"), ("moe", "60MB")])
def test_every_format_and_kind_of_text_over_256_tokens(core: str, size: str, place: int) -> None:
    """Each format on two kinds of text, each kind in two formats or three."""
    quant, kinds = _FORMATS[place], tuple(_KINDS[it % len(_KINDS)] for it in (2 * place, 2 * place + 1))
    _same(f"bench:{core}?quant={quant}", f"bench:{core}?size={size}&quant={quant}", kinds, 256)
