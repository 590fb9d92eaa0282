"""Prints a comparison of two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.analysis.comparison import ArmComparison, Conclusion, RunComparison
    from specmeter.record import Estimate

_STYLES: dict[Conclusion, str] = {
    "regression": "bold red",
    "same data": "yellow",
    "slower": "yellow",
    "invalid": "red",
    "faster": "green",
    "same": "green",
    "no regression": "green",
}
_MOST_DIFFERENCES = 20


def print_comparison(found: RunComparison) -> None:
    """One table, what else differs, and the answer."""
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.page.comparison_sentence import comparison_sentence
    from specmeter.show.terminal.text import output_console, printable
    from specmeter.show.words import words

    console = output_console()
    console.print(
        f"[bold]{escape(printable(found.other))}[/bold] against {escape(printable(found.reference))}", highlight=False
    )
    wide = console.width >= 100
    table = Table(box=None, pad_edge=False)
    table.add_column("arm", overflow="fold", header_style="bold")
    for column in (*(("reference", "other") if wide else ()), "rate, x", "speedup, x"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(f"by {found.measure}", no_wrap=True)
    for arm in found.arms:
        rates = [_rate(arm.reference_rate), _rate(arm.other_rate)] if wide else []
        conclusion = arm.conclusion or "-"
        style = _STYLES.get(arm.conclusion, "") if arm.conclusion else ""
        told = f"[{style}]{conclusion}[/{style}]" if style else conclusion
        ratios = [_ratio(arm.rate), _ratio(arm.speedup)]
        table.add_row(escape(printable(arm.arm_id)), *rates, *ratios, told + _mark(arm))
    console.print(table)
    _print_differences(console, found)
    console.print(escape(printable(comparison_sentence(found, words("en")))) + "\n", highlight=False)


def _print_differences(console: Console, found: RunComparison) -> None:
    from rich.markup import escape

    from specmeter.show.terminal.text import printable

    if found.differences:
        console.print("\nwhat differs:", highlight=False)
    for difference in found.differences[:_MOST_DIFFERENCES]:
        line = f"  {difference.what}: {difference.reference} -> {difference.other}"
        console.print(escape(printable(line)), highlight=False, soft_wrap=True)
    if len(found.differences) > _MOST_DIFFERENCES:
        console.print(f"  and {len(found.differences) - _MOST_DIFFERENCES} more; --json has all", highlight=False)
    for name, arms in ((found.reference, found.only_reference), (found.other, found.only_other)):
        if arms:
            line = f"only in {name}: {', '.join(arms)}"
            console.print(escape(printable(line)), highlight=False, soft_wrap=True)
    console.print()


def _rate(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.point:.1f} tok/s"


def _ratio(estimate: Estimate | None) -> str:
    from specmeter.show.terminal.run import interval

    return interval(estimate, 3)


def _mark(arm: ArmComparison) -> str:
    """What stands behind a conclusion about numbers that may not mean what they say."""
    return " ?" if arm.verdict == "suspect" else " (not checked)" if arm.verdict is None else ""
