"""JSON -> tables: lists of objects, JSON Lines, and results that are kept in a tree.

Objects with numbers are rows. An object within a row adds columns (`timing decode_s`), unless it has siblings like
itself: then each is a row, named by its key (`{"9B_Q8": {...}, ...}`). Words of the objects around a row, and numbers
of those that describe it (`config`), are columns of it, and so is each key or position around it that varies. Rates
under keys such as `baselines` and `draft_speeds` are those of models by themselves: columns of rows that name these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

from specmeter.audit.read.cells import clean, is_number
from specmeter.audit.read.document import parse_json, read_objects, without_repeats
from specmeter.audit.read.grid import MAX_COLUMNS, MAX_ROWS, Table
from specmeter.errors import UsageError
from specmeter.messages import Message

_DEPTH = 12
_DESCRIBES = re.compile(
    r"metadata|meta|hardware|machine|environment|env|\w*config\w*|system|\w*param(?:eter)?s|\w*settings|\w*options"
    r"|\w*args|factors|variant|speculative_config",
    re.I,
)
"""Keys of objects that describe what lies next to them."""
_SETTING = re.compile(
    r"gamma|k|n|tp|bs|\w*(?:batch|concurren|n_max|draft_len|num_spec|num_draft|draft_tokens|temperature|steps|topk"
    r"|context|threads|users|depth)\w*",
    re.I,
)
"""Keys of numbers that hold for the rows below."""
_SPEEDS = re.compile(r"\w*(?:baselines?|speeds?|tps|tok_s|tok/s|tokens_per_second|throughput|speed_?ups?)", re.I)
"""Keys of an object whose numbers are all of that kind, each under the name of what was measured."""
_NAME = re.compile(r"\d[A-Za-z_.]|[A-Z]")
"""In a key that names a model or the like, and no quantity."""
_LEVELS = re.compile(r"(model|method|config|task|dataset|prompt|arm|mode|engine|device|gpu|concurrency|target)s?", re.I)
_ALONE = re.compile(r"baselines?(?:_\w+)?|no_?(?:spec|sd)|vanilla|plain|draft_?(?:speed|rate|baseline)s?", re.I)
"""Keys of objects about models by themselves."""
_RATE = re.compile(r"(?!pp_|prompt|prefill)\w*(?:tps|tok_s|tok/s|tokens_per_s(?:ec|econd)?|throughput)", re.I)
_MODELS = {"baseline_rate": ("target", "target_model", "model"), "draft_rate": ("draft", "draft_model", "drafter")}
"""Rate of a model by itself -> columns that name the model."""
_LONGEST_LIST = 32
_WORDS = 160
"""Characters of a text in a row."""

Item = Mapping[str, object]
Cells = dict[str, str]


def read_json(text: str, path: Path) -> list[Table]:
    """The tables of a JSON text. Raises `UsageError` for one that is broken, saying where."""
    whole = parse_json(text)
    if not isinstance(whole, (dict, list, Message)):
        raise UsageError(f"{path}: JSON, but no object or list of objects", fix='write [{"speedup": 1.2, ...}, ...]')
    items = read_objects(text, path) if isinstance(whole, Message) else [("", cast("object", whole))]
    faults: list[tuple[str, Message]] = []
    rows: list[_Row] = []
    for place, item in items:
        if isinstance(item, Message):
            faults.append((place, item))
        else:
            rows += _rows(item, {}, (), place)
    found = list(_tables(rows))
    if found:
        found[0].faults += faults
    return found


_OPENS = re.compile(r"^[^\n{\['\-]{0,40}?(?=\{\s*\"|\[\s*\{)", re.M)
_MOST_TRIES = 200


def pasted_json(text: str) -> tuple[list[Table], str]:
    """The tables of JSON objects in a text, each on lines of its own, and the text without them."""
    decoder = json.JSONDecoder(object_pairs_hook=without_repeats)
    found: list[Table] = []
    at = tries = 0
    while tries < _MOST_TRIES and (opens := _OPENS.search(text, at)) is not None:
        tries += 1
        begin = opens.end()
        try:
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            at = text.find("\n", begin) + 1 or len(text)
            continue
        if tables := list(_tables(_rows(value, {}, (), f"line {text.count(chr(10), 0, begin) + 1}"))):
            found += tables
            text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:at]) + text[at:]
    return found, text


class _Row(NamedTuple):
    keys: tuple[str, ...]
    cells: Cells
    around: Cells
    place: str


def _rows(node: object, around: Cells, keys: tuple[str, ...], place: str) -> Iterator[_Row]:
    """Every object at or below a node that is a row; `around`: what holds for it from outside."""
    if len(keys) > _DEPTH:
        return
    if isinstance(node, list):
        for number, it in enumerate(cast("list[object]", node), start=1):
            yield from _rows(it, around, (*keys, f"#{number}"), place)
    if not isinstance(node, dict):
        return
    item = cast("dict[str, object]", node)
    own = _own(item)
    if keys and _is_named(keys[-1], item):
        heading = "tps" if _ALONE.fullmatch(keys[-1]) else keys[-1]
        yield from (_Row((*keys, key), {heading: cell}, around, place) for key, cell in own.items())
        return
    inner = {key: cast("Item", value) for key, value in item.items() if isinstance(value, dict)}
    told = {key: cell for name in inner if _DESCRIBES.fullmatch(name) for key, cell in _leaves(inner[name]).items()}
    parts, below = _divided({key: it for key, it in inner.items() if not _DESCRIBES.fullmatch(key)}, own, keys)
    is_leaf = len(own) == len(item) and any(map(is_number, own.values()))
    if is_leaf or any(_is_measure(key, cell) for key, cell in (own | parts).items()):
        yield _Row(keys, told | own | parts, around, place)
    passed = around | told | {key: cell for key, cell in own.items() if not _is_measure(key, cell)}
    for key in [*below, *(key for key, value in item.items() if isinstance(value, list))]:
        yield from _rows(item[key], passed, (*keys, key), place)


def _divided(inner: dict[str, Item], own: Cells, keys: tuple[str, ...]) -> tuple[Cells, list[str]]:
    """(columns that inner objects add, keys of those that have rows of their own)."""
    numeric = [{key for key, value in it.items() if _is_number(value)} for it in inner.values()]
    pairs = [2 * len(one & other) >= min(len(one), len(other)) > 0 for one, other in pairwise(numeric)]
    alike = {name for name, *near in zip(inner, [False, *pairs], [*pairs, False], strict=False) if any(near)}
    in_list = bool(keys) and keys[-1].startswith("#")
    if len(alike) <= 3 and (in_list or any(_is_measure(key, cell) for key, cell in own.items())):
        alike = set[str]()
    parts: Cells = {}
    below: list[str] = []
    for name, it in inner.items():
        is_deep = any(isinstance(value, (dict, list)) for value in it.values()) or _is_named(name, it)
        if name in alike or is_deep or not (own or in_list):
            below.append(name)
        else:
            parts |= {f"{name} {key}": cell for key, cell in _own(it).items()}
    return parts, below


def _tables(rows: Iterable[_Row]) -> Iterator[Table]:
    """Rows at like places together, with a column for each key or position around them that varies."""
    groups: list[tuple[object, list[_Row]]] = []
    for row in _with_rates_alone(list(rows)):
        shape = ([key.startswith("#") for key in row.keys], bool(row.place))
        for other, alike in groups[-20:]:
            mine, its = row.cells.keys(), alike[0].cells.keys()
            if other == shape and 2 * len(mine & its) >= min(len(mine), len(its)):
                alike.append(row)
                break
        else:
            groups.append((shape, [row]))
    for _, alike in groups:
        yield _table(alike, alone=len(groups) == 1)


def _with_rates_alone(rows: list[_Row]) -> Iterator[_Row]:
    """The rows, each with the nearest rates of its models by themselves."""
    apart = [next((at for at, key in enumerate(row.keys[:-1]) if _ALONE.fullmatch(key)), None) for row in rows]
    models = [_models(row.around | row.cells) if at is None else {} for row, at in zip(rows, apart, strict=True)]
    named = {(column, model) for its in models for column, model in its.items()}
    rates: dict[tuple[str, tuple[str, ...], str, str], set[str]] = {}
    for row, at, its in zip(rows, apart, models, strict=True):
        found = [cell for key, cell in row.cells.items() if _RATE.fullmatch(key)]
        if at is not None and len(found) == 1:
            column = "draft_rate" if row.keys[at][:1] in "dD" else "baseline_rate"
            for name in {row.keys[-1].lower(), *_models(row.cells).values()}:
                if (column, name) in named:
                    rates.setdefault((row.place, row.keys[:at], column, name), set()).update(found)
                    its["method"] = "none"
    for row, its in zip(rows, models, strict=True):
        given = {key: cell for key, cell in its.items() if key == "method"}
        for column, model in its.items():
            near = (rates.get((row.place, row.keys[:end], column, model)) for end in range(len(row.keys), -1, -1))
            if len(found := next(filter(None, near), set[str]())) == 1:
                given[column] = min(found)
        yield row._replace(cells=given | row.cells)


def _models(words: Cells) -> Cells:
    """Of a row with drafts: rate that it lacks -> the model that it names."""
    if any(words.get(key, "?").lower() in {"", "none", "no", "off"} for key in _MODELS["draft_rate"]):
        return {}
    own = {column for column in _MODELS for key in words if column[:5] in key.lower() and _RATE.fullmatch(key)}
    found = {column: next(filter(None, map(words.get, keys)), "").lower() for column, keys in _MODELS.items()}
    return {column: model for column, model in found.items() if model and column not in own}


def _table(rows: list[_Row], *, alone: bool) -> Table:
    depth = len(rows[0].keys)
    varying = [level for level in range(depth) if len({row.keys[level] for row in rows}) > 1]
    name = ".".join(key for level, key in enumerate(rows[0].keys) if level not in varying and key[:1] != "#")
    headings: dict[str, None] = {}
    lines: list[Cells] = []
    for row in rows:
        line: Cells = {}
        for level in varying:
            key, last = row.keys[level], level == depth - 1
            if not (key.startswith("#") and last):
                above = _LEVELS.fullmatch(row.keys[level - 1]) if level else None
                title = above[1] if above and not key.startswith("#") else "label" if last else "section"
                line[title] = " ".join(filter(None, (line.get(title), clean(key.lstrip("#")))))
        line |= {key: cell for key, cell in row.around.items() if key not in row.cells} | row.cells
        lines.append(line)
        headings.update(dict.fromkeys(line))
        if len(headings) > MAX_COLUMNS or len(lines) > MAX_ROWS:  # more than a grid may have
            break
    prefix = "" if alone else f"{name or 'results'}, "
    body = [
        (row.place or f"{prefix}row {number}", [line.get(heading, "") for heading in headings])
        for number, (row, line) in enumerate(zip(rows, lines, strict=False), start=1)
    ]
    head = [re.sub(r"^\w+:(?=\w)", "", heading) for heading in headings]
    return Table([("", head), *body], 1, "json", name, spans=True)


def _own(item: Item) -> Cells:
    """The values of an object; of a short list of numbers about acceptance, a column for each position."""
    found: Cells = {}
    for key, value in item.items():
        if isinstance(value, list):
            values = cast("list[object]", value)
            if len(values) <= _LONGEST_LIST and all(map(_is_number, values)) and re.search(r"pos|accept", key, re.I):
                found |= {f"{key} {number}": str(one) for number, one in enumerate(values, start=1)}
        elif not isinstance(value, dict):
            found[key] = "" if value is None else clean(str(value), _WORDS)
    return found


def _leaves(item: Item, depth: int = 0) -> Cells:
    """The values of an object that describes a row and of objects in it; what is said further out comes first."""
    found = _own(item)
    for value in item.values() if depth < _DEPTH else ():
        if isinstance(value, dict):
            found = _leaves(cast("Item", value), depth + 1) | found
    return found


def _is_named(key: str, item: Item) -> bool:
    """Whether an object holds numbers of one kind, each under the name of what was measured."""
    return bool(_SPEEDS.fullmatch(key) and item and all(_NAME.search(it) and _is_number(item[it]) for it in item))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_measure(key: str, cell: str) -> bool:
    """Whether a value is one of the row itself, and not of what lies below it."""
    return is_number(cell) and not _SETTING.fullmatch(key)
