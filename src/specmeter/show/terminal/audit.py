"""Prints rulings of each source: the count, the worst rows and what they rest on, then the others and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.audit.claim import VERDICTS
from specmeter.audit.judge import ASSUMPTIONS, in_words
from specmeter.audit.reading import counts, tally
from specmeter.messages import Message
from specmeter.show.table import Cell, Column, Row, Table, Tone, row, text
from specmeter.show.terminal.console import Said, Screen, output, say_json
from specmeter.text import percent

if TYPE_CHECKING:
    from specmeter.audit.claim import AuditVerdict, Ruling
    from specmeter.audit.reading import Audit

_TONES: dict[AuditVerdict, Tone] = {
    "impossible": "bad",
    "implausible": "doubtful",
    "possible": "good",
    "cannot tell": "faint",
}
_WIDE = 110
"""Columns of a screen on which names are not cut in halves."""
MAX_ROWS = 1_000
"""Shown per source; more than anyone reads."""
MAX_SHOWN = 10
"""Broken rows shown without --details, and as many of the others; of each verdict half of them at most where there are
several."""


def print_audits(audits: Sequence[Audit], *, as_json: bool, details: bool) -> None:
    """Write the rulings of every source to stdout, as JSON or for people."""
    every = [ruling for audit in audits for ruling in audit.rulings]
    if as_json:
        document = {
            "sources": [
                {
                    "source": audit.source,
                    "format": audit.format,
                    "counts": counts(audit.rulings),
                    "noise": {"share": round(audit.noise.share, 4), "origin": audit.noise.origin},
                    "notes": audit.notes,
                    "rulings": [ruling.model_dump(mode="json", exclude_none=True) for ruling in audit.rulings],
                }
                for audit in audits
            ],
            "counts": counts(every),
            "assumptions": {name: _taken(name) for name in ASSUMPTIONS},
        }
        say_json(document)
        return
    screen = output()
    for audit in audits:
        print_source(screen, audit, details=details)
    if len(audits) > 1:
        screen.say("all together: ", tally(every))


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Write the names of published data sets to stdout."""
    if as_json:
        say_json({"published": list(names)})
    else:
        output().say_all(names, wrap=False)


def print_source(screen: Screen, audit: Audit, *, details: bool) -> None:
    """One source: the count, the worst rows with their reasons, what these rest on, then the others and notes."""
    screen.say((audit.source, "strong"), f"  {audit.format}", wrap=False)
    screen.say(tally(audit.rulings))
    screen.line()
    if not audit.rulings:
        screen.say("nothing in it to audit")
        screen.line()
        return
    shared = _shared_notes(audit.rulings)
    bad = sorted((r for r in audit.rulings if r.broken or r.contradictions), key=lambda r: VERDICTS.index(r.verdict))
    rest = [ruling for ruling in audit.rulings if not (ruling.broken or ruling.contradictions)]
    worst, others = (bad, rest) if details else (_some_of_each(bad), rest[:MAX_SHOWN])
    if worst:
        screen.table(_rulings(screen, worst[:MAX_ROWS], shared, details=details))
        _print_left_out(screen, len(bad) - len(worst))
        _print_assumptions(screen, bad)
    if others:
        if worst:
            screen.line()
        screen.table(_rulings(screen, others[: MAX_ROWS - len(worst[:MAX_ROWS])], shared, details=details))
        _print_left_out(screen, len(rest) - len(others))
    if len(worst) + len(others) > MAX_ROWS:
        screen.say(f"only the first {MAX_ROWS:,} rows are shown; --json prints all")
    screen.say(f"noise: {percent(audit.noise.share, 1)}, ", audit.noise.origin)
    for note in audit.notes:
        screen.say("note: ", note)
    for note, where in shared.items():
        screen.say(f"note{where}: ", note)
    screen.line()


def _some_of_each(rulings: Sequence[Ruling]) -> list[Ruling]:
    """The first of every verdict, in the order given; more of one where there are few of another."""
    by_verdict = {verdict: [it for it in rulings if it.verdict == verdict] for verdict in VERDICTS}
    first = [it for found in by_verdict.values() for it in found[: MAX_SHOWN // 2]]
    more = [it for found in by_verdict.values() for it in found[MAX_SHOWN // 2 :]]
    chosen = {id(it) for it in (first + more)[:MAX_SHOWN]}
    return [it for it in rulings if id(it) in chosen]


def _print_left_out(screen: Screen, count: int) -> None:
    if count:
        screen.say(f"and {count} more, which --details shows")


def _rulings(screen: Screen, rulings: Sequence[Ruling], shared: Mapping[Said, str], *, details: bool) -> Table:
    part = 1 if screen.width >= _WIDE else 2
    labelled = any(ruling.claim.label for ruling in rulings)
    rows: list[Row] = []
    for ruling in rulings:
        below: list[tuple[Said, Tone]] = [
            (Message("audit.contradiction", line=it), "strong") for it in ruling.contradictions
        ]
        if details:
            notes = [note for note in ruling.claim.notes if note not in shared]
            more = (f"decided by {ruling.bound}", *ruling.others, *notes)
            below.extend((line, "faint") for line in more)
        label = (ruling.claim.label,) if labelled else ()
        verdict = Cell(in_words(ruling.verdict), tone=_TONES[ruling.verdict])
        rows.append(row(ruling.claim.row, *label, verdict, Cell(ruling.reason, below=tuple(below))))
    claim = (Column("claim", title="claim", most=30 // part),) if labelled else ()
    return Table("rulings", (Column("row", title="row", most=24 // part), *claim, *text("verdict", "why")), rows)


def _print_assumptions(screen: Screen, rulings: Sequence[Ruling]) -> None:
    """What the implausible rows rest on, each once."""
    names = dict.fromkeys(item.name for ruling in rulings for item in ruling.rests_on)
    if names:
        screen.line()
        screen.say("implausible rests on these, of which one would have to be wrong by what the row needs:")
        for name in names:
            screen.say("  ", (name, "strong"), ": ", _taken(name))


def _taken(name: str) -> Message:
    """What an assumption takes for granted."""
    return Message(f"assumption.{name}")


def _shared_notes(rulings: Sequence[Ruling]) -> dict[Said, str]:
    """Notes that several rows carry, which are about the file or a table of it, and on which rows they are.

    The notes of a file's only row are among them.
    """
    rows: dict[Said, list[str]] = {}
    for ruling in rulings:
        for note in dict.fromkeys(ruling.claim.notes):
            rows.setdefault(note, []).append(ruling.claim.row)
    every = len(rulings)
    return {
        note: "" if len(found) == every else f" on {len(found)} rows from {found[0]}"
        for note, found in rows.items()
        if len(found) > 1 or every == 1
    }
