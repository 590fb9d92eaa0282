"""JSON as tables: a list of objects, JSON Lines, or results kept in a tree (`benchmark_results.json`).

In a tree, objects with a number that a column knows are rows. What the objects around them say of the model, the
machine or the draft length holds for them too; the key of an object among its like (`{"9B_Q8": {...}, ...}`) names it.
Rates under a key such as `baselines` or `draft_speeds` are those of models by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from specmeter.audit.read.columns import CONDITIONS, understand
from specmeter.audit.read.document import parse_json, read_objects
from specmeter.audit.read.grid import MAX_COLUMNS, MAX_ROWS, Grid, make_grid
from specmeter.errors import UsageError

_DEPTH = 12
_PLAIN = re.compile(r"baselines?|draft_?speeds?|no_?(?:spec|sd)|vanilla|plain", re.I)
_SUMS = re.compile(r"metadata|environment|config|system", re.I)


def read(text: str, path: Path) -> list[Grid]:
    """The tables of a JSON text. Raises `UsageError` for a text that holds no object."""
    whole = parse_json(text)
    if isinstance(whole, dict):
        tree = _Tree(path)
        tree.walk(cast("dict[str, object]", whole), {}, (), 0)
        if len(tree.tables) > 1 or tree.nested:
            return [_from_objects(place, rows, [], path) for place, rows in tree.tables.items()]
    rows: list[tuple[str, dict[str, object]]] = []
    faults: list[tuple[str, str]] = []
    for place, item in read_objects(text, path):
        if isinstance(item, str):
            faults.append((place, item))
        else:
            rows.append((place, item))
    return [_from_objects("", rows, faults, path)]


def _from_objects(
    place: str, rows: list[tuple[str, dict[str, object]]], faults: list[tuple[str, str]], path: Path
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


@dataclass
class _Tree:
    path: Path
    tables: dict[str, list[tuple[str, dict[str, object]]]] = field(
        default_factory=dict[str, list[tuple[str, dict[str, object]]]]
    )
    """Place -> (place of the row, its object)."""
    nested: bool = False
    """Rows lie deeper than one list in the document."""
    _rows: int = 0

    def walk(self, node: object, inherited: dict[str, object], keys: tuple[str, ...], depth: int) -> None:
        """Every object at or below a node that is a row."""
        if depth > _DEPTH:
            return
        if isinstance(node, list):
            for number, item in enumerate(cast("list[object]", node), start=1):
                self.walk(item, inherited, (*keys, str(number)), depth + 1)
            return
        if not isinstance(node, dict):
            return
        item = {str(key): value for key, value in cast("dict[object, object]", node).items()}
        flat = {key: value for key, value in item.items() if not isinstance(value, (dict, list))}
        if any(_is_measured(key, value) for key, value in flat.items()):
            self._add(flat, inherited, keys, depth)
        passed = inherited | {key: value for key, value in flat.items() if _passes(key)}
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
        self.nested = self.nested or depth > 2
        self._rows += 1
        if self._rows > MAX_ROWS:
            raise UsageError(f"{self.path}: more than {MAX_ROWS:,} rows", fix="split the file")
        table = ".".join(key for key in keys if not key.isdigit()) or "results"
        rows = self.tables.setdefault(table, [])
        rows.append((f"{table}, row {len(rows) + 1}", row))


def _name(key: str) -> str:
    heading = understand(key)
    return "" if heading is None else heading.name


def _is_measured(key: str, value: object) -> bool:
    heading = understand(key)
    if heading is None or heading.column is None or isinstance(value, bool) or value is None:
        return False
    return not heading.column.of_row and re.match(r"\s*[~+-]?[0-9]", str(value)) is not None


def _passes(key: str) -> bool:
    """Whether a key of an object holds for the rows below it."""
    heading = understand(key)
    if heading is None:
        return False
    return heading.name in CONDITIONS or (heading.column is not None and heading.column.of_row)


def objects_of_columns(table: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Rows of a table that is kept column by column, as pandas writes it: `{"tps": {"0": 41.2, "1": 60.3}, ...}`."""
    if not isinstance(table, dict):
        return
    columns = {
        str(name): cast("dict[object, object]", cells)
        for name, cells in cast("dict[object, object]", table).items()
        if isinstance(cells, dict)
    }
    keys = dict.fromkeys(str(key) for cells in columns.values() for key in list(cells)[:MAX_ROWS])
    for key in list(keys)[:MAX_ROWS]:
        yield key, {name: cells.get(key) for name, cells in columns.items()}
