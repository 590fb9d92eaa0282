r"""Tables of pages in HTML or LaTeX.

*HTML.* Only what stands between `<table` and `</table>` is looked at, a table within a cell as one of its own. The
parser is that of the standard library: nothing is loaded or run, and HTML has no entities of its own that could grow.
`colspan` and `rowspan` are believed, up to the size of a table of results; scripts, styles, footnotes (`<sup>`) and
crossed-out text (`<del>`) are left out.

*LaTeX*: `tabular` and its relatives, with `\multicolumn`, `\multirow` and lines of booktabs. Read as text, never run:
macros are not expanded (one without arguments stands for its own name, `\ours` for `ours`), files are not included, and
depth and size are bounded. `\\` and `&` count only outside braces, so that `\makecell{a\\b}` is one cell.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from specmeter.audit.read.cells import MAX_CELLS, MAX_COLUMNS, MAX_ROWS, Row, Table, clean
from specmeter.errors import UsageError
from specmeter.text import size

MAX_TABLE = 4 * 2**20
"""Characters of one table."""
MAX_TABLES = 500
_TOO_MANY = f"more than {MAX_TABLES} tables"


class _Spans:
    """Cells that reach into columns to their right and rows below theirs, filled in."""

    def __init__(self, path: Path, line: int) -> None:
        self.rows: list[Row] = []
        self._held: dict[int, tuple[int, str]] = {}  # column -> (rows still to fill, text)
        self._cells = 0
        self._name = f"{path}: the table at line {line}"

    def _take(self, column: int) -> str | None:
        left, text = self._held.pop(column, (0, None))
        if text is not None and left > 1:
            self._held[column] = (left - 1, text)
        return text

    def add(self, place: str, given: list[tuple[str, int, int]], *, skip_held: bool) -> None:
        """A row of (text, columns, rows); `skip_held`: cells from above are not repeated in it, as in HTML."""
        cells: list[str] = []
        for text, columns, down in given:
            while skip_held and (held := self._take(len(cells))) is not None:
                cells.append(held)
            for _ in range(min(columns, MAX_COLUMNS)):
                held = self._take(len(cells))
                if held is None or text:
                    held = text
                    if down > 1:
                        self._held[len(cells)] = (min(down, MAX_ROWS) - 1, text)
                cells.append(held)
            if self._cells + len(cells) > MAX_CELLS or len(cells) > MAX_COLUMNS:
                raise UsageError(f"{self._name} has too many cells", fix="save only this table, as CSV")
        while skip_held and (held := self._take(len(cells))) is not None:
            cells.append(held)
        self._cells += len(cells)
        self.rows.append((place, cells))


# --- HTML -------------------------------------------------------------------------------------------------------------

_SKIPPED = frozenset({"script", "style", "sup", "del", "s", "template", "svg", "math", "button", "select"})
_CELL = 2_000
_HTML_DEPTH = 8
"""Tables within each other."""
_TAG = re.compile(r"<(/?)(table|t[rdh])\b[^<>]{0,2000}>?", re.I)
_NO_TAG = re.compile(r"<(?!/?[a-zA-Z][^<>]{0,2000}>)")


def read_html(text: str, path: Path) -> Iterator[Table]:
    """The tables of a page, those in the cells of others after them. Raises `UsageError` for one that is too large."""
    starts, ends, closed = _tags(text)
    if len(starts) > MAX_TABLES:
        raise UsageError(f"{path}: {_TOO_MANY}", fix="save the part with the results as a file of its own")
    line, counted = 1, 0
    for at in starts:
        line, counted = line + text.count("\n", counted, at), at
        end = closed.get(at)
        if end is None:  # never closed: up to where any table is
            after = bisect_left(ends, at)
            end = ends[after] if after < len(ends) else len(text)
        if end - at > MAX_TABLE:
            why = f"the table at line {line} has more than {size(MAX_TABLE)}, or no end"
            raise UsageError(f"{path}: {why}", fix="save only this table, as CSV")
        reader = _TableReader(line)
        reader.feed(_only_tags(text[at:end]))
        reader.close()
        spans = _Spans(path, line)
        for place, cells, _ in reader.lines:
            spans.add(place, [("".join(words), *span) for words, span in cells], skip_held=True)
        heads = next((n for n, (_, _, is_head) in enumerate(reader.lines) if not is_head), 0)
        rows = [(place, [clean(cell) for cell in cells]) for place, cells in spans.rows if cells]
        above = clean(_TAG.sub(" ", text[max(0, at - _CELL) : at]).rpartition("<table")[2], _CELL)
        yield Table(rows, heads, "html", above, spans=True)


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
        end = fragment.find("-->", start)
        end = len(fragment) if end < 0 else end
        kept += [fragment[at:start], "\n" * fragment.count("\n", start, end)]
        at = end + 3
    kept.append(fragment[at:])
    return _NO_TAG.sub("&lt;", "".join(kept))


class _TableReader(HTMLParser):
    """Collects the rows of one table, those of tables in its cells aside."""

    def __init__(self, line: int) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[tuple[str, list[tuple[list[str], tuple[int, int]]], bool]] = []
        """(place, [(words, (columns, rows))], whether all is `th` or in `thead`)"""
        self._first = line
        self._in_cell = self._in_head = False
        self._skipped: list[str] = []
        self._depth = self._length = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
        elif self._depth > 1:
            return
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        elif self._skipped:
            return
        elif tag == "tr" or (tag in {"td", "th"} and not self.lines):
            self.lines.append((f"line {self._first + self.getpos()[0] - 1}", [], True))
            self._in_cell = False
        elif tag == "thead":
            self._in_head = True
        elif tag in {"br", "p", "div", "li"}:
            self.handle_data(" ")
        if tag in {"td", "th"}:
            given = dict(attrs)
            place, cells, is_head = self.lines[-1]
            cells.append(([], (_span(given.get("colspan"), MAX_COLUMNS), _span(given.get("rowspan"), MAX_ROWS))))
            self.lines[-1] = (place, cells, is_head and (tag == "th" or self._in_head))
            self._in_cell, self._length = True, 0

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._depth -= 1
        elif self._depth > 1:
            return
        elif tag in self._skipped:
            while self._skipped and self._skipped.pop() != tag:
                pass
        elif tag in {"td", "th", "tr"} and not self._skipped:
            self._in_cell = False
        elif tag == "thead":
            self._in_head = False

    def handle_data(self, data: str) -> None:
        if self._in_cell and self._depth < 2 and not self._skipped and self._length < _CELL:
            self.lines[-1][1][-1][0].append(data[:_CELL])
            self._length += len(data)


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


def read_latex(text: str, path: Path) -> Iterator[Table]:
    """The tables of a source. Raises `UsageError` for one that is too large or nested too deeply."""
    at, line, counted, tables = 0, 1, 0, 0
    while (begin := _BEGIN.search(text, at)) is not None:
        tables += 1
        if tables > MAX_TABLES:
            raise UsageError(f"{path}: {_TOO_MANY}", fix="split the file")
        line, counted = line + text.count("\n", counted, begin.start()), begin.start()
        end = _end_of_environment(text, begin.group(1), begin.end())
        if end < 0:
            why = f"the table at line {line} has no \\end{{{begin.group(1)}}} within {size(MAX_LATEX_TABLE)}"
            raise UsageError(f"{path}: {why}", fix="give the whole table, or save it as CSV")
        rows, heads = _latex_rows(text[begin.end() : end], line, path)
        above = _latex_words(text[max(at, begin.start() - _CELL) : begin.start()])
        yield Table(rows, heads or 0, "latex", above, spans=True)
        at = end


def _end_of_environment(text: str, name: str, start: int) -> int:
    """Where an environment ends, those of the same name within it aside; -1 where it does not."""
    depth = 1
    for found in re.finditer(rf"\\(begin|end)\{{{re.escape(name)}\}}", text[start : start + MAX_LATEX_TABLE]):
        depth += 1 if found.group(1) == "begin" else -1
        if depth == 0:
            return start + found.start()
    return -1


def _latex_rows(body: str, line: int, path: Path) -> tuple[list[Row], int]:
    """(rows with every span filled in, how many of the first are headings; 0 where no rule shows it)."""
    body = _COMMENT.sub("", _without_arguments(body))
    body = re.sub(r"\\end\{(?:tabular|array)\}", "}", re.sub(r"\\begin\{(?:tabular|array)\}", "{", body))
    spans = _Spans(path, line)
    ruled: list[int] = []
    for number, raw in _latex_lines(body, line, path):
        if _RULED.search(raw) and spans.rows:
            ruled.append(len(spans.rows))
        words = _LINES.sub(lambda rule: "\n" * rule.group().count("\n"), raw)
        number += words[: len(words) - len(words.lstrip())].count("\n")
        if words.strip():
            cells = [_latex_cell(cell) for cell in _latex_cells(_LINES.sub(" ", raw))]
            spans.add(f"line {number}", cells, skip_held=False)
    return spans.rows, _ruled_headings(spans.rows, ruled)


def _ruled_headings(rows: list[Row], ruled: list[int]) -> int:
    """Rows above the rule under the headings: the last rule that has no number above it."""
    found = 0
    for count in ruled:
        if count > 3 or any(re.match(r"[\s$~]*[0-9]+\.[0-9]", cell) for _, cells in rows[:count] for cell in cells):
            break
        if len(set(rows[count - 1][1])) == 1 and len(rows[count - 1][1]) > 2:
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


def _latex_cell(text: str) -> tuple[str, int, int]:
    """(words, columns, rows) of a cell."""
    columns = rows = 1
    for _ in range(4):
        across, down = _ACROSS.search(text), _DOWN.search(text)
        if across is not None:
            columns, text = int(across.group(1)) or 1, text[across.end() :]
        elif down is not None:
            rows, text = int(down.group(1)) or 1, text[down.end() :]
        else:
            break
    return clean(_latex_words(text)), columns, rows


def _latex_words(text: str) -> str:
    """A cell as people see it."""
    text = _DROPPED.sub(" ", text[:4_000])
    text = re.sub(r"\\textcolor\{[^{}]{0,40}\}|\\(?:rotatebox|scalebox)\{[^{}]{0,40}\}", "", text)
    text = text.replace("\\\\", " ").replace("~", " ").replace("\\%", "%").replace("\\&", "&")
    text = (_SCRIPT.sub("", text) if "$" in text or "^" in text else text).replace("\\_", "_")
    text = re.sub(r"\\([A-Za-z]+)\*?", lambda found: _SYMBOLS.get(found.group(1), found.group(1)), text)
    text = re.sub(r"\\.", " ", text).replace("$", "")
    return " ".join(re.sub(r"[{}]", "", text).split())
