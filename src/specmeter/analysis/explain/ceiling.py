"""The most that an arm could have gained with the tokens that its steps emit: tau / m (`theory.bounds`).

m is the cheapest forward that a step can have; without a probe it is taken as 1. An arm whose interval lies above its
tau refutes that for all arms of its target whose drafts are as long: they have no ceiling here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import quotient
from specmeter.record import Arm, Estimate, Record

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary
    from specmeter.probe.record import Probe
    from specmeter.theory.curves import CostCurve


class Ceiling(Record):
    """What the speedup of an arm cannot exceed."""

    speedup: Estimate
    """tau / m."""
    cheapest_forward: float | None
    """m as the probe measured it; None: taken as 1."""


def ceilings(
    arms: Iterable[Arm], summaries: Iterable[ArmSummary], probes: Mapping[str, Probe]
) -> Mapping[str, Ceiling]:
    """Arm id -> its ceiling, for all arms with a speedup and a tau. `probes`: arm id -> the probe of its models."""
    asked = {arm.id: arm for arm in arms}
    found: dict[str, Ceiling] = {}

    def longest(arm_id: str) -> float:
        """Tokens of a draft at most; inf where the arm does not say."""
        gamma = asked[arm_id].gamma
        return inf if gamma is None else gamma

    told = [it for it in summaries if it.speedup is not None and it.tau is not None and not it.left_out]
    told = [it for it in told if it.load is None]  # under load a forward serves several requests
    refuted: dict[str, float] = {}
    """Target -> the shortest drafts that were shown to gain more than tau: some forward over them is a cheap one."""
    for arm in told:
        if _is_above(arm.speedup, arm.tau):
            target, length = asked[arm.arm_id].target, longest(arm.arm_id)
            refuted[target] = min(length, refuted.get(target, length))
    for arm in told:
        assert arm.speedup is not None
        assert arm.tau is not None
        probe = probes.get(arm.arm_id)
        cheapest = _cheapest(probe.target_ms, asked[arm.arm_id].gamma) if probe else None
        if cheapest is not None:
            method = "tau over the cheapest forward pass of a step, as probed"
            most = quotient(arm.tau, cheapest, unit="x", method=method)
            if arm.speedup.point <= most.point:
                found[arm.arm_id] = Ceiling(speedup=most, cheapest_forward=cheapest.point)
            continue
        target = asked[arm.arm_id].target
        if arm.speedup.point <= arm.tau.point and (target not in refuted or longest(arm.arm_id) < refuted[target]):
            tau = arm.tau.model_copy(
                update={"unit": "x", "method": f"tau, if no forward pass is cheaper; {arm.tau.method}"}
            )
            found[arm.arm_id] = Ceiling(speedup=tau, cheapest_forward=None)
    return found


def _is_above(speedup: Estimate | None, most: Estimate | None) -> bool:
    """Whether a speedup is shown to exceed something: by its interval, or its point where it has none."""
    if speedup is None or most is None:
        return False
    return (speedup.point if speedup.low is None else speedup.low) > most.point


def _cheapest(curve: CostCurve, gamma: int | None) -> Estimate | None:
    """min T(n) / T(1) over the measured n up to gamma + 1; None where T(1) was not measured."""
    if curve.points[0].tokens != 1:
        return None
    lengths = [point.tokens for point in curve.points if gamma is None or point.tokens <= gamma + 1]
    return min((curve.verification_estimate(tokens - 1) for tokens in lengths), key=lambda it: it.point)
