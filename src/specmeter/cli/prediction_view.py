"""Prints predictions beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.prediction.outcomes import Outcome


def percent(value: float | None, *, signed: bool = True) -> str:
    """`+3.1 %`, or `-` for nothing."""
    if value is None:
        return "-"
    return f"{value * 100:+.1f} %" if signed else f"{value * 100:.1f} %"


def print_accuracy(console: Console, outcomes: Iterable[Outcome]) -> None:
    """One line about all predictions of a run, and one for each reason why there was none."""
    from rich.markup import escape

    from specmeter.cli.text import printable
    from specmeter.prediction.outcomes import accuracy

    told = tuple(outcomes)
    found = accuracy(told)
    if found is not None:
        arms = f"{found.arms} arm" + ("s" if found.arms > 1 else "")
        console.print(
            f"predicted before measuring: {arms}, off by {percent(found.median_error, signed=False)} in the median and "
            f"{percent(found.worst_error, signed=False)} at worst; {found.inside} within the predicted interval",
            style="dim",
            highlight=False,
        )
    reasons = dict.fromkeys(outcome.prediction.reason for outcome in told if outcome.prediction.speedup is None)
    for reason in reasons:
        count = sum(outcome.prediction.reason == reason for outcome in told)
        console.print(escape(printable(f"not predicted ({count}): {reason}")), style="dim", highlight=False)
