"""A run's requests as checks see them, kept as columns: an object for each would fill the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_type_hints, overload

import numpy as np

from specmeter.store import RequestRow
from specmeter.store.columns import TIMES, RequestColumns, columns_of
from specmeter.validity.checks.request_data import Arrivals, RequestData, Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints

    Bools = NDArray[np.bool_]

_OWN = tuple(it.name for it in fields(RequestData) if it.name not in ("row", "steps", "arrivals"))
_STEPS = tuple(f"steps.{name}" for name in Steps._fields)
_ARRIVALS = tuple(f"arrivals.{name}" for name in Arrivals._fields)
_NAMES = (*RequestRow._fields, *_OWN, *_STEPS, *_ARRIVALS)
_MEASURES = {
    *TIMES,
    *(name for name, kind in get_type_hints(RequestData).items() if kind in (float, float | None)),
    *(name for name in (*_STEPS, *_ARRIVALS) if name.endswith("_ms")),
}
_AT_STEPS, _AT_ARRIVALS = _NAMES.index(_STEPS[0]), _NAMES.index(_ARRIVALS[0])
_NO_STEPS, _NO_ARRIVALS = (None,) * len(_STEPS), (None,) * len(_ARRIVALS)
_own = attrgetter(*_OWN)


def _flat(it: RequestData) -> tuple[Any, ...]:
    return (*it.row, *_own(it), *(it.steps or _NO_STEPS), *(it.arrivals or _NO_ARRIVALS))


def _whole(values: tuple[Any, ...]) -> RequestData:
    row = len(RequestRow._fields)
    steps, arrivals = values[_AT_STEPS:_AT_ARRIVALS], values[_AT_ARRIVALS:]
    return RequestData(
        RequestRow._make(values[:row]),
        *values[row:_AT_STEPS],
        steps=None if steps[0] is None else Steps._make(steps),
        arrivals=None if arrivals[0] is None else Arrivals._make(arrivals),
    )


@dataclass(frozen=True, eq=False)
class Requests(Sequence[RequestData]):
    """Some requests of a run, in the order of measurement. Columns have the names of the fields of a `RequestRow`, of a
    `RequestData`, and of its parts (`steps.number`)."""

    columns: RequestColumns
    """Of all requests of the run."""
    places: Ints
    """Where these are among them."""

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[RequestData]:
        return map(_whole, self.values(*_NAMES))

    @overload
    def __getitem__(self, place: int) -> RequestData: ...
    @overload
    def __getitem__(self, place: slice) -> Requests: ...
    def __getitem__(self, place: int | slice) -> RequestData | Requests:
        if isinstance(place, slice):
            return Requests(self.columns, self.places[place])
        return next(map(_whole, self.columns.of(_NAMES, self.places[[place]])))

    def at(self, chosen: Ints | Bools | Sequence[int]) -> Requests:
        """Some of them, by their places here or by whether they are."""
        return Requests(self.columns, self.places[np.asarray(chosen, dtype=None if len(chosen) else np.int64)])

    def values(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """These fields of each; an object of all of its fields takes ten times as long."""
        return self.columns.of(names, self.places)

    def where(self, name: str, *wanted: object) -> Bools:
        """Whether each has one of these values."""
        return self.columns.where(name, *wanted)[self.places]

    def number(self, name: str) -> Floats:
        """A column of numbers, NaN for None."""
        return self.columns.number(name)[self.places]

    def whole(self, name: str) -> Ints:
        """A column of counts, 0 for None."""
        return self.columns.whole(name)[self.places]

    def total(self, name: str) -> int:
        """Sum of a column of counts."""
        values = self.columns.values[name]
        times = np.bincount(self.columns.codes[name][self.places], minlength=len(values))
        return sum(count * (value or 0) for value, count in zip(values, times.tolist(), strict=True))

    def distinct(self, *names: str) -> tuple[list[tuple[Any, ...]], Ints]:
        """(combinations of values in the order of first appearance, which of them each has)."""
        first, which = self.columns.distinct(names, self.places)
        return list(self.columns.of(names, first)), which

    def firsts(self, *names: str) -> Requests:
        """The first with each combination of values."""
        return Requests(self.columns, self.columns.distinct(names, self.places)[0])

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], Requests]]:
        """(combination of values, those that have it), in the order of first appearance."""
        found, which = self.distinct(*names)
        return zip(found, self.split(which), strict=True)

    def split(self, which: Ints) -> Iterator[Requests]:
        """Those of each number, which all have some."""
        ends = np.cumsum(np.bincount(which))[:-1]
        return map(self.at, np.split(np.argsort(which, kind="stable"), ends) if len(which) else ())

    def different(self, name: str) -> list[Any]:
        """Values of a column, each once."""
        values = self.columns.values[name]
        times = np.bincount(self.columns.codes[name][self.places], minlength=len(values))
        return [value for value, count in zip(values, times.tolist(), strict=True) if count]

    def beside(self, others: Requests, *names: str) -> Pairs:
        """Each with the last of the others that has the same values; those without one are left out."""
        mine, theirs = (it.columns.combined(names, it.places) for it in (self, others))
        order = np.argsort(theirs, kind="stable")
        at = np.searchsorted(theirs[order], mine, side="right") - 1
        there = np.flatnonzero(at >= 0)
        there = there[theirs[order[at[there]]] == mine[there]]
        return Pairs(self.at(there), others.at(order[at[there]]))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Requests, each beside one of its baseline."""

    own: Requests
    base: Requests

    def __len__(self) -> int:
        return len(self.own)

    def __iter__(self) -> Iterator[tuple[RequestData, RequestData]]:
        return zip(self.own, self.base, strict=True)

    def __getitem__(self, place: int) -> tuple[RequestData, RequestData]:
        return self.own[place], self.base[place]

    def at(self, chosen: Ints | Bools | Sequence[int]) -> Pairs:
        """Some of them."""
        return Pairs(self.own.at(chosen), self.base.at(chosen))


def in_columns(requests: Iterable[RequestData]) -> Requests:
    """All requests of a run. Raises `ValueError` for one that cannot have been stored so."""
    columns = columns_of(map(_flat, requests), _NAMES, _NAMES, _MEASURES)
    return Requests(columns, np.arange(len(columns)))
