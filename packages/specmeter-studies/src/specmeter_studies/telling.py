"""How findings are put into words, and the one rule of what counts for them.

A claim is *supported* or *contradicted* by numbers, and by these only:

    intervals       every number that decides has an interval, and each lies wholly on one side (`estimates.above`,
                    `below`, `exceeds`). Ours are over blocks; of printed numbers from their spread and their runs
    counts          exact numbers, and arithmetic with printed ones: true to half a unit of their last digit
    printed values  what a document says about its own table holds or falls by every value of that table (`denied_by`)

Numbers that do not stand (impossible, implausible, invalid) support nothing. They can deny what their own document
says about them: a claim that its own table refutes falls, whatever the table is worth. A bound that rests on
assumptions contradicts nothing by itself: it makes numbers implausible. What is claimed of named models or machines
does not apply where others were measured (`only_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below
from specmeter.record import Estimate
from specmeter_studies.study import ClaimRuling, RestsOn, RulingWord

if TYPE_CHECKING:
    from specmeter_studies.study import ArmResult, StudyData

Found = tuple[RulingWord, str]
"""A ruling, and what was found, in words."""
FAR = 1e4
"""Ends of intervals beyond this are not printed: such an interval says nothing."""


class _Resting(tuple[RulingWord, str]):
    """A finding that rests on something else than intervals."""

    rests_on: RestsOn


def resting_on(what: RestsOn, found: Found) -> Found:
    """A finding with what makes it, where that is not intervals."""
    made = _Resting(found)
    made.rests_on = what
    return made


def by_counts(ruling: RulingWord, told: str) -> Found:
    """A finding from exact numbers."""
    return resting_on("counts", (ruling, told))


def by_values(ruling: RulingWord, told: str) -> Found:
    """A finding from all values of a printed table."""
    return resting_on("printed values", (ruling, told))


def ruling(identity: str, claim: str, where: str, found: Found, *, chinese: str = "") -> ClaimRuling:
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
        chinese=chinese,
    )


def only_of(data: StudyData, named: str, found: Found) -> Found:
    """What was found, of a claim about `named` models or machines; where others were measured it does not apply."""
    if not data.stands_in or data.origin == "published":
        return found
    return "does not apply here", f"Claimed of {named}; other models were measured here. {found[1]}"


def denied_by(values: Sequence[float], *, most: float, last_digit: float) -> list[float]:
    """Values that deny a claim of `at most` so much, beyond half a unit of its own last digit."""
    return [value for value in values if value > most + last_digit / 2]


def by_intervals(found: Sequence[tuple[Estimate, float]], about: float) -> RulingWord:
    """Of estimates, each claimed to be about so much: within a share `about` of it with their whole interval."""
    if found and all(above(it, (1 - about) * value) and below(it, (1 + about) * value) for it, value in found):
        return "supported"
    outside = any(below(it, (1 - about) * value) or above(it, (1 + about) * value) for it, value in found)
    return "contradicted" if outside else "cannot tell"


def fallen(lines: Sequence[ArmResult], among: int) -> str:
    """How many of `among` lines do not stand, and why: `2 of 4 false, 2 implausible: they support nothing.`"""
    unlike = sum(line.comparison_only for line in lines)
    counts = {
        "false": sum(line.verdict == "invalid" and not line.comparison_only for line in lines),
        "implausible": sum(line.verdict == "implausible" for line in lines),
        "compared with something unlike": unlike,
    }
    (first, number), *more = [(word, number) for word, number in counts.items() if number]
    told = ", ".join((f"{number} of {among} {first}", *(f"{number} {word}" for word, number in more)))
    return f"{told}: they support nothing."


def quoted(estimate: Estimate | None, digits: int = 2, unit: str = "") -> str:
    """`1.26 [1.20, 1.31]`, or openly without an interval."""
    if estimate is None:
        return "unknown"
    point = f"{estimate.point:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{point} (no interval)"
    return f"{point} [{_end(estimate.low, digits)}, {_end(estimate.high, digits)}]"


def _end(value: float, digits: int) -> str:
    """An end of an interval; of one that says nothing only that it is far away."""
    return f"{value:.{digits}f}" if value < FAR else f"above {FAR:g}"


def share(value: float | Estimate | None) -> str:
    """`3.3 %`."""
    point = value.point if isinstance(value, Estimate) else value
    return "unknown" if point is None else f"{100 * point:.1f} %"
