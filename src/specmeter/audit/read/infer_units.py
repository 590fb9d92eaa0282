"""What a number in a cell says, and in which unit: by its column, or by other cells where the heading is vague."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from specmeter.audit.claim import UnreadableError, family_by_name
from specmeter.audit.read import options
from specmeter.audit.read.columns import Heading, column, heading_of, in_unit, is_plain, is_rate
from specmeter.audit.read.document import BYTES, RATES, TIMES, Number, parse_number
from specmeter.audit.read.grid import Grid
from specmeter.messages import Message


@dataclass(frozen=True)
class TableOptions:
    """What a user says about a table that the table does not say itself."""

    percent: tuple[str, ...] = ()
    """Headings whose values are percent."""
    fraction: tuple[str, ...] = ()
    """Headings whose values are fractions."""
    columns: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a column (`decode_rate`) -> heading to read it from."""


def old_options(given: TableOptions | options.TableOptions) -> TableOptions:
    """The same by names of columns."""
    if isinstance(given, TableOptions):
        return given
    columns = {meaning.removesuffix("_percent"): heading for heading, meaning in given.columns.items()}
    shares = {heading: meaning for heading, meaning in given.columns.items() if meaning.startswith("acceptance")}
    percent = tuple(heading for heading, meaning in shares.items() if meaning == "acceptance_percent")
    fraction = tuple(heading for heading, meaning in shares.items() if meaning == "acceptance")
    return TableOptions(percent, fraction, columns)


_MAX_SHARE = 1e6
"""The share of acceptance that a cell may hold, as a fraction; more is a mistake in reading."""


@dataclass
class ColumnReading:
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
    mixture: Message | None = None
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
        return self.heading.kind

    @property
    def of_row(self) -> bool:
        """Whether it holds for the whole row, whatever its groups."""
        return self.heading.of_row


@dataclass
class Fields:
    """What the cells of a row say so far."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the names of the fields of a claim."""
    rounding: dict[str, float] = field(default_factory=dict[str, float])
    length: Number | None = None
    """Acceptance length of which it is not said whether it counts the target's own token."""
    beside: tuple[Number, Message] | None = None
    """A change that stands behind a rate or a time, and what to say where it is left out."""
    left: list[Message] = field(default_factory=list[Message])
    """Why cells were left out that hold something other than one number."""

    def put(self, name: str, value: float, half: float) -> None:
        self.values[name] = value
        self.rounding[name] = half


def read_cell(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    """Put a number where it belongs; returns why it was not read, where that can be passed over.

    Raises `ValueError` where it cannot be what its column says.
    """
    return _READERS[reading.kind](value, reading, fields)


def _measured(
    value: Number, reading: ColumnReading, fields: Fields, factor: float | None, otherwise: str = ""
) -> Message | None:
    """Put a number above 0 in the unit of its field; `otherwise` says why it is not, where its own has no factor."""
    if factor is None:
        return Message(otherwise, unit=value.unit or reading.heading.unit)
    if value.value <= 0:
        raise UnreadableError("unread.gt", name=reading.text, value=f"{value.value:g}", limit=0)
    return fields.put(reading.name, value.value * factor, value.half * factor)


def _not_negative(value: Number, reading: ColumnReading) -> float:
    if value.value < 0:
        raise UnreadableError("unread.negative", name=reading.text, value=value.value)
    return value.value


def _rate(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    return _measured(value, reading, fields, RATES.get(value.unit), "number.not_of_rate")


def _spread(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    if value.unit not in RATES:
        return Message("number.not_of_rate", unit=value.unit)
    fields.values[reading.name] = _not_negative(value, reading)
    return None


def _ratio(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    percent = "%" in (value.unit, reading.heading.unit)
    if reading.name == "speedup" and percent:
        if not value.signed:
            return Message("number.unsigned_speedup")
        return _change(value, reading, fields)
    if percent or value.unit not in {"", "x"}:
        return Message("number.not_of_ratio", unit=value.unit or "%")
    return _measured(value, reading, fields, 1.0)


def _change(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    if value.unit == "x":
        return _measured(value, replace(reading, heading=heading_of("speedup")), fields, 1.0)
    if reading.heading.unit == "fraction" and not value.unit and value.value > -1:
        return fields.put("speedup", 1 + value.value, value.half)
    if "%" not in (value.unit, reading.heading.unit):
        return Message("number.open_change")
    if value.value <= -100:
        raise UnreadableError("unread.slowdown", name=reading.text, percent=value.value)
    if "speedup" in fields.values:
        return None
    return fields.put("speedup", 1 + value.value / 100, value.half / 100)


def _share(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    percent = reading.percent or value.unit == "%" or value.value > reading.percent_above
    whole = 100 if percent else 1
    share = value.value / whole
    if value.unit not in {"", "%"}:
        return Message("number.not_of_share", unit=value.unit)
    if not 0 <= share <= (1 if reading.name == "p_min" else _MAX_SHARE):
        code = "unread.no_percentage" if percent else "unread.no_share"
        raise UnreadableError(code, name=reading.text, value=value.value)
    if reading.unsaid and not percent and reading.name == "acceptance":
        fields.values["unit_unsaid"] = ("acceptance",)
    return fields.put(reading.name, share, value.half / whole)


def _count(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    if value.unit == "%":
        return Message("number.share_for_count")
    if value.value < 0 or value.value != int(value.value):
        raise UnreadableError("unread.no_count", name=reading.text, value=value.value)
    if reading.name in {"runs", "concurrency"} and value.value == 0:
        return Message("number.none_of_them")
    fields.values[reading.name] = int(value.value)
    return None


def _time(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    unit = value.unit or reading.heading.unit or ("ms" if reading.kind == "interval" else "")
    return _measured(value, reading, fields, TIMES.get(unit), "number.no_unit_of_time")


def _bytes(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    unit = value.unit or reading.heading.unit
    if not unit and value.value < 1e7:
        return Message("number.no_unit_of_size")
    return _measured(value, reading, fields, BYTES.get(unit or "b"), "number.not_of_size")


def _bandwidth(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    unit = (value.unit or reading.heading.unit).removesuffix("/s").removesuffix("ps")
    factor = None if unit in {"b", "byte", "bytes"} else BYTES.get(unit)
    field_of_claim = replace(reading, heading=replace(reading.heading, name=f"{reading.name}_bytes_per_s"))
    if reading.name == "bandwidth":  # a maker's figure, not a measured one
        value = replace(value, half=0.0)
    return _measured(value, field_of_claim, fields, factor, "number.no_unit_of_bandwidth")


def _tau(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    if value.value + value.half < 1:
        raise UnreadableError("unread.tau", name=reading.text, value=value.value)
    return fields.put("tau", max(1.0, value.value), value.half)


def _length(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    _not_negative(value, reading)
    fields.length = value
    return None


def _per_step(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    return fields.put("tau", 1 + _not_negative(value, reading), value.half)


def _value(value: Number, reading: ColumnReading, fields: Fields) -> Message | None:
    factor = None if value.unit else 1.0
    return _measured(value, reading, fields, factor, "number.unit")


_READERS: dict[str, Callable[[Number, ColumnReading, Fields], Message | None]] = {
    "rate": _rate, "spread": _spread, "ratio": _ratio, "change": _change, "share": _share, "count": _count,
    "time": _time, "interval": _time, "bytes": _bytes, "bandwidth": _bandwidth, "tau": _tau, "length": _length,
    "per_step": _per_step, "value": _value,
}  # fmt: skip


# --- what a heading leaves open --------------------------------------------------------------------------------------

_MAX_GAMMA = 128
"""More draft tokens than this are no draft's length."""
_MAX_SPEEDUP = 10
"""A larger number without a sign of its unit, among negative ones, is percent."""
_MIN_TOLD = 0.2
"""A share of at least this and at most 1 looks like a fraction; few drafts are accepted at less than 1 %."""
_JUST_ABOVE_ALL = 1.2
"""A share among fractions may be a little above 1 by mistake; what is more is percent."""
WITH_RATE = re.compile(r"[\s*_`~]*[0-9][0-9.,]*\s*(?:toks?|tokens?|t)/s(?:ec(?:ond)?)?\b.{0,60}", re.I)


def number_in(cell: str, grid: Grid) -> Number | None:
    try:
        return parse_number(cell, decimal_comma=grid.decimal_comma)
    except ValueError:
        return None


def between(cell: str, reading: ColumnReading, grid: Grid) -> Number | None:
    """`73.3 / 106.1` of two texts, repeats, or a mean and a median: anything from the lowest to the highest."""
    parts = [number_in(part, grid) for part in cell.split(" / ", _MAX_PARTS)]
    numbers = [part for part in parts if part is not None]
    if len(numbers) < len(parts) or len(parts) < 2 or reading.kind not in _MANY:
        return None
    low, high = (end(number.value for number in numbers) for end in (min, max))
    units = {number.unit for number in numbers if number.unit}
    is_count = reading.kind == "share" and high > 1 and not units
    if len(units) > 1 or is_count or not 0 < low <= high <= _MAX_APART * low:
        return None
    half = (high - low) / 2 + max(number.half for number in numbers)
    signed = all(number.signed for number in numbers)
    return Number((low + high) / 2, half, units.pop() if units else "", signed, approximate=True)


_MAX_PARTS, _MAX_APART = 4, 3.0
"""Slashes of a cell, at most, and the highest of its numbers over the lowest."""
_MANY = {"rate", "interval", "share", "length", "tau", "ratio", "change"}


def first_of(cell: str) -> str:
    """A cell without what stands in parentheses behind its number."""
    return re.sub(r"(?<=\S)\s*\([^()]{0,60}\)\s*$", "", cell)


def _numbers_of(grid: Grid, reading: ColumnReading) -> list[Number]:
    """The numbers of a column, whatever stands in parentheses behind them."""
    cells = [first_of(cells[reading.index]) for _, cells in grid.rows]
    found = (number_in(cell, grid) or between(cell, reading, grid) for cell in cells)
    return [number for number in found if number is not None]


def all_numbers(grid: Grid, index: int) -> bool:
    """Whether every cell of a column that holds anything holds a number."""
    filled = grid.filled(index)
    return all(WITH_RATE.fullmatch(cell) or number_in(first_of(cell), grid) is not None for cell in filled)


def without_vague_times(grid: Grid, readings: list[ColumnReading], unknown: list[str]) -> list[ColumnReading]:
    """`Time` alone is that of the whole run where its cells are times and no other column says what that is."""
    kept: list[ColumnReading] = []
    for one in readings:
        vague = one.name == "wall_ms" and re.fullmatch(r"\W*time\W*(?:m?s(?:ec(?:onds)?)?)?\W*", one.text, re.I)
        others = any(other.name == "wall_ms" for other in readings if other is not one)
        if vague and (others or not all_numbers(grid, one.index)):
            unknown.append(one.text)
        else:
            kept.append(one)
    return kept


def holds_what_it_says(grid: Grid, reading: ColumnReading, unknown: list[str]) -> bool:
    """Whether a column of numbers has any; text-only columns are rejected."""
    filled = grid.filled(reading.index)
    if filled and all(number_in(first_of(cell), grid) is not None for cell in filled):
        if reading.name == "method" and reading.heading.unit not in {"s", "ms"}:
            reading.heading = heading_of("decode_rate")  # `no spec` beside `spec`
        elif reading.name == "draft" and (is_rate(reading.heading.unit) or all(map(WITH_RATE.fullmatch, filled))):
            reading.heading = heading_of("draft_rate")
    if reading.kind in {"text", "flag"}:
        return True
    if filled and all(WITH_RATE.fullmatch(cell) for cell in filled):  # `decode` with cells such as 20.0 t/s
        reading.heading = in_unit(reading.heading, "tps")
    words = [cell for cell in filled if not re.match(r"[^\w.]*\.?[0-9]|\W*[a-z]{0,3}\W*$", cell)]
    if len(filled) > 1 and len(words) == len(filled) and not any(is_plain(cell) for cell in filled):
        unknown.append(reading.text)
        return False
    return True


def infer_methods(grid: Grid, readings: list[ColumnReading]) -> None:
    """A column of `Models` that lists methods (`EAGLE`, `SpS`, `PLD`) is one of methods, and so is a `mode` that is
    `baseline` or `spec`; one that is `off` or `on` may speak of something else.
    """
    if any(reading.name == "method" for reading in readings):
        return
    for reading in readings:
        if reading.name == "mode":
            modes = {cell.strip("*_` ").lower() for cell in grid.filled(reading.index)}
            told = any(family_by_name(mode) not in {"unknown", "none"} for mode in modes)
            if any(is_plain(mode) and (told or mode not in _OF_ANYTHING) for mode in modes):
                reading.heading = heading_of("method")
                return
        if reading.name in {"target", "label"}:
            cells = {cells[reading.index] for _, cells in grid.rows if cells[reading.index].strip()}
            told = [cell for cell in cells if is_plain(cell) or family_by_name(cell) != "unknown"]
            models = [cell for cell in cells if re.search(r"\d[bB]\b", cell)]
            if len(cells) > 1 and 2 * len(told) >= len(cells) and not models and reading.name == "target":
                reading.heading = heading_of("method")
                return


_OF_ANYTHING = {"off", "no", "none", "disabled", "base", "original", "plain", "reference"}
"""Names of decoding without speculation that other settings have, too."""


def is_of_quality(reading: ColumnReading, beside: Sequence[str], unknown: list[str]) -> bool:
    """Whether a bare change (`delta`, `gain`) stands beside perplexities, and so is theirs."""
    bare = reading.name == "change" and re.fullmatch(
        r"[\W_]*(?:Δ|delta|gain|improvement)[\W_]*(?:pct|percent)?[\W_]*", reading.text, re.I
    )
    if not bare or not any(re.search(r"ppl|perplexity|accuracy|\bloss\b", text, re.I) for text in beside):
        return False
    unknown.append(reading.text)
    return True


def infer_changes(grid: Grid, readings: list[ColumnReading]) -> None:
    """Speedups of which some are negative are changes: fractions where all are below 1, percent where large."""
    for reading in readings:
        if reading.name == "speedup":
            cells = _numbers_of(grid, reading)
            bare = [cell.value for cell in cells if not cell.unit]
            if len(bare) > 1 and min(bare) < 0 and len(bare) == len(cells) and not reading.heading.unit:
                most = max(map(abs, bare))
                unit = "fraction" if most < 1 else "%" if most > _MAX_SPEEDUP else ""
                if not unit:
                    continue
                reading.heading = replace(reading.heading, name="change", column=column("change"), unit=unit)


def infer_ratios(readings: list[ColumnReading], unknown: list[str]) -> list[ColumnReading]:
    """`Ratio` alone: of the draft's rate to the target's beside a draft, of the row's rates or times, or of neither."""
    names = {one.name for one in readings}
    kept: list[ColumnReading] = []
    for reading in readings:
        if reading.name != "speed_ratio" or re.search(r"draft|target|speed", reading.text, re.I) or "draft" in names:
            kept.append(reading)
        elif ({"decode_rate", "baseline_rate"} <= names or names & _TIMES) and not names & {"speedup", "change"}:
            reading.heading = replace(reading.heading, name="speedup", column=column("speedup"))
            kept.append(reading)
        else:
            unknown.append(reading.text)
    return kept


_TIMES = {"ms_per_token", "wall_ms"}


def infer_draft_tokens(grid: Grid, readings: list[ColumnReading]) -> None:
    """`draft tokens`: all of them, as vLLM counts, or those of one step, as a setting is called."""
    for reading in readings:
        flag = reading.name == "drafted" and re.fullmatch(r"\W*draft-n\W*", reading.text, re.I)
        if reading.name == "draft_tokens" or flag:
            names = {one.name for one in readings}
            large = any(number.value > _MAX_GAMMA for number in _numbers_of(grid, reading))
            total = bool(names & {"accepted", "steps", "gamma"}) or large
            name = "drafted" if total and "drafted" not in names else "gamma"
            reading.heading = heading_of(name)


def infer_draft_rates(grid: Grid, readings: list[ColumnReading]) -> ColumnReading | None:
    """`draft t/s` beside `baseline t/s` alone is the rate with drafts, unless a printed speedup shows that it is not.

    Returns the `draft (t/s)` beside `tok/s` of which nothing shows whose rate it is.
    """
    named = {one.name: one for one in readings}
    draft, plain, other = (named.get(name) for name in ("draft_rate", "baseline_rate", "decode_rate"))
    if draft is None or not _ITS_RATE.fullmatch(" ".join(re.findall(r"[a-z]+", draft.text.lower()))):
        return None
    beside = plain or other
    if beside is None or (plain is not None and (other is not None or "ms_per_token" in named)):
        return None
    printed = named.get("speedup") or named.get("change")
    agree = None if printed is None else _gives(grid, draft, beside, printed)
    if agree or (agree is None and plain is not None and "target" not in plain.text.lower()):
        draft.heading, beside.heading = heading_of("decode_rate"), heading_of("baseline_rate")
    elif agree is None and plain is None and "(" in draft.text:
        words = (cells[one.index] for _, cells in grid.rows for one in readings if one.kind == "text")
        return None if any(map(is_plain, words)) else draft
    return None


_ITS_RATE = re.compile(r"drafts?(?: (?:t|toks?|tokens?) (?:per )?s(?:ec(?:ond)?)?| tps)?")


def _gives(grid: Grid, over: ColumnReading, under: ColumnReading, printed: ColumnReading) -> bool | None:
    """Whether most rows print the quotient of two of their rates as their speedup; None where none prints any."""
    found: list[bool] = []
    for _, cells in grid.rows:
        rate, base, said = (number_in(first_of(cells[one.index]), grid) for one in (over, under, printed))
        if rate is None or base is None or said is None or base.value <= 0:
            continue
        percent = "%" in (said.unit, printed.heading.unit)
        if percent or said.unit == "x" or printed.name == "speedup":
            speedup = 1 + said.value / 100 if percent else said.value
            found.append(abs(rate.value / base.value - speedup) <= _ALIKE * speedup)
    return 2 * sum(found) > len(found) if found else None


_ALIKE = 0.05
"""Share by which a printed speedup may miss the quotient of its rates."""


def infer_draft_lengths(grid: Grid, readings: list[ColumnReading]) -> None:
    """`DRAFT` above 0, 1, 2: how many tokens, where it names no model."""
    names = {reading.name for reading in readings}
    for reading in readings:
        filled = grid.filled(reading.index)
        if reading.name == "draft" and "gamma" not in names and filled and all(map(_FEW.fullmatch, filled)):
            reading.heading = heading_of("gamma")


_FEW = re.compile(r"[\s*_`]*[0-9]{1,2}[\s*_`]*")


def may_be_a_length(grid: Grid, reading: ColumnReading, readings: list[ColumnReading], options: TableOptions) -> bool:
    """Whether an `Acceptance` without a unit may as well be tokens per step: in each row above 1, at most gamma + 1.

    A table of percents as low as that exists, and one that calls the acceptance length so, too.
    """
    said = reading.text in options.percent + options.fraction or reading.name in options.percent + options.fraction
    gamma = next((one for one in readings if one.name == "gamma"), None)
    is_rate = re.search(r"rate|ratio|pct|percent|%|率", reading.text, re.I) is not None or reading.heading.unit == "%"
    if reading.name != "acceptance" or said or is_rate or gamma is None or reading.name in options.columns:
        return False
    pairs = [
        (number_in(first_of(row[reading.index]), grid), number_in(first_of(row[gamma.index]), grid))
        for _, row in grid.rows
    ]
    filled = [(value, most) for value, most in pairs if value is not None and (most is None or most.value > 0)]
    return bool(filled) and all(
        most is not None and not value.unit and 1 < value.value <= most.value + 1 for value, most in filled
    )


def infer_percent(grid: Grid, reading: ColumnReading, readings: list[ColumnReading], options: TableOptions) -> None:
    """Whether a column of shares is in percent, or whether nothing says so."""
    if reading.kind != "share":
        return
    if reading.text in options.percent or reading.name in options.percent:
        reading.percent = True
        return
    if reading.heading.unit == "fraction" or {reading.text, reading.name} & set(options.fraction):
        return
    found = _numbers_of(grid, reading)
    bare = [value for value in found if value.unit != "%"]  # a cell with a sign speaks for itself
    if reading.heading.unit == "%" or not bare:
        reading.percent = True
        return
    above = [value.value for value in bare if value.value > 1]
    fractions = [value.value for value in bare if _MIN_TOLD <= value.value <= 1]
    by_counts = _by_counts(grid, reading, readings)
    # Shares above 1 are percent; one just above 1 among fractions may be wrong.
    reading.percent = bool(above) and not (fractions and max(above) <= _JUST_ABOVE_ALL)
    if reading.percent and fractions and not by_counts:  # one cell in percent does not make most others tiny
        if by_counts is False or len(fractions) > len(above):
            reading.percent, reading.percent_above = False, 1.0
            reading.mixture = Message("read.as_fractions", above=max(above))
        else:
            reading.mixture = Message("read.as_percent", above=max(above), fraction=max(fractions))
    if not reading.percent:
        reading.percent = by_counts is True
        signed = [value.value / 100 for value in found if value.unit == "%"]
        alike = signed and min(*signed, *fractions) >= _MIN_TOLD and len(fractions) == len(bare)  # 0.64 beside 71%
        reading.unsaid = by_counts is None and not alike and any(value.value > 0 for value in bare)


def _by_counts(grid: Grid, reading: ColumnReading, readings: list[ColumnReading]) -> bool | None:
    """Whether the rows' own counts show a share to be percent; None where they show nothing."""
    same = {one.name: one for one in readings if one.group == reading.group}
    drafted, accepted = same.get("drafted"), same.get("accepted")
    if drafted is None or accepted is None:
        return None
    for _, cells in grid.rows:
        share, of, got = (number_in(cells[item.index], grid) for item in (reading, drafted, accepted))
        if share is None or of is None or got is None or share.unit == "%":
            continue
        if got.value > 0 < of.value:
            fraction = got.value / of.value
            if abs(share.value - fraction) <= share.half + 1e-6:
                return False
            if abs(share.value - 100 * fraction) <= share.half + 1e-4:
                return True
    return None
