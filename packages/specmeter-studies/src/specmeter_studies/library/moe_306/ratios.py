"""moe-306: configurations against each other, block by block, from single generations.

Two speedups of one target share a baseline, and its noise. Their ratio does not need it: within each block both ran
the same prompts, so the logarithm of the ratio of their rates, in the mean over prompts, is one value per block, with
Student's t over blocks. Several such comparisons are averaged within each block before the t: blocks, not comparisons,
are what repeats. Configurations of different targets are compared by their gains, each over its own baseline in the
same block; a baseline that ran its prompts in turn is completed by least squares (`specmeter.numbers.stats`).

Where a claim fails by a single counterexample among several, each is judged by an interval that holds for all of them
together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from specmeter.numbers.estimates import above
from specmeter.numbers.stats import Pool, additive, geometric_speedup, t_critical
from specmeter.record import Estimate
from specmeter_studies.library.moe_306.lines import baseline_of
from specmeter_studies.study import ArmResult, StudyData

Logs = Mapping[int, float]
"""Block -> logarithm of a ratio."""


def ratio(data: StudyData, first: ArmResult, second: ArmResult) -> Estimate | None:
    """How much faster the first is; of different targets, how much more it gains. None without single generations."""
    return _estimate(_logs(data, first, second))


def mean_ratio(data: StudyData, pairs: Sequence[tuple[ArmResult, ArmResult]]) -> Estimate | None:
    """The geometric mean of several ratios; None unless all of them were measured in some block."""
    found = [_logs(data, first, second) for first, second in pairs]
    if not found:
        return None
    blocks = set(found[0]).intersection(*found[1:])
    return _estimate({block: math.fsum(logs[block] for logs in found) / len(found) for block in sorted(blocks)})


def mean_gain(data: StudyData, lines: Sequence[ArmResult]) -> Estimate | None:
    """The geometric mean of the speedups of several configurations."""
    pairs = [(line, base) for line in lines if (base := baseline_of(data, line)) is not None]
    return mean_ratio(data, pairs) if len(pairs) == len(lines) else None


def faster(data: StudyData, first: ArmResult, second: ArmResult, *, among: int = 1) -> bool:
    """Whether the first is faster (gains more) beyond the interval, as one of `among` such comparisons.

    Without single generations: whether the two speedups differ beyond their intervals, taken as independent.
    """
    paired = ratio(data, first, second)
    if paired is not None and paired.low is not None:
        return above(widened(paired, among * first.looks), 1 + max(first.least_effect, second.least_effect))
    return _differ(first.speedup, second.speedup, among)


def widened(estimate: Estimate, among: int) -> Estimate:
    """One of `among` intervals that hold together; each side by the ratio of Student's critical values."""
    if among <= 1 or estimate.n < 2 or estimate.low is None or estimate.high is None or estimate.point <= 0:
        return estimate
    by = t_critical(estimate.n - 1, 1 - (1 - estimate.level) / among) / t_critical(estimate.n - 1, estimate.level)
    low, high = (estimate.point * (end / estimate.point) ** by for end in (estimate.low, estimate.high))
    return estimate.model_copy(update={"low": low, "high": high})


def _differ(first: Estimate | None, second: Estimate | None, among: int) -> bool:
    """By half widths in logarithms, added as squares."""
    if first is None or second is None or first.low is None or second.high is None:
        return False
    first, second = widened(first, among), widened(second, among)
    if not first.low or not second.high:
        return False
    down, up = math.log(first.point / first.low), math.log(second.high / second.point)
    return math.log(first.point / second.point) > math.hypot(down, up)


def _logs(data: StudyData, first: ArmResult, second: ArmResult) -> Logs:
    if first.target == second.target:
        return _same_target(data, first, second)
    bases = baseline_of(data, first), baseline_of(data, second)
    if bases[0] is None or bases[1] is None:
        return {}
    one, other = _same_target(data, first, bases[0]), _same_target(data, second, bases[1])
    return {block: one[block] - other[block] for block in sorted(one.keys() & other.keys())}


def _same_target(data: StudyData, first: ArmResult, second: ArmResult) -> Logs:
    """Mean over prompts of the log ratio in each block; prompts that only one of them ran there are completed."""
    ours, theirs = _rates(data, first), _rates(data, second)
    met = sorted(ours.keys() & theirs.keys())
    if not met:
        return {}
    names = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompt for _, prompt in met))}
    blocks, prompts = np.array([block for block, _ in met]), np.array([names[prompt] for _, prompt in met])
    fitted = additive(np.array([math.log(ours[key] / theirs[key]) for key in met]), prompts, blocks)
    if fitted is None:
        return {}
    of_prompt, of_block = fitted
    mean = math.fsum(of_prompt.values()) / len(of_prompt)
    return {block: mean + value for block, value in of_block.items()}


def _rates(data: StudyData, line: ArmResult) -> Mapping[tuple[int, str], float]:
    """(block, prompt) -> tok/s."""
    return {
        (result.repeat, result.prompt): result.decode_rate
        for result in data.results
        if result.config == line.config and result.decode_rate
    }


def _estimate(logs: Logs) -> Estimate | None:
    if not logs:
        return None
    return geometric_speedup([(Pool(math.exp(value), 1000.0), Pool(1.0, 1000.0)) for value in logs.values()])
