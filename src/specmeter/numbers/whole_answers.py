"""The speedup of whole answers, each written once by either side.

Answers differ: a configuration that copies text gains on an edit and nothing on a chat. So the spread of the measured
ratios mixes two things: what differs between prompts, and what a machine adds by chance. If the ratio of each answer
is known up to a common factor (its drafts were replayed on the same text), what is left of the spread is chance:

    ln R = ln of all tokens over all time of one side, less the same of the other
    e_b  = ln of the measured ratio of answer b, less ln of its expected one
    these prompts:  ln R +- t(n - 1) * sqrt(n / (n - 1) * sum (w_b (e_b - e))^2)
    other prompts:  the ratio estimator over prompts (`analysis.gain.pooled_speedup` has the formula)
    neither below:  t(n - 1) * s * sqrt(sum w_b^2)

w_b is the share of answer b in the time, e the mean of e_b by these shares, s the standard deviation of e_b (of the
measured ratio itself for other prompts). One long answer among short ones is nearly the sum, so it deviates from it by
nearly nothing: the first two lines alone then hold in a third of all cases instead of 95 %. The point is the same: the
rate of whole answers. Source: Cochran 1977, ch. 6 and 7 (ratio and regression estimators).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.numbers.estimates import from_log
from specmeter.numbers.stats import t_critical

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats, Pair
    from specmeter.record import Estimate

MIN_ANSWERS = 3
"""Answers that have an interval."""
MANY = 1000
"""Degrees of freedom of a deviation that is known."""


class AnswersSpeedup(NamedTuple):
    """One number with two intervals."""

    here: Estimate
    """For the prompts that were measured."""
    over_prompts: Estimate | None
    """For other prompts like these; None for fewer than `MIN_ANSWERS` different ones."""


def speedup_of_answers(
    pairs: Sequence[Pair],
    expected: Sequence[float] | None,
    *,
    prompts: Sequence[str],
    level: float = 0.95,
    among: int = 1,
    servers: float = 0.0,
) -> AnswersSpeedup:
    """`pairs`: (configuration, baseline) of each answer, tokens and ms; `expected`: the speedup that a replay expects
    of each, if it is known; `prompts`: what each answers; `among`: intervals that hold together (Bonferroni);
    `servers`: standard deviation of the logarithm that one server of each side brings into all answers alike, which
    none of them shows."""
    values = np.array(pairs, dtype=np.float64)
    arm, baseline = values.sum(axis=0)
    log = math.log(arm[0] / arm[1]) - math.log(baseline[0] / baseline[1])
    within = 1 - (1 - level) / among

    def estimate(each: Floats, known: Floats | None, of: str, unit: str) -> Estimate:
        n, shares = len(each), each / each.sum(axis=0)
        weights = (shares[:, 0, 1] + shares[:, 1, 1]) / 2
        left = np.log(each[:, 0, 0] / each[:, 0, 1]) - np.log(each[:, 1, 0] / each[:, 1, 1])
        if known is None:
            parts = (shares[:, 0, 0] - shares[:, 0, 1]) - (shares[:, 1, 0] - shares[:, 1, 1])
        else:
            left = left - known
            parts = weights * (left - weights @ left)
        half = None
        if n >= MIN_ANSWERS and float(np.ptp(left)) > 0:
            least = float(np.std(left, ddof=1)) * math.sqrt(float(weights @ weights))
            half = t_critical(n - 1, within) * max(math.sqrt(n / (n - 1) * float(parts @ parts)), least)
            half = math.hypot(half, t_critical(MANY, within) * servers)
        how = f"all tokens over all time of {len(values)} whole answers; Student's t over {of}"
        return from_log(log, half, "x", how, n=n, of=unit, level=level)

    names = list(dict.fromkeys(prompts))
    by_prompt = np.stack([values[[it == name for it in prompts]].sum(axis=0) for name in names])
    other = estimate(by_prompt, None, "prompts", "answers") if len(names) >= MIN_ANSWERS else None
    if expected is None:
        return AnswersSpeedup(estimate(values, None, "answers", "answers"), other)
    known = np.log(np.asarray(expected, dtype=np.float64))
    return AnswersSpeedup(estimate(values, known, "what a replay leaves unexplained", "answers"), other)


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
