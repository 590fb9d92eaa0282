"""The answer to the question a run was made for: should this target speculate, and how?"""

from __future__ import annotations

from typing import Literal

from specmeter.record import Arm, Estimate, Record
from specmeter.summary import ArmSummary, RunSummary


class Answer(Record):
    """What a run says about one target (under one setting of the engine)."""

    baseline_id: str
    decision: Literal["speculate", "do not speculate", "not shown", "cannot tell"]
    """`not shown`: no arm's interval lies above 1, and not all lie below. `cannot tell`: there is no interval."""
    arm_id: str | None
    """The arm to use, or the best of those that do not help."""
    speedup: Estimate | None
    only_workloads: tuple[str, ...] = ()
    """The arm ran these workloads only; empty: all of them."""


def answers(summary: RunSummary, arms: tuple[Arm, ...]) -> tuple[Answer, ...]:
    """One answer per baseline that something was compared with, in the order of the experiment.

    Cost probes (synthetic acceptance, random weights) are no candidates. The best arm is chosen after looking at all
    of them, so its point estimate is a little too good; its interval is that arm's own.
    """
    workloads = {arm.id: arm.workloads for arm in arms}
    found: list[Answer] = []
    for baseline in summary.arms:
        if baseline.role == "baseline":
            candidates = [
                arm
                for arm in summary.arms
                if arm.baseline_id == baseline.arm_id and arm.speedup is not None and arm.cost_probe is None
            ]
            if candidates:
                found.append(_answer(baseline.arm_id, candidates, workloads))
    return tuple(found)


def _answer(baseline_id: str, candidates: list[ArmSummary], workloads: dict[str, tuple[str, ...]]) -> Answer:
    best = max(candidates, key=_point)
    known = [arm for arm in candidates if arm.speedup and arm.speedup.low is not None]
    faster = [arm for arm in known if arm.speedup and arm.speedup.low is not None and arm.speedup.low > 1]
    slower = [arm for arm in known if arm.speedup and arm.speedup.high is not None and arm.speedup.high < 1]
    if not known:
        decision = "cannot tell"
    elif faster:
        decision, best = "speculate", max(faster, key=_point)
    elif len(slower) == len(candidates):
        decision = "do not speculate"
    else:
        decision = "not shown"
    return Answer(
        baseline_id=baseline_id,
        decision=decision,
        arm_id=best.arm_id,
        speedup=best.speedup,
        only_workloads=workloads.get(best.arm_id, ()),
    )


def _point(arm: ArmSummary) -> float:
    return arm.speedup.point if arm.speedup else 0.0
