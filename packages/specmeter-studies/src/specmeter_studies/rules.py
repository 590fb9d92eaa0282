"""Two rules that many claims share: each row lies on one side of a number, or exceeds another row.

A row is for the claim, against it, or neither: nothing is decided by an interval that holds both. All rows for it
support a claim, one against it contradicts. Rows that do not stand count for nothing. What counts as evidence is said
in `specmeter_studies.study`, in one place for all studies. Quantities are named as tables name them
(`specmeter_studies.setting`).

`found` is told with the ruling, or with each of them; {shown}, {n} rows, {for} and {against} it are filled in, and the
names in `fill`. `missing` is told before the reason where no row decides, `empty` where there is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specmeter.numbers.estimates import above, below, between, exceeds
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter.record import Estimate
from specmeter_studies.setting import Row, estimate, line_of, name_of, shown
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData, by_values, fallen, quoted

Template = str | Mapping[RulingWord, str]
NOTHING = "None of this was measured."
_MOST = 12
"""Rows that are listed one by one."""


@dataclass(frozen=True)
class _Vote:
    """A row, or two of them compared, and what it says of the claim."""

    said: str
    for_it: bool
    against: bool
    printed: bool = False
    """Decided by a printed value without an interval."""


def lies(
    rows: Iterable[Row],
    of: str,
    *,
    low: float | None = None,
    high: float | None = None,
    own_table: StudyData | None = None,
    told: str | None = None,
    unit: str = "",
    found: Template = "{shown}.",
    fill: Mapping[str, str] | None = None,
    missing: str = "",
    empty: str = NOTHING,
) -> Found:
    """Whether the quantity `of` lies above `low`, below `high`, or between both, in every row.

    Of several arms one contradicts only by an interval that is one of so many that hold together. `own_table`: where
    this data was printed by the document itself, its values decide where they have no interval. `told` is the quantity
    that shows a row; default: its name and the number.
    """
    everything = list(rows)
    known = [it for row in _standing(everything) if (it := (row, estimate(row, of)))[1] is not None]
    printed = own_table is not None and own_table.origin == "published"
    votes = [_side(row, value, low, high, len(known), told, unit, printed) for row, value in known if value is not None]
    return (
        _ruled(votes, found, fill or {}) if votes else ("cannot tell", _nothing(everything, of, missing, empty, told))
    )


def exceeded(
    rows: Iterable[Row],
    of: str,
    pairs: Callable[[Sequence[Row]], Iterable[tuple[Row, Row]]],
    *,
    unit: str = "",
    digits: int = 2,
    missing: str = "",
    empty: str = NOTHING,
    told: str | None = None,
) -> Found:
    """Whether the first row of each pair has more of the quantity `of` than the second, among the rows that stand."""
    everything = list(rows)
    votes = [_pair(first, second, of, digits, unit) for first, second in pairs(_standing(everything))]
    return _ruled(votes, "{shown}.", {}) if votes else ("cannot tell", _nothing(everything, None, missing, empty, told))


def _standing(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if (line := line_of(row)) is None or line.stands]


def _ruled(votes: Sequence[_Vote], found: Template, fill: Mapping[str, str]) -> Found:
    supporting, against = sum(it.for_it for it in votes), sum(it.against for it in votes)
    ruling: RulingWord = "supported" if supporting == len(votes) else "contradicted" if against else "cannot tell"
    rest = len(votes) - _MOST
    said = "; ".join(it.said for it in votes[:_MOST]) + (f"; and {rest} more" if rest > 0 else "")
    told = found if isinstance(found, str) else found.get(ruling, "{shown}.")
    counts = {"n": str(len(votes)), "for": str(supporting), "against": str(against)}
    for name, text in {**fill, **counts, "shown": said}.items():
        told = told.replace(f"{{{name}}}", text)
    return by_values(ruling, told) if any(it.printed for it in votes) else (ruling, told)


def _nothing(rows: Sequence[Row], of: str | None, missing: str, empty: str, told: str | None) -> str:
    """Why no row decides; `of` is None where rows are compared with each other."""
    if not rows:
        return empty
    bad = [(row, line) for row in rows if (line := line_of(row)) is not None and not line.stands]
    if not bad:
        if of is None:
            return "Not everything that is compared was measured."
        what = of.rpartition(".")[2].replace("_", " ")
        kind = "rows" if line_of(rows[0]) is None else "arms"
        return f"None of {len(rows)} {kind} has this number: {what}."
    row, line = bad[0]
    said = shown(row, told) if told and missing else name_of(row)
    why = f"{said}{';' if missing else ':'} {line.why}."
    return f"{f'{missing} ' if missing else ''}{fallen([line for _, line in bad], len(rows))} {why}"


def _side(
    row: Row,
    value: Estimate | float,
    low: float | None,
    high: float | None,
    among: int,
    told: str | None,
    unit: str,
    printed: bool,
) -> _Vote:
    single = isinstance(value, Estimate) and value.low is None
    found = value if isinstance(value, Estimate) and not (single and printed) else _exact(value)
    wide = simultaneous(found, among) if isinstance(row, ArmResult) and STUDENT in found.method else found
    if low is not None and high is not None:
        inside = found.low is not None and found.high is not None and low <= found.low and found.high <= high
    else:
        inside = (low is None or above(found, low)) and (high is None or below(found, high))
    outside = (low is not None and below(wide, low)) or (high is not None and above(wide, high))
    number = quoted(found, 2, unit) if isinstance(value, Estimate) else f"{value:.2f}{unit}"
    said = f"{name_of(row)} {number}" if told is None else str(shown(row, told))
    return _Vote(said, inside, outside, printed=single and printed)


def _exact(value: Estimate | float) -> Estimate:
    point = value.point if isinstance(value, Estimate) else float(value)
    return between(point, point, point, "1", "exact", n=1)


def _pair(first: Row, second: Row, of: str, digits: int, unit: str) -> _Vote:
    one, other = estimate(first, of), estimate(second, of)
    told = [
        f"{it:.{digits}f}{unit}" if isinstance(it, float | int) else quoted(it, digits, unit) for it in (one, other)
    ]
    said = f"{name_of(first)} {told[0]} against {name_of(second)} {told[1]}"
    if isinstance(one, Estimate) and isinstance(other, Estimate):
        return _Vote(said, exceeds(one, other), exceeds(other, one))
    if one is None or other is None or isinstance(one, Estimate) or isinstance(other, Estimate):
        return _Vote(said, False, False)
    return _Vote(said, one > other, one < other)
