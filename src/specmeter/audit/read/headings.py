"""The columns of one table: which headings are understood, what each speaks of, and in which unit its shares are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specmeter.audit.methods import family
from specmeter.audit.read import numbers
from specmeter.audit.read.baselines import is_plain
from specmeter.audit.read.cells import Reading
from specmeter.audit.read.columns import (
    COLUMNS,
    OTHER,
    Heading,
    column,
    in_group,
    is_overall,
    is_task,
    may_be_group,
    understand,
)
from specmeter.audit.read.grid import Grid
from specmeter.errors import UsageError

_MOST_GAMMA = 128
"""More draft tokens than this are no draft's length."""
_MOST_SPEEDUP = 10
"""A larger number without a sign of its unit, among negative ones, is percent."""
_ASIDE = frozenset({"prompt_rate", "prompt_rate_sd", "perplexity", "perplexity_sd", "repeat"})
"""Columns that no bound rests on: of several alike the first is read."""
_JUST_ABOVE_ALL = 1.2
"""A share among fractions may be a little above 1 by mistake; what is more is percent."""


@dataclass(frozen=True)
class TableOptions:
    """What a user says about a table that the table does not say itself."""

    percent: tuple[str, ...] = ()
    """Headings whose values are percent."""
    fraction: tuple[str, ...] = ()
    """Headings whose values are fractions."""
    columns: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a column (`decode_rate`) -> heading to read it from."""


def table_options(
    percent: Sequence[str] = (), fraction: Sequence[str] = (), columns: Mapping[str, str] | None = None
) -> TableOptions:
    """What was said, with our names of the columns. Raises `UsageError` for an unknown name, and for a heading that is
    said to be in percent and a fraction."""
    chosen: dict[str, str] = {}
    for name, heading in (columns or {}).items():
        known = column(name.strip())
        if known is None or not heading:
            raise UsageError(
                f"--column {f'{name}={heading}'!r}: not of the form NAME=HEADING with a known NAME",
                fix=f"NAME is one of {', '.join(column.name for column in COLUMNS)}",
            )
        chosen[known.name] = heading
    if both := set(percent) & set(fraction):
        raise UsageError(f"--percent and --fraction both name {min(both)!r}", fix="a column is one of the two")
    return TableOptions(tuple(percent), tuple(fraction), chosen)


@dataclass
class Headings:
    """The columns of a table that are understood."""

    readings: list[Reading]
    notes: tuple[str, ...] = ()
    """What to say about the others, and about units."""

    def sets(self) -> list[tuple[str, list[Reading]]]:
        """(group, its columns with those of the row) for each claim that a row makes.

        A single group is the row itself. Of several, columns that speak of none belong to the one that sums up the
        others (`Overall`), or make a claim of their own.
        """
        own = self._own_baselines()
        shared = [reading for reading in self.readings if reading.of_row and reading not in own]
        groups: dict[str, list[Reading]] = {}
        for reading in self.readings:
            if not reading.of_row or reading in own:
                groups.setdefault(reading.group, []).append(reading)
        alone = groups.pop("", [])
        _join_short_names(groups)
        if len(groups) <= 1:
            inner = next(iter(groups.values()), list[Reading]())
            names = {reading.name for reading in inner}
            if not names & {reading.name for reading in alone}:
                return [("", [*shared, *alone, *inner])]
        overall = next((group for group in groups if is_overall(group)), None)
        if overall is not None and not {one.name for one in alone} & {one.name for one in groups[overall]}:
            groups[overall] += alone
        elif alone:
            groups = {"": alone, **groups}
        return [(group, [*shared, *readings]) for group, readings in groups.items()]

    def _own_baselines(self) -> list[Reading]:
        """Baselines that groups have each for themselves: `Base` under `Code` and again under `Chat`."""
        found = [one for one in self.readings if one.name == "baseline_rate" and one.group]
        return found if len(found) > 1 else []


def _join_short_names(groups: dict[str, list[Reading]]) -> None:
    """`Q4 x` and `Q4 Accept` beside `MTP Q4 t/s` speak of the same."""
    for short in list(groups):
        longer = [name for name in groups if name != short and re.search(rf"(?:^|\W){re.escape(short)}$", name)]
        if len(longer) == 1 and not {one.name for one in groups[short]} & {one.name for one in groups[longer[0]]}:
            groups[longer[0]] += groups.pop(short)


def refuse_unknown_names(grids: Sequence[Grid], path: Path, options: TableOptions) -> None:
    """Raises `UsageError` for an option that names a heading which no table of the file has."""
    texts: dict[str, None] = {}
    for grid in grids:
        texts |= dict.fromkeys([*grid.headings, *(" ".join(part) for part in _with_prefixes(grid.parts))])
    there = ", ".join(repr(text[:40]) for text in list(texts)[:12])
    known = {heading.name for text in texts if (heading := understand(text)) is not None} | set(options.columns)
    asked = [(f"--column {name}={text}", text in texts) for name, text in options.columns.items()]
    for flag, names in (("--percent", options.percent), ("--fraction", options.fraction)):
        asked += [(f"{flag} {name}", name in texts or name in known) for name in names]
    for option, found in asked:
        if not found:
            raise UsageError(f"{path}: {option[:80]}: there is no such heading", fix=f"use one of {there}")


def read_headings(grid: Grid, path: Path, options: TableOptions) -> Headings:
    """The columns of a grid. Without any that holds numbers, there are no readings.

    Raises `UsageError` where two columns are the same thing.
    """
    where = f"{path}, {grid.place}" if grid.place else str(path)
    grid.parts = _with_prefixes(grid.parts)
    readings, unknown = _understood(grid, options)
    readings = _without_vague_times(grid, readings, unknown)
    readings = _without_clashes(readings, unknown, where)
    readings = [reading for reading in readings if _holds_what_it_says(grid, reading, unknown)]
    if all(reading.kind == "text" or reading.name in _ASIDE for reading in readings):
        return Headings([])
    beside = [*unknown, *(one.text for one in readings if one.name == "perplexity")]
    readings = [reading for reading in readings if not _is_of_quality(reading, beside, unknown)]
    _settle_methods(grid, readings)
    _settle_draft_tokens(grid, readings)
    _settle_changes(grid, readings)
    readings = _settle_ratios(readings, unknown)
    open_units = [reading for reading in readings if _may_be_a_length(grid, reading, readings, options)]
    readings = [reading for reading in readings if reading not in open_units]
    for reading in readings:
        _settle_percent(grid, reading, readings, options)
    notes = [f"columns not read: {', '.join(name[:40] for name in unknown[:20])}"] if unknown else []
    notes += [
        f"{reading.text!r} is read as a fraction where it has no %: nothing says that it is percent"
        for reading in readings
        if reading.unsaid
    ]
    notes += [
        f"{reading.text!r} is not read: percent, or tokens per step? (--percent {reading.text!r}, or "
        f"--column acceptance_length={reading.text!r})"
        for reading in open_units
    ]
    return Headings(readings, tuple(notes))


def _understood(grid: Grid, options: TableOptions) -> tuple[list[Reading], list[str]]:
    chosen = _chosen(grid, options)
    found: list[Reading] = []
    open_columns: list[int] = []
    for index, part in enumerate(grid.parts):
        text = " ".join(part)
        if index in chosen:
            found.append(Reading(index, text, chosen[index]))
        elif (said := _base_or_spec(grid, index, part)) is not None or (
            (said := _by_levels(part)) is not None and said[1].name not in options.columns
        ):
            group, heading = said
            if heading.name == "decode_rate" and is_plain(group or _in_parentheses(text) or "-"):
                known = column("baseline_rate")
                group, heading = "", Heading("baseline_rate", known, "")
            elif is_plain(group) and heading.column is not None and not heading.column.of_row:
                open_columns.append(index)
                continue
            found.append(Reading(index, text, heading, group))
        else:
            open_columns.append(index)
    beside_baseline = any(reading.name == "baseline_rate" for reading in found)
    among_plain = _has_plain_row(grid, found)
    has_rate = any(reading.name in {"decode_rate", "ms_per_token"} for reading in found)
    unknown: list[str] = []
    for index in open_columns:
        text = " ".join(grid.parts[index])
        said = in_group(text, beside_baseline=beside_baseline or among_plain)
        if said is None or not _all_numbers(grid, index):
            beside, among = beside_baseline and not has_rate, among_plain and not has_rate
            said = _by_cells(grid, index, text, beside_baseline=beside, among_plain=among)
        if said is not None and said[1].name not in options.columns:
            found.append(Reading(index, text, said[1], said[0]))
        elif text and _tells_rows_apart(grid, index):
            found.append(Reading(index, text, Heading(OTHER + text[:40], None, "")))
        elif text:
            unknown.append(text)
    return sorted(found, key=lambda reading: reading.index), unknown


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


def _by_levels(part: tuple[str, ...]) -> tuple[str, Heading] | None:
    """(group, heading) of a heading on one or several levels: `HumanEval` above `Speedup`, or the other way round."""
    if (whole := understand(" ".join(part))) is not None:
        return "", whole
    for cut in range(1, len(part)):
        upper, lower = " ".join(part[:cut]), " ".join(part[cut:])
        for group, text in ((upper, lower), (lower, upper)):
            heading = understand(text)
            if heading is not None and may_be_group(group):
                return ("" if heading.column is None or heading.column.kind == "text" else group), heading
    return None


def _base_or_spec(grid: Grid, index: int, part: tuple[str, ...]) -> tuple[str, Heading] | None:
    """Rates under the name of a data set, called by how they were decoded: `Code` above `Base` and `Spec`."""
    if len(part) != 2 or not is_task(part[0]) or not _all_numbers(grid, index):
        return None
    if is_plain(part[1]):
        return part[0][:80], Heading("baseline_rate", column("baseline_rate"), "")
    said = understand(part[1])
    if said is not None and said.name == "method" and not said.unit:
        return part[0][:80], Heading("decode_rate", column("decode_rate"), "")
    return None


_WITH_RATE = re.compile(r"[\s*_`~]*[0-9][0-9.,]*\s*(?:toks?|tokens?|t)/s(?:ec(?:ond)?)?\b.{0,60}", re.I)


def _by_cells(
    grid: Grid, index: int, text: str, *, beside_baseline: bool, among_plain: bool
) -> tuple[str, Heading] | None:
    """What a heading that names a method or data set alone says, by its cells: rates, or speedups (`2.85x`).

    Numbers without a unit are rates where nothing else is, beside a column or row of the baseline.
    """
    texts = [cells[index] for _, cells in grid.rows if cells[index].strip(" -–—")]
    if texts and all(_WITH_RATE.fullmatch(cell) for cell in texts):
        plain = is_plain(text)
        name = "baseline_rate" if plain else "decode_rate"
        return ("" if plain else text[:80]), Heading(name, column(name), "")
    numbers_read = [number for cell in texts if (number := _number(_first(cell), grid)) is not None]
    if not numbers_read:
        return None
    if is_task(text) and all(number.unit == "x" for number in numbers_read):
        return text[:80], Heading("speedup", column("speedup"), "")
    bare = all(not number.unit for number in numbers_read) and max(number.value for number in numbers_read) > 1
    named = (
        family(text) != "unknown" or read_settings(text) != {} or re.fullmatch(r"n\d{1,2}", text.strip()) is not None
    )
    if bare and ((beside_baseline and named) or (among_plain and is_task(text))):
        return text[:80], Heading("decode_rate", column("decode_rate"), "")
    return None


def _all_numbers(grid: Grid, index: int) -> bool:
    """Whether every cell of a column that holds anything holds a number."""
    cells = [cells[index] for _, cells in grid.rows if cells[index].strip(" -–—")]
    return all(_WITH_RATE.fullmatch(cell) or _number(_first(cell), grid) is not None for cell in cells)


def _tells_rows_apart(grid: Grid, index: int) -> bool:
    """Whether a column that is not known has a few words for many rows, and so says under what conditions they are."""
    words = [cells[index].strip() for _, cells in grid.rows]
    return bool(words) and all(re.match(r"[*_`]*[^\W\d]", word) for word in words) and len(set(words)) < len(words)


def _has_plain_row(grid: Grid, found: list[Reading]) -> bool:
    """Whether a row says that nothing was drafted."""
    columns = [one.index for one in found if one.name in {"label", "method", "draft", "gamma"}]
    return any(is_plain(cells[index]) for _, cells in grid.rows for index in columns)


_SETTINGS = (
    ("gamma", re.compile(r"(?:\bn[-_ ]?max|\bk|\bγ|\bgamma|\bdraft[-_ ](?:n[-_ ])?max)\s*[=:]?\s*(\d{1,3})\b", re.I)),
    ("p_min", re.compile(r"\bp[-_ ]?min\s*[=:`]?\s*(0?\.\d{1,4}|0|1)\b", re.I)),
)


def read_settings(text: str) -> dict[str, float]:
    """Draft length and least certainty that a name says: `n-max 4, p-min 0.6`, `EAGLE-3, k=3`."""
    found: dict[str, float] = {}
    for name, pattern in _SETTINGS:
        if (match := pattern.search(text[:200])) is not None:
            found[name] = float(match.group(1))
    return found


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


def _number(cell: str, grid: Grid) -> numbers.Number | None:
    try:
        return numbers.parse(cell, decimal_comma=grid.decimal_comma)
    except ValueError:
        return None


def _without_vague_times(grid: Grid, readings: list[Reading], unknown: list[str]) -> list[Reading]:
    """`Time` alone is that of the whole run where its cells are times and no other column says what that is."""
    kept: list[Reading] = []
    for one in readings:
        vague = one.name == "wall_ms" and re.fullmatch(r"\W*time\W*(?:m?s(?:ec(?:onds)?)?)?\W*", one.text, re.I)
        others = any(other.name == "wall_ms" for other in readings if other is not one)
        if vague and (others or not _all_numbers(grid, one.index)):
            unknown.append(one.text)
        else:
            kept.append(one)
    return kept


def _without_clashes(readings: list[Reading], unknown: list[str], where: str) -> list[Reading]:
    """Each column once in its group; columns told apart by their parentheses (`Speedup (MTP)`) are groups of their own.

    Raises `UsageError` for two columns of numbers that are the same thing.
    """
    by_name: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        by_name.setdefault((reading.group, reading.name), []).append(reading)
    kept: list[Reading] = []
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
                fix=f"rename one of them, or choose with --column {first.name}=HEADING",
            )
    return sorted(kept, key=lambda reading: reading.index)


def _in_parentheses(text: str) -> str:
    found = re.search(r"[(\[]([^)\]]{1,60})[)\]]\s*$", text)
    return "" if found is None or re.fullmatch(r"[%x×]|.*/s|ms|s", found.group(1).strip()) else found.group(1).strip()


def _holds_what_it_says(grid: Grid, reading: Reading, unknown: list[str]) -> bool:
    """Whether a column of numbers has any; one whose cells are words only is none of ours."""
    cells = [cells[reading.index] for _, cells in grid.rows]
    filled = [cell for cell in cells if cell.strip(" -–—")]
    is_rate = reading.name == "method" and reading.heading.unit not in {"s", "ms"}
    if is_rate and filled and all(_number(_first(cell), grid) is not None for cell in filled):
        reading.heading = Heading("decode_rate", column("decode_rate"), "")  # `no spec` beside `spec`
        return True
    if reading.kind in {"text", "flag"}:
        return True
    words = [cell for cell in filled if not re.search(r"[0-9]", cell) and not re.fullmatch(r"\W*[a-z]{0,3}\W*", cell)]
    if len(filled) > 1 and len(words) == len(filled) and not any(is_plain(cell) for cell in filled):
        unknown.append(reading.text)
        return False
    if reading.name == "accepted" and filled and all(re.match(r"[\s*_`~]*[0-9.]+\s*%", cell) for cell in filled):
        reading.heading = Heading("acceptance", column("acceptance"), "%")
    return True


def _settle_methods(grid: Grid, readings: list[Reading]) -> None:
    """A column of `Models` that lists methods (`EAGLE`, `SpS`, `PLD`) is a column of methods."""
    if any(reading.name == "method" for reading in readings):
        return
    for reading in readings:
        if reading.name in {"target", "label"}:
            cells = {cells[reading.index] for _, cells in grid.rows if cells[reading.index].strip()}
            told = [cell for cell in cells if is_plain(cell) or family(cell) != "unknown"]
            models = [cell for cell in cells if re.search(r"\d[bB]\b", cell)]
            if len(cells) > 1 and 2 * len(told) >= len(cells) and not models and reading.name == "target":
                reading.heading = Heading("method", column("method"), "")
                return


def _is_of_quality(reading: Reading, beside: Sequence[str], unknown: list[str]) -> bool:
    """Whether a bare change (`delta`, `gain`) stands beside perplexities, and so is theirs."""
    bare = reading.name == "change" and re.fullmatch(
        r"[\W_]*(?:Δ|delta|gain|improvement)[\W_]*(?:pct|percent)?[\W_]*", reading.text, re.I
    )
    if not bare or not any(re.search(r"ppl|perplexity|accuracy|\bloss\b", text, re.I) for text in beside):
        return False
    unknown.append(reading.text)
    return True


def _settle_changes(grid: Grid, readings: list[Reading]) -> None:
    """Speedups of which some are negative are changes: fractions where all are below 1, percent where large."""
    for reading in readings:
        if reading.name == "speedup":
            cells = [number for _, row in grid.rows if (number := _number(row[reading.index], grid)) is not None]
            bare = [cell.value for cell in cells if not cell.unit]
            if len(bare) > 1 and min(bare) < 0 and len(bare) == len(cells) and not reading.heading.unit:
                most = max(map(abs, bare))
                unit = "fraction" if most < 1 else "%" if most > _MOST_SPEEDUP else ""
                if not unit:
                    continue
                reading.heading = replace(reading.heading, name="change", column=column("change"), unit=unit)


def _settle_ratios(readings: list[Reading], unknown: list[str]) -> list[Reading]:
    """`Ratio` alone: of the draft's rate to the target's beside a draft, of the row's own rates, or of neither."""
    names = {one.name for one in readings}
    kept: list[Reading] = []
    for reading in readings:
        if reading.name != "speed_ratio" or re.search(r"draft|target|speed", reading.text, re.I) or "draft" in names:
            kept.append(reading)
        elif {"decode_rate", "baseline_rate"} <= names and "speedup" not in names:
            reading.heading = replace(reading.heading, name="speedup", column=column("speedup"))
            kept.append(reading)
        else:
            unknown.append(reading.text)
    return kept


def _settle_draft_tokens(grid: Grid, readings: list[Reading]) -> None:
    """`draft tokens`: all of them, as vLLM counts, or those of one step, as a setting is called."""
    for reading in readings:
        if reading.name == "draft_tokens":
            names = {one.name for one in readings}
            values = [number.value for _, row in grid.rows if (number := _number(row[reading.index], grid)) is not None]
            total = bool(names & {"accepted", "steps", "gamma"}) or any(value > _MOST_GAMMA for value in values)
            name = "drafted" if total and "drafted" not in names else "gamma"
            reading.heading = Heading(name, column(name), "")


def _may_be_a_length(grid: Grid, reading: Reading, readings: list[Reading], options: TableOptions) -> bool:
    """Whether an `Acceptance` without a unit may as well be tokens per step: in each row above 1, at most gamma + 1.

    A table of percents as low as that exists, and one that calls the acceptance length so, too.
    """
    said = reading.text in options.percent + options.fraction or reading.name in options.percent + options.fraction
    gamma = next((one for one in readings if one.name == "gamma"), None)
    is_rate = re.search(r"rate|ratio|pct|percent|%|率", reading.text, re.I) is not None or reading.heading.unit == "%"
    if reading.name != "acceptance" or said or is_rate or gamma is None or reading.name in options.columns:
        return False
    pairs = [
        (_number(_first(row[reading.index]), grid), _number(_first(row[gamma.index]), grid)) for _, row in grid.rows
    ]
    filled = [(value, most) for value, most in pairs if value is not None and (most is None or most.value > 0)]
    return bool(filled) and all(
        most is not None and not value.unit and 1 < value.value <= most.value + 1 for value, most in filled
    )


def _settle_percent(grid: Grid, reading: Reading, readings: list[Reading], options: TableOptions) -> None:
    """Whether a column of shares is in percent, or whether nothing says so."""
    if reading.kind != "share":
        return
    if reading.text in options.percent or reading.name in options.percent:
        reading.percent = True
        return
    if reading.heading.unit == "fraction" or {reading.text, reading.name} & set(options.fraction):
        return
    values = [number for _, row in grid.rows if (number := _number(_first(row[reading.index]), grid)) is not None]
    bare = [value for value in values if value.unit != "%"]  # a cell with a sign speaks for itself alone
    said = reading.heading.unit == "%" or not bare
    reading.percent = said or _above_all(bare)
    if not reading.percent and values:
        by_counts = _by_counts(grid, reading, readings)
        reading.percent = by_counts is True
        reading.unsaid = by_counts is None and any(value.value > 0 for value in bare)


def _above_all(bare: list[numbers.Number]) -> bool:
    """Whether shares are more than all there is, and so percent; one just above 1 among fractions may be wrong."""
    above = [value.value for value in bare if value.value > 1]
    fractions = [value.value for value in bare if 0.2 <= value.value <= 1]
    return bool(above) and not (fractions and max(above) <= _JUST_ABOVE_ALL)


def _by_counts(grid: Grid, reading: Reading, readings: list[Reading]) -> bool | None:
    """Whether the rows' own counts show a share to be percent; None where they show nothing."""
    same = {one.name: one for one in readings if one.group == reading.group}
    drafted, accepted = same.get("drafted"), same.get("accepted")
    if drafted is None or accepted is None:
        return None
    for _, cells in grid.rows:
        share, of, got = (_number(cells[item.index], grid) for item in (reading, drafted, accepted))
        if share is None or of is None or got is None or share.unit == "%":
            continue
        if got.value > 0 < of.value:
            fraction = got.value / of.value
            if abs(share.value - fraction) <= share.half + 1e-6:
                return False
            if abs(share.value - 100 * fraction) <= share.half + 1e-4:
                return True
    return None


def _first(cell: str) -> str:
    """A cell without what stands in parentheses behind its number."""
    return re.sub(r"(?<=\S)\s*\([^()]{0,60}\)\s*$", "", cell)
