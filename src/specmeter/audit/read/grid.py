"""A table as it was found -> a grid: rows of as many cells each under one row of headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from specmeter.audit.read.cells import EMPTY, is_number
from specmeter.errors import UsageError
from specmeter.messages import Message

HEADING_ROWS = 3
MAX_COLUMNS = 1_000
MAX_ROWS = 200_000
MAX_CELLS = 2_000_000
"""Cells of one table, those that spans repeat included."""
Row = tuple[str, list[str]]
"""(where, cells): `line 7`."""


@dataclass
class Table:
    """A table as it was found: cleaned cells, headings first."""

    rows: list[Row]
    heads: int = 0
    """Rows of headings; 0 if nothing shows how many there are."""
    kind: str = "table"
    context: str = ""
    """Text above it, and whatever else holds for all of it."""
    spans: bool = False
    """Whether a cell that spans several is repeated in each."""
    faults: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    """(where, why): rows that could not be read."""
    used: set[int] = field(default_factory=set[int])
    """Lines of a page that it takes, from 1 on; only where other layouts look at the rest."""


@dataclass
class Grid:
    """One table: headings (levels joined by ` | `) and rows of as many cleaned cells."""

    head: list[str]
    rows: list[list[str]]
    places: list[str]
    """Of each row, where it is: `line 7`."""
    context: str = ""
    """The text above it."""
    kind: str = "table"
    """Layout: `markdown`, `csv`, `html`, `latex`, `json`, `gaps`, `keys`, `list`, `prose`; ` turned` behind it."""
    sections: list[str] = field(default_factory=list[str])
    """Of each row, the line above it that holds for all rows up to the next such line."""
    changes: dict[str, str] = field(default_factory=dict[str, str])
    """Of a grid on its side: heading -> the cell that says how it changed from one row to the other."""
    faults: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    """(where, why): rows that could not be read."""


def built(tables: Iterable[Table], path: Path) -> list[Grid]:
    """The grids of tables, those without a row left out. Raises `UsageError` for one that is too large."""
    return [grid for table in tables if (grid := build(table, path)) is not None]


def build(table: Table, path: Path) -> Grid | None:
    """A grid: levels of headings joined, sections and merged names filled in; None if it has no row.

    Raises `UsageError` if it is too large.
    """
    widest = max((len(cells) for _, cells in table.rows[:HEADING_ROWS]), default=0)
    for count, most, what, fix in (
        (widest, MAX_COLUMNS, "columns", "remove unneeded columns"),
        (len(table.rows), MAX_ROWS, "rows", "split the file"),
        (sum(len(cells) for _, cells in table.rows), MAX_CELLS, "cells", "remove unneeded columns"),
    ):
        if count > most:
            raise UsageError(f"{path}: more than {most:,} {what}", fix=fix)
    heads = table.heads or 1
    if len(table.rows) <= heads:
        return None
    width, faults, rows = _squared(table, heads)
    while (
        heads < HEADING_ROWS
        and len(rows) > heads + 1
        and _is_heading(*(cells for _, cells in rows[heads - 1 : heads + 2]))
    ):
        heads += 1
    levels = [list(cells) for _, cells in rows[:heads]]
    for level in () if table.spans else levels[:-1]:  # a heading reaches over the empty ones right of it
        for column in range(1, width):
            if not level[column] and levels[-1][column]:
                level[column] = level[column - 1]
    head = [" | ".join(dict.fromkeys(level[column] for level in levels if level[column])) for column in range(width)]
    head = _under_prefix(head)
    grid = Grid(head, [], [], table.context, table.kind, faults=[*table.faults, *faults])
    section = ""
    for place, cells in rows[heads:]:
        if not any(cells):
            continue
        if said := _section(cells, spans=table.spans):
            section = said
            continue
        grid.rows.append(cells)
        grid.places.append(place)
        grid.sections.append(section)
    if not table.spans:
        _fill_down(grid.rows)
    return grid if grid.rows or grid.faults else None


def _under_prefix(head: list[str]) -> list[str]:
    """Headings that come twice, with the words before the colon to their left: `off: TTFT`, `t/s`, `on: TTFT`."""
    prefix, found = "", list[str]()
    for heading in head:
        before, colon, after = heading.partition(": ")
        prefix = before if colon and after else prefix
        found.append(f"{prefix}: {heading}" if prefix and head.count(heading) > 1 else heading)
    return found


def _squared(table: Table, heads: int) -> tuple[int, list[tuple[str, Message]], list[Row]]:
    """(columns, rows that have too few or too many cells, the others with as many cells each)."""
    counts = Counter(len(cells) for _, cells in table.rows[heads:])
    width = max(counts, key=counts.__getitem__)
    if table.kind == "csv":
        width = max(len(table.rows[0][1]), 1)
    width = min(max(width, 1), MAX_COLUMNS)
    faults: list[tuple[str, Message]] = []
    rows: list[Row] = []
    for number, (place, cells) in enumerate(table.rows):
        while len(cells) > width and not cells[-1]:
            cells = cells[:-1]
        if number < heads:
            cells = ["", *cells] if len(cells) == width - 1 and table.kind != "csv" else cells[:width]
        elif table.kind == "csv" and len(cells) != width and any(cells):
            faults.append((place, Message("unread.cells", cells=len(cells), headings=width)))
            continue
        elif len(cells) > width:
            cells = [*cells[: width - 1], " ".join(cells[width - 1 :])]
        rows.append((place, [*cells, *[""] * (width - len(cells))]))
    return width, faults, rows


def _section(cells: list[str], *, spans: bool) -> str:
    """The words of a line that is not a row: alone in it, or the same across the table."""
    filled = [cell for cell in cells if cell]
    across = len(filled) >= len(cells) - 1 if spans else len(filled) in {1, len(cells)}
    is_name = not is_number(filled[0]) or re.fullmatch(r"\d+(?:\.\d+)?[BM]", filled[0]) is not None
    return filled[0] if across and len(cells) > 2 and set(filled) == {cells[0]} and is_name else ""


def _fill_down(rows: list[list[str]]) -> None:
    """An empty first cell is the one above it, where these name what is measured, and an empty second one with it."""
    first = rows[0] if rows else []
    merged = [number for number, row in enumerate(rows) if number and (not row[0] or not first[0])]
    for column in range(min(2, len(first))):
        if first[column] and any(row[column] and not is_number(row[column]) for row in rows):
            for number in merged:
                rows[number][column] = rows[number][column] or rows[number - 1][column]


def _is_heading(above: list[str], cells: list[str], below: list[str]) -> bool:
    """Whether a row below one of headings is a further row of headings."""
    filled = [cell for cell in cells if cell]
    if len(filled) < max(2, len(cells) / 2) or any(is_number(cell) or EMPTY.fullmatch(cell) for cell in filled):
        return False
    if len(filled) == len(cells) > 2 and len(set(filled)) == 1:
        return False  # a line across the table
    count = sum(map(is_number, below))
    repeats = len(set(filled)) < len(filled) or 2 * above.count("") >= len(above)
    return (count >= max(2, len(cells) // 2) and repeats) or (not cells[0] and count >= 2)


_CHANGE = re.compile(
    r"\W*(?:change|delta|Δ|diff\w*|gain|improvement|uplift|speed-?up|ratio|factor|变化)\W*(?:\(?[%x]\)?)?", re.I
)
_MOST_TURNED = 40


def turned(grid: Grid) -> Grid | None:
    """The grid on its side, with the first column as headings; None if it cannot lie on its side."""
    names = [row[0] for row in grid.rows]
    if not 2 <= len(names) <= _MOST_TURNED or len(grid.head) < 2 or grid.kind in {"prose", "list"}:
        return None
    columns = [column for column in range(1, len(grid.head)) if not _CHANGE.fullmatch(grid.head[column])]
    if len(set(names)) < len(names) or not all(names) or not columns:
        return None
    rows = [[grid.head[column], *(row[column] for row in grid.rows)] for column in columns]
    places = [f"column {grid.head[column][:60] or column + 1}" for column in columns]
    head = [grid.head[0], *names]
    change = next((column for column in range(1, len(grid.head)) if column not in columns), None)
    return replace(
        grid,
        head=head,
        rows=rows,
        places=places,
        kind=f"{grid.kind} turned",
        sections=[""] * len(rows),
        changes={} if change is None or len(columns) > 2 else {row[0]: row[change] for row in grid.rows},
    )
