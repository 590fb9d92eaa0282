"""Prints runs, or machines, beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.load_report import crossover_sentence, main_crossovers
from specmeter.show.names import Names
from specmeter.show.sentence import comparison_sentence
from specmeter.show.table import Cell, Column, Row, Table, Tone, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import Screen, output
from specmeter.show.words import words

if TYPE_CHECKING:
    from specmeter.analysis.comparison import Conclusion, RunComparison

_TONES: dict[Conclusion, Tone] = {
    "regression": "bad",
    "same data": "doubtful",
    "slower": "doubtful",
    "invalid": "bad",
    "faster": "good",
    "same": "good",
    "no regression": "good",
}
_MOST_DIFFERENCES = 20


def print_comparison(found: RunComparison) -> None:
    """The answer, one table over the prompts that both runs have, and what else differs."""
    screen, names, english = output(), Names(found.asked), words("en")
    screen.say((comparison_sentence(found, english), "strong"))
    screen.line()
    rates = (Column(name, "number", f"{name}, tok/s", narrow="drop") for name in ("reference", "other"))
    columns = (
        Column("configuration", title=" ", most=44),
        *rates,
        *numbers("rate, x", "speedup, x"),
        *text(f"by {found.measure}"),
    )
    rows: list[Row] = []
    for arm in found.arms:
        mark = "suspect" if arm.verdict == "suspect" else "unchecked" if arm.verdict is None else None
        tone = _TONES.get(arm.conclusion, "") if arm.conclusion else ""
        rates_ = (Cell("-" if it is None else f"{it.point:.1f}") for it in (arm.reference_rate, arm.other_rate))
        ratios = (estimate_cell(arm.rate, 3), estimate_cell(arm.speedup, 3))
        rows.append(
            row(names.in_full(arm.arm_id, english), *rates_, *ratios, Cell(arm.conclusion or "-", mark=mark, tone=tone))
        )
    screen.table(Table("arms", columns, rows))
    if found.arms:
        screen.say(
            "rates and ratios are over the prompts that both runs completed; [low, high]: 95% interval", tone="faint"
        )
    under_load = {arm.id for arm in found.asked if arm.load is not None}
    if any(arm.arm_id in under_load for arm in found.arms):
        screen.say("under load: total tokens per second of all clients, over cells with the same texts", tone="faint")
    for name, crossed in ((found.reference, found.reference_crossovers), (found.other, found.other_crossovers)):
        for it in main_crossovers(crossed):
            screen.say(f"{name}: {crossover_sentence(it, english, names)}")
    _print_differences(screen, found)


def _print_differences(screen: Screen, found: RunComparison) -> None:
    if found.differences:
        screen.line()
        screen.say("what differs:")
    for difference in found.differences[:_MOST_DIFFERENCES]:
        screen.say(f"  {difference.what}: {difference.reference} -> {difference.other}", wrap=False)
    if len(found.differences) > _MOST_DIFFERENCES:
        screen.say(f"  and {len(found.differences) - _MOST_DIFFERENCES} more; --json has all")
    for name, arms in ((found.reference, found.only_reference), (found.other, found.only_other)):
        if arms:
            screen.say(f"only in {name}: {', '.join(arms)}", wrap=False)
    screen.line()
