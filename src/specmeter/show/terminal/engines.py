"""How `specmeter engines` looks: the engines, then what each of them can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from specmeter.record import TRUTHS
from specmeter.show.terminal.text import output_console, printable

if TYPE_CHECKING:
    from specmeter.engines.survey import EngineReport


def print_engines(reports: Sequence[EngineReport]) -> None:
    """Engines with their versions or problems, and a table of what they tell."""
    from rich.markup import escape
    from rich.table import Table

    width = max((len(it.name) for it in reports), default=0)
    for it in reports:
        told = it.version if it.problem is None else f"not usable here: {it.problem}"
        click.echo(f"{printable(it.name):{width}}  {printable(told or '')} ({printable(it.package)})")
        if it.problem is not None:
            click.echo(f"{'':{width}}  fix: {printable(it.fix or '')}")
        if it.shadowed:
            click.echo(f"{'':{width}}  ignored: an engine of the same name in {printable(it.shadowed)}")
    stated = [(it.name, it.traits) for it in reports if it.traits is not None]
    click.echo()
    table = Table(box=None, pad_edge=False)
    table.add_column("it tells")
    for name, _ in stated:
        table.add_column(escape(printable(name)))
    for truth, meaning in TRUTHS.items():
        table.add_row(meaning, *("yes" if truth in traits.tells else "-" for _, traits in stated))
    output_console().print(table)
    click.echo()
    for name, traits in stated:
        methods = ", ".join(method.name for method in traits.methods) or "none"
        click.echo(f"{printable(name)} drafts by: {printable(methods)}")
