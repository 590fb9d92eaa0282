"""Arguments from Python: what is wrong with one is said as on the command line, with its name and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, cast

from specmeter.errors import UsageError


def need(holds: bool, name: str, value: object, wanted: str) -> None:
    """Raise `UsageError` that names the argument, unless what is needed of it `holds`."""
    if not holds:
        raise UsageError(f"{name} is {value!r:.200}, which is not {wanted}", fix=f"give {wanted}")


def need_type(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    need(isinstance(value, kinds) and not isinstance(value, bool), name, value, wanted)


def several(name: str, values: object, *kinds: type) -> tuple[Any, ...]:
    """The values of a list, each of one of the kinds. Raises `UsageError`, for a single text as well."""
    need(is_list(values), name, values, f"a list, such as [{values!r:.80}]")
    found = tuple(cast("Iterable[object]", values))
    for value in found:
        need_type(name, value, kinds, f"a {' or a '.join(kind.__name__ for kind in kinds)}")
    return found


def is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def rows_of(source: Any) -> list[Mapping[str, Any]]:
    """Rows of a data frame (pandas, polars) or of an iterable of mappings. Raises `UsageError` for anything else."""
    if hasattr(source, "to_dicts"):
        source = source.to_dicts()
    elif hasattr(source, "to_dict") and hasattr(source, "columns"):
        source = source.to_dict("records")
    wanted = "a file, a data frame, or rows as dicts"
    need(is_list(source), "source", source, wanted)
    rows = list(cast("Iterable[object]", source))
    need(bool(rows), "source", source, "a table with rows")
    for row in rows:
        need_type("source", row, (Mapping,), wanted)
    return cast("list[Mapping[str, Any]]", rows)


def path_of(name: str, value: object) -> str:
    need(isinstance(value, str | Path) and str(value) != "", name, value, "a path or a name")
    return str(value)
