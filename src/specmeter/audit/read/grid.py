"""Text as grids of cells: CSV in its variants, JSON, and the tables of a page in Markdown, HTML, LaTeX or plain text.

What forms have in common is here: headings on one or two levels, cells that stand for several rows, rows that only say
what those below have in common, tables on their side. A form that says itself which cells span what (HTML, LaTeX) is
believed; elsewhere an empty cell is filled only where headings or the rows around it show what belongs into it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from specmeter.audit.read.baselines import is_plain
from specmeter.audit.read.columns import CONDITIONS, Heading, is_known, is_task, understand
from specmeter.audit.read.document import MAX_LINE
from specmeter.errors import UsageError

MAX_COLUMNS = 1_000
MAX_ROWS = 200_000
MAX_CELLS = 2_000_000
"""Cells of one table, those that spans repeat included."""
SECTION = "section"
"""Heading of what rows below a line of its own have in common."""
_HEADING_ROWS = 3
_DELIMITERS = ("\t", ";", ",", "|")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)+\|?\s*")
_SHORT_RULE = re.compile(r"\s*\|\s*:?-+:?\s*\|\s*")
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+,[0-9]{1,2}(?![0-9])")
_POINT_DECIMAL = re.compile(r"(?<![0-9,])[0-9]+\.[0-9]{1,2}(?![0-9])")
_BOLD = re.compile(r"(?:\*\*|__|<b>|<strong>|_|\*).+(?:\*\*|__|</b>|</strong>|_|\*)|.+:")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,300})\]\([^()\s]{0,500}\)")
_STATISTICS = re.compile(r"min|max|p\d\d?|std\w*|median|stddev|count|sum", re.I)

Row = tuple[str, list[str]]
"""(where, cells)."""


@dataclass
class Grid:
    """One table: headings and rows of as many cells; rows that could not be read are in `faults`."""

    parts: list[tuple[str, ...]]
    """Headings, the words of each level from the top."""
    place: str = ""
    """Where in the file, where it holds several: `table at line 40`."""
    decimal_comma: bool = False
    rows: list[Row] = field(default_factory=list[Row])
    faults: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(where, why)."""

    @property
    def headings(self) -> list[str]:
        """Headings in one line each."""
        return [" ".join(part) for part in self.parts]


def read_grids(text: str, path: Path, *, as_json: bool) -> list[Grid]:
    """All tables of a text, which is JSON or a page. Raises `UsageError` when it holds none."""
    from specmeter.audit.read import json_tables, latex_tables, text_tables, web_tables

    if as_json:
        return json_tables.read(text, path)
    found = [*latex_tables.read(text, path), *web_tables.read(text, path)]
    lines = text.split("\n")
    if not found and (longest := max(map(len, lines))) > MAX_LINE:
        raise UsageError(f"{path}: a line of {longest:,} characters", fix="this is not a table of results")
    found += [*_markdown(lines, path), *text_tables.read(lines, path)]
    if found:
        return sorted(found, key=lambda grid: int(grid.place.rpartition(" ")[2]))
    if text.lstrip().startswith(("[", "{")):  # JSON that is broken: it says where
        return json_tables.read(text, path)
    return [_from_csv(lines, path)]


# --- what all forms share --------------------------------------------------------------------------------------------


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
    rows: Sequence[Row], path: Path | None, *, place: str = "", heading_rows: int | None = None, spans: bool = False
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


def _count_headings(rows: Sequence[Row], *, spans: bool) -> int:
    """How many lines are headings: the first, and those below that speak of columns and hold no number."""
    count = 1
    while count < min(_HEADING_ROWS, len(rows)):
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


def _without_sections(grid: Grid, rows: list[Row], *, spans: bool) -> list[Row]:
    """Rows with a further column that says what a line above them says of all that follow."""
    width = len(grid.parts)
    named = [(index, name) for index, (_, cells) in enumerate(rows) if (name := _section(cells, width, spans=spans))]
    if not named or len(named) == len(rows):
        return rows
    lines = dict(named)
    grid.parts.append((SECTION,))
    found: list[Row] = []
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


# --- CSV and Markdown ------------------------------------------------------------------------------------------------


def _from_csv(lines: list[str], path: Path) -> Grid:
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not kept:
        raise UsageError(f"{path}: holds only comments", fix="name a file with results")
    first = max(kept[:_HEADING_ROWS], key=lambda line: max(_known(line[1], mark) for mark in _DELIMITERS))[1]
    delimiter = max(_DELIMITERS, key=lambda mark: (_known(first, mark), first.count(mark)))
    origin = [number for number, _ in kept]
    reader = csv.reader((line + "\n" for _, line in kept), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[Row] = []
    before = 0
    try:
        for cells in reader:
            rows.append((f"line {origin[before]}", [cell.strip() for cell in cells]))
            before = reader.line_num
            if len(rows) > MAX_ROWS:
                raise UsageError(f"{path}: more than {MAX_ROWS:,} rows", fix="split the file")
    except csv.Error as error:
        where = f"line {origin[min(before, len(origin) - 1)]}"
        raise UsageError(
            f"{path}: not CSV: {error} ({where})", fix="close every quote, and separate fields by commas"
        ) from None
    grid = make_grid(rows, path)
    if delimiter == ";":
        cells = [cell for _, row in grid.rows for cell in row]
        commas = any(_COMMA_DECIMAL.search(cell) for cell in cells)
        grid.decimal_comma = commas and not any(_POINT_DECIMAL.search(cell) for cell in cells)
    return grid


def _known(line: str, delimiter: str) -> int:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), list[str]())
    except csv.Error:
        return 0
    return sum(understand(cell) is not None for cell in cells[:MAX_COLUMNS])


def _rules(lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if "-" in line and _is_rule(lines, number)]


def _is_rule(lines: Sequence[str], number: int) -> bool:
    """Whether a line is the one under the headings of a table, not a row of single dashes."""
    line = lines[number]
    if number == 0 or "|" not in lines[number - 1] or not (_RULE.fullmatch(line) or _SHORT_RULE.fullmatch(line)):
        return False
    return "--" in line or ":" in line or number == 1 or "|" not in lines[number - 2]


def _markdown(lines: list[str], path: Path) -> Iterator[Grid]:
    """The tables of a page; each ends before the headings of the next."""
    rules = _rules(lines)
    ends = [*(rule - 1 for rule in rules[1:]), len(lines)][: len(rules)]
    for rule, end in zip(rules, ends, strict=True):
        rows = [(f"line {rule}", pipe_cells(lines[rule - 1]))]
        for number in range(rule + 1, end):
            if "|" not in lines[number]:
                break
            rows.append((f"line {number + 1}", pipe_cells(lines[number])))
        yield make_grid(rows, path, place=f"table at line {rule}")


def pipe_cells(line: str) -> list[str]:
    """The cells of a line that are separated by `|`."""
    inner = line.strip().removeprefix("|")
    inner = inner.removesuffix("|") if not inner.endswith("\\|") else inner
    inner = _LINK.sub(r"\1", inner)
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def known_headings(head: str) -> int:
    """How many known columns a text that begins like this seems to have, for telling tables from other files."""
    from specmeter.audit.read import latex_tables, text_tables, web_tables

    if head.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        keys = dict.fromkeys(re.findall(r'"([^"\n]{1,60})"\s*:', head))
        if known := sum(understand(key) is not None for key in list(keys)[:MAX_COLUMNS]):
            return known
    page = [line.rstrip("\r") for line in head.split("\n")[:2000]]
    rules = _rules(page)
    candidates = [line for rule in rules for line in (page[rule - 1], *page[rule + 1 : rule + 2])]
    counts = [max(_known(line[:MAX_LINE], mark) for mark in _DELIMITERS) for line in candidates]
    for grids in (latex_tables.read, web_tables.read):
        try:
            counts += [
                sum(understand(text) is not None for text in grid.headings) for grid in grids(head, Path("head"))
            ]
        except UsageError:
            counts.append(2)
    counts += [sum(understand(text) is not None for text in cells) for cells in text_tables.headings(page)]
    if not counts:
        lines = [line for line in page if line.strip() and not line.startswith("#")][:_HEADING_ROWS]
        counts = [max(_known(line[:MAX_LINE], mark) for mark in _DELIMITERS) for line in lines[:2]]
    return max(counts, default=0)
