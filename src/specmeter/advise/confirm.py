"""The confirmation: what was chosen, and no speculation, on fresh servers, in as many blocks as were fixed beforehand.

The runner-up of the race goes with it where the race leaves it within reach: of the two the better one on all prompts
is advised. Where another arm of the race may be more than 2 % faster by all that was measured of both, the answer is
one or the other: that bound is one of as many as the race had pairs with its leader.

Whether *nothing* gains is asked of race and confirmation together, too: the race, which chose an arm for its luck, errs
against the answer. To say that none gains more than 2 %, an upper bound at 95 % for each arm is enough
(intersection-union test).

What the confirmation leaves open is measured once more, from the beginning, in as many more blocks as that needs and
the budget allows. So there are two looks, at one or two arms, and each interval over blocks is one of all of these
(Bonferroni). "Speculate" is said only where the interval over prompts lies above 1 as well; under load, where prompts
share the machine, blocks have to do. Its own checks decide whether a confirmation counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.advise.advice import DRAFTS, AdviceOfKind
from specmeter.advise.race import CONFIRMATION, best_other
from specmeter.advise.stage import StagePlan
from specmeter.advise.standing import rates_in
from specmeter.analysis.answer import least_units
from specmeter.analysis.reading import read_run
from specmeter.numbers.estimates import scaled
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import simultaneous, speedup_over_halves
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, Goal
    from specmeter.advise.session import AdviseSession
    from specmeter.advise.standing import Answered
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.numbers.stats import Floats
    from specmeter.record import Estimate, Verdict


FIRST, LONGER = "confirm", "confirm-longer"
"""Names of the confirmations' run folders: the first, and that of the same arms once more."""
LOOKS = 2
"""At the confirmation; each has its share of the error."""
BOUND = 0.9
"""Level of an interval of which each end is a bound at 95 %."""
Shown = Literal["no-gain", "priced", "raced", "settled", "open"]
"""What is known of all arms. `no-gain`: none gains 2 %, by race and confirmation together. Of those that are not
confirmed alone: `priced`: predicted not to gain. `raced`: shown to be slower, or within 2 %. `settled`: some are
neither, and little is expected to be lost by leaving them. `open`: none of these."""
Ruling = Literal["gains", "here", "same", "none", "open", "invalid"]
"""`gains`: faster than no speculation, and on other prompts like these, too; `here`: faster on these; `same`: within
2 %; `none`: not faster by 2 % or more; `open`: none of these is shown."""
DECISIONS: dict[Ruling, Decision] = {
    "gains": "speculate",
    "here": "on-these-prompts",
    "same": "no-difference",
    "none": "off",
}
"""Rulings that decide something by themselves."""

MAX_BLOCKS = 6
MAX_BLOCKS_LONGER = 24
NOISY = 1.25
"""An interval that leaves things open, and whose upper end is this many times its lower end, is noise."""


@dataclass(frozen=True)
class Confirmed:
    """What the confirmation says of an arm."""

    arm_id: str
    speedup: Estimate | None
    over_prompts: Estimate | None
    """The same with the interval for other prompts."""
    tau: Estimate | None
    verdict: Verdict | None
    ruling: Ruling
    place: str
    """Name of the run folder that says so."""
    doubts: tuple[str, ...] = ()
    """Checks that make the verdict worse than valid."""
    rival: str = ""
    """Another arm, which may be more than 2 % faster."""
    busy: bool = False
    """Others disturbed it so often that blocks were given up."""

    @property
    def why_open(self) -> str:
        """A code of `Advice.why_undecided`."""
        if self.ruling == "invalid":
            return "busy" if self.busy else "invalid"
        low, high = ends(self.speedup)
        return "too-noisy" if math.isinf(high) or high > NOISY * low else "not-confirmed"


def confirm(session: AdviseSession, raced: Sequence[Answered]) -> None:
    """Measure what was chosen on the other prompts, and decide; the advice is finished then."""
    first = raced[0] if raced else None
    plain = session.baseline.id
    off_raced = first is not None and first.leader == plain
    if first is None:
        outcomes = [it for it in session.advice.outcomes if it.code == "open"] or session.advice.outcomes
        known = [it for it in outcomes if it.predicted is not None] or outcomes
        arm = max(known, key=lambda it: it.predicted.point if it.predicted else 0.0).arm_id if known else None
    else:
        arm = best_other(session.arms, first) if off_raced else first.leader
    if arm is None:  # every arm failed
        basis = "raced" if raced else "predicted"
        session.answer("undecided", basis, None, None, finished=True, why_undecided="failed")
        return
    of_kind = {it.question.kind: it.leader for it in raced[1:] if it.leader not in (arm, plain)}
    rival = "" if first is None or off_raced else runner_up(session, first, arm)
    found = measured(session, FIRST, arm, rival, of_kind)
    decision, why = decide(found, off_raced=off_raced, shown=shown_of(session, first, found))
    if decision == "undecided" and found.ruling == "open" and (blocks := _longer(session, found, arm, rival, of_kind)):
        session.observer.note("the confirmation leaves it open; it is measured once more, in more blocks")
        found = measured(session, LONGER, arm, rival, of_kind, blocks=blocks)
        decision, why = decide(found, off_raced=off_raced, shown=shown_of(session, first, found))
    if first is not None and decision in DRAFTS and session.advice.asked.load is None:
        places = until(found.place)
        found = replace(found, rival=rival_of(session.folder, session.advice.asked.goal, first, found.arm_id, places))
    if why == "budget" and _room(session, 2) >= least_units(1):
        why = "not-told-apart"
    finish(
        session,
        decision,
        found,
        why,
        by_kind(session.folder / found.place, found.arm_id, of_kind, session.advice.asked.goal),
    )


def _longer(session: AdviseSession, found: Confirmed, arm: str, rival: str, of_kind: Mapping[str, str]) -> int:
    """Blocks in which the same arms would probably be decided, twice as many as there were at least; 0 where there is
    no room for more than there were."""
    from specmeter.numbers.elimination import blocks_to_decide

    if RunStore.exists(session.folder / LONGER):
        return MAX_BLOCKS_LONGER  # it continues as it was started
    if found.speedup is None:
        return 0
    arms = _arms(arm, rival, of_kind)
    among = LOOKS * len(arms)
    wanted = max(2 * found.speedup.n, blocks_to_decide(found.speedup, most=MAX_BLOCKS_LONGER, among=among))
    blocks = min(wanted, _room(session, len(arms) + 1))
    return blocks if blocks > found.speedup.n else 0


def _room(session: AdviseSession, arms: int) -> int:
    """Blocks of this many arms, decoding without speculation among them, for which there is time."""
    return int(session.left() / (CONFIRMATION * session.plain_cell_s * arms))


def shown_of(session: AdviseSession, first: Answered | None, found: Confirmed) -> Shown:
    """What is known of the arms."""
    if first is None and any(
        it.code in ("open", "no-room") for it in session.advice.outcomes if it.arm_id != found.arm_id
    ):
        return "open"
    if none_gains(session, first, found):
        return "no-gain"
    if first is None:
        return "priced"
    return "raced" if first.decided else "settled" if first.settled else "open"


def none_gains(session: AdviseSession, first: Answered | None, found: Confirmed) -> bool:
    """Whether each arm that the race left, and the one that was confirmed, is bounded below a gain of 2 % by all that
    was measured of it."""
    plain = session.baseline.id
    arms = {found.arm_id, *(first.survivors if first is not None else ())} - {plain}
    ratios = [over_halves(session.folder, session.advice.asked.goal, until(found.place), it, plain) for it in arms]
    return all(ends(ratio)[1] <= 1 + MARGIN for ratio in ratios)


def decide(found: Confirmed, *, off_raced: bool, shown: Shown) -> tuple[Decision, str]:
    """(decision, why it is open) by the confirmation of an arm, and what is shown of the others. `off_raced`: plain
    decoding was ahead in the race, and the arm is the best other one."""
    small = found.speedup is not None and found.speedup.point < 1 + MARGIN
    match found.ruling:
        case "invalid":
            return "undecided", found.why_open
        case "gains" | "here":
            if not (off_raced and shown in ("raced", "no-gain")):
                return DECISIONS[found.ruling], ""
            # The race has shown that it is not faster by 2 %: of more than that, the two disagree.
            return ("off", "") if small else ("undecided", "not-confirmed")
        case "same" | "none":
            return ("undecided", "budget") if shown == "open" else (DECISIONS[found.ruling], "")
        case "open":
            # Race and confirmation show it together, or the race does and the confirmation does not contradict it.
            proven = shown == "no-gain" or (off_raced and shown == "raced")
            return ("off", "") if proven and small else ("undecided", found.why_open)


def runner_up(session: AdviseSession, first: Answered, leader: str) -> str:
    """The arm that is confirmed with the leader of the race, as the race leaves it. Empty: none, under load, or where
    there is no room for it."""
    if session.advice.asked.load is not None or _room(session, 3) < least_units(2):
        return ""
    return rival_of(session.folder, session.advice.asked.goal, first, leader, ("race",))


def rival_of(folder: Path, goal: Goal, first: Answered, arm: str, places: Sequence[str]) -> str:
    """The arm of the race that may be faster than this one by the most of those that may be so by more than 2 % by what
    these stages measured, also where the race left it out. Empty: none."""
    others = [it for it in first.arms[1:] if it != arm]
    lows = {it: ends(over_halves(folder, goal, places, arm, it, among=len(others)))[0] for it in others}
    reached = {it: low for it, low in lows.items() if low <= 1 / (1 + MARGIN)}
    return min(reached, key=reached.__getitem__, default="")


def until(place: str) -> tuple[str, ...]:
    """Stages that compare arms, up to a confirmation."""
    return ("race", FIRST) if place == FIRST else ("race", FIRST, LONGER)


def over_halves(
    folder: Path, goal: Goal, places: Sequence[str], arm: str, other: str, *, among: int = 1
) -> Estimate | None:
    """Rate of an arm over that of another by all blocks of these stages that hold both, each end of its interval a
    bound at 95 % together with `among` like it; None where too little was measured."""
    halves: dict[bool, list[Floats]] = {}
    for place in places:
        if not RunStore.exists(folder / place):
            continue
        with RunStore.open(folder / place, readonly=True) as store:
            if {arm, other} <= {it.id for it in store.arms()}:
                rates = rates_in(store, (arm, other), goal)
                logs = rates[:, 0] - rates[:, 1]
                halves.setdefault(place == "race", []).append(logs[np.isfinite(logs)])
    pooled = [np.concatenate(it) for it in halves.values()]
    return speedup_over_halves([it for it in pooled if len(it) > 1], level=1 - (1 - BOUND) / among)


def _arms(arm: str, rival: str, of_kind: Mapping[str, str]) -> list[str]:
    """What is confirmed next to no speculation."""
    return [it for it in dict.fromkeys([arm, rival, *of_kind.values()]) if it]


def measured(
    session: AdviseSession, name: str, arm: str, rival: str, of_kind: Mapping[str, str], *, blocks: int = 0
) -> Confirmed:
    """Measure an arm with its rival, and those for single kinds of text, in a number of blocks that is fixed now:
    `blocks`, or as many as what was raced lets expect. Says what was found of the better one of the two."""
    from specmeter.numbers.elimination import blocks_to_confirm

    arms = _arms(arm, rival, of_kind)
    raced = session.outcome(arm).raced
    least, among = least_units(len(arms)), LOOKS * len(arms)
    expected = MAX_BLOCKS if raced is None else max(least, blocks_to_confirm(raced, most=MAX_BLOCKS, among=among))
    room = _room(session, len(arms) + 1)
    plan = StagePlan(
        "confirm",
        name,
        (*session.with_baselines(arms), *arms),
        session.halves.other,
        {"blocks": max(least, min(blocks or expected, room)), **session.warming, **session.patience},
        max_tokens=session.shorter,
    )
    session.servers.renew()  # each block has new ones, with a memory layout of their own, and memory to itself
    session.carry_out(plan, thorough=True)
    report = read_run(session.folder / name)
    found = {it: confirmed(report, name, it, session.advice.asked.goal) for it in arms}
    session.change_outcomes({arm: {"confirmed": it.speedup} for arm, it in found.items()})
    if not rival:
        return found[arm]
    ratio = over_halves(session.folder, session.advice.asked.goal, until(name), arm, rival)
    return preferred(found[arm], found[rival], ratio)


def preferred(arm: Confirmed, rival: Confirmed, ratio: Estimate | None) -> Confirmed:
    """The better one of two by what each gains, then by the `ratio` of their rates on all prompts."""
    gains = [it for it in (arm, rival) if it.ruling in ("gains", "here")]
    if len(gains) == 1:
        return gains[0]
    return rival if ratio is not None and ratio.point < 1 else arm


def finish(
    session: AdviseSession, decision: Decision, found: Confirmed, why: str, kinds: tuple[AdviceOfKind, ...]
) -> None:
    """Tell what the confirmation decides; the advice is finished then."""
    arm = found.arm_id
    won = decision in DRAFTS
    session.change_outcomes({it.arm_id: {"code": "open"} for it in session.advice.outcomes if it.code == "winner"})
    session.change_outcomes({arm: {"code": "winner"}} if won else {})
    session.set_outcomes(sorted(session.advice.outcomes, key=lambda it: it.arm_id != arm))
    session.answer(
        decision,
        "confirmed",
        arm,
        found.speedup,
        found.verdict,
        doubts=found.doubts,
        tau=found.tau,
        over_prompts=found.over_prompts,
        rival=found.rival if won else "",
        by_kind=kinds,
        finished=True,
        why_undecided=why,
        confirmation=found.place,
    )


def confirmed(report: RunReport, place: str, arm_id: str, goal: Goal, *, looks: int = LOOKS) -> Confirmed:
    """What the run of a confirmation says of one arm over its baseline; `place` is the name of its folder, `looks` how
    many there may be at all."""
    found, verdict = _of(report, arm_id), report.headline(arm_id)
    arms = {arm.id: arm for arm in report.arms}
    among = looks * sum(arm.speculates for arm in arms.values())
    speedup, over_prompts = (None, None) if found is None else both_of(found, goal, among)
    ruling = ruled(speedup, over_prompts, verdict, loaded=arm_id in arms and arms[arm_id].load is not None)
    busy = any(not it.again for it in report.disturbances)
    doubts = tuple(it.check for it in report.because(arm_id))
    return Confirmed(arm_id, speedup, over_prompts, found and found.tau, verdict, ruling, place, doubts, busy=busy)


def both_of(part: KindSummary, goal: Goal, among: int) -> tuple[Estimate | None, Estimate | None]:
    """Speedup of decoding, or of the whole answer with its prompt: (over blocks, one of `among` intervals; over
    prompts). Whole answers differ less from prompt to prompt than their decoding does, whose interval they get."""
    if part.gain is None:
        return None, None
    gain, prompts = part.gain, (part.choice or part).gain
    speedup = gain.decoding if goal == "throughput" else gain.with_prompt
    over = None if prompts is None else prompts.over_prompts
    if over is not None and goal != "throughput":
        over = scaled(over, speedup.point / gain.decoding.point)
    return simultaneous(speedup, among) if speedup.low is not None else speedup, over


def by_kind(folder: Path, advised: str, of_kind: Mapping[str, str], goal: Goal) -> tuple[AdviceOfKind, ...]:
    """What is best on each kind of text, where kinds differ in it: `advised` is the arm for all of them, `of_kind` the
    arms that the race had for single ones. Intervals over blocks hold for all kinds together. Raises `StoreError`."""
    report = read_run(folder)
    arms = {arm.id: arm for arm in report.arms}
    kinds = list(dict.fromkeys(kind for arm in report.summary.arms for kind in arm.kinds))
    found: list[AdviceOfKind] = []
    for kind in kinds if len(kinds) > 1 else ():
        arm_id = of_kind.get(kind, advised)
        summary = _of(report, arm_id)
        part = None if summary is None else summary.kinds.get(kind)
        speedup, over_prompts = (None, None) if part is None else both_of(part, goal, LOOKS * len(kinds))
        arm, verdict = arms[arm_id], report.headline(arm_id)
        ruling = ruled(speedup, over_prompts, verdict, loaded=arm.load is not None)
        decision = DECISIONS.get(ruling, "undecided")
        drafts = arm if decision in DRAFTS else None
        found.append(AdviceOfKind(kind=kind, decision=decision, arm=drafts, speedup=speedup))
    told = {(it.decision, it.arm.id if it.arm else None) for it in found if it.decision != "undecided"}
    return tuple(found) if len(told) > 1 else ()


def _of(report: RunReport, arm_id: str) -> ArmSummary | None:
    return next((arm for arm in report.summary.arms if arm.arm_id == arm_id), None)


def ruled(speedup: Estimate | None, over_prompts: Estimate | None, verdict: Verdict | None, *, loaded: bool) -> Ruling:
    """What a speedup shows by its intervals over blocks and over prompts; under load there is none over prompts."""
    if verdict in (None, "invalid"):
        return "invalid"
    (low, high), over = ends(speedup), ends(speedup if loaded else over_prompts)
    wide = over if over_prompts is not None else (low, high)
    if min(low, wide[0]) > 1 / (1 + MARGIN) and max(high, wide[1]) < 1 + MARGIN:
        return "same"
    if low > 1:
        return "gains" if over[0] > 1 else "here"
    return "none" if high <= 1 + MARGIN else "open"


def ends(speedup: Estimate | None) -> tuple[float, float]:
    """Of its interval; without one it may be anything."""
    if speedup is None or speedup.low is None or speedup.high is None:
        return 0.0, math.inf
    return speedup.low, speedup.high
