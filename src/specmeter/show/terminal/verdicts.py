"""Prints verdicts and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specmeter.verdicts import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.record import Certificate, CheckOutcome, Finding, Severity, Verdict

STYLES: dict[Verdict, str] = {"valid": "green", "suspect": "yellow", "invalid": "red"}
_SEVERITY_STYLES: dict[Severity, str] = {"note": "dim", "suspect": "yellow", "invalid": "red"}


def print_findings(console: Console, findings: Iterable[Finding], *, notes: bool = True) -> None:
    """One paragraph per group: severity, check, where, what, and what to do about it."""
    from rich.markup import escape
    from rich.padding import Padding

    from specmeter.show.terminal.text import printable

    for group in grouped(findings):
        first = group.first
        if first.severity == "note" and not notes:
            continue
        style = _SEVERITY_STYLES[first.severity]
        head = (
            f"[{style}]{first.severity}[/{style}] [bold]{escape(first.check)}[/bold] {escape(printable(group.where))}"
        )
        console.print(head, highlight=False)
        console.print(Padding(escape(printable(first.message)), (0, 0, 0, 2), expand=False), highlight=False)
        if first.severity != "note":
            console.print(
                Padding(escape(printable(f"fix: {first.remedy}")), (0, 0, 0, 2), expand=False),
                highlight=False,
                style="dim",
            )


def print_outcomes(console: Console, outcomes: Sequence[CheckOutcome], *, every: bool) -> None:
    """How many checks ended how; those that could not look, with the reason; `every` lists all of them."""
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.text import printable

    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("passed", "found", "partly")}
    blind = [outcome for outcome in outcomes if outcome.status == "skipped"]
    applicable = [outcome for outcome in blind if any(gap.applies for gap in outcome.unchecked)]
    console.print(
        f"checks: {len(outcomes)} in all; {counts['passed']} passed, {counts['found']} found something, "
        f"{counts['partly']} could look at a part, {len(applicable)} could not look, "
        f"{len(blind) - len(applicable)} do not apply here",
        highlight=False,
    )
    shown = outcomes if every else [o for o in outcomes if any(gap.applies for gap in o.unchecked)]
    if not shown:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("check", "status", "looks for" if every else "why not"):
        table.add_column(column, overflow="fold", header_style="bold")
    for outcome in shown:
        idle = outcome in blind and outcome not in applicable
        reasons = dict.fromkeys(gap.reason for gap in outcome.unchecked if gap.applies or idle)
        why = "; ".join(reasons)
        status = "does not apply" if idle else outcome.status
        told = f"{outcome.threat} ({why})" if every and why else outcome.threat if every else why
        table.add_row(escape(outcome.check), status, escape(printable(told)))
    console.print(table)


def print_verdicts(console: Console, certificate: Certificate, findings: Sequence[Finding]) -> None:
    """One line per arm: its verdict, and the checks that found something about it."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("arm", overflow="fold", header_style="bold")
    table.add_column("verdict", no_wrap=True, header_style="bold")
    table.add_column("because of", overflow="fold", header_style="bold")
    for arm_id, verdict in certificate.arms.items():
        reasons = dict.fromkeys(f.check for f in findings if f.arm_id == arm_id and f.severity != "note")
        why = ", ".join(reasons) or (
            "" if verdict == "valid" else "its baseline, the run, or a check that could not look"
        )
        table.add_row(escape(arm_id), f"[{STYLES[verdict]}]{verdict}[/{STYLES[verdict]}]", escape(why))
    console.print(table)
