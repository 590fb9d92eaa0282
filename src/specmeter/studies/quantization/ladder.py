"""apple-quant-ladder: one model in seven quantizations; what each costs in quality, and what it gains in speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.numbers.estimates import scaled
from specmeter.studies import apple_published
from specmeter.studies.quantization import published as quant_published
from specmeter.studies.quantization.ladder_claims import rulings
from specmeter.studies.quantization.rungs import Rung, bandwidth, faster, percent_change, rungs, worse
from specmeter.studies.study import Axis, Point, StudyCell, StudyFigure, StudyTable
from specmeter.studies.telling import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.record import Estimate, Standing
    from specmeter.studies.study import ClaimRuling, StudyData

TITLE = "A ladder of quantizations on Apple silicon: speed, size and perplexity from F16 to Q2_K"
SOURCE = apple_published.SOURCE
PARTS = ("apple-quant-ladder",)

_ON, _OFF, _UNKNOWN = "on the front", "beaten in all three", "not known"


def published() -> StudyData:
    """Qwen3.5-4B on an M2 Ultra, as `llama-bench` and `llama-perplexity` printed it."""
    return quant_published.ladder()


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    return rulings(data)


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The document's table, with intervals; and what the files hold."""
    ladder = rungs(data)
    if not ladder:
        return ()
    return (_results(data, ladder), *([_files(ladder)] if any(rung.quality.tensor_types for rung in ladder) else []))


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Rate and perplexity by size, with the front of speed, size and quality; and bytes read per second."""
    ladder = rungs(data)
    verdicts = _verdicts(data)
    made = (
        StudyFigure(
            key="rate-by-size",
            title="Generation rate by size",
            about="Were generation bound by memory alone, rate times size would be the same everywhere.",
            kind="points",
            x=Axis(title="size [GB]", log=True),
            y=Axis(title="generation [tok/s]", log=True),
            series_title="front of speed, size and quality",
            points=tuple(
                _point(rung, rung.generation.rate, verdicts.get(rung.name)) for rung in ladder if rung.generation
            ),
        ),
        StudyFigure(
            key="perplexity-by-size",
            title="Perplexity by size",
            about="Intervals are each model's own. The table has those of differences, much narrower where windows "
            "were scored in pairs.",
            kind="points",
            x=Axis(title="size [GB]", log=True),
            y=Axis(title="perplexity", log=True),
            series_title="front of speed, size and quality",
            points=tuple(_point(rung, rung.perplexity.estimate) for rung in ladder if rung.perplexity),
        ),
        StudyFigure(
            key="bytes-per-second",
            title="Weights read per second while generating",
            about="Rate times bytes per token: the same for all quantizations where memory alone decides.",
            kind="bars",
            x=Axis(title="quantization", order=tuple(rung.title for rung in ladder)),
            y=Axis(title="GB/s"),
            points=tuple(
                Point.of(found, x=rung.title, label=f"{rung.title}: {quoted(found, 1, ' GB/s')}")
                for rung in ladder
                if (found := _gigabytes_per_second(rung)) is not None
            ),
        ),
    )
    return tuple(figure for figure in made if figure.points)


def _point(rung: Rung, value: Estimate, verdict: Standing | None = None) -> Point:
    series = _UNKNOWN if rung.on_front is None else _ON if rung.on_front else _OFF
    made = Point.of(
        value, series=series, x=rung.size_bytes / 1e9, label=f"{rung.title}: {quoted(value)}", verdict=verdict
    )
    return made.model_copy(update={"name": rung.title})


def _gigabytes_per_second(rung: Rung) -> Estimate | None:
    found = bandwidth(rung)
    return None if found is None else scaled(found, 1e-9, "GB/s")


def _verdicts(data: StudyData) -> dict[str, Standing | None]:
    return {line.config: line.verdict for line in data.arms}


def _results(data: StudyData, ladder: Sequence[Rung]) -> StudyTable:
    first = ladder[0]
    tests = [rate.test.name if rate else "" for rate in (first.generation, first.prompt)]
    verdicts = _verdicts(data)
    return StudyTable(
        key="ladder",
        title="Speed, size and perplexity by quantization",
        about=(
            "The document's columns, with 95 % intervals where they are known. Perplexity: over windows of the text; "
            "+/- as llama.cpp prints it, tokens taken for independent. Change: against the first row, window by window "
            "where windows are known, else from the printed errors. Front: no other row is as small, as good and as "
            "fast, by points alone. GB/s: rate times the bytes that one token reads."
        ),
        columns=(
            "quantization",
            f"{tests[0] or 'generation'} [tok/s]",
            f"{tests[1] or 'prompt'} [tok/s]",
            "size [GB]",
            "bits/weight",
            "speedup",
            "perplexity",
            "+/-",
            "change [%]",
            "front",
            "read [GB/s]",
        ),
        rows=tuple(_row(rung, first) for rung in ladder),
        verdicts=tuple(verdicts.get(rung.name) for rung in ladder) if verdicts else (),
    )


def _row(rung: Rung, first: Rung) -> tuple[StudyCell, ...]:
    base = rung is first
    scored = rung.perplexity
    read = bandwidth(rung)
    return (
        StudyCell(text=rung.title),
        StudyCell(value=rung.generation.rate if rung.generation else None, digits=1),
        StudyCell(value=rung.prompt.rate if rung.prompt else None, digits=1),
        StudyCell(value=rung.size_bytes / 1e9, digits=3),
        StudyCell(value=rung.quality.bits_per_weight),
        StudyCell(text="1" if base else "", value=None if base else faster(rung, first)),
        StudyCell(value=scored.estimate if scored else None, digits=3),
        StudyCell(value=scored.token_error if scored else None, digits=3),
        StudyCell(value=None if base else percent_change(worse(rung, first))),
        StudyCell(text={True: "yes", False: "no", None: ""}[rung.on_front]),
        StudyCell(value=scaled(read, 1e-9) if read else None, digits=1),
    )


def _files(ladder: Sequence[Rung]) -> StudyTable:
    return StudyTable(
        key="files",
        title="What the files hold",
        about=(
            "llama-quantize mixes formats within a type, and falls back to another one where a row is no whole number "
            "of 256-element blocks. The document does not say what its files hold."
        ),
        columns=("quantization", "bits/weight", "tensors by format", "made by"),
        rows=tuple(
            (
                StudyCell(text=rung.title),
                StudyCell(value=rung.quality.bits_per_weight),
                StudyCell(text=", ".join(f"{n} {kind}" for kind, n in rung.quality.tensor_types.items())),
                StudyCell(text=rung.quality.made or "given as a file"),
            )
            for rung in ladder
        ),
    )
