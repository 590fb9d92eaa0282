"""Splits the decode time of an arm into parts, by the best means that its records allow.

    steps          an instrumented engine measured every part of every step
    step times     drafting by the server's statistics; verification: the steps of its log less drafting, as far as
                   verification can cost so much
    cost curve     drafting by the server's statistics (and, for a draft model, one forward over what was verified, by
                   the probe's curve of the draft); verification: every forward at the price that the probe's curve has
                   for its tokens, in units of the baseline's own time per token in the same block
    difference     what is not drafting by the server's statistics is verification, as far as that can cost so much
    undivided      the run has no statistics of drafting: `verify` is everything, drafting included

Logs have no line for plain forwards, so step times serve if nearly every forward verified a draft. Whatever no part
accounts for is the remainder, which is shown and may be negative.

By `step times` and `difference` nothing measures verification: it is what is left. So it is held against the most that
it can have cost: by the run's own steps, else by a probe, else by computing each token by itself (`most`).

*Ceiling.* The most that an arm could have gained with the tokens that its steps emit is tau / m (`theory.bounds`). m is
the cheapest forward that a step can have; without a probe it is taken as 1. An arm whose interval lies above its tau
refutes that for all arms of its target whose drafts are as long: they have no ceiling here.

*Experts.* Tokens that choose different experts make a forward read more of them: `x` times more than one token does. So
a forward of an MoE model takes at most

    1 + f x    forwards over one token,    f: the experts' share of the bytes that one token reads

How many experts a forward reads is known, in this order, from the steps themselves (`engine.record_experts`), from the
run's texts (`specmeter.laboratory.routing`), from a probe, or else from uniform routing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.analysis.prediction.costs import footprint_of
from specmeter.analysis.requests import TIMES, Tally
from specmeter.messages import Message
from specmeter.numbers.estimates import quotient
from specmeter.record import Arm, Estimate, Record
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary
    from specmeter.probe.record import Probe
    from specmeter.record import ExpertUnion, ModelHeader, ModelIdentity, TextRouting
    from specmeter.theory.curves import CostCurve


Means = Literal["steps", "cost curve", "step times", "difference", "undivided"]
RESIDUAL = ("step times", "difference")
"""Means by which verification is what is left."""
PARTS = ("draft", "verify", "restore", "sample", "rest")
"""`restore`: checkpoints and replays; `rest`: time of steps that is nothing else. The remainder stands apart."""
_FEWEST_GAPS = 5
"""Steps whose median time says what a step takes at most."""


@dataclass(frozen=True)
class Split:
    """Milliseconds of one unit (a block), by part; they add up to the decode time."""

    tokens: int
    ms: float
    draft: float = 0.0
    verify: float = 0.0
    restore: float = 0.0
    sample: float = 0.0
    rest: float = 0.0
    remainder: float = 0.0
    sure: float | None = None
    """Where verification is what is left over: the other parts, and a forward at the baseline's price for each round,
    which may be more than there is; None where there is no baseline."""


def means_of(arm: Sequence[Tally], probe: Probe | None, by_model: bool, baseline: bool) -> Means:
    """The best means that all units of an arm allow; `baseline` says that there is one to take plain tokens from."""
    if all(unit.times for unit in arm):
        return "steps"
    drafting = all(unit.drafting_ms is not None or unit.drafted == 0 for unit in arm)
    longest = max((length for unit in arm for length in unit.lengths), default=0)
    if drafting and all(unit.steps_ms is not None for unit in arm):
        return "step times"
    if probe is not None and baseline and _covers(probe.target_ms, longest + 1):
        curve = probe.draft_ms
        if not by_model or (curve is not None and _covers(curve, longest + 1)):
            return "cost curve"
    return "difference" if drafting else "undivided"


def split(
    unit: Tally,
    means: Means,
    plain_ms: float | None,
    probe: Probe | None,
    by_model: bool,
    most: Callable[[float], float] | None = None,
) -> Split:
    """One unit; `plain_ms` is the baseline's time per token there, if there is one, and `most` what a forward over so
    many tokens can cost at most, in plain tokens (by default as many as it has tokens)."""
    if means == "steps":
        draft, verify, sample, restore, rest = (unit.times[name] for name in TIMES)
        return _with_remainder(unit, draft=draft, verify=verify, restore=restore, sample=sample, rest=rest)
    drafting = unit.drafting_ms or 0.0
    if means == "cost curve":
        assert probe is not None
        assert plain_ms is not None
        overhead = probe.overhead_ms.point if probe.overhead_ms is not None else 0.0
        scale = plain_ms / (probe.target_ms.ms_at(1.0) + overhead)
        if by_model and probe.draft_ms is not None:
            if unit.drafting_ms is None:
                drafting = scale * probe.draft_ms.ms_at(1.0) * unit.drafted
            drafting += scale * _forwards(probe.draft_ms, {n + 1: count for n, count in unit.lengths.items() if n})
        restore = unit.replays_ms or scale * _forwards(probe.target_ms, unit.replayed)
        verify = scale * _forwards(probe.target_ms, {n + 1: count for n, count in unit.lengths.items()})
        return _with_remainder(
            unit, draft=drafting, verify=verify, restore=restore, sample=scale * overhead * unit.rounds
        )
    steps_ms = unit.ms
    if means == "step times" and unit.steps_ms is not None:
        steps_ms = unit.steps_ms + unit.unlogged * (plain_ms or 0.0)
    left = steps_ms - drafting - unit.replays_ms
    if means == "undivided" or plain_ms is None:
        return _with_remainder(unit, draft=drafting, verify=left, restore=unit.replays_ms)
    if means == "difference" and len(unit.gaps_ms) >= _FEWEST_GAPS:
        at_most = unit.with_draft * median(unit.gaps_ms) + plain_ms * (unit.rounds - unit.with_draft)
    else:
        at_most = plain_ms * sum(count * (most or float)(n + 1) for n, count in unit.lengths.items())
    found = _with_remainder(unit, draft=drafting, verify=min(left, at_most), restore=unit.replays_ms)
    return replace(found, sure=found.draft + found.restore + plain_ms * unit.rounds)


def _with_remainder(
    unit: Tally, *, draft: float, verify: float, restore: float = 0.0, sample: float = 0.0, rest: float = 0.0
) -> Split:
    verify = max(0.0, verify)
    remainder = unit.ms - draft - verify - restore - sample - rest
    return Split(unit.tokens, unit.ms, draft, verify, restore, sample, rest, remainder)


def _covers(curve: CostCurve, tokens: int) -> bool:
    return curve.tokens[0] == 1 and curve.tokens[-1] >= tokens


def _forwards(curve: CostCurve, counts: dict[int, int]) -> float:
    """Milliseconds of so many forwards over so many tokens each."""
    if not counts:
        return 0.0
    return float(np.dot(curve.ms_at(list(counts)), list(counts.values())))


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
            method = "tau over the cheapest forward of a step, as probed"
            most = quotient(arm.tau, cheapest, unit="x", method=method)
            if arm.speedup.point <= most.point:
                found[arm.arm_id] = Ceiling(speedup=most, cheapest_forward=cheapest.point)
            continue
        target = asked[arm.arm_id].target
        if arm.speedup.point <= arm.tau.point and (target not in refuted or longest(arm.arm_id) < refuted[target]):
            tau = arm.tau.model_copy(
                update={"unit": "x", "method": f"tau, where no forward is cheaper; {arm.tau.method}"}
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


ExpertSource = Literal["steps", "texts", "probe"]
"""Where the experts of forwards were counted: in the run's own steps, on its texts, or on those of a probe."""


@dataclass(frozen=True)
class ExpertUse:
    """The experts of a target."""

    total: int
    """In each layer."""
    used: int
    """By one token."""
    share: float = 1.0
    """Of the bytes that one token reads; 1 where it is not known, which explains the most."""
    unions: tuple[tuple[int, float], ...] = ()
    """Tokens of a forward -> different experts in a layer, as measured, by tokens; empty where routing was not."""
    source: ExpertSource | None = None
    """What was measured; None where nothing was."""

    def more(self, tokens: float) -> tuple[float, bool]:
        """(how many more experts a forward over `tokens` reads, as a share of those of one; whether it was measured).

        Unmeasured it is what independent routing would read, which real texts do not reach.
        """
        measured = self.measured(tokens)
        if measured is None:
            return self.uniform(tokens) / self.used - 1, False
        return max(0.0, measured / self.used - 1), True

    def measured(self, tokens: float) -> float | None:
        """Experts of a layer that a forward over `tokens` reads, as measured; None where that was not."""
        if not self.unions or not 1 <= tokens <= self.unions[-1][0]:
            return None
        return _on_a_line({1: float(self.used), **dict(self.unions)}, tokens)

    def uniform(self, tokens: float) -> float:
        """The same if routing were uniform and independent (`theory.roofline`)."""
        return float(expected_union(tokens, self.total, self.used))

    def told(self, tokens: float) -> Message:
        """What is known of a forward over `tokens`, with the formula beside it."""
        if (measured := self.measured(tokens)) is None:
            return Message("experts.unknown")
        where, uniform = Message(f"experts.of_{self.source}"), self.uniform(tokens)
        return Message("experts.known", measured=measured, total=self.total, where=where, uniform=uniform)

    def most(self, tokens: float) -> float:
        """Most that reading them lets a forward over `tokens` take, in forwards over one token."""
        return 1 + self.share * self.more(tokens)[0]


def experts_of(
    header: ModelHeader | None,
    model: ModelIdentity | None = None,
    probe: Probe | None = None,
    steps: Mapping[int, float] | None = None,
    texts: TextRouting | None = None,
) -> ExpertUse | None:
    """What is known of a target's experts; None for a dense one. `steps`: tokens of a forward -> experts that the run
    itself recorded; `texts`: those of its texts."""
    of_texts = texts.union if texts is not None else None
    of_probe = probe.union if probe is not None else None
    sources: dict[ExpertSource, dict[int, float]] = {
        "steps": dict(steps or {}),
        "texts": _points(of_texts),
        "probe": _points(of_probe),
    }
    source: ExpertSource | None = next((name for name, points in sources.items() if points), None)
    unions = tuple(sorted(sources[source].items())) if source else ()
    if header is None or not header.experts > header.experts_used > 0:
        counted = of_texts or of_probe
        return ExpertUse(counted.experts, counted.used, 1.0, unions, source) if counted is not None else None
    share = 1.0
    if model is not None and header.bytes_per_token > 0:
        footprint = footprint_of(model, header)
        read = footprint.expert_bytes * footprint.used
        share = read / (read + footprint.always_bytes) if read > 0 else 1.0
    return ExpertUse(header.experts, header.experts_used, share, unions, source)


def _points(union: ExpertUnion | None) -> dict[int, float]:
    return {point.tokens: point.union.point for point in union.points} if union is not None else {}


def _on_a_line(known: Mapping[int, float], tokens: float) -> float:
    """What is known at some numbers of tokens, by straight lines between them."""
    places = sorted(known)
    return float(np.interp(tokens, places, [known[n] for n in places]))


def union_at(union: ExpertUnion, tokens: int) -> Estimate | None:
    """Experts of a layer that a forward over `tokens` reads, as measured at a point or, by a straight line, between two
    of them, with its interval; None beyond the last one."""
    known = {point.tokens: point.union for point in union.points}
    if tokens in known or not union.points or not union.points[0].tokens < tokens < union.points[-1].tokens:
        return known.get(tokens)
    lower = max(n for n in known if n < tokens)
    upper = min(n for n in known if n > tokens)
    a, b = known[lower], known[upper]
    pairs = {"point": (a.point, b.point), "low": (a.low, b.low), "high": (a.high, b.high)}
    ends = {
        end: None if one is None or other is None else _on_a_line({lower: one, upper: other}, tokens)
        for end, (one, other) in pairs.items()
    }
    return a.model_copy(update={**ends, "method": f"{a.method}; on a line between {lower} and {upper} tokens"})
