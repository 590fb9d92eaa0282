"""Prints the engines that are installed, then what each of them can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.record import TRUTHS
from specmeter.show.table import Table, row, text
from specmeter.show.terminal.console import output

if TYPE_CHECKING:
    from specmeter.engines.registry import EngineReport


def print_engines(reports: Sequence[EngineReport]) -> None:
    """Engines with their versions or problems, and a table of what those that are usable here tell."""
    screen, width = output(), max((len(it.name) for it in reports), default=0)
    for it in reports:
        told = it.version or "" if it.problem is None else f"not usable here: {it.problem}"
        lines = [f"{it.name:{width}}  {told} ({it.package})"]
        lines += [] if it.problem is None else [f"{'':{width}}  fix: {it.fix or ''}"]
        lines += [f"{'':{width}}  ignored: an engine of the same name in {it.shadowed}"] if it.shadowed else []
        screen.say_all(lines, wrap=False)
    stated = [(it.name, it.traits) for it in reports if it.traits is not None and it.problem is None]
    rows = [
        row(meaning, *("yes" if truth in traits.tells else "-" for _, traits in stated))
        for truth, meaning in TRUTHS.items()
    ]
    screen.line()
    screen.table(Table("truths", text("reports", *(name for name, _ in stated)), rows))
    screen.line()
    for name, traits in stated:
        methods = ", ".join(method.name for method in traits.methods) or "none"
        screen.say(f"{name} drafts with: {methods}", wrap=False)
