"""Prints predictions beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.analysis.prediction.outcomes import PredictionOutcome


def percent(value: float | None, *, signed: bool = True) -> str:
    """`+3.1 %`, or `-` for nothing."""
    if value is None:
        return "-"
    return f"{value * 100:+.1f} %" if signed else f"{value * 100:.1f} %"


def print_sources(console: Console, outcomes: Iterable[PredictionOutcome]) -> None:
    """Where predictions took their costs and their acceptance from, each source once."""
    from rich.markup import escape

    from specmeter.show.terminal.text import printable

    told = [it.prediction for it in outcomes if it.prediction.speedup is not None]
    for name in ("cost", "acceptance"):
        for source in dict.fromkeys(str(getattr(it, name)) for it in told):
            arms = [it for it in told if getattr(it, name) == source]
            count = "" if len(arms) == len(told) else f" ({len(arms)} of {len(told)})"
            console.print(f"  {name}{count}: {escape(printable(source))}", style="dim", highlight=False, soft_wrap=True)


def print_accuracy(console: Console, outcomes: Iterable[PredictionOutcome]) -> None:
    """One line about all predictions of a run, and one for each reason why there was none."""
    from rich.markup import escape

    from specmeter.analysis.prediction.outcomes import accuracy
    from specmeter.show.terminal.text import printable

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
