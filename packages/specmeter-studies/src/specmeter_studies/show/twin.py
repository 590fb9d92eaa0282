"""The controlled experiment on the page of all documents: a dense model beside MoE models made of it.

Its rows are in `library/twin.csv`, made by `scripts/twin_rows.py` of runs of the study moe-twin; every number of the
page links to its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter.record import Estimate, Record
from specmeter.show.figure import Figure
from specmeter.show.report import Chart, Command, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Kind, Row, Table, estimate_cell
from specmeter_studies.show.figures import drawn
from specmeter_studies.show.tables import own_rows, rows_of_data
from specmeter_studies.study import Axis, Point, StudyFigure
from specmeter_studies.telling import quoted

_LEAST_READS = 1.5
"""Experts of a verification over those of a token, below which there is hardly a choice to speak of."""
_ESTIMATES = ("ratio", "per_step", "speedup", "base_speedup", "full")


class TwinRow(Record):
    """A model beside another one that computes the same, with the same drafts."""

    id: str
    device: str
    part: str
    """Experiment of the study."""
    model: str
    """Reference of the model that it is compared with."""
    measured: str
    """Seconds since the epoch."""
    verdict: str
    target: str
    base: str
    """Name of the model that it is compared with: `dense`, `dense2`, `single`."""
    drafts: str
    """The draft model, or the method."""
    gamma: int
    experts: int
    used: int
    counts: bool
    """Whether both sides draft and generate as many tokens per step, within 1%; only then it is used."""
    union: float
    """Different experts of a layer that a verification reads, if drafts are whole or none: at least so many."""
    reads: float
    """The same over those of one token."""
    ratio: Estimate
    """Of both speedups."""
    per_step: Estimate
    """The same at equal tokens per step."""
    predicted: float | None
    """Of `per_step`, without timing the model itself."""
    speedup: Estimate
    base_speedup: Estimate
    full: Estimate | None
    """The speedup if every draft token were accepted."""
    blocks: int
    method: str
    acceptance: float
    base_acceptance: float


FIELDS = [
    column
    for name in TwinRow.model_fields
    for column in ((name, f"{name}_low", f"{name}_high") if name in _ESTIMATES else (name,))
]
"""Columns of the file."""


def measured() -> list[TwinRow]:
    """The rows of the file."""
    return [read(it) for it in own_rows("twin.csv")]


def read(cells: Mapping[str, str]) -> TwinRow:
    """A line of the file."""
    kept: dict[str, Any] = {name: cells[name] or None for name in TwinRow.model_fields}
    for name in _ESTIMATES:
        ends = {"point": cells[name], "low": cells[f"{name}_low"], "high": cells[f"{name}_high"], "unit": "x"}
        kept[name] = {**ends, "n": cells["blocks"], "of": "blocks", "method": cells["method"]} if cells[name] else None
    return TwinRow.model_validate(kept)


# --- sentences --------------------------------------------------------------------------------------------------------


def answer(rows: Sequence[TwinRow] | None = None) -> list[Text]:
    """A sentence for each dense model: what a choice of experts does where a verification reads most of them, beside
    the MoE with one expert, whose code is the same. By n-grams if there are any: the time of a draft model dilutes it.
    The pairs share the times of that MoE, so the sentence has those beside the dense model too.
    """
    found: list[Text] = []
    every = _counting(rows)
    for device, part in dict.fromkeys((it.device, it.part) for it in every):
        routed = [it for it in every if (it.device, it.part) == (device, part) and it.experts > it.used == 1]
        both = [it for it in routed if it.drafts.startswith("ngram")] or routed
        free = [it for it in both if it.base == "single"]
        if not free:  # without that control it may be the engine's code
            continue
        alone = max(free, key=lambda it: it.reads)
        if alone.reads < _LEAST_READS:
            continue
        effect = "less" if below(alone.per_step, 1) else "more" if above(alone.per_step, 1) else "same"
        said = Message(
            "documents.twin",
            effect=Message(f"documents.twin.{effect}"),
            model=alone.model.rpartition("/")[2],
            experts=alone.experts,
            ratio=quoted(alone.per_step),
            drafts=alone.drafts,
            gamma=alone.gamma,
            reads=alone.reads,
            pairs=_pairs("single", free),
            beside=_pairs("dense", beside) if (beside := [it for it in both if it.base == "dense"]) else "",
            device=device,
        )
        found.append(Text(said, row=f"twin-{alone.id}", at="page" if found else "everywhere"))
    return found


def _pairs(base: str, rows: Sequence[TwinRow]) -> Message:
    points = [it.per_step.point for it in rows]
    lower = sum(below(it.per_step, 1) for it in rows)
    return Message(f"documents.twin.{base}", n=len(rows), lower=lower, least=min(points), most=max(points))


def _counting(rows: Sequence[TwinRow] | None) -> list[TwinRow]:
    return [it for it in (measured() if rows is None else rows) if it.counts]


def section() -> list[Section]:
    """The figure, what it leaves out, the rows, and how to repeat it; nothing before there are rows."""
    every = measured()
    if not every:
        return []
    told = answer()
    blocks = [it.blocks for it in every]
    left = len(every) - len(_counting(every))
    limits = Message("documents.twin.limits", left=left, n=len(every), least=min(blocks), most=max(blocks))
    shown = [*told[1:], Text(limits, at="page"), *_silent(every), Chart(figure), Tabled(table())]
    command = Command(["specmeter", "study", "run", "moe-twin"])
    return [Section("twin", [*shown, Text(Message("documents.twin.repeat"), at="page"), command])]


def _silent(every: Sequence[TwinRow]) -> Iterator[Text]:
    """What was measured of a dense model beside one expert, if no pair of it counts."""
    for part in dict.fromkeys(it.part for it in every):
        rows = [it for it in every if it.part == part and it.base == "single" and it.experts > it.used == 1]
        if rows and not any(it.counts for it in rows):
            points = [it.per_step.point for it in rows]
            model = rows[0].model.rpartition("/")[2].removesuffix(".gguf")
            said = Message("documents.twin.silent", model=model, n=len(rows), least=min(points), most=max(points))
            yield Text(said, row=f"twin-{rows[0].id}", at="page")


# --- figure and tables ------------------------------------------------------------------------------------------------


def figure(rows: Sequence[TwinRow] | None = None) -> Figure | None:
    """Speedup over that with a single expert, by the experts that are read; a panel for each model and draft."""
    every = [it for it in _counting(rows) if it.experts > it.used and it.base == "single"]
    points: list[Point] = []
    for it in sorted(every, key=lambda it: (it.device, it.part, it.drafts, it.target, it.reads)):
        shown = {"x": it.reads, "facet": f"{it.part}, {it.drafts} ({it.device})", "label": f"gamma {it.gamma}"}
        ends = {"y": it.per_step.point, "low": it.per_step.low, "high": it.per_step.high}
        points.append(Point.model_validate({**shown, **ends, "series": it.target}))
    made = StudyFigure(
        key="twin",
        title=Message("documents.twin.figure"),
        about=Message("documents.twin.lines"),
        kind="lines",
        x=Axis(title=Message("experts read")),
        y=Axis(title=Message("documents.twin.axis"), ratio=True),
        series_title=Message("target"),
        points=tuple(points),
    )
    return drawn(made, "measured", "twin") if points else None


def table() -> Table:
    """What was measured, with links to the unrounded rows."""
    columns = (
        Column("twin_model", title=Message("documents.column.model")),
        Column("target"),
        Column("twin_base", title=Message("compared with")),
        _column("drafts", "draft model or method", "text"),
        Column("gamma", "number"),
        _column("reads", "experts read"),
        _column("base_speedup", "speedup of that model"),
        Column("speedup", "number"),
        _column("per_step", "ratio"),
        _column("predicted", "predicted"),
    )
    rows = [
        Row(
            (
                Cell(it.model.rpartition("/")[2], code=True),
                Cell(it.target),
                Cell(it.base),
                Cell(it.drafts),
                Cell(str(it.gamma), it.gamma),
                _linked(Cell(f"{it.reads:.1f}", it.reads), it),
                *(
                    _linked(estimate_cell(number, digits), it)
                    for number, digits in ((it.base_speedup, 2), (it.speedup, 2), (it.per_step, 3))
                ),
                Cell("-") if it.predicted is None else _linked(Cell(f"{it.predicted:.3f}", it.predicted), it),
            )
        )
        for it in _counting(None)
    ]
    return Table("twin", columns, rows, Message("documents.table.twin"))


def _column(key: str, title: str, kind: Kind = "number") -> Column:
    return Column(f"twin_{key}", kind, Message(title))


def _linked(cell: Cell, row: TwinRow) -> Cell:
    return replace(cell, row=f"twin-{row.id}")


def source() -> list[Table]:
    """The rows as they are in the file."""
    rows = own_rows("twin.csv")
    if not rows:
        return []
    return [rows_of_data("rows_twin", rows, [f"twin-{it['id']}" for it in rows], FIELDS[1:])]
