"""Text as grids of cells: CSV in its variants, JSON, JSON Lines, and the tables of a Markdown page."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specmeter.errors import UsageError
from specmeter.importers.columns import understand
from specmeter.importers.document import MAX_LINE, read_objects

MAX_COLUMNS = 1_000
MAX_ROWS = 200_000
_DELIMITERS = ("\t", ";", ",", "|")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{1,}:?\s*)+\|?\s*")
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+,[0-9]{1,2}(?![0-9])")
_POINT_DECIMAL = re.compile(r"(?<![0-9,])[0-9]+\.[0-9]{1,2}(?![0-9])")


@dataclass
class Grid:
    """One table: headings and rows of as many cells; rows that could not be read are in `faults`."""

    headings: list[str]
    place: str = ""
    """Where in the file, where it holds several: `table at line 40`."""
    decimal_comma: bool = False
    rows: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    """(where, cells)."""
    faults: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(where, why)."""


def read_grids(text: str, path: Path) -> list[Grid]:
    """All tables of a text. Raises `UsageError` when it holds none."""
    start = text.lstrip()
    if start.startswith(("[", "{")):
        return [_from_objects(text, path)]
    lines = text.split("\n")
    if (longest := max(map(len, lines))) > MAX_LINE:
        raise UsageError(f"{path}: a line of {longest:,} characters", fix="this is no table of results")
    rules = [number for number, line in enumerate(lines) if _RULE.fullmatch(line) and number > 0]
    if rules:
        ends = [*(rule - 1 for rule in rules[1:]), len(lines)]
        return [_from_markdown(lines, rule, end) for rule, end in zip(rules, ends, strict=True)]
    return [_from_csv(lines, path)]


def _from_csv(lines: list[str], path: Path) -> Grid:
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not kept:
        raise UsageError(f"{path}: holds only comments", fix="name a file with results")
    delimiter = max(_DELIMITERS, key=lambda mark: (_known(kept[0][1], mark), kept[0][1].count(mark)))
    origin = [number for number, _ in kept]
    reader = csv.reader((line + "\n" for _, line in kept), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        grid = Grid(_bounded([cell.strip() for cell in next(reader)], path))
        before = reader.line_num
        for cells in reader:
            place = f"line {origin[before]}"
            before = reader.line_num
            _add(grid, place, [cell.strip() for cell in cells], path)
    except csv.Error as error:
        raise UsageError(f"{path}: not CSV: {error}", fix="close every quote, and separate fields by commas") from None
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


def _from_markdown(lines: list[str], rule: int, end: int) -> Grid:
    """The table with that rule below its headings; it ends before line `end`, where the next one begins."""
    grid = Grid(_cells(lines[rule - 1]), place=f"table at line {rule}")
    for number in range(rule + 1, end):
        line = lines[number]
        if "|" not in line:
            break
        _add(grid, f"line {number + 1}", _cells(line), None)
    return grid


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner.removesuffix("|") if not inner.endswith("\\|") else inner
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _from_objects(text: str, path: Path) -> Grid:
    objects = list(read_objects(text, path))
    headings: dict[str, None] = {}
    for _, item in objects:
        if isinstance(item, dict):
            headings.update(dict.fromkeys(str(key) for key in item))
            if len(headings) > MAX_COLUMNS:
                break
    grid = Grid(_bounded(list(headings), path))
    for place, item in objects:
        if isinstance(item, str):
            grid.faults.append((place, item))
        else:
            _add(grid, place, [_cell(item.get(heading)) for heading in grid.headings], path)
    return grid


def _cell(value: object) -> str:
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value)


def _add(grid: Grid, place: str, cells: list[str], path: Path | None) -> None:
    if len(grid.rows) + len(grid.faults) >= MAX_ROWS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_ROWS:,} rows", fix="split the file")
    missing = len(grid.headings) - len(cells)
    if missing < 0 and not any(cells[missing:]):
        cells, missing = cells[:missing], 0
    if missing:
        grid.faults.append((place, f"{len(cells)} cells under {len(grid.headings)} headings"))
    elif any(cells):
        grid.rows.append((place, cells))


def _bounded(headings: list[str], path: Path) -> list[str]:
    if len(headings) > MAX_COLUMNS:
        raise UsageError(f"{path}: more than {MAX_COLUMNS:,} columns", fix="keep the columns needed")
    return headings


def known_headings(head: str) -> int:
    """How many known columns a text that begins like this seems to have, for telling tables from other files."""
    if head.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        keys = dict.fromkeys(re.findall(r'"([^"\n]{1,60})"\s*:', head))
        return sum(understand(key) is not None for key in list(keys)[:MAX_COLUMNS])
    lines = [line for line in head.split("\n")[:400] if line.strip() and not line.startswith("#")]
    rules = [number for number, line in enumerate(lines) if number > 0 and _RULE.fullmatch(line)]
    candidates: Iterator[str] = (lines[number - 1] for number in rules) if rules else iter(lines[:1])
    return max((max(_known(line[:MAX_LINE], mark) for mark in _DELIMITERS) for line in candidates), default=0)
