"""Checks of controls, whose outcome is known beforehand, and marks of arms that only show what steps cost.

Synthetic acceptance, once of every draft token and once of none, tests the counters; the baseline measured twice tests
the whole comparison. Controls are judged here and shown nowhere as results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from specmeter.messages import Message
from specmeter.record import Arm, Estimate
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, not_applicable, not_checkable, of_arm, of_run
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import first_line, logs_of

_NONE = Message("unchecked.no_control")


# --- control-accept-all, control-accept-none -------------------------------------------------------------------------


def accept_all(data: RunData) -> Findings:
    """Every drafted token is to be accepted, in every request. Exact: a synthetic rate of 1 leaves no chance.

    Assumes: a synthetic rate of 1 accepts every draft token.
    Otherwise: if such a counter is wrong, no number of the run can be trusted.
    """
    return _synthetic_control(data, "control-accept-all", 1.0)


def accept_none(data: RunData) -> Findings:
    """No drafted token is to be accepted, in any request. Exact as well.

    Assumes: a synthetic rate of 0 accepts no draft token.
    Otherwise: if such a counter is wrong, no number of the run can be trusted.
    """
    return _synthetic_control(data, "control-accept-none", 0.0)


def _synthetic_control(data: RunData, check: str, rate: float) -> Findings:
    arms = [arm for arm in data.arms.values() if arm.role == "control" and set(arm.synthetic_rates) == {rate}]
    if not arms:
        yield not_applicable(None, _NONE)
    for arm in arms:
        counts = [(made or 0, taken or 0) for made, taken in data.by_arm[arm.id].values("draft_n", "draft_n_accepted")]
        drafted, accepted = sum(made for made, _ in counts), sum(taken for _, taken in counts)
        wrong = sum(taken != rate * made for made, taken in counts)
        if wrong:
            yield of_run(
                "invalid",
                Message(f"{check}.found", accepted=accepted, drafted=drafted),
                Message("control-accept-all.fix"),
                arm=arm.id,
                requests=len(counts),
                requests_that_differ=wrong,
            )
        elif drafted == 0:
            yield not_checkable(
                arm.id,
                Message("unchecked.control_drafted_nothing") if counts else Message("unchecked.control_no_answer"),
            )


# --- control-baseline ------------------------------------------------------------------------------------------------

_TOLERANCE = math.log(1.03)
"""A whole interval beyond this: the second baseline really differs. Position in a block may cost a percent or two."""
_TOO_FAR = math.log(1.05)
"""A point beyond this, whatever the interval. On a quiet machine with two cores the ratio of two baselines varies by
5 % between blocks, hence by 2.5 % over four of them: one clean control in twenty comes out here, and rightly so, since
a run that shows 5 % where there is nothing can support no effect of 5 %."""


def baseline_again(data: RunData) -> Findings:
    """The baseline's second measurement differs from the first by more than a run may that is to show small effects.

    Its interval lies beyond 3 % as a whole, or its point beyond 5 %. The farthest end of its interval is the least
    effect that the run can tell from nothing; arms of the same baseline with smaller effects are named.

    Assumes: a configuration measured twice has the same speed.
    Otherwise: on a noisy machine 1 in 20 good controls fails: suspect at most.
    """
    again = [arm for arm in data.arms.values() if arm.role == "control" and _repeats_its_baseline(arm, data.arms)]
    if not again:
        yield not_applicable(None, _NONE)
        return
    speedups = data.speedups
    for arm in again:
        speedup = speedups.get(arm.id)
        if speedup is None:
            yield not_checkable(arm.id, Message("unchecked.no_block_of_both"))
            continue
        point = math.log(speedup.point)
        if abs(point) <= _TOO_FAR and not _beyond(speedup):
            continue
        least = _resolution(speedup)
        beneath = [
            other.id
            for other in data.arms.values()
            if other.baseline_id == arm.baseline_id
            and other.role != "control"
            and (effect := speedups.get(other.id)) is not None
            and abs(math.log(effect.point)) < least
        ]
        yield of_arm(
            "suspect",
            arm.id,
            Message(
                "control-baseline.found",
                differs_percent=100 * math.expm1(point),
                least_effect_percent=100 * math.expm1(least),
            ),
            ratio=round(speedup.point, 4),
            low=_rounded(speedup.low),
            high=_rounded(speedup.high),
            blocks=speedup.n,
            least_effect_percent=round(100 * math.expm1(least), 2),
            arms_below_it=", ".join(beneath) or None,
        )


def _repeats_its_baseline(arm: Arm, arms: Mapping[str, Arm]) -> bool:
    """A named control may be plain decoding with other settings, which is another configuration."""
    baseline = arms.get(arm.baseline_id or "")
    return not arm.speculates and baseline is not None and arm.engine == baseline.engine


def _beyond(speedup: Estimate) -> bool:
    """Whether the whole interval lies further from 1 than is tolerated."""
    if speedup.low is None or speedup.high is None:
        return False
    return math.log(speedup.high) < -_TOLERANCE or (speedup.low > 0 and math.log(speedup.low) > _TOLERANCE)


def _resolution(speedup: Estimate) -> float:
    """The farthest end of the interval from 1, as a logarithm; of the point where there is no interval."""
    ends = [end for end in (speedup.point, speedup.low, speedup.high) if end is not None and end > 0]
    return max(abs(math.log(end)) for end in ends)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


CHECKS: tuple[Check, ...] = (
    Check("control-accept-all", "invalid", accept_all, saw=("arms", "requests"), needs=("drafts",)),
    Check("control-accept-none", "invalid", accept_none, saw=("arms", "requests"), needs=("drafts",)),
    Check("control-baseline", "suspect", baseline_again, saw=("arms", "requests")),
)


def synthetic_on(data: RunData) -> Findings:
    """Acceptance simulated at random tells what steps cost; as a speedup of a model it is false.

    Assumes: the setting, or the engine's log line about it, is in force.
    Otherwise: `flag-inert` finds an engine that ignores the setting; the label is still wrong.
    """
    for arm in data.arms.values():
        if arm.role == "control":
            yield not_applicable(arm.id, Message("unchecked.control_synthetic"))
            continue
        flags = [flag for flag in arm.engine.extra_flags if "spec-synth" in flag]
        sign = logs_of(data, data.by_arm[arm.id]).all("synthetic")
        if arm.synthetic_rates or flags or sign:
            rates = ", ".join(f"{rate:g}" for rate in arm.synthetic_rates)
            how = f"synthetic_rates {rates}" if rates else flags[0] if flags else Message("synthetic-on.log")
            yield of_arm(
                "invalid",
                arm.id,
                Message("synthetic-on.found", how=how),
                synthetic_rates=rates or None,
                flag=flags[0] if flags else None,
                log=first_line(sign),
            )


def experts_recorded(data: RunData) -> Findings:
    """Looking into the graph makes an engine compute it in pieces: what its steps then take says nothing.

    Assumes: recording experts always changes how the engine computes.
    Otherwise: no assumption is needed, because this follows from the configuration's settings.
    """
    for arm in data.arms.values():
        if arm.engine.record_experts:
            yield of_arm("invalid", arm.id, Message("experts-recorded.found"), Message("experts-recorded.fix"))
        else:
            yield not_applicable(arm.id, Message("unchecked.experts_not_recorded"))


def timing_only(data: RunData) -> Findings:
    """Random weights cost what real ones cost, but agree with nothing: a cost probe, no result.

    Assumes: randomly drawn weights agree with nothing.
    Otherwise: a model marked by mistake is refused too.
    """
    for arm in data.arms.values():
        used = [data.models.get(name) for name in (arm.target, arm.draft) if name is not None]
        random = [model.name for model in used if model is not None and model.timing_only]
        if not arm.speculates or arm.role == "control":
            yield not_applicable(
                arm.id,
                Message("unchecked.plain") if not arm.speculates else Message("unchecked.control"),
            )
        elif random:
            yield of_arm(
                "invalid",
                arm.id,
                Message("timing-only.found", models=random),
                models=", ".join(random),
            )


COST_PROBE_CHECKS: tuple[Check, ...] = (
    Check("synthetic-on", "invalid", synthetic_on, saw=("arms", "sessions", "logs", "requests"), before=True),
    Check("experts-recorded", "invalid", experts_recorded, saw=("arms",), before=True),
    Check("timing-only", "invalid", timing_only, saw=("arms", "models"), before=True),
)
