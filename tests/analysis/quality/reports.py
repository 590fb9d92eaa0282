"""Reports made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hosts import HOST
from records import ENGINE, identity
from specmeter.analysis.quality import (
    ModelQuality,
    Perplexity,
    QualityReport,
    Rate,
    SpeedTest,
    TextIdentity,
    perplexity,
)
from specmeter.numbers.stats import median_estimate
from specmeter.record import EngineSettings

GENERATE = SpeedTest(kind="generate", tokens=10)


def scored(surprise: Sequence[float], *, tokens: str | None = "t" * 64, window: int = 512) -> Perplexity:
    return Perplexity(
        estimate=perplexity(surprise, 255),
        token_error=0.1,
        windows=len(surprise),
        window_tokens=window,
        scored=255 * len(surprise),
        text_tokens=5000,
        tokens_sha256=tokens,
        window_surprise=tuple(surprise),
        train_context=8192,
        begins_with_bos=False,
        wall_s=1.0,
        engine=ENGINE,
    )


def paced(ms: Sequence[float], test: SpeedTest = GENERATE) -> Rate:
    rates = [1e3 * test.tokens / it for it in ms]
    return Rate(test=test, rate=median_estimate(rates, unit="tok/s", of="blocks"), ms=tuple(ms))


def quality(
    name: str, size: int, surprise: Sequence[float] = (), ms: Sequence[float] = (), *, tokens: str | None = "t" * 64
) -> ModelQuality:
    return ModelQuality(
        model=identity(name, size),
        bits_per_weight=8.0,
        perplexity=scored(surprise, tokens=tokens) if surprise else None,
        rates=(paced(ms),) if ms else (),
        rates_engine=ENGINE if ms else None,
    )


def report(*models: ModelQuality) -> QualityReport:
    return QualityReport(
        made_at=1.7e9,
        complete=True,
        host=HOST,
        settings=EngineSettings(context=512, threads=2),
        stride=0,
        text=TextIdentity(name="t.txt", sha256="a" * 64, size_bytes=100, bundled=False),
        models=models,
    )


def points(*values: float) -> list[float]:
    """Surprise of windows around the perplexities given."""
    return [math.log(value) for value in values]
