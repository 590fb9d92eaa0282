"""A run's requests as columns, for many of them: measures as arrays, every other value numbered."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from specmeter.store.rows import RequestRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMES = (
    "invocation",
    "block",
    "arm_id",
    "prompt_id",
    "kind",
    "status",
    "stop_reason",
    "started_at",
    "prompt_n",
    "prompt_ms",
    "predicted_n",
    "predicted_ms",
    "draft_n",
    "draft_n_accepted",
    "target_forwards",
)
"""Columns that summaries need."""
_AT_ONCE = 10_000
_KINDS = {name: str if name == "status" else kind for name, kind in get_type_hints(RequestRow).items()}
TIMES = frozenset(name for name, kind in _KINDS.items() if kind in (float, float | None))
"""Columns of a row that hardly ever have one value twice."""


class _Numbers(dict[Any, int]):
    """Value -> its number, in the order of first appearance."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


@dataclass(frozen=True)
class RequestColumns:
    """Requests in the order of measurement."""

    codes: Mapping[str, NDArray[np.unsignedinteger[Any]]]
    """Name of a column -> a number for each request."""
    values: Mapping[str, list[Any]]
    """Name of a column -> value of each number, in the order of first appearance."""
    numbers: Mapping[str, NDArray[np.float64]]
    """Name of a column of times or other measures -> its numbers, NaN for None."""

    def __len__(self) -> int:
        return len(next(iter(self.codes.values())))

    def where(self, name: str, *wanted: object) -> NDArray[np.bool_]:
        """Requests with one of these values."""
        values = self.values[name]
        return np.array([it in wanted for it in values], dtype=bool)[self.codes[name]]

    def mapped(self, name: str, numbers: list[int]) -> NDArray[np.int64]:
        """A column with another number for each of its values."""
        return np.array(numbers, dtype=np.int64)[self.codes[name]]

    def of(self, names: tuple[str, ...], places: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        """Values of some requests, not all of them in memory at a time."""
        for at in range(0, len(places), _AT_ONCE):
            some = places[at : at + _AT_ONCE]
            yield from zip(*(self._listed(name, some) for name in names), strict=True)

    def _listed(self, name: str, places: NDArray[np.int64]) -> list[Any]:
        if name in self.numbers:
            found: list[float] = self.numbers[name][places].tolist()
            return [None if it != it else it for it in found]
        return list(map(self.values[name].__getitem__, self.codes[name][places].tolist()))

    def number(self, name: str) -> NDArray[np.float64]:
        """A column of numbers, NaN for None."""
        if name in self.numbers:
            return self.numbers[name]
        return np.array(self.values[name], dtype=np.float64)[self.codes[name]]

    def whole(self, name: str) -> NDArray[np.int64]:
        """A column of counts, 0 for None."""
        return self.mapped(name, [it or 0 for it in self.values[name]])

    def combined(self, names: tuple[str, ...], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each combination of values; other places of the same columns have the same ones."""
        code = np.zeros(len(places), dtype=np.int64)
        for name in names:
            code = code * max(1, len(self.values[name])) + self.codes[name][places]
        return code

    def distinct(
        self, names: tuple[str, ...], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(first place of each combination of values, in order; which of them each request has)."""
        code = self.combined(names, places)
        found = np.sort(code)  # `np.unique` hashes, and takes ten times as long
        found = found[np.diff(found, prepend=found[:1] - 1) != 0]
        number = np.searchsorted(found, code)
        first = np.zeros(len(found), dtype=np.int64)
        first[number[::-1]] = np.arange(len(places))[::-1]
        order = np.argsort(first)
        rank = np.zeros(len(found), dtype=np.int64)
        rank[order] = np.arange(len(found))
        return places[first[order]], rank[number]


def columns_of(
    rows: Iterable[tuple[Any, ...]],
    names: tuple[str, ...] = RequestRow._fields,
    kept: tuple[str, ...] = NAMES,
    measures: Collection[str] = TIMES,
) -> RequestColumns:
    """Of rows with the columns `names`, of which `measures` hardly repeat. Raises `ValueError` for a value of another
    type, as a flipped bit makes one, and for an infinite time."""
    rows = iter(rows)
    numbered = {name: _Numbers() for name in kept if name not in measures}
    # Arrays that grow in place: pieces that are joined at the end leave as much memory behind as they took.
    read: dict[str, array[Any]] = {name: array("d" if name in measures else "B") for name in kept}
    while some := list(islice(rows, _AT_ONCE)):
        columns = dict(zip(names, zip(*some, strict=True), strict=True))
        for name in kept:
            if name in _KINDS:
                _refuse_odd(name, columns[name])
            if name in measures:
                read[name].frombytes(np.array(columns[name], dtype=np.float64).tobytes())
                continue
            known = numbered[name]
            codes = np.fromiter(map(known.__getitem__, columns[name]), np.int64, len(some))
            if (size := np.min_scalar_type(len(known)).char) != read[name].typecode:
                read[name] = array(size, read[name])
            read[name].frombytes(codes.astype(size).tobytes())
    return RequestColumns(
        codes={name: np.asarray(read[name]) for name in numbered},
        values={name: list(known) for name, known in numbered.items()},
        numbers={name: np.asarray(read[name]) for name in kept if name in measures},
    )


def _refuse_odd(name: str, column: tuple[Any, ...]) -> None:
    for kind in set(map(type, column)):
        value = next(it for it in column if type(it) is kind)
        if not isinstance(value, _KINDS[name]):
            raise ValueError(f"{name} is {value!r:.40}")  # noqa: TRY004
    if name in TIMES and (math.inf in column or -math.inf in column):
        raise ValueError("a time is infinite")
