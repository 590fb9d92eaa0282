"""Two rules that many claims share: each row lies on one side of a number, or exceeds another row.

A row is for the claim, against it, or neither: nothing is decided by an interval that holds both. All rows for it
support a claim, one against it contradicts. Rows that do not stand count for nothing. What counts as evidence is said
in `specmeter_studies.study`, in one place for all studies. Quantities are named as tables name them
(`specmeter_studies.setting`).

`found` is the code of what is found, or one for each ruling (a user's text is its own code): {shown}, {n} rows, {for}
and {against} it are filled in, and the names in `fill`. `missing` is said before the reason where no row decides,
`empty` where there is no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specmeter.analysis.answer import least_units
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import above, below, between, exceeds
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter.record import Estimate
from specmeter_studies.selection import Row, estimate, line_of, name_of, shown
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData
from specmeter_studies.telling import by_values, fallen, quoted, several

Template = str | Mapping[RulingWord, str]
NOTHING = Message("study.none_measured")
SHOWN = "study.shown"
_MAX_ROWS = 12
"""Rows that are listed one by one."""
MIN_BLOCKS = least_units(1)
"""Of a speedup that something rests on."""
LOOKS = (MIN_BLOCKS, 6, 12)
"""Blocks after which claims are looked at where they decide how many there are; the last are the most."""


def carrying(data: StudyData) -> StudyData:
    """What claims are ruled by: of our own runs only numbers that something can rest on.

    A configuration that a check doubts, or that was not measured and checked to the end, keeps its name and loses its
    numbers and requests. A speedup is in doubt without an interval, of fewer blocks than three, over a doubted
    baseline, or where it is no larger than what the run's control shows of nothing. Its interval is one of as many as
    there were looks at a run that ends when it decides.
    """
    if data.origin == "published":
        return data
    arms = [_vouched(line) for line in data.arms]
    doubted = {(line.config, line.suite) for line in arms if not line.carries}
    without = {config for config, _ in doubted}
    arms = [_compared(line, without) if line.speedup is not None else line for line in arms]
    gone = [it.config in without and (not it.suite or (it.config, it.suite) in doubted) for it in data.results]
    kept = tuple(it for it, left_out in zip(data.results, gone, strict=True) if not left_out)
    return replace(data, arms=tuple(arms), results=kept)


def _vouched(line: ArmResult) -> ArmResult:
    if line.verdict not in (None, "suspect"):
        return line
    numbers = ("decode_rate", "speedup", "claimed_speedup", "one_by_one", "acceptance", "tau", "energy", "texts_apart")
    return line.model_copy(update={**dict.fromkeys(numbers), "carries": False})


def _compared(line: ArmResult, doubted: Collection[str]) -> ArmResult:
    """The line, without a speedup on which nothing can rest."""
    found = line.speedup
    assert found is not None
    if line.baseline in doubted:
        why = Message("study.why.baseline", baseline=line.baseline)
    elif found.low is None or found.n < MIN_BLOCKS:
        why = Message("study.why.blocks", n=found.n, least=MIN_BLOCKS)
    elif line.least_effect and abs(math.log(found.point)) < math.log1p(line.least_effect):
        why = Message("study.why.control", least=100 * line.least_effect)
    else:
        return line.model_copy(update={"speedup": simultaneous(found, line.looks)}) if STUDENT in found.method else line
    return line.model_copy(update={"speedup": None, "carries": False, "why": why})


@dataclass(frozen=True)
class _Vote:
    """A row, or two of them compared, and what it says of the claim."""

    said: Value
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
    least: int = 1,
    found: Template = SHOWN,
    fill: Mapping[str, Value] | None = None,
    missing: Message | None = None,
    empty: Message = NOTHING,
) -> Found:
    """Whether the quantity `of` lies above `low`, below `high`, or between both, in every row.

    Of several arms one contradicts only by an interval that is one of so many that hold together. `own_table`: where
    this data was printed by the document itself, its values decide where they have no interval. `told` is the quantity
    that shows a row; default: its name and the number. `least`: fewer rows do not support a claim about all of a kind.
    """
    everything = list(rows)
    known = [it for row in _standing(everything) if (it := (row, estimate(row, of)))[1] is not None]
    printed = own_table is not None and own_table.origin == "published"
    votes = [_side(row, value, low, high, len(known), told, unit, printed) for row, value in known if value is not None]
    if not votes:
        return "cannot tell", _nothing(everything, of, missing, empty, told)
    return _ruled(votes, found, fill or {}, least)


def exceeded(
    rows: Iterable[Row],
    of: str,
    pairs: Callable[[Sequence[Row]], Iterable[tuple[Row, Row]]],
    *,
    unit: str = "",
    said: str = "study.against",
    missing: Message | None = None,
    empty: Message = NOTHING,
    told: str | None = None,
) -> Found:
    """Whether the first row of each pair has more of the quantity `of` than the second, among the rows that stand.

    `said` is the code of what is said of a pair: {first} has {more}, {second} {less}.
    """
    everything = list(rows)
    votes = [_pair(first, second, of, unit, said) for first, second in pairs(_standing(everything))]
    return _ruled(votes, SHOWN, {}) if votes else ("cannot tell", _nothing(everything, None, missing, empty, told))


def _standing(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if (line := line_of(row)) is None or line.stands]


def _ruled(votes: Sequence[_Vote], found: Template, fill: Mapping[str, Value], least: int = 1) -> Found:
    supporting, against = sum(it.for_it for it in votes), sum(it.against for it in votes)
    ruling: RulingWord = "contradicted" if against else "cannot tell"
    if supporting == len(votes) >= least:
        ruling = "supported"
    shown = several((it.said for it in votes), _MAX_ROWS)
    counts: dict[str, Value] = {"n": len(votes), "for": supporting, "against": against, "shown": shown}
    said = Message(found if isinstance(found, str) else found.get(ruling, SHOWN), **fill, **counts)
    return by_values(ruling, said) if any(it.printed for it in votes) else (ruling, said)


def _nothing(rows: Sequence[Row], of: str | None, missing: Message | None, empty: Message, told: str | None) -> Message:
    """Why no row decides; `of` is None where rows are compared with each other."""
    if not rows:
        return empty
    bad = [(row, line) for row in rows if (line := line_of(row)) is not None and not line.stands]
    if not bad:
        if of is None:
            return Message("study.not_all_measured")
        what = of.rpartition(".")[2].replace("_", " ")
        code = "study.no_number.rows" if line_of(rows[0]) is None else "study.no_number.arms"
        return Message(code, n=len(rows), what=what)
    row, line = bad[0]
    none, why = fallen([line for _, line in bad], len(rows)), line.why or ""
    if missing is None:
        return Message("study.fallen.row", fallen=none, row=name_of(row), why=why)
    said = _said(row, told) if told else name_of(row)
    return Message("study.fallen.left", missing=missing, fallen=none, row=said, why=why)


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
    number = quoted(found, unit) if isinstance(value, Estimate) else Message("study.number", number=value, unit=unit)
    said = Message("study.row", name=name_of(row), number=number) if told is None else _said(row, told)
    return _Vote(said, inside, outside, printed=single and printed)


def _said(row: Row, told: str) -> Value:
    """The quantity that shows a row."""
    found = shown(row, told)
    return found if isinstance(found, Message) else str(found)


def _exact(value: Estimate | float) -> Estimate:
    point = value.point if isinstance(value, Estimate) else float(value)
    return between(point, point, point, "1", "exact", n=1)


def _pair(first: Row, second: Row, of: str, unit: str, code: str) -> _Vote:
    one, other = estimate(first, of), estimate(second, of)
    more, less = (
        Message("study.number", number=it, unit=unit) if isinstance(it, float | int) else quoted(it, unit)
        for it in (one, other)
    )
    said = Message(code, first=name_of(first), more=more, second=name_of(second), less=less)
    if isinstance(one, Estimate) and isinstance(other, Estimate):
        return _Vote(said, exceeds(one, other), exceeds(other, one))
    if one is None or other is None or isinstance(one, Estimate) or isinstance(other, Estimate):
        return _Vote(said, False, False)
    return _Vote(said, one > other, one < other)
