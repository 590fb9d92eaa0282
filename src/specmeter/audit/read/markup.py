r"""Tables of pages in HTML or LaTeX.

Both are read as text: nothing is loaded, run or expanded, no file is included, and depth and size are bounded. In HTML
only `<table>` to `</table>` counts, a table within a cell as one of its own; scripts, footnotes (`<sup>`) and
crossed-out text (`<del>`) are left out. In LaTeX it is `tabular` and its relatives, and a macro without arguments
stands for its own name (`\ours` for `ours`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from specmeter.audit.read.cells import clean
from specmeter.audit.read.grid import MAX_CELLS, MAX_COLUMNS, MAX_ROWS, Row, Table
from specmeter.errors import UsageError
from specmeter.text import size

MAX_TABLE = 2**20
"""Characters of one table."""
MAX_TABLES = 500
_MOST_CELL = 2_000
"""Characters of a cell and of the text above a table."""


class _Cell(NamedTuple):
    text: str
    columns: int
    rows: int


def read_markup(text: str, path: Path) -> list[Table]:
    """The tables of a page or source. Raises `UsageError` for one that is too large or nested too deeply."""
    found = list(islice(chain(_latex_tables(text, path), _html_tables(text, path)), MAX_TABLES + 1))
    if len(found) > MAX_TABLES:
        raise UsageError(f"{path}: more than {MAX_TABLES} tables", fix="save the part with the results as its own file")
    return found


def _spread(given: Iterable[tuple[str, list[_Cell]]], where: str, *, skips: bool) -> list[Row]:
    """Rows in which cells that reach over others are repeated there; `skips`: as in HTML, rows have no cell of their
    own for those that reach down into them."""
    rows: list[Row] = []
    held: dict[int, tuple[int, str]] = {}  # column -> (rows still to fill, text)
    count = 0
    for place, cells in given:
        row: list[str] = []
        waiting = cells[::-1]
        while waiting or (skips and len(row) in held):
            cell = _Cell("", 1, 1) if skips and len(row) in held else waiting.pop()
            for _ in range(min(max(1, cell.columns), MAX_COLUMNS)):
                left, above = held.pop(len(row), (0, ""))
                if cell.text or not left:
                    left, above = min(cell.rows, MAX_ROWS), cell.text
                if left > 1:
                    held[len(row)] = (left - 1, above)
                row.append(above)
            if count + len(row) > MAX_CELLS or len(row) > MAX_COLUMNS:
                raise UsageError(f"{where} has too many cells", fix="save only this table, as CSV")
        count += len(row)
        rows.append((place, row))
    return rows


# --- HTML -------------------------------------------------------------------------------------------------------------

_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|sup|del|s|template|svg|math|button|select)(?![\w-])"
    r".*?(?:</\1\s*>|(?=</?t(?:able|[rdh])(?![\w-]))|\Z)",
    re.I | re.S,
)
_TAG = re.compile(r"<(/?)(table|t[rdh])(?![\w-])([^<>]{0,2000})>?", re.I)
_INLINE = re.compile(r"</?(?!(?:br|p|div|li)\b)[a-z][^<>]{0,2000}>", re.I)
_SPAN = re.compile(r"(col|row)span\s*=\s*[\"']?(\d{1,9})", re.I)
_HTML_DEPTH = 8
"""Tables within each other."""


@dataclass
class _Open:
    """A table that is being read."""

    start: int
    line: int
    rows: list[tuple[str, list[_Cell]]] = field(default_factory=list[tuple[str, list[_Cell]]])
    heads: int = -1
    """Rows of nothing but `th` above the first other one."""
    in_cell: bool = False


def _html_tables(text: str, path: Path) -> Iterator[Table]:
    if "<table" not in text.lower():
        return
    text = _HIDDEN.sub(lambda it: "\n" * it.group().count("\n"), text)
    for table, end in sorted(_opened(text), key=lambda it: it[0].start):
        where = f"{path}: the table at line {table.line}"
        if end - table.start > MAX_TABLE:
            why = f"has more than {size(MAX_TABLE)}, or no end"
            raise UsageError(f"{where} {why}", fix="save only this table, as CSV")
        rows = _spread(table.rows, where, skips=True)
        above = text[max(0, table.start - _MOST_CELL) : table.start].rpartition("<table")[2].rpartition("</table>")[2]
        cleaned = [(place, [clean(cell) for cell in cells]) for place, cells in rows if cells]
        yield Table(cleaned, max(0, table.heads), "html", clean(above, _MOST_CELL), spans=True)


def _opened(text: str) -> Iterator[tuple[_Open, int]]:
    """(table with rows, where it ends); as in HTML, one that begins outside a cell ends the one before it."""
    is_open: list[_Open] = []
    at, line = 0, 1
    for tag in _TAG.finditer(text):
        if is_open and is_open[-1].in_cell:
            cells = is_open[-1].rows[-1][1]
            said = cells[-1].text + _INLINE.sub("", text[at : tag.start()])
            cells[-1] = cells[-1]._replace(text=said[:_MOST_CELL])
        line, at = line + text.count("\n", at, tag.end()), tag.end()
        ends, name = bool(tag[1]), tag[2].lower()
        if name == "table":
            if is_open and (ends or not is_open[-1].in_cell) and (last := is_open.pop()).rows:
                yield last, at
            if not ends and len(is_open) < _HTML_DEPTH:
                is_open.append(_Open(tag.start(), line))
        elif is_open:
            rows = is_open[-1].rows
            if not ends and (name == "tr" or not rows):
                rows.append((f"line {line}", []))
            if is_cell := not ends and name != "tr":
                spans = {which.lower(): int(count) for which, count in _SPAN.findall(tag[3])}
                rows[-1][1].append(_Cell("", spans.get("col", 1), spans.get("row", 1)))
                if name == "td" and is_open[-1].heads < 0:
                    is_open[-1].heads = len(rows) - 1
            is_open[-1].in_cell = is_cell
    yield from ((table, len(text)) for table in is_open if table.rows)


# --- LaTeX ------------------------------------------------------------------------------------------------------------

_BRACES = 40
_BEGIN = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tabulary|longtblr|tblr|NiceTabular|array)\}")
_ARGUMENTS = re.compile(
    r"(?:\s*(?:\[[^\[\]]{0,80}\]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\}){0,400}\})){0,4}",
)
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_RULES = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|specialrule|cmidrule|cline|arrayrulecolor|rowcolor|hhline"
    r"|noalign|endhead|endfirsthead|endfoot|endlastfoot|Xhline)\b(?:\s*(?:\([^()]{0,40}\)|\[[^\[\]]{0,40}\]"
    r"|\{[^{}]{0,60}\})){0,4}"
)
_RULED = re.compile(r"\\(?:midrule|hline)\b")
_ACROSS = re.compile(r"\\multicolumn\s*\{\s*(\d{1,4})\s*\}\s*\{(?:[^{}]|\{[^{}]*\}){0,80}\}\s*\{")
_OPTION = r"(?:\[[^\[\]]{0,20}\])?\s*"
_DOWN = re.compile(rf"\\multirow{_OPTION}\{{\s*-?(\d{{1,6}})\s*\}}{_OPTION}\{{[^{{}}]{{0,20}}\}}{_OPTION}\{{")
_DROPPED = re.compile(
    r"\\(?:cite[a-z]*|ref|label|footnote|footnotemark|tablefootnote|cellcolor|color|textcolor|vspace|hspace|phantom"
    r"|hphantom|rotatebox|scalebox|textsuperscript|textsubscript)\*?(?:\[[^\[\]]{0,40}\])?\s*(?:\{[^{}]{0,400}\})?"
)
_SCRIPT = re.compile(r"(?<!\\)[\^_]\s*(?:\{[^{}]{0,60}\}|\\?[A-Za-z0-9*†‡]+|\*)")
_MARK = re.compile(r"(?:\\tabularnewline|\\\\\*?)(?:[ \t]*\[[^\[\]\n]{0,30}\])?|\\.|[{}&]", re.S)
_MACRO = re.compile(r"\\([A-Za-z]+)\*?(\{(?!\}))?")
_SYMBOLS = {
    "times": "×", "tau": "τ", "gamma": "γ", "alpha": "α", "pm": "±", "textpm": "±", "approx": "~", "sim": "~",
    "to": "-", "textendash": "-", "textemdash": "-", "texttimes": "×", "Delta": "Δ",
} | dict.fromkeys((
    "quad", "qquad", "newline", "linebreak", "uparrow", "downarrow", "dagger", "ddagger", "left", "right", "centering",
    "raggedright", "raggedleft", "bfseries", "itshape", "small", "footnotesize", "scriptsize", "tiny", "bf", "it", "rm",
    "tt", "em", "normalfont", "hfill", "strut",
), " ")  # fmt: skip


def _latex_tables(text: str, path: Path) -> Iterator[Table]:
    at, line = 0, 1
    while (begin := _BEGIN.search(text, at)) is not None:
        line += text.count("\n", at, begin.start())
        where = f"{path}: the table at line {line}"
        if (end := _end_of_environment(text, begin[1], begin.end())) < 0:
            why = f"has no \\end{{{begin[1]}}} within {size(MAX_TABLE)}"
            raise UsageError(f"{where} {why}", fix="give the whole table, or save it as CSV")
        above = _latex_words(text[max(at, begin.start() - _MOST_CELL) : begin.start()])
        rows, heads = _latex_rows(text[begin.end() : end], line, where)
        yield Table(_spread(rows, where, skips=False), heads, "latex", above, spans=True)
        line, at = line + text.count("\n", begin.start(), end), end


def _end_of_environment(text: str, name: str, start: int) -> int:
    """Where an environment ends, those of the same name within it aside; -1 where it does not."""
    depth = 1
    for found in re.finditer(rf"\\(begin|end)\{{{re.escape(name)}\}}", text[start : start + MAX_TABLE]):
        depth += 1 if found[1] == "begin" else -1
        if depth == 0:
            return start + found.start()
    return -1


def _latex_rows(body: str, line: int, where: str) -> tuple[list[tuple[str, list[_Cell]]], int]:
    r"""(place and cells of each row, rows above the rule under the headings); 0 where no rule shows it.

    `\\` ends a row only outside braces, so that `\makecell{a\\b}` is one cell.
    """
    arguments = _ARGUMENTS.match(body)
    line += arguments.group().count("\n") if arguments else 0
    body = _COMMENT.sub("", body[arguments.end() if arguments else 0 :])
    body = re.sub(r"\\end\{(?:tabular|array)\}", "}", re.sub(r"\\begin\{(?:tabular|array)\}", "{", body)) + "\\\\"
    depth = start = heads = 0
    cells: list[str] = []
    rows: list[tuple[str, list[_Cell]]] = []
    for mark in _MARK.finditer(body):
        sign = mark.group()
        if sign in "{}":
            depth = max(0, depth + (1 if sign == "{" else -1))
            if depth > _BRACES:
                raise UsageError(f"{where}: braces are nested too deeply", fix="save the table as CSV")
        elif depth == 0 and sign.startswith(("&", "\\\\", "\\tabularnewline")):
            cells.append(body[start : mark.start()])
            start = mark.end()
            if sign == "&":
                continue
            lines = "".join(cells).count("\n")
            is_ruled = 0 < len(rows) <= 3 and not heads and _RULED.search(cells[0])
            cells[0] = _RULES.sub(lambda rule: "\n" * rule.group().count("\n"), cells[0])
            if any(cell.strip() for cell in cells):
                top = "&".join(cells)
                if is_ruled and not any(re.match(r"\d+\.\d", cell.text) for _, row in rows for cell in row):
                    heads = len(rows)
                first = line + top[: len(top) - len(top.lstrip())].count("\n")
                rows.append((f"line {first}", [_latex_cell(cell) for cell in cells]))
            line, cells = line + lines, []
    return rows, heads


def _latex_cell(text: str) -> _Cell:
    across, down = _ACROSS.search(text), _DOWN.search(text)
    start = max(it.end() if it else 0 for it in (across, down))
    return _Cell(clean(_latex_words(text[start:])), int(across[1]) if across else 1, int(down[1]) if down else 1)


def _latex_words(text: str) -> str:
    """A cell as people see it."""
    text = _DROPPED.sub(" ", text[: 2 * _MOST_CELL]).replace("\\\\", " ").replace("~", " ")
    text = re.sub(r"\\([%&])", r"\1", text)
    text = (_SCRIPT.sub("", text) if "$" in text or "^" in text else text).replace("\\_", "_")
    text = _MACRO.sub(lambda it: _SYMBOLS.get(it[1], "" if it[2] else it[1]), text)
    text = re.sub(r"\\.", " ", text)
    return " ".join(re.sub(r"[{}$]", "", text).split())
