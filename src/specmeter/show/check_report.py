"""What `specmeter check` says of a run: verdicts, findings, checks, and which files the certificate covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.record.verdict import VERDICTS
from specmeter.show.names import Names
from specmeter.show.report import Report, Section, Tabled, Text, moment
from specmeter.show.run_report import found, twins, verdict_of
from specmeter.show.run_words import looks_for
from specmeter.show.table import TONES, Cell, Column, Row, Table, row
from specmeter.store.guarded import is_written
from specmeter.store.integrity import FILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specmeter.record import Certificate, CheckOutcome, Finding
    from specmeter.show.report import Block
    from specmeter.validity.inspection import Inspection


_SHOWN = 10
"""Files that a certificate does not cover, named."""


def report(folder: Path, inspection: Inspection, *, issued: bool, every: bool) -> Report:
    """`issued`: the certificate is new; `every`: with checks that passed."""
    certificate = inspection.certificate
    names = Names(inspection.arms)
    baselines = {arm.id: arm.baseline_id for arm in inspection.arms if arm.baseline_id is not None}
    arms = Tabled(_arms(certificate, inspection.findings, baselines, names), caption=False)
    doubted = any(verdict != "valid" for verdict in certificate.arms.values())
    return Report(
        target=str(folder),
        document=dict,
        answer=[verdict_of(certificate), *(Text(it, "faint") for it in twins(inspection.models))],
        sections=[
            Section("arms", [arms] if doubted or every else []),
            Section("findings", found(inspection.findings, written=is_written(folder), names=names)),
            Section("checks", _outcomes(certificate.checks, every=every)),
            Section("covered", _coverage(folder, inspection, issued=issued)),
        ],
    )


def of_advice(folder: Path, inspection: Inspection, *, issued: bool) -> Report:
    """The same of an advice or a schedule, which is made of runs or of advices."""
    certificate, findings = inspection.certificate, inspection.findings
    said = Message(
        "check.verdict_of",
        verdict=Message(f"verdict.{certificate.verdict}"),
        state=Message(f"state.{certificate.state}"),
    )
    rows = [
        row(Cell(part, code=True), Cell(Message(f"verdict.{verdict}"), tone=TONES[verdict]))
        for part, verdict in certificate.arms.items()
    ]
    parts = Table("runs", (Column("run"), Column("verdict")), rows)
    state = "unfinished" if certificate.state == "partial" and not inspection.certified_before else ""
    lines = [Text(Message("check.unfinished"))] if state else _certified(folder, inspection, issued=issued)
    if inspection.certified_before or issued:
        lines.append(Text(Message("check.covered_files", files=list(inspection.covered)), whole=True))
    return Report(
        target=str(folder),
        document=dict,
        answer=[Text(said, TONES[certificate.verdict])],
        sections=[
            Section("parts", [Tabled(parts, caption=False)] if rows else []),
            Section("findings", found(findings)),
            Section("covered", [*lines, *_others(inspection)]),
        ],
    )


def _arms(certificate: Certificate, findings: Sequence[Finding], baselines: Mapping[str, str], names: Names) -> Table:
    """A row per arm: its verdict, and the checks that found something about it, or else about its baseline, or else
    about the whole run."""
    rows: list[Row] = []
    for arm_id, verdict in certificate.arms.items():
        own = [f for f in findings if f.arm_id == arm_id and f.severity != "note"]
        guilty = [f for f in findings if VERDICTS[f.severity] == verdict != "valid"]
        inherited = [f for f in guilty if f.arm_id is not None and f.arm_id == baselines.get(arm_id)]
        whole = [f for f in guilty if f.arm_id is None]
        reasons = list(dict.fromkeys(f.check for f in own or inherited or whole))
        code = "because" if own or not inherited else "of_its_baseline"
        shown = Cell(Message(f"verdict.{verdict}"), tone=TONES[verdict])
        called = Cell(names.in_full(arm_id), id=arm_id)
        rows.append(row(called, shown, Message(f"check.{code}", checks=reasons) if reasons else ""))
    return Table("arms", (Column("arm"), Column("verdict"), Column("because")), rows)


def _outcomes(outcomes: Sequence[CheckOutcome], *, every: bool) -> list[Block]:
    """How many checks ended how; those that were skipped, with the reason; `every` lists all of them, those too that
    do not apply."""
    blind = [it for it in outcomes if it.status == "skipped"]
    skipped = [it for it in blind if any(gap.applies for gap in it.unchecked)]
    counts = {status: sum(it.status == status for it in outcomes) for status in ("passed", "found", "partly")}
    counts |= {"skipped": len(skipped), "idle": len(blind) - len(skipped) if every else 0}
    shown = outcomes if every else [it for it in outcomes if any(gap.applies for gap in it.unchecked)]
    rows: list[Row] = []
    for outcome in shown:
        idle = outcome in blind and outcome not in skipped
        why = list(dict.fromkeys(gap.reason for gap in outcome.unchecked if gap.applies or idle))
        status = Message("status.idle") if idle else Message(f"status.{outcome.status}")
        reasons = Message("check.reasons", reasons=why)
        rows.append(
            row(outcome.check, status, *([looks_for(outcome.check) or "-"] if every else []), reasons if why else "")
        )
    columns = (Column("check"), Column("status"), *([Column("threat")] if every else []), Column("unchecked"))
    parts = [Message(f"check.count.{status}", count=count) for status, count in counts.items() if count]
    text = Text(Message("check.counts", all=sum(counts.values()), parts=parts))
    return [text, *([Tabled(Table("checks", columns, rows), caption=False)] if rows else [])]


def _coverage(folder: Path, inspection: Inspection, *, issued: bool) -> list[Block]:
    if inspection.certificate.state == "partial" and not inspection.certified_before and not inspection.refuted:
        return []
    lines = _certified(folder, inspection, issued=issued)
    if not inspection.certified_before and not issued:
        return lines
    logs = sum(part.startswith("logs/") for part in inspection.covered)
    files = [part for part in inspection.covered if part in FILES]
    tables = len(inspection.covered) - logs - len(files)
    covered = Text(Message("check.covered", tables=tables, logs=logs, files=files), whole=True)
    return [*lines, covered, *_others(inspection)]


def _certified(folder: Path, inspection: Inspection, *, issued: bool) -> list[Block]:
    """Whether the data is what was certified, and when that was."""
    state = (
        "changed"
        if inspection.refuted
        else "same"
        if inspection.certified_before
        else "issued"
        if issued
        else "not_issued"
    )
    lines: list[Block] = [Text(Message(f"check.{state}", folder=str(folder)), whole=True)]
    if not inspection.certified_before and not issued:
        return lines
    history = inspection.certificate.issues if issued else inspection.issues
    times = [Message(f"check.issue_{it.by}", at=moment(it.at)) for it in history]
    if times:
        lines.append(Text(Message("check.issues", issues=times), whole=True))
    return lines


def _others(inspection: Inspection) -> list[Block]:
    """Files that no certificate covers."""
    if others := inspection.uncovered:
        names = [f"{name} ({remark})" if remark else name for name, remark in list(others.items())[:_SHOWN]]
        more = len(others) - _SHOWN
        rest = [Message("validity.more_arms", count=more)] if more > 0 else []
        return [Text(Message("check.uncovered", files=[*names, *rest]), whole=True)]
    return []
