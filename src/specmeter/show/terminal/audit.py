"""Prints rulings of each source: the count, the worst rows and what they rest on, then the others and notes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from specmeter.audit.claim import VERDICTS
from specmeter.audit.laws import ASSUMPTIONS
from specmeter.audit.reading import counts, tally

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.audit.claim import Ruling, Verdict
    from specmeter.audit.reading import Audit

_COLOURS: dict[Verdict, str] = {
    "impossible": "red",
    "implausible": "magenta",
    "possible": "green",
    "cannot tell": "yellow",
}
MAX_ROWS = 1_000
"""Shown per source; more than anyone reads."""
MAX_SHOWN = 10
"""Broken rows shown without --details, and as many of the others; of each verdict half of them at most where there are
several."""
_WIDE = 110
_ROW = 24
_LABEL = 30


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
                    "notes": list(audit.notes),
                    "rulings": [ruling.model_dump(mode="json", exclude_none=True) for ruling in audit.rulings],
                }
                for audit in audits
            ],
            "counts": counts(every),
            "assumptions": {name: assumed.states for name, assumed in ASSUMPTIONS.items()},
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    from specmeter.show.terminal.text import output_console

    console = output_console()
    for audit in audits:
        print_source(console, audit, details=details)
    if len(audits) > 1:
        console.print("all together: " + tally(every), highlight=False)


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Write the names of published data sets to stdout."""
    click.echo(json.dumps({"published": list(names)}) if as_json else "\n".join(names))


def print_source(console: Console, audit: Audit, *, details: bool) -> None:
    """One source: the count, the worst rows with their reasons, what these rest on, then the others and notes."""
    from rich.markup import escape

    from specmeter.show.terminal.text import printable

    name = escape(printable(audit.source))
    console.print(f"[bold]{name}[/bold]  {audit.format}", highlight=False, soft_wrap=True)
    console.print(f"{tally(audit.rulings)}\n", highlight=False)
    if not audit.rulings:
        console.print("nothing in it to audit\n", highlight=False)
        return
    shared = _shared_notes(audit.rulings)
    bad = sorted((r for r in audit.rulings if r.broken or r.contradictions), key=lambda r: VERDICTS.index(r.verdict))
    rest = [ruling for ruling in audit.rulings if not (ruling.broken or ruling.contradictions)]
    worst, others = (bad, rest) if details else (_some_of_each(bad), rest[:MAX_SHOWN])
    if worst:
        _print_table(console, worst[:MAX_ROWS], shared, details=details)
        _print_left_out(console, len(bad) - len(worst))
        _print_assumptions(console, bad)
    if others:
        if worst:
            console.print()
        _print_table(console, others[: MAX_ROWS - len(worst[:MAX_ROWS])], shared, details=details)
        _print_left_out(console, len(rest) - len(others))
    if len(worst) + len(others) > MAX_ROWS:
        console.print(f"only the first {MAX_ROWS:,} rows are shown; --json prints all", highlight=False)
    console.print(f"noise: {audit.noise.share:.1%}, {escape(audit.noise.origin)}", highlight=False)
    for line in audit.notes:
        console.print(f"note: {escape(printable(line))}", highlight=False)
    for note, where in shared.items():
        console.print(f"note{where}: {escape(printable(note))}", highlight=False)
    console.print()


def _some_of_each(rulings: Sequence[Ruling]) -> list[Ruling]:
    """The first of every verdict, in the order given; more of one where there are few of another."""
    by_verdict = {verdict: [it for it in rulings if it.verdict == verdict] for verdict in VERDICTS}
    first = [it for found in by_verdict.values() for it in found[: MAX_SHOWN // 2]]
    more = [it for found in by_verdict.values() for it in found[MAX_SHOWN // 2 :]]
    chosen = {id(it) for it in (first + more)[:MAX_SHOWN]}
    return [it for it in rulings if id(it) in chosen]


def _print_left_out(console: Console, count: int) -> None:
    if count:
        console.print(f"and {count} more, which --details shows", highlight=False)


def _print_table(console: Console, rulings: Sequence[Ruling], shared: dict[str, str], *, details: bool) -> None:
    from rich.table import Table

    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("row", overflow="fold", max_width=_ROW if wide else 12)
    labelled = any(ruling.claim.label for ruling in rulings)
    if labelled:
        table.add_column("claim", overflow="fold", max_width=_LABEL if wide else 18)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    for ruling in rulings:
        lines = [_styled(ruling.reason, "")]
        lines += [_styled(f"contradiction: {line}", "bold") for line in ruling.contradictions]
        if details:
            notes = [note for note in ruling.claim.notes if note not in shared]
            lines += [_styled(line, "dim") for line in (f"decided by {ruling.bound}", *ruling.others, *notes)]
        cells = [_styled(ruling.claim.row, "")]
        cells += [_styled(ruling.claim.label, "")] if labelled else []
        cells.append(_styled(ruling.verdict, _COLOURS[ruling.verdict]))
        table.add_row(*cells, "\n".join(lines))
    console.print(table)


def _print_assumptions(console: Console, rulings: Sequence[Ruling]) -> None:
    """What the implausible rows rest on, each once."""
    names = dict.fromkeys(item.name for ruling in rulings for item in ruling.rests_on)
    if names:
        console.print("\nimplausible rests on these, of which one would have to be wrong by what the row needs:")
        for name in names:
            console.print(f"  [bold]{name}[/bold]: {ASSUMPTIONS[name].states}", highlight=False)


def _styled(text: str, style: str) -> str:
    from rich.markup import escape

    from specmeter.show.terminal.text import printable

    shown = escape(printable(text))
    return f"[{style}]{shown}[/{style}]" if style else shown


def _shared_notes(rulings: Sequence[Ruling]) -> dict[str, str]:
    """Notes that several rows carry, which are about the file or a table of it, and on which rows they are.

    The notes of a file's only row are among them.
    """
    rows: dict[str, list[str]] = {}
    for ruling in rulings:
        for note in dict.fromkeys(ruling.claim.notes):
            rows.setdefault(note, []).append(ruling.claim.row)
    every = len(rulings)
    return {
        note: "" if len(found) == every else f" on {len(found)} rows from {found[0]}"
        for note, found in rows.items()
        if len(found) > 1 or every == 1
    }
