"""What a probe says: v(n), the models that fit its curve, and what verification asks of a draft; measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import exceeds
from specmeter.record import Estimate, ExpertUnion
from specmeter.text import estimated
from specmeter.theory.cost import CycleLine, break_even_alpha, cycle_line, step_cost
from specmeter.theory.curves import CostFit, CostSurface, SurfaceFit, compare_fits, fit_surface
from specmeter.theory.roofline import fit_union

if TYPE_CHECKING:
    from specmeter.probe.record import Probe
    from specmeter.theory.arguments import Floats

TYPICAL_GAMMA = 4
"""Draft tokens that the sentence speaks of, where the curve reaches so far."""
_NO_DIFFERENCE = 2.0
"""Difference of AICc below which a curve does not tell two models apart."""


@dataclass(frozen=True)
class BreakEven:
    """What drafts of `gamma` tokens must bring so that nothing is lost."""

    gamma: int
    verification: Estimate
    """v(gamma) = T(gamma + 1) / T(1)."""
    tokens: float
    """Tokens that a step must yield: its cost in forwards of one token, drafting and overhead included."""
    alpha: float | None
    """Acceptance per token that yields them, the same for every token; None where even full acceptance does not."""
    with_draft: bool
    """Whether the cost of drafting is in it."""


def fits(probe: Probe) -> tuple[CostFit, ...]:
    """Models of T(n), best first; empty where there are too few points to compare any."""
    union = None
    if probe.union is not None and len(probe.union.points) > 1 and probe.union.used < probe.union.experts:
        union = union_model(probe.union)
    try:
        return compare_fits(probe.target_ms, union)
    except UsageError:
        return ()


def surface_of(probe: Probe) -> CostSurface | None:
    """T(b, n); None where it was not measured."""
    return CostSurface.of(probe.batches) if probe.batches else None


def surface_fits(probe: Probe) -> tuple[SurfaceFit, ...]:
    """Models of T(b, n), best first; empty where there are too few points to compare any."""
    header = probe.target.header
    experts, used = (header.experts, header.experts_used) if header is not None else (0, 0)
    return fit_surface(probe.batches, experts, used)


def union_model(union: ExpertUnion) -> Callable[[Floats], float | Floats]:
    """U(n) as a function: the overlap model `draws`, fitted to the measured unions."""
    n = [float(point.tokens) for point in union.points]
    return fit_union(n, [point.union.point for point in union.points], union.experts, union.used).union


def told_apart(models: Sequence[CostFit | SurfaceFit]) -> bool:
    """Whether the best model is better than the next by more than noise."""
    return len(models) < 2 or models[1].aicc - models[0].aicc > _NO_DIFFERENCE


def break_even(probe: Probe, gamma: int | None = None) -> BreakEven | None:
    """For `gamma`, else for `TYPICAL_GAMMA` or the longest draft below it; None where only T(1) was measured."""
    measured = [point.tokens - 1 for point in probe.target_ms.points if point.tokens > 1]
    able = [each for each in measured if each <= (gamma or TYPICAL_GAMMA)] or measured[:1]
    if not able or (gamma is not None and gamma not in able):
        return None
    chosen = max(able)
    verification = probe.target_ms.verification_estimate(chosen)
    rest = probe.overhead_ms.point if probe.overhead_ms else 0.0
    plain = probe.target_ms.ms_at(1.0) + rest  # a plain token pays the overhead too
    draft = probe.draft_ms.ms_at(1.0) if probe.draft_ms else 0.0
    relative = probe.target_ms.ms_at(chosen + 1.0) / plain
    tokens = step_cost(chosen, relative, draft_cost=draft / plain, rest=rest / plain)
    alpha = break_even_alpha(chosen, relative, draft_cost=draft / plain, rest=rest / plain)
    return BreakEven(chosen, verification, tokens, alpha if alpha <= 1 else None, probe.draft_ms is not None)


def cycle(probe: Probe) -> CycleLine | None:
    """What whole cycles cost by their width, drafting and the rest of a step included; None for too few widths.

    Beyond its own points the draft model takes in what was verified on a straight line.
    """
    curve, rest = probe.target_ms, probe.overhead_ms.point if probe.overhead_ms else 0.0
    n, plain = curve.tokens[curve.tokens > 1], curve.ms_at(1.0) + rest
    ms = curve.ms[curve.tokens > 1] + rest
    if (draft := probe.draft_ms) is not None:
        known = draft.tokens
        slope = (draft.ms[-1] - draft.ms[-2]) / (known[-1] - known[-2]) if len(known) > 1 else 0.0
        ms += (
            (n - 1) * draft.ms_at(1.0) + np.interp(n, known, draft.ms) + max(0.0, slope) * np.maximum(0, n - known[-1])
        )
    return cycle_line(n, ms / plain)


def batch_sentence(found: CostSurface) -> Message:
    """What sharing the machine does to verification."""
    ends = [(b, curve) for b, curve in found.curves if len(curve.points) > 1]
    if len(ends) < 2:
        return Message("sharing.too_few")
    (few, first), (many, last) = ends[0], ends[-1]
    both = sorted({point.tokens for point in first.points} & {point.tokens for point in last.points} - {1})
    if not both:
        return Message("sharing.too_few")
    n = max([each for each in both if each <= TYPICAL_GAMMA + 1] or both[:1])
    alone, shared = (found.verification(b, n - 1) for b in (few, many))
    code = "more" if exceeds(shared, alone) else "less" if exceeds(alone, shared) else "alike"
    costs: dict[str, Value] = {"alone": estimated(alone, 2), "shared": estimated(shared, 2)}
    return Message(f"sharing.{code}", n=n, few=few, many=many, **costs)


def sentence(probe: Probe) -> Message:
    """What the probe means."""
    found = break_even(probe)
    if found is None:
        return Message("break-even.only_plain")
    v = found.verification
    interval = f" [{v.low:.2f}, {v.high:.2f}]" if v.low is not None and v.high is not None else ""
    recurrent = probe.target.header is not None and probe.target.header.recurrent
    counted = "with_drafting" if found.with_draft else "without_drafting"
    said: dict[str, Value] = {
        "n": found.gamma + 1,
        "cost": f"{v.point:.2f}{interval}",
        "drafts": found.gamma,
        "step": found.tokens,
        "counted": Message(f"break-even.{counted}{'_only' if recurrent else ''}"),
    }
    if found.alpha is None:
        return Message("break-even.never", **said)
    said["replays"] = Message("break-even.replays") if recurrent else ""
    if found.tokens <= 1:
        return Message("break-even.always", **said)
    return Message("break-even.pays", **said, alpha=found.alpha)
