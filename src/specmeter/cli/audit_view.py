"""Prints rulings: one table per source, notes below it, and how many rows there are of each verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.audit.claim import Ruling
    from specmeter.audit.reading import Audit

VERDICTS = ("impossible", "possible", "cannot tell")
_COLOURS = {"impossible": "red", "possible": "green", "cannot tell": "yellow"}
MAX_ROWS = 1_000
"""Shown per source; nobody reads more."""
_WIDE = 110
_ROW = 24
_LABEL = 30


def print_audits(audits: Sequence[Audit], *, as_json: bool, details: bool) -> None:
    """Write the rulings of every source to stdout, as JSON or for people."""
    if as_json:
        document = {
            "sources": [
                {
                    "source": audit.source,
                    "format": audit.format,
                    "rulings": [ruling.model_dump(mode="json", exclude_none=True) for ruling in audit.rulings],
                }
                for audit in audits
            ],
            "counts": _counts(audits),
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    from specmeter.cli.text import output_console

    console = output_console()
    for audit in audits:
        print_source(console, audit, details=details)
    if len(audits) > 1:
        console.print("all together: " + _tally(_counts(audits)), highlight=False)


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Write the names of published data sets to stdout."""
    click.echo(json.dumps({"published": list(names)}) if as_json else "\n".join(names))


def print_source(console: Console, audit: Audit, *, details: bool) -> None:
    """One source: its rulings as a table, notes below it, and the count."""
    from rich.markup import escape

    from specmeter.cli.text import printable

    name = escape(printable(audit.source))
    console.print(f"[bold]{name}[/bold]  {audit.format}", highlight=False, soft_wrap=True)
    if not audit.rulings:
        console.print("nothing in it to audit\n", highlight=False)
        return
    shared = _shared_notes(audit.rulings)
    _print_table(console, audit.rulings, shared, details=details)
    if len(audit.rulings) > MAX_ROWS:
        console.print(f"only the first {MAX_ROWS:,} rows are shown; --json prints all", highlight=False)
    for note, where in shared.items():
        console.print(f"note{where}: {escape(printable(note))}", highlight=False)
    console.print(_tally(_counts([audit])) + "\n", highlight=False)


def _print_table(console: Console, rulings: Sequence[Ruling], shared: dict[str, str], *, details: bool) -> None:
    from rich.table import Table

    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("row", overflow="fold", max_width=_ROW if wide else 12)
    labelled = any(ruling.claim.label for ruling in rulings)
    if labelled:
        table.add_column("claim", overflow="fold", max_width=_LABEL if wide else 18)
    table.add_column("verdict", no_wrap=True)
    if wide:
        table.add_column("bound", no_wrap=True)
    table.add_column("arithmetic", overflow="fold")
    for ruling in rulings[:MAX_ROWS]:
        lines = [_styled(ruling.arithmetic if wide else f"{ruling.bound}: {ruling.arithmetic}", "")]
        if details:
            notes = [note for note in ruling.claim.notes if note not in shared]
            lines += [_styled(line, "dim") for line in (*ruling.others, *notes)]
        cells = [_styled(ruling.claim.row, "")]
        cells += [_styled(ruling.claim.label, "")] if labelled else []
        cells.append(_styled(ruling.verdict, _COLOURS[ruling.verdict]))
        cells += [_styled(ruling.bound, "")] if wide else []
        table.add_row(*cells, "\n".join(lines))
    console.print(table)


def _styled(text: str, style: str) -> str:
    from rich.markup import escape

    from specmeter.cli.text import printable

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


def _counts(audits: Sequence[Audit]) -> dict[str, int]:
    return {verdict: sum(audit.count(verdict) for audit in audits) for verdict in VERDICTS}


def _tally(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{total} {'row' if total == 1 else 'rows'}: {parts}"
