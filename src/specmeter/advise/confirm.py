"""The confirmation: what was chosen, and plain decoding, in fresh sessions, in as many blocks as were fixed beforehand.

Nothing was chosen by these measurements, so a single interval of 95 % says how much an arm gains: where plain decoding
is as fast, it lies above 1 in one confirmation of forty. What it leaves open is measured once more, from the beginning,
in as many more blocks as that needs and the budget allows. Where it shows that the winner does not gain, a second arm
is tried, if the race had shown that very arm to be faster than plain decoding. Either way the interval of the second
confirmation is one of two (97.5 %). Its own checks decide whether a confirmation counts.

Whether an advice is what was measured: its answer is computed once more from its confirmation.

The record lies beside the run folders that it is made of, and either may be changed afterwards. Stages that are not
what was certified, and an answer that its confirmation does not give, make it invalid to every reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specmeter.advise.advice import AdviceOfKind
from specmeter.advise.race import CONFIRMATION, best_other, reserved_s
from specmeter.advise.session import StagePlan
from specmeter.analysis.answer import least_units
from specmeter.analysis.reading import read_run
from specmeter.errors import SpecmeterError
from specmeter.numbers.elimination import blocks_to_confirm, blocks_to_decide
from specmeter.numbers.estimates import MARGIN
from specmeter.numbers.stats import simultaneous
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Decision, Goal
    from specmeter.advise.race import Answered
    from specmeter.advise.session import AdviseSession
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Arm, Estimate, Verdict


FIRST, SECOND, LONGER = "confirm", "confirm-2", "confirm-longer"
"""Names of the confirmations' run folders: of the arm that was chosen, of another one, of the same once more."""
Shown = Literal["priced", "raced", "settled", "open"]
"""What is known of the arms that are not confirmed. `priced`: predicted not to gain. `raced`: shown to be slower, or
within 2 %. `settled`: some are neither, and little is expected to be lost by leaving them, or none of them gains 2 % by
its own interval. `open`: none of these."""
Ruling = Literal["gains", "none", "open", "invalid"]
"""`gains`: faster than plain decoding; `none`: not faster by 2 % or more; `open`: neither is shown."""

MOST_BLOCKS = 6
MOST_BLOCKS_LONGER = 24
NOISY = 1.25
"""An interval that leaves things open, and whose upper end is this many times its lower end, is noise."""


@dataclass(frozen=True)
class Confirmed:
    """What the confirmation says of an arm."""

    arm_id: str
    speedup: Estimate | None
    tau: Estimate | None
    verdict: Verdict | None
    ruling: Ruling
    place: str
    """Name of the run folder that says so."""

    @property
    def why_open(self) -> str:
        """A code of `Advice.why_undecided`."""
        if self.ruling == "invalid":
            return "invalid"
        low, high = ends(self.speedup)
        return "too-noisy" if math.isinf(high) or high > NOISY * low else "not-confirmed"


def confirm(ledger: AdviseSession, raced: Sequence[Answered]) -> None:
    """Measure what was chosen on the other prompts, and decide; the advice is finished then."""
    first = raced[0] if raced else None
    plain = ledger.baseline.id
    off_raced = first is not None and first.leader == plain
    if first is None:
        fates = [it for it in ledger.advice.fates if it.code == "open"] or ledger.advice.fates
        known = [it for it in fates if it.predicted is not None] or fates
        arm = max(known, key=lambda it: it.predicted.point if it.predicted else 0.0).arm_id if known else None
    else:
        arm = best_other(ledger, first) if off_raced else first.leader
    if arm is None:  # every arm failed
        ledger.answer("undecided", "raced" if raced else "predicted", None, None, finished=True)
        return
    of_kind = {it.question.kind: it.leader for it in raced[1:] if it.leader not in (arm, plain)}
    found = measured(ledger, FIRST, arm, of_kind)
    decision, why = decide(found, off_raced=off_raced, shown=shown_of(ledger, first, arm))
    if decision == "undecided" and found.ruling == "open" and (blocks := _longer(ledger, found, of_kind)):
        ledger.observer.note("the confirmation leaves it open; it is measured once more, in more blocks")
        found = measured(ledger, LONGER, arm, of_kind, blocks=blocks)
        decision, why = decide(found, off_raced=off_raced, shown=shown_of(ledger, first, arm))
    elif first is not None and decision == "undecided" and found.ruling in ("none", "open"):
        second = _second(ledger, first, arm)
        if second is not None:
            ledger.observer.note("the winner of the race was not confirmed; the next one is tried")
            other = measured(ledger, SECOND, second, {})
            if other.ruling == "gains":
                found, decision, why, of_kind = other, "speculate", "", {}
    if why == "budget" and _room(ledger, 2) >= least_units(1):
        why = "not-told-apart"
    _finish(ledger, decision, found, why, of_kind)


def _longer(ledger: AdviseSession, found: Confirmed, of_kind: Mapping[str, str]) -> int:
    """Blocks in which the same arms would probably be decided, twice as many as there were at least; 0 where there is
    no room for more than there were."""
    if RunStore.exists(ledger.folder / LONGER):
        return MOST_BLOCKS_LONGER  # it goes on as it was begun
    if RunStore.exists(ledger.folder / SECOND) or found.speedup is None:
        return 0
    wanted = max(2 * found.speedup.n, blocks_to_decide(found.speedup, most=MOST_BLOCKS_LONGER))
    blocks = min(wanted, _room(ledger, 2 + sum(it != found.arm_id for it in set(of_kind.values()))))
    return blocks if blocks > found.speedup.n else 0


def _room(ledger: AdviseSession, arms: int) -> int:
    """Blocks of so many arms, plain decoding among them, for which there is time."""
    return int(ledger.left() / (CONFIRMATION * ledger.plain_cell_s * arms))


def shown_of(ledger: AdviseSession, first: Answered | None, arm: str) -> Shown:
    """What is known of the arms that are not confirmed."""
    if first is None:
        others = [it for it in ledger.advice.fates if it.arm_id != arm]
        return "open" if any(it.code in ("open", "no-room") for it in others) else "priced"
    if first.decided:
        return "raced"
    return "settled" if first.settled or none_gains(first) else "open"


def none_gains(first: Answered) -> bool:
    """Whether each arm that is left was raced with an interval that ends below a gain of 2 %. To say so of all of them,
    the own interval of each is enough (intersection-union test, see `analysis.answer`); no race was ended by it."""
    ratios = [first.standing.ratios.get(number) for number in first.standing.survivors if number]
    return all(it is not None and ends(it)[1] <= 1 + MARGIN for it in ratios)


def decide(found: Confirmed, *, off_raced: bool, shown: Shown) -> tuple[Decision, str]:
    """(decision, why it is open) by the confirmation of an arm, and what is shown of the others. `off_raced`: plain
    decoding was ahead in the race, and the arm is the best other one."""
    small = is_small(found)
    match found.ruling:
        case "invalid":
            return "undecided", "invalid"
        case "gains":
            if not (off_raced and shown == "raced"):
                return "speculate", ""
            # The race has shown that it is not faster by 2 %: of more than that, the two disagree.
            return ("off", "") if small else ("undecided", "not-confirmed")
        case "none":
            return ("undecided", "budget") if shown == "open" else ("off", "")
        case "open":
            # The race is the proof then, and the confirmation does not contradict it.
            return ("off", "") if off_raced and shown == "raced" and small else ("undecided", found.why_open)


def is_small(found: Confirmed) -> bool:
    """Whether the gain of an arm, as far as it goes, is within the margin."""
    return found.speedup is not None and found.speedup.point < 1 + MARGIN


def _second(ledger: AdviseSession, first: Answered, arm: str) -> str | None:
    """An arm to be tried after the winner: one that the race itself has shown to be faster than plain decoding."""
    ratios = {first.arms[number]: it for number, it in first.standing.ratios.items()}
    rivals = {it: ratio.point for it, ratio in ratios.items() if it != arm and ends(ratio)[0] > 1}
    if not first.standing.faster_than_plain or not rivals or ledger.left() < reserved_s(ledger):
        return None
    return max(rivals, key=rivals.__getitem__)


def measured(ledger: AdviseSession, name: str, arm: str, of_kind: Mapping[str, str], *, blocks: int = 0) -> Confirmed:
    """Measure an arm, and those for single kinds of text, in a number of blocks that is fixed now: `blocks`, or as many
    as what was raced lets expect."""
    arms = list(dict.fromkeys([arm, *of_kind.values()]))
    raced = ledger.fate(arm).raced
    least = least_units(1)
    wanted = blocks or (MOST_BLOCKS if raced is None else max(least, blocks_to_confirm(raced, most=MOST_BLOCKS)))
    room = _room(ledger, len(arms) + 1)
    plan = StagePlan(
        "confirm",
        name,
        (*ledger.with_baselines(arms), *arms),
        ledger.halves.other,
        (
            f"design.blocks={max(least, min(wanted, room))}",
            "design.probe=off",
            "design.controls=false",
            *ledger.shorter,
        ),
    )
    ledger.carry_out(plan, thorough=True)
    report = read_run(ledger.folder / name)
    found = {it: confirmed(report, name, it, ledger.advice.asked.goal) for it in arms}
    ledger.set_fates(
        [
            it.model_copy(update={"confirmed": found[it.arm_id].speedup}) if it.arm_id in found else it
            for it in ledger.advice.fates
        ]
    )
    return found[arm]


def _finish(ledger: AdviseSession, decision: Decision, found: Confirmed, why: str, of_kind: Mapping[str, str]) -> None:
    arm, place = found.arm_id, ledger.folder / found.place
    won = decision == "speculate"
    fates = [
        it.model_copy(update={"code": "winner"})
        if won and it.arm_id == arm
        else it.model_copy(update={"code": "open"})
        if it.code == "winner"
        else it
        for it in ledger.advice.fates
    ]
    ledger.set_fates(sorted(fates, key=lambda it: it.arm_id != arm))
    ledger.answer(
        decision,
        "confirmed",
        arm,
        found.speedup,
        found.verdict,
        tau=found.tau,
        by_kind=by_kind(place, arm, of_kind, ledger.advice.asked.goal),
        finished=True,
        why_undecided=why,
        confirmation=found.place,
    )


def confirmed(report: RunReport, place: str, arm_id: str, goal: Goal) -> Confirmed:
    """What the run of a confirmation says of one arm over its baseline; `place` is the name of its folder."""
    found, verdict = _of(report, arm_id), report.headline(arm_id)
    speedup = None if found is None else speedup_of(found, goal)
    if speedup is not None and speedup.low is not None and place != FIRST:
        speedup = simultaneous(speedup, 2)
    return Confirmed(arm_id, speedup, None if found is None else found.tau, verdict, _ruling(speedup, verdict), place)


def by_kind(folder: Path, advised: str, of_kind: Mapping[str, str], goal: Goal) -> tuple[AdviceOfKind, ...]:
    """What is best on each kind of text, where kinds differ in it: `advised` is the arm for all of them, `of_kind` the
    arms that the race had for single ones. Intervals hold for all kinds together. Raises `StoreError`."""
    report = read_run(folder)
    arms = {arm.id: arm for arm in report.arms}
    kinds = list(dict.fromkeys(kind for arm in report.summary.arms for kind in arm.kinds))
    found: list[AdviceOfKind] = []
    for kind in kinds if len(kinds) > 1 else ():
        arm_id = of_kind.get(kind, advised)
        summary = _of(report, arm_id)
        part = None if summary is None else summary.kinds.get(kind)
        speedup = None if part is None else speedup_of(part, goal)
        if speedup is not None and speedup.low is not None:
            speedup = simultaneous(speedup, len(kinds))
        found.append(_of_kind(kind, arms[arm_id], speedup, report.headline(arm_id)))
    told = {(it.decision, it.arm.id if it.arm else None) for it in found if it.decision != "undecided"}
    return tuple(found) if len(told) > 1 else ()


def _of_kind(kind: str, arm: Arm, speedup: Estimate | None, verdict: Verdict | None) -> AdviceOfKind:
    decisions: dict[Ruling, Decision] = {"gains": "speculate", "none": "off"}
    decision = decisions.get(_ruling(speedup, verdict), "undecided")
    return AdviceOfKind(kind=kind, decision=decision, arm=arm if decision == "speculate" else None, speedup=speedup)


def speedup_of(part: KindSummary, goal: Goal) -> Estimate | None:
    """Over the baseline: of decoding, or of the whole answer with its prompt."""
    if part.gain is None:
        return None
    return part.gain.decoding if goal == "throughput" else part.gain.with_prompt


def _of(report: RunReport, arm_id: str) -> ArmSummary | None:
    return next((arm for arm in report.summary.arms if arm.arm_id == arm_id), None)


def _ruling(speedup: Estimate | None, verdict: Verdict | None) -> Ruling:
    if verdict in (None, "invalid"):
        return "invalid"
    low, high = ends(speedup)
    return "gains" if low > 1 else "none" if high <= 1 + MARGIN else "open"


def ends(speedup: Estimate | None) -> tuple[float, float]:
    """Of its interval; without one it may be anything."""
    if speedup is None or speedup.low is None or speedup.high is None:
        return 0.0, math.inf
    return speedup.low, speedup.high


CHANGED = "data-changed"
"""The check that finds a run folder changed."""


def examined(advice: Advice, folder: Path) -> Advice:
    """The advice of a folder; undecided and invalid where it is not what was measured. The line to paste is that of
    the confirmation's run, whatever stands in the record."""
    if any(differences(advice, folder)):
        told = {"decision": "undecided", "verdict": "invalid", "why_undecided": "changed"}
        return advice.model_copy(update={**told, "command": ()})
    if advice.basis != "confirmed" or not (advice.finished and advice.confirmation and advice.command):
        return advice
    lines = read_run(folder / advice.confirmation).commands
    line = None if advice.served is None else lines.get(advice.served.id)
    return advice if line is None else advice.model_copy(update={"command": line})


def differences(advice: Advice, folder: Path) -> Iterator[str]:
    """What is not as it was measured, one by one."""
    reports: dict[str, RunReport] = {}
    for stage in advice.stages:
        try:
            report = reports[stage.folder] = read_run(folder / stage.folder)
        except SpecmeterError as error:
            yield f"{stage.folder}: {error.message}"
            continue
        known = stage.certificate_sha256
        changed = any(it.check == CHANGED and it.severity == "invalid" for it in report.findings)
        if known is not None and (changed or report.certificate_sha256 != known):
            yield f"{stage.folder}: is not what was certified"
    if advice.basis != "confirmed" or not advice.finished:
        return
    arm = advice.arm.id if advice.arm is not None else advice.speedup_of
    if arm is None:
        return
    if (report := reports.get(advice.confirmation)) is None:
        yield "there is no confirmation"
        return
    there = next((it for it in report.arms if it.id == arm), None)
    if advice.arm is not None and advice.arm != there:
        yield "the arm is not the one that was confirmed"
    asked = advice.asked.load
    if asked is not None and (there is None or there.load is None or there.load.clients != asked):
        yield "it was confirmed at another load"
    found = confirmed(report, advice.confirmation, arm, advice.asked.goal)
    if not (_same_estimate(found.speedup, advice.speedup) and _same_estimate(found.tau, advice.tau)):
        yield "the speedup is not that of the confirmation"
    if found.verdict != advice.verdict:
        yield "the verdict is not that of the confirmation"
    if advice.decision == "speculate" and found.ruling != "gains":
        yield "the confirmation does not show a gain"
    if advice.decision == "off" and found.ruling == "gains" and not is_small(found):
        yield "the confirmation shows a gain"


def _same_estimate(one: Estimate | None, other: Estimate | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = ((one.point, other.point), (one.low, other.low), (one.high, other.high))
    return all(a is b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)) for a, b in pairs)
