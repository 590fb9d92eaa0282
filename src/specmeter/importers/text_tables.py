"""Tables drawn in plain text: columns of a fixed width over a line of dashes, and boxes.

    category   samples  avg_pred_t/s  accept_rate        +-------+-----+     ┏━━━━━━━┳━━━━━┓
    ---------  -------  ------------  -----------        | Model | t/s |     ┃ Model ┃ t/s ┃

The first is what `speed_bench.py` of llama.cpp prints (tools/server/bench/speed-bench, `print_rows`), pandas and
`tabulate` too; the boxes come from databases and from Rich (AIPerf's console).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmeter.importers.grid import Grid

_DASHES = re.compile(r"\s*[-=]{2,}(?: {1,40}[-=]{2,})+\s*")
_BOX_RULE = re.compile(r"\s*[┏┳┓┡╇┩├┼┤└┴┘┌┬┐╞╪╡╔╦╗╠╬╣╚╩╝━─═╒╤╕╘╧╛+\-=]{3,}\s*")
_BOX_CELL = re.compile(r"[│┃║]")
_DRAWN = re.compile(r"[━─═]|\+[-=]{2,}")


def read(lines: Sequence[str], path: Path) -> Iterator[Grid]:
    """The drawn tables of a page. Raises `UsageError` where one is too large."""
    from specmeter.importers.grid import make_grid

    for number, rows in _tables(lines):
        yield make_grid(rows, path, place=f"table at line {number}", heading_rows=None)


def headings(lines: Sequence[str]) -> Iterator[list[str]]:
    """The first lines of the drawn tables of a page."""
    for _, rows in _tables(lines):
        yield rows[0][1]


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, list[tuple[str, list[str]]]]]:
    at = 1
    while at < len(lines):
        line = lines[at]
        if _DASHES.fullmatch(line) and lines[at - 1].strip() and "|" not in lines[at - 1]:
            rows, end = _fixed(lines, at)
        elif _is_drawn(line) and _is_row(lines[at - 1]):
            rows, end = _boxed(lines, at)
        else:
            at += 1
            continue
        if len(rows) > 1:
            yield at, rows
        at = end


def _fixed(lines: Sequence[str], rule: int) -> tuple[list[tuple[str, list[str]]], int]:
    """(rows, the line after them) of the table whose columns the dashes in line `rule` show."""
    starts = [found.start() for found in re.finditer(r"[-=]+", lines[rule])]
    rows = [(f"line {rule}", _cut(lines[rule - 1], starts))]
    number = rule + 1
    while number < len(lines) and lines[number].strip():
        if not _DASHES.fullmatch(lines[number]):
            rows.append((f"line {number + 1}", _cut(lines[number], starts)))
        number += 1
    return rows, number


def _cut(line: str, starts: list[int]) -> list[str]:
    """Cells of a line by where columns start; by wide gaps where a cell reaches across such a place."""
    if all(start >= len(line) or line[start - 1] == " " for start in starts[1:]):
        return [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return re.split(r" {2,}|\t", line.strip())


def _is_drawn(line: str) -> bool:
    return _BOX_RULE.fullmatch(line) is not None and _DRAWN.search(line) is not None


def _is_row(line: str) -> bool:
    return line.count("|") > 1 or len(_BOX_CELL.findall(line)) > 1


def _boxed(lines: Sequence[str], rule: int) -> tuple[list[tuple[str, list[str]]], int]:
    """(rows, the line after them) of the box whose headings stand above line `rule`."""
    rows = [(f"line {rule}", _box_cells(lines[rule - 1]))]
    number = rule + 1
    while number < len(lines):
        if _is_row(lines[number]):
            rows.append((f"line {number + 1}", _box_cells(lines[number])))
        elif not _is_drawn(lines[number]):
            break
        number += 1
    return rows, number


def _box_cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"[│┃║|]", line.strip().strip("│┃║|"))]
