"""The answer to the question a run was made for: should this target speculate, and how?

Picking the best of k arms favours luck: with arms that all equal the baseline, the best of two intervals of 95 % lies
above 1 nearly twice as often as one does. So "speculate with X" needs X's simultaneous interval above 1, which holds
for all arms of this baseline together (`stats.simultaneous`): where nothing helps, one run in forty at most says that
something does, whatever the number of arms. "Do not speculate" claims that every arm is slower, and for that
each arm's own interval is enough: if one arm is not slower, only that arm's error could lead to the claim (Berger 1982,
doi:10.1080/00401706.1982.10487790: intersection-union test).
"""

from __future__ import annotations

from math import inf
from typing import Literal

from specmeter.record import Arm, Estimate, Record
from specmeter.stats import Comparison, compare, units_for
from specmeter.summary import ArmSummary, RunSummary


class Answer(Record):
    """What a run says about one target (under one setting of the engine)."""

    baseline_id: str
    decision: Literal["speculate", "do not speculate", "not shown", "cannot tell"]
    """`speculate`: an arm's simultaneous interval lies above 1. `do not speculate`: each arm's own lies below 1.
    `not shown`: neither. `cannot tell`: there is no interval."""
    arm_id: str
    """The arm to use, or the best of those that do not help."""
    speedup: Estimate | None
    """The arm's own, as if it had been the only one."""
    speedup_simultaneous: Estimate | None = None
    """With the interval that holds for all arms of this baseline together."""
    among: int = 1
    """How many arms these are."""
    comparison: Comparison | None = None
    """What the simultaneous interval says about a difference of 2 %."""
    units_advised: int | None = None
    """About how many units would make that interval +-2 %; None where there is none, or beyond 10,000."""
    unit: Literal["block", "invocation"] = "block"
    """Over what the intervals are: invocations where there are several."""
    only_workloads: tuple[str, ...] = ()
    """The arm ran these workloads only; empty: all of them."""


def answers(summary: RunSummary, arms: tuple[Arm, ...]) -> tuple[Answer, ...]:
    """One answer per baseline and per set of workloads that arms were limited to, in the order of the experiment.

    Cost probes (synthetic acceptance, random weights) and arms without a speedup are no candidates. The best arm is
    chosen after looking at all of them, so its point estimate is a little too good; its simultaneous interval is not.
    """
    workloads = {arm.id: arm.workloads for arm in arms}
    candidates: dict[tuple[str, tuple[str, ...]], list[ArmSummary]] = {}
    for arm in summary.arms:
        if arm.baseline_id is not None and arm.speedup is not None and arm.cost_probe is None:
            candidates.setdefault((arm.baseline_id, workloads[arm.arm_id]), []).append(arm)
    order = [arm.arm_id for arm in summary.arms]
    return tuple(
        _answer(baseline_id, only, group, "block" if summary.invocations <= 1 else "invocation")
        for (baseline_id, only), group in sorted(candidates.items(), key=lambda item: order.index(item[0][0]))
    )


def _answer(
    baseline_id: str,
    only_workloads: tuple[str, ...],
    candidates: list[ArmSummary],
    unit: Literal["block", "invocation"],
) -> Answer:
    together = [_interval(arm.speedup_simultaneous) for arm in candidates]
    alone = [_interval(arm.speedup) for arm in candidates]
    faster = [arm for arm, (low, _) in zip(candidates, together, strict=True) if low > 1]
    decision: Literal["speculate", "do not speculate", "not shown", "cannot tell"]
    if faster:
        decision = "speculate"
    elif all(low == 0 and high == inf for low, high in alone):
        decision = "cannot tell"
    elif all(high < 1 for _, high in alone):
        decision = "do not speculate"
    else:
        decision = "not shown"
    best = max(faster or candidates, key=_point)
    among = max(1, best.compared)
    return Answer(
        baseline_id=baseline_id,
        decision=decision,
        arm_id=best.arm_id,
        speedup=best.speedup,
        speedup_simultaneous=best.speedup_simultaneous,
        among=among,
        comparison=compare(best.speedup, among=among) if best.speedup else None,
        units_advised=units_for(best.speedup, among=among) if best.speedup else None,
        unit=unit,
        only_workloads=only_workloads,
    )


def _interval(speedup: Estimate | None) -> tuple[float, float]:
    """Bounds of a speedup; without an interval it may be anything."""
    if speedup is None or speedup.low is None or speedup.high is None:
        return 0.0, inf
    return speedup.low, speedup.high


def _point(arm: ArmSummary) -> float:
    return arm.speedup.point if arm.speedup else 0.0
