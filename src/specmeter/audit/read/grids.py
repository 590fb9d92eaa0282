"""Text -> grids: rows of cells under headings. Dumb on purpose: nothing here knows what a column means."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from .cells import EMPTY, NUMBER, clean, is_number, numbers

RULE = re.compile(r"[\s|:+\-=─━┼╪├┤┌┐└┘┬┴╞╡═]*[-─━═]{1,}[\s|:+\-=─━┼╪├┤┌┐└┘┬┴╞╡═]*")


@dataclass
class Grid:
    """Headings (one text a column, levels joined by ` | `), rows of cells, the line of each row and the text before."""

    head: list[str]
    rows: list[list[str]]
    lines: list[int]
    context: str = ""
    kind: str = "table"
    sections: list[str] = field(default_factory=list)


# --- blocks of a text ------------------------------------------------------------------------------------------------


def grids(text: str, name: str = "") -> list[Grid]:
    """Every table of a text; where there is none, its key/value lines, lists and sentences."""
    text = text.replace("\r\n", "\n").lstrip("\ufeff")
    if re.search(r"<table", text, re.I):
        return [g for g in (_build(rows, 1, lines, "", "html") for rows, lines in _html(text)) if g]
    if "\\begin{tabular" in text:
        return _latex(text)
    found: list[Grid] = []
    lines = text.split("\n")
    if name.endswith((".csv", ".tsv")):
        table = _delimited(text)
        if table:
            return [table]
    used = [False] * len(lines)
    for start, end in _pipe_blocks(lines):
        for i in range(start, end):
            used[i] = True
        grid = _pipes(lines, start, end)
        if grid:
            found.append(grid)
    if not found:
        found = _ruled(lines) or _pairs(lines) or _spaced(lines)
        if found:
            return found
    rest = [("" if used[i] else line) for i, line in enumerate(lines)]
    if not found:
        found = _colon_block(rest) or _items(rest) or []
        pasted = None if found else _delimited(text, strict=True)
        found = found or ([pasted] if pasted else [])
        if not found:
            found = _sentences(rest)
    else:
        for grid in found:
            grid.context = _before(lines, grid.lines[0] - 1, used) if grid.lines else ""
    return found


def _before(lines: list[str], at: int, used: list[bool]) -> str:
    """The text between a table and the table before it."""
    kept: list[str] = []
    i = at
    while i >= 0 and (used[i] or i >= at):
        i -= 1
    while i >= 0 and not used[i]:
        kept.append(lines[i])
        i -= 1
    return "\n".join(reversed(kept)).strip()


def _pipe_blocks(lines: list[str]) -> list[tuple[int, int]]:
    blocks, start = [], None
    drawn = [re.sub(r"[│┃║]", "|", line) for line in lines]
    for i, line in enumerate([*drawn, ""]):
        inside = ("|" in line and not re.match(r"\s*(slot|srv|llama_)", line)) or (
            start is not None and line.strip() and RULE.fullmatch(line.strip())
        )
        if inside and start is None:
            start = i
        elif not inside and start is not None:
            if i - start >= 2 and sum(line.count("|") for line in drawn[start:i]) >= 2:
                blocks.append((start, i))
            start = None
    for i, line in enumerate(drawn):
        lines[i] = line
    return blocks


def split_pipes(line: str, outer: bool) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip())
    if outer and cells and not cells[0].strip():
        cells = cells[1:]
    if outer and cells and not cells[-1].strip() and line.rstrip().endswith("|"):
        cells = cells[:-1]
    return [clean(cell) for cell in cells]


def _pipes(lines: list[str], start: int, end: int) -> Grid | None:
    body = [(i, lines[i]) for i in range(start, end)]
    rules = [
        i
        for i, line in body
        if RULE.fullmatch(line.strip()) and "-" in line or re.fullmatch(r"[\s─━┼╪├┤┌┐└┘┬┴╞╡═|+-]+", line)
    ]
    texts = [(i, line) for i, line in body if i not in rules]
    if not texts:
        return None
    # Outer bars are told by the rows and not by the heading: one that begins with a bar may have an empty corner.
    rows_only = [line for i, line in texts[1:]] or [texts[0][1]]
    outer = sum(line.lstrip().startswith("|") for line in rows_only) * 2 > len(rows_only)
    cells = [split_pipes(line, outer) for _, line in texts]
    first_rule = next((r for r in rules if r > texts[0][0]), None)
    heads = sum(i < first_rule for i, _ in texts) if first_rule is not None else 1
    return _build(cells, max(1, min(heads, 3)), [i + 1 for i, _ in texts], "", "markdown")


def _build(cells: list[list[str]], heads: int, lines: list[int], context: str, kind: str) -> Grid | None:
    """Rows of cells -> a grid: levels of headings joined, sections and merged labels filled."""
    if len(cells) <= heads:
        return None
    width = max(set(map(len, cells[heads:])), key=list(map(len, cells[heads:])).count)
    fixed = []
    for n, row in enumerate(cells):
        if n < heads and len(row) == width - 1:
            row = ["", *row]
        row = (
            [*row, *[""] * (width - len(row))]
            if len(row) <= width
            else ([*row[: width - 1], " ".join(row[width - 1 :])] if n >= heads and any(row[width:]) else row[:width])
        )
        fixed.append(row)
    while heads < 3 and len(fixed) > heads + 1 and _is_heading(fixed[heads], fixed[heads + 1 :]):
        heads += 1
    levels = [list(row) for row in fixed[:heads]]
    for level in levels[:-1]:  # a heading reaches over the empty ones right of it
        for c in range(1, width):
            if not level[c] and levels[-1][c]:
                level[c] = level[c - 1]
    head = [" | ".join(dict.fromkeys(level[c] for level in levels if level[c])) for c in range(width)]
    rows, kept, sections, section = [], [], [], ""
    for row, line in zip(fixed[heads:], lines[heads:]):
        filled = [cell for cell in row if cell]
        if not filled:
            continue
        if (
            len(set(filled)) == 1
            and width > 2
            and not is_number(filled[0])
            and (row[0] == filled[0])
            and len(filled) in {1, width}
        ):
            section = filled[0]
            continue
        rows.append(row)
        kept.append(line)
        sections.append(section)
    for c in range(min(2, width)):
        blank = [i for i, row in enumerate(rows) if not row[c]]
        words = [row[c] for row in rows if row[c] and not is_number(row[c])]
        if (
            blank
            and blank[0] > 0
            and words
            and (c == 0 or not rows[0][0] or any(rows[i][0] == rows[i - 1][0] for i in blank))
        ):
            for i in blank:
                rows[i][c] = rows[i - 1][c]
    return Grid(head, rows, kept, context, kind, sections) if rows else None


def _is_heading(row: list[str], after: list[list[str]]) -> bool:
    """Whether a row below the headings is a second row of headings."""
    filled = [cell for cell in row if cell]
    if len(filled) < max(2, len(row) / 2) or any(is_number(cell) or EMPTY.fullmatch(cell) for cell in filled):
        return False
    return (
        sum(is_number(cell) for cell in after[0]) >= max(2, len(row) // 2)
        and len(set(filled)) < len(filled)
        or (not row[0] and sum(is_number(cell) for cell in after[0]) >= 2)
    )


def _delimited(text: str, strict: bool = False) -> Grid | None:
    lines = [(i + 1, line) for i, line in enumerate(text.split("\n")) if line.strip() and not line.startswith("#")]
    if len(lines) < 2:
        return None
    for mark in ("\t", ";", ","):
        if lines[0][1].count(mark) < 1:
            continue
        rows = list(csv.reader(io.StringIO("\n".join(line for _, line in lines)), delimiter=mark))
        width = len(rows[0])
        if strict and (width < 3 or any(len(row) != width for row in rows) or len(rows) < 2):
            continue
        if width < 2 or sum(abs(len(row) - width) <= 1 for row in rows) < 0.8 * len(rows):
            continue
        if mark == "," and sum(is_number(clean(c)) for c in rows[0]) > width / 2:
            continue
        if mark == "," and max(len(c.split()) for c in rows[0]) > 8:
            continue
        if mark == ";" and sum(bool(re.fullmatch(r"\s*-?\d+,\d+\s*%?", c)) for row in rows[1:] for c in row) > 2:
            rows = [rows[0], *[[re.sub(r"^(\s*-?\d+),(\d+)", r"\1.\2", c) for c in row] for row in rows[1:]]]
        return _build([[clean(c) for c in row] for row in rows], 1, [i for i, _ in lines], "", "csv")
    return None


def _ruled(lines: list[str]) -> list[Grid]:
    """Columns set with spaces below a line of dashes in groups."""
    for i, line in enumerate(lines):
        if i and re.fullmatch(r"\s*-{2,}(\s+-{2,})+\s*", line):
            spans = [m.span() for m in re.finditer(r"-+", line)]
            bounds = [(a, spans[n + 1][0] if n + 1 < len(spans) else 10_000) for n, (a, _) in enumerate(spans)]
            rows, kept = [], []
            for j in [i - 1, *range(i + 1, len(lines))]:
                if not lines[j].strip():
                    break
                rows.append([clean(lines[j][a:b]) for a, b in bounds])
                kept.append(j + 1)
            grid = _build(rows, 1, kept, "\n".join(lines[: i - 1]), "ruled")
            return [grid] if grid else []
    return []


_PAIR = re.compile(
    r"([A-Za-zτγα#][\w/#.\- %]*?)\s*=\s*([+\-~]?\d[\d,.]*\s?(?:%|x|ms|s|t/s|tok/s|tokens/s|GB)?)(?![\w.])"
)


def _pairs(lines: list[str]) -> list[Grid]:
    """Console lines `name pred= 192 draft= 142 rate=0.838`, alike from line to line."""
    rows = [(i, line, _PAIR.findall(line)) for i, line in enumerate(lines)]
    rows = [(i, line, pairs) for i, line, pairs in rows if len(pairs) >= 2]
    if not rows:
        return []
    keys = list(dict.fromkeys(k.split()[-1] for _, _, pairs in rows for k, _ in pairs))
    if len(keys) > 30:
        return []
    table, kept = [["", *keys]], [0]
    for i, line, pairs in rows:
        values = {k.split()[-1]: v for k, v in pairs}
        label = line[: line.find(pairs[0][0])] + " " + " ".join(pairs[0][0].split()[:-1])
        table.append([clean(label), *[clean(values.get(k, "")) for k in keys]])
        kept.append(i + 1)
    grid = _build(table, 1, kept, "\n".join(line for i, line in enumerate(lines) if i < rows[0][0]), "pairs")
    return [grid] if grid else []


def _spaced(lines: list[str]) -> list[Grid]:
    """Columns set with two or more spaces, as many on several lines in a row."""
    cut = [re.split(r"\s{2,}|\t", line.strip()) if line.strip() else [] for line in lines]
    for i in range(len(cut) - 1):
        width = len(cut[i])
        j = i + 1
        while j < len(cut) and (
            len(cut[j]) == width or not cut[j] and j + 1 < len(cut) and len(cut[j + 1]) == width and False
        ):
            j += 1
        if (
            width >= 3
            and j - i >= 2
            and not any(is_number(clean(c)) for c in cut[i])
            and any(is_number(clean(c)) for c in cut[i + 1])
        ):
            grid = _build(
                [[clean(c) for c in row] for row in cut[i:j]],
                1,
                list(range(i + 1, j + 1)),
                "\n".join(lines[:i]),
                "spaced",
            )
            return [grid] if grid else []
    return []


_KEY = re.compile(
    r"\s*(?:[-*•]\s+)?([^:：|]{2,60}?)\s*[:：]\s+(.{1,60})$|\s*(?:[-*•]\s+)?([^:：=|]{2,60}?)\s*=\s+(.{1,60})$"
)


def _colon_block(lines: list[str]) -> list[Grid]:
    """Lines `key: value`; a key that comes again begins the next row, a line without a value names it."""
    rows: list[dict[str, str]] = []
    labels: list[str] = []
    kept: list[int] = []
    label, hits, texts = "", 0, 0
    for i, line in enumerate(lines):
        parts = [line] if line.count(":") <= 1 else re.split(r",\s+(?=[A-Za-z#][^,:]*:)", line)
        pairs = [
            ((m[1] or m[3]).strip(), (m[2] or m[4]).strip())
            for m in map(
                _KEY.match,
                [("- " if re.match(r"\s*[-*•]\s", x) else "") + clean(re.sub(r"^\s*[-*•]\s", "", x)) for x in parts],
            )
            if m
        ]
        pairs = [(k, v) for k, v in pairs if is_number(v) and len(numbers(v)) <= 3]
        if not pairs:
            if line.strip():
                label = clean(line.strip().rstrip(":")) or label
                texts += 1
                if rows and rows[-1]:
                    rows.append({})
                    labels.append(label)
                    kept.append(i + 1)
            continue
        hits += 1
        for key, value in pairs:
            if not rows or key in rows[-1]:
                rows.append({})
                labels.append(label)
                kept.append(i + 1)
            rows[-1][clean(key)] = value
    good = [n for n, row in enumerate(rows) if row]
    keys = list(dict.fromkeys(k for n in good for k in rows[n]))
    shared = sum(len(rows[n]) for n in good)
    if hits < 2 or len(keys) > 60 or shared < 2 or len(good) > 1 and shared < 1.5 * len(keys) or texts > 3 * hits:
        return []
    table = [["", *keys], *[[labels[n], *[rows[n].get(k, "") for k in keys]] for n in good]]
    grid = _build(table, 1, [0, *[kept[n] for n in good]], "\n".join(lines[:5]), "keys")
    return [grid] if grid else []


def _items(lines: list[str]) -> list[Grid]:
    """A list whose items are a name and numbers: `- draft 1: 65 tokens, 27.25 tok/s, 1.27x`."""
    rows, kept = [["", "result"]], [0]
    for i, line in enumerate(lines):
        m = re.match(r"\s*(?:[-*•+]|\d+[.)])\s+(.{1,80}?)(?::|\s[–—-]\s|→)\s+(\S.*)$", line)
        if m and is_number(clean(m[2])) and any(n.unit in {"rate", "x", "ms", "%"} for n in numbers(clean(m[2]))):
            rows.append([clean(m[1]), clean(m[2])])
            kept.append(i + 1)
    if len(rows) < 3:
        return []
    grid = _build(rows, 1, kept, "\n".join(line for line in lines if line.rstrip().endswith(":"))[:400], "list")
    return [grid] if grid else []


_FROM_TO = re.compile(
    r"(?:\bfrom|从|从约)\s+[~≈]?(?:about |around )?([\d.,]+)\s*((?:tokens?|toks?|t)/s\w*|tps|ms)?\s*(?:\bto|→|提升到|提高到|增加到|到|up to)\s+[~≈]?(?:about |around )?([\d.,]+)\s*((?:tokens?|toks?|t)/s\w*|tps|ms)",
    re.I,
)


_APART = re.compile(r"[,;)(]|\b(?:and|to|vs\.?|versus|from|but|against|compared (?:to|with)|while|whereas)\b|→", re.I)


def _sentences(lines: list[str]) -> list[Grid]:
    """A paragraph or item as one row: each number with a unit is a column whose heading is the words around it."""
    out: list[Grid] = []
    paragraphs, at = [], 0
    for i, line in enumerate([*lines, ""]):
        if not line.strip() or re.match(r"\s*([-*•]|\d+[.)])\s", line):
            if i > at and any(s.strip() for s in lines[at:i]):
                part = [s.strip() for s in lines[at:i]]
                paragraphs.append((at, (" ; " if all(len(s) < 60 for s in part) else " ").join(part)))
            at = i
    for start, text in paragraphs:
        text = clean(re.sub(r"^\s*([-*•]|\d+[.)]|#+)\s", "", text))
        text = _FROM_TO.sub(lambda m: f"baseline {m[1]} {m[4]}, after {m[3]} {m[4]}", text)
        pieces = re.split(r"(?<=[a-z\d%)])[.;!。；]\s+|\s—\s", text)
        head, cells = ["sentence"], [""]
        for piece in pieces:
            nums = list(NUMBER.finditer(piece))
            spans: list[tuple[int, int]] = []
            for m in nums:  # a pair of counts stays together
                if spans and piece[spans[-1][1] : m.start()].strip() in {"/", "of", "±", "out of"}:
                    spans[-1] = (spans[-1][0], m.end())
                else:
                    spans.append(m.span())
            around = [["", ""] for _ in spans]
            for n in range(
                len(spans) + 1
            ):  # the words between two numbers: to the left of a comma or "vs" they belong to the first
                between = piece[spans[n - 1][1] if n else 0 : spans[n][0] if n < len(spans) else len(piece)]
                cut = _APART.search(between) if n else None
                left, right = (
                    (between[: cut.start()], between[cut.end() :])
                    if cut
                    else ("" if n < len(spans) else between, between)
                )
                if n:
                    around[n - 1][1] = left[:40]
                if n < len(spans):
                    around[n][0] = right[-60:]
                    if not cut and n and not re.search(r"[A-Za-z]{2}", between):
                        around[n][0] = ""
            for (start_, end_), (before, after) in zip(spans, around):
                head.append(re.sub(r"[,:()]", " ", f"{before} {after}").strip())
                cells.append(piece[start_:end_])
        if len(cells) > 1:
            out.append(Grid(head, [cells], [start + 1], text, "prose", [""]))
    return out


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, int, int]]]] = []
        self.at: list[list[int]] = []
        self.cell: list[str] | None = None
        self.span = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
            self.at.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
            self.at[-1].append(self.getpos()[0])
        elif tag in {"td", "th"} and self.tables and self.tables[-1]:
            self.cell = []
            given = dict(attrs)
            self.span = tuple(
                min(50, int(given.get(k) or 1)) if (given.get(k) or "1").isdigit() else 1
                for k in ("colspan", "rowspan")
            )  # type: ignore[assignment]

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"} and self.cell is not None:
            self.tables[-1][-1].append((clean("".join(self.cell)), *self.span))
            self.cell = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data)


def _html(text: str) -> list[tuple[list[list[str]], list[int]]]:
    parser = _Html()
    parser.feed(text)
    out = []
    for table, at in zip(parser.tables, parser.at):
        rows: list[list[str]] = []
        hanging: dict[int, tuple[str, int]] = {}
        for row in table:
            flat: list[str] = []
            queue = list(row)
            while queue or len(flat) in hanging:
                if len(flat) in hanging:
                    word, left = hanging.pop(len(flat))
                    if left > 1:
                        hanging[len(flat)] = (word, left - 1)
                    flat.append(word)
                    continue
                word, across, down = queue.pop(0)
                for _ in range(across):
                    if down > 1:
                        hanging[len(flat)] = (word, down - 1)
                    flat.append(word)
            rows.append(flat)
        out.append((rows, at))
    return out


def _latex(text: str) -> list[Grid]:
    out = []
    for m in re.finditer(r"\\begin\{tabular\*?\}.*?\n(.*?)\\end\{tabular", text, re.S):
        body = re.sub(r"\\(?:toprule|midrule|bottomrule|hline|cmidrule(?:\([^)]*\))?\{[^}]*\})", "", m[1])
        body = re.sub(
            r"\\multi(?:column|row)\{(\d+)\}\{[^}]*\}\{([^{}]*)\}",
            lambda g: g[2] + " &" * (int(g[1]) - 1) if "column" in g[0] else g[2],
            body,
        )
        rows = [[clean(c) for c in re.split(r"(?<!\\)&", row)] for row in re.split(r"\\\\", body) if row.strip()]
        first = text.count("\n", 0, m.start(1)) + 1
        grid = _build(rows, 1, list(range(first, first + len(rows))), "", "latex")
        if grid:
            out.append(grid)
    return out


def turned(grid: Grid) -> Grid | None:
    """The grid on its side: the first column holds the headings."""
    if len(grid.rows) < 2 or len(grid.head) < 2 or len(grid.rows) > 40 or grid.kind in {"prose", "list"}:
        return None
    names = [row[0] for row in grid.rows]
    if len(set(names)) < len(names) or not all(names):
        return None
    columns = [
        c
        for c in range(1, len(grid.head))
        if not re.fullmatch(
            r"\W*(?:change|delta|Δ|diff\w*|gain|improvement|uplift|speed-?up|ratio|factor|变化)\W*(?:\(?[%x]\)?)?",
            grid.head[c],
            re.I,
        )
    ]
    if not columns:
        return None
    rows = [[grid.head[c], *[row[c] for row in grid.rows]] for c in columns]
    return replace(
        grid,
        head=[grid.head[0], *names],
        rows=rows,
        lines=[grid.lines[0]] * len(rows),
        kind=grid.kind + " turned",
        sections=[""] * len(rows),
    )
