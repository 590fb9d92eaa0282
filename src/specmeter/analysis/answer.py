"""Decides the answer to the question a run was made for: should this target speculate, and how?

Each kind of text, each target and each load is a question of its own; arms compete on the same prompts (`family`). An
answer over several kinds of text holds for their mixture. The rules, and how often each is wrong in simulation, are in
docs/explanation/statistics.md: "speculate with X" needs X's simultaneous interval above 1, "do not speculate" every
arm's own below it (Berger 1982: intersection-union test). If intervals of kinds, which hold for all arms and kinds
together, gain here and lose there by 2 % or more, it depends on the text.

An arm that failed more than a tenth of its requests is not advised, whatever it gained on the rest. One that drafted
nothing does not compete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from specmeter.analysis.gain import Gain
from specmeter.analysis.stalls import Stalls
from specmeter.analysis.summary import ArmSummary, Choice, RunSummary
from specmeter.numbers.margin import MARGIN, MarginTest, compare, units_for
from specmeter.numbers.stats import simultaneous
from specmeter.record import Arm, Estimate, Load, Record

Decision = Literal[
    "speculate",
    "do not speculate",
    "no difference",
    "depends on the text",
    "not advised",
    "not shown",
    "too few",
    "too noisy",
    "cannot tell",
]
"""- `speculate`: an arm's simultaneous interval lies above 1;
- `do not speculate`: each arm's own lies below 1;
- `no difference`: the best arm is shown to be within 2 % of decoding without speculation, which is simpler;
- `depends on the text`: kinds of text disagree;
- `not advised`: an arm gains, but failed more than a tenth of its requests;
- `too few`: one of the first two would be said, of too few units to believe it;
- `too noisy`: the interval holds 1, and its upper end is more than `NOISY` times its lower end;
- `not shown`: none of these;
- `cannot tell`: there is no interval, or no arm drafted anything.
"""

NOISY = 4.0
"""An interval that holds 1 and whose upper end is this many times its lower end says nothing."""
NOISY_MARGIN = 0.1
"""Half width that advice aims at where the interval says nothing: enough to see whether there is anything to see."""


MAX_FAILED = 0.1
"""An arm that failed a larger share of its requests is not advised."""


class IncompleteArm(Record):
    """An arm that does not compete, since it never completed prompts that others did."""

    arm_id: str
    speedup: Estimate | None
    """On the prompts that it and its baseline completed."""
    prompts: int
    """How many these are."""
    of: int
    """Prompts that it was given."""


class BestForKind(Record):
    """The best arm for one prompt type."""

    kind: str
    arm_id: str
    speedup: Estimate
    """With the simultaneous interval over all prompt types and candidates."""
    sign: Literal["gain", "loss", "open"]
    """`gain`: the interval is above 1, and the point at least 1.02. `loss`: the interval of each arm that
    competes, adjusted for the number of kinds, lies below 1, and its point at 0.98 or lower."""


class Answer(Record):
    """Answer for one target (with one engine setting and load), over all prompts or one prompt type."""

    baseline_id: str
    kind: str = ""
    """Prompt type; empty: all prompts."""
    load: Annotated[Load | None, Field(exclude_if=lambda value: value is None)] = None
    """Parallel requests; None: one after another."""
    decision: Decision
    arm_id: str
    """The arm to use, or the best one if none helps."""
    speedup: Estimate
    """With the arm's own interval."""
    speedup_simultaneous: Estimate
    """With the simultaneous interval over all candidates."""
    gain: Gain
    """The same speedup in other ways: including prompts, by total time, over prompts."""
    among: int = 1
    """Number of candidates."""
    comparison: MarginTest
    """Test of a difference of 2% with the simultaneous interval."""
    units_advised: int | None = None
    """Units needed for that interval to be ±2% (±10% if noisy); None if unknown or above 200."""
    units_least: int = 3
    """Minimum number of units for "speculate"."""
    resumes: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the unfinished run will have that many units when complete."""
    unit: Literal["block", "invocation"] = "block"
    """Unit of the intervals: invocations if there are several."""
    by_kind: tuple[BestForKind, ...] = ()
    """Each prompt type separately; empty if there is only one."""
    left_out: int = 0
    """Prompts that do not count because the arm or its baseline never completed them."""
    prompts_given: int = 0
    """Prompts given to the arm; more than `gain.prompts` if some do not count."""
    never_completed: int = 0
    """Prompts that the arm itself never completed."""
    failed: int = 0
    """Failed requests of the arm in the whole run."""
    tried: int = 0
    """Requests completed or failed."""
    behind: tuple[IncompleteArm, ...] = ()
    """Arms that do not compete because they never completed some of these prompts."""
    idle: tuple[str, ...] = ()
    """Arms that do not compete because they drafted nothing."""
    elsewhere: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether other arms only ran some prompt types, and compete there."""
    stalls: Stalls | None = None
    """Stalled requests of the arm; None if none were seen."""
    baseline_stalls: Stalls | None = None
    """Stalled requests of the baseline."""

    @property
    def serves(self) -> str | None:
        """The arm to serve with: the best, or the baseline if none is faster; None if undecided."""
        gains = self.decision == "speculate" or (
            self.decision == "depends on the text" and (self.speedup_simultaneous.low or 0.0) > 1
        )
        if gains:
            return self.arm_id
        return self.baseline_id if self.decision in ("do not speculate", "no difference") else None


def is_uninformative(low: float, high: float) -> bool:
    """Whether an interval is so wide around 1 that its digits are noise."""
    return low <= 1 <= high and high > NOISY * low


def least_units(among: int) -> int:
    """Blocks (or invocations) that "speculate" needs where this many arms compete.

    Of simulated runs in which nothing helps, with requests at one of two speeds, the most that said "speculate" were
    (1 to 6 prompts, speeds 5 % to twofold apart, 10 to 50 % at the slower one): 2 blocks 7 % (one arm); 3 blocks 3 %,
    3 %, 5 %, 11 % (1, 2, 3, 10 arms); 4 blocks 4 %, 5 %, 7 % (3, 10, 20 arms); 5 blocks 3 % (20 arms).
    """
    return 3 if among <= 2 else 4 if among <= 10 else 5


def answers(summary: RunSummary, arms: Sequence[Arm]) -> tuple[Answer, ...]:
    """For each baseline, in the order of the experiment: the answer over all prompts, then one for each kind of text on
    which other arms compete than over all prompts.

    Cost probes (synthetic acceptance, random weights) and arms without a speedup are no candidates. The best arm is
    chosen after looking at all of them, so its point estimate is a little too good; its simultaneous interval is not.
    """
    by_id = {arm.arm_id: arm for arm in summary.arms}
    unit: Literal["block", "invocation"] = "block" if summary.invocations <= 1 else "invocation"
    found: list[Answer] = []
    for baseline in (arm.id for arm in arms if arm.id in by_id and by_id[arm.id].role == "baseline"):
        mine = [arm for arm in summary.arms if arm.baseline_id == baseline and arm.cost_probe is None]
        whole = {arm.arm_id: arm.choice for arm in mine if arm.choice is not None}
        kinds = list(dict.fromkeys(kind for arm in mine for kind in arm.kinds))
        by_kind = {
            kind: choices
            for kind in kinds
            if (choices := {it.arm_id: part.choice for it in mine if (part := it.kinds.get(kind)) and part.choice})
        }
        elsewhere = {kind: choices for kind, choices in by_kind.items() if choices.keys() - whole.keys()}
        if whole:
            rivals = {
                kind: among
                for kind, choices in by_kind.items()
                if (among := {arm_id: choice for arm_id, choice in choices.items() if arm_id in whole})
            }
            told = [_of_kind(kind, among, len(rivals)) for kind, among in rivals.items()]
            answer = _answer(by_id, baseline, "", whole, unit, tuple(told) if len(told) > 1 else ())
            found.append(answer.model_copy(update={"elsewhere": bool(elsewhere)}))
        found += [_answer(by_id, baseline, kind, choices, unit) for kind, choices in elsewhere.items()]
    return tuple(found)


def _answer(
    arms: Mapping[str, ArmSummary],
    baseline_id: str,
    kind: str,
    choices: Mapping[str, Choice],
    unit: Literal["block", "invocation"],
    by_kind: tuple[BestForKind, ...] = (),
) -> Answer:
    best_id, best = _best(choices, {arm_id for arm_id in choices if _fails(arms[arm_id])})
    among = best.compared
    idle = tuple(it.arm_id for it in arms.values() if _is_idle(it, baseline_id))
    decision = "cannot tell" if best_id in idle else _decision(choices, best)
    comparison = compare(best.speedup, among=among)
    alike = comparison.conclusion == "equivalent" and best.speedup.n >= least_units(1)
    if alike and decision in ("speculate", "not shown"):
        decision = "no difference"
    if decision == "speculate" and _fails(arms[best_id]):
        decision = "not advised"
    if by_kind and _depends(decision, best_id, by_kind, arms):
        decision = "depends on the text"
    of_arm = arms[best_id] if not kind else arms[best_id].kinds[kind]
    margin = NOISY_MARGIN if decision == "too noisy" else MARGIN
    return Answer(
        baseline_id=baseline_id,
        kind=kind,
        load=told.load if (told := arms[baseline_id].load) else None,
        decision=decision,
        arm_id=best_id,
        speedup=best.speedup,
        speedup_simultaneous=best.simultaneous,
        gain=best.gain,
        among=among,
        comparison=comparison,
        units_advised=units_for(best.speedup, margin, among=among),
        units_least=least_units(among),
        unit=unit,
        by_kind=by_kind,
        left_out=of_arm.left_out,
        prompts_given=of_arm.left_out + (of_arm.gain.prompts if of_arm.gain else 0),
        never_completed=of_arm.never_completed,
        failed=arms[best_id].requests_failed,
        tried=_tried(arms[best_id]),
        idle=idle,
        behind=_behind(arms, baseline_id, kind, choices),
        stalls=arms[best_id].stalls,
        baseline_stalls=arms[baseline_id].stalls,
    )


def _tried(arm: ArmSummary) -> int:
    return arm.requests_ok + arm.requests_failed


def _fails(arm: ArmSummary) -> bool:
    return arm.requests_failed > MAX_FAILED * _tried(arm)


def _is_idle(arm: ArmSummary, baseline_id: str) -> bool:
    return arm.baseline_id == baseline_id and arm.cost_probe is None and arm.requests_ok > 0 and arm.drafted == 0


def _best(choices: Mapping[str, Choice], failing: Collection[str] = ()) -> tuple[str, Choice]:
    """The arm with the highest speedup, of those that are shown to gain where there are such, and best without those
    that fail too often."""
    faster = {arm_id: choice for arm_id, choice in choices.items() if _interval(choice.simultaneous)[0] > 1}
    sound = {arm_id: choice for arm_id, choice in faster.items() if arm_id not in failing}
    return max((sound or faster or choices).items(), key=lambda item: item[1].speedup.point)


def _decision(choices: Mapping[str, Choice], best: Choice) -> Decision:
    low, high = _interval(best.simultaneous)
    own = [_interval(choice.speedup) for choice in choices.values()]
    if all(ends == (0.0, inf) for ends in own):
        return "cannot tell"
    if low > 1:
        return "speculate" if best.speedup.n >= least_units(best.compared) else "too few"
    if all(high < 1 for _, high in own):
        return "do not speculate" if best.speedup.n >= least_units(1) else "too few"
    return "too noisy" if is_uninformative(low, high) else "not shown"


def _of_kind(kind: str, choices: Mapping[str, Choice], kinds: int) -> BestForKind:
    """The best arm on one of this many kinds."""
    arm_id, best = _best(choices)
    together = best.compared * kinds
    speedup = simultaneous(best.speedup, together)
    sign: Literal["gain", "loss", "open"] = "open"
    if _interval(speedup)[0] > 1 and speedup.point >= 1 + MARGIN and speedup.n >= least_units(together):
        sign = "gain"
    elif speedup.n >= least_units(kinds) and all(_loses(choice.speedup, kinds) for choice in choices.values()):
        sign = "loss"
    return BestForKind(kind=kind, arm_id=arm_id, speedup=speedup, sign=sign)


def _loses(speedup: Estimate, kinds: int) -> bool:
    """Whether an arm is slower on one of this many kinds, by a difference that matters (2 %)."""
    return _interval(simultaneous(speedup, kinds))[1] < 1 and speedup.point <= 1 - MARGIN


def _depends(decision: Decision, arm_id: str, by_kind: Sequence[BestForKind], arms: Mapping[str, ArmSummary]) -> bool:
    """Whether one answer for all kinds would be wrong for some: it gains here and loses there."""
    signs = {it.sign for it in by_kind}
    if "gain" in signs and ("loss" in signs or decision == "do not speculate"):
        return True
    own = (arms[arm_id].kinds[it.kind].speedup for it in by_kind if it.kind in arms[arm_id].kinds)
    return decision == "speculate" and any(speedup is not None and _loses(speedup, len(by_kind)) for speedup in own)


def _behind(
    arms: Mapping[str, ArmSummary], baseline_id: str, kind: str, choices: Mapping[str, Choice]
) -> tuple[IncompleteArm, ...]:
    """Arms that lack prompts which those that compete have."""
    others = (arm for arm in arms.values() if arm.baseline_id == baseline_id and arm.arm_id not in choices)
    parts = (
        (arm.arm_id, arm.kinds.get(kind) if kind else arm)
        for arm in others
        if not (arm.cost_probe or _is_idle(arm, baseline_id))
    )
    return tuple(
        IncompleteArm(arm_id=arm_id, speedup=part.speedup, prompts=met, of=met + part.left_out)
        for arm_id, part in parts
        if part is not None and part.left_out
        for met in (part.gain.prompts if part.gain else 0,)
    )


def _interval(speedup: Estimate | None) -> tuple[float, float]:
    """Bounds of a speedup; without an interval it may be anything."""
    if speedup is None or speedup.low is None or speedup.high is None:
        return 0.0, inf
    return speedup.low, speedup.high
