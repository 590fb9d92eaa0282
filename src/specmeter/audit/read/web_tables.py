"""Tables of web pages, and of the HTML inside a Markdown page.

Only what stands between `<table` and `</table>` is looked at, a table within a cell as one of its own. The parser is
that of the standard library: nothing is loaded or run, and HTML has no entities of its own that could grow. `colspan`
and `rowspan` are believed, up to the size of a table of results; scripts, styles, footnotes (`<sup>`) and crossed-out
text (`<del>`) are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from specmeter.audit.read.grid import MAX_CELLS, MAX_COLUMNS, MAX_ROWS, Below, Grid, make_grid
from specmeter.errors import UsageError

MAX_TABLE = 4 * 2**20
"""Characters of one table."""
MAX_TABLES = 500
_SKIPPED = frozenset({"script", "style", "sup", "del", "s", "template", "svg", "math", "button", "select"})
_CELL = 2_000
_DEPTH = 8
"""Tables within each other."""
_TAG = re.compile(r"<(/?)(table|t[rdh])\b[^<>]{0,2000}>?", re.I)
_NO_TAG = re.compile(r"<(?!/?[a-zA-Z][^<>]{0,2000}>)")


def read(text: str, path: Path) -> Iterator[Grid]:
    """The tables of a page. Raises `UsageError` for one that is too large."""
    for number, fragment in _fragments(text, path):
        reader = _TableReader(number, path)
        reader.feed(_only_tags(fragment))
        reader.close()
        rows, heading_rows = reader.finished()
        if len(rows) > 1:
            yield make_grid(rows, path, place=f"table at line {number}", heading_rows=heading_rows or None, spans=True)


def _fragments(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """(line, HTML) of each table, those in the cells of others after them; deeper ones than `_DEPTH` are left out."""
    starts, ends, closed = _tags(text)
    if len(starts) > MAX_TABLES:
        raise UsageError(f"{path}: more than {MAX_TABLES} tables", fix="save the part with results by itself")
    line, counted = 1, 0
    for at in starts:
        line, counted = line + text.count("\n", counted, at), at
        end = closed.get(at)
        if end is None:  # never closed: up to where any table is
            after = bisect_left(ends, at)
            end = ends[after] if after < len(ends) else len(text)
        if end - at > MAX_TABLE:
            raise UsageError(
                f"{path}: the table at line {line} has more than {MAX_TABLE // 2**20} MiB, or no end",
                fix="save the table by itself, as CSV",
            )
        yield line, text[at:end]


def _tags(text: str) -> tuple[list[int], list[int], dict[int, int]]:
    """(where tables with rows start, at most `_DEPTH` within each other, where any ends, start -> its own end).

    As in HTML, a table that begins outside a cell ends the one before it.
    """
    starts: list[int] = []
    ends: list[int] = []
    closed: dict[int, int] = {}
    is_open: list[tuple[int, bool]] = []  # (start, whether in a cell)
    rows: set[int] = set()
    for tag in _TAG.finditer(text):
        is_end, name = bool(tag.group(1)), tag.group(2).lower()
        if name != "table":
            if is_open:
                rows.add(is_open[-1][0])
                is_open[-1] = (is_open[-1][0], name != "tr" and not is_end)
        elif is_end:
            ends.append(tag.end())
            if is_open:
                closed[is_open.pop()[0]] = tag.end()
        else:
            if is_open and not is_open[-1][1]:
                closed[is_open.pop()[0]] = tag.start()
            if len(is_open) < _DEPTH:
                starts.append(tag.start())
            is_open.append((tag.start(), False))
    return [start for start in starts if start in rows], ends, closed


def _only_tags(fragment: str) -> str:
    """The same without comments, and with every `<` that opens no tag as text: on broken markup the parser is slow."""
    kept: list[str] = []
    at = 0
    while (start := fragment.find("<!--", at)) >= 0:
        kept.append(fragment[at:start])
        end = fragment.find("-->", start)
        kept.append("\n" * fragment.count("\n", start, len(fragment) if end < 0 else end))
        if end < 0:
            at = len(fragment)
            break
        at = end + 3
    kept.append(fragment[at:])
    return _NO_TAG.sub("&lt;", "".join(kept))


@dataclass
class _Cell:
    text: list[str] = field(default_factory=list[str])
    columns: int = 1
    rows: int = 1
    length: int = 0


@dataclass
class _Line:
    place: str
    cells: list[_Cell] = field(default_factory=list[_Cell])
    is_heading: bool = True
    """Only `th` so far, or inside `thead`."""


class _TableReader(HTMLParser):
    """Collects the rows of one table, those of tables in its cells aside."""

    def __init__(self, line: int, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self._first = line
        self._path = path
        self._lines: list[_Line] = []
        self._cell: _Cell | None = None
        self._skipped: list[str] = []
        self._in_head = False
        self._cells = 0
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
        elif self._depth > 1:
            return
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        elif self._skipped:
            return
        elif tag == "tr":
            self._cell = None
            self._lines.append(_Line(f"line {self._first + self.getpos()[0] - 1}"))
        elif tag in {"td", "th"}:
            self._begin(tag, dict(attrs))
        elif tag == "thead":
            self._in_head = True
        elif tag in {"br", "p", "div", "li"} and self._cell is not None:
            self._cell.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._depth -= 1
        elif self._depth > 1:
            return
        elif tag in self._skipped:
            while self._skipped and self._skipped.pop() != tag:
                pass
        elif self._skipped:
            return
        elif tag in {"td", "th", "tr"}:
            self._cell = None
        elif tag == "thead":
            self._in_head = False

    def handle_data(self, data: str) -> None:
        if self._cell is not None and self._depth < 2 and not self._skipped and self._cell.length < _CELL:
            self._cell.text.append(data[:_CELL])
            self._cell.length += len(data)

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
        if not self._lines:
            self._lines.append(_Line(f"line {self._first + self.getpos()[0] - 1}"))
        line = self._lines[-1]
        line.is_heading = line.is_heading and (tag == "th" or self._in_head)
        self._cell = _Cell(
            columns=_span(attributes.get("colspan"), MAX_COLUMNS), rows=_span(attributes.get("rowspan"), MAX_ROWS)
        )
        self._cells += self._cell.columns
        if self._cells > MAX_CELLS:
            raise UsageError(
                f"{self._path}: the table at line {self._first} has more than {MAX_CELLS:,} cells",
                fix="save the table by itself, as CSV",
            )
        line.cells.append(self._cell)

    def finished(self) -> tuple[list[tuple[str, list[str]]], int]:
        """(rows with every span filled in, how many of the first are headings; 0 where nothing says so)."""
        lines = [line for line in self._lines if line.cells]
        width = max((sum(cell.columns for cell in line.cells) for line in lines), default=0)
        width = min(width + 50, MAX_COLUMNS)
        below = Below()
        rows: list[tuple[str, list[str]]] = []
        for line in lines:
            cells: list[str] = []
            for cell in line.cells:
                _fill(cells, below, width)
                text = " ".join("".join(cell.text).split())
                for _ in range(cell.columns):
                    if len(cells) >= width:
                        break
                    below.hold(len(cells), cell.rows, text)
                    cells.append(text)
            _fill(cells, below, width)
            rows.append((line.place, cells))
        headings = next((number for number, line in enumerate(lines) if not line.is_heading), len(lines))
        return rows, headings if headings < len(lines) else 0


def _fill(cells: list[str], below: Below, width: int) -> None:
    """Put the cells that reach down from above where they belong."""
    while len(cells) < width and (text := below.take(len(cells))) is not None:
        cells.append(text)


def _span(text: str | None, most: int) -> int:
    """A span as HTML gives it: 1 where it is missing or nonsense."""
    return min(int(text), most) if text is not None and text.strip().isdecimal() and len(text) < 10 and int(text) else 1
