"""Estimates: agreement with scipy, honest silence on thin data, and intervals that cover what they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as scipy_stats
from scipy.optimize import linprog

from specmeter.errors import UsageError
from specmeter.record import Estimate
from specmeter.schedule import plan
from specmeter.stats import (
    DIP_LIMIT,
    Pair,
    Pool,
    bootstrap_speedup,
    dip,
    geometric_speedup,
    pooled_rate,
    pooled_ratio,
    speedup_over_invocations,
    t_critical,
    t_interval,
)

BASE = Pool(1000, 10_000.0)
Floats = NDArray[np.float64]


def pairs_of(ratios: list[float]) -> list[Pair]:
    return [(Pool(1000, 10_000.0 / ratio), BASE) for ratio in ratios]


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@pytest.mark.parametrize(("df", "value"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (1000, 1.962)])
def test_critical_values_are_those_of_the_tables(df: int, value: float) -> None:
    assert t_critical(df, 0.95) == pytest.approx(value, abs=5e-4)


def test_speedup_agrees_with_scipy() -> None:
    ratios = [1.21, 1.27, 1.18, 1.25, 1.30]
    estimate = geometric_speedup(pairs_of(ratios))
    expected = scipy_stats.ttest_1samp(np.log(ratios), 0.0).confidence_interval(0.95)
    assert estimate.point == pytest.approx(scipy_stats.gmean(ratios))
    assert bounds(estimate) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert (estimate.n, estimate.unit, estimate.level) == (5, "x", 0.95)
    assert estimate.method == "geometric mean of 5 block ratios; Student t over blocks"


def test_a_slow_block_cancels() -> None:
    quiet = geometric_speedup([(Pool(100, 50.0), Pool(100, 100.0)), (Pool(100, 51.0), Pool(100, 100.0))])
    busy = geometric_speedup([(Pool(100, 50.0), Pool(100, 100.0)), (Pool(100, 153.0), Pool(100, 300.0))])
    assert (busy.point, *bounds(busy)) == pytest.approx((quiet.point, *bounds(quiet)))


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8, unique=True), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_slower_mirrors_faster(ratios: list[float], level: float) -> None:
    pairs = pairs_of(ratios)
    there = geometric_speedup(pairs, level=level)
    back = geometric_speedup([(base, arm) for arm, base in pairs], level=level)
    assert back.point == pytest.approx(1 / there.point)
    if there.low is not None and there.high is not None:
        assert there.low <= there.point <= there.high
        assert bounds(back) == pytest.approx((1 / there.high, 1 / there.low), rel=1e-6)


@pytest.mark.parametrize("ratios", [[1.5], [1.5, 1.5], [1.5, 1.5 * (1 + 1e-12), 1.5]])
def test_no_interval_from_one_block_or_from_copies(ratios: list[float]) -> None:
    for estimate in (
        geometric_speedup(pairs_of(ratios)),
        bootstrap_speedup(pairs_of(ratios)),
        speedup_over_invocations([pairs_of([ratio]) for ratio in ratios]).estimate,
    ):
        assert estimate.point == pytest.approx(1.5)
        assert (estimate.low, estimate.high) == (None, None)
        assert "no interval" in estimate.method


def test_absurd_spread_stays_finite() -> None:
    low, high = bounds(geometric_speedup([(Pool(1, 1e-200), BASE), (Pool(1, 1e200), BASE)]))
    assert low >= 0
    assert math.isfinite(high)


@pytest.mark.parametrize("bad", [Pool(0, 1.0), Pool(1, 0.0), Pool(-1, 1.0), Pool(1, math.nan), Pool(math.inf, 1.0)])
def test_rates_that_are_not_positive_are_refused_with_their_place(bad: Pool) -> None:
    for pair in ((bad, BASE), (BASE, bad)):
        with pytest.raises(UsageError, match="pair 1 "):
            geometric_speedup([(BASE, BASE), pair])


def test_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no block"):
        geometric_speedup([])
    with pytest.raises(UsageError, match="no invocation"):
        speedup_over_invocations([])
    with pytest.raises(UsageError, match="not all zero"):
        pooled_rate([])
    with pytest.raises(UsageError, match="not all zero"):
        pooled_ratio([(0.0, 0.0)], unit="1", of="prompts")
    with pytest.raises(UsageError, match="level"):
        geometric_speedup(pairs_of([1.0, 2.0]), level=95)


def test_invocations_are_the_units() -> None:
    # Blocks agree within an invocation and differ between: only the three means count.
    groups = [[1.10, 1.11, 1.09], [1.20, 1.21, 1.19], [1.15, 1.16, 1.14, 1.15]]
    result = speedup_over_invocations([pairs_of(group) for group in groups])
    means = [scipy_stats.gmean(group) for group in groups]
    expected = scipy_stats.ttest_1samp(np.log(means), 0.0).confidence_interval(0.95)
    assert bounds(result.estimate) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert (result.lowest, result.highest) == pytest.approx((min(means), max(means)))
    pooled = bounds(geometric_speedup([pair for group in groups for pair in pairs_of(group)]))
    assert bounds(result.estimate)[1] - bounds(result.estimate)[0] > pooled[1] - pooled[0]


def test_bootstrap_is_seeded_and_knows_its_limits() -> None:
    ratios = [1.2, 1.25, 1.31, 1.22, 1.27, 1.18]
    assert bootstrap_speedup(pairs_of(ratios)) == bootstrap_speedup(pairs_of(ratios))
    low, high = bounds(bootstrap_speedup(pairs_of(ratios)))
    assert min(ratios) <= low < scipy_stats.gmean(ratios) < high <= max(ratios)
    few = bootstrap_speedup(pairs_of(ratios[:5]))
    assert few.low is None
    assert "too few blocks" in few.method


def test_pooled_rate_weighs_by_time() -> None:
    estimate = pooled_rate([Pool(100, 1000.0), Pool(100, 3000.0)])
    assert estimate.point == pytest.approx(50.0)  # not the mean of 100 and 33.3
    assert estimate.unit == "tok/s"
    assert estimate.low == 0.0  # two blocks this far apart say next to nothing


def test_ratio_of_equal_units_is_the_t_interval_of_their_mean() -> None:
    accepted = [30.0, 34.0, 28.0, 33.0, 31.0]
    estimate = pooled_ratio([(a, 50.0) for a in accepted], unit="1", of="prompts", ceiling=1.0)
    expected = scipy_stats.ttest_1samp(np.array(accepted) / 50, 0.0).confidence_interval(0.95)
    assert bounds(estimate) == pytest.approx((expected.low, expected.high))


def test_ratio_bounds_hold_and_empty_units_are_no_evidence() -> None:
    estimate = pooled_ratio([(50.0, 50.0), (30.0, 50.0), (0.0, 0.0)], unit="1", of="prompts", ceiling=1.0)
    assert estimate.n == 2
    assert estimate.high == 1.0
    assert estimate.low == 0.0
    same = pooled_ratio([(50.0, 50.0), (20.0, 20.0)], unit="1", of="prompts", ceiling=1.0)
    assert (same.point, same.low, same.high) == (1.0, None, None)


def log_ratios(rng: np.random.Generator, experiments: int, blocks: int) -> NDArray[np.float64]:
    """Log ratios, truth 0, as a run of four arms in Latin order sees them.

    A block's own speed (3 %, shared by its arms), a trend through each block (1 % a place, either way), and noise
    of 1 % with tails far heavier than the normal ones (Student t with 4 degrees of freedom).
    """
    arms = ("base", "a", "b", "c")
    cells = plan(arms, blocks, 1, "latin", 1)
    places = np.array(
        [[c.position for c in cells if c.block == b and c.arm_id == a] for b in range(blocks) for a in arms]
    )
    places = places.reshape(blocks, len(arms))
    shape = (experiments, blocks, len(arms))
    rates = 0.01 * rng.standard_t(4, shape) + 0.03 * rng.standard_normal((experiments, blocks, 1))
    rates += 0.01 * rng.standard_normal((experiments, blocks, 1)) * places
    return rates[..., 1] - rates[..., 0]


@pytest.mark.parametrize("blocks", [3, 4, 8, 20])
def test_t_intervals_cover(blocks: int) -> None:
    logs = log_ratios(np.random.default_rng(blocks), 10_000, blocks)
    _, low, high = t_interval(logs)
    covered = np.mean((low <= 0) & (high >= 0))
    assert 0.93 <= covered <= 0.97


def test_hierarchical_intervals_cover_where_pooled_blocks_do_not() -> None:
    rng = np.random.default_rng(1)
    experiments, invocations, blocks = 10_000, 5, 4
    logs = log_ratios(rng, experiments * invocations, blocks).reshape(experiments, invocations, blocks)
    logs += 0.03 * rng.standard_normal((experiments, invocations, 1))
    _, low, high = t_interval(logs.mean(axis=2))
    assert 0.93 <= np.mean((low <= 0) & (high >= 0)) <= 0.97
    _, low, high = t_interval(logs.reshape(experiments, -1))
    assert np.mean((low <= 0) & (high >= 0)) < 0.85


def test_bootstrap_intervals_cover_from_eight_blocks_on() -> None:
    logs = log_ratios(np.random.default_rng(2), 1000, 8)
    estimates = [bounds(bootstrap_speedup(pairs_of(list(np.exp(row))), resamples=999)) for row in logs]
    assert 0.92 <= np.mean([low <= 1 <= high for low, high in estimates]) <= 0.97


def test_pooled_rates_cover() -> None:
    rng = np.random.default_rng(3)
    # Time per token varies by 3 % from block to block; tokens stay, as prompts and limits are the same.
    times = 10 * (1 + 0.03 * rng.standard_normal((2000, 6)))
    estimates = [bounds(pooled_rate([Pool(1000, 1000 * ms) for ms in row])) for row in times]
    assert 0.93 <= np.mean([low <= 100 <= high for low, high in estimates]) <= 0.97


# --- one hump or two -------------------------------------------------------------------------------------------------


def dip_by_linear_programming(values: list[float]) -> float:
    """The definition itself: for every place of the mode, the nearest convex-then-concave function."""
    x, counts = np.unique(values, return_counts=True)
    after = np.cumsum(counts) / len(values)
    before = after - counts / len(values)
    return min(_distance(x, before, after, mode) for mode in range(len(x)))


def _distance(x: Floats, before: Floats, after: Floats, mode: int) -> float:
    """Least t such that a function within t of all steps is convex up to `mode`, may jump there, then concave."""
    k = len(x)
    left, right, t = list(range(mode + 1)), list(range(mode + 1, k + 2)), k + 1
    rows: list[tuple[dict[int, float], float]] = [({left[-1]: 1.0, right[0]: -1.0}, 0.0)]
    for half, places in ((left, range(mode + 1)), (right, range(mode, k))):
        for column, place in zip(half, places, strict=False):
            low = before[place] if place == mode and half is left else after[place]
            high = after[place] if place == mode and half is right else before[place]
            rows += [({column: -1.0, t: -1.0}, -float(low)), ({column: 1.0, t: -1.0}, float(high))]
        for index in range(1, len(places) - 1):
            before_, after_ = x[places[index]] - x[places[index - 1]], x[places[index + 1]] - x[places[index]]
            sign = 1 if half is left else -1
            bend = {half[index - 1]: -1 / before_, half[index]: 1 / before_ + 1 / after_, half[index + 1]: -1 / after_}
            rows.append(({column: sign * value for column, value in bend.items()}, 0.0))
        rows += [({half[index]: 1.0, half[index + 1]: -1.0}, 0.0) for index in range(len(places) - 1)]
    matrix = np.zeros((len(rows), k + 2))
    for row, (entries, _) in zip(matrix, rows, strict=True):
        for column, value in entries.items():
            row[column] += value
    cost = np.zeros(k + 2)
    cost[t] = 1
    solved = linprog(cost, A_ub=matrix, b_ub=[limit for _, limit in rows], bounds=[(0, 1)] * (k + 1) + [(0, None)])
    return float(solved.fun) if solved.success else math.inf


@pytest.mark.parametrize("seed", range(40))
def test_dip_is_what_its_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 14))
    values = [
        rng.random(n),
        rng.normal(size=n),
        np.concatenate([rng.normal(size=n // 2), rng.normal(5, 1, size=n - n // 2)]),
        rng.integers(0, 6, n).astype(np.float64),
    ][seed % 4]
    expected = dip_by_linear_programming(values.tolist())
    assert dip(values) == pytest.approx(max(expected, 0.5 / n), abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_dip_is_bounded_and_knows_no_unit(values: list[float]) -> None:
    x = np.array(values)
    value = dip(x)
    assert 0.5 / len(x) <= value <= max(0.25, 0.5 / len(x)) + 1e-6
    if np.ptp(x) > 1:
        assert dip(-3 * x) == pytest.approx(value, abs=1e-6)


def test_two_piles_are_as_far_from_one_hump_as_it_goes() -> None:
    assert dip(np.array([0.0] * 50 + [1.0] * 50)) == pytest.approx(0.25, abs=1e-6)
    assert dip(np.array([0.0] * 80 + [1.0] * 20)) == pytest.approx(0.1, abs=1e-6)
    assert dip(np.array([3.0])) == 0.5


@pytest.mark.parametrize("n", [20, 200])
def test_one_hump_seldom_passes_the_limit(n: int) -> None:
    """At most one in a hundred, for the worst shape there is; practically never for a round one."""
    rng = np.random.default_rng(n)
    limit = DIP_LIMIT / math.sqrt(n)
    flat = sum(dip(rng.random(n)) > limit for _ in range(400))
    round_ = sum(dip(rng.normal(size=n)) > limit for _ in range(100))
    skewed = sum(dip(rng.lognormal(size=n)) > limit for _ in range(100))
    assert (flat <= 7, round_, skewed) == (True, 0, 0)
