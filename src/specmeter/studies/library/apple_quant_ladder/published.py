"""What the Apple document printed about quantization, in the form of our own quality measurements.

Rates come from `llama-bench` and from MLX as means and standard deviations of four runs (`n_runs` of its data); the
intervals here are Student's, from these. Perplexities come with llama.cpp's `+/-`; no window of them was published, so
no two can be paired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.audit.published.table import rows
from specmeter.numbers.stats import t_critical
from specmeter.quality import ModelQuality, ModelRole, Perplexity, QualityReport, Rate, SpeedTest, TextIdentity
from specmeter.record import EngineIdentity, EngineSettings, Estimate, Host, ModelIdentity
from specmeter.studies import apple_published
from specmeter.studies.from_claims import arm, rulings
from specmeter.studies.study import ArmResult, ModelUsed, StudyData

if TYPE_CHECKING:
    from specmeter.audit.published.table import Row

RUNS = 4
"""Runs behind each mean, by the data's metadata."""
WINDOWS, WINDOW = 10, 512
"""Of the perplexities (`--chunks 10`, context 512)."""
SCORED = WINDOWS * (WINDOW - WINDOW // 2 - 1)
MEMORY = 192 * 10**9

_BITS = {"F16": 16, "Q8_0": 8, "Q6_K": 6, "Q5_K_M": 5, "Q4_K_M": 4, "Q3_K_M": 3, "Q2_K": 2}
_NORMAL = 1.959964
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
            "Of the seven generation rates, five have standard deviations from 10 to 20 tok/s over four runs (those of "
            "Q3_K_M and Q2_K: 0.2 and 0.1): most of the ladder's order lies within them.",
            "The rates are means of the runs' rates. Tokens over mean time is less where runs differ: 48.1 tok/s "
            "instead of 54.0 for Q8_0.",
        ),
    )


def families() -> StudyData:
    """Gemma-3-4B (QAT) and Qwen3-8B (PTQ) by MLX on an M2 Ultra."""
    found = list(_families())
    lines = tuple(
        arm(ruling, config=name, target=name, requests=RUNS)
        for ruling in rulings("apple", "apple/mlx.csv")
        if (name := ruling.claim.label.removesuffix(" (MLX)")) in {item.model.name for item in found}
    )
    return _data(
        "qat-vs-ptq",
        found,
        lines,
        "none: only rates were measured",
        (
            "The data note a warm-up issue of MLX's cache at the two PTQ rows whose rates spread by 19.6 and 19.8 "
            "tok/s: a spread of the measurement, not of the models.",
        ),
    )


def _data(
    study: str, models: list[ModelQuality], lines: tuple[ArmResult, ...], text: str, notes: tuple[str, ...]
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
        title="published by the document, with the audit's verdicts",
        arms=lines,
        models=used,
        quality=(report,),
        machine="M2 Ultra",
        bandwidth_bytes_per_s=apple_published.BANDWIDTH,
        notes=notes,
    )


def _ladder() -> Iterator[ModelQuality]:
    bench = [row for row in rows("apple_bench.csv") if row["model_label"].startswith("4B_")]
    scores = {row["model"]: row for row in rows("apple_perplexity.csv")}
    for row in bench:
        if row["n_gen"] == "0":
            continue
        name = row["model_label"].removeprefix("4B_")
        prompt = next(it for it in bench if it["model_label"] == row["model_label"] and it["n_gen"] == "0")
        yield ModelQuality(
            model=_model(name, f"Qwen3.5-4B {name}", int(row["model_size_bytes"])),
            bits_per_weight=8 * int(row["model_size_bytes"]) / _PARAMETERS,
            perplexity=_perplexity(scores[row["model_label"]]),
            rates=(
                _rate(
                    SpeedTest(kind="prompt", tokens=int(prompt["n_prompt"])), prompt["avg_tps"], prompt["stddev_tps"]
                ),
                _rate(SpeedTest(kind="generate", tokens=int(row["n_gen"])), row["avg_tps"], row["stddev_tps"]),
            ),
            rates_engine=_engine("llama-bench"),
            role=ModelRole(bits=_BITS[name], family="Qwen3.5-4B"),
        )


_PARAMETERS = 4205751296
"""Of Qwen3.5-4B, by the one raw `llama-bench` row that was published."""


def _families() -> Iterator[ModelQuality]:
    for row in rows("apple_mlx.csv"):
        family, _, width = row["model"].rpartition("-")
        if not width.endswith("bit"):
            continue
        qat = family.endswith("-QAT")
        yield ModelQuality(
            model=_model(row["model"], f"{row['model']} (MLX)", round(float(row["size_mb"]) * 1e6)),
            bits_per_weight=float(width.removesuffix("bit")),
            rates=(_rate(SpeedTest(kind="generate", tokens=int(row["n_gen"])), row["avg_tps"], row["std_tps"]),),
            rates_engine=_engine("mlx"),
            role=ModelRole(
                family=family.removesuffix("-QAT"),
                training="qat" if qat else "ptq",
                bits=float(width.removesuffix("bit")),
            ),
        )


def _model(name: str, reference: str, size: int) -> ModelIdentity:
    return ModelIdentity(name=name, reference=reference, path="", sha256="", size_bytes=size, origin="path")


def _engine(kind: str) -> EngineIdentity:
    return EngineIdentity(kind=kind, version="not told", build="not told", binary="", binary_sha256="")


def _rate(test: SpeedTest, mean: str, deviation: str) -> Rate:
    point, spread = float(mean), float(deviation)
    half = t_critical(RUNS - 1, 0.95) * spread / math.sqrt(RUNS)
    method = f"mean of {RUNS} runs as printed; Student's interval from their printed standard deviation"
    estimate = Estimate(point=point, low=max(0.0, point - half), high=point + half, n=RUNS, unit="tok/s", method=method)
    return Rate(test=test, rate=estimate, ms=(), deviation=spread)


def _perplexity(row: Row) -> Perplexity:
    point, error = float(row["ppl"]), float(row["ppl_std"])
    return Perplexity(
        estimate=Estimate(
            point=point,
            low=point - _NORMAL * error,
            high=point + _NORMAL * error,
            n=WINDOWS,
            unit="1",
            method="as printed; 1.96 times the printed error, which takes tokens for independent",
        ),
        token_error=error,
        windows=WINDOWS,
        window_tokens=WINDOW,
        scored=SCORED,
        text_tokens=None,
        tokens_sha256=None,
        window_surprise=(),
        train_context=None,
        begins_with_bos=None,
        wall_s=0.0,
        engine=_engine("llama-perplexity"),
    )
