"""The most that an arm could have gained with the tokens that its steps emit: tau / m (`theory.bounds`).

m is the cheapest forward that a step can have, in plain ones. A probe of the target shows it; without one m is taken
as 1, which says that no forward over several tokens takes less time than one over a single token. A run that was
faster than that refutes it, so such an arm has no ceiling here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import quotient
from specmeter.record import Arm, Estimate, Record

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary
    from specmeter.probe import Probe
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
    for arm in summaries:
        if arm.speedup is None or arm.tau is None:
            continue
        probe = probes.get(arm.arm_id)
        cheapest = _cheapest(probe.target_ms, asked[arm.arm_id].gamma) if probe else None
        if cheapest is not None:
            method = "tau over the cheapest forward of a step, as probed"
            found[arm.arm_id] = Ceiling(
                speedup=quotient(arm.tau, cheapest, unit="x", method=method), cheapest_forward=cheapest.point
            )
        elif arm.speedup.point <= arm.tau.point:
            tau = arm.tau.model_copy(
                update={"unit": "x", "method": f"tau, where no forward is cheaper; {arm.tau.method}"}
            )
            found[arm.arm_id] = Ceiling(speedup=tau, cheapest_forward=None)
    return found


def _cheapest(curve: CostCurve, gamma: int | None) -> Estimate | None:
    """min T(n) / T(1) over the measured n up to gamma + 1; None where T(1) was not measured."""
    if curve.points[0].tokens != 1:
        return None
    lengths = [point.tokens for point in curve.points if gamma is None or point.tokens <= gamma + 1]
    return min((curve.verification_estimate(tokens - 1) for tokens in lengths), key=lambda it: it.point)
