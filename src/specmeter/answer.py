"""The answer to the question a run was made for: should this target speculate, and how?"""

from __future__ import annotations

from math import inf
from typing import Literal

from specmeter.record import Arm, Estimate, Record
from specmeter.summary import ArmSummary, RunSummary


class Answer(Record):
    """What a run says about one target (under one setting of the engine)."""

    baseline_id: str
    decision: Literal["speculate", "do not speculate", "not shown", "cannot tell"]
    """`not shown`: no arm's interval lies above 1, and not all lie below. `cannot tell`: there is no interval."""
    arm_id: str
    """The arm to use, or the best of those that do not help."""
    speedup: Estimate | None
    only_workloads: tuple[str, ...] = ()
    """The arm ran these workloads only; empty: all of them."""


def answers(summary: RunSummary, arms: tuple[Arm, ...]) -> tuple[Answer, ...]:
    """One answer per baseline and per set of workloads that arms were limited to, in the order of the experiment.

    Cost probes (synthetic acceptance, random weights) and arms without a speedup are no candidates. The best arm is
    chosen after looking at all of them, so its point estimate is a little too good; its interval is that arm's own.
    """
    workloads = {arm.id: arm.workloads for arm in arms}
    candidates: dict[tuple[str, tuple[str, ...]], list[ArmSummary]] = {}
    for arm in summary.arms:
        if arm.baseline_id is not None and arm.speedup is not None and arm.cost_probe is None:
            candidates.setdefault((arm.baseline_id, workloads[arm.arm_id]), []).append(arm)
    order = [arm.arm_id for arm in summary.arms]
    return tuple(
        _answer(baseline_id, only, group)
        for (baseline_id, only), group in sorted(candidates.items(), key=lambda item: order.index(item[0][0]))
    )


def _answer(baseline_id: str, only_workloads: tuple[str, ...], candidates: list[ArmSummary]) -> Answer:
    intervals = [_interval(arm) for arm in candidates]
    faster = [arm for arm, (low, _) in zip(candidates, intervals, strict=True) if low > 1]
    decision: Literal["speculate", "do not speculate", "not shown", "cannot tell"]
    if faster:
        decision = "speculate"
    elif all(low == 0 and high == inf for low, high in intervals):
        decision = "cannot tell"
    elif all(high < 1 for _, high in intervals):
        decision = "do not speculate"
    else:
        decision = "not shown"
    best = max(faster or candidates, key=_point)
    return Answer(
        baseline_id=baseline_id,
        decision=decision,
        arm_id=best.arm_id,
        speedup=best.speedup,
        only_workloads=only_workloads,
    )


def _interval(arm: ArmSummary) -> tuple[float, float]:
    """Bounds of the speedup; without an interval it may be anything."""
    speedup = arm.speedup
    if speedup is None or speedup.low is None or speedup.high is None:
        return 0.0, inf
    return speedup.low, speedup.high


def _point(arm: ArmSummary) -> float:
    return arm.speedup.point if arm.speedup else 0.0
