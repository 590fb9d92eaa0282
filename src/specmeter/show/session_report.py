"""Recorded sessions in the report of a run: what speculation does to the time of their calls, where that time goes, and
how it depends on depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from specmeter.analysis.sessions import PARTS
from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter.numbers.stats import simultaneous
from specmeter.show.report import Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell
from specmeter.text import brackets, percent

if TYPE_CHECKING:
    from specmeter.analysis.sessions import ArmSessions
    from specmeter.show.names import Names
    from specmeter.show.report import Block


class SessionAnswer(NamedTuple):
    """What the calls of one target say."""

    said: Message
    arm_id: str
    """The best configuration; the one without speculation where nothing else was measured."""
    word: Literal["faster", "slower", "same", "open", "alone"]
    rests: tuple[Message, Message]
    """Share of the time that speculation can touch, and what the answer rests on."""


def session_answers(found: Sequence[ArmSessions], names: Names) -> Iterator[SessionAnswer]:
    """For each configuration without speculation the best one with it, by the time of the calls."""
    for base in (it for it in found if it.baseline_id is None):
        mine = [(it, it.speedup) for it in found if it.baseline_id == base.arm_id and it.speedup is not None]
        best, speedup = max(mine, key=lambda it: it[1].point, default=(base, None))
        touched = Message("sessions.touched", share=base.parts.generating)
        recorded = "" if best.recorded_s is None else Message("sessions.recorded", seconds=best.recorded_s)
        rests = Message(
            "sessions.rests",
            calls=best.calls,
            sessions=best.sessions,
            stands=round(best.stands_for),
            tokens=round(best.tokens),
            recorded=recorded,
        )
        if speedup is None:
            said = Message("sessions.alone", seconds=base.parts.total)
            yield SessionAnswer(said, base.arm_id, "alone", (touched, rests))
        else:
            sure = simultaneous(speedup, len(mine)) if speedup.low is not None else speedup
            loses = all(below(it, 1) for _, it in mine)
            word = "faster" if above(sure, 1) else "slower" if loses else "same" if sure.low is not None else "open"
            told = Message(
                f"sessions.{word}",
                name=names.in_full(best.arm_id),
                point=speedup.point,
                interval="" if sure.low is None else f" {brackets(sure, 2)}",
                saved=best.plain_s - best.parts.total,
                seconds=best.plain_s,
            )
            yield SessionAnswer(told, best.arm_id, word, (touched, rests))


def session_blocks(found: Sequence[ArmSessions], names: Names) -> Iterator[Block]:
    """The tables."""
    if not found:
        return
    yield Tabled(_times(found, names), caption=False)
    yield Text(Message("sessions.parts"), "faint")
    if any(len(it.depths) > 1 for it in found):
        yield Tabled(_depths(found, names), caption=False)


def _times(found: Sequence[ArmSessions], names: Names) -> Table:
    columns = (
        Column("arm"),
        Column("session_seconds", "number"),
        Column("session_speedup", "number"),
        Column("session_decoding", "number"),
        *(Column(f"session_{part}", "number") for part in PARTS),
    )
    rows: list[Row] = []
    for it in found:
        cells = [Cell(names[it.arm_id], id=it.arm_id), Cell(f"{it.parts.total:.1f}", it.parts.total)]
        cells += [estimate_cell(it.speedup, 2), estimate_cell(it.decoding, 2)]
        shares = {part: getattr(it.parts, part) / it.parts.total if it.parts.total else None for part in PARTS}
        shares["draft"] = shares["draft"] or None  # an engine that does not report it
        cells += [_share(shares[part]) for part in PARTS]
        rows.append(Row(tuple(cells)))
    return Table("session_times", columns, rows)


def _depths(found: Sequence[ArmSessions], names: Names) -> Table:
    columns = (
        Column("arm"),
        Column("session_depth", "number"),
        Column("session_calls", "number"),
        Column("session_stands_for", "number"),
        Column("session_speedup", "number"),
        Column("session_decoding", "number"),
        Column("brief_accepted", "number"),
        Column("session_reuse", "number"),
    )
    rows = [
        Row(
            (
                Cell(names[it.arm_id], id=it.arm_id),
                Cell(f"{at.depth:,}", at.depth),
                Cell(str(at.calls), at.calls),
                Cell(f"{at.stands_for:.0f}", at.stands_for),
                estimate_cell(at.speedup, 2),
                estimate_cell(at.decoding, 2),
                _share(at.acceptance),
                _share(at.reuse),
            )
        )
        for it in found
        for at in it.depths
    ]
    return Table("session_depths", columns, rows)


def _share(value: float | None) -> Cell:
    return Cell("-") if value is None else Cell(percent(value), value)
