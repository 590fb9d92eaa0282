"""Tables drawn in plain text: columns of a fixed width over a line of dashes, and boxes.

    category   samples  avg_pred_t/s  accept_rate        +-------+-----+     ┏━━━━━━━┳━━━━━┓
    ---------  -------  ------------  -----------        | Model | t/s |     ┃ Model ┃ t/s ┃

    code_python   pred= 192 draft= 163 acc= 136 rate=0.834 tok/s=135.4

The first is what `speed_bench.py` of llama.cpp prints (tools/server/bench/speed-bench, `print_rows`), pandas and
`tabulate` too; the boxes come from databases and from Rich (AIPerf's console). The last are lines of one shape, a name
and its numbers with a rate, as scripts in llama.cpp's issues print them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from specmeter.audit.read.grid import Grid, make_grid

_DASHES = re.compile(r"\s*[-=]{2,}(?: {1,40}[-=]{2,})+\s*")
_BOX_RULE = re.compile(r"\s*[┏┳┓┡╇┩├┼┤└┴┘┌┬┐╞╪╡╔╦╗╠╬╣╚╩╝━─═╒╤╕╘╧╛+\-=]{3,}\s*")
_BOX_CELL = re.compile(r"[│┃║]")
_DRAWN = re.compile(r"[━─═]|\+[-=]{2,}")


_PAIR = re.compile(r"([A-Za-z][\w/%.]{0,30}) ?= *([0-9][0-9.,]{0,20}%?)(?=\s|,|$)")
_FEWEST = 3
"""Pairs of a line that make it a row."""
_PAIRED = {"draft": "drafted", "acc": "accepted", "accept": "accepted", "rate": "acceptance_rate"}
"""Names that mean something else among such pairs than above a column."""


def read(lines: Sequence[str], path: Path) -> Iterator[Grid]:
    """The drawn tables of a page. Raises `UsageError` where one is too large."""
    for number, rows in _tables(lines):
        yield make_grid(rows, path, place=f"table at line {number}")


def headings(lines: Sequence[str]) -> Iterator[list[str]]:
    """The first lines of the drawn tables of a page."""
    for _, rows in _tables(lines):
        yield rows[0][1]


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, list[tuple[str, list[str]]]]]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if "/s" in line and len(pairs := _PAIR.findall(line[:1000])) >= _FEWEST and _has_rate(pairs):
            rows, end = _paired(lines, at, [name for name, _ in pairs])
            yield at + 1, rows
            at = end
            continue
        if at == 0:
            at += 1
            continue
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


def _has_rate(pairs: list[tuple[str, str]]) -> bool:
    return any(re.fullmatch(r"(?:\w+_)?(?:toks?|tokens|t)/s", name) for name, _ in pairs)


def _paired(lines: Sequence[str], first: int, names: list[str]) -> tuple[list[tuple[str, list[str]]], int]:
    """(rows with their headings, the line after them) of the lines with the same names of numbers."""
    rows = [(f"line {first + 1}", ["name", *(_PAIRED.get(name, name) for name in names)])]
    number = first
    while number < len(lines):
        pairs = _PAIR.findall(lines[number][:1000])
        if [name for name, _ in pairs] != names:
            break
        label = _PAIR.split(lines[number][:1000], maxsplit=1)[0].strip(" :|-")
        rows.append((f"line {number + 1}", [label, *(value for _, value in pairs)]))
        number += 1
    return rows, number


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
