r"""All tables of a text: CSV in its variants, and those of a page in Markdown, HTML or LaTeX (the others: `grid`).

*HTML.* Only what stands between `<table` and `</table>` is looked at, a table within a cell as one of its own. The
parser is that of the standard library: nothing is loaded or run, and HTML has no entities of its own that could grow.
`colspan` and `rowspan` are believed, up to the size of a table of results; scripts, styles, footnotes (`<sup>`) and
crossed-out text (`<del>`) are left out.

*LaTeX*: `tabular` and its relatives, with `\multicolumn`, `\multirow` and lines of booktabs. Read as text, never run:
macros are not expanded (one without arguments stands for its own name, `\ours` for `ours`), files are not included, and
depth and size are bounded. `\\` and `&` count only outside braces, so that `\makecell{a\\b}` is one cell.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from specmeter.audit.read.columns import requests_at_once, understand
from specmeter.audit.read.document import MAX_CELL, MAX_LINE
from specmeter.audit.read.grid import (
    HEADING_ROWS,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    Below,
    Grid,
    GridRow,
    make_grid,
    read_drawn,
    read_json,
)
from specmeter.audit.read.prose import read_prose
from specmeter.errors import UsageError
from specmeter.text import size

_DELIMITERS = ("\t", ";", ",", "|")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)+\|?\s*")
_SHORT_RULE = re.compile(r"\s*\|\s*:?-+:?\s*\|\s*")
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+,[0-9]{1,2}(?![0-9])")
_POINT_DECIMAL = re.compile(r"(?<![0-9,])[0-9]+\.[0-9]{1,2}(?![0-9])")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,300})\]\([^()\s]{0,500}\)")


def read_grids(text: str, path: Path, *, as_json: bool) -> list[Grid]:
    """All tables of a text, which is JSON or a page. Raises `UsageError` when it holds none."""
    if as_json:
        return read_json(text, path)
    lines = text.split("\n")
    found = _tables(text, lines, path)
    if found:
        return sorted(found, key=lambda grid: int(grid.place.rpartition(" ")[2]))
    if text.lstrip().startswith(("[", "{")):  # JSON that is broken: it says where
        return read_json(text, path)
    if max(map(_known_in, lines[:HEADING_ROWS])) < 2 and (told := list(read_prose(lines))):
        return told
    return [_from_csv(lines, path)]


def _tables(text: str, lines: list[str], path: Path) -> list[Grid]:
    """Those that a page marks as such. Raises `UsageError` for one that is too large."""
    found = [*read_latex(text, path), *read_html(text, path)]
    if not found and (longest := max(map(len, lines))) > MAX_LINE:
        raise UsageError(
            f"{path}: a line of {longest:,} characters", fix="pass a table of results as CSV, JSON or Markdown"
        )
    return [*found, *_markdown(lines, path), *read_drawn(lines, path)]


def _from_csv(lines: list[str], path: Path) -> Grid:
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not kept:
        raise UsageError(f"{path}: contains only comments", fix="pass a file with results")
    first = max(kept[:HEADING_ROWS], key=lambda line: _known_in(line[1]))[1]
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
            f"{path}: not CSV: {error} ({where})", fix="close every quote, and separate fields with commas"
        ) from None
    grid = make_grid(rows, path)
    if delimiter == ";":
        cells = [cell for _, row in grid.rows for cell in row]
        commas = any(_COMMA_DECIMAL.search(cell) for cell in cells)
        grid.decimal_comma = commas and not any(_POINT_DECIMAL.search(cell) for cell in cells)
    return grid


def _known_in(line: str) -> int:
    """How many known headings a line has at most, whatever divides them."""
    return max(_known(line[:MAX_LINE], mark) for mark in _DELIMITERS)


def _known(line: str, delimiter: str) -> int:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), list[str]())
    except csv.Error:
        return 0
    return sum(understand(cell) is not None for cell in cells[:MAX_COLUMNS])


def _is_rule(lines: Sequence[str], number: int) -> bool:
    """Whether a line is the one under the headings of a table, not a row of single dashes."""
    line = lines[number]
    if number == 0 or "|" not in lines[number - 1] or not (_RULE.fullmatch(line) or _SHORT_RULE.fullmatch(line)):
        return False
    return "--" in line or ":" in line or number == 1 or "|" not in lines[number - 2]


def _markdown(lines: list[str], path: Path) -> Iterator[Grid]:
    """The tables of a page; each ends before the headings of the next."""
    rules = [number for number, line in enumerate(lines) if "-" in line and _is_rule(lines, number)]
    ends = [*(rule - 1 for rule in rules[1:]), len(lines)][: len(rules)]
    for rule, end in zip(rules, ends, strict=True):
        rows = [(f"line {rule}", pipe_cells(lines[rule - 1]))]
        for number in range(rule + 1, end):
            if "|" not in lines[number]:
                break
            rows.append((f"line {number + 1}", pipe_cells(lines[number])))
        grid = make_grid(rows, path, place=f"table at line {rule}")
        grid.above = _text_above(lines[max(0, rule - 1 - _ABOVE) : rule - 1])
        yield grid


_ABOVE = 12
"""Lines above a table, at most, that may say under what conditions all of it was measured."""


def _text_above(lines: list[str]) -> str:
    """The last of some lines, from the heading of their section on, or from the table before them."""
    start = 0
    for number, line in enumerate(lines):
        start = number + 1 if "|" in line else number if line.startswith("#") else start
    return "\n".join(lines[start:])[-MAX_CELL:]


def pipe_cells(line: str) -> list[str]:
    """The cells of a line that are separated by `|`."""
    inner = line.strip().removeprefix("|")
    inner = inner.removesuffix("|") if not inner.endswith("\\|") else inner
    inner = _LINK.sub(r"\1", inner)
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _is_known(part: tuple[str, ...]) -> bool:
    texts = (" ".join(part), *part)
    return any(map(understand, texts)) or any(requests_at_once(text) is not None for text in texts)


def known_headings(head: str) -> int:
    """How many known columns a text that begins like this seems to have, for telling tables from other files."""
    if head.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        keys = dict.fromkeys(re.findall(r'"([^"\n]{1,60})"\s*:', head))
        if known := sum(understand(key) is not None for key in list(keys)[:MAX_COLUMNS]):
            return known
    lines = [line.rstrip("\r") for line in head.split("\n")[:2000]]
    try:
        parts = [grid.parts for grid in _tables("\n".join(lines), lines, Path("head"))]
    except UsageError:
        return 2
    if parts:
        return max(sum(map(_is_known, part)) for part in parts)
    return max(map(_known_in, [line for line in lines if line.strip() and not line.startswith("#")][:2]), default=0)


# --- HTML -------------------------------------------------------------------------------------------------------------

MAX_HTML_TABLE = 4 * 2**20
"""Characters of one table."""
MAX_TABLES = 500
_SKIPPED = frozenset({"script", "style", "sup", "del", "s", "template", "svg", "math", "button", "select"})
_CELL = 2_000
_HTML_DEPTH = 8
"""Tables within each other."""
_TAG = re.compile(r"<(/?)(table|t[rdh])\b[^<>]{0,2000}>?", re.I)
_NO_TAG = re.compile(r"<(?!/?[a-zA-Z][^<>]{0,2000}>)")


def read_html(text: str, path: Path) -> Iterator[Grid]:
    """The tables of a page. Raises `UsageError` for one that is too large."""
    for number, fragment in _html_tables(text, path):
        reader = _TableReader(number, path)
        reader.feed(_only_tags(fragment))
        reader.close()
        rows, heading_rows = reader.finished()
        if len(rows) > 1:
            yield make_grid(rows, path, place=f"table at line {number}", heading_rows=heading_rows or None, spans=True)


def _html_tables(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """(line, HTML) of each table, those in the cells of others after them; none deeper than `_HTML_DEPTH`."""
    starts, ends, closed = _tags(text)
    if len(starts) > MAX_TABLES:
        raise UsageError(
            f"{path}: more than {MAX_TABLES} tables", fix="save the part with the results as a file of its own"
        )
    line, counted = 1, 0
    for at in starts:
        line, counted = line + text.count("\n", counted, at), at
        end = closed.get(at)
        if end is None:  # never closed: up to where any table is
            after = bisect_left(ends, at)
            end = ends[after] if after < len(ends) else len(text)
        if end - at > MAX_HTML_TABLE:
            raise UsageError(
                f"{path}: the table at line {line} has more than {size(MAX_HTML_TABLE)}, or no end",
                fix="save only this table, as CSV",
            )
        yield line, text[at:end]


def _tags(text: str) -> tuple[list[int], list[int], dict[int, int]]:
    """(where tables with rows start, at most `_HTML_DEPTH` within each other, where any ends, start -> its own end).

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
            if len(is_open) < _HTML_DEPTH:
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
class _HtmlCell:
    text: list[str] = field(default_factory=list[str])
    columns: int = 1
    rows: int = 1
    length: int = 0


@dataclass
class _HtmlRow:
    place: str
    cells: list[_HtmlCell] = field(default_factory=list[_HtmlCell])
    is_heading: bool = True
    """Only `th` so far, or inside `thead`."""


class _TableReader(HTMLParser):
    """Collects the rows of one table, those of tables in its cells aside."""

    def __init__(self, line: int, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self._first = line
        self._path = path
        self._lines: list[_HtmlRow] = []
        self._cell: _HtmlCell | None = None
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
            self._lines.append(_HtmlRow(f"line {self._first + self.getpos()[0] - 1}"))
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
            self._lines.append(_HtmlRow(f"line {self._first + self.getpos()[0] - 1}"))
        line = self._lines[-1]
        line.is_heading = line.is_heading and (tag == "th" or self._in_head)
        self._cell = _HtmlCell(
            columns=_span(attributes.get("colspan"), MAX_COLUMNS), rows=_span(attributes.get("rowspan"), MAX_ROWS)
        )
        self._cells += self._cell.columns
        if self._cells > MAX_CELLS:
            raise UsageError(
                f"{self._path}: the table at line {self._first} has more than {MAX_CELLS:,} cells",
                fix="save only this table, as CSV",
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


# --- LaTeX ------------------------------------------------------------------------------------------------------------

MAX_LATEX_TABLE = 2**20
"""Characters of one table."""
_BRACES = 40
_BEGIN = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tabulary|longtblr|tblr|NiceTabular|array)\}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_LINES = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|specialrule|cmidrule|cline|arrayrulecolor|rowcolor|hhline"
    r"|noalign|endhead|endfirsthead|endfoot|endlastfoot|Xhline)\b(?:\s*(?:\([^()]{0,40}\)|\[[^\[\]]{0,40}\]"
    r"|\{[^{}]{0,60}\})){0,4}"
)
_RULED = re.compile(r"\\(?:midrule|hline)\b")
_ACROSS = re.compile(r"\\multicolumn\s*\{\s*(\d{1,4})\s*\}\s*\{(?:[^{}]|\{[^{}]*\}){0,80}\}\s*\{")
_DOWN = re.compile(r"\\multirow(?:\[[^\[\]]{0,20}\])?\s*\{\s*-?(\d{1,6})\s*\}(?:\[[^\[\]]{0,20}\])?\s*\{[^{}]{0,20}\}"
                   r"(?:\[[^\[\]]{0,20}\])?\s*\{")  # fmt: skip
_DROPPED = re.compile(
    r"\\(?:cite[a-z]*|ref|label|footnote|footnotemark|tablefootnote|cellcolor|rowcolor|color|vspace|hspace|phantom"
    r"|hphantom|textsuperscript|textsubscript)\*?(?:\[[^\[\]]{0,40}\])?\s*(?:\{[^{}]{0,400}\})?"
)
_SCRIPT = re.compile(r"(?<!\\)[\^_]\s*(?:\{[^{}]{0,60}\}|\\?[A-Za-z0-9*†‡]+|\*)")
_MARK = re.compile(r"\\tabularnewline|\\.|[{}&]", re.DOTALL)
_AFTER_ROW = re.compile(r"\*?(?:[ \t]*\[[^\[\]\n]{0,30}\])?")
_SYMBOLS = {
    "times": "×", "tau": "τ", "gamma": "γ", "alpha": "α", "pm": "±", "approx": "~", "sim": "~", "to": "-",
    "checkmark": "✓", "quad": " ", "qquad": " ", "newline": " ", "linebreak": " ", "ldots": "...", "dots": "...",
    "textendash": "-", "textemdash": "-", "textpm": "±", "texttimes": "×", "Delta": "Δ",
} | dict.fromkeys((
    "uparrow", "downarrow", "dagger", "ddagger", "textbackslash", "left", "right", "centering", "raggedright",
    "raggedleft", "bfseries", "itshape", "small", "footnotesize", "scriptsize", "tiny", "bf", "it", "rm", "tt",
    "em", "normalfont", "textbf", "textit", "textrm", "texttt", "textsc", "textsf", "text", "mathbf", "mathrm",
    "mathit", "boldsymbol", "bm", "emph", "underline", "makecell", "shortstack", "thead", "uline", "mbox", "hfill",
    "ensuremath", "textcolor", "rotatebox", "scalebox", "num", "strut",
), "")  # fmt: skip


def read_latex(text: str, path: Path) -> Iterator[Grid]:
    """The tables of a source. Raises `UsageError` for one that is too large or nested too deeply."""
    at, line, counted, tables = 0, 1, 0, 0
    while (begin := _BEGIN.search(text, at)) is not None:
        tables += 1
        if tables > MAX_TABLES:
            raise UsageError(f"{path}: more than {MAX_TABLES} tables", fix="split the file")
        line, counted = line + text.count("\n", counted, begin.start()), begin.start()
        end = _end_of_environment(text, begin.group(1), begin.end())
        if end < 0:
            why = f"the table at line {line} has no \\end{{{begin.group(1)}}} within {size(MAX_LATEX_TABLE)}"
            raise UsageError(f"{path}: {why}", fix="give the whole table, or save it as CSV")
        rows, heading_rows = _latex_rows(text[begin.end() : end], line, path)
        if len(rows) > 1:
            yield make_grid(rows, path, place=f"table at line {line}", heading_rows=heading_rows, spans=True)
        at = end


def _end_of_environment(text: str, name: str, start: int) -> int:
    """Where an environment ends, those of the same name within it aside; -1 where it does not."""
    depth = 1
    for found in re.finditer(rf"\\(begin|end)\{{{re.escape(name)}\}}", text[start : start + MAX_LATEX_TABLE]):
        depth += 1 if found.group(1) == "begin" else -1
        if depth == 0:
            return start + found.start()
    return -1


def _latex_rows(body: str, line: int, path: Path) -> tuple[list[tuple[str, list[str]]], int | None]:
    """(rows with every span filled in, how many of the first are headings where a rule shows it)."""
    body = _COMMENT.sub("", _without_arguments(body))
    body = re.sub(r"\\end\{(?:tabular|array)\}", "}", re.sub(r"\\begin\{(?:tabular|array)\}", "{", body))
    rows: list[tuple[str, list[str]]] = []
    below = Below()
    ruled: list[int] = []
    cells_so_far = 0
    for number, raw in _latex_lines(body, line, path):
        if _RULED.search(raw) and rows:
            ruled.append(len(rows))
        words = _LINES.sub(lambda rule: "\n" * rule.group().count("\n"), raw)
        number += words[: len(words) - len(words.lstrip())].count("\n")
        raw = _LINES.sub(" ", raw)
        if not raw.strip():
            continue
        cells: list[str] = []
        for cell in _latex_cells(raw):
            columns, down, words = _latex_cell(cell)
            for _ in range(min(columns, MAX_COLUMNS)):
                held = below.take(len(cells))
                if held is None or words:
                    held = words
                    below.hold(len(cells), down, words)
                cells.append(held)
            if cells_so_far + len(cells) > MAX_CELLS or len(cells) > MAX_COLUMNS:
                raise UsageError(f"{path}: the table at line {line} has too many cells", fix="save it as CSV")
        cells_so_far += len(cells)
        rows.append((f"line {number}", cells))
    return rows, _ruled_headings(rows, ruled)


def _ruled_headings(rows: list[tuple[str, list[str]]], ruled: list[int]) -> int | None:
    """Rows above the rule under the headings: the last rule that has no number above it."""
    found: int | None = None
    for count in ruled:
        if count > 3 or any(re.match(r"[\s$~]*[0-9]+\.[0-9]", cell) for _, cells in rows[:count] for cell in cells):
            break
        across = len(set(rows[count - 1][1])) == 1 and len(rows[count - 1][1]) > 2
        if across:
            break  # a line across the table speaks of the rows below it
        found = count
    return found


def _without_arguments(body: str) -> str:
    """The rows of a table without the arguments of its environment: `[t]`, `{\\textwidth}`, `{l|cc}`."""
    for _ in range(4):
        found = re.match(r"\s*(?:\[[^\[\]]{0,80}\]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\}){0,400}\})", body)
        if found is None:
            break
        body = "\n" * found.group().count("\n") + body[found.end() :]
    return body


def _latex_lines(body: str, line: int, path: Path) -> Iterator[tuple[int, str]]:
    r"""(line, text) of each row: up to a `\\` outside braces."""
    depth = start = at = 0
    while (mark := _MARK.search(body, at)) is not None:
        at = mark.end()
        if mark.group() == "\\tabularnewline" or (mark.group() == "\\\\" and depth == 0):
            yield line, body[start : mark.start()]
            skipped = _AFTER_ROW.match(body, at)
            at = skipped.end() if skipped else at
            line += body.count("\n", start, at)
            start = at
        elif mark.group() in "{}":
            depth = max(0, depth + (1 if mark.group() == "{" else -1))
            if depth > _BRACES:
                where = line + body.count("\n", start, mark.start())
                raise UsageError(f"{path}: line {where}: braces are nested too deeply", fix="save the table as CSV")
    yield line, body[start:]


def _latex_cells(row: str) -> Iterator[str]:
    depth = start = 0
    for mark in _MARK.finditer(row):
        if mark.group() == "&" and depth == 0:
            yield row[start : mark.start()]
            start = mark.end()
        elif mark.group() in "{}":
            depth = max(0, depth + (1 if mark.group() == "{" else -1))
    yield row[start:]


def _latex_cell(text: str) -> tuple[int, int, str]:
    """(columns, rows, words) of a cell."""
    columns = rows = 1
    for _ in range(4):
        across, down = _ACROSS.search(text), _DOWN.search(text)
        if across is not None:
            columns, text = int(across.group(1)) or 1, text[across.end() :]
        elif down is not None:
            rows, text = int(down.group(1)) or 1, text[down.end() :]
        else:
            break
    return columns, rows, _latex_words(text)


def _latex_words(text: str) -> str:
    """A cell as people see it."""
    text = _DROPPED.sub(" ", text[:4_000])
    text = re.sub(r"\\textcolor\{[^{}]{0,40}\}|\\(?:rotatebox|scalebox)\{[^{}]{0,40}\}", "", text)
    text = text.replace("\\\\", " ").replace("~", " ").replace("\\%", "%").replace("\\&", "&")
    text = (_SCRIPT.sub("", text) if "$" in text or "^" in text else text).replace("\\_", "_")
    text = re.sub(r"\\([A-Za-z]+)\*?", lambda found: _SYMBOLS.get(found.group(1), found.group(1)), text)
    text = re.sub(r"\\.", " ", text).replace("$", "")
    return " ".join(re.sub(r"[{}]", "", text).split())
