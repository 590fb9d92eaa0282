"""qat-vs-ptq: two families of quantized models at several widths; how fast each is, and how much its rate spreads.

The document compares a model that was quantized in training with another one that was quantized after it. The two
differ in architecture, size and vocabulary as well, so nothing here says what the training does: the document says so
itself, and every table, figure and claim repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.numbers.estimates import scaled
from specmeter.studies import apple_published
from specmeter.studies.quantization import published as quant_published
from specmeter.studies.quantization.qat_ptq_claims import CAVEAT, alike, rulings
from specmeter.studies.quantization.rungs import Rung, rungs, spread
from specmeter.studies.study import Axis, Point, StudyCell, StudyFigure, StudyTable
from specmeter.studies.telling import quoted

if TYPE_CHECKING:
    from specmeter.record import Standing
    from specmeter.studies.study import ClaimRuling, StudyData

TITLE = "Two families of quantized models at 3, 4, 6 and 8 bit: generation rate and its spread"
SOURCE = apple_published.SOURCE
PARTS = ("qat-vs-ptq",)

_TRAINING = {"qat": "in training (QAT)", "ptq": "after training (PTQ)", "": "not said"}


def published() -> StudyData:
    """Gemma-3-4B (QAT) and Qwen3-8B (PTQ) on an M2 Ultra with MLX."""
    return quant_published.families()


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    return rulings(data)


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """Every model with its rate and spread; the document prints these numbers in its text and data only."""
    found = rungs(data)
    if not found:
        return ()
    verdicts: dict[str, Standing | None] = {line.config: line.verdict for line in data.arms}
    return (
        StudyTable(
            key="families",
            title="Generation rate and its spread by family and width",
            about=(
                f"{_caveat(data)} Spread: standard deviation of the rate over runs (of ours: over blocks, each in a "
                "fresh process), with the interval of a normal distribution's."
            ),
            columns=(
                "family",
                "quantized",
                "bit",
                "bits/weight in the file",
                "size [GB]",
                "generation [tok/s]",
                "spread [tok/s]",
                "spread [%]",
            ),
            rows=tuple(_row(rung) for rung in found),
            verdicts=tuple(verdicts.get(rung.name) for rung in found) if verdicts else (),
        ),
    )


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Rate by width, and spread by width, a line for each family."""
    found = [rung for rung in rungs(data) if rung.generation is not None and rung.bits is not None]
    rates = tuple(_rate_point(rung) for rung in found)
    spreads = tuple(point for rung in found if (point := _spread_point(rung)) is not None)
    made = (
        StudyFigure(
            key="rate-by-bits",
            title="Generation rate by width",
            about=_caveat(data),
            kind="lines",
            x=Axis(title="bits per weight, as the type is called"),
            y=Axis(title="generation [tok/s]"),
            series_title="family",
            points=rates,
        ),
        StudyFigure(
            key="spread-by-bits",
            title="Spread of the rate by width",
            about=f"Standard deviation over runs in percent of the rate. {_caveat(data)}",
            kind="lines",
            x=Axis(title="bits per weight, as the type is called"),
            y=Axis(title="spread [%]", log=True),
            series_title="family",
            points=spreads,
        ),
    )
    return tuple(figure for figure in made if figure.points)


def _caveat(data: StudyData) -> str:
    return "The families share one architecture." if alike(rungs(data)) else CAVEAT


def _row(rung: Rung) -> tuple[StudyCell, ...]:
    rate, deviation = rung.generation, spread(rung.generation)
    packed = 8 * rung.size_bytes if rung.quality.tensor_types else None
    return (
        StudyCell(text=rung.family or rung.title),
        StudyCell(text=_TRAINING[rung.training]),
        StudyCell(text="" if rung.bits is None else f"{rung.bits:g}"),
        StudyCell(text="" if packed else "not told", value=rung.quality.bits_per_weight if packed else None),
        StudyCell(value=rung.size_bytes / 1e9, digits=3),
        StudyCell(value=rate.rate if rate else None, digits=1),
        StudyCell(value=deviation, digits=3),
        StudyCell(value=100 * deviation.point / rate.rate.point if rate and deviation else None),
    )


def _rate_point(rung: Rung) -> Point:
    assert rung.generation is not None
    assert rung.bits is not None
    value = rung.generation.rate
    return Point.of(
        value, series=rung.family or rung.title, x=rung.bits, label=f"{rung.title}: {quoted(value, 1, ' tok/s')}"
    )


def _spread_point(rung: Rung) -> Point | None:
    deviation, rate = spread(rung.generation), rung.generation
    if deviation is None or rate is None or rung.bits is None or deviation.point <= 0:
        return None
    return Point.of(
        scaled(deviation, 100 / rate.rate.point, "%"),
        series=rung.family or rung.title,
        x=rung.bits,
        label=f"{rung.title}: {quoted(deviation, 3, ' tok/s')}",
    )
