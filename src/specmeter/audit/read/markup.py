r"""Tables of pages in HTML or LaTeX.

*HTML.* Only what stands between `<table` and `</table>` is looked at, a table within a cell as one of its own. The
text is cut at its tags: nothing is loaded or run, and HTML has no entities of its own that could grow.
`colspan` and `rowspan` are believed, up to the size of a table of results; scripts, styles, footnotes (`<sup>`) and
crossed-out text (`<del>`) are left out.

*LaTeX*: `tabular` and its relatives, with `\multicolumn`, `\multirow` and lines of booktabs. Read as text, never run:
macros are not expanded (one without arguments stands for its own name, `\ours` for `ours`), files are not included, and
depth and size are bounded. `\\` and `&` count only outside braces, so that `\makecell{a\\b}` is one cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

_TOKEN = re.compile(r"<!--|-->|<(/?)([a-zA-Z][a-zA-Z0-9]{0,15})((?:\s[^<>]{0,2000})?)/?>?")
_SPAN = re.compile(r"(col|row)span\s*=\s*[\"']?(\d{1,9})", re.I)
_SKIPPED = frozenset({"script", "style", "sup", "del", "s", "template", "svg", "math", "button", "select"})
_CELL = 2_000
_HTML_DEPTH = 8
"""Tables within each other."""


@dataclass
class _Open:
    """A table that is being read."""

    start: int
    line: int
    rows: list[tuple[str, list[tuple[list[str], int, int]], bool]] = field(default_factory=list[Any])
    """(place, [(words, columns, rows)], whether all is `th` or in `thead`)"""
    in_cell: bool = False
    in_head: bool = False
    length: int = 0
    """Characters of the open cell."""

    def begin(self, name: str, attributes: str, place: str) -> None:
        """A row or a cell."""
        if name == "tr" or not self.rows:
            self.rows.append((place, [], True))
        if name != "tr":
            spans = {which.lower(): int(size) or 1 for which, size in _SPAN.findall(attributes)}
            place, cells, is_head = self.rows[-1]
            cells.append(([], min(spans.get("col", 1), MAX_COLUMNS), min(spans.get("row", 1), MAX_ROWS)))
            self.rows[-1] = (place, cells, is_head and (name == "th" or self.in_head))
        self.in_cell, self.length = name != "tr", 0

    def say(self, words: str) -> None:
        """Text, where a cell is open."""
        if self.in_cell and self.length < _CELL:
            self.rows[-1][1][-1][0].append(words[:_CELL])
            self.length += len(words)


def read_html(text: str, path: Path) -> Iterator[Table]:
    """The tables of a page. Raises `UsageError` for one that is too large."""
    tables = sorted(_html_tables(text), key=lambda it: it[0].start)
    if len(tables) > MAX_TABLES:
        raise UsageError(f"{path}: {_TOO_MANY}", fix="save the part with the results as a file of its own")
    for begun, end in tables:
        if end - begun.start > MAX_TABLE:
            why = f"the table at line {begun.line} has more than {size(MAX_TABLE)}, or no end"
            raise UsageError(f"{path}: {why}", fix="save only this table, as CSV")
        spans = _Spans(path, begun.line)
        for place, cells, _ in begun.rows:
            spans.add(place, [("".join(words), columns, rows) for words, columns, rows in cells], skip_held=True)
        heads = next((number for number, (_, _, is_head) in enumerate(begun.rows) if not is_head), 0)
        rows = [(place, [clean(cell) for cell in cells]) for place, cells in spans.rows if cells]
        above = text[max(0, begun.start - _CELL) : begun.start].rpartition("<table")[2].rpartition("</table>")[2]
        yield Table(rows, heads, "html", clean(above, _CELL), spans=True)


def _html_tables(text: str) -> Iterator[tuple[_Open, int]]:
    """(table with rows, where it ends); as in HTML, one that begins outside a cell ends the one before it."""
    is_open: list[_Open] = []
    at, line = 0, 1
    hidden = ""  # the tag, or the mark of comments, whose content is left out
    for token in _TOKEN.finditer(text) if "<table" in text.lower() else ():
        if is_open and not hidden:
            is_open[-1].say(text[at : token.start()])
        line, at = line + text.count("\n", at, token.start()), token.start()
        name, ends = (token[2] or token[0]).lower(), bool(token[1])
        line, at = line + text.count("\n", at, token.end()), token.end()
        if hidden and name not in {"table", "tr", "td", "th"}:
            hidden = "" if name == hidden and (ends or name == "-->") else hidden
            continue
        hidden = (
            hidden if hidden == "-->" else "-->" if name == "<!--" else name if name in _SKIPPED and not ends else ""
        )
        if hidden or (name != "table" and not is_open):
            continue
        if name == "table":
            if is_open and (ends or not is_open[-1].in_cell) and (last := is_open.pop()).rows:
                yield last, at
            if not ends and len(is_open) < _HTML_DEPTH:
                is_open.append(_Open(token.start(), line))
        elif name in {"tr", "td", "th"} and not ends:
            is_open[-1].begin(name, token[3], f"line {line}")
        elif name in {"tr", "td", "th"}:
            is_open[-1].in_cell = False
        elif name == "thead":
            is_open[-1].in_head = not ends
        elif name in {"br", "p", "div", "li"}:
            is_open[-1].say(" ")
    yield from ((table, len(text)) for table in is_open if table.rows)


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
    for number, cells in _latex_cells(body, line, path):
        if _RULED.search(cells[0]) and spans.rows:
            ruled.append(len(spans.rows))
        words = _LINES.sub(lambda rule: "\n" * rule.group().count("\n"), cells[0])
        cells[0] = _LINES.sub(" ", cells[0])
        if any(cell.strip() for cell in cells):
            place = f"line {number + words[: len(words) - len(words.lstrip())].count(chr(10))}"
            spans.add(place, [_latex_cell(cell) for cell in cells], skip_held=False)
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


def _latex_cells(body: str, line: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    r"""(line, cells) of each row: up to a `\\` outside braces."""
    depth = start = at = 0
    first, cells = line, list[str]()
    while (mark := _MARK.search(body, at)) is not None:
        sign, at = mark.group(), mark.end()
        if sign in "{}":
            depth = max(0, depth + (1 if sign == "{" else -1))
            if depth > _BRACES:
                where = line + body.count("\n", start, mark.start())
                raise UsageError(f"{path}: line {where}: braces are nested too deeply", fix="save the table as CSV")
        elif depth == 0 and sign in {"&", "\\\\", "\\tabularnewline"}:
            cells.append(body[start : mark.start()])
            if sign != "&":
                yield first, cells
                at = skipped.end() if (skipped := _AFTER_ROW.match(body, at)) else at
            line += body.count("\n", start, at)
            first, cells = (first, cells) if sign == "&" else (line, [])
            start = at
    yield first, [*cells, body[start:]]


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
