"""What a column means where its heading leaves it open: settled by its cells and by the other columns of its table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from specmeter.audit.methods import family
from specmeter.audit.read import numbers
from specmeter.audit.read.baselines import is_plain
from specmeter.audit.read.cells import Reading
from specmeter.audit.read.columns import column, heading_of
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.options import TableOptions

_MOST_GAMMA = 128
"""More draft tokens than this are no draft's length."""
_MOST_SPEEDUP = 10
"""A larger number without a sign of its unit, among negative ones, is percent."""
_LEAST_TOLD = 0.2
"""A share of at least this and at most 1 looks like a fraction; few drafts are accepted at less than 1 %."""
_JUST_ABOVE_ALL = 1.2
"""A share among fractions may be a little above 1 by mistake; what is more is percent."""
WITH_RATE = re.compile(r"[\s*_`~]*[0-9][0-9.,]*\s*(?:toks?|tokens?|t)/s(?:ec(?:ond)?)?\b.{0,60}", re.I)


def number_in(cell: str, grid: Grid) -> numbers.Number | None:
    try:
        return numbers.parse(cell, decimal_comma=grid.decimal_comma)
    except ValueError:
        return None


def first_of(cell: str) -> str:
    """A cell without what stands in parentheses behind its number."""
    return re.sub(r"(?<=\S)\s*\([^()]{0,60}\)\s*$", "", cell)


def _numbers_of(grid: Grid, reading: Reading) -> list[numbers.Number]:
    """The numbers of a column, whatever stands in parentheses behind them."""
    found = (number_in(first_of(cells[reading.index]), grid) for _, cells in grid.rows)
    return [number for number in found if number is not None]


def all_numbers(grid: Grid, index: int) -> bool:
    """Whether every cell of a column that holds anything holds a number."""
    filled = grid.filled(index)
    return all(WITH_RATE.fullmatch(cell) or number_in(first_of(cell), grid) is not None for cell in filled)


def without_vague_times(grid: Grid, readings: list[Reading], unknown: list[str]) -> list[Reading]:
    """`Time` alone is that of the whole run where its cells are times and no other column says what that is."""
    kept: list[Reading] = []
    for one in readings:
        vague = one.name == "wall_ms" and re.fullmatch(r"\W*time\W*(?:m?s(?:ec(?:onds)?)?)?\W*", one.text, re.I)
        others = any(other.name == "wall_ms" for other in readings if other is not one)
        if vague and (others or not all_numbers(grid, one.index)):
            unknown.append(one.text)
        else:
            kept.append(one)
    return kept


def holds_what_it_says(grid: Grid, reading: Reading, unknown: list[str]) -> bool:
    """Whether a column of numbers has any; one whose cells are words only is none of ours."""
    filled = grid.filled(reading.index)
    is_rate = reading.name == "method" and reading.heading.unit not in {"s", "ms"}
    if is_rate and filled and all(number_in(first_of(cell), grid) is not None for cell in filled):
        reading.heading = heading_of("decode_rate")  # `no spec` beside `spec`
        return True
    if reading.kind in {"text", "flag"}:
        return True
    words = [cell for cell in filled if not re.search(r"[0-9]", cell) and not re.fullmatch(r"\W*[a-z]{0,3}\W*", cell)]
    if len(filled) > 1 and len(words) == len(filled) and not any(is_plain(cell) for cell in filled):
        unknown.append(reading.text)
        return False
    if reading.name == "accepted" and filled and all(re.match(r"[\s*_`~]*[0-9.]+\s*%", cell) for cell in filled):
        reading.heading = heading_of("acceptance", "%")
    return True


def settle_methods(grid: Grid, readings: list[Reading]) -> None:
    """A column of `Models` that lists methods (`EAGLE`, `SpS`, `PLD`) is a column of methods."""
    if any(reading.name == "method" for reading in readings):
        return
    for reading in readings:
        if reading.name in {"target", "label"}:
            cells = {cells[reading.index] for _, cells in grid.rows if cells[reading.index].strip()}
            told = [cell for cell in cells if is_plain(cell) or family(cell) != "unknown"]
            models = [cell for cell in cells if re.search(r"\d[bB]\b", cell)]
            if len(cells) > 1 and 2 * len(told) >= len(cells) and not models and reading.name == "target":
                reading.heading = heading_of("method")
                return


def is_of_quality(reading: Reading, beside: Sequence[str], unknown: list[str]) -> bool:
    """Whether a bare change (`delta`, `gain`) stands beside perplexities, and so is theirs."""
    bare = reading.name == "change" and re.fullmatch(
        r"[\W_]*(?:Δ|delta|gain|improvement)[\W_]*(?:pct|percent)?[\W_]*", reading.text, re.I
    )
    if not bare or not any(re.search(r"ppl|perplexity|accuracy|\bloss\b", text, re.I) for text in beside):
        return False
    unknown.append(reading.text)
    return True


def settle_changes(grid: Grid, readings: list[Reading]) -> None:
    """Speedups of which some are negative are changes: fractions where all are below 1, percent where large."""
    for reading in readings:
        if reading.name == "speedup":
            cells = _numbers_of(grid, reading)
            bare = [cell.value for cell in cells if not cell.unit]
            if len(bare) > 1 and min(bare) < 0 and len(bare) == len(cells) and not reading.heading.unit:
                most = max(map(abs, bare))
                unit = "fraction" if most < 1 else "%" if most > _MOST_SPEEDUP else ""
                if not unit:
                    continue
                reading.heading = replace(reading.heading, name="change", column=column("change"), unit=unit)


def settle_ratios(readings: list[Reading], unknown: list[str]) -> list[Reading]:
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


def settle_draft_tokens(grid: Grid, readings: list[Reading]) -> None:
    """`draft tokens`: all of them, as vLLM counts, or those of one step, as a setting is called."""
    for reading in readings:
        if reading.name == "draft_tokens":
            names = {one.name for one in readings}
            large = any(number.value > _MOST_GAMMA for number in _numbers_of(grid, reading))
            total = bool(names & {"accepted", "steps", "gamma"}) or large
            name = "drafted" if total and "drafted" not in names else "gamma"
            reading.heading = heading_of(name)


def may_be_a_length(grid: Grid, reading: Reading, readings: list[Reading], options: TableOptions) -> bool:
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


def settle_percent(grid: Grid, reading: Reading, readings: list[Reading], options: TableOptions) -> None:
    """Whether a column of shares is in percent, or whether nothing says so."""
    if reading.kind != "share":
        return
    if reading.text in options.percent or reading.name in options.percent:
        reading.percent = True
        return
    if reading.heading.unit == "fraction" or {reading.text, reading.name} & set(options.fraction):
        return
    values = _numbers_of(grid, reading)
    bare = [value for value in values if value.unit != "%"]  # a cell with a sign speaks for itself alone
    said = reading.heading.unit == "%" or not bare
    reading.percent = said or _above_all(bare)
    if not said and reading.percent:
        _settle_mixture(reading, bare, _by_counts(grid, reading, readings))
    if not reading.percent and values:
        by_counts = _by_counts(grid, reading, readings)
        reading.percent = by_counts is True
        reading.unsaid = by_counts is None and any(value.value > 0 for value in bare)


def _above_all(bare: list[numbers.Number]) -> bool:
    """Whether shares are more than all there is, and so percent; one just above 1 among fractions may be wrong."""
    above = [value.value for value in bare if value.value > 1]
    fractions = [value.value for value in bare if _LEAST_TOLD <= value.value <= 1]
    return bool(above) and not (fractions and max(above) <= _JUST_ABOVE_ALL)


def _settle_mixture(reading: Reading, bare: list[numbers.Number], percent_by_counts: bool | None) -> None:
    """Percent by its cells, of which some may be fractions: one cell in percent does not make most others tiny."""
    above = [value.value for value in bare if value.value > 1]
    fractions = [value.value for value in bare if _LEAST_TOLD <= value.value <= 1]
    if not fractions or percent_by_counts:
        return
    if percent_by_counts is False or len(fractions) > len(above):
        reading.percent, reading.percent_above = False, 1.0
        reading.mixture = f"as fractions, and as percent where more than 1 ({max(above):g})"
    else:
        reading.mixture = f"as percent, since {max(above):g} is in it; so {max(fractions):g} is {max(fractions):g} %"


def _by_counts(grid: Grid, reading: Reading, readings: list[Reading]) -> bool | None:
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
