"""The named predicates that rule on claims, over the rows that a rule selects and a quantity of each.

    below, above        the quantity, with its whole interval, lies below (above) a number
    within              between two numbers
    equal               exact numbers are that number
    exceeds             beyond that of another row: `beside` names the others, rows of the same `per` are compared
    highest             the row named by `beside` exceeds all others
    rises, falls        from each row to the next along `by`, among rows of the same `per`
    crosses             above a number exactly in the rows whose `by` reaches `at`
    all, any            of several rules

Each row is for the claim, against it, or neither: nothing is decided by an interval that holds both. All rows for it
support a claim; one against it contradicts (`against: every`: only all of them do). Rows that do not stand count for
nothing. What counts as evidence is said in `specmeter_studies.telling`, in one place for all studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specmeter.numbers.estimates import above, below, between, exceeds
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter.record import Estimate
from specmeter_studies.selection import Row, estimate, line_of, meets, name_of, selected, shown
from specmeter_studies.study import ArmResult
from specmeter_studies.telling import by_values, fallen, quoted, resting_on

if TYPE_CHECKING:
    from specmeter_studies.definition import Rule
    from specmeter_studies.study import RulingWord, StudyData
    from specmeter_studies.telling import Found

Make = Callable[[str], Callable[["StudyData"], Any]]
"""Finds a function of the study's own."""


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


def decide(data: StudyData, rule: Rule, make: Make) -> Found:
    """What the data says by a rule. Raises `UsageError` for rows and quantities that are not there."""
    if rule.rules:
        return _together(rule, [decide(data, part, make) for part in rule.rules])
    rows = selected(data, rule, make)
    usable = [row for row in rows if (line := line_of(row)) is None or line.stands]
    votes = list(_VOTES[rule.predicate](rule, usable, rule.printed and data.origin == "published"))
    if not votes:
        return "cannot tell", _missing(rule, rows)
    return _ruled(rule, votes, {} if rule.fill is None else make(rule.fill)(data))


def _ruled(rule: Rule, votes: Sequence[_Vote], words: Mapping[str, str]) -> Found:
    supporting, against = (sum(votes_) for votes_ in ([it.for_it for it in votes], [it.against for it in votes]))
    ruling: RulingWord = "cannot tell"
    if supporting == len(votes):
        ruling = "supported"
    elif against and (rule.against == "one" or against == len(votes)):
        ruling = "contradicted"
    rest = len(votes) - _MOST
    said = "; ".join(it.said for it in votes[:_MOST]) + (f"; and {rest} more" if rest > 0 else "")
    template = rule.found if isinstance(rule.found, str) else rule.found.get(ruling, "{shown}.")
    counts = {"n": str(len(votes)), "for": str(supporting), "against": str(against)}
    told = _filled(template, {**words, **counts, "shown": said})
    if any(it.printed for it in votes):
        return by_values(ruling, told)
    return resting_on(rule.rests_on, (ruling, told)) if rule.rests_on != "intervals" else (ruling, told)


def _filled(text: str, fields: Mapping[str, str]) -> str:
    """The text with {names} replaced; any other brace stays as it is."""
    for name, value in fields.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _missing(rule: Rule, rows: Sequence[Row]) -> str:
    """Why no row decides."""
    if not rows:
        return rule.empty
    bad = [(row, line) for row in rows if (line := line_of(row)) is not None and not line.stands]
    if not bad:
        if rule.beside or rule.per:
            return "Not everything that is compared was measured."
        what = (rule.of or "").rpartition(".")[2].replace("_", " ")
        of = "rows" if line_of(rows[0]) is None else "arms"
        return f"None of {len(rows)} {of} has this number: {what}."
    row, line = bad[0]
    said = shown(row, rule.told) if rule.told and rule.missing else name_of(row)
    why = f"{said}{';' if rule.missing else ':'} {line.why}."
    told = f"{rule.missing} " if rule.missing else ""
    return f"{told}{fallen([line for _, line in bad], len(rows))} {why}"


def _together(rule: Rule, found: Sequence[Found]) -> Found:
    """Of several rules: all have to hold, or one is enough."""
    rulings = [ruling for ruling, _ in found]
    enough, fatal = ("contradicted", "supported") if rule.predicate == "all" else ("supported", "contradicted")
    if enough in rulings:
        ruling: RulingWord = enough
    else:
        ruling = fatal if all(it == fatal for it in rulings) else "cannot tell"
    told = " ".join(text for _, text in found)
    template = rule.found if isinstance(rule.found, str) else rule.found.get(ruling, "{shown}")
    made = ruling, _filled(template.removesuffix(".") if template == "{shown}." else template, {"shown": told})
    return resting_on(rule.rests_on, made) if rule.rests_on != "intervals" else made


def _side(rule: Rule, row: Row, among: int, *, printed: bool) -> _Vote | None:
    """Of one row by itself: above, below, within, equal.

    Where one of several arms contradicts, its interval is one of so many that hold together.
    """
    assert rule.of is not None
    found = estimate(row, rule.of)
    if found is None:
        return None
    exact = not isinstance(found, Estimate)
    single = isinstance(found, Estimate) and found.low is None
    if exact or (single and printed):
        point = found.point if isinstance(found, Estimate) else float(found)
        found = between(point, point, point, "1", "exact", n=1)
    low, high = (rule.low, rule.high) if rule.predicate == "within" else (rule.than, rule.than)
    assert low is not None
    assert high is not None
    for_it = {"above": above(found, high), "below": below(found, low)}
    wide = found
    if isinstance(row, ArmResult) and rule.against == "one" and STUDENT in found.method:
        wide = simultaneous(found, among)
    over, under = above(wide, high), below(wide, low)
    inside = found.low is not None and found.high is not None and low <= found.low and found.high <= high
    holds = {**for_it, "within": inside, "equal": inside}[rule.predicate]
    against = {"above": under, "below": over, "within": over or under, "equal": over or under}[rule.predicate]
    if rule.told is not None:
        return _Vote(str(shown(row, rule.told)), holds, against, printed=single and printed)
    number = _number(rule, found.point if exact else found)
    return _Vote(f"{name_of(row)} {number}", holds, against, printed=single and printed)


def _number(rule: Rule, found: Estimate | float | None) -> str:
    if isinstance(found, float | int):
        return f"{found:.{rule.digits}f}{rule.unit}"
    return quoted(found, rule.digits, rule.unit)


def _each(rule: Rule, rows: Sequence[Row], printed: bool) -> Iterable[_Vote]:
    assert rule.of is not None
    known = [row for row in rows if estimate(row, rule.of) is not None]
    return (vote for row in known if (vote := _side(rule, row, len(known), printed=printed)) is not None)


def _exceeds(rule: Rule, rows: Sequence[Row], _: bool) -> Iterable[_Vote]:
    """Rows of the selection that meet `beside` are those that the others of the same group have to exceed."""
    for group in _groups(rule, rows):
        others = [row for row in group if meets(row, rule.beside)]
        yield from (_pair(rule, row, other) for row in group if row not in others for other in others)


def _highest(rule: Rule, rows: Sequence[Row], _: bool) -> Iterable[_Vote]:
    for group in _groups(rule, rows):
        best = [row for row in group if meets(row, rule.beside)]
        yield from (_pair(rule, row, other) for row in best for other in group if other not in best)


def _steps(rule: Rule, rows: Sequence[Row], _: bool) -> Iterable[_Vote]:
    assert rule.by is not None
    for group in _groups(rule, rows):
        places = [(place, row) for row in group if isinstance(place := shown(row, rule.by), (int, float))]
        ordered = [row for _, row in sorted(places, key=lambda item: item[0])]
        for row, after in pairwise(ordered):
            yield _pair(rule, after, row) if rule.predicate == "rises" else _pair(rule, row, after)


def _crosses(rule: Rule, rows: Sequence[Row], _: bool) -> Iterable[_Vote]:
    assert rule.of is not None
    assert rule.by is not None
    assert rule.than is not None
    assert rule.at is not None
    for row in rows:
        found, place = estimate(row, rule.of), estimate(row, rule.by)
        if not isinstance(found, Estimate) or place is None:
            continue
        low = place.low if isinstance(place, Estimate) and place.low is not None else None
        high = place.high if isinstance(place, Estimate) and place.high is not None else None
        point = place.point if isinstance(place, Estimate) else place
        reached, short = (low if low is not None else point) >= rule.at, (high if high is not None else point) < rule.at
        over, under = above(found, rule.than), below(found, rule.than)
        said = f"{name_of(row)} at {point:.2f} {quoted(found, rule.digits, rule.unit)}"
        yield _Vote(said, (reached and over) or (short and under), (reached and under) or (short and over))


def _pair(rule: Rule, first: Row, second: Row) -> _Vote:
    """Whether the first has more than the second."""
    assert rule.of is not None
    one, other = estimate(first, rule.of), estimate(second, rule.of)
    told = [_number(rule, it) for it in (one, other)]
    said = f"{name_of(first)} {told[0]} against {name_of(second)} {told[1]}"
    if isinstance(one, Estimate) and isinstance(other, Estimate):
        return _Vote(said, exceeds(one, other), exceeds(other, one))
    if one is None or other is None or isinstance(one, Estimate) or isinstance(other, Estimate):
        return _Vote(said, False, False)
    return _Vote(said, one > other, one < other)


def _groups(rule: Rule, rows: Sequence[Row]) -> Iterable[list[Row]]:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(shown(row, path) for path in rule.per), []).append(row)
    return groups.values()


_VOTES: Mapping[str, Callable[[Rule, Sequence[Row], bool], Iterable[_Vote]]] = {
    **dict.fromkeys(("below", "above", "within", "equal"), _each),
    **dict.fromkeys(("rises", "falls"), _steps),
    "exceeds": _exceeds,
    "highest": _highest,
    "crosses": _crosses,
}
