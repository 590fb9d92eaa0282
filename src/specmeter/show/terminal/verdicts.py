"""Prints verdicts and findings, and what `specmeter check` says of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.show.table import TONES, Cell, Row, Table, Tone, row, text
from specmeter.show.terminal.console import Screen, output
from specmeter.text import counted
from specmeter.verdicts import grouped

if TYPE_CHECKING:
    from specmeter.record import Certificate, CheckOutcome, Finding, Severity
    from specmeter.validity.inspection import Inspection

_SEVERITIES: dict[Severity, Tone] = {"note": "faint", "suspect": "doubtful", "invalid": "bad"}
_SHOWN = 10
"""Files that a certificate does not cover, named."""


def print_inspection(folder: Path, inspection: Inspection, *, issued: bool, every: bool) -> None:
    """Verdicts, findings, checks, and what the certificate says about which files."""
    screen = output()
    certificate, counts = inspection.certificate, inspection.certificate.requests
    screen.say(
        "verdict: ",
        (certificate.verdict, TONES[certificate.verdict]),
        f"  ({certificate.state} run; requests: {counts['valid']} valid, {counts['suspect']} suspect, "
        f"{counts['invalid']} invalid)",
    )
    screen.line()
    _print_arms(screen, certificate, inspection.findings)
    screen.line()
    print_findings(screen, inspection.findings)
    screen.line()
    _print_outcomes(screen, certificate.checks, every=every)
    _print_coverage(screen, folder, inspection, issued)


def print_findings(screen: Screen, findings: Iterable[Finding], *, notes: bool = True) -> None:
    """One paragraph per group: severity, check, where, what, and what to do about it."""
    for group in grouped(findings):
        first = group.first
        if first.severity == "note" and not notes:
            continue
        screen.say((first.severity, _SEVERITIES[first.severity]), " ", (first.check, "strong"), f" {group.where}")
        screen.say(first.message, indent=2)
        if first.severity != "note":
            screen.say(f"fix: {first.remedy}", indent=2, tone="faint")


def _print_arms(screen: Screen, certificate: Certificate, findings: Sequence[Finding]) -> None:
    """One line per arm: its verdict, and the checks that found something about it."""
    rows: list[Row] = []
    for arm_id, verdict in certificate.arms.items():
        reasons = dict.fromkeys(f.check for f in findings if f.arm_id == arm_id and f.severity != "note")
        other = "" if verdict == "valid" else "its baseline, the run, or a skipped check"
        rows.append(row(arm_id, Cell(verdict, tone=TONES[verdict]), ", ".join(reasons) or other))
    screen.table(Table("arms", text("arm", "verdict", "because of"), rows))


def _print_outcomes(screen: Screen, outcomes: Sequence[CheckOutcome], *, every: bool) -> None:
    """How many checks ended how; those that were skipped, with the reason; `every` lists all of them."""
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("passed", "found", "partly")}
    blind = [outcome for outcome in outcomes if outcome.status == "skipped"]
    applicable = [outcome for outcome in blind if any(gap.applies for gap in outcome.unchecked)]
    screen.say(
        f"checks: {len(outcomes)} in all; {counts['passed']} passed, {counts['found']} found something, "
        f"{counts['partly']} partial, {len(applicable)} skipped, "
        f"{len(blind) - len(applicable)} not applicable"
    )
    shown = outcomes if every else [o for o in outcomes if any(gap.applies for gap in o.unchecked)]
    if not shown:
        return
    rows: list[Row] = []
    for outcome in shown:
        idle = outcome in blind and outcome not in applicable
        why = "; ".join(dict.fromkeys(gap.reason for gap in outcome.unchecked if gap.applies or idle))
        told = f"{outcome.threat} ({why})" if every and why else outcome.threat if every else why
        rows.append(row(outcome.check, "does not apply" if idle else outcome.status, told))
    screen.table(Table("checks", text("check", "status", "looks for" if every else "not checked, because"), rows))


def _print_coverage(screen: Screen, folder: Path, inspection: Inspection, issued: bool) -> None:
    from specmeter.store.hashes import FILES

    if inspection.refuted:
        state = f"the data in {folder} IS NOT what was certified"
    elif inspection.certified_before:
        state = f"the data in {folder} is what was certified"
    elif issued:
        state = f"certified now: {folder}/certificate.json"
    else:
        state = "not certified: the run is being written to, or its folder is read-only"
    screen.line()
    screen.say(state, wrap=False)
    if not inspection.certified_before and not issued:
        return
    logs = sum(part.startswith("logs/") for part in inspection.covered)
    files = [part for part in inspection.covered if part in FILES]
    tables = len(inspection.covered) - logs - len(files)
    told = [f"run.sqlite ({counted(tables, 'table')})", counted(logs, "log"), *files]
    screen.say(f"covered by the certificate: {', '.join(told)}", wrap=False)
    if others := inspection.uncovered:
        shown = [f"{name} ({remark})" if remark else name for name, remark in list(others.items())[:_SHOWN]]
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        screen.say(f"not covered: {', '.join(shown)}{more}", wrap=False)
