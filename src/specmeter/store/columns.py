"""A run's requests as columns, for summaries of many: numbers as arrays, everything else numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from specmeter.store.rows import RequestRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERED = ("invocation", "block", "arm_id", "prompt_id", "kind", "status", "stop_reason")
_NUMBERS = (
    "started_at",
    "prompt_n",
    "prompt_ms",
    "predicted_n",
    "predicted_ms",
    "draft_n",
    "draft_n_accepted",
    "target_forwards",
)
NAMES = (*_NUMBERED, *_NUMBERS)
"""Columns that are kept."""
_AT_ONCE = 10_000
_KINDS = {name: str if name == "status" else kind for name, kind in get_type_hints(RequestRow).items()}


class _Numbers(dict[Any, int]):
    """Value -> its number, in the order of first appearance."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


@dataclass(frozen=True)
class RequestColumns:
    """Requests in the order of measurement."""

    codes: Mapping[str, NDArray[np.int32]]
    """Name of a column -> a number for each request."""
    values: Mapping[str, list[Any]]
    """Name of a column -> value of each number, in the order of first appearance."""
    numbers: Mapping[str, NDArray[np.float64]]
    """Name of a column -> its numbers, NaN for None."""

    def where(self, name: str, *wanted: object) -> NDArray[np.bool_]:
        """Requests with one of these values."""
        values = self.values[name]
        return np.array([it in wanted for it in values], dtype=bool)[self.codes[name]]

    def mapped(self, name: str, numbers: list[int]) -> NDArray[np.int64]:
        """A column with another number for each of its values."""
        return np.array(numbers, dtype=np.int64)[self.codes[name]]

    def of(self, names: tuple[str, ...], places: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        """Values of some requests."""
        columns = ([self.values[name][it] for it in self.codes[name][places].tolist()] for name in names)
        return zip(*columns, strict=True)

    def whole(self, name: str) -> NDArray[np.int64]:
        """A column of counts, 0 for None."""
        return np.nan_to_num(self.numbers[name]).astype(np.int64)


def columns_of(rows: Iterable[tuple[Any, ...]], names: tuple[str, ...] = RequestRow._fields) -> RequestColumns:
    """Of rows with these columns. Raises `ValueError` for a value of another type, as a flipped bit makes one, and for
    an infinite one."""
    rows = iter(rows)
    numbered = {name: _Numbers() for name in _NUMBERED}
    codes: dict[str, list[NDArray[np.int32]]] = {name: [np.zeros(0, np.int32)] for name in _NUMBERED}
    numbers: dict[str, list[NDArray[np.float64]]] = {name: [np.zeros(0)] for name in _NUMBERS}
    while some := list(islice(rows, _AT_ONCE)):
        columns = dict(zip(names, zip(*some, strict=True), strict=True))
        for name in NAMES:
            _refuse_odd(name, columns[name])
        for name, known in numbered.items():
            codes[name].append(np.fromiter(map(known.__getitem__, columns[name]), np.int32, len(some)))
        for name, parts in numbers.items():
            parts.append(np.array(columns[name], dtype=np.float64))
            if np.isinf(parts[-1]).any():
                raise ValueError("a time is infinite")
    return RequestColumns(
        codes={name: np.concatenate(codes.pop(name)) for name in _NUMBERED},
        values={name: list(known) for name, known in numbered.items()},
        numbers={name: np.concatenate(numbers.pop(name)) for name in _NUMBERS},
    )


def _refuse_odd(name: str, column: tuple[Any, ...]) -> None:
    for kind in set(map(type, column)):
        value = next(it for it in column if type(it) is kind)
        if not isinstance(value, _KINDS[name]):
            raise ValueError(f"{name} is {value!r:.40}")  # noqa: TRY004
