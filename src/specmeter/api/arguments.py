"""Arguments of the Python interface: errors as on the command line, with the argument's name and a fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from specmeter.errors import UsageError

if TYPE_CHECKING:
    pass


def need(holds: bool, name: str, value: object, wanted: str) -> None:
    """Raise `UsageError` that names the argument, unless what is needed of it `holds`."""
    if not holds:
        raise UsageError(f"{name} is {value!r:.200}, not {wanted}", fix=f"give {wanted}")


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


def path_of(name: str, value: object) -> str:
    need(isinstance(value, str | Path) and str(value) != "", name, value, "a path or a name")
    return str(value)
