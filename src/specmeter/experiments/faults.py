"""What is wrong with the keys of a file, in the file's own words: where, what belongs there, which keys there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from specmeter.record.base import fault_text

MAX_ERROR_LINES = 10
"""Lines of one message."""
_EACH = "N"
"""Stands for a number or a name in the place of a key that belongs into every entry."""


def problems(error: ValidationError, data: object, *under: str, kind: type[BaseModel]) -> list[str]:
    """A line for each place of `data` that is wrong. Of a list or a mapping whose entries are wrong, only those are
    told."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        place = _place(data, (*under, *item["loc"]), missing=item["type"] == "missing")
        found.setdefault(place, []).append(item)
    lines: list[str] = []
    for place, items in found.items():
        if any(len(other) > len(place) and other[: len(place)] == place for other in found):
            continue
        where = ".".join(place)
        if items[0]["type"] == "extra_forbidden":
            lines.append(f"{where}: {_unknown(place, data, kind)}")
        elif items[0]["type"] == "union_tag_not_found":
            fixed = chain.from_iterable(_fixed(it).values() for it in _records_at(kind, place, data))
            lines.append(
                f"{where}: {fault_text(items)}; one of {', '.join(get_args(it.annotation)[0] for it in fixed)}"
            )
        elif items[0]["type"] == "value_error" and not place:
            lines.append(fault_text(items))
        else:
            lines.append(f"{where or 'file'}: {fault_text(items)}")
    return lines


def shown(lines: Sequence[str]) -> str:
    """The lines below each other, no more than can be read."""
    more = [f"... and {len(lines) - MAX_ERROR_LINES} more"] if len(lines) > MAX_ERROR_LINES else []
    return "\n".join(f"  - {line}" for line in (*lines[:MAX_ERROR_LINES], *more))


def _place(data: object, location: Sequence[object], *, missing: bool) -> tuple[str, ...]:
    """Where in the file: `location` without pydantic's names for the alternatives of a type."""
    place: list[str] = []
    node = data
    for number, part in enumerate(location):
        if isinstance(node, Mapping) and part in node:
            node = cast("Mapping[object, object]", node)[part]
        elif isinstance(node, list | tuple) and isinstance(part, int) and part < len(cast("list[object]", node)):
            node = cast("list[object]", node)[part]
        elif not (missing and number == len(location) - 1):
            continue
        place.append(str(part))
    return tuple(place)


def _unknown(place: tuple[str, ...], data: object, kind: type[BaseModel]) -> str:
    """What to write instead of a key that does not belong there: one that does, or where it would belong."""
    key = place[-1]
    here = list(dict.fromkeys(name for it in _records_at(kind, place[:-1], data) for name in it.model_fields))
    elsewhere = [".".join(path) for path in _places_of(kind, key)]
    if elsewhere and not difflib.get_close_matches(key, here, n=1, cutoff=0.8):
        hint = f"did you mean {' or '.join(sorted(elsewhere, key=len)[:2])}?"
    else:
        near = difflib.get_close_matches(key, here, n=1)
        hint = f"did you mean {near[0]!r}?" if near else ""
    known = f"keys here: {', '.join(here)}"
    return f"unknown key; {hint} ({known})" if hint else f"unknown key; {known}"


def _records_at(kind: type[BaseModel], place: Sequence[str], data: object) -> list[type[BaseModel]]:
    """The records that may stand at a place of the file."""
    annotations: list[Any] = [kind]
    node = data
    for part in place:
        records, entries = _within(annotations)
        annotations = [it.model_fields[part].annotation for it in _fitting(records, node) if part in it.model_fields]
        annotations += entries
        if isinstance(node, Mapping):
            node = cast("Mapping[object, object]", node).get(part)
        elif part.isdecimal():
            node = cast("list[object]", node)[int(part)]
    return _fitting(_within(annotations)[0], node)


def _fitting(records: list[type[BaseModel]], node: object) -> list[type[BaseModel]]:
    """Of records that a field with a single value tells apart, those that the data can be."""
    if not isinstance(node, Mapping):
        return records
    given = cast("Mapping[object, object]", node)

    def fits(record: type[BaseModel]) -> bool:
        return all(given.get(name) in get_args(field.annotation) for name, field in _fixed(record).items())

    return [it for it in records if fits(it)] or records


def _fixed(record: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields with a single value, by which records are distinguished."""
    return {
        name: field
        for name, field in record.model_fields.items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }


def _within(annotations: Sequence[Any]) -> tuple[list[type[BaseModel]], list[Any]]:
    """(records among these types and their alternatives, types of entries of their lists and mappings)."""
    records: list[type[BaseModel]] = []
    entries: list[Any] = []
    queue = list(annotations)
    while queue:
        part = queue.pop(0)
        if isinstance(part, type) and issubclass(part, BaseModel):
            records.append(part)
        elif get_origin(part) is dict:
            entries.append(get_args(part)[1])
        elif get_origin(part) is tuple:
            entries += get_args(part)
        else:
            queue += get_args(part)
    return records, entries


def _places_of(
    kind: type[BaseModel], key: str, path: tuple[str, ...] = (), around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Every place of a file where a key is known, `N` for any number or name; of records that hold records of their own
    kind (`around`), the outermost."""
    for name, field in kind.model_fields.items():
        records, entries = _within([field.annotation])
        inner = _within(entries)[0]
        for record, deeper in (*((it, (name,)) for it in records), *((it, (name, _EACH)) for it in inner)):
            if record in (kind, *around):
                continue
            if key in record.model_fields:
                yield (*path, *deeper, key)
            yield from _places_of(record, key, (*path, *deeper), (*around, kind))
