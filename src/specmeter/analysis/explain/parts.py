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
it can have cost: by the run's own steps, else by a probe, else by computing each token on its own (`most`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.analysis.tally import TIMES, Tally

if TYPE_CHECKING:
    from specmeter.probe.record import Probe
    from specmeter.theory.curves import CostCurve


Means = Literal["steps", "cost curve", "step times", "difference", "undivided"]
RESIDUAL = ("step times", "difference")
"""Means by which verification is what is left."""
PARTS = ("draft", "verify", "restore", "sample", "rest")
"""`restore`: checkpoints and replays; `rest`: time of steps that is nothing else. The remainder stands apart."""
_MIN_GAPS = 5
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
    if means == "difference" and len(unit.gaps_ms) >= _MIN_GAPS:
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
    """Milliseconds of this many forwards over this many tokens each."""
    if not counts:
        return 0.0
    return float(np.dot(curve.ms_at(list(counts)), list(counts.values())))
