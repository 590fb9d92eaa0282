r"""Tables of LaTeX sources: `tabular` and its relatives, with `\multicolumn`, `\multirow` and lines of booktabs.

Read as text, never run: macros are not expanded (one without arguments stands for its own name, `\ours` for `ours`),
files are not included, and depth and size are bounded. `\\` and `&` count only outside braces, so that
`\makecell{a\\b}` is one cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specmeter.audit.read.grid import MAX_CELLS, MAX_COLUMNS, Below, Grid, make_grid
from specmeter.errors import UsageError

MAX_TABLE = 2**20
"""Characters of one table."""
MAX_TABLES = 500
_DEPTH = 40
_BEGIN = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tabulary|longtblr|tblr|NiceTabular|array)\}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_LINES = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|specialrule|cmidrule|cline|arrayrulecolor|rowcolor|hhline"
    r"|noalign|endhead|endfirsthead|endfoot|endlastfoot|Xhline)\b(?:\s*(?:\([^()]{0,40}\)|\[[^\[\]]{0,40}\]"
    r"|\{[^{}]{0,60}\})){0,4}"
)
_RULED = re.compile(r"\\(?:midrule|hline)\b")
_SPAN = re.compile(r"\\multicolumn\s*\{\s*(\d{1,4})\s*\}\s*\{(?:[^{}]|\{[^{}]*\}){0,80}\}\s*\{")
_DOWN = re.compile(r"\\multirow(?:\[[^\[\]]{0,20}\])?\s*\{\s*-?(\d{1,6})\s*\}(?:\[[^\[\]]{0,20}\])?\s*\{[^{}]{0,20}\}"
                   r"(?:\[[^\[\]]{0,20}\])?\s*\{")  # fmt: skip
_DROPPED = re.compile(
    r"\\(?:cite[a-z]*|ref|label|footnote|footnotemark|tablefootnote|cellcolor|rowcolor|color|vspace|hspace|phantom"
    r"|hphantom|textsuperscript|textsubscript)\*?(?:\[[^\[\]]{0,40}\])?\s*(?:\{[^{}]{0,400}\})?"
)
_SCRIPT = re.compile(r"(?<!\\)[\^_]\s*(?:\{[^{}]{0,60}\}|\\?[A-Za-z0-9*†‡]+|\*)")
_AFTER_ROW = re.compile(r"\*?(?:[ \t]*\[[^\[\]\n]{0,30}\])?")
_SYMBOLS = {
    "times": "×", "tau": "τ", "gamma": "γ", "alpha": "α", "pm": "±", "approx": "~", "sim": "~", "to": "-",
    "uparrow": "",
    "downarrow": "", "checkmark": "✓", "dagger": "", "ddagger": "", "textbackslash": "", "quad": " ", "qquad": " ",
    "newline": " ", "linebreak": " ", "ldots": "...", "dots": "...", "textendash": "-", "textemdash": "-",
    "textpm": "±", "texttimes": "×", "Delta": "Δ", "left": "", "right": "", "centering": "", "raggedright": "",
    "raggedleft": "", "bfseries": "", "itshape": "", "small": "", "footnotesize": "", "scriptsize": "", "tiny": "",
    "bf": "", "it": "", "rm": "", "tt": "", "em": "", "normalfont": "", "textbf": "", "textit": "", "textrm": "",
    "texttt": "", "textsc": "", "textsf": "", "text": "", "mathbf": "", "mathrm": "", "mathit": "", "boldsymbol": "",
    "bm": "", "emph": "", "underline": "", "makecell": "", "shortstack": "", "thead": "", "uline": "", "mbox": "",
    "hfill": "", "ensuremath": "", "textcolor": "", "rotatebox": "", "scalebox": "", "num": "", "strut": "",
}  # fmt: skip


def read(text: str, path: Path) -> Iterator[Grid]:
    """The tables of a source. Raises `UsageError` for one that is too large or nested too deeply."""
    at, line, counted, tables = 0, 1, 0, 0
    while (begin := _BEGIN.search(text, at)) is not None:
        tables += 1
        if tables > MAX_TABLES:
            raise UsageError(f"{path}: more than {MAX_TABLES} tables", fix="split the file")
        line, counted = line + text.count("\n", counted, begin.start()), begin.start()
        end = _end(text, begin.group(1), begin.end())
        if end < 0:
            why = f"the table at line {line} has no \\end{{{begin.group(1)}}} within {MAX_TABLE // 2**20} MiB"
            raise UsageError(f"{path}: {why}", fix="give the whole table, or save it as CSV")
        rows, heading_rows = _rows(text[begin.end() : end], line, path)
        if len(rows) > 1:
            yield make_grid(rows, path, place=f"table at line {line}", heading_rows=heading_rows, spans=True)
        at = end


def _end(text: str, name: str, start: int) -> int:
    """Where an environment ends, those of the same name within it aside; -1 where it does not."""
    depth = 1
    for found in re.finditer(rf"\\(begin|end)\{{{re.escape(name)}\}}", text[start : start + MAX_TABLE]):
        depth += 1 if found.group(1) == "begin" else -1
        if depth == 0:
            return start + found.start()
    return -1


def _rows(body: str, line: int, path: Path) -> tuple[list[tuple[str, list[str]]], int | None]:
    """(rows with every span filled in, how many of the first are headings where a rule shows it)."""
    body = _COMMENT.sub("", _without_arguments(body))
    body = re.sub(r"\\end\{(?:tabular|array)\}", "}", re.sub(r"\\begin\{(?:tabular|array)\}", "{", body))
    rows: list[tuple[str, list[str]]] = []
    below = Below()
    ruled: list[int] = []
    cells_so_far = 0
    for number, raw in _split(body, line, path):
        if _RULED.search(raw) and rows:
            ruled.append(len(rows))
        words = _LINES.sub(lambda rule: "\n" * rule.group().count("\n"), raw)
        number += words[: len(words) - len(words.lstrip())].count("\n")
        raw = _LINES.sub(" ", raw)
        if not raw.strip():
            continue
        cells: list[str] = []
        for cell in _cells(raw):
            columns, down, words = _cell(cell)
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
    return rows, _headings(rows, ruled)


def _headings(rows: list[tuple[str, list[str]]], ruled: list[int]) -> int | None:
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


def _split(body: str, line: int, path: Path) -> Iterator[tuple[int, str]]:
    r"""(line, text) of each row: up to a `\\` outside braces."""
    depth, start, at = 0, 0, 0
    while at < len(body):
        letter = body[at]
        if letter == "\\":
            if (body.startswith("\\\\", at) and depth == 0) or body.startswith("\\tabularnewline", at):
                raw = body[start:at]
                yield line, raw
                at += 2 if body.startswith("\\\\", at) else len("\\tabularnewline")
                skipped = _AFTER_ROW.match(body, at)
                at = skipped.end() if skipped else at
                line += body.count("\n", start, at)
                start = at
                continue
            at += 2
            continue
        depth += (letter == "{") - (letter == "}")
        if depth > _DEPTH:
            where = line + body.count("\n", start, at)
            raise UsageError(f"{path}: line {where}: braces are nested too deeply", fix="save the table as CSV")
        depth = max(0, depth)
        at += 1
    yield line, body[start:]


def _cells(row: str) -> Iterator[str]:
    depth, start, at = 0, 0, 0
    while at < len(row):
        letter = row[at]
        if letter == "\\":
            at += 2
            continue
        depth = max(0, depth + (letter == "{") - (letter == "}"))
        if letter == "&" and depth == 0:
            yield row[start:at]
            start = at + 1
        at += 1
    yield row[start:]


def _cell(text: str) -> tuple[int, int, str]:
    """(columns, rows, words) of a cell."""
    columns = rows = 1
    for _ in range(4):
        across, down = _SPAN.search(text), _DOWN.search(text)
        if across is not None:
            columns, text = int(across.group(1)) or 1, text[across.end() :]
        elif down is not None:
            rows, text = int(down.group(1)) or 1, text[down.end() :]
        else:
            break
    return columns, rows, _words(text)


def _words(text: str) -> str:
    """A cell as people see it."""
    text = _DROPPED.sub(" ", text[:4_000])
    text = re.sub(r"\\textcolor\{[^{}]{0,40}\}|\\(?:rotatebox|scalebox)\{[^{}]{0,40}\}", "", text)
    text = text.replace("\\\\", " ").replace("~", " ").replace("\\%", "%").replace("\\&", "&")
    text = (_SCRIPT.sub("", text) if "$" in text or "^" in text else text).replace("\\_", "_")
    text = re.sub(r"\\([A-Za-z]+)\*?", lambda found: _SYMBOLS.get(found.group(1), found.group(1)), text)
    text = re.sub(r"\\.", " ", text).replace("$", "")
    return " ".join(re.sub(r"[{}]", "", text).split())
