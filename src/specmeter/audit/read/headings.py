"""The columns of one table: which headings are understood, what each speaks of, and in which unit its shares are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from specmeter.audit.claim import family_by_name, read_settings
from specmeter.audit.read import options
from specmeter.audit.read.columns import (
    COLUMNS,
    OTHER,
    Heading,
    column,
    heading_of,
    in_group,
    is_of_one_position,
    is_overall,
    is_plain,
    is_task,
    may_be_group,
    requests_at_once,
    understand,
)
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.infer_units import (
    WITH_RATE,
    ColumnReading,
    TableOptions,
    all_numbers,
    first_of,
    holds_what_it_says,
    infer_changes,
    infer_draft_lengths,
    infer_draft_rates,
    infer_draft_tokens,
    infer_methods,
    infer_percent,
    infer_ratios,
    is_of_quality,
    may_be_a_length,
    number_in,
    old_options,
    without_vague_times,
)
from specmeter.errors import UsageError
from specmeter.messages import Message

_ASIDE = frozenset({"prompt_rate", "prompt_rate_sd", "perplexity", "perplexity_sd", "repeat"})
"""Columns that no bound rests on: of several alike the first is read."""
PAIR = re.compile(r"\s*[*_`]*([0-9][0-9,]{0,15})\s*/\s*([0-9][0-9,]{0,15})[*_`]*\s*(?:\([^()]{0,40}\))?")
BOTH_COUNTS = re.compile(r"accept.*(?:draft|propos|generat)", re.I)


@dataclass
class Headings:
    """The columns of a table that are understood."""

    readings: list[ColumnReading]
    notes: tuple[Message, ...] = ()
    """What to say about the others, and about units."""

    def sets(self) -> list[tuple[str, list[ColumnReading]]]:
        """(group, its columns with those of the row) for each claim that a row makes.

        A single group is the row itself. Of several, columns that speak of none belong to the one that sums up the
        others (`Overall`), or make a claim of their own.
        """
        own = self._own_baselines()
        shared = [reading for reading in self.readings if reading.of_row and reading not in own]
        groups: dict[str, list[ColumnReading]] = {}
        for reading in self.readings:
            if not reading.of_row or reading in own:
                groups.setdefault(reading.group, []).append(reading)
        alone = groups.pop("", [])
        _join_short_names(groups)
        if len(groups) <= 1:
            inner = next(iter(groups.values()), list[ColumnReading]())
            names = {reading.name for reading in inner}
            if not names & {reading.name for reading in alone}:
                return [("", [*shared, *alone, *inner])]
        overall = next((group for group in groups if is_overall(group)), None)
        names = {one.name for one in alone}
        if overall is not None and not names & {one.name for one in groups[overall]}:
            groups[overall] += alone
        elif all(requests_at_once(name) and not names & {one.name for one in group} for name, group in groups.items()):
            groups = {name: [*alone, *group] for name, group in groups.items()}  # an acceptance, at any load
        elif alone:
            groups = {"": alone, **groups}
        return [(group, [*shared, *readings]) for group, readings in groups.items()]

    def _own_baselines(self) -> list[ColumnReading]:
        """Baselines that groups have each for themselves: `Base` under `Code` and again under `Chat`."""
        found = [one for one in self.readings if one.name == "baseline_rate" and one.group]
        return found if len(found) > 1 else []


def _join_short_names(groups: dict[str, list[ColumnReading]]) -> None:
    """`Q4 x` and `Q4 Accept` beside `MTP Q4 t/s` speak of the same."""
    for short in list(groups):
        longer = [name for name in groups if name != short and re.search(rf"(?:^|\W){re.escape(short)}$", name)]
        if len(longer) == 1 and not {one.name for one in groups[short]} & {one.name for one in groups[longer[0]]}:
            groups[longer[0]] += groups.pop(short)


def refuse_unknown_names(grids: Sequence[Grid], path: Path, given: TableOptions | options.TableOptions) -> None:
    """Raises `UsageError` for an option that names a heading which no table of the file has."""
    texts: dict[str, None] = {}
    for grid in grids:
        texts |= dict.fromkeys([*grid.headings, *(" ".join(part) for part in _with_prefixes(grid.parts))])
    if isinstance(given, options.TableOptions):
        given.refuse_unknown(texts, path)


def read_headings(grid: Grid, path: Path, given: TableOptions | options.TableOptions) -> Headings:
    """The columns of a grid. Without any that holds numbers, there are no readings.

    Raises `UsageError` where two columns are the same thing.
    """
    where = f"{path}, {grid.place}" if grid.place else str(path)
    said = old_options(given)
    grid.parts = _with_prefixes(grid.parts)
    readings, unknown = _understood(grid, said)
    _tell_counts(grid, readings, unknown)
    readings = without_vague_times(grid, readings, unknown)
    readings = _without_clashes(readings, unknown, where)
    readings = [reading for reading in readings if holds_what_it_says(grid, reading, unknown)]
    if any("accept" in sentence.lower() and is_of_one_position(sentence) for sentence in grid.above.split(". ")):
        unknown += [one.text for one in readings if one.name == "acceptance"]
        readings = [one for one in readings if one.name != "acceptance"]
    if all(reading.kind == "text" or reading.name in _ASIDE for reading in readings):
        return Headings([])
    beside = [*unknown, *(one.text for one in readings if one.name == "perplexity")]
    readings = [reading for reading in readings if not is_of_quality(reading, beside, unknown)]
    whose = infer_draft_rates(grid, readings)
    readings = [reading for reading in readings if reading is not whose]
    infer_methods(grid, readings)
    infer_draft_lengths(grid, readings)
    infer_draft_tokens(grid, readings)
    infer_changes(grid, readings)
    readings = infer_ratios(readings, unknown)
    open_units = [reading for reading in readings if may_be_a_length(grid, reading, readings, said)]
    readings = [reading for reading in readings if reading not in open_units]
    for reading in readings:
        infer_percent(grid, reading, readings, said)
    unread = [text for text in unknown if _may_be_speed(grid, text)]
    unread += [] if whose is None else [whose.text]
    lengths = [text for text in unknown if text.strip("*_` ").lower() == "n"]
    lengths = [] if any(it.name == "gamma" for it in readings) else lengths
    other = [text for text in unknown if text not in (*unread, *lengths)]
    notes = [Message("read.columns_left", columns=[name[:40] for name in other[:20]])] if other else []
    if unread:
        notes.append(Message("read.rates_left", columns=[name[:40] for name in unread[:8]]))
    if lengths:
        notes.append(Message("read.n_left"))
    notes += [Message("read.as_fraction", column=reading.text) for reading in readings if reading.unsaid]
    notes += [Message("read.both_units", column=it.text, how=it.mixture) for it in readings if it.mixture]
    notes += [Message("read.open_unit", column=reading.text) for reading in open_units]
    return Headings(readings, tuple(notes))


_SPEED = re.compile(
    r"\b(?:toks?|tokens?|t)(?:[/\\_]| per |_per_)s(?:ec(?:ond)?)?\b|\btps\b|tpot|speed|throughput|ms ?/ ?tok|decod|加速"
    r"|速度|吞吐",
    re.I,
)
_OF_PROMPTS = re.compile(r"\b(?:pp\d*|prompt|prefill|input|req\w*|draft)\b|预填|提示", re.I)


def _may_be_speed(grid: Grid, text: str) -> bool:
    """Whether a column that was not read may hold speeds of decoding, by its heading or its cells."""
    index = grid.headings.index(text) if text in grid.headings else None
    cells = [] if index is None else grid.filled(index)
    by_cells = bool(cells) and all(WITH_RATE.fullmatch(cell) for cell in cells)
    return (by_cells or _SPEED.search(text) is not None) and _OF_PROMPTS.search(text.replace("_", " ")) is None


def _understood(grid: Grid, options: TableOptions) -> tuple[list[ColumnReading], list[str]]:
    chosen = _chosen(grid, options)
    found: list[ColumnReading] = []
    open_columns: list[int] = []
    for index, part in enumerate(grid.parts):
        text = " ".join(part)
        if index in chosen:
            found.append(ColumnReading(index, text, chosen[index]))
        elif (said := _base_or_spec(grid, index, part)) is not None or (
            (said := _by_levels(part)) is not None and said[1].name not in options.columns
        ):
            group, heading = said
            if is_plain(group) and not heading.of_row:
                open_columns.append(index)
                continue
            found.append(ColumnReading(index, text, heading, group))
        else:
            open_columns.append(index)
    if 0 in open_columns and not {one.name for one in found} & {"label", "method", "draft"} and _names_rows(grid):
        open_columns.remove(0)
        found.append(ColumnReading(0, " ".join(grid.parts[0]), heading_of("label")))
    beside_baseline = any(reading.name == "baseline_rate" for reading in found)
    among_plain = _has_plain_row(grid, found)
    has_rate = any(reading.name in {"decode_rate", "ms_per_token"} for reading in found)
    unknown: list[str] = []
    for index in open_columns:
        text = " ".join(grid.parts[index])
        said = in_group(text, beside_baseline=beside_baseline or among_plain)
        if said is None or not all_numbers(grid, index):
            beside, among = beside_baseline and not has_rate, among_plain and not has_rate
            said = _by_cells(grid, index, text, beside_baseline=beside, among_plain=among)
        if said is not None and said[1].name not in options.columns:
            found.append(ColumnReading(index, text, said[1], said[0]))
        elif _is_length(grid, index, found):
            found.append(ColumnReading(index, text, heading_of("gamma")))
        elif text and _tells_rows_apart(grid, index):
            found.append(ColumnReading(index, text, Heading(OTHER + text[:40], None, "")))
        elif text:
            unknown.append(text)
    if any(requests_at_once(one.group) is not None for one in found) and not grid.headings[0]:
        found.append(ColumnReading(0, "", heading_of("label")))
    return sorted(found, key=lambda reading: reading.index), unknown


def _names_rows(grid: Grid) -> bool:
    """Whether the first column, whatever it is called, says what rows are: one of them is the baseline, in a word
    that is not the value of a setting."""
    words = [cells[0].strip("*_` ") for _, cells in grid.rows if cells[0].strip()]
    named = (
        is_plain(word) and not re.fullmatch(r"no|none|off|disabled|original|reference|ar", word, re.I) for word in words
    )
    return all(re.match(r"[^\W\d]", word) for word in words) and any(named)


def _chosen(grid: Grid, options: TableOptions) -> dict[int, Heading]:
    """Columns that `--column` names. Raises `UsageError` for names that are not there."""
    found: dict[int, Heading] = {}
    for name, text in options.columns.items():
        known = column(name)
        if known is None:
            names = ", ".join(item.name for item in COLUMNS)
            raise UsageError(f"--column {name}: no such column {name!r}", fix=f"use one of {names}")
        if text in grid.headings:
            said = understand(text)
            found[grid.headings.index(text)] = Heading(known.name, known, said.unit if said else "")
    return found


def _by_levels(part: tuple[str, ...]) -> tuple[str, Heading] | None:
    """(group, heading) of a heading on one or several levels: `HumanEval` above `Speedup`, or the other way round."""
    if (whole := understand(" ".join(part))) is not None:
        return "", whole
    for cut in range(1, len(part)):
        upper, lower = " ".join(part[:cut]), " ".join(part[cut:])
        for group, text in ((upper, lower), (lower, upper)):
            heading = understand(text)
            if heading is not None and may_be_group(group):
                return ("" if heading.kind == "text" else group), heading
    return None


def _base_or_spec(grid: Grid, index: int, part: tuple[str, ...]) -> tuple[str, Heading] | None:
    """Rates under the name of a data set, called by how they were decoded: `Code` above `Base` and `Spec`."""
    if len(part) != 2 or not is_task(part[0]) or not all_numbers(grid, index):
        return None
    if is_plain(part[1]):
        return part[0][:80], heading_of("baseline_rate")
    said = understand(part[1])
    if said is not None and said.name == "method" and not said.unit:
        return part[0][:80], heading_of("decode_rate")
    return None


def _by_cells(
    grid: Grid, index: int, text: str, *, beside_baseline: bool, among_plain: bool
) -> tuple[str, Heading] | None:
    """What a heading that names a method or data set alone says, by its cells: rates, or speedups (`2.85x`).

    Numbers without a unit are rates where nothing else is, beside a column or row of the baseline.
    """
    texts = grid.filled(index)
    if texts and all(WITH_RATE.fullmatch(cell) for cell in texts):
        plain = is_plain(text)
        name = "baseline_rate" if plain else "decode_rate"
        return ("" if plain else text[:80]), heading_of(name)
    named = (
        family_by_name(text) != "unknown"
        or read_settings(text) != {}
        or re.fullmatch(r"n\d{1,2}", text.strip()) is not None
    )
    load, task = requests_at_once(text) is not None, is_task(text)
    rated = (beside_baseline and (named or load)) or (among_plain and (task or load))
    if not rated and not task:  # of a wide table most columns: their cells are not read for it
        return None
    numbers_read = [number for cell in texts if (number := number_in(first_of(cell), grid)) is not None]
    if numbers_read and task and all(number.unit == "x" for number in numbers_read):
        return text[:80], heading_of("speedup")
    bare = all(not number.unit for number in numbers_read) and max((it.value for it in numbers_read), default=0.0) > 1
    return (text[:80], heading_of("decode_rate")) if bare and rated and not _COUNTED.search(text) else None


def _is_length(grid: Grid, index: int, found: list[ColumnReading]) -> bool:
    """Whether a column called `n` is the draft length, rather than a number of samples: plain rows have none, or 0, and
    the others a few tokens; or it grows from row to row, beside an acceptance.
    """
    names = {one.name for one in found}
    filled = grid.filled(index)
    if " ".join(grid.parts[index]).strip("*_` ").lower() != "n" or "gamma" in names:
        return False
    if not filled or not all(re.fullmatch(r"\d|[1-5]\d", cell.strip()) for cell in filled):
        return False
    named = [one.index for one in found if one.name in {"label", "method", "draft"}]
    plain = [cells[index].strip(" -–—") for _, cells in grid.rows if any(is_plain(cells[at]) for at in named)]
    if plain:
        return set(plain) <= {"", "0"}
    lengths = [int(cell) for cell in filled]
    grows = all(less < more for less, more in pairwise(lengths))
    return grows and len(lengths) >= _MIN_LENGTHS and bool(names & {"acceptance", "acceptance_length", "tau"})


_MIN_LENGTHS = 3
"""Rows, at least, that show a column to be draft lengths by growing."""


_COUNTED = re.compile(r"accept|/ *\d+ *$|τ|\btau\b|\blen", re.I)
"""Of a heading that begins with a method and continues with tokens, not with a rate: `DFlash2 accepted/8`."""


def _tells_rows_apart(grid: Grid, index: int) -> bool:
    """Whether a column that is not known has a few words for many rows, and so says under what conditions they are."""
    words = [cells[index].strip() for _, cells in grid.rows]
    return bool(words) and all(re.match(r"[*_`]*[^\W\d]", word) for word in words) and len(set(words)) < len(words)


def _has_plain_row(grid: Grid, found: list[ColumnReading]) -> bool:
    """Whether a row says that nothing was drafted."""
    lengths = [one.index for one in found if one.name == "gamma"]
    columns = [one.index for one in found if one.name in {"label", "method", "draft", "gamma"}]
    plain = (is_plain(cells[index]) for _, cells in grid.rows for index in columns)
    return any(plain) or any(cells[index].strip("*_` ") == "0" for _, cells in grid.rows for index in lengths)


def _with_prefixes(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Headings of which some name a group for those after them: `spec off: TTFT`, `t/s`, `MTP: TTFT`, `t/s`."""
    texts = [" ".join(part) for part in parts]
    named = [re.fullmatch(r"([^:]{2,40}):\s+(\S.{0,40})", text) for text in texts]
    if sum(match is not None for match in named) < 2 or len(set(texts)) == len(texts):
        return parts
    group, found = "", list[tuple[str, ...]]()
    for part, text, match in zip(parts, texts, named, strict=True):
        group = match.group(1) if match else group
        own = match.group(2) if match else text
        found.append((group, own) if group and texts.count(text) + (match is not None) > 1 else part)
    return found


def _without_clashes(readings: list[ColumnReading], unknown: list[str], where: str) -> list[ColumnReading]:
    """Each column once in its group; columns distinguished by their parentheses (`Speedup (MTP)`) are groups of their
    own.

    Raises `UsageError` for two columns of numbers that are the same thing.
    """
    by_name: dict[tuple[str, str], list[ColumnReading]] = {}
    for reading in readings:
        by_name.setdefault((reading.group, reading.name), []).append(reading)
    kept: list[ColumnReading] = []
    for same in by_name.values():
        first = same[0]
        if len(same) == 1:
            kept.append(first)
        elif first.kind == "text" or first.name in _ASIDE:
            kept.append(first)
            unknown += [reading.text for reading in same[1:]]
        elif len({_in_parentheses(reading.text) for reading in same} - {""}) == len(same) and not first.of_row:
            for reading in same:
                reading.group = _in_parentheses(reading.text)
            kept += same
        else:
            texts = f"{first.text!r} and {same[1].text!r}"
            both = f"both {texts} are" if first.text != same[1].text else f"two columns {first.text!r} are"
            raise UsageError(
                f"{where}: {both} read as {first.name}",
                fix=f"rename one of them, or say with --column HEADING={first.name} which it is",
            )
    return sorted(kept, key=lambda reading: reading.index)


def _tell_counts(grid: Grid, readings: list[ColumnReading], unknown: list[str]) -> None:
    """Read `accepted/drafted` as the counts that its cells are, `67/69`, so that a share may stand beside it; and a
    `rate` beside both counts as their share, where half of its cells say so.
    """
    by_name = {one.name: one for one in readings}
    both = by_name.get("accepted"), by_name.get("drafted")
    for reading in readings if both[0] is None else ():
        pairs = any(map(PAIR.fullmatch, grid.filled(reading.index)))
        if reading.name == "acceptance" and BOTH_COUNTS.search(reading.text) and pairs:
            reading.heading = heading_of("accepted")
            if both[1] is not None:  # the cells say how many were drafted: `draft-n` is a setting
                both[1].heading = heading_of("gamma")
            return
    rate = next((text for text in unknown if text.strip("*_` ").lower() in {"rate", "ratio"}), None)
    if None in both or rate is None or "acceptance" in by_name or rate not in grid.headings:
        return
    index = grid.headings.index(rate)
    agree = list[bool]()
    for _, cells in grid.rows:
        taken, drafted, said = (number_in(cells[at.index if at else index], grid) for at in (*both, None))
        if taken and drafted and said and drafted.value:
            share = said.value / 100 if said.unit == "%" or said.value > 1 else said.value
            agree.append(said.unit in {"", "%"} and abs(share - taken.value / drafted.value) < _SAME_SHARE)
    if agree and 2 * sum(agree) >= len(agree):
        unknown.remove(rate)
        readings.append(ColumnReading(index, rate, heading_of("acceptance")))


_SAME_SHARE = 0.01


def _in_parentheses(text: str) -> str:
    found = re.search(r"[(\[]([^)\]]{1,60})[)\]]\s*$", text)
    return "" if found is None or re.fullmatch(r"[%x×]|.*/s|ms|s", found.group(1).strip()) else found.group(1).strip()
