"""Grids of cells: what tables of all forms have in common, whatever they were written in (`pages`).

Headings on one or two levels, cells that stand for several rows, rows that only say
what those below have in common, tables on their side. A form that says itself which cells span what (HTML, LaTeX) is
believed; elsewhere an empty cell is filled only where headings or the rows around it show what belongs into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from specmeter.audit.read.baselines import is_plain
from specmeter.audit.read.columns import CONDITIONS, Heading, is_known, is_task, understand
from specmeter.errors import UsageError

MAX_COLUMNS = 1_000
MAX_ROWS = 200_000
MAX_CELLS = 2_000_000
"""Cells of one table, those that spans repeat included."""
SECTION = "section"
"""Heading of what rows below a line of its own have in common."""
HEADING_ROWS = 3
_BOLD = re.compile(r"(?:\*\*|__|<b>|<strong>|_|\*).+(?:\*\*|__|</b>|</strong>|_|\*)|.+:")
_STATISTICS = re.compile(r"min|max|p\d\d?|std\w*|median|stddev|count|sum", re.I)

GridRow = tuple[str, list[str]]
"""(where, cells)."""


@dataclass
class Grid:
    """One table: headings and rows of as many cells; rows that could not be read are in `faults`."""

    parts: list[tuple[str, ...]]
    """Headings, the words of each level from the top."""
    place: str = ""
    """Where in the file, where it holds several: `table at line 40`."""
    decimal_comma: bool = False
    rows: list[GridRow] = field(default_factory=list[GridRow])
    faults: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(where, why)."""

    @property
    def headings(self) -> list[str]:
        """Headings in one line each."""
        return [" ".join(part) for part in self.parts]


class Below:
    """Cells that reach down into the rows below theirs."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, str]] = {}  # column -> (rows still to fill, text)

    def hold(self, column: int, rows: int, text: str) -> None:
        """A cell of so many rows, the one it stands in included, takes this column."""
        if rows > 1:
            self._held[column] = (min(rows, MAX_ROWS) - 1, text)
        else:
            self._held.pop(column, None)

    def take(self, column: int) -> str | None:
        """The text that reaches into the next row here; None where none does."""
        left, text = self._held.pop(column, (0, None))
        if text is not None:
            self.hold(column, left, text)
        return text


def make_grid(
    rows: Sequence[GridRow], path: Path | None, *, place: str = "", heading_rows: int | None = None, spans: bool = False
) -> Grid:
    """A grid from its lines, headings first; `spans`: cells that span several are repeated in each already.

    Raises `UsageError` where there is too much of it.
    """
    count = _count_headings(rows, spans=spans) if heading_rows is None else heading_rows
    levels = [list(cells) for _, cells in rows[:count]]
    width = max(map(len, levels), default=0)
    if width > MAX_COLUMNS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_COLUMNS:,} columns", fix="keep the columns needed")
    levels = [level + [""] * (width - len(level)) for level in levels]
    if not spans:
        for upper, lower in pairwise(levels):
            _spread(upper, lower)
    parts = [_once(level[index] for level in levels) for index in range(width)]
    grid = Grid(parts, place=place)
    body = [(where, cells) for where, cells in rows[count:]]
    body = _without_sections(grid, body, spans=spans)
    for where, cells in body:
        _add(grid, where, cells, path)
    if not spans:
        _fill_down(grid)
    return _upright(grid)


def _once(words: Iterator[str]) -> tuple[str, ...]:
    """Words that are not empty and not what stands above them already."""
    found: list[str] = []
    for word in words:
        if word and word not in found:
            found.append(word)
    return tuple(found)


def _spread(upper: list[str], lower: list[str]) -> None:
    """Give an upper heading to all columns that it stands above: up to the next one, where both have one below."""
    for index in range(1, len(upper)):
        if not upper[index] and lower[index] and upper[index - 1] and lower[index - 1]:
            upper[index] = upper[index - 1]


def _count_headings(rows: Sequence[GridRow], *, spans: bool) -> int:
    """How many lines are headings: the first, and those below that speak of columns and hold no number."""
    count = 1
    while count < min(HEADING_ROWS, len(rows)):
        above, cells = rows[count - 1][1], rows[count][1]
        filled = [cell for cell in cells if cell.strip()]
        known = sum(is_known(understand(cell)) for cell in filled)
        if len(filled) < len(cells) and all(map(is_task, filled)):  # data sets under what is measured on each
            known = len(filled)
        has_gaps = spans or any(not cell.strip() for cell in above) or len(set(above)) < len(above)
        if known < 2 or not has_gaps or any(_is_number(cell) for cell in filled):
            break
        count += 1
    return count


def _is_number(cell: str) -> bool:
    return re.match(r"[\s*_$~≈+\-−]*[0-9]", cell) is not None


def _without_sections(grid: Grid, rows: list[GridRow], *, spans: bool) -> list[GridRow]:
    """Rows with a further column that says what a line above them says of all that follow."""
    width = len(grid.parts)
    named = [(index, name) for index, (_, cells) in enumerate(rows) if (name := _section(cells, width, spans=spans))]
    if not named or len(named) == len(rows):
        return rows
    lines = dict(named)
    grid.parts.append((SECTION,))
    found: list[GridRow] = []
    current = ""
    for index, (where, cells) in enumerate(rows):
        if index in lines:
            current = lines[index]
        else:
            found.append((where, [*cells, *[""] * (width - len(cells)), current] if len(cells) <= width else cells))
    return found


def _section(cells: list[str], width: int, *, spans: bool) -> str:
    """The words of a line that is not a row: one cell across the table, or alone in it and set off."""
    filled = {cell for cell in cells if cell.strip()}
    if len(filled) != 1 or width < 3:
        return ""
    text = filled.pop()
    across = spans and sum(cell == text for cell in cells) >= width - 1
    alone = not spans and cells[0] == text and _BOLD.fullmatch(text.strip()) is not None
    return text.strip().strip("*_:").strip()[:160] if (across or alone) and not _is_number(text) else ""


_FILLED = frozenset({"target", "quant", "device", "engine", "architecture", "label"})


def _fill_down(grid: Grid) -> None:
    """An empty cell in the first columns, where these name what is measured, is the one above it."""
    for index, part in enumerate(grid.parts):
        heading = understand(" ".join(part))
        name = "" if heading is None else heading.name
        if name not in _FILLED and name not in CONDITIONS:
            return
        above = ""
        for _, cells in grid.rows:
            others = [cell for cell in cells[index + 1 :] if cell.strip()]
            named = [cell for cell in others if not _is_number(cell)]
            if cells[index].strip():
                above = cells[index]
            elif above and len(others) > 1 and (name != "label" or named):
                cells[index] = above


def _upright(grid: Grid) -> Grid:
    """A table whose first column holds the headings, on its feet; others as they are."""
    across = sum(_measures(understand(" ".join(part))) for part in grid.parts)
    first = [cells[0] for _, cells in grid.rows if cells]
    down = sum(_measures(understand(cell)) and not is_plain(cell) for cell in first)
    if down < 2 or down <= across or len(grid.parts) < 2 or len(grid.rows) > MAX_COLUMNS:
        return grid
    turned = Grid([("label",), *[(cell,) for cell in first]], grid.place, grid.decimal_comma, faults=grid.faults)
    for index, part in enumerate(grid.parts[1:], start=1):
        name = " ".join(part)
        if name != SECTION and not _STATISTICS.fullmatch(name):
            where = f"{grid.place or 'table'}, column {name or index}"
            turned.rows.append((where, [name, *(cells[index] for _, cells in grid.rows)]))
    return turned


def _measures(heading: Heading | None) -> bool:
    return heading is not None and heading.column is not None and heading.column.kind != "text"


def _add(grid: Grid, place: str, cells: list[str], path: Path | None) -> None:
    if len(grid.rows) + len(grid.faults) >= MAX_ROWS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_ROWS:,} rows", fix="split the file")
    missing = len(grid.parts) - len(cells)
    if missing < 0 and not any(cells[missing:]):
        cells, missing = cells[:missing], 0
    if missing:
        grid.faults.append((place, f"{len(cells)} cells under {len(grid.parts)} headings"))
    elif any(cells):
        grid.rows.append((place, list(cells)))
