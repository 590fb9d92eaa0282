"""Tables of a schedule: what to use with each number of clients, and draft lengths by batch size for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specmeter.advise.schedule import clients_of, is_decided
from specmeter.show import advice_sentence as said
from specmeter.show.advice_tables import HEADINGS
from specmeter.show.schedule_sentence import drafted, use
from specmeter.show.table import Cell, Column, Phrase, Row, Table, counted, estimated, row

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Fate
    from specmeter.advise.elsewhere import Elsewhere
    from specmeter.advise.schedule import Schedule
    from specmeter.record import Estimate


_NARROW: dict[str, Literal["keep", "point", "drop"]] = {"predicted": "point", "raced": "point", "confirmed": "keep"}


def by_clients(schedule: Schedule) -> Table:
    """A row for each number of clients: what to use, how long its drafts are, and its speedups as they were predicted
    and confirmed; raced ones where a load has no better."""
    advices = {clients_of(it): it for it in schedule.advices}
    stages = [it for it in HEADINGS if it != "raced" or any(one.basis == "raced" for one in advices.values())]
    has_open = any(count not in advices or not is_decided(advices[count]) for count in schedule.asked.clients)
    columns = (
        Column("clients", "number"),
        Column("use"),
        Column("drafted_tokens", "number"),
        *(Column(HEADINGS[it], "number", narrow=_NARROW[it]) for it in stages),
        Column("verdict"),
        *((Column("open"),) if has_open else ()),
    )
    rows = [_of_load(count, advices.get(count), stages, has_open=has_open) for count in schedule.asked.clients]
    return Table("schedule", columns, rows)


def _of_load(count: int, advice: Advice | None, stages: list[str], *, has_open: bool) -> Row:
    if advice is None:
        rest = (Cell("-") for _ in stages)
        unchecked = Phrase("verdict.unchecked")
        return row(counted(count), "-", "-", *rest, unchecked, Phrase("scheduled.not_begun_short"), tone="faint")
    decided = is_decided(advice)
    return row(
        counted(count),
        Cell(use(advice), id=(said.best_of(advice) or "") if advice.decision != "off" else ""),
        counted(drafted(advice)),
        *(estimated(speedup_of(advice, it), 2, struck=advice.verdict == "invalid") for it in stages),
        Phrase(f"verdict.{advice.verdict or 'unchecked'}"),
        *((Cell("") if decided else Cell(said.why_undecided(advice)),) if has_open else ()),
        verdict=advice.verdict,
        tone="strong" if decided and advice.decision == "speculate" else "",
    )


def speedup_of(advice: Advice, stage: str) -> Estimate | None:
    """As a stage found it, of what the answer is about: where nothing helps, the best that was tried."""
    best = said.best_of(advice)
    fate: Fate | None = next((it for it in advice.fates if it.arm_id == best), None)
    if advice.basis == stage:
        return advice.speedup
    return getattr(fate, stage) if fate is not None and stage == "predicted" else None


def by_batch_size(found: Elsewhere) -> Table:
    """The draft length for each batch size, as another program is told it."""
    rows = [
        row(Cell(f"{first}" if first == last else f"{first}-{last}", float(first)), counted(length))
        for first, last, length in found.lengths
    ]
    return Table("lengths", (Column("batch_size", "number"), Column("drafted_tokens", "number")), rows)
