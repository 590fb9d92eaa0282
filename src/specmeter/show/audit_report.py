"""The report of an audit: the count, the worst rows and what they rest on, then the other rows and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.audit.claim import VERDICTS
from specmeter.audit.judge import ASSUMPTIONS
from specmeter.audit.reading import called, counts, tally
from specmeter.messages import Message
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, Tone, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specmeter.audit.claim import AuditVerdict, ColumnRead, Ruling
    from specmeter.audit.reading import Audit
    from specmeter.show.report import Block

_TONES: dict[AuditVerdict, Tone] = {
    "impossible": "bad",
    "implausible": "doubtful",
    "possible": "good",
    "cannot tell": "faint",
}
MAX_ROWS = 1_000
"""Shown per source; more than anyone reads."""
MAX_SHOWN = 10
"""Broken rows shown without --details, and as many of the others; of each verdict half of them at most where there are
several."""
SURE = 0.8
"""From this certainty on, the meaning of a column is not asked about."""


def report(audits: Sequence[Audit], *, details: bool = False) -> Report:
    """The rulings of some sources; `details`: on every row, and all that was tried on it."""
    every = [ruling for audit in audits for ruling in audit.rulings]
    said = [Message("audit.of", source=it.source, format=it.format, told=it.summary) for it in audits]
    alone = len(audits) == 1
    sections: list[Section] = []
    for place, audit in enumerate(audits, start=1):
        first, *more = _told(audit, "" if alone else f"-{place}", details=details)
        head = [] if alone else [Text(said[place - 1], "strong")]
        sections += [Section("rulings", [*head, *first]), *(Section("rulings", it) for it in more)]
    return Report(
        target=" · ".join(it.source for it in audits),
        headline=said[0] if alone else Message("audit.together", told=tally(every)),
        document=lambda: {
            "sources": [
                {
                    "source": audit.source,
                    "format": audit.format,
                    "counts": counts(audit.rulings),
                    "noise": {"share": round(audit.noise.share, 4), "origin": audit.noise.origin},
                    "notes": audit.notes,
                    "columns": [column.model_dump(mode="json") for column in audit.columns],
                    "rulings": [ruling.model_dump(mode="json", exclude_none=True) for ruling in audit.rulings],
                }
                for audit in audits
            ],
            "counts": counts(every),
            "assumptions": {name: Message(f"assumption.{name}") for name in ASSUMPTIONS},
        },
        sections=sections,
    )


def _told(audit: Audit, place: str, *, details: bool) -> Iterator[list[Block]]:
    """The worst rows, what they rest on, and the others with what the source says."""
    if not audit.rulings:
        yield [Text(Message("audit.empty")), *_how_read(audit.columns, details=True)]
        return
    shared = _shared_notes(audit.rulings)
    bad = sorted((r for r in audit.rulings if r.broken or r.contradictions), key=lambda r: VERDICTS.index(r.verdict))
    rest = [ruling for ruling in audit.rulings if not (ruling.broken or ruling.contradictions)]
    worst, others = (bad, rest) if details else (_some_of_each(bad), rest[:MAX_SHOWN])
    shown = worst[:MAX_ROWS]
    if worst:
        yield [Tabled(_rulings(f"worst{place}", shown, shared, details=details), caption=False), *_left_out(bad, worst)]
    if names := dict.fromkeys(item.name for ruling in bad for item in ruling.rests_on):
        assumed = (Message("audit.assumes", name=it, told=Message(f"assumption.{it}")) for it in names)
        yield [Text(Message("audit.rests_on")), *(Text(it, indent=2) for it in assumed)]
    found: list[Block] = []
    if others:
        more = _rulings(f"others{place}", others[: MAX_ROWS - len(shown)], shared, details=details)
        found += [Tabled(more, caption=False), *_left_out(rest, others)]
    if len(worst) + len(others) > MAX_ROWS:
        found.append(Text(Message("audit.first", most=MAX_ROWS)))
    if read := _how_read(audit.columns, details=details):
        yield from (it for it in (found, read) if it)
        found = []
    found.append(Text(Message("audit.noise", share=audit.noise.share, origin=audit.noise.origin)))
    for names, rows in audit.asked.items():
        found.append(Text(Message("audit.asked", flags=[f"--{it.replace('_', '-')}" for it in names], rows=rows)))
    said = {"read.rates_left", *(("read.columns_left",) if details and audit.columns else ())}  # further up
    notes = {**dict.fromkeys(audit.notes, ""), **shared}.items()
    left = ((note, where) for note, where in notes if getattr(note, "code", "") not in said)
    yield [*found, *(Text(Message("audit.note", where=where, told=note)) for note, where in left)]


def _how_read(columns: Sequence[ColumnRead], *, details: bool) -> list[Block]:
    """What columns were taken for, a line each: those that are in doubt as questions; others only with `details`."""
    least: dict[tuple[str, str], ColumnRead] = {}
    for it in (it for it in columns if it.heading):  # those of several tables that are alike share a line
        if (it.name, it.meaning) not in least or it.certainty < least[it.name, it.meaning].certainty:
            least[it.name, it.meaning] = it
    shown = [it for it in least.values() if details or it.certainty < SURE][: MAX_ROWS if details else MAX_SHOWN]
    if not shown:
        return []
    return [Text(Message("audit.how_read")), *(Text(_column(it), indent=2, whole=True) for it in shown)]


def _column(it: ColumnRead) -> Message:
    meaning = it.meaning.replace("_", " ") if it.is_read else Message("audit.not_read")
    if it.certainty >= SURE:
        return Message("audit.column", name=it.name, meaning=meaning)
    pin = f"{it.name}={it.meaning}"
    return Message("audit.column_asked", name=it.name, meaning=meaning, certainty=it.certainty, pin=pin)


def _left_out(every: Sequence[Ruling], shown: Sequence[Ruling]) -> list[Text]:
    left = len(every) - len(shown)
    if not left:
        return []
    return [Text(Message("report.more_rows", count=left)), Text(Message("audit.more"), at="brief")]


def _some_of_each(rulings: Sequence[Ruling]) -> list[Ruling]:
    """The first of every verdict, in the order given; more of one where there are few of another."""
    by_verdict = {verdict: [it for it in rulings if it.verdict == verdict] for verdict in VERDICTS}
    first = [it for found in by_verdict.values() for it in found[: MAX_SHOWN // 2]]
    more = [it for found in by_verdict.values() for it in found[MAX_SHOWN // 2 :]]
    chosen = {id(it) for it in (first + more)[:MAX_SHOWN]}
    return [it for it in rulings if id(it) in chosen]


def _rulings(
    name: str, rulings: Sequence[Ruling], shared: Mapping[str | Message, str | Message], *, details: bool
) -> Table:
    labelled = any(ruling.claim.label for ruling in rulings)
    rows: list[Row] = []
    for ruling in rulings:
        against = (line for line in ruling.contradictions if line != ruling.arithmetic)
        below: list[tuple[str | Message, Tone]] = [
            (Message("audit.contradiction", line=it), "strong") for it in against
        ]
        if details:
            notes = [note for note in ruling.claim.notes if note not in shared]
            below.extend((it, "faint") for it in (Message("audit.decided", bound=ruling.bound), *ruling.others, *notes))
        label = (ruling.claim.label,) if labelled else ()
        verdict = Cell(called(ruling), tone=_TONES[ruling.verdict])
        rows.append(row(ruling.claim.row, *label, verdict, Cell(ruling.reason, below=tuple(below))))
    claim = (Column("claim", most=30),) if labelled else ()
    columns = (Column("row", most=24), *claim, Column("ruling"), Column("why"))
    return Table(name, columns, rows, Message("table.rulings"))


def _shared_notes(rulings: Sequence[Ruling]) -> dict[str | Message, str | Message]:
    """Notes that several rows carry, which are about the file or a table of it, and on which rows they are.

    The notes of a file's only row are among them.
    """
    rows: dict[str | Message, list[str]] = {}
    for ruling in rulings:
        for note in dict.fromkeys(ruling.claim.notes):
            rows.setdefault(note, []).append(ruling.claim.row)
    every = len(rulings)
    return {
        note: "" if len(found) == every else Message("audit.on_rows", count=len(found), row=found[0])
        for note, found in rows.items()
        if len(found) > 1 or every == 1
    }
