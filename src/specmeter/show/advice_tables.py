"""Tables of an advice: what was compared, and every arm of the grid with what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.advice_sentence import fate_in_short, fate_told, shown_fates
from specmeter.show.table import Cell, Column, Phrase, Row, Table, estimated, row

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Fate
    from specmeter.record import Estimate
    from specmeter.show.names import Names

HEADINGS = {"predicted": "expected", "raced": "raced", "confirmed": "confirmed"}
"""Field of a fate -> the column that shows it."""


def compared(advice: Advice, names: Names) -> Table:
    """The short table: predicted, raced and confirmed speedups of what was compared, and its fate in a word."""
    fates = shown_fates(advice)
    stages = [stage for stage in HEADINGS if any(getattr(fate, stage) is not None for fate in fates)]
    rows = [
        row(
            Cell(names[fate.arm_id], id=fate.arm_id),
            *(_speedup(getattr(fate, stage)) for stage in stages),
            Cell(fate_in_short(fate, advice)),
            tone="strong" if fate.code == "winner" and advice.decision == "speculate" else "",
        )
        for fate in fates
    ]
    if advice.decision == "off" and advice.baseline is not None:
        empty = (Cell("1.00", 1.0) for _ in stages)
        plain = Cell(names[advice.baseline.id], id=advice.baseline.id)
        told = Phrase("advised.short.winner" if advice.basis != "predicted" else "advised.short.winner_so_far")
        rows.insert(0, row(plain, *empty, told, tone="strong"))
    columns = (Column("arm"), *(Column(HEADINGS[stage], "number", narrow="point") for stage in stages), Column("fate"))
    return Table("advised", columns, rows)


def grid(advice: Advice, names: Names) -> Table:
    """Every arm with its prediction, what it was measured at, and its fate with the numbers behind it."""
    stages = [stage for stage in HEADINGS if any(getattr(fate, stage) is not None for fate in advice.fates)]
    columns = (
        Column("arm"),
        *(Column(HEADINGS[stage], "number", narrow="point" if stage == "predicted" else "drop") for stage in stages),
        Column("fate"),
    )
    return Table("grid", columns, [_of(fate, advice, names, stages) for fate in advice.fates])


def _of(fate: Fate, advice: Advice, names: Names, stages: list[str]) -> Row:
    return row(
        Cell(names[fate.arm_id], id=fate.arm_id),
        *(_speedup(getattr(fate, stage)) for stage in stages),
        Cell(fate_told(fate, advice, names)),
        tone="strong" if fate.code == "winner" else "",
    )


def _speedup(found: Estimate | None) -> Cell:
    return Cell("") if found is None else estimated(found, 2)
