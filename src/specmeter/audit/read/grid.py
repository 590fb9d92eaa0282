"""Grids of cells: what tables of all forms have in common, and how JSON and drawn text become some (`pages`: the rest).

Headings on one or two levels, cells that stand for several rows, rows that only say what those below have in common,
tables on their side. A form that says itself which cells span what (HTML, LaTeX) is believed; elsewhere an empty cell
is filled only where headings or the rows around it show what belongs into it.

*Drawn* are columns that gaps divide, with a line of dashes or without, and boxes:

    category   samples  avg_pred_t/s  accept_rate        +-------+-----+     ┏━━━━━━━┳━━━━━┓
    ---------  -------  ------------  -----------        | Model | t/s |     ┃ Model ┃ t/s ┃

    code_python   pred= 192 draft= 163 acc= 136 rate=0.834 tok/s=135.4

The first is what `speed_bench.py` of llama.cpp prints (tools/server/bench/speed-bench, `print_rows`), pandas and
`tabulate` too; the boxes come from databases and from Rich (AIPerf's console). The last are lines of one shape, a name
and its numbers with a rate, as scripts in llama.cpp's issues print them.

*JSON* is a list of objects, JSON Lines, or results kept in a tree (`benchmark_results.json`). In a tree, objects with a
number that a column knows are rows. What the objects around them say of the model, the machine or the draft length
holds for them too; the key of an object among its like (`{"9B_Q8": {...}, ...}`) names it. Rates under a key such as
`baselines` or `draft_speeds` are those of models by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

from specmeter.audit.claim import family_by_name
from specmeter.audit.read.columns import CONDITIONS, Heading, is_plain, is_task, understand
from specmeter.audit.read.document import parse_json, read_objects
from specmeter.errors import UsageError
from specmeter.messages import Message

MAX_COLUMNS = 1_000
MAX_ROWS = 200_000
MAX_CELLS = 2_000_000
"""Cells of one table, those that spans repeat included."""
SECTION = "section"
"""Heading of what rows below a line of its own have in common."""
HEADING_ROWS = 3
_BOLD = re.compile(r"(?:\*\*|__|<b>|<strong>|_|\*).+(?:\*\*|__|</b>|</strong>|_|\*)|.+:")
_STATISTICS = re.compile(r"min|max|p\d\d?|std\w*|median|stddev|count|sum", re.I)

GridRow = tuple[str, list[str]]
"""(where, cells)."""


@dataclass
class Grid:
    """One table: headings and rows of as many cells; rows that could not be read are in `faults`."""

    parts: list[tuple[str, ...]]
    """Headings, the words of each level from the top."""
    place: str = ""
    """Where in the file, where it holds several: `table at line 40`."""
    decimal_comma: bool = False
    rows: list[GridRow] = field(default_factory=list[GridRow])
    faults: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    """(where, why)."""
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of rows from nested JSON: where -> the keys and positions of the list or object that each lies in."""
    above: str = ""
    """What a page says right above it."""

    @property
    def headings(self) -> list[str]:
        """Headings in one line each."""
        return [" ".join(part) for part in self.parts]

    def filled(self, index: int) -> list[str]:
        """The cells of a column that are more than empty or a dash."""
        return [cells[index] for _, cells in self.rows if cells[index].strip(" -–—")]


class Below:
    """Cells that reach down into the rows below theirs."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, str]] = {}  # column -> (rows still to fill, text)

    def hold(self, column: int, rows: int, text: str) -> None:
        """A cell of this many rows, the one it stands in included, takes this column."""
        if rows > 1:
            self._held[column] = (min(rows, MAX_ROWS) - 1, text)
        else:
            self._held.pop(column, None)

    def take(self, column: int) -> str | None:
        """The text that reaches into the next row here; None where none does."""
        left, text = self._held.pop(column, (0, None))
        if text is not None:
            self.hold(column, left, text)
        return text


def make_grid(
    rows: Sequence[GridRow], path: Path | None, *, place: str = "", heading_rows: int | None = None, spans: bool = False
) -> Grid:
    """A grid from its lines, headings first; `spans`: cells that span several are repeated in each already.

    Raises `UsageError` where there is too much of it.
    """
    count = _count_headings(rows, spans=spans) if heading_rows is None else heading_rows
    levels = [list(cells) for _, cells in rows[:count]]
    width = max(map(len, levels), default=0)
    if width > MAX_COLUMNS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_COLUMNS:,} columns", fix="remove unneeded columns")
    if sum(len(cells) for _, cells in rows) > MAX_CELLS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_CELLS:,} cells", fix="remove unneeded columns")
    levels = [level + [""] * (width - len(level)) for level in levels]
    if not spans:
        for upper, lower in pairwise(levels):
            _spread(upper, lower)
    parts = [_once(level[index] for level in levels) for index in range(width)]
    grid = Grid(parts, place=place)
    body = [(where, cells) for where, cells in rows[count:]]
    body = _without_sections(grid, body, spans=spans)
    for where, cells in body:
        _add(grid, where, cells, path)
    if not spans:
        _fill_down(grid)
    return _upright(grid)


def _once(words: Iterator[str]) -> tuple[str, ...]:
    """Words that are not empty and not what stands above them already."""
    found: list[str] = []
    for word in words:
        if word and word not in found:
            found.append(word)
    return tuple(found)


def _spread(upper: list[str], lower: list[str]) -> None:
    """Give an upper heading to all columns that it stands above: up to the next one, where both have one below."""
    for index in range(1, len(upper)):
        if not upper[index] and lower[index] and upper[index - 1] and lower[index - 1]:
            upper[index] = upper[index - 1]


def _count_headings(rows: Sequence[GridRow], *, spans: bool) -> int:
    """How many lines are headings: the first, and those below that speak of columns and hold no number."""
    count = 1
    while count < min(HEADING_ROWS, len(rows)):
        above, cells = rows[count - 1][1], rows[count][1]
        filled = [cell for cell in cells if cell.strip()]
        known = sum((said := understand(cell)) is not None and said.column is not None for cell in filled)
        if len(filled) < len(cells) and all(map(is_task, filled)):  # data sets under what is measured on each
            known = len(filled)
        has_gaps = spans or any(not cell.strip() for cell in above) or len(set(above)) < len(above)
        if known < 2 or not has_gaps or any(_is_number(cell) for cell in filled):
            break
        count += 1
    return count


def _is_number(cell: str) -> bool:
    return re.match(r"[\s*_$~≈+\-−]*[0-9]", cell) is not None


def _without_sections(grid: Grid, rows: list[GridRow], *, spans: bool) -> list[GridRow]:
    """Rows with a further column that says what a line above them says of all that follow."""
    width = len(grid.parts)
    named = [(index, name) for index, (_, cells) in enumerate(rows) if (name := _section(cells, width, spans=spans))]
    if not named or len(named) == len(rows):
        return rows
    lines = dict(named)
    grid.parts.append((SECTION,))
    found: list[GridRow] = []
    current = ""
    for index, (where, cells) in enumerate(rows):
        if index in lines:
            current = lines[index]
        else:
            found.append((where, [*cells, *[""] * (width - len(cells)), current] if len(cells) <= width else cells))
    return found


def _section(cells: list[str], width: int, *, spans: bool) -> str:
    """The words of a line that is not a row: one cell across the table, or alone in it and set off."""
    filled = {cell for cell in cells if cell.strip()}
    if len(filled) != 1 or width < 3:
        return ""
    text = filled.pop()
    across = spans and sum(cell == text for cell in cells) >= width - 1
    alone = not spans and cells[0] == text and _BOLD.fullmatch(text.strip()) is not None
    return text.strip().strip("*_:").strip()[:160] if (across or alone) and not _is_number(text) else ""


_FILLED = frozenset({"target", "quant", "device", "engine", "architecture", "label"})


def _fill_down(grid: Grid) -> None:
    """An empty cell in the first columns, where these name what is measured, is the one above it."""
    for index, part in enumerate(grid.parts):
        heading = understand(" ".join(part))
        name = "" if heading is None else heading.name
        if name not in _FILLED and name not in CONDITIONS:
            return
        above = ""
        for _, cells in grid.rows:
            others = [cell for cell in cells[index + 1 :] if cell.strip()]
            named = [cell for cell in others if not _is_number(cell)]
            if cells[index].strip():
                above = cells[index]
            elif above and len(others) > 1 and (name != "label" or named):
                cells[index] = above


def _upright(grid: Grid) -> Grid:
    """A table whose first column holds the headings, on its feet; others as they are."""
    across = sum(_measures(understand(" ".join(part))) for part in grid.parts)
    first = [cells[0] for _, cells in grid.rows if cells]
    down = sum(_measures(understand(cell)) and not is_plain(cell) for cell in first)
    if down < 2 or down <= across or len(grid.parts) < 2 or len(grid.rows) > MAX_COLUMNS:
        return grid
    turned = Grid([("label",), *[(cell,) for cell in first]], grid.place, grid.decimal_comma, faults=grid.faults)
    for index, part in enumerate(grid.parts[1:], start=1):
        name = " ".join(part)
        if name != SECTION and not _STATISTICS.fullmatch(name):
            where = f"{grid.place or 'table'}, column {name or index}"
            turned.rows.append((where, [name, *(cells[index] for _, cells in grid.rows)]))
    return turned


def _measures(heading: Heading | None) -> bool:
    return heading is not None and heading.kind != "text"


def _add(grid: Grid, place: str, cells: list[str], path: Path | None) -> None:
    if len(grid.rows) + len(grid.faults) >= MAX_ROWS:
        raise UsageError(f"{path or 'the table'}: more than {MAX_ROWS:,} rows", fix="split the file")
    missing = len(grid.parts) - len(cells)
    if missing < 0 and not any(cells[missing:]):
        cells, missing = cells[:missing], 0
    if missing:
        grid.faults.append((place, Message("unread.cells", cells=len(cells), headings=len(grid.parts))))
    elif any(cells):
        grid.rows.append((place, list(cells)))


# --- drawn tables -----------------------------------------------------------------------------------------------------

_DASHES = re.compile(r"\s*[-=]{2,}(?: {1,40}[-=]{2,})+\s*")
_BOX_RULE = re.compile(r"\s*[┏┳┓┡╇┩├┼┤└┴┘┌┬┐╞╪╡╔╦╗╠╬╣╚╩╝━─═╒╤╕╘╧╛+\-=]{3,}\s*")
_BOX_CELL = re.compile(r"[│┃║]")
_DRAWN = re.compile(r"[━─═]|\+[-=]{2,}")


_PAIR = re.compile(r"([A-Za-z][\w/%.]{0,30}) ?= *([0-9][0-9.,]{0,20}%?)(?=\s|,|$)")
_MIN_PAIRS = 3
"""Pairs of a line that make it a row."""
_PAIRED = {"draft": "drafted", "acc": "accepted", "accept": "accepted", "rate": "acceptance_rate"}
"""Names that mean something else among such pairs than above a column."""


def read_drawn(lines: Sequence[str], path: Path) -> Iterator[Grid]:
    """The drawn tables of a page. Raises `UsageError` where one is too large."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if "/s" in line and len(pairs := _PAIR.findall(line[:1000])) >= _MIN_PAIRS and _has_rate(pairs):
            rows = _paired(lines, at, [name for name, _ in pairs])
        elif at and _is_drawn(line) and _is_row(lines[at - 1]):
            rows = _boxed(lines, at)
        else:
            rows = _aligned(lines, at)
        if len(rows) > 1:
            yield make_grid(rows, path, place=f"table at {rows[0][0]}")
            at = int(rows[-1][0].removeprefix("line ")) - 1
            while at + 1 < len(lines) and _is_drawn(lines[at + 1]):  # the end of a box
                at += 1
        at += 1


def _has_rate(pairs: list[tuple[str, str]]) -> bool:
    return any(re.fullmatch(r"(?:\w+_)?(?:toks?|tokens|t)/s", name) for name, _ in pairs)


def _paired(lines: Sequence[str], first: int, names: list[str]) -> list[GridRow]:
    """Rows with their headings: the lines with the same names of numbers."""
    rows = [(f"line {first + 1}", ["name", *(_PAIRED.get(name, name) for name in names)])]
    for number in range(first, len(lines)):
        pairs = _PAIR.findall(lines[number][:1000])
        if [name for name, _ in pairs] != names:
            break
        label = _PAIR.split(lines[number][:1000], maxsplit=1)[0].strip(" :|-")
        rows.append((f"line {number + 1}", [label, *(value for _, value in pairs)]))
    return rows


_WIDE, _WORD = re.compile(r"\S+(?: \S+)*"), re.compile(r"\S+")


def _aligned(lines: Sequence[str], first: int) -> list[GridRow]:
    """Rows under a line of known headings that nothing but gaps divide; single spaces where all are known."""
    line = lines[first]
    if len(line) > MAX_COLUMNS or re.search(r"[|,;&\t]", line) or _is_number(line):
        return []
    for cell in (_WIDE, _WORD):
        heads = list(cell.finditer(line))
        known = (understand(head.group()) is not None for head in heads)
        if len(heads) < (2 if cell is _WIDE else _MIN_PAIRS) or not (sum(known) > 1 if cell is _WIDE else all(known)):
            continue
        rows = [(f"line {first + 1}", [head.group() for head in heads])]
        for number in range(first + 1, len(lines)):
            found = list(cell.finditer(lines[number][: 10 * MAX_COLUMNS]))
            if len(found) < 2 or (cell is _WORD and len(found) != len(heads)):
                break
            cells = [one.group() for one in found]
            if not _DASHES.fullmatch(lines[number]):
                rows.append((f"line {number + 1}", cells if len(cells) == len(heads) else _under(found, heads)))
        if len(rows) > 1 and any(map(_is_number, rows[1][1])):
            return rows
    return []


def _under(found: list[re.Match[str]], heads: list[re.Match[str]]) -> list[str]:
    """Cells under the headings nearest to them, as they are where two would share one."""
    nearest = [
        min(range(len(heads)), key=lambda at: max(heads[at].start() - one.end(), one.start() - heads[at].end()))
        for one in found
    ]
    cells = {at: one.group() for at, one in zip(nearest, found, strict=True)}
    return (
        [cells.get(at, "") for at in range(len(heads))] if len(cells) == len(found) else [one.group() for one in found]
    )


def _is_drawn(line: str) -> bool:
    return _BOX_RULE.fullmatch(line) is not None and _DRAWN.search(line) is not None


def _is_row(line: str) -> bool:
    return line.count("|") > 1 or len(_BOX_CELL.findall(line)) > 1


def _boxed(lines: Sequence[str], rule: int) -> list[GridRow]:
    """The rows of the box whose headings stand above line `rule`."""
    rows = [(f"line {rule}", _box_cells(lines[rule - 1]))]
    for number in range(rule + 1, len(lines)):
        if _is_row(lines[number]):
            rows.append((f"line {number + 1}", _box_cells(lines[number])))
        elif not _is_drawn(lines[number]):
            break
    return rows


def _box_cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"[│┃║|]", line.strip().strip("│┃║|"))]


# --- JSON -------------------------------------------------------------------------------------------------------------

_JSON_DEPTH = 12
_PLAIN = re.compile(r"baselines?|draft_?speeds?|no_?(?:spec|sd)|vanilla|plain", re.I)
_SUMS = re.compile(r"metadata|environment|env|config|system|param(?:eter)?s|settings|options", re.I)
"""Objects that describe what lies beside them."""
_SAYS_NOTHING = {"predicted_n"}
"""Numbers that claim nothing by themselves; `pred` is also what graders call an answer."""


def read_json(text: str, path: Path) -> list[Grid]:
    """The tables of a JSON text. Raises `UsageError` for a text that holds no object."""
    whole = parse_json(text)
    if isinstance(whole, (dict, list)):
        tree = _Tree(path)
        tree.walk(cast("object", whole), {}, (), 0)
        if len(tree.tables) > 1 or tree.nested:
            grids = [_from_objects(place, rows, [], path) for place, rows in tree.tables.items()]
            for grid in grids:
                grid.paths = tree.paths
            return grids
    rows: list[tuple[str, dict[str, object]]] = []
    faults: list[tuple[str, Message]] = []
    for place, item in read_objects(text, path):
        if isinstance(item, Message):
            faults.append((place, item))
        else:
            rows.append((place, _with_settings(item, item)))
    return [_from_objects("", rows, faults, path)]


def _from_objects(
    place: str, rows: list[tuple[str, dict[str, object]]], faults: list[tuple[str, Message]], path: Path
) -> Grid:
    headings: dict[str, None] = {}
    for _, item in rows:
        headings.update(dict.fromkeys(str(key) for key in item))
        if len(headings) > MAX_COLUMNS:
            break
    names = list(headings)
    lines = [("", names), *((where, [_cell(item.get(name)) for name in names]) for where, item in rows)]
    grid = make_grid(lines, path, place=place, heading_rows=1, spans=True)
    grid.faults += faults
    return grid


def _cell(value: object) -> str:
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value)


_EAGLE = {"steps", "topk", "num_draft_tokens"}
"""How SGLang names the length and width of its drafts; `num_draft_tokens` counts the root, too."""


@dataclass
class _Tree:
    path: Path
    tables: dict[str, list[tuple[str, dict[str, object]]]] = field(
        default_factory=dict[str, list[tuple[str, dict[str, object]]]]
    )
    """Place -> (place of the row, its object)."""
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Place of the row -> keys and positions around it."""
    nested: bool = False
    """Rows lie deeper than one list in the document."""
    _rows: int = 0

    def walk(self, node: object, inherited: dict[str, object], keys: tuple[str, ...], depth: int) -> None:
        """Every object at or below a node that is a row."""
        if depth > _JSON_DEPTH:
            return
        if isinstance(node, list):
            for number, item in enumerate(cast("list[object]", node), start=1):
                self.walk(item, inherited, (*keys, str(number)), depth + 1)
            return
        if not isinstance(node, dict):
            return
        item = {str(key): value for key, value in cast("dict[object, object]", node).items()}
        flat = {key: value for key, value in item.items() if not isinstance(value, (dict, list))}
        if flat.keys() >= _EAGLE:
            flat |= {"gamma": flat.pop("steps"), "spec_topk": flat.pop("topk")}
            del flat["num_draft_tokens"]
        measured = {_name(key) for key, value in flat.items() if _is_measured(key, value)}
        about = _described({key: value for key, value in item.items() if _SUMS.fullmatch(key)}, 0)
        if measured - _SAYS_NOTHING:
            self._add(_with_settings(item, flat), about | inherited, keys, depth)
        passed = about | inherited | {key: value for key, value in flat.items() if _passes(key)}
        if keys and _PLAIN.fullmatch(keys[-1]) and len(flat) == len(item) and not any(map(understand, flat)):
            for key, value in flat.items():  # {"0.8B": 140.2, ...}: rates by model
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._add({"tps": value}, inherited, (*keys, key), depth + 1)
        for key, value in item.items():
            if isinstance(value, (dict, list)) and not _SUMS.fullmatch(key):
                self.walk(cast("object", value), passed, (*keys, key), depth + 1)

    def _add(self, flat: dict[str, object], inherited: dict[str, object], keys: tuple[str, ...], depth: int) -> None:
        names = {heading.name for key in flat if (heading := understand(key)) is not None}
        row = {key: value for key, value in inherited.items() if _name(key) not in names} | flat
        name = next((key for key in reversed(keys) if not key.isdigit()), "")
        if keys and not keys[-1].isdigit():  # an object among its like: its key is its name
            plain = any(_PLAIN.fullmatch(key) for key in keys[:-1])
            row |= {"target": name, "method": "none"} if plain else {} if "label" in names else {"label": name}
            row = {key: value for key, value in row.items() if not plain or key == "target" or _name(key) != "target"}
            keys, self.nested = keys[:-1], True
        outer = any(_name(key) == "gamma" for key in row.keys() - flat.keys())  # said of a whole list
        self.nested = self.nested or depth > 2 or outer
        self._rows += 1
        if self._rows > MAX_ROWS:
            raise UsageError(f"{self.path}: more than {MAX_ROWS:,} rows", fix="split the file")
        table = ".".join(key for key in keys if not key.isdigit()) or "results"
        rows = self.tables.setdefault(table, [])
        rows.append((f"{table}, row {len(rows) + 1}", row))
        self.paths[rows[-1][0]] = keys[:-1]


def _described(node: object, depth: int, tells: Callable[[str, object], bool] | None = None) -> dict[str, object]:
    """What holds for rows in an object that describes them, what is said further out first."""
    if not isinstance(node, dict) or depth > _JSON_DEPTH:
        return {}
    item = cast("dict[str, object]", node)
    found = {
        key: value
        for key, value in item.items()
        if not isinstance(value, (dict, list)) and (tells or _describes)(key, value)
    }
    for inner in item.values():
        found = _described(inner, depth + 1, tells) | found
    return found


def _with_settings(item: dict[str, object], flat: dict[str, object]) -> dict[str, object]:
    """The values of a row with those that an object in it, `params`, says of it alone."""
    inner = {key: item[key] for key in item if isinstance(item[key], dict) and _SUMS.fullmatch(key)}
    return _described(inner, 0, _passes) | {key: value for key, value in flat.items() if key not in inner}


def _describes(key: str, value: object) -> bool:
    """Whether it may be said of all rows, baselines among them; `decoding: greedy` names none."""
    name = _name(key)
    method = name == "method" and (is_plain(str(value)) or family_by_name(str(value)) != "unknown")
    return method or name in {"target", "engine", "device", "concurrency", "gamma"} or name in CONDITIONS


def _name(key: str) -> str:
    heading = understand(key)
    return "" if heading is None else heading.name


def _is_measured(key: str, value: object) -> bool:
    heading = understand(key)
    if heading is None or heading.of_row or isinstance(value, bool) or value is None:
        return False
    return re.match(r"\s*[~+-]?[0-9]", str(value)) is not None


def _passes(key: str, _: object = None) -> bool:
    """Whether a key of an object holds for the rows below it."""
    heading = understand(key)
    return heading is not None and heading.of_row
