"""What a user says about the columns of a table: a heading, and what it means by the names of `meanings`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specmeter.audit.claim import column_name
from specmeter.audit.read.words import load
from specmeter.errors import UsageError


def meanings() -> dict[str, str]:
    """Name -> what a column of it holds, in a line; empty where the name says it."""
    book = load()
    found = {it.name: it.meaning for it in book.columns}
    return {**found, **dict.fromkeys([name for name in book.conditions if name not in found], "")}


@dataclass(frozen=True)
class TableOptions:
    """What a user says about a table that the table does not say itself."""

    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Heading, with the slot behind it for a second number in its cells (`tok/s [%]`) -> a name of `meanings`."""
    flag: str = "--column"
    """What the user calls this."""

    def meaning_of(self, heading: str, slot: str = "") -> str | None:
        """The meaning that was given for this heading, or for one slot of it."""
        return self.columns.get(column_name(heading, slot))

    def refuse_unknown(self, names: Iterable[str], path: Path) -> None:
        """Raises `UsageError` for a heading that is not among these names of columns."""
        there = list(dict.fromkeys(names))
        for heading, meaning in self.columns.items():
            if heading not in there:
                near = difflib.get_close_matches(heading, there, n=3) or there[:12]
                raise UsageError(
                    f"{path}: {self.flag} {heading[:60]}={meaning}: no such heading",
                    fix=f"use one of {', '.join(repr(it[:60]) for it in near)}",
                )


def table_options(columns: Mapping[str, str] | None = None, flag: str = "--column") -> TableOptions:
    """What was said with this flag. Raises `UsageError` for a meaning that is none of `meanings`, naming those near."""
    known = meanings()
    for heading, meaning in (columns or {}).items():
        if heading and meaning in known:
            continue
        wanted = meaning or heading
        same = [it for it in known if wanted in it.split("_")]
        near = list(dict.fromkeys([*same[:3], *difflib.get_close_matches(wanted, known, n=2)]))
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        if heading in known and meaning:
            hint = f"put the heading first: {meaning}={heading}. "
        wrong = "no such meaning" if heading and meaning else "not of the form HEADING=MEANING"
        said = f"{heading}={meaning}" if heading else meaning
        where = "`specmeter audit --column list`" if flag.startswith("-") else "docs/reference/audit.md"
        fix = f"{hint}{where} lists all meanings"
        raise UsageError(f"{flag} {said[:100]!r}: {wrong}", fix=fix)
    return TableOptions(dict(columns or {}), flag)
