"""Tables and figures of drafts held against speed ratios, and the words that claims quote numbers with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specmeter.numbers.estimates import scaled
from specmeter.record import Estimate
from specmeter.studies.speed_ratio.ratio import RULE, Pairing, pairings
from specmeter.studies.study import Axis, Point, StudyCell, StudyData, StudyFigure, StudyTable, claimed_cell, own_cell
from specmeter.studies.telling import quoted, share

COLUMNS = (
    "target",
    "draft",
    "k",
    "speed ratio",
    "rule: pays from 2.5",
    "accepted, %",
    "tau",
    "tok/s",
    "speedup",
    "measured",
    "accepted for break-even if verification were free, %",
    "accepted for break-even at the measured cost, %",
)


_SAYS = {"above": "pays", "below": "does not", "across": "either", "unknown": "-"}


def ratio_tables(
    data: StudyData, key: str, title: str, about: str, *, by_text: str = "The same by kind of text"
) -> tuple[StudyTable, ...]:
    """The table of arms, and where it is known that of arms by kind of text; nothing where nothing drafts."""
    pairs, by_prompt = pairings(data), pairings(data, by_prompt=True)
    if not pairs:
        return ()
    table = ratio_table(pairs, key, title, about)
    return (table, prompt_table(by_prompt, "by-text", by_text)) if by_prompt else (table,)


def drawn(*figures: StudyFigure) -> tuple[StudyFigure, ...]:
    """Those that have anything to show."""
    return tuple(figure for figure in figures if figure.points)


def ratio_table(pairs: Sequence[Pairing], key: str, title: str, about: str) -> StudyTable:
    """One row per arm: ratio, what the rule says of it, what was measured, what the theory asks for."""
    return StudyTable(
        key=key,
        title=title,
        about=about,
        columns=COLUMNS,
        rows=tuple(_row(pair) for pair in pairs),
        verdicts=tuple(pair.line.of_rate for pair in pairs),
    )


def prompt_table(pairs: Sequence[Pairing], key: str, title: str) -> StudyTable:
    """One row per arm and kind of text."""
    return StudyTable(
        key=key,
        title=title,
        columns=("target", "draft", "k", "text", "accepted, %", "tau", "tok/s", "speedup"),
        rows=tuple(
            (
                StudyCell(text=pair.line.target),
                StudyCell(text=pair.line.draft or "-"),
                StudyCell(text=str(pair.line.gamma or "-")),
                StudyCell(text=pair.line.prompt or "all"),
                own_cell(pair.line, _percent(pair.line.acceptance), 1),
                own_cell(pair.line, pair.line.tau),
                own_cell(pair.line, pair.line.decode_rate, 1),
                speedup_cell(pair),
            )
            for pair in pairs
        ),
        verdicts=tuple(pair.line.of_rate for pair in pairs),
    )


def ratio_figure(pairs: Sequence[Pairing], key: str, title: str, about: str = "") -> StudyFigure:
    """Speedup over speed ratio; a line at 1, and what the rule says in the title."""
    return StudyFigure(
        key=key,
        title=title,
        about=about or f"The rule says: above 1 exactly where the ratio is {RULE:g} or more.",
        kind="points",
        x=Axis(title="speed ratio: draft rate / target rate", log=True),
        y=Axis(title="speedup", ratio=True),
        series_title="draft",
        points=tuple(point for pair in pairs if (point := _speedup_point(pair)) is not None),
    )


def acceptance_figure(pairs: Sequence[Pairing], key: str, title: str) -> StudyFigure:
    """Acceptance minus what break-even needs at each arm's own cost: gains lie above 0, by arithmetic."""
    points: list[Point] = []
    for pair in pairs:
        needed, acceptance = pair.needed_acceptance, pair.line.acceptance
        if needed is None or acceptance is None or pair.ratio is None or math.isinf(needed):
            continue
        where = {"series": _series(pair), "x": 100 * acceptance.point, "y": 100 * needed}
        points.append(Point.model_validate({**where, "label": pair.name, "verdict": pair.line.of_rate}))
    return StudyFigure(
        key=key,
        title=title,
        about="Above the diagonal an arm loses, below it an arm gains: the speed ratio moves points up and down, "
        "the text moves them left and right.",
        kind="points",
        x=Axis(title="accepted, % of drafted tokens"),
        y=Axis(title="accepted for break-even at the measured cost, %"),
        series_title="draft",
        points=tuple(points),
    )


def speedup_cell(pair: Pairing) -> StudyCell:
    """The speedup, or the false one struck out, or a dash."""
    if pair.line.speedup is not None:
        return StudyCell(value=pair.line.speedup)
    return claimed_cell(pair.line)


def told(pair: Pairing) -> str:
    """An arm in a sentence: `0.8B_Q8 k=4 (ratio 3.31 [3.12, 3.50], 80.1 % accepted): 1.38 [1.14, 1.68]`."""
    mark = ", suspect" if pair.line.verdict == "suspect" else ""
    ratio = quoted(pair.ratio).removesuffix(" (no interval)")
    of = f" on {pair.line.prompt}" if pair.line.prompt else ""
    speedup = quoted(pair.line.speedup) if pair.line.speedup is not None else _claimed(pair)
    return f"{pair.name}{of} (ratio {ratio}, {share(pair.line.acceptance)} accepted{mark}): {speedup}"


def _claimed(pair: Pairing) -> str:
    claimed = pair.line.claimed_speedup
    return "no speedup" if claimed is None else f"no speedup, {claimed:.2f} does not stand"


def _row(pair: Pairing) -> tuple[StudyCell, ...]:
    least, needed = pair.least_acceptance, pair.needed_acceptance
    return (
        StudyCell(text=pair.line.target),
        StudyCell(text=pair.line.draft or "-"),
        StudyCell(text=str(pair.line.gamma or "-")),
        StudyCell(value=pair.ratio, text="-"),
        StudyCell(text=_SAYS[pair.side]),
        own_cell(pair.line, _percent(pair.line.acceptance), 1),
        own_cell(pair.line, pair.line.tau),
        own_cell(pair.line, pair.line.decode_rate, 1),
        speedup_cell(pair),
        StudyCell(text=pair.outcome if pair.line.claimed_speedup is None else "does not stand"),
        _limit(least),
        # By the arm's own time per step.
        _limit(needed) if needed is None or math.isinf(needed) else own_cell(pair.line, 100 * needed, 1),
    )


def _percent(estimate: Estimate | None) -> Estimate | None:
    return None if estimate is None else scaled(estimate, 100, "%")


def _limit(value: float | None) -> StudyCell:
    if value is None:
        return StudyCell(text="-")
    return StudyCell(text="none suffices") if math.isinf(value) else StudyCell(value=100 * value, digits=1)


def _series(pair: Pairing) -> str:
    return f"{pair.line.draft} for {pair.line.target}"


def _speedup_point(pair: Pairing) -> Point | None:
    speedup, claimed = pair.line.speedup, pair.line.claimed_speedup
    if pair.ratio is None or (speedup is None and claimed is None):
        return None
    return Point(
        series=_series(pair),
        x=pair.ratio.point,
        y=speedup.point if speedup is not None else claimed or 0.0,
        low=speedup.low if speedup is not None else None,
        high=speedup.high if speedup is not None else None,
        label=f"{told(pair)}{f', {pair.line.prompt}' if pair.line.prompt else ''}",
        verdict=pair.line.verdict,
    )
