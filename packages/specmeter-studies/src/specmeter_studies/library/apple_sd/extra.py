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
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import exceeds
from specmeter.theory.cost import permitted_speedup
from specmeter_studies import apple_published
from specmeter_studies.from_claims import reason_of
from specmeter_studies.pairings import RULE, Pairing, believable, pairings
from specmeter_studies.rules import NOTHING, exceeded
from specmeter_studies.telling import by_counts, fallen, sentence, several, share

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

CLAIMED = 1.257
BEST = ("0.8B_Q8", 4)
"""Draft and draft length of the marked row."""
LOW_ACCEPTANCE = 0.04
"""The upper end of the acceptance at which the document reports gains."""


NO_SPEEDUP = Message("apple-sd.no_speedup")


def nothing_left(pairs: Sequence[Pairing]) -> Message:
    """Why there is no speedup to judge by."""
    bad = [pair.line for pair in pairs if not pair.line.stands]
    if not pairs:
        return NOTHING
    if not bad:
        return Message("apple-sd.none_has", n=len(pairs))
    first = next(pair for pair in pairs if not pair.line.stands)
    return Message(
        "study.fallen.left",
        missing=NO_SPEEDUP,
        fallen=fallen(bad, len(pairs)),
        row=first.message,
        why=first.line.why or "",
    )


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
        shown = [Message("apple-sd.but", low=low.message, high=high.message) for low, high in against[:2]]
        return "contradicted", Message("apple-sd.differ", pairs=len(against), shown=shown)
    if agreeing:
        return "supported", Message("apple-sd.faster_gains", pairs=agreeing)
    return "cannot tell", Message("apple-sd.alike", arms=_all(known))


def best_arm(data: StudyData) -> Found:
    """Whether the fastest draft with its short length gains more than every other arm."""

    def beside_the_best(rows: Sequence[Pairing]) -> list[tuple[Pairing, Pairing]]:
        best = [it for it in rows if (it.line.draft, it.line.gamma) == BEST]
        return [(one, other) for one in best for other in rows if other not in best]

    return exceeded(pairings(data), "line.speedup", beside_the_best, told="message", missing=NO_SPEEDUP)


def sufficient(data: StudyData, targets: Sequence[str] | None = None) -> Found:
    """The rule read as `a ratio of 2.5 or more pays, a lower one does not`."""
    pairs = pairings(data, targets)
    known = believable(pairs)
    if not known:
        return "cannot tell", Message("apple-sd.nothing", why=nothing_left(pairs), asks=_asks(pairs))
    wrong = [
        pair
        for pair in known
        if (pair.side == "above" and pair.outcome == "loses") or (pair.side == "below" and pair.outcome == "gains")
    ]
    if wrong:
        return "contradicted", Message("apple-sd.wrong_side", arms=_all(wrong), asks=_asks(wrong))
    right_above = [pair for pair in known if pair.side == "above" and pair.outcome == "gains"]
    right_below = [pair for pair in known if pair.side == "below" and pair.outcome == "loses"]
    undecided = len(known) - len(right_above) - len(right_below)
    if right_above and right_below and not undecided:
        return "supported", Message("apple-sd.right_side", arms=_all(known), asks=_asks(known))
    return (
        "cannot tell",
        Message(
            "apple-sd.some_undecided",
            above=len(right_above),
            rule=RULE,
            below=len(right_below),
            undecided=undecided,
            arms=_all(known),
            asks=_asks(known),
        ),
    )


def necessary(data: StudyData) -> Found:
    """The rule read as `break-even needs a ratio of 2.5`: losers alone place no threshold, an arm must gain above."""
    pairs = pairings(data)
    known = believable(pairs)
    if not known:
        return "cannot tell", Message("apple-sd.nothing", why=nothing_left(pairs), asks=_asks(pairs))
    below = [pair for pair in known if pair.side == "below"]
    wrong = [pair for pair in below if pair.outcome == "gains"]
    if wrong:
        return "contradicted", Message("apple-sd.gain_below", rule=RULE, arms=_all(wrong), asks=_asks(wrong))
    losing = sum(pair.outcome == "loses" for pair in below)
    if below and losing == len(below):
        lost = Message("apple-sd.all_below_lose", below=len(below), rule=RULE, arms=_all(below))
        gaining = [pair for pair in known if pair.side == "above" and pair.outcome == "gains"]
        if gaining:
            return "supported", Message("apple-sd.gain_above", lost=lost, arms=_all(gaining), asks=_asks(known))
        return "cannot tell", Message("apple-sd.no_threshold", lost=lost, asks=_asks(below))
    return (
        "cannot tell",
        Message("apple-sd.some_below_lose", losing=losing, below=len(below), rule=RULE, arms=_all(known)),
    )


def gain_at_low_acceptance(data: StudyData) -> Found:
    """Whether an arm gains at an acceptance of 4 % or less, or what it would gain there at the cost of its steps.

    tau = 1 + 0.04 d for d drafted tokens per step, whatever the engine does; what a step costs was measured.
    """
    pairs = pairings(data)
    near = [pair for pair in pairs if pair.line.acceptance is not None and pair.line.acceptance.point <= LOW_ACCEPTANCE]
    gaining = [pair for pair in believable(near) if pair.outcome == "gains"]
    if gaining:
        return "supported", sentence(_all(gaining))
    claimed_more = [pair for pair in near if _above_what_is_permitted(pair)]
    if claimed_more:
        return _not_by_verification(near, claimed_more)
    losing = [pair for pair in believable(near) if pair.outcome == "loses"]
    if losing:
        return "contradicted", Message("apple-sd.lose_there", arms=_all(losing))
    found = [(pair, best) for pair in believable(pairs) if (best := _at_low_acceptance(pair)) is not None]
    if not found:
        unknown = Message("apple-sd.no_cost", arms=_all(pairs))
        return "cannot tell", unknown if believable(pairs) else nothing_left(pairs)
    pair, best = max(found, key=lambda item: item[1])
    said = Message(
        "apple-sd.none_accepts_little",
        arm=pair.message,
        cost=pair.line.step_cost,
        share=share(LOW_ACCEPTANCE),
        best=best,
        claimed=CLAIMED,
    )
    return ("contradicted" if best < 1 else "cannot tell"), said


def _not_by_verification(near: Sequence[Pairing], claimed: Sequence[Pairing]) -> Found:
    """Of speedups that are only claimed: what permits them at such an acceptance, and what the raw logs count.

    The bound on its own rests on a verification being no cheaper than one plain token, and contradicts nothing.
    """
    first, *more = [_permitted(pair) for pair in claimed[:2]]
    said = Message("study.sentences", first=first, second=more[0]) if more else first
    failed = next(((pair, why) for pair in near if (why := reason_of(pair.line.why, FAILED)) is not None), None)
    if failed is None:
        return "cannot tell", Message("apple-sd.needs_cheaper", said=said)
    return by_counts("contradicted", Message("apple-sd.failed", said=said, name=failed[0].name, why=failed[1]))


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


def _permitted(pair: Pairing) -> Message:
    line = pair.line
    assert line.acceptance is not None
    assert line.gamma is not None
    least = None
    if pair.draft_cost is not None:
        least = permitted_speedup(line.acceptance.point, line.gamma, pair.draft_cost)
    return Message(
        "apple-sd.permitted",
        name=pair.name,
        claimed=line.claimed_speedup,
        share=share(line.acceptance),
        tau=permitted_speedup(line.acceptance.point, line.gamma),
        with_drafts="" if least is None else Message("apple-sd.with_drafts", least=least),
    )


def _asks(pairs: Sequence[Pairing]) -> Message | str:
    """What the theory asks for beside a ratio."""
    known = [pair for pair in pairs if pair.least_acceptance is not None]
    if not known:
        return ""
    parts = [_needs(pair) for pair in list({pair.line.draft: pair for pair in known}.values())[:3]]
    return Message("apple-sd.asks", parts=parts)


def _needs(pair: Pairing) -> Message:
    least, needed = pair.least_acceptance, pair.needed_acceptance
    of: dict[str, Value] = {
        "draft": pair.line.draft,
        "ratio": pair.ratio.point if pair.ratio is not None else 0.0,
        "has": share(pair.line.acceptance),
    }
    if least is None or math.isinf(least):
        return Message("apple-sd.needs.never", **of)
    if needed is None:
        return Message("apple-sd.needs", **of, least=share(least))
    if math.isinf(needed):
        return Message("apple-sd.needs.more_than_all", **of, least=share(least))
    return Message("apple-sd.needs.at_cost", **of, least=share(least), needed=share(needed))


def _ordered(pairs: Sequence[Pairing]) -> list[tuple[Pairing, Pairing]]:
    """All pairs, the lower speedup first."""
    ordered = sorted(pairs, key=lambda pair: pair.line.speedup.point if pair.line.speedup else 0.0)
    return list(combinations(ordered, 2))


def _all(pairs: Sequence[Pairing]) -> Message:
    return several((pair.message for pair in pairs), 4)
