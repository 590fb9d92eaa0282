"""What a number in a cell says: one reader per kind of column, which puts it into the fields of a claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from specmeter.audit.read import numbers
from specmeter.audit.read.columns import Heading
from specmeter.audit.read.numbers import BYTES, RATES, TIMES

_MOST_SHARE = 1e6
"""The share of acceptance that a cell may hold, as a fraction; more is a mistake in reading."""


@dataclass
class Reading:
    """A column of a grid, understood."""

    index: int
    text: str
    """The heading, as it is in the file."""
    heading: Heading
    group: str = ""
    """Method or data set that the column speaks of, where the table has several."""
    percent: bool = False
    percent_above: float = inf
    """In a column of fractions, cells above this are percent all the same."""
    mixture: str = ""
    """How a column is read that has both, as it seems."""
    unsaid: bool = False
    """A share without any sign of its unit."""

    @property
    def name(self) -> str:
        """Of the column or condition."""
        return self.heading.name

    @property
    def kind(self) -> str:
        """Of the column; `text` for a condition."""
        return "text" if self.heading.column is None else self.heading.column.kind

    @property
    def of_row(self) -> bool:
        """Whether it holds for the whole row, whatever its groups."""
        return self.heading.column is None or self.heading.column.of_row


@dataclass
class Fields:
    """What the cells of a row say so far."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the names of the fields of a claim."""
    rounding: dict[str, float] = field(default_factory=dict[str, float])
    length: numbers.Number | None = None
    """Acceptance length of which it is not said whether it counts the target's own token."""

    def put(self, name: str, value: float, half: float) -> None:
        self.values[name] = value
        self.rounding[name] = half


def read_cell(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    """Put a number where it belongs; returns why it was not read, where that can be passed over.

    Raises `ValueError` where it cannot be what its column says.
    """
    return _READERS[reading.kind](value, reading, fields)


def _positive(value: numbers.Number, reading: Reading) -> None:
    if value.value <= 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be above 0")


def _rate(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.unit not in RATES:
        return f"{value.unit} is not a unit of a rate"
    _positive(value, reading)
    return fields.put(reading.name, value.value, value.half)


def _spread(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.unit not in RATES:
        return f"{value.unit} is not a unit of a rate"
    if value.value < 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be 0 or more")
    fields.values[reading.name] = value.value
    return None


def _ratio(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    percent = "%" in (value.unit, reading.heading.unit)
    if reading.name == "speedup" and percent:
        if not value.signed:
            return "a speedup in percent needs a sign, like +26%, or write 1.26x"
        return _change(value, reading, fields)
    if percent or value.unit not in {"", "x"}:
        return f"{value.unit or '%'} is not a unit of a ratio"
    _positive(value, reading)
    return fields.put(reading.name, value.value, value.half)


def _change(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.unit == "x":
        _positive(value, reading)
        return fields.put("speedup", value.value, value.half)
    if reading.heading.unit == "fraction" and not value.unit and value.value > -1:
        return fields.put("speedup", 1 + value.value, value.half)
    if "%" not in (value.unit, reading.heading.unit):
        return "neither x nor % says what kind of change it is"
    if value.value <= -100:
        raise ValueError(f"{reading.text} is {value.value:g} %: nothing slows down by all of it")
    if "speedup" in fields.values:
        return None
    return fields.put("speedup", 1 + value.value / 100, value.half / 100)


def _share(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    percent = reading.percent or value.unit == "%" or value.value > reading.percent_above
    whole = 100 if percent else 1
    share = value.value / whole
    if value.unit not in {"", "%"}:
        return f"{value.unit} is not a unit of a share"
    if not 0 <= share <= (1 if reading.name == "p_min" else _MOST_SHARE):
        raise ValueError(f"{reading.text} is {value.value:g}{' %' if percent else ''}: it must be a share, 0 or more")
    if reading.unsaid and not percent and reading.name == "acceptance":
        fields.values["unit_unsaid"] = ("acceptance",)
    return fields.put(reading.name, share, value.half / whole)


def _count(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.unit == "%":
        return "a share where a count belongs"
    if value.value < 0 or value.value != int(value.value):
        raise ValueError(f"{reading.text} is {value.value:g}: it must be a whole number, 0 or more")
    if reading.name in {"runs", "concurrency"} and value.value == 0:
        return "0 of them"
    fields.values[reading.name] = int(value.value)
    return None


def _time(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    unit = value.unit or reading.heading.unit
    if unit not in TIMES:
        return "its unit is not said (ms or s)"
    _positive(value, reading)
    return fields.put(reading.name, value.value * TIMES[unit], value.half * TIMES[unit])


def _interval(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    return _time(value, replace(reading, heading=replace(reading.heading, unit=reading.heading.unit or "ms")), fields)


def _bytes(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    unit = value.unit or reading.heading.unit
    if not unit and value.value < 1e7:
        return "its unit is not said (bytes, MB, GB, GiB)"
    if (unit or "b") not in BYTES:
        return f"{unit} is not a unit of size"
    _positive(value, reading)
    factor = BYTES[unit or "b"]
    return fields.put(reading.name, value.value * factor, value.half * factor)


def _bandwidth(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    unit = (value.unit or reading.heading.unit).removesuffix("/s").removesuffix("ps")
    if unit not in BYTES or unit in {"b", "byte", "bytes"}:
        return "its unit is not said (GB/s)"
    _positive(value, reading)
    half = 0.0 if reading.name == "bandwidth" else value.half * BYTES[unit]  # a maker's figure, not a measured one
    return fields.put(f"{reading.name}_bytes_per_s", value.value * BYTES[unit], half)


def _tau(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.value + value.half < 1:
        raise ValueError(
            f"{reading.text} is {value.value:g}: tokens per target forward are at least 1 "
            "(call accepted drafts per step accepted_drafts_per_step)"
        )
    return fields.put("tau", max(1.0, value.value), value.half)


def _length(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.value < 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be 0 or more")
    fields.length = value
    return None


def _per_step(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.value < 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be 0 or more")
    return fields.put("tau", 1 + value.value, value.half)


def _value(value: numbers.Number, reading: Reading, fields: Fields) -> str | None:
    if value.unit:
        return f"{value.unit} is a unit where none belongs"
    _positive(value, reading)
    return fields.put(reading.name, value.value, value.half)


_READERS: dict[str, Callable[[numbers.Number, Reading, Fields], str | None]] = {
    "rate": _rate,
    "spread": _spread,
    "ratio": _ratio,
    "change": _change,
    "share": _share,
    "count": _count,
    "time": _time,
    "interval": _interval,
    "bytes": _bytes,
    "bandwidth": _bandwidth,
    "tau": _tau,
    "length": _length,
    "per_step": _per_step,
    "value": _value,
}
