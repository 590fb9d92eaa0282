"""The speedup of whole answers, each written once by either side.

Answers differ: a configuration that copies text gains on an edit and nothing on a chat. So the spread of the measured
ratios mixes two things: what differs between prompts, and what a machine adds by chance. If the ratio of each answer
is known up to a common factor (its drafts were replayed on the same text), what is left of the spread is chance:

    ln R = ln of all tokens over all time of one side, less the same of the other
    e_b  = ln of the measured ratio of answer b, less ln of its expected one
    these prompts:  ln R +- t(n - 1) * sqrt(n / (n - 1) * sum (w_b (e_b - e))^2)
    other prompts:  the ratio estimator over answers (`pairing.pooled_speedup` has the formula)

w_b is the share of answer b in the time, e the mean of e_b by these shares. The point is the same: the rate of whole
answers. Source: Cochran 1977, ch. 6 and 7 (ratio and regression estimators).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.numbers.estimates import from_log
from specmeter.numbers.stats import t_critical

if TYPE_CHECKING:
    from specmeter.numbers.stats import Pair
    from specmeter.record import Estimate

LEAST = 3
"""Answers that have an interval."""


class AnswersSpeedup(NamedTuple):
    """One number with two intervals."""

    here: Estimate
    """For the prompts that were measured."""
    over_prompts: Estimate | None
    """For other prompts like these; None for fewer than `LEAST` different ones."""


def speedup_of_answers(
    pairs: Sequence[Pair], expected: Sequence[float] | None, *, prompts: int, level: float = 0.95, among: int = 1
) -> AnswersSpeedup:
    """`pairs`: (configuration, baseline) of each answer, tokens and ms; `expected`: the speedup that a replay expects
    of each, if it is known; `prompts`: how many of the answers are to different prompts; `among`: intervals that hold
    together (Bonferroni)."""
    values = np.array(pairs, dtype=np.float64)
    n = len(values)
    arm, baseline = values.sum(axis=0)
    log = math.log(arm[0] / arm[1]) - math.log(baseline[0] / baseline[1])
    shares = values / values.sum(axis=0)
    spread = (shares[:, 0, 0] - shares[:, 0, 1]) - (shares[:, 1, 0] - shares[:, 1, 1])
    within = 1 - (1 - level) / among

    def told(parts: np.ndarray, of: str) -> Estimate:
        half = None
        if n >= LEAST and float(np.ptp(parts)) > 0:
            half = t_critical(n - 1, within) * math.sqrt(n / (n - 1) * float(parts @ parts))
        how = f"all tokens over all time of {n} whole answers; Student's t over {of}"
        return from_log(log, half, "x", how, n=n, of="answers", level=level)

    other = told(spread, "answers") if prompts >= LEAST else None
    if expected is None:
        return AnswersSpeedup(told(spread, "answers"), other)
    weights = (shares[:, 0, 1] + shares[:, 1, 1]) / 2
    with_ratio = np.log(values[:, 0, 0] / values[:, 0, 1]) - np.log(values[:, 1, 0] / values[:, 1, 1])
    errors = with_ratio - np.log(np.asarray(expected, dtype=np.float64))
    return AnswersSpeedup(told(weights * (errors - weights @ errors), "what a replay leaves unexplained"), other)


def deviation_of_answers(pairs: Sequence[Pair], expected: Sequence[float] | None) -> float:
    """Standard deviation of the logarithm by which an answer differs from what is expected of it."""
    logs = [math.log(a.tokens / a.ms) - math.log(b.tokens / b.ms) for a, b in pairs]
    left = np.asarray(logs) - (0.0 if expected is None else np.log(np.asarray(expected, dtype=np.float64)))
    return float(np.std(left, ddof=1))


def combined(measured: Estimate, predicted: Estimate | None) -> Estimate:
    """What was measured and what was predicted of the same speedup, each weighted by the inverse of its variance."""
    ends = [(it.low, it.high, it.point) for it in (measured, predicted) if it is not None]
    known = [(low, high, point) for low, high, point in ends if low is not None and high is not None and 0 < low < high]
    if len(known) < 2:
        return measured
    logs = [math.log(point) for _, _, point in known]
    weights = [1 / math.log(high / low) ** 2 for low, high, _ in known]
    mean = sum(w * it for w, it in zip(weights, logs, strict=True)) / sum(weights)
    half = 0.5 / math.sqrt(sum(weights))
    how = "measured and predicted, weighted by their variances"
    return from_log(mean, half, "x", how, n=measured.n, of=measured.of, level=measured.level)
