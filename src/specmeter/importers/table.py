"""Tables of results, from CSV, TSV, Markdown, JSON or JSON Lines: one claim per row.

Any subset of the columns in `specmeter.importers.columns` will do. What a cell means is never guessed silently: a share
is in percent where its cell or heading says so, where a value of the column is above 1, or where the row's own counts
show it; else it is read as a fraction and marked as such, and the judge tries both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specmeter.audit.claim import Claim
from specmeter.errors import UsageError
from specmeter.importers import numbers
from specmeter.importers.baselines import BASELINE_WORDS, Row, pair_with_baselines
from specmeter.importers.columns import COLUMNS, Heading, column, understand
from specmeter.importers.document import read_text
from specmeter.importers.grid import Grid, known_headings, read_grids
from specmeter.importers.moe_names import mixture_of_experts

_LABEL = 160
"""Characters of a label."""
_BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_TIMES = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
_RATES = {"", "tok/s", "t/s", "tokens/s", "tps", "token/s", "tokens/sec", "tok/sec"}


@dataclass(frozen=True)
class TableOptions:
    """What somebody says about a table that the table does not say itself."""

    percent: tuple[str, ...] = ()
    """Headings whose values are percent."""
    fraction: tuple[str, ...] = ()
    """Headings whose values are fractions."""
    columns: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a column (`decode_rate`) -> heading to read it from."""


@dataclass
class _Reading:
    """A column of a grid, understood."""

    index: int
    text: str
    """The heading, as it is in the file."""
    heading: Heading
    percent: bool = False
    unsaid: bool = False
    """A share without any sign of its unit."""


def sniff(head: str) -> bool:
    """Whether a file that begins like this may be a table of results."""
    return head.lstrip("\ufeff \t\r\n").startswith(("[", "{")) or known_headings(head) > 0


def read(path: Path, options: TableOptions | None = None) -> Iterator[Claim]:
    """One claim per row of every table in a file.

    Raises `UsageError` for a file that cannot be read, or in which no column is known.
    """
    yield from read_table(read_text(path), path, options or TableOptions())


def read_table(text: str, path: Path, options: TableOptions) -> Iterator[Claim]:
    """The same for a text that came from `path`."""
    grids = read_grids(text, path)
    found = False
    for grid in grids:
        try:
            readings, notes = _headings(grid, path, options)
        except UsageError as error:
            if len(grids) == 1:
                raise
            found = True
            yield Claim(source=str(path), row=grid.place, problem=error.message.removeprefix(f"{path}: "))
            continue
        if readings:
            found = True
            yield from _claims(grid, readings, notes, path)
    if found and not any(grid.rows or grid.faults for grid in grids):
        raise UsageError(f"{path}: headings, but no row below them", fix="name a file with results")
    if not found:
        names = ", ".join(item.name for item in COLUMNS)
        seen = ", ".join(repr(text[:40]) for text in grids[0].headings[:12])
        raise UsageError(
            f"{path}: no column of it is known (found: {seen})",
            fix=f"name the columns, for example `speedup`, `gamma`, `acceptance`; known: {names}; "
            "or say which is which with --column NAME=HEADING",
        )


def _headings(grid: Grid, path: Path, options: TableOptions) -> tuple[dict[str, _Reading], tuple[str, ...]]:
    """The columns that are understood, by name, and what to say about the others."""
    where = f"{path}, {grid.place}" if grid.place else str(path)
    readings: dict[str, _Reading] = {}
    unknown: list[str] = []
    chosen = _chosen(grid, options)
    for index, text in enumerate(grid.headings):
        heading = chosen.get(index) or (None if index in chosen else understand(text))
        if heading is None or (index not in chosen and heading.name in options.columns):
            if text:
                unknown.append(text)
            continue
        if heading.name in readings and (heading.column is None or heading.column.kind == "text"):
            unknown.append(text)
            continue
        if heading.name in readings:
            first = readings[heading.name].text
            both = f"both {first!r} and {text!r} are" if first != text else f"two columns {text!r} are"
            raise UsageError(
                f"{where}: {both} read as {heading.name}",
                fix=f"rename one of them, or choose with --column {heading.name}=HEADING",
            )
        readings[heading.name] = _Reading(index, text, heading)
    useful = {
        name for name, reading in readings.items() if reading.heading.column and reading.heading.column.kind != "text"
    }
    if not useful:
        return {}, ()
    for reading in readings.values():
        _settle_percent(grid, reading, readings, options)
    notes = [f"columns not read: {', '.join(name[:40] for name in unknown[:20])}"] if unknown else []
    notes += [
        f"{reading.text!r} is read as a fraction where it has no %: nothing says that it is percent"
        for reading in readings.values()
        if reading.unsaid
    ]
    return readings, tuple(notes)


def _chosen(grid: Grid, options: TableOptions) -> dict[int, Heading]:
    """Columns that `--column` names. Raises `UsageError` for names that are not there."""
    found: dict[int, Heading] = {}
    for name, text in options.columns.items():
        known = column(name)
        if known is None:
            names = ", ".join(item.name for item in COLUMNS)
            raise UsageError(f"--column {name}: there is no column {name!r}", fix=f"use one of {names}")
        if text in grid.headings:
            said = understand(text)
            found[grid.headings.index(text)] = Heading(known.name, known, said.unit if said else "")
    return found


def _settle_percent(grid: Grid, reading: _Reading, readings: dict[str, _Reading], options: TableOptions) -> None:
    """Whether a column of shares is in percent, or whether nothing says so."""
    if reading.heading.column is None or reading.heading.column.kind != "share":
        return
    if reading.text in options.percent or reading.heading.name in options.percent:
        reading.percent = True
        return
    if reading.text in options.fraction or reading.heading.name in options.fraction:
        return
    values: list[numbers.Number] = []
    for _, cells in grid.rows:
        try:
            value = numbers.parse(cells[reading.index], decimal_comma=grid.decimal_comma)
        except ValueError:
            continue
        if value is not None:
            values.append(value)
    bare = [value for value in values if value.unit != "%"]  # a cell with a sign speaks for itself alone
    said = reading.heading.unit == "%" or not bare
    reading.percent = said or any(value.value > 1 for value in bare)
    if not reading.percent and values:
        by_counts = _by_counts(grid, reading, readings)
        reading.percent = by_counts is True
        reading.unsaid = by_counts is None and any(value.value > 0 for value in bare)


def _by_counts(grid: Grid, reading: _Reading, readings: dict[str, _Reading]) -> bool | None:
    """Whether the rows' own counts show a share to be percent; None where they show nothing."""
    drafted, accepted = readings.get("drafted"), readings.get("accepted")
    if drafted is None or accepted is None:
        return None
    for _, cells in grid.rows:
        try:
            share, of, got = (
                numbers.parse(cells[item.index], decimal_comma=grid.decimal_comma)
                for item in (reading, drafted, accepted)
            )
        except ValueError:
            continue
        if share is None or of is None or got is None or share.unit == "%":
            continue
        if got.value > 0 < of.value:
            fraction = got.value / of.value
            if abs(share.value - fraction) <= share.half + 1e-6:
                return False
            if abs(share.value - 100 * fraction) <= share.half + 1e-4:
                return True
    return None


# --- rows ------------------------------------------------------------------------------------------------------------


def _claims(grid: Grid, readings: dict[str, _Reading], notes: tuple[str, ...], path: Path) -> Iterator[Claim]:
    rows: list[Row] = []
    for place, cells in grid.rows:
        rows.append(_row(grid, readings, cells, Claim(source=str(path), row=place, notes=notes)))
    pair_with_baselines(rows)
    faults = [
        Row(Claim(source=str(path), row=place, notes=notes, problem=f"cannot be read: {why}"))
        for place, why in grid.faults
    ]
    for row in sorted([*rows, *faults], key=lambda row: _order(row.claim.row)):
        yield row.claim


def _order(place: str) -> int:
    return int(place.rpartition(" ")[2])


def _row(grid: Grid, readings: dict[str, _Reading], cells: list[str], empty: Claim) -> Row:
    """One row as a claim; any number that cannot be right makes it a claim with a problem and no numbers."""
    texts = {
        name: _text(cells[reading.index])
        for name, reading in readings.items()
        if reading.heading.column is None or reading.heading.column.kind == "text"
    }
    fields: dict[str, Any] = {"label": _label(texts, readings, cells)}
    rounding: dict[str, float] = {}
    notes = list(empty.notes)
    is_baseline = _says_baseline(texts)
    try:
        for reading in readings.values():
            known = reading.heading.column
            if known is None or known.kind == "text":
                continue
            cell = cells[reading.index]
            if known.kind in {"ratio", "change", "rate"} and _text(cell).lower() in BASELINE_WORDS:
                is_baseline = is_baseline or known.kind != "rate"
                continue
            if known.kind == "flag":
                fields["synthetic"] = cell.strip().lower() in {"1", "true", "yes", "y", "on"}
                continue
            value = _number(cell, reading, grid)
            if value is not None:
                note = _READERS[known.kind](value, reading, fields, rounding)
                if note:
                    notes.append(f"{reading.text!r} not read: {note}")
                elif value.approximate:
                    notes.append(f"{reading.text!r} is said to be approximate")
    except ValueError as error:
        return Row(empty.model_copy(update={"label": fields["label"], "problem": str(error)}), texts)
    _finish(fields, rounding, texts, is_baseline)
    if is_baseline:
        fields["method"] = "none"
    try:
        claim = Claim(
            source=empty.source, row=empty.row, rounding=rounding, notes=tuple(dict.fromkeys(notes)), **fields
        )
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        reason = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        return Row(empty.model_copy(update={"label": fields["label"], "problem": reason}), texts)
    return Row(claim, texts)


def _number(cell: str, reading: _Reading, grid: Grid) -> numbers.Number | None:
    try:
        return numbers.parse(cell, decimal_comma=grid.decimal_comma)
    except ValueError as error:
        raise ValueError(f"{reading.text} {cell[:40]!r} {error}") from None


def _text(cell: str) -> str:
    return cell.strip().strip("*_`★☆ ").strip()[:_LABEL]


def _label(texts: dict[str, str], readings: dict[str, _Reading], cells: list[str]) -> str:
    if texts.get("label"):
        return texts["label"]
    parts = [texts[name] for name in ("target", "draft", "method") if texts.get(name)]
    if "gamma" in readings and (gamma := _text(cells[readings["gamma"].index])):
        parts.append(f"gamma {gamma}")
    shown = ("label", "target", "draft", "method", "device", "engine", "reference", "architecture")
    parts += [text for name, text in texts.items() if name not in shown and text]
    return (" / ".join(parts) or texts.get("device", ""))[:_LABEL]


def _says_baseline(texts: dict[str, str]) -> bool:
    """A method that is none; without a method, a draft that is none, or a label that says baseline."""
    if texts.get("method"):
        return texts["method"].lower() in BASELINE_WORDS
    if texts.get("draft"):
        return texts["draft"].lower() in BASELINE_WORDS
    return texts.get("label", "").lower() in BASELINE_WORDS


def _finish(fields: dict[str, Any], rounding: dict[str, float], texts: dict[str, str], is_baseline: bool) -> None:
    """What follows from several cells together."""
    method = texts.get("method", "").lower()
    if method and not is_baseline:
        fields["method"] = _METHODS.get(method, method)
    if texts.get("device"):
        fields["device"] = texts["device"]
    interval = fields.pop("ms_per_token", None)
    if interval is not None and "decode_rate" not in fields:
        fields["decode_rate"] = 1e3 / interval
        rounding["decode_rate"] = fields["decode_rate"] * rounding.pop("ms_per_token", 0.0) / interval
    rounding.pop("ms_per_token", None)
    if fields.get("gamma") == 0 and not is_baseline:
        fields["method"] = "none"
    if "experts" not in fields:
        name = " ".join(text for key in ("architecture", "target", "label") if (text := texts.get(key)))
        fields["mixture"] = mixture_of_experts(name)
    if fields.get("predicted_n") == 0:
        # llama-bench and its descendants: a test of the prompt alone; its rate is not a decode rate.
        for key in ("decode_rate", "decode_rate_sd", "predicted_ms", "predicted_n"):
            fields.pop(key, None)


_METHODS = {
    "draft": "draft-simple",
    "draft model": "draft-simple",
    "draft_model": "draft-simple",
    "draft-model": "draft-simple",
    "eagle3": "draft-eagle3",
    "eagle-3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
}


# --- one reader per kind of column: puts a number into `fields`, or says why it does not -----------------------------


def _positive(value: numbers.Number, reading: _Reading) -> None:
    if value.value <= 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be above 0")


def _rate(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    if value.unit not in _RATES:
        return f"{value.unit} is no unit of a rate"
    _positive(value, reading)
    return _put(reading.heading.name, value.value, value.half, fields, rounding)


def _spread(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    del rounding
    if value.unit not in _RATES:
        return f"{value.unit} is no unit of a rate"
    if value.value < 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be 0 or more")
    fields[reading.heading.name] = value.value
    return None


def _ratio(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    percent = "%" in (value.unit, reading.heading.unit)
    if reading.heading.name == "speedup" and percent:
        if not value.signed:
            return "a speedup in percent needs a sign, like +26%, or write 1.26x"
        return _change(value, reading, fields, rounding)
    if percent or value.unit not in {"", "x"}:
        return f"{value.unit or '%'} is no unit of a ratio"
    _positive(value, reading)
    return _put(reading.heading.name, value.value, value.half, fields, rounding)


def _change(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    if value.unit == "x":
        _positive(value, reading)
        return _put("speedup", value.value, value.half, fields, rounding)
    if "%" not in (value.unit, reading.heading.unit):
        return "neither x nor % says what kind of change it is"
    if value.value <= -100:
        raise ValueError(f"{reading.text} is {value.value:g} %: nothing slows down by all of it")
    if "speedup" in fields:
        return None
    return _put("speedup", 1 + value.value / 100, value.half / 100, fields, rounding)


def _share(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    percent = reading.percent or value.unit == "%"
    whole = 100 if percent else 1
    share = value.value / whole
    if value.unit not in {"", "%"}:
        return f"{value.unit} is no unit of a share"
    if not 0 <= share <= 1:
        raise ValueError(f"{reading.text} is {value.value:g}{' %' if percent else ''}: not between none and all")
    if reading.unsaid and not percent:
        fields["unit_unsaid"] = ("acceptance",)
    return _put("acceptance", share, value.half / whole, fields, rounding)


def _count(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    del rounding
    if value.value < 0 or value.value != int(value.value):
        raise ValueError(f"{reading.text} is {value.value:g}: it must be a whole number, 0 or more")
    name = reading.heading.name
    if name in {"runs", "concurrency"} and value.value == 0:
        return "0 of them"
    fields[name] = int(value.value)
    return None


def _time(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    unit = value.unit or reading.heading.unit
    if unit not in _TIMES:
        return "its unit is not said (ms or s)"
    _positive(value, reading)
    return _put(reading.heading.name, value.value * _TIMES[unit], value.half * _TIMES[unit], fields, rounding)


def _interval(
    value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]
) -> str | None:
    named = replace(reading, heading=replace(reading.heading, unit=reading.heading.unit or "ms"))
    return _time(value, named, fields, rounding)


def _bytes(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    unit = value.unit or reading.heading.unit
    if not unit and value.value < 1e7:
        return "its unit is not said (bytes, MB, GB, GiB)"
    if (unit or "b") not in _BYTES:
        return f"{unit} is no unit of size"
    _positive(value, reading)
    factor = _BYTES[unit or "b"]
    return _put(reading.heading.name, value.value * factor, value.half * factor, fields, rounding)


def _bandwidth(
    value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]
) -> str | None:
    unit = (value.unit or reading.heading.unit).removesuffix("/s").removesuffix("ps")
    if unit not in _BYTES or unit in {"b", "byte", "bytes"}:
        return "its unit is not said (GB/s)"
    _positive(value, reading)
    name = f"{reading.heading.name}_bytes_per_s"
    return _put(name, value.value * _BYTES[unit], value.half * _BYTES[unit], fields, rounding)


def _tau(value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]) -> str | None:
    if value.value + value.half < 1:
        raise ValueError(
            f"{reading.text} is {value.value:g}: tokens per target forward are at least 1 "
            "(call accepted drafts per step accepted_per_step)"
        )
    return _put("tau", max(1.0, value.value), value.half, fields, rounding)


def _per_step(
    value: numbers.Number, reading: _Reading, fields: dict[str, Any], rounding: dict[str, float]
) -> str | None:
    if value.value < 0:
        raise ValueError(f"{reading.text} is {value.value:g}: it must be 0 or more")
    return _put("tau", 1 + value.value, value.half, fields, rounding)


def _put(name: str, value: float, half: float, fields: dict[str, Any], rounding: dict[str, float]) -> None:
    fields[name] = value
    rounding[name] = half


_READERS: dict[str, Callable[[numbers.Number, _Reading, dict[str, Any], dict[str, float]], str | None]] = {
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
    "per_step": _per_step,
}
