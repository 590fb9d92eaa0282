"""What a column of a table is, and how columns follow from the fields of records.

A new field of a record is a new column, with the field's docstring as its description. Nested records are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from specmeter.messages import Message
from specmeter.record import Estimate, Record
from specmeter.record.base import descriptions

ColumnType = Literal["integer", "number", "boolean", "text", "integers", "numbers", "json"]


@dataclass(frozen=True)
class ExportColumn:
    """One column: how it is called, what it holds, and where that is found."""

    name: str
    type: ColumnType
    """`integers` and `numbers` are lists; `json` is anything nested. Any value may be missing (None)."""
    description: str
    read: Callable[[Any], Any]
    """From the source of a row to the value."""


def columns_of(
    record: type[Record], get: Callable[[Any], Any] = lambda it: it, *, leave: Collection[str] = (), prefix: str = ""
) -> Iterator[ExportColumn]:
    """A column for each field; `get` finds the record in the source of a row, None where there is none."""
    told = descriptions(record)
    for name, field in record.model_fields.items():
        if name not in leave:
            kind = _column_type(field.annotation)
            description = " ".join(told.get(name, "").split())
            yield ExportColumn(prefix + name, kind, description, _reader(get, name, plain=kind != "json"))


def estimated(name: str, description: str, get: Callable[[Any], Estimate | None]) -> Iterator[ExportColumn]:
    """An estimate and the ends of its interval."""

    def end(which: Literal["point", "low", "high"]) -> Callable[[Any], float | None]:
        return lambda source: None if (found := get(source)) is None else getattr(found, which)

    yield ExportColumn(name, "number", description, end("point"))
    yield ExportColumn(f"{name}_low", "number", "Lower end of its interval.", end("low"))
    yield ExportColumn(f"{name}_high", "number", "Upper end.", end("high"))


def _reader(get: Callable[[Any], Any], name: str, *, plain: bool) -> Callable[[Any], Any]:
    def read(source: Any) -> Any:
        record = get(source)
        if record is None:
            return None
        value = getattr(record, name)
        return str(value) if isinstance(value, Message) else value if plain else _data(value)

    return read


def _data(value: Any) -> Any:
    """JSON data for what is not a plain column: nested records, tuples of them, mappings."""
    if isinstance(value, Record):
        return value.model_dump(mode="json")
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, dict):
        return {name: _data(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_data(item) for item in cast("Sequence[Any]", value)]
    return value


def _column_type(annotation: Any) -> ColumnType:
    """By the annotation of a field; None counts as a missing value of any type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not NoneType}
        return kinds.pop() if len(kinds) == 1 else "json"
    if origin is Annotated:
        return _column_type(arguments[0])
    if origin is Literal or annotation in (str, Message):
        return "text"
    if origin is tuple:
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not Ellipsis}
        return "integers" if kinds == {"integer"} else "numbers" if kinds == {"number"} else "json"
    plain: dict[Any, ColumnType] = {bool: "boolean", int: "integer", float: "number"}
    return plain.get(annotation, "json")
