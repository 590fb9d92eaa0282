"""The speedup of whole answers, and how often its intervals hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specmeter.numbers.estimates import between
from specmeter.numbers.stats import Pool
from specmeter.numbers.whole_answers import combined, speedup_of_answers


def answers(
    rng: np.random.Generator, n: int, *, apart: float, noise: float
) -> tuple[list[tuple[Pool, Pool]], list[float], float]:
    """(pairs, what a replay expects of each, the true speedup of these prompts): tokens and true speedups differ from
    answer to answer, by `apart`; each time has `noise`; the replay is 5 % too high for all."""
    tokens = rng.uniform(50, 600, n)
    true = np.exp(0.3 + apart * rng.standard_normal(n))
    plain = tokens * 70 * np.exp(noise * rng.standard_normal(n))
    own = tokens * 70 / true * np.exp(noise * rng.standard_normal(n))
    pairs = [(Pool(t, a), Pool(t, b)) for t, a, b in zip(tokens, own, plain, strict=True)]
    return pairs, list(1.05 * true), float(tokens.sum() / (tokens / true).sum())


def test_the_point_is_all_tokens_over_all_time() -> None:
    pairs = [(Pool(100, 1000), Pool(100, 2000)), (Pool(300, 6000), Pool(280, 5600)), (Pool(10, 200), Pool(10, 200))]
    here, over = speedup_of_answers(pairs, None, prompts=list(map(str, range(3))))
    assert here.point == pytest.approx((410 / 7200) / (390 / 7800))
    assert over is not None
    assert (here.low, here.high) == (over.low, over.high)  # nothing is known beforehand


@pytest.mark.parametrize(("n", "apart"), [(4, 0.0), (4, 0.4), (8, 0.1), (8, 0.4)])
def test_the_interval_for_these_prompts_holds_their_speedup(n: int, apart: float) -> None:
    rng, inside, wide = np.random.default_rng(5), 0, []
    for _ in range(1500):
        pairs, expected, truth = answers(rng, n, apart=apart, noise=0.015)
        here, over = speedup_of_answers(pairs, expected, prompts=list(map(str, range(n))))
        assert here.low is not None
        assert here.high is not None
        assert over is not None
        assert over.low is not None
        assert over.high is not None
        inside += here.low <= truth <= here.high
        wide.append(math.log(over.high / over.low) / math.log(here.high / here.low))
    assert 0.92 <= inside / 1500 <= 0.98
    if apart > 0.3:
        assert np.median(wide) > 5  # it leaves out what differs between prompts


@pytest.mark.parametrize("n", [6, 8, 16])
def test_the_interval_for_other_prompts_holds_the_speedup_of_many(n: int) -> None:
    rng, inside = np.random.default_rng(6), 0
    _, _, truth = answers(rng, 200_000, apart=0.2, noise=0.0)
    for _ in range(1500):
        pairs, expected, _ = answers(rng, n, apart=0.2, noise=0.015)
        _, over = speedup_of_answers(pairs, expected, prompts=list(map(str, range(n))))
        assert over is not None
        assert over.low is not None
        assert over.high is not None
        inside += over.low <= truth <= over.high
    assert 0.90 <= inside / 1500 <= 0.98


def test_two_estimates_are_weighted_by_their_variances() -> None:
    measured, predicted = (between(*it, unit="x", method="", n=4) for it in ((1.0, 0.97, 1.031), (1.02, 0.99, 1.051)))
    both = combined(measured, predicted)
    assert both.low is not None
    assert both.high is not None
    assert both.point == pytest.approx(1.01, abs=0.001)
    assert math.log(both.high / both.low) == pytest.approx(math.log(1.031 / 0.97) / math.sqrt(2), rel=0.01)
    assert combined(measured, None) == measured


@pytest.mark.parametrize("n", [3, 4, 8])
@pytest.mark.parametrize("known", [True, False])
def test_one_long_answer_among_short_ones_does_not_look_certain(n: int, *, known: bool) -> None:
    rng, here_holds, over_holds = np.random.default_rng(7), 0, 0
    for _ in range(1000):
        tokens = np.concatenate([[1000.0], rng.uniform(19, 60, n - 1)])
        pairs = [
            (Pool(t, t * 70 * a), Pool(t, t * 70 * b))
            for t, (a, b) in zip(tokens, rng.lognormal(0, 0.01, (n, 2)), strict=True)
        ]
        here, over = speedup_of_answers(pairs, [1.0] * n if known else None, prompts=list(map(str, range(n))))
        assert here.low is not None
        assert here.high is not None
        assert over is not None
        assert over.low is not None
        assert over.high is not None
        here_holds += here.low <= 1 <= here.high
        over_holds += over.low <= 1 <= over.high
    assert min(here_holds, over_holds) >= 930


def test_a_prompt_that_is_asked_again_is_no_other_prompt() -> None:
    rng, inside = np.random.default_rng(8), 0
    for _ in range(1000):
        pairs, _, _ = answers(rng, 3, apart=0.2, noise=0.001)
        _, over = speedup_of_answers([*pairs, pairs[0]], None, prompts=["a", "b", "c", "a"])
        assert over is not None
        assert over.low is not None
        assert over.high is not None
        inside += over.low <= math.exp(0.3 - 0.02) <= over.high
    assert inside >= 930  # 87 % if the fourth answer counts as a fourth prompt
