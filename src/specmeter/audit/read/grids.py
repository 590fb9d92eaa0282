"""Text -> grids: rows of cells under headings. Nothing here knows what a column means.

The tables of a page win: those marked as such (HTML, LaTeX, Markdown and drawn ones), and the text above each is its
context. In a page without any, the first layout that has most of its numbers: CSV, columns divided by gaps, JSON,
console lines, `key: value` lines, lists (`lines`), and else every sentence is a row.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from specmeter.audit.read import json_grids, lines, markup
from specmeter.audit.read.cells import MAX_TEXT, clean, is_number, point, results
from specmeter.audit.read.document import MAX_LINE, is_json
from specmeter.audit.read.grid import HEADING_ROWS, Grid, Row, Table, built
from specmeter.errors import UsageError
from specmeter.text import size

_CONTEXT = 2_000
"""Characters of the text above a table."""


def grids(text: str, path: Path) -> list[Grid]:
    """All tables of a text, or else what it says in lines, lists and sentences.

    Raises `UsageError` for a text that holds none of them, is too large or is broken JSON.
    """
    text = text.replace("\r\n", "\n").lstrip("\ufeff")
    if is_json(text):
        return built(json_grids.read_json(text, path), path) or _nothing(text, path)
    found = built(markup.read_markup(text, path), path)
    page = text.split("\n")
    if not found and (longest := max(map(len, page))) > MAX_LINE:
        raise UsageError(
            f"{path}: a line of {longest:,} characters", fix="pass a table of results as CSV, JSON or Markdown"
        )
    if path.suffix.lower() not in {".csv", ".tsv"}:
        found += built(_pipe_tables(page), path)
    return sorted(found, key=_line) or _unmarked(text, page, path) or _nothing(text, path)


def csv_grids(text: str, path: Path) -> list[Grid]:
    """The table of a text that is CSV. Raises `UsageError` if quotes do not close."""
    return built(_delimited(list(enumerate(text.split("\n"), start=1)), path), path)


def _line(grid: Grid) -> int:
    return int((re.search(r"\d{1,9}", [*grid.places, "0"][0]) or [0])[0])


_PAGE = 2**21
"""Characters of a page without tables."""
_ENOUGH = 0.25
"""Share of the numbers of a text that a layout must have in cells."""


def _unmarked(text: str, page: list[str], path: Path) -> list[Grid]:
    """What a page without a table that is marked as such holds, by the first layout that has most of its numbers."""
    is_csv = path.suffix.lower() in {".csv", ".tsv"}
    if found := (csv_grids(text, path) if is_csv else []) or built(_pasted_csv(page, path), path):
        return found
    if len(text) > _PAGE:
        raise UsageError(
            f"{path}: {size(len(text))} of text without a table", fix="pass only the part with the results"
        )
    tables, text = json_grids.pasted_json(text)
    page = text.split("\n")
    pasted = built(tables, path)
    if not pasted and re.match(r"\s*(?:\[\s*)?\{\s*(?:\"|$)", text):  # JSON that is broken says where
        json_grids.read_json(text, path)
    found = list(pasted)
    whole = left = _counted([clean(line, MAX_TEXT) for line in page[:_MOST_COUNTED]])
    for layout in (lines.items, lines.gaps, lines.pairs):
        tables = layout(page)
        told = built(tables, path)
        cells = _counted([it for grid in told for row in grid.rows[:_MOST_COUNTED] for it in row if is_number(it)])
        if told and (left & cells).total() >= _ENOUGH * left.total():
            found += told
            for number in set[int]().union(*(table.used for table in tables)):
                page[number - 1] = ""
            left = left - cells  # not in place: it is the whole at first
    if len(found) == len(pasted) or 2 * left.total() >= whole.total():
        found += built(lines.sentences(page), path)
    return sorted(found, key=_line)


_MOST_COUNTED = 2_000
"""Lines that are counted."""


def _counted(texts: list[str]) -> Counter[str]:
    return Counter(number for text in texts for number in results(text))


def _nothing(text: str, path: Path) -> list[Grid]:
    """Raises `UsageError`: what a text without a grid lacks, and what to write instead."""
    if not text.strip():
        raise UsageError(f"{path}: is empty", fix="pass a file with results")
    if all(line.startswith("#") or not line.strip() for line in text.split("\n")):
        raise UsageError(f"{path}: contains only comments", fix="pass a file with results")
    lacks = "no number has a unit, such as `41 t/s`" if re.search(r"\d", text) else "it has no number"
    raise UsageError(
        f"{path}: no table and no sentence with a result: {lacks}",
        fix="write for example `23 t/s without drafts, 41 t/s with 4 draft tokens, 71% accepted`, or use a table",
    )


# --- bars and delimiters ---------------------------------------------------------------------------------------------

_RULE = frozenset(" \t|:+-=─━┼╪├┤┌┐└┘┬┴╞╡═╔╦╗╠╬╣╚╩╝╒╤╕╘╧╛┏┳┓┡╇┩")
_DASHES = frozenset("-─━═=")


def _is_rule(line: str) -> bool:
    signs = set(line)
    return signs <= _RULE and not signs.isdisjoint(_DASHES)


def _pipe_tables(page: list[str]) -> Iterator[Table]:
    """Tables whose cells bars divide, in Markdown or drawn."""
    drawn = [re.sub(r"^\s*[-+>]\s?(?=\|)", "", re.sub(r"[│┃║]", "|", line)) for line in page]
    start, end = 0, -1
    for number, line in enumerate([*drawn, ""]):
        ruled = number > start and bool(line.strip()) and _is_rule(line) and "|" in drawn[number - 1]
        if "|" in line or ruled:
            continue
        block = drawn[start:number]
        for first, last in _apart(block):
            if last - first > 1 and (table := _pipes(block[first:last], start + first)):
                above = [it for it in page[max(end + 1, start + first - 40) : start + first] if not _is_rule(it)]
                table.context = "\n".join(above)[-_CONTEXT:].strip()
                end = start + last
                yield table
        start = number + 1


def _apart(block: list[str]) -> Iterator[tuple[int, int]]:
    """(first line, line after the last) of each table among lines that follow each other: a Markdown rule below the
    first rows begins another one, with the line above it."""
    cut, ruled = 0, False
    for number in range(2, len(block)):
        ruled |= _is_rule(block[number - 2])
        is_new = ruled and "---" in block[number] and re.fullmatch(r"[\s|:-]+", block[number]) and "|" in block[number]
        if is_new and not _is_rule(block[number - 1]):
            above = [cell for cell in _pipe_cells(block[number - 1]) if cell]
            if above and not any(map(is_number, above)):
                yield cut, number - 1
                cut, ruled = number - 1, False
    yield cut, len(block)


def _pipe_cells(line: str, *, outer: bool = True) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip())
    if outer and not cells[0].strip():
        cells = cells[1:]
    if outer and cells and not cells[-1].strip() and line.rstrip().endswith("|"):
        cells = cells[:-1]
    return [clean(cell) for cell in cells]


def _pipes(block: list[str], first: int) -> Table | None:
    rules = [number for number, line in enumerate(block) if _is_rule(line)]
    texts = [(number, line) for number, line in enumerate(block) if not _is_rule(line) and line.strip()]
    if not texts or sum(line.count("|") for line in block) < 2:
        return None
    # Whether bars stand outside shows in the rows, not in the headings: those may begin with an empty corner.
    below = [line for _, line in texts[1:]] or [texts[0][1]]
    outer = 2 * sum(line.lstrip().startswith("|") for line in below) > len(below)
    rows = [(f"line {first + number + 1}", _pipe_cells(line, outer=outer)) for number, line in texts]
    ruled = next((rule for rule in rules if rule > texts[0][0]), None)
    if ruled is None and (len({len(cells) for _, cells in rows}) > 1 or any(re.search(r"\d", it) for it in rows[0][1])):
        return None
    heads = sum(number < ruled for number, _ in texts) if ruled is not None else 1
    return Table(rows, max(1, min(heads, HEADING_ROWS)), "markdown")


_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*%?\s*x?")


def _delimited(page: list[tuple[int, str]], path: Path, marks: str = "\t;,") -> Iterator[Table]:
    """The table of lines with tabs, semicolons or commas between their fields."""
    kept = [(number, line) for number, line in page if line.strip() and not line.startswith("#")]
    for mark in (mark for mark in marks if len(kept) > 1 and mark in kept[0][1]):
        reader = csv.reader((line + "\n" for _, line in kept), delimiter=mark, skipinitialspace=True, strict=True)
        rows: list[Row] = []
        before = 0
        try:
            for cells in reader:
                rows.append((f"line {kept[before][0]}", cells))
                before = reader.line_num
        except csv.Error as error:
            where = f"line {kept[min(before, len(kept) - 1)][0]}"
            raise UsageError(
                f"{path}: not CSV: {error} ({where})", fix="close every quote, and separate fields with commas"
            ) from None
        if 2 * sum(is_number(clean(cell)) for cell in rows[0][1]) > len(rows[0][1]):
            continue
        has_commas = mark == ";" and sum(bool(_DECIMAL_COMMA.fullmatch(cell)) for _, row in rows for cell in row) > 1
        cleaned = [(place, [clean(point(cell) if has_commas else cell) for cell in cells]) for place, cells in rows]
        yield Table(cleaned, 0, "csv")
        return


def _marks(line: str, mark: str) -> int:
    """How many marks divide the fields of a line, those in quotes aside."""
    with suppress(csv.Error):
        return len(next(csv.reader([line], delimiter=mark), [""])) - 1 if '"' in line else line.count(mark)
    return 0


_CLOCK = re.compile(r"\d\d:\d\d")


def _pasted_csv(page: list[str], path: Path) -> Iterator[Table]:
    """The same from the first line on that has as many fields as most."""
    for mark in "\t;,":
        fields = [0 if line.startswith("#") else _marks(line, mark) for line in page]
        counts = Counter(filter(None, fields))
        usual, lines_of_it = counts.most_common(1)[0] if counts else (0, 0)
        if lines_of_it < 2 or 5 * lines_of_it < 4 * counts.total():
            continue
        first = fields.index(usual)
        if _CLOCK.search(page[first][:MAX_TEXT]):
            continue
        below = [(number, line) for number, line in enumerate(page[first:], start=first + 1) if line.strip()]
        if 5 * lines_of_it < 4 * len(below) or (usual < 2 and ", " in page[first]):
            continue
        with suppress(UsageError):  # quotes that do not close: no CSV
            table = next(_delimited(below, path, mark), None)
            if table is None:
                continue
            rows = [cells for _, cells in table.rows[1:_MOST_COUNTED]]
            numeric = sum(any(map(is_number, cells)) for cells in rows)
            head = table.rows[0][1]
            if any(cell.endswith((":", "：", ".")) for cell in head):
                continue  # the first line of a letter
            if 2 * numeric >= len(rows) and not any(len(cell.split()) > 12 for cells in rows for cell in cells):
                table.context = "\n".join(page[:first])[-_CONTEXT:].strip()
                yield table
                return
