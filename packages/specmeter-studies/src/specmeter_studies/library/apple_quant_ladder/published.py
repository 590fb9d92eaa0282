"""What the Apple document printed about quantization, in the form of our own quality measurements.

Rates come from `llama-bench` and from MLX as means and standard deviations of four runs (n_runs of its data); the
intervals here are Student's, from these. Perplexities come with llama.cpp's `+/-` and its running value after each of
ten windows, so that two models are compared window by window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.analysis.perplexity import perplexity
from specmeter.analysis.quality import ModelQuality, ModelRole, Perplexity, QualityReport, Rate, SpeedTest, TextIdentity
from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.numbers.estimates import printed_mean
from specmeter.record import EngineIdentity, EngineSettings, Estimate, Host, ModelIdentity
from specmeter_studies import apple_published
from specmeter_studies.from_claims import arm, printed_rate, rulings
from specmeter_studies.quality.native import by_window
from specmeter_studies.study import ArmResult, ModelUsed, StudyData

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim


RUNS = 4
"""Runs behind each mean, by the data's metadata."""
WINDOWS, WINDOW = 10, 512
"""Of the perplexities (`--chunks 10`, context 512)."""
SCORED = WINDOWS * (WINDOW - WINDOW // 2 - 1)
GENERATED = 128
"""Tokens of each generation."""
MEMORY = 192 * 10**9

_PERPLEXITY = "apple/perplexity.csv"
_BITS = {"F16": 16, "Q8_0": 8, "Q6_K": 6, "Q5_K_M": 5, "Q4_K_M": 4, "Q3_K_M": 3, "Q2_K": 2}
_HOST = Host(
    hostname_sha256="",
    os="macOS",
    os_version="not told",
    kernel="not told",
    machine="arm64",
    python="not told",
    specmeter="none",
    cpu="Apple M2 Ultra",
    physical_cores=24,
    logical_cores=24,
    memory_bytes=MEMORY,
    memory_available_bytes=MEMORY,
)


def ladder() -> StudyData:
    """Qwen3.5-4B in seven quantizations on an M2 Ultra."""
    found = list(_ladder())
    lines = tuple(
        arm(ruling, config=name, target=name, requests=RUNS)
        for ruling in rulings("apple", "apple/bench.csv")
        if (name := ruling.claim.label.removeprefix("4B_")) in _BITS and ruling.claim.decode_rate is not None
    )
    return _data(
        "apple-quant-ladder",
        found,
        lines,
        "WikiText-2 raw, test split, first 10 windows",
        (
            Message("apple-quant-ladder.spreads"),
            Message("apple-quant-ladder.means"),
        ),
    )


def families() -> StudyData:
    """Gemma-3-4B (QAT) and Qwen3-8B (PTQ) by MLX on an M2 Ultra."""
    found = list(_families())
    lines = tuple(
        arm(ruling, config=name, target=name, requests=RUNS)
        for ruling in rulings("apple", "apple/mlx.csv")
        if (name := ruling.claim.target or "") in {item.model.name for item in found}
    )
    return _data(
        "qat-vs-ptq",
        found,
        lines,
        "none: only rates were measured",
        (Message("apple-quant-ladder.warm_up"),),
    )


def _data(
    study: str, models: list[ModelQuality], lines: tuple[ArmResult, ...], text: str, notes: tuple[Message, ...]
) -> StudyData:
    report = QualityReport(
        made_at=0.0,
        complete=True,
        host=_HOST,
        settings=EngineSettings(context=WINDOW),
        stride=0,
        most_windows=WINDOWS,
        text=TextIdentity(name=text, sha256="", size_bytes=0, bundled=False),
        models=tuple(models),
        plan=study,
    )
    used = tuple(
        ModelUsed(name=it.model.name, reference=it.model.reference, size_bytes=it.model.size_bytes) for it in models
    )
    return StudyData(
        study=study,
        origin="published",
        title=Message("apple.published"),
        arms=lines,
        models=used,
        quality=(report,),
        machine="M2 Ultra",
        bandwidth_bytes_per_s=apple_published.BANDWIDTH,
        notes=notes,
    )


def _ladder() -> Iterator[ModelQuality]:
    bench = [claim for claim in tables.table("apple/bench.csv") if claim.label.startswith("4B_")]
    scores = dict(_scores())
    prompts = {claim.label: claim for claim in bench if claim.prompt_rate is not None}
    for claim in bench:
        if claim.decode_rate is None:
            continue
        name, size, prompt = claim.label.removeprefix("4B_"), round(claim.size_bytes or 0), prompts[claim.label]
        yield ModelQuality(
            model=_model(name, f"Qwen3.5-4B {name}", size),
            bits_per_weight=8 * size / _PARAMETERS,
            perplexity=scores[claim.label],
            rates=(
                _rate(
                    SpeedTest(kind="prompt", tokens=prompt.prompt_n or 0),
                    printed_mean(prompt.prompt_rate or 0.0, prompt.prompt_rate_sd, RUNS, unit="tok/s"),
                    prompt.prompt_rate_sd,
                ),
                _rate(SpeedTest(kind="generate", tokens=GENERATED), printed_rate(claim), claim.decode_rate_sd),
            ),
            rates_engine=_engine("llama-bench"),
            role=ModelRole(bits=_BITS[name], family="Qwen3.5-4B"),
        )


_PARAMETERS = 4205751296
"""Of Qwen3.5-4B, by its raw `llama-bench` rows."""


def _families() -> Iterator[ModelQuality]:
    for claim in tables.table("apple/mlx.csv"):
        name = claim.target or ""
        family, _, width = name.rpartition("-")
        if not width.endswith("bit"):
            continue
        bits = float(width.removesuffix("bit"))
        yield ModelQuality(
            model=_model(name, claim.label, round(claim.size_bytes or 0)),
            bits_per_weight=bits,
            rates=(_rate(SpeedTest(kind="generate", tokens=GENERATED), printed_rate(claim), claim.decode_rate_sd),),
            rates_engine=_engine("mlx"),
            role=ModelRole(
                family=family.removesuffix("-QAT"), training="qat" if family.endswith("-QAT") else "ptq", bits=bits
            ),
        )


def _model(name: str, reference: str, size: int) -> ModelIdentity:
    return ModelIdentity(name=name, reference=reference, path="", sha256="", size_bytes=size, origin="path")


def _engine(kind: str) -> EngineIdentity:
    return EngineIdentity(
        kind=kind,
        version="not told",
        build="not told",
        binary="",
        binary_sha256="",
    )


def _rate(test: SpeedTest, mean: Estimate | None, deviation: float | None) -> Rate:
    if mean is None:
        raise ValueError("a printed rate is missing")
    return Rate(test=test, rate=mean, ms=(), deviation=deviation)


def _scores() -> Iterator[tuple[str, Perplexity]]:
    for claim, cells in zip(tables.table(_PERPLEXITY), tables.cells(_PERPLEXITY), strict=True):
        yield (
            claim.label,
            _perplexity(claim, by_window([math.log(float(it)) for it in cells["running_perplexity"].split()])),
        )


def _perplexity(claim: Claim, surprise: tuple[float, ...]) -> Perplexity:
    return Perplexity(
        estimate=perplexity(surprise, SCORED // WINDOWS),
        token_error=claim.perplexity_sd,
        windows=WINDOWS,
        window_tokens=WINDOW,
        scored=SCORED,
        text_tokens=None,
        tokens_sha256=None,
        window_surprise=surprise,
        train_context=None,
        begins_with_bos=None,
        wall_s=0.0,
        engine=_engine("llama-perplexity"),
    )
