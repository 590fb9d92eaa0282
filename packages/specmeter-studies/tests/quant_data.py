"""Measurements of quantized models made by hand, for tests of claims about them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import records
from analysis.quality.reports import ENGINE, scored
from hosts import HOST
from specmeter.analysis.quality import ModelQuality, ModelRole, QualityReport, SpeedTest, TextIdentity
from specmeter.record import EngineSettings, ModelHeader
from specmeter_studies.quality.measure import rate_of
from specmeter_studies.study import StudyData

GENERATE = SpeedTest(kind="generate", tokens=128)
SIZES = {"F16": 8.4, "Q8_0": 4.5, "Q6_K": 3.4, "Q5_K_M": 3.1, "Q4_K_M": 2.7, "Q3_K_M": 2.2, "Q2_K": 1.8}
BITS = {"F16": 16, "Q8_0": 8, "Q6_K": 6, "Q5_K_M": 5, "Q4_K_M": 4, "Q3_K_M": 3, "Q2_K": 2}
BLOCKS = 8
TEXT = (2.0, 2.4, 2.2, 2.6, 2.1, 2.5, 2.3, 2.2)
"""Surprise by window, of the full model."""


def header(architecture: str, size: float, parameters: int = 4_000_000_000) -> ModelHeader:
    counts = {"parameters": parameters, "active_parameters": parameters, "bytes_per_token": round(size * 1e9)}
    return records.header(architecture=architecture, layers=32, kv_bytes_per_token=1024, **counts)


def model(
    name: str,
    size: float,
    rate: float,
    *,
    loss: float | None = None,
    noise: float = 0.01,
    role: ModelRole | None = None,
    architecture: str = "qwen35",
) -> ModelQuality:
    """`rate` tok/s over blocks that spread by `noise`; `loss`: perplexity over the full model's, None: not scored."""
    phase = sum(map(ord, name))
    wobble = [1 + noise * math.cos(2.4 * block + phase) for block in range(BLOCKS)]
    surprise: Sequence[float] = ()
    if loss is not None:
        surprise = [value + math.log(loss) + 0.1 * noise * math.sin(i + phase) for i, value in enumerate(TEXT)]
    of = header(architecture, size)
    identity = records.identity(name, round(size * 1e9), reference=f"{name}.gguf", sha256="a" * 64, header=of)
    return ModelQuality(
        model=identity,
        bits_per_weight=8 * size / 4.2,
        perplexity=scored(surprise) if surprise else None,
        rates=(rate_of(GENERATE, [1e3 * 128 / (rate * it) for it in wobble]),),
        rates_engine=ENGINE,
        role=role,
    )


def ladder(rates: dict[str, float], losses: dict[str, float], *, noise: float = 0.01) -> StudyData:
    """A ladder with these rates and perplexities over F16's."""
    models = [
        model(name, SIZES[name], rate, loss=losses.get(name), noise=noise, role=ModelRole(bits=BITS[name]))
        for name, rate in rates.items()
    ]
    return study("apple-quant-ladder", models)


def study(name: str, models: Sequence[ModelQuality]) -> StudyData:
    report = QualityReport(
        made_at=1.7e9,
        complete=True,
        host=HOST,
        settings=EngineSettings(context=512, threads=2),
        stride=0,
        text=TextIdentity(name="t.txt", sha256="a" * 64, size_bytes=100, bundled=False),
        models=tuple(models),
        plan=name,
    )
    return StudyData(study=name, origin="measured", title="made by hand", quality=(report,))
