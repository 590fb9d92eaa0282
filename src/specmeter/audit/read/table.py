"""Tables of results, from CSV, Markdown, HTML, LaTeX, plain text or JSON: one claim per row, or per group of a row.

Any subset of the columns in `columns` will do. What a cell means is never guessed silently: a share is in percent where
its cell or heading says so, where a value of the column is above 1, or where the row's own counts show it; else it is
read as a fraction and marked as such, and the judge tries both. An acceptance length counts the target's own token or
not: the row's counts may show it, or its draft length and acceptance, or a baseline of the table (1 or 0 there); else
it is marked, too.

Rows find their baseline in the same table: the row without speculation that is otherwise like them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from specmeter.audit.claim import (
    Claim,
    UnreadableError,
    claim_of,
    drafts_of_vllm,
    family_by_name,
    mixture_of_experts,
    problem_of,
    read_settings,
)
from specmeter.audit.read.columns import (
    BENCHMARKS,
    COLUMNS,
    CONDITIONS,
    OTHER,
    WHOLE_RUN,
    Heading,
    heading_of,
    in_english,
    is_overall,
    is_plain,
    is_task,
    requests_at_once,
    understand,
)
from specmeter.audit.read.document import RATES, Importer, Number, is_json, parse_number, read_text
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.headings import BOTH_COUNTS, PAIR, Headings, read_headings, refuse_unknown_names
from specmeter.audit.read.infer_units import ColumnReading, Fields, TableOptions, between, number_in, read_cell
from specmeter.audit.read.pages import known_headings, read_grids
from specmeter.audit.speedup import SAME_RATIO
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.theory.catalogue import devices as catalogue

_LABEL = 160
"""Characters of a label."""
_NOTE = 500
"""Characters of a note."""
_ASIDE = re.compile(r"(?<=\S)\s*\(([^()]{0,60})\)[\s*_`]*$")
_BESIDE = re.compile(
    r"[\s*_`]*([~≈]?[0-9][0-9.,]*(?: ?(?:[%x×]|(?:toks?|tokens?|t)/s))?)[*_`]*\s*(?:[,;]\s|@)\s*"
    r"(?=[^/]*[%a-zA-Z])([^/]{1,80})"
)
"""A number and what a comma or `@` sets beside it; a second rate is left alone."""
_SPREAD = re.compile(r"[\s*_`]*([0-9]{1,6}\.[0-9]{1,6})/([0-9]{1,3}\.[0-9]{1,6})[\s*_`]*")
_SMALL = 0.05
"""Below this share of what stands before a slash, what stands behind it is something other than a second rate."""
_MAX_DEVICES = 64
_AT_ONCE = re.compile(
    r"\b(?:concurrency|batch(?:[ _-]size)?|bs) ?(?:of|[:=])? ?([1-9]\d{0,3})\b"
    r"|\b([1-9]\d{0,3}) (?:concurrent|parallel|simultaneous)\b",
    re.I,
)
"""Requests at once, as the text above a table says it."""
_RATIOS = ("speedup", "acceptance", "tau", "decode_rate")
"""Fields that may be means over prompts."""


def sniff_table(head: str) -> bool:
    """Whether a file that begins like this may be a table of results."""
    return head.lstrip("\ufeff \t\r\n").startswith(("[", "{")) or known_headings(head) > 0


def read_table_file(path: Path, options: TableOptions | None = None) -> Iterator[Claim]:
    """One claim per row of every table in a file.

    Raises `UsageError` for a file that cannot be read, or in which no column is known.
    """
    yield from read_table(read_text(path), path, options or TableOptions())


TABLE = Importer(sniff_table, read_table_file)


def read_table(text: str, path: Path, options: TableOptions) -> Iterator[Claim]:
    """The same for a text that came from `path`."""
    as_json = is_json(text)
    grids = read_grids(text, path, as_json=as_json)
    refuse_unknown_names(grids, path, options)
    found = False
    together: list[ClaimRow] = []
    for grid in grids:
        try:
            headings = read_headings(grid, path, options)
        except UsageError as error:
            if len(grids) == 1:
                raise
            found = True
            why = error.message.removeprefix(f"{path}: ")
            yield Claim(source=str(path), row=grid.place, problem=Message("unread.why", why=why))
            continue
        if headings.readings:
            found = True
            rows = _rows(grid, headings, path)
            if as_json:  # the objects of one document know each other
                together += rows
                continue
            pair_with_baselines(rows)
            yield from (row.claim for row in rows)
    pair_with_baselines(together)
    yield from (row.claim for row in together)
    if found and not any(grid.rows or grid.faults for grid in grids):
        raise UsageError(f"{path}: headings without rows", fix="pass a file with results")
    if not found:
        names = ", ".join(item.name for item in COLUMNS)
        seen = ", ".join(repr(text[:40]) for text in grids[0].headings[:12])
        raise UsageError(
            f"{path}: no known column (found: {seen or 'none'})",
            fix=f"rename columns to known names ({names}), or map them with --column NAME=HEADING",
        )


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows(grid: Grid, headings: Headings, path: Path) -> list[ClaimRow]:
    """The claims of a table with the texts of their rows, in the order of its lines."""
    found: list[tuple[int, ClaimRow]] = []
    sets = headings.sets()
    at_once = max((int(one or other) for one, other in _AT_ONCE.findall(grid.above)), default=1)
    for place, cells in grid.rows:
        for group, readings in sets:
            if group and not any(cells[one.index].strip(" -–—") for one in readings if not one.of_row):
                continue
            where = f"{place}, {group}" if group else place
            empty = Claim(source=str(path), row=where, notes=headings.notes)
            row = _row(grid, readings, cells, empty, group)
            row.path = grid.paths.get(place, ())
            if at_once > 1 and row.claim.concurrency is None and row.claim.problem is None:
                row.claim = row.claim.model_copy(update={"concurrency": float(at_once)})
            if names := [key for key in row.path if not key.isdecimal()]:
                conditions = {"section": ".".join(names), **row.claim.conditions}
                row.claim = row.claim.model_copy(update={"conditions": conditions})
            found.append((_line(place), row))
    for place, why in grid.faults:
        problem = Message("unread.line", why=why)
        claim = Claim(source=str(path), row=place, notes=headings.notes, problem=problem)
        found.append((_line(place), ClaimRow(claim)))
    rows = [row for _, row in sorted(found, key=lambda one: one[0])]
    _settle_lengths(rows)
    return rows


def _line(place: str) -> int:
    last = place.rpartition(" ")[2]
    return int(last) if last.isdecimal() and len(last) < 12 else 0


def _row(grid: Grid, readings: Sequence[ColumnReading], cells: list[str], empty: Claim, group: str) -> ClaimRow:
    """One claim; any number that cannot be right makes it a claim with a problem and no numbers."""
    texts = {one.name: text for one in readings if one.kind == "text" and (text := _text(cells[one.index]))}
    _name_the_group(texts, group)
    label = _label(texts, readings, cells, group)
    if not group and (alone := next((one.group for one in readings if one.group), "")):
        texts["group of columns"] = alone  # the only one: it may say a draft length
    _spread_over_devices(texts, readings, cells)
    fields = Fields({"label": label})
    if (load := requests_at_once(group)) is not None:
        fields.values["concurrency"] = load
    notes_of_row = next((cells[one.index] for one in readings if one.name == "claim_notes"), "").split(" | ")
    notes = [*empty.notes, *(note.strip()[:_NOTE] for note in notes_of_row if note.strip())]
    if place := texts.get("source_place"):
        empty = empty.model_copy(update={"row": f"{place}, {group}" if group else place})
    plain = _says_baseline(texts)
    try:
        for reading in readings:
            if reading.kind == "text" or reading.name == "devices":
                continue
            cell = cells[reading.index]
            if (reading.kind in {"ratio", "change", "rate"} or reading.name == "gamma") and is_plain(_text(cell)):
                plain = plain or reading.kind != "rate"
            elif reading.kind == "flag":
                name = "synthetic" if reading.name == "synthetic_acceptance" else reading.name
                fields.values[name] = cell.strip().lower() in {"1", "true", "yes", "y", "on"}
            elif (note := _read(cell, reading, fields, grid)) is not None:
                notes.append(note)
        if fields.left and not fields.rounding.keys() & {"decode_rate", "speedup", "ms_per_token"}:
            raise UnreadableError(fields.left[0].code, **fields.left[0].values)
    except ValueError as error:
        return ClaimRow(empty.model_copy(update={"label": label, "problem": problem_of(error)}), texts)
    _short_counts(fields, readings)
    _finish(fields, texts, plain, notes)
    if fields.beside is not None:
        change, left_out = fields.beside
        if group or "speedup" in fields.values or "baseline_rate" not in fields.values:
            notes.append(left_out)  # a change of what, nothing says
        else:
            fields.put("speedup", 1 + change.value / 100, change.half / 100)
    fields.values |= _told(texts, readings, group)
    machines = {one.name: _machine_in(one.text) for one in readings if one.name in {"baseline_rate", "decode_rate"}}
    fields.values |= _two_machines(machines.get("baseline_rate"), machines.get("decode_rate"))
    said = " ".join((grid.above, *texts.values()))
    if family_by_name(fields.values.get("method")) == "tree" and drafts_of_vllm(said):
        fields.values.setdefault("tree", False)
    claim = claim_of(
        source=empty.source, row=empty.row, rounding=fields.rounding, notes=tuple(dict.fromkeys(notes)), **fields.values
    )
    open_length = fields.length is not None and ("tau" in claim.unit_unsaid or claim.method == "none")
    length = fields.length.value if open_length and fields.length else None
    return ClaimRow(claim, texts, length, speaks_of=_what_changed(readings, cells))


_PER_TOKEN = re.compile(r"tpot|per[ _-]token|ms/tok", re.I)
_GAIN = re.compile(r"gain|improve|uplift|faster|提升|增益", re.I)


def _what_changed(readings: Sequence[ColumnReading], cells: list[str]) -> tuple[Changed, str]:
    """What a printed speedup or change may speak of, with its heading."""
    by_name = {one.name: one for one in readings if cells[one.index].strip(" -–—")}
    times = by_name.keys() & {"ms_per_token", "baseline_ms_per_token", "inter_token_latency"}
    times = times or ("wall_ms" in by_name and not by_name.keys() & {"decode_rate", "baseline_rate"})
    speedup, change = by_name.get("speedup"), by_name.get("change")
    if times and speedup is not None and re.fullmatch(r"\W*ratio\W*", speedup.text, re.I):
        return "ratio", speedup.text
    said = speedup or change or by_name.get("ms_per_token")
    text = "" if said is None else said.text
    if said is not None and WHOLE_RUN.search(text):
        return ("rates" if "baseline_wall_ms" in by_name else "whole run"), text
    if speedup is not None:
        return ("token time" if not times and _PER_TOKEN.search(text) else "rates"), text
    if not times:
        return "rates", text
    if change is not None and _GAIN.search(text):
        return "gain", text
    ratio = change is not None and re.search(r"[x×]\W*$", cells[change.index], re.I)
    return ("ratio" if ratio else "time"), text


def _read(cell: str, reading: ColumnReading, fields: Fields, grid: Grid) -> Message | None:
    """Put a cell into the fields; a note where something of it is left out."""
    cell, aside = _split(cell, reading)
    paired = reading.name in _PAIRED and reading.heading.unit != "%" and _read_pair(cell, fields, reading)
    if paired or _read_both_sides(cell, reading, fields, grid):
        return None if not aside or _read_aside(aside, reading, fields, grid) else _left_out(aside, reading)
    try:
        value = _number(cell, reading, grid)
    except UnreadableError as error:
        if error.said.values["why"] not in _LEFT or reading.name in _NEEDED:
            raise
        said, pair = error.said, PAIR.fullmatch(cell)
        counts = [int(part.replace(",", "") or 0) for part in pair.groups()] if pair is not None else [0, 0]
        if reading.name == "acceptance" and counts[0] > counts[1]:
            said = Message("unread.above_whole", column=reading.text, cell=cell[:40])
        fields.left.append(said)
        return said
    if value is None:
        return None
    if reading.name == "accepted" and value.unit == "%":
        reading = replace(reading, heading=heading_of("acceptance", "%"))
    if (why := read_cell(value, reading, fields)) is not None:
        return Message("read.cell_left", column=reading.text, why=why)
    if aside and not _read_aside(aside, reading, fields, grid):
        return _left_out(aside, reading)
    return Message("read.approximate", column=reading.text) if value.approximate else None


_LEFT = (Message("number.none"), Message("number.several"))
"""What a cell may hold and be left out: words, or several numbers."""
_NEEDED = {"baseline_rate", "draft_rate", "gamma", "tree_width", "p_min", "concurrency", "runs", "speed_ratio"}
"""Columns without which the others could be held against the wrong thing."""


def _left_out(aside: str, reading: ColumnReading) -> Message:
    return Message("read.aside_left", column=reading.text, aside=aside[:40])


_PAIRED = {"accepted", "acceptance"}


def _read_pair(text: str, fields: Fields, reading: ColumnReading) -> bool:
    """Whether a text is accepted / drafted tokens, `538/660`; both are then read.

    Two numbers up to 100 under `acceptance` may be percent as well: of these the share alone is read, which is more
    than either.
    """
    if (pair := PAIR.fullmatch(text)) is None:
        return False
    accepted, drafted = (int(part.replace(",", "")) for part in pair.groups())
    if reading.name == "acceptance" and drafted <= 100 and not BOTH_COUNTS.search(reading.text):
        if 0 < accepted <= drafted:
            fields.put("acceptance", accepted / drafted, 0.0)
        return 0 < accepted <= drafted
    fields.values |= {"accepted": accepted, "drafted": drafted}
    return True


def _read_both_sides(cell: str, reading: ColumnReading, fields: Fields, grid: Grid) -> bool:
    """Whether a cell holds the baseline's rate and that with drafts, `22.7 → 40.6`; both are then read."""
    sides = re.split(r"\s(?:→|->)\s", cell.strip("*_` "))
    if reading.name not in {"decode_rate", "change"} or len(sides) != 2 or "baseline_rate" in fields.values:
        return False
    numbers = [number for side in sides if (number := number_in(side, grid)) is not None]
    if len(numbers) < 2 or any(it.signed or it.unit not in RATES or it.value <= 0 for it in numbers):
        return False
    for name, number in zip(("baseline_rate", "decode_rate"), numbers, strict=True):
        fields.put(name, number.value, number.half)
    return True


def _split(cell: str, reading: ColumnReading) -> tuple[str, str]:
    """(the number, what stands beside it): `43.4 (+15%)`, `161 t/s @ 74%`, `37.4/1.5` of a mean and its deviation."""
    aside = _ASIDE.search(cell)
    number, beside = (cell, "") if aside is None else (cell[: aside.start()], aside.group(1))
    if reading.kind == "rate" and (spread := _SPREAD.fullmatch(number)) is not None:
        mean, deviation = spread.groups()
        if float(deviation) < _SMALL * float(mean):
            return mean, beside or deviation
    if beside:
        return number, beside
    if (found := _BESIDE.fullmatch(cell)) is not None:
        return found.group(1), found.group(2)
    if "std" in reading.text.lower() and cell.count("/") == 1:
        number, _, spread = cell.partition("/")
        return number, f"± {spread}"
    return cell, ""


def _read_aside(aside: str, reading: ColumnReading, fields: Fields, grid: Grid) -> bool:
    """Whether what stands beside a number could be read: a speedup, an acceptance, a deviation or a setting."""
    if reading.name == "gamma":
        settings = read_settings(aside)
        fields.values |= settings
        return bool(settings)
    if reading.name in _PAIRED and _read_pair(aside, fields, reading):
        return True
    if len(parts := re.split(r"[,;]\s+|\s[/|·]\s", aside)) > 1:
        return min([_read_aside(part, reading, fields, grid) for part in parts])  # each of them is tried
    try:
        value = parse_number(aside.removeprefix("± "), decimal_comma=grid.decimal_comma)
    except ValueError:
        return _read_named(aside.strip(), fields, grid)
    if value is None:
        return False
    if aside.startswith("±"):
        if reading.kind == "rate":
            fields.values.setdefault("decode_rate_sd", value.value)
        return True
    percent = value.unit == "%"
    if reading.name in {"decode_rate", "ms_per_token"} and percent and value.signed and value.value > -100:
        fields.beside = value, _left_out(aside, reading)
        return True
    if reading.name == "accepted" and (percent or (not value.unit and 0 < value.value <= 1)):
        return _read_as(heading_of("acceptance"), value, aside, fields)
    if reading.name == "change" and percent and value.signed:
        return _read_as(reading.heading, value, aside, fields)
    if reading.name == "decode_rate" and (value.unit == "x" or (percent and not value.signed)):
        return _read_as(heading_of("acceptance" if percent else "speedup"), value, aside, fields)
    return _read_named(aside.strip(), fields, grid)


_NAMED = re.compile(r"([a-zA-Zατγ][\w -]{0,30}?)?[ =:]{0,3}([0-9.]{1,8} ?[%x×]?) ?([a-zA-Zατγ][\w -]{0,30})?")


def _read_named(aside: str, fields: Fields, grid: Grid) -> bool:
    """Whether a text is a number with its name, `96% accept` or `tau 2.9`, that the row does not have already."""
    found = _NAMED.fullmatch(aside)
    if found is None or (found.group(1) is None) == (found.group(3) is None):
        return False
    heading, value = understand(found.group(1) or found.group(3)), number_in(found.group(2), grid)
    if heading is None or value is None or heading.name not in {"speedup", "acceptance", "tau", "acceptance_length"}:
        return False
    return _read_as(heading, value, aside, fields)


def _read_as(heading: Heading, value: Number, aside: str, fields: Fields) -> bool:
    """Whether a number can be what the heading says; it is put where the row has none."""
    if heading.name in fields.values:
        return True
    try:
        return read_cell(value, ColumnReading(-1, aside, heading, percent=value.value > 1), fields) is None
    except ValueError:
        return False


def _number(cell: str, reading: ColumnReading, grid: Grid) -> Number | None:
    try:
        return parse_number(cell, decimal_comma=grid.decimal_comma)
    except ValueError as error:
        if reading.name not in _NEEDED and (found := between(cell, reading, grid)) is not None:
            return found
        why = problem_of(error)
        raise UnreadableError("unread.cell", column=reading.text, cell=cell[:40], why=why) from None


def _text(cell: str) -> str:
    return cell.strip().strip("*_`★☆ ").strip()[:_LABEL]


def _spread_over_devices(texts: dict[str, str], readings: Sequence[ColumnReading], cells: list[str]) -> None:
    """Name a device as often as the row says that there are of it: their memories add up."""
    said = next((cells[one.index].strip() for one in readings if one.name == "devices"), "")
    if said.isdecimal() and 1 < int(said[:4]) <= _MAX_DEVICES:
        texts["device"] = ", ".join([texts.get("device") or "a device"] * int(said))


def _name_the_group(texts: dict[str, str], group: str) -> None:
    """A group is a data set, or a method beside others."""
    if not group:
        return
    if is_task(group):
        texts["group"] = group
    elif "method" not in texts and family_by_name(group) != "unknown":
        texts["method"] = group
    else:
        texts["group of columns"] = group


def _label(texts: dict[str, str], readings: Sequence[ColumnReading], cells: list[str], group: str) -> str:
    if texts.get("label"):
        return " / ".join(part for part in (texts["label"], group) if part)[:_LABEL]
    parts = [texts[name] for name in ("target", "quant", "draft", "method") if texts.get(name)]
    gamma = next((text for one in readings if one.name == "gamma" and (text := _text(cells[one.index]))), "")
    parts += [f"gamma {gamma}"] if gamma else []
    shown = ("label", "target", "quant", "draft", "method", "device", "engine", "reference", "architecture")
    shown += ("source_document", "source_place", "claim_notes", "rate_window")
    parts += [text for name, text in texts.items() if name not in shown and text and not name.startswith(OTHER)]
    return (" / ".join(parts) or texts.get("device", ""))[:_LABEL]


def _says_baseline(texts: dict[str, str]) -> bool:
    """A method that is none; without a method, a draft that is none, or a label that says baseline."""
    for name in ("method", "draft", "label"):
        if texts.get(name):
            return is_plain(texts[name])
    return False


def _told(texts: dict[str, str], readings: Sequence[ColumnReading], group: str) -> dict[str, Any]:
    """What the words of a row and its headings say about its numbers."""
    conditions = {name: texts[name] for name in (*CONDITIONS, "quant") if texts.get(name)}
    conditions |= {name.removeprefix(OTHER): text for name, text in texts.items() if name.startswith(OTHER)}
    if group:
        conditions["group"] = group
    whole = is_overall(group) and re.search(r"mean|average|avg|平均", group, re.I) is not None
    averaged = [one.name for one in readings if one.heading.averaged or (whole and not one.of_row)]
    names = {"change": "speedup", "acceptance_length": "tau"}
    averaged = [name for name in (names.get(name, name) for name in averaged) if name in _RATIOS]
    found: dict[str, Any] = {
        "target": texts.get("target"),
        "draft": None if is_plain(texts.get("draft", "none")) else texts.get("draft"),
        "engine": texts.get("engine"),
        "device": texts.get("device"),
        "document": texts.get("source_document"),
        "conditions": conditions,
        "averaged": tuple(dict.fromkeys(averaged)),
        "pooled": tuple(names.get(one.name, one.name) for one in readings if one.heading.pooled),
    }
    if texts.get("rate_window"):
        found["window"] = texts["rate_window"]
    if {"arm_id", "prompt_id"} <= {one.text for one in readings}:  # a request of `specmeter export`
        found |= {"runs": 1, "window": "all but the first"}
    return found


def _short_counts(fields: Fields, readings: Sequence[ColumnReading]) -> None:
    """`draft_n: 2` beside 412 accepted tokens is a draft length, though llama.cpp counts tokens by that name."""
    values = fields.values
    drafted, accepted = values.get("drafted"), values.get("accepted") or 0
    named = any(one.name == "drafted" and one.text == "draft_n" for one in readings)
    if named and "gamma" not in values and drafted and drafted <= _LONGEST_DRAFT and accepted > 2 * drafted:
        values["gamma"] = values.pop("drafted")


_LONGEST_DRAFT = 64


def _finish(fields: Fields, texts: dict[str, str], plain: bool, notes: list[Message | str]) -> None:
    """What follows from several cells together."""
    values, rounding = fields.values, fields.rounding
    method = " ".join(in_english(texts.get("method", "")).lower().split())
    if method and not plain:
        values["method"] = _METHODS.get(method, method)
    elif not plain and family_by_name(label := texts.get("label", "")) not in {"unknown", "none"}:
        values["method"] = label.lower()
    settings = read_settings(" ".join(texts.get(name, "") for name in ("label", "method", "group of columns")))
    for name, value in settings.items():
        if name not in values and not plain:
            values[name] = value
    if re.fullmatch(r"n\d{1,2}", group := texts.get("group of columns", "")):
        values.setdefault("gamma", int(group[1:]))
    if "gamma" in values:
        values["gamma"] = int(values["gamma"])
    if (width := values.pop("tree_width", None)) is not None:
        values["tree"] = width > 1
    plainly, its_half = values.pop("baseline_ms_per_token", None), rounding.pop("baseline_ms_per_token", 0.0)
    if plainly is not None and "baseline_rate" not in values:
        fields.put("baseline_rate", 1e3 / plainly, 1e3 / plainly * its_half / plainly)
    interval, half = _interval(fields, texts, plain, notes)
    if interval is not None and "decode_rate" not in values:
        values["decode_rate"] = 1e3 / interval
        rounding["decode_rate"] = values["decode_rate"] * half / interval
    if values.get("gamma") == 0 or plain:
        values["method"] = "none"
    if "experts" not in values:
        name = " ".join(text for key in ("architecture", "target", "label") if (text := texts.get(key)))
        values["mixture"] = mixture_of_experts(name)
    if values.get("predicted_n") == 0:
        # llama-bench and its descendants: a test of the prompt alone; its rate is not a decode rate.
        for key in ("decode_rate", "decode_rate_sd", "predicted_ms", "predicted_n"):
            values.pop(key, None)
    if "acceptance" not in values and values.get("drafted") and values.get("accepted") is not None:
        values["acceptance"] = values["accepted"] / values["drafted"]
    _finish_length(fields, notes)


def _interval(
    fields: Fields, texts: dict[str, str], plain: bool, notes: list[Message | str]
) -> tuple[float | None, float]:
    """(ms per token, half of its rounding). With drafts, a chunk of a stream is a step, not a token."""
    values, rounding = fields.values, fields.rounding
    per_token = values.pop("ms_per_token", None), rounding.pop("ms_per_token", 0.0)
    per_chunk = values.pop("inter_token_latency", None), rounding.pop("inter_token_latency", 0.0)
    if per_token[0] is not None or per_chunk[0] is None:
        return per_token
    drafts = not plain and values.get("gamma") != 0
    said = {"method", "gamma", "acceptance", "tau", "drafted", "accepted", "speedup"} & set(values)
    if drafts and (said or texts.get("draft") or fields.length is not None):
        notes.append(Message("read.inter_token_latency"))
        return None, 0.0
    return per_chunk


def _finish_length(fields: Fields, notes: list[Message | str]) -> None:
    """Make an acceptance length tokens per step, the target's own included where that is known."""
    length, values = fields.length, fields.values
    if length is None or "tau" in values:
        return
    without = _without_bonus(length, values)
    if without is None and length.value + length.half < 1:
        without = values.get("method") != "none" or length.value > 0
    if without:
        notes.append(Message("read.own_left_out"))
    fields.put("tau", max(1.0, length.value + bool(without)), length.half)
    if without is None:
        values["unit_unsaid"] = (*values.get("unit_unsaid", ()), "tau")


def _without_bonus(length: Number, values: dict[str, Any]) -> bool | None:
    """Whether a length leaves out the target's own token, by the row's own numbers; None where they do not show it."""
    if not values.get("steps") or values.get("accepted") is None:
        return None
    per_step = values["accepted"] / values["steps"]
    slack = length.half + 0.02
    with_bonus, without = abs(length.value - 1 - per_step) <= slack, abs(length.value - per_step) <= slack
    return None if with_bonus == without else without


def _settle_lengths(rows: list[ClaimRow]) -> None:
    """A baseline emits one token per forward: its acceptance length says what is counted in the whole table."""
    plain = {row.length for row in rows if row.claim.method == "none" and row.length is not None}
    if plain not in ({0.0}, {1.0}):
        return
    more = 1.0 - plain.pop()
    for row in rows:
        if row.length is not None and row.claim.tau is not None:
            unsaid = tuple(name for name in row.claim.unit_unsaid if name != "tau")
            tau = 1.0 if row.claim.method == "none" else row.length + more
            row.claim = row.claim.model_copy(update={"tau": max(1.0, tau), "unit_unsaid": unsaid})


_METHODS = {
    **dict.fromkeys(("draft", "draft model", "draft_model", "draft-model"), "draft-simple"),
    **dict.fromkeys(("eagle3", "eagle-3"), "draft-eagle3"),
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
}


# --- baselines --------------------------------------------------------------------------------------------------------

_ALIKE = ("target", "quant", "device", "engine", "group")
"""A baseline that differs in one of these is the baseline of something else."""


Changed = Literal["rates", "time", "ratio", "gain", "token time", "whole run"]
"""What a printed speedup may speak of: of rates; of times, as their change, their ratio, or what was gained; of the
time per token beside throughputs; of the whole run beside rates of decoding."""


@dataclass
class ClaimRow:
    """A claim with the texts of its row, by column."""

    claim: Claim
    texts: dict[str, str] = field(default_factory=dict[str, str])
    length: float | None = None
    """The printed acceptance length, where nothing says yet whether it counts the target's own token."""
    path: tuple[str, ...] = ()
    """Keys and positions of the JSON that the row lies in."""
    speaks_of: tuple[Changed, str] = ("rates", "")
    """What the printed speedup may be that of, and its heading."""


def pair_with_baselines(rows: Sequence[ClaimRow]) -> None:
    """Give rows the rate of their baseline, and of their draft where the table has it as a target of its own.

    Where several baselines fit (repeats, prompts), their mean is taken, and the rounding covers them all.
    """
    plain = [row for row in rows if row.claim.method == "none" and row.claim.decode_rate is not None]
    by_label: dict[str, list[ClaimRow]] = {}
    for row in rows:
        if row.claim.decode_rate is not None and row.claim.label:
            by_label.setdefault(row.claim.label.lower(), []).append(row)
    groups: dict[tuple[object, ...], list[ClaimRow]] = {}
    anywhere: dict[tuple[object, ...], ClaimRow] = {}
    targets: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in plain:
        groups.setdefault(_like_key(row), []).append(row)
        if row.texts.get("device"):
            anywhere.setdefault(_like_key(row, but="device"), row)
        if row.texts.get("target"):
            targets.setdefault((row.texts["target"].lower(), row.texts.get("device", "").lower()), []).append(row)
    parts: Parts = {}
    means: dict[int, _Mean] = {}
    """By the identity of the list: thousands of rows may share one."""

    def mean(found: list[ClaimRow]) -> _Mean:
        if id(found) not in means:
            means[id(found)] = _together(found)
        return means[id(found)]

    for row in rows:
        if row.claim.method == "none" or row.claim.problem is not None:
            continue
        update: dict[str, object] = {}
        rounding = dict(row.claim.rounding)
        notes = list(row.claim.notes)
        if row.claim.baseline_rate is None:
            reference = row.texts.get("reference", "").lower()
            group = groups.get(_like_key(row), [])
            found = by_label.get(reference, []) if reference else _beside(row, _nearest(row, group, parts), parts)
            if found:
                update, rounding["baseline_rate"] = _baseline(row, found, mean(found))
                if len(found) > 1:
                    notes.append(Message("read.mean_baseline", rows=len(found)))
            elif not group and not reference and (other := anywhere.get(_like_key(row, but="device"))) is not None:
                notes.append(Message("read.baseline_elsewhere", row=other.claim.row, device=other.texts["device"]))
        draft = row.texts.get("draft", "").lower()
        if row.claim.draft_rate is None and draft:
            found = targets.get((draft, row.texts.get("device", "").lower()), [])
            if found:
                update["draft_rate"], rounding["draft_rate"] = mean(found).rate, mean(found).half
        if update or len(notes) > len(row.claim.notes):
            row.claim = row.claim.model_copy(update={**update, "rounding": rounding, "notes": tuple(notes)})
    _pair_times(rows)
    for row in rows:
        _settle_speedup(row)


def _pair_times(rows: Sequence[ClaimRow]) -> None:
    """Give rows that print the change of a whole run's time that of their baseline."""
    plain: dict[tuple[object, ...], list[ClaimRow]] = {}
    for row in rows:
        if row.claim.method == "none" and row.claim.wall_ms is not None:
            plain.setdefault(_like_key(row), []).append(row)
    parts: Parts = {}
    for row in rows if plain else ():
        claim = row.claim
        if claim.wall_ms and claim.speedup and not (claim.decode_rate or claim.baseline_wall_ms):
            found = _beside(row, _nearest(row, plain.get(_like_key(row), []), parts), parts)
            if found and row.speaks_of[0] != "rates":
                mean = fmean(one.claim.wall_ms or 0.0 for one in found)
                row.claim = claim.model_copy(update={"baseline_wall_ms": mean})


def _settle_speedup(row: ClaimRow) -> None:
    """Read a printed speedup as that of times, or leave it out, where it speaks of something else than the rates."""
    claim, (of, column) = row.claim, row.speaks_of
    if of == "rates" or (said := claim.speedup) is None:
        return
    if claim.decode_rate and claim.baseline_rate:
        ratio = claim.decode_rate / claim.baseline_rate
    elif claim.wall_ms and claim.baseline_wall_ms:
        ratio = claim.baseline_wall_ms / claim.wall_ms
    else:
        if of == "ratio" or (of == "time" and said < 1):
            note = Message("read.change_of_what", column=column)
            row.claim = claim.model_copy(update={"speedup": None, "notes": (*claim.notes, note)})
        return
    if of in {"whole run", "token time"}:
        between = 1 <= said < ratio or ratio < said <= 1  # what prompts make of it
        if max(said / ratio, ratio / said) > SAME_RATIO and (between or of == "token time"):
            other = ("baseline_rate", "baseline_from") if of == "token time" and said < ratio else ("speedup",)
            note = Message("read.other_speedup", column=column)
            row.claim = claim.model_copy(update={**dict.fromkeys(other), "notes": (*claim.notes, note)})
        return
    half = claim.rounding.get("speedup", 0.0)
    meanings = [(said, half)]
    if of != "gain" or said < 1:
        meanings.append((1 / said, half / said**2))
    if of != "ratio" and 1 < said < 2:
        meanings.append((1 / (2 - said), half / (2 - said) ** 2))
    speedup, half = min(meanings, key=lambda meaning: abs(log(meaning[0] / ratio)))
    if speedup != said:
        note = Message("read.change_of_time", column=column, speedup=speedup)
        update = {"speedup": speedup, "rounding": {**claim.rounding, "speedup": half}, "notes": (*claim.notes, note)}
        row.claim = claim.model_copy(update=update)


def _like_key(row: ClaimRow, but: str = "") -> tuple[object, ...]:
    return (*(row.texts.get(name, "").lower() for name in _ALIKE if name != but), row.claim.concurrency)


Parts = dict[tuple[int, str], dict[str | tuple[str, ...] | None, list[ClaimRow]]]
"""(identity of a list of rows, name of a text) -> the rows of that list by this text, each made once."""


def _nearest(row: ClaimRow, baselines: list[ClaimRow], parts: Parts) -> list[ClaimRow]:
    """Those measured under the same conditions, as far as any of them was; of several other benchmarks, none."""
    for name in (*CONDITIONS, *(name for name in row.texts if name.startswith(OTHER))):
        if baselines and (name in row.texts or name in BENCHMARKS):
            if (id(baselines), name) not in parts:
                by_text = parts[id(baselines), name] = {}
                for baseline in baselines:
                    by_text.setdefault(baseline.texts.get(name), []).append(baseline)
            by_text = parts[id(baselines), name]
            otherwise = baselines if name not in BENCHMARKS or len(by_text) == 1 else by_text.get(None, [])
            baselines = by_text.get(row.texts.get(name)) or otherwise
    return baselines


def _beside(row: ClaimRow, baselines: list[ClaimRow], parts: Parts) -> list[ClaimRow]:
    """Of baselines in nested JSON those in the innermost list or object that holds the row, too.

    None where that holds them in parts of other names than the row's, which may be other models or benchmarks; but for
    parts called by what nothing is drafted in, and rows that name their target.
    """
    if not baselines:
        return baselines
    if (id(baselines), _INSIDE) not in parts:
        by_prefix = parts[id(baselines), _INSIDE] = {}
        for one in baselines:
            for depth in range(len(one.path) + 1):
                by_prefix.setdefault(one.path[:depth], []).append(one)
    inside = parts[id(baselines), _INSIDE]
    deepest = next(depth for depth in range(len(row.path), -1, -1) if row.path[:depth] in inside)
    near = inside[row.path[:deepest]]
    apart = {one.path[deepest:] for one in near}
    alike = len({tuple(key for key in part if not key.isdecimal()) for part in apart}) == 1
    around = len(row.path) == deepest or apart == {()}
    plain = all(part and is_plain(part[0]) for part in apart)
    return near if alike and (around or plain or row.texts.get("target")) else []


_INSIDE = "inside"
"""Under which `Parts` holds baselines by every list or object around them."""


@dataclass(frozen=True)
class _Mean:
    """Of the rates of some rows."""

    rate: float
    half: float
    """How far from it any of them may lie, rounding included."""
    sd: float | None


def _baseline(row: ClaimRow, found: list[ClaimRow], mean: _Mean) -> tuple[dict[str, object], float]:
    """(fields about the baseline, half of its rounding)."""
    update: dict[str, object] = {
        "baseline_rate": mean.rate,
        "baseline_from": found[0].claim.row if len(found) == 1 else f"mean of {len(found)} rows",
    }
    if mean.sd is not None:
        update["baseline_rate_sd"] = mean.sd
    elif found[0].claim.decode_rate_sd is not None:
        update["baseline_rate_sd"] = found[0].claim.decode_rate_sd
    machines = [it.device or _machine_in(it.label) for it in (found[0].claim, row.claim)]
    return update | _two_machines(*machines), mean.half


def _two_machines(plain: str | None, drafts: str | None) -> dict[str, object]:
    """Where the baseline was measured on another machine, both of them."""
    if not plain or not drafts or plain.lower() == drafts.lower():
        return {}
    return {"baseline_device": plain, "device": drafts}


_AT_THE_END = re.compile(r"(?:[(\[,]|\bon )\s*([A-Za-z][^()\[\],]{1,40}?)[)\]]?\s*$")


def _machine_in(text: str) -> str | None:
    """The machine that a label or heading ends with, `baseline (RTX 3090)`, by its name in the catalogue."""
    found = _AT_THE_END.search(text)
    return found.group(1) if found is not None and catalogue.peak(found.group(1)) is not None else None


def _together(rows: list[ClaimRow]) -> _Mean:
    rates = [row.claim.decode_rate or 0.0 for row in rows]
    mean = fmean(rates)
    halves = [row.claim.rounding.get("decode_rate", 0.0) for row in rows]
    half = max(abs(rate - mean) + half for rate, half in zip(rates, halves, strict=True))
    return _Mean(mean, half, stdev(rates) if len(rates) > 1 else None)
