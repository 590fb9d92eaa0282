"""All tables of a text: CSV in its variants, JSON, and those of a page in Markdown, HTML, LaTeX or plain text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from specmeter.audit.read import json_tables, latex_tables, text_tables, web_tables
from specmeter.audit.read.columns import understand
from specmeter.audit.read.document import MAX_LINE
from specmeter.audit.read.grid import HEADING_ROWS, MAX_COLUMNS, Grid, GridRow, make_grid
from specmeter.errors import UsageError

_DELIMITERS = ("\t", ";", ",", "|")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)+\|?\s*")
_SHORT_RULE = re.compile(r"\s*\|\s*:?-+:?\s*\|\s*")
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+,[0-9]{1,2}(?![0-9])")
_POINT_DECIMAL = re.compile(r"(?<![0-9,])[0-9]+\.[0-9]{1,2}(?![0-9])")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,300})\]\([^()\s]{0,500}\)")


def read_grids(text: str, path: Path, *, as_json: bool) -> list[Grid]:
    """All tables of a text, which is JSON or a page. Raises `UsageError` when it holds none."""
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


def _from_csv(lines: list[str], path: Path) -> Grid:
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not kept:
        raise UsageError(f"{path}: holds only comments", fix="name a file with results")
    first = max(kept[:HEADING_ROWS], key=lambda line: max(_known(line[1], mark) for mark in _DELIMITERS))[1]
    delimiter = max(_DELIMITERS, key=lambda mark: (_known(first, mark), first.count(mark)))
    origin = [number for number, _ in kept]
    reader = csv.reader((line + "\n" for _, line in kept), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[GridRow] = []
    before = 0
    try:
        for cells in reader:
            rows.append((f"line {origin[before]}", [cell.strip() for cell in cells]))
            before = reader.line_num
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
        lines = [line for line in page if line.strip() and not line.startswith("#")][:HEADING_ROWS]
        counts = [max(_known(line[:MAX_LINE], mark) for mark in _DELIMITERS) for line in lines[:2]]
    return max(counts, default=0)
