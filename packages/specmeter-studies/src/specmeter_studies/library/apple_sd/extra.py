"""apple-sd: what its claims say of speed ratios.

`governed` compares pairs of arms, `gain_at_low_acceptance` asks what the measured steps would gain at an acceptance
that no arm has, `sufficient` and `necessary` tell what break-even needs.

moe-sd and self-speculation, of the same document, use the last two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from specmeter.audit.counters import FAILED
from specmeter.numbers.estimates import exceeds
from specmeter.theory.cost import permitted_speedup
from specmeter_studies import apple_published
from specmeter_studies.pairings import RULE, Pairing, believable, pairings
from specmeter_studies.rules import exceeded
from specmeter_studies.study import by_counts, fallen, share

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

CLAIMED = 1.257
BEST = ("0.8B_Q8", 4)
"""Draft and draft length of the marked row."""
LOW_ACCEPTANCE = 0.04
"""The upper end of the acceptance at which the document reports gains."""


def nothing_left(pairs: Sequence[Pairing]) -> str:
    """Why there is no speedup to judge by."""
    bad = [pair.line for pair in pairs if not pair.line.stands]
    if not pairs:
        return "None of this was measured."
    if not bad:
        return f"None of {len(pairs)} arms has a speedup."
    first = next(pair for pair in pairs if not pair.line.stands)
    return f"No speedup is left. {fallen(bad, len(pairs))} {first.told}; {first.line.why}."


def published() -> StudyData:
    """Twelve runs, all of them refuted by the document's own counters and rates."""
    return apple_published.speculation("apple-sd", "9B_Q8")


def governed(data: StudyData) -> Found:
    """Whether the ratio decides about the speedup: a higher one gives more, and equal ones give the same.

    Each comparison is of two arms on one target whose speedups' intervals do not meet: either the slower draft gains
    more, or the same draft (on another text, or with another length) gains otherwise.
    """
    pairs, by_prompt = pairings(data), pairings(data, by_prompt=True)
    known = believable(pairs)
    if not known:
        return "cannot tell", nothing_left(pairs)
    against: list[tuple[Pairing, Pairing]] = []
    agreeing = 0
    for one, other in combinations(known, 2):
        if one.line.target != other.line.target:
            continue
        low, high = sorted((one, other), key=lambda pair: pair.line.speedup.point if pair.line.speedup else 0.0)
        if not exceeds(high.line.speedup, low.line.speedup):
            continue
        if low.line.draft == high.line.draft or exceeds(low.ratio, high.ratio):
            against.append((low, high))
        elif exceeds(high.ratio, low.ratio):
            agreeing += 1
    same = [
        (low, high)
        for low, high in _ordered(believable(by_prompt))
        if low.line.config == high.line.config and exceeds(high.line.speedup, low.line.speedup)
    ]
    against += same[:1]
    if against:
        shown = "; ".join(f"{low.told}, but {high.told}" for low, high in against[:2])
        return (
            "contradicted",
            f"Speedups differ although the ratio is the same or lower ({len(against)} pairs of arms whose "
            f"intervals do not meet): {shown}. Acceptance and the cost of verification matter as well.",
        )
    if agreeing:
        return "supported", f"In {agreeing} pairs of arms the faster draft gains more, in none it gains less."
    return "cannot tell", f"No two arms differ beyond their intervals: {_all(known)}."


def best_arm(data: StudyData) -> Found:
    """Whether the fastest draft with its short length gains more than every other arm."""

    def beside_the_best(rows: Sequence[Pairing]) -> list[tuple[Pairing, Pairing]]:
        best = [it for it in rows if (it.line.draft, it.line.gamma) == BEST]
        return [(one, other) for one in best for other in rows if other not in best]

    return exceeded(pairings(data), "line.speedup", beside_the_best, told="told", missing="No speedup is left.")


def sufficient(data: StudyData, targets: Sequence[str] | None = None) -> Found:
    """The rule read as `a ratio of 2.5 or more pays, a lower one does not`."""
    pairs = pairings(data, targets)
    known = believable(pairs)
    if not known:
        return "cannot tell", f"{nothing_left(pairs)} {_asks(pairs)}"
    wrong = [
        pair
        for pair in known
        if (pair.side == "above" and pair.outcome == "loses") or (pair.side == "below" and pair.outcome == "gains")
    ]
    if wrong:
        return (
            "contradicted",
            f"{_all(wrong)}. {_asks(wrong)}",
        )
    right_above = [pair for pair in known if pair.side == "above" and pair.outcome == "gains"]
    right_below = [pair for pair in known if pair.side == "below" and pair.outcome == "loses"]
    undecided = len(known) - len(right_above) - len(right_below)
    if right_above and right_below and not undecided:
        return "supported", f"Every arm is on its side: {_all(known)}. {_asks(known)}"
    return (
        "cannot tell",
        f"{len(right_above)} arms from a ratio of {RULE:g} on gain, {len(right_below)} below it lose, the other "
        f"{undecided} are undecided: {_all(known)}. {_asks(known)}",
    )


def necessary(data: StudyData) -> Found:
    """The rule read as `break-even needs a ratio of 2.5`: losers alone place no threshold, an arm must gain above."""
    pairs = pairings(data)
    known = believable(pairs)
    if not known:
        return "cannot tell", f"{nothing_left(pairs)} {_asks(pairs)}"
    below = [pair for pair in known if pair.side == "below"]
    wrong = [pair for pair in below if pair.outcome == "gains"]
    if wrong:
        return "contradicted", f"These gain below a ratio of {RULE:g}: {_all(wrong)}. {_asks(wrong)}"
    losing = sum(pair.outcome == "loses" for pair in below)
    if below and losing == len(below):
        lost = f"All {len(below)} arms below a ratio of {RULE:g} lose: {_all(below)}."
        gaining = [pair for pair in known if pair.side == "above" and pair.outcome == "gains"]
        if gaining:
            return "supported", f"{lost} Above it these gain: {_all(gaining)}. {_asks(known)}"
        return "cannot tell", f"{lost} No arm above it gains or was measured, so no threshold was found. {_asks(below)}"
    return (
        "cannot tell",
        f"{losing} of {len(below)} arms below a ratio of {RULE:g} lose, the others are undecided: {_all(known)}.",
    )


def gain_at_low_acceptance(data: StudyData) -> Found:
    """Whether an arm gains at an acceptance of 4 % or less, or what it would gain there at the cost of its steps.

    tau = 1 + 0.04 d for d drafted tokens per step, whatever the engine does; what a step costs was measured.
    """
    pairs = pairings(data)
    near = [pair for pair in pairs if pair.line.acceptance is not None and pair.line.acceptance.point <= LOW_ACCEPTANCE]
    gaining = [pair for pair in believable(near) if pair.outcome == "gains"]
    if gaining:
        return "supported", f"{_all(gaining)}."
    claimed_more = [pair for pair in near if _above_what_is_permitted(pair)]
    if claimed_more:
        return _not_by_verification(near, claimed_more)
    losing = [pair for pair in believable(near) if pair.outcome == "loses"]
    if losing:
        return "contradicted", f"At such an acceptance these lose: {_all(losing)}."
    found = [(pair, best) for pair in believable(pairs) if (best := _at_low_acceptance(pair)) is not None]
    if not found:
        return "cannot tell", nothing_left(pairs) if not believable(
            pairs
        ) else f"No arm's cost is known: {_all(pairs)}."
    pair, best = max(found, key=lambda item: item[1])
    said = (
        f"No arm accepts so little; {pair.told} costs {pair.line.step_cost:.2f} target forwards a step, so at "
        f"{share(LOW_ACCEPTANCE)} accepted it would be at most {best:.2f} times as fast as plain decoding, "
        f"taking the ends of its intervals that favour it (claimed: {CLAIMED:.3f}); the other arms less."
    )
    return ("contradicted" if best < 1 else "cannot tell"), said


def _not_by_verification(near: Sequence[Pairing], claimed: Sequence[Pairing]) -> Found:
    """Of speedups that are only claimed: what permits them at such an acceptance, and what the raw logs count.

    The bound by itself rests on a verification being no cheaper than one plain token, and contradicts nothing.
    """
    said = " ".join(_permitted(pair) for pair in claimed[:2])
    failed = next((pair for pair in near if FAILED in pair.line.why), None)
    if failed is None:
        return "cannot tell", f"{said} More needs a verification that is cheaper than one plain token."
    return by_counts(
        "contradicted",
        f"{said} Time was saved not by efficient verification but because verification failed, by the raw log of "
        f"a run behind {failed.name}: {failed.line.why.partition(f'{FAILED}: ')[2]}.",
    )


def _at_low_acceptance(pair: Pairing) -> float | None:
    """The most that the arm's steps could gain at 4 % accepted: (1 + 0.04 d) / cost, the cost at its lowest."""
    tau, speedup = pair.line.tau, pair.line.speedup
    if tau is None or speedup is None or speedup.high is None or not pair.drafted:
        return None
    cost = (tau.low if tau.low is not None else tau.point) / speedup.high
    return (1 + LOW_ACCEPTANCE * pair.drafted) / cost


def _above_what_is_permitted(pair: Pairing) -> bool:
    """Whether a claimed speedup exceeds tau, which acceptance and draft length alone permit."""
    line = pair.line
    if line.claimed_speedup is None or line.acceptance is None or line.gamma is None:
        return False
    return line.claimed_speedup > permitted_speedup(line.acceptance.point, line.gamma)


def _permitted(pair: Pairing) -> str:
    line = pair.line
    assert line.acceptance is not None
    assert line.gamma is not None
    assert line.claimed_speedup is not None
    tau = permitted_speedup(line.acceptance.point, line.gamma)
    said = (
        f"{pair.name}: {line.claimed_speedup:.3f} is claimed, but {share(line.acceptance)} accepted permit at "
        f"most {tau:.3f}"
    )
    if pair.draft_cost is not None:
        least = permitted_speedup(line.acceptance.point, line.gamma, pair.draft_cost)
        said += f"; {least:.2f} with the draft's own time"
    return f"{said}."


def _asks(pairs: Sequence[Pairing]) -> str:
    """What the theory asks for beside a ratio."""
    known = [pair for pair in pairs if pair.least_acceptance is not None]
    if not known:
        return ""
    parts = [_needs(pair) for pair in list({pair.line.draft: pair for pair in known}.values())[:3]]
    return f"Break-even needs acceptance, not a ratio alone, even if verification were free: {'; '.join(parts)}."


def _needs(pair: Pairing) -> str:
    least, needed = pair.least_acceptance, pair.needed_acceptance
    ratio = pair.ratio.point if pair.ratio is not None else 0.0
    name, has = f"{pair.line.draft} at {ratio:.2f}", share(pair.line.acceptance)
    if least is None or math.isinf(least):
        return f"{name} could not pay even with all accepted, and has {has}"
    if needed is None:
        return f"{name} needs {share(least)} and has {has}"
    if math.isinf(needed):
        return f"{name} needs {share(least)} (no acceptance suffices at the measured cost of a step) and has {has}"
    return f"{name} needs {share(least)} ({share(needed)} at the measured cost of a step) and has {has}"


def _ordered(pairs: Sequence[Pairing]) -> list[tuple[Pairing, Pairing]]:
    """All pairs, the lower speedup first."""
    ordered = sorted(pairs, key=lambda pair: pair.line.speedup.point if pair.line.speedup else 0.0)
    return list(combinations(ordered, 2))


def _all(pairs: Sequence[Pairing]) -> str:
    return "; ".join(pair.told for pair in pairs[:4]) + (f"; and {len(pairs) - 4} more" if len(pairs) > 4 else "")
