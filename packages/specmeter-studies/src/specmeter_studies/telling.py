"""How findings are put into words, and the one rule of what counts for them.

A claim is *supported* or *contradicted* by numbers, and by these only:

    intervals       every number that decides has an interval, and each lies wholly on one side (`estimates.above`,
                    `below`, `exceeds`). Ours are over blocks; of printed numbers from their spread and their runs
    counts          exact numbers, and arithmetic with printed ones: true to half a unit of their last digit
    printed values  what a document says about its own table holds or falls by every value of that table (`denied_by`)

Numbers that do not stand (impossible, implausible, invalid, in doubt) support nothing, and of our own runs those that
nothing vouches for are left out before any claim is looked at (`rules.carrying`). They can deny what their own document
says about them: a claim that its own table refutes falls, whatever the table is worth. A bound that rests on
assumptions contradicts nothing on its own: it makes numbers implausible. What is claimed of named models or machines
does not apply where others were measured (`only_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specmeter.messages import Message, Value
from specmeter.numbers.estimates import above, below, scaled
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, ClaimRuling, Found, RestsOn, RulingWord, StudyData

FAR = 1e4
"""Ends of intervals beyond this are not printed: such an interval says nothing."""


class _Resting(tuple[RulingWord, Message]):
    """A finding that rests on something else than intervals."""

    rests_on: RestsOn


def resting_on(what: RestsOn, found: Found) -> Found:
    """A finding with what makes it, where that is not intervals."""
    made = _Resting(found)
    made.rests_on = what
    return made


def decided(*, supported: bool, contradicted: bool) -> RulingWord:
    """The ruling of evidence for a claim and against it; what contradicts it counts more."""
    return "contradicted" if contradicted else "supported" if supported else "cannot tell"


def by_counts(ruling: RulingWord, found: Message) -> Found:
    """A finding from exact numbers."""
    return resting_on("counts", (ruling, found))


def by_values(ruling: RulingWord, found: Message) -> Found:
    """A finding from all values of a printed table."""
    return resting_on("printed values", (ruling, found))


def ruling(identity: str, claim: Message, where: Message, found: Found) -> ClaimRuling:
    """A claim with what was found: the one place where rulings are made."""
    rests_on: RestsOn = found.rests_on if isinstance(found, _Resting) else "intervals"
    decided = found[0] in ("supported", "contradicted")
    return ClaimRuling(
        id=identity,
        claim=claim,
        where=where,
        ruling=found[0],
        found=found[1],
        rests_on=rests_on if decided else "",
    )


def only_of(data: StudyData, named: Message, found: Found) -> Found:
    """What was found, of a claim about `named` models or machines; where others were measured it does not apply."""
    if not data.stands_in or data.origin == "published":
        return found
    return "does not apply here", Message("study.elsewhere", named=named, found=found[1])


def denied_by(values: Sequence[float], *, most: float, last_digit: float) -> list[float]:
    """Values that deny a claim of `at most` so much, beyond half a unit of its own last digit."""
    return [value for value in values if value > most + last_digit / 2]


def by_intervals(found: Sequence[tuple[Estimate, float]], about: float) -> RulingWord:
    """Of estimates, each claimed to be about so much: within a share `about` of it with their whole interval."""
    if found and all(above(it, (1 - about) * value) and below(it, (1 + about) * value) for it, value in found):
        return "supported"
    outside = any(below(it, (1 - about) * value) or above(it, (1 + about) * value) for it, value in found)
    return "contradicted" if outside else "cannot tell"


def fallen(lines: Sequence[ArmResult], among: int) -> Message:
    """How many of `among` lines do not stand, and why: `2 of 4 false, 2 implausible: they support nothing`"""
    unlike = sum(line.comparison_only for line in lines)
    counts = {
        "study.fallen.false": sum(line.verdict == "invalid" and not line.comparison_only for line in lines),
        "study.fallen.implausible": sum(line.verdict == "implausible" for line in lines),
        "study.fallen.unlike": unlike,
        "study.fallen.doubtful": sum(not line.carries for line in lines),
    }
    (first, number), *more = [(code, number) for code, number in counts.items() if number]
    some = Message("study.some_of", number=number, of=among, what=Message(first))
    rest = [Message("study.some", number=number, what=Message(code)) for code, number in more]
    return Message("study.fallen", parts=[some, *rest])


def quoted(estimate: Estimate | None, unit: str | Message = "") -> Message:
    """`1.26 [1.20, 1.31]`, or openly without an interval; its place has the digits, as in `{speedup:.2f}`."""
    if estimate is None:
        return Message("unknown")
    unit = Message("study.times") if unit == "x" else unit
    if estimate.low is None or estimate.high is None:
        return Message("study.single", point=estimate.point, unit=unit)
    return Message("study.interval", point=estimate.point, unit=unit, low=_end(estimate.low), high=_end(estimate.high))


def _end(value: float) -> float | Message:
    """An end of an interval; of one that says nothing only that it is far away."""
    return value if value < FAR else Message("study.above", far=FAR)


def share(value: float | Estimate | None) -> Message:
    """`3.3 %`."""
    point = value.point if isinstance(value, Estimate) else value
    return Message("unknown") if point is None else Message("study.share", percent=100 * point)


def in_percent(estimate: Estimate) -> Message:
    """`64.0 % [60.1, 68.0]`; its place has the digits. The share alone where there is no interval."""
    return share(estimate) if estimate.low is None else quoted(scaled(estimate, 100, "%"), "%")


def sentence(said: Message) -> Message:
    """What is said with its full stop."""
    return Message("study.sentence", said=said)


def where_any(code: str, *, n: int, **values: Value) -> Message | str:
    """What is added where there is any of it."""
    return Message(code, n=n, **values) if n else ""


def several(items: Iterable[Value], most: int | None = None) -> Message:
    """`a; b; and 3 more`, of which at most this many are said."""
    known = list(items)
    more = 0 if most is None else len(known) - most
    if more <= 0 and len(known) == 1 and isinstance(known[0], Message):
        return known[0]
    return Message("study.list", parts=[*known[:most], *([Message("study.more", more=more)] if more > 0 else ())])
