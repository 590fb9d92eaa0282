"""Estimates: agreement with scipy, honest silence on thin data, and intervals that cover what they claim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as scipy_stats
from scipy.optimize import linprog

from specmeter.errors import UsageError
from specmeter.experiments.schedule import plan
from specmeter.numbers.dip import DIP_LIMIT, dip
from specmeter.numbers.margin import compare, units_for
from specmeter.numbers.stats import (
    Pair,
    Pool,
    at_level,
    bootstrap_speedup,
    geometric_speedup,
    median_estimate,
    pooled_rate,
    pooled_ratio,
    simultaneous,
    speedup_over_invocations,
    speedups_by_group,
    t_critical,
    t_interval,
)
from specmeter.record import Estimate

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


def test_speedup_is_the_paired_t_test_on_logarithms() -> None:
    rng = np.random.default_rng(7)
    arm, base = rng.uniform(50, 60, 6), rng.uniform(40, 50, 6)
    pairs = [(Pool(100, 1e5 / a), Pool(100, 1e5 / b)) for a, b in zip(arm, base, strict=True)]
    for level in (0.9, 0.95, 0.99):
        expected = scipy_stats.ttest_rel(np.log(arm), np.log(base)).confidence_interval(level)
        assert np.log(bounds(geometric_speedup(pairs, level=level))) == pytest.approx((expected.low, expected.high))
        logs = np.log(arm / base)
        low, high = scipy_stats.t.interval(level, len(logs) - 1, logs.mean(), scipy_stats.sem(logs))
        assert np.log(bounds(geometric_speedup(pairs, level=level))) == pytest.approx((low, high))


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
    with pytest.raises(UsageError, match="at least two units"):
        t_interval(np.array([[1.0], [2.0]]))
    assert speedups_by_group(np.array([]), np.array([], dtype=np.int64)) == {}
    with pytest.raises(UsageError, match="not positive"):
        speedups_by_group(np.log([1.0, math.inf]), np.array([0, 0]))


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
    low, high = bounds(estimate)
    assert 0 < low < 5 < 500 < high  # two blocks this far apart say next to nothing, but a rate is never 0
    assert low * high == pytest.approx(estimate.point**2)


def test_ratio_of_equal_units_is_the_t_interval_of_their_mean() -> None:
    accepted = [30.0, 34.0, 28.0, 33.0, 31.0]
    estimate = pooled_ratio([(a, 50.0) for a in accepted], unit="1", of="prompts")
    expected = scipy_stats.ttest_1samp(np.array(accepted) / 50, 0.0).confidence_interval(0.95)
    assert bounds(estimate) == pytest.approx((expected.low, expected.high))


def test_ratio_bounds_hold_and_empty_units_are_no_evidence() -> None:
    estimate = pooled_ratio([(50.0, 50.0), (30.0, 50.0), (0.0, 0.0)], unit="ms/token", of="blocks")
    assert estimate.n == 2
    assert estimate.low == 0.0
    same = pooled_ratio([(50.0, 50.0), (20.0, 20.0)], unit="ms/token", of="blocks")
    assert (same.point, same.low, same.high) == (1.0, None, None)


# --- what is asked of an interval ------------------------------------------------------------------------------------

FIVE = [1.21, 1.27, 1.18, 1.25, 1.30]


def test_groups_are_speedups_one_by_one() -> None:
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 40, 200) * 3
    logs = rng.normal(0, 0.1, 200)
    logs[groups == 6] = 0.25  # copies
    found = speedups_by_group(logs, groups)
    assert list(found) == sorted(set(groups.tolist()))
    for group, estimate in found.items():
        one = geometric_speedup(pairs_of(np.exp(logs[groups == group]).tolist()))
        assert (estimate.n, estimate.method) == (one.n, one.method)
        assert estimate.point == pytest.approx(one.point)
        if one.low is None:
            assert (estimate.low, estimate.high) == (None, None)
        else:
            assert bounds(estimate) == pytest.approx(bounds(one))


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=9, unique=True), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_another_level_is_what_it_would_have_been(ratios: list[float], level: float) -> None:
    pairs = pairs_of(ratios)
    estimate, direct = at_level(geometric_speedup(pairs), level), geometric_speedup(pairs, level=level)
    assert (estimate.point, estimate.level, estimate.method) == (direct.point, direct.level, direct.method)
    if direct.low is not None and direct.high is not None and direct.low > 0 and direct.high < 1e200:
        assert np.log(bounds(estimate)) == pytest.approx(np.log(bounds(direct)), rel=1e-6, abs=1e-12)


def test_simultaneous_intervals_share_the_error() -> None:
    plain = geometric_speedup(pairs_of(FIVE))
    assert simultaneous(plain, 1) == plain
    both = simultaneous(plain, 2)
    assert bounds(both) == pytest.approx(bounds(geometric_speedup(pairs_of(FIVE), level=0.975)))
    assert (both.point, both.level, both.n) == (plain.point, 0.95, 5)
    assert both.method == "geometric mean of 5 block ratios; Student t over blocks; together with 1 more (Bonferroni)"
    assert bounds(simultaneous(plain, 3))[0] < bounds(both)[0] < bounds(plain)[0]


@pytest.mark.parametrize(("blocks", "among", "cost"), [(4, 2, 1.31), (3, 2, 1.44), (8, 5, 1.48), (20, 10, 1.52)])
def test_what_the_choice_costs(blocks: int, among: int, cost: float) -> None:
    """The factors in docs/explanation/statistics.md."""
    plain = geometric_speedup(pairs_of(np.exp(np.linspace(0, 0.1, blocks)).tolist()))
    wide = np.diff(np.log(bounds(simultaneous(plain, among)))) / np.diff(np.log(bounds(plain)))
    assert float(wide[0]) == pytest.approx(cost, abs=0.005)


def around(point: float, half_width: float) -> Estimate:
    """A speedup of eight blocks whose 95 % interval is from point / (1 + half_width) to point * (1 + half_width)."""
    shape = np.array([-1.0, 1.0] * 4)
    spread = math.log1p(half_width) * math.sqrt(8) / t_critical(7, 0.95) / shape.std(ddof=1)
    return geometric_speedup(pairs_of((point * np.exp(spread * shape)).tolist()))


@pytest.mark.parametrize(
    ("point", "half_width", "conclusion"),
    [
        (1.000, 0.01, "equivalent"),
        (1.010, 0.005, "equivalent"),  # faster too, by less than anybody minds
        (0.990, 0.005, "equivalent"),
        (1.020, 0.01, "faster"),
        (1.5, 0.2, "faster"),
        (0.97, 0.01, "slower"),
        (1.010, 0.025, "not worse"),
        (1.0, 0.1, "undecided"),
        (0.985, 0.02, "undecided"),
    ],
)
def test_conclusions(point: float, half_width: float, conclusion: str) -> None:
    found = compare(around(point, half_width))
    assert found.conclusion == conclusion
    mirrored = {"faster": "slower", "slower": "faster"}
    if conclusion != "not worse":
        other = compare(around(1 / point, half_width)).conclusion
        assert other == mirrored.get(conclusion, conclusion) or {other, conclusion} == {"not worse", "undecided"}


def test_equivalence_is_two_one_sided_tests() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        logs = rng.normal(0.005, rng.uniform(0.005, 0.03), 6)
        margin = math.log(1.02)
        tests: list[Any] = [
            scipy_stats.ttest_1samp(logs, -margin, alternative="greater"),
            scipy_stats.ttest_1samp(logs, margin, alternative="less"),
            scipy_stats.ttest_1samp(logs, 0),
        ]
        not_slower, not_faster, differs = (bool(test.pvalue < 0.05) for test in tests)
        found = compare(geometric_speedup(pairs_of(np.exp(logs).tolist())))
        assert (found.conclusion == "equivalent") == (not_slower and not_faster)
        if not (not_slower and not_faster):
            assert (found.conclusion in ("faster", "slower")) == differs
            assert (found.conclusion == "not worse") == (not_slower and not differs)
        assert (found.difference.level, found.equivalence.level) == (0.95, pytest.approx(0.9))


def test_a_choice_among_arms_needs_more_evidence() -> None:
    found = [compare(around(1.03, 0.02), among=among).conclusion for among in (1, 2, 20)]
    assert found == ["faster", "faster", "not worse"]
    assert compare(around(1.0, 0.019), among=20).conclusion == "undecided"


@pytest.mark.parametrize("ratios", [[1.5], [1.5, 1.5, 1.5]])
def test_nothing_follows_from_no_interval(ratios: list[float]) -> None:
    estimate = geometric_speedup(pairs_of(ratios))
    assert (at_level(estimate, 0.9).low, simultaneous(estimate, 3).high) == (None, None)
    assert compare(estimate).conclusion == "undecided"
    assert units_for(estimate) is None


def test_advice_is_the_smallest_number_that_is_enough() -> None:
    estimate = around(1.9, 0.06)
    for half_width, among in ((0.02, 1), (0.05, 1), (0.02, 4), (0.012, 1)):
        advised = units_for(estimate, half_width, among=among)
        assert advised is not None
        spread = math.log1p(0.06) * math.sqrt(8) / t_critical(7, 0.95)
        level = 1 - 0.05 / among
        half = [math.expm1(t_critical(n - 1, level) * spread / math.sqrt(n)) for n in (advised - 1, advised)]
        assert half[1] <= half_width < half[0]
    assert units_for(estimate, 0.06) == 8  # reached: what is there
    assert units_for(estimate, 0.5) == 8  # never less than what is there
    assert units_for(estimate, 1e-6) is None


def test_nonsense_is_refused() -> None:
    estimate = geometric_speedup(pairs_of(FIVE))
    other = bootstrap_speedup(pairs_of([1.2, 1.25, 1.31, 1.22, 1.27, 1.18]))
    rate = pooled_rate([Pool(1000, 10_000.0), Pool(1000, 11_000.0)])
    refused = [
        lambda: simultaneous(estimate, 0),
        lambda: units_for(estimate, among=0),
        lambda: units_for(estimate, 0.0),
        lambda: units_for(estimate, math.nan),
        lambda: compare(estimate, margin=0.0),
        lambda: compare(estimate, margin=math.inf),
        lambda: compare(geometric_speedup(pairs_of(FIVE), level=0.5)),
        lambda: at_level(estimate, 1.0),
        lambda: at_level(other, 0.9),
        lambda: compare(rate),
    ]
    for attempt in refused:
        with pytest.raises(UsageError):
            attempt()


def test_bounds_beyond_all_numbers_are_no_ground_for_more() -> None:
    absurd = geometric_speedup([(Pool(1, 1e-200), BASE), (Pool(1, 1e200), BASE)])
    assert units_for(absurd) is None
    assert compare(absurd).conclusion == "undecided"


# --- simulated runs: 10,000 each -------------------------------------------------------------------------------------


def log_ratios(
    rng: np.random.Generator,
    experiments: int,
    blocks: int,
    *,
    tails: float = 4,
    drift: float = 0.0,
    compared: int = 3,
) -> Floats:
    """Log ratios of `compared` arms to one baseline, truth 0, as runs in Latin order see them: (arm, run, block).

    A block's own speed (3 %, shared by its arms), a trend through each block (1 % a place, either way), noise of 1 %
    with tails far heavier than the normal ones (Student t with `tails` degrees of freedom), and a linear `drift` from
    the first cell of the run to its last.
    """
    arms = ("base", *(f"arm-{index}" for index in range(compared)))
    cells = plan(arms, blocks, 1, "latin", 1)
    places = np.empty((blocks, len(arms)))
    for cell in cells:
        places[cell.block, arms.index(cell.arm_id)] = cell.position
    when = places + len(arms) * np.arange(blocks)[:, None]
    shape = (experiments, blocks, len(arms))
    rates = 0.01 * rng.standard_t(tails, shape) + 0.03 * rng.standard_normal((experiments, blocks, 1))
    rates += 0.01 * rng.standard_normal((experiments, blocks, 1)) * places + drift * when / when.max()
    return np.moveaxis(rates[..., 1:] - rates[..., :1], 2, 0)


def estimates_of(logs: Floats) -> list[Estimate]:
    """The speedup of every run, from log ratios of shape (run, block)."""
    return list(speedups_by_group(logs.ravel(), np.repeat(np.arange(len(logs)), logs.shape[1])).values())


@pytest.mark.parametrize(
    ("tails", "drift", "blocks"),
    [*((4, 0.0, n) for n in (3, 4, 8, 20)), *((3, 0.0, n) for n in (3, 8, 20)), *((3, 0.05, n) for n in (4, 8, 20))],
)
def test_t_intervals_cover(tails: float, drift: float, blocks: int) -> None:
    logs = log_ratios(np.random.default_rng(blocks), 10_000, blocks, tails=tails, drift=drift)[0]
    _, low, high = t_interval(logs)
    covered = np.mean((low <= 0) & (high >= 0))
    assert 0.93 <= covered <= 0.97


def test_a_strong_drift_in_balanced_order_makes_intervals_wide_and_not_wrong() -> None:
    logs = log_ratios(np.random.default_rng(1), 10_000, 8, drift=0.2)[0]
    assert abs(logs.mean()) < 0.001
    _, low, high = t_interval(logs)
    assert np.mean((low <= 0) & (high >= 0)) >= 0.95


@pytest.mark.parametrize(("blocks", "compared"), [(3, 2), (4, 2), (4, 5), (8, 10), (20, 5)])
def test_the_best_of_several_arms_is_not_taken_for_a_gain(blocks: int, compared: int) -> None:
    """Family-wise error: all arms equal the baseline, and any interval that misses is an error."""
    logs = log_ratios(np.random.default_rng(blocks), 10_000, blocks, tails=3, compared=compared)
    _, low, high = t_interval(logs, 1 - 0.05 / compared)
    assert np.mean(((low > 0) | (high < 0)).any(axis=0)) <= 0.05 + 0.005
    assert np.mean((low > 0).any(axis=0)) <= 0.025 + 0.004
    _, low, high = t_interval(logs)
    assert np.mean(((low > 0) | (high < 0)).any(axis=0)) > 0.06  # what goes wrong without


@pytest.mark.parametrize("blocks", [4, 8, 20])
def test_equivalence_keeps_its_level(blocks: int) -> None:
    """An arm that is exactly as much faster or slower as is minded is seldom called equivalent, or not worse."""
    logs = log_ratios(np.random.default_rng(blocks), 10_000, blocks, tails=3)[0]
    for truth in (1.02, 1 / 1.02):
        words = [compare(estimate).conclusion for estimate in estimates_of(logs + math.log(truth))]
        assert words.count("equivalent") / len(words) <= 0.05 + 0.005
    assert sum(word in ("equivalent", "not worse", "faster") for word in words) / len(words) <= 0.05 + 0.005
    words = [compare(estimate).conclusion for estimate in estimates_of(logs)]
    assert (words.count("faster") + words.count("slower")) / len(words) <= 0.05 + 0.005


def test_equivalence_of_the_best_of_several_arms_keeps_its_level() -> None:
    logs = log_ratios(np.random.default_rng(6), 10_000, 8, tails=3, compared=4)
    _, low, high = t_interval(logs + math.log(1.02), 1 - 0.1 / 4)
    assert np.mean((high < math.log(1.02)).any(axis=0)) <= 0.05 + 0.005
    estimate = estimates_of(logs[0])[0]
    assert np.log(bounds(compare(estimate, among=4).equivalence)) + math.log(1.02) == pytest.approx(
        (low[0, 0], high[0, 0])
    )


def test_hierarchical_intervals_cover_where_pooled_blocks_do_not() -> None:
    rng = np.random.default_rng(1)
    experiments, invocations, blocks = 10_000, 5, 4
    logs = log_ratios(rng, experiments * invocations, blocks)[0].reshape(experiments, invocations, blocks)
    logs += 0.03 * rng.standard_normal((experiments, invocations, 1))
    _, low, high = t_interval(logs.mean(axis=2))
    assert 0.93 <= np.mean((low <= 0) & (high >= 0)) <= 0.97
    _, low, high = t_interval(logs.reshape(experiments, -1))
    assert np.mean((low <= 0) & (high >= 0)) < 0.85


def test_bootstrap_intervals_cover_from_eight_blocks_on() -> None:
    logs = log_ratios(np.random.default_rng(2), 1000, 8)[0]
    estimates = [bounds(bootstrap_speedup(pairs_of(list(np.exp(row))), resamples=999)) for row in logs]
    assert 0.92 <= np.mean([low <= 1 <= high for low, high in estimates]) <= 0.97


@pytest.mark.parametrize(("spread", "blocks"), [(0.03, 6), (0.3, 3)])
def test_pooled_rates_cover(spread: float, blocks: int) -> None:
    rng = np.random.default_rng(3)
    # Time per token varies from block to block; tokens stay, as prompts and limits are the same.
    times = 10 * np.exp(spread * rng.standard_normal((2000, blocks)))
    true = 100 / math.exp(spread**2 / 2)
    estimates = [bounds(pooled_rate([Pool(1000, 1000 * ms) for ms in row])) for row in times]
    assert 0.93 <= np.mean([low <= true <= high for low, high in estimates]) <= 0.97


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
@example([0.0, 0.0, 0.0, 222410.0, 483033.0, 483033.0, 483033.0])
@example([0.0, 0.0, 86690.0, 147757.0, 147757.0])
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


@pytest.mark.parametrize(("n", "ranks"), [(6, (1, 6)), (9, (2, 8)), (12, (3, 10)), (30, (10, 21))])
def test_the_interval_of_a_median_holds_whatever_the_distribution(n: int, ranks: tuple[int, int]) -> None:
    """Ranks as in Conover's table for 95 %; coverage by simulation of a skewed distribution with outliers."""
    values = list(range(1, n + 1))
    estimate = median_estimate([float(value) for value in reversed(values)], unit="ms", of="rounds")
    assert (estimate.low, estimate.high) == ranks
    assert estimate.point == (n + 1) / 2
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(600):
        drawn = median_estimate(list(rng.lognormal(sigma=2.0, size=n)), unit="ms", of="rounds")
        assert drawn.low is not None
        assert drawn.high is not None
        hits += drawn.low <= 1.0 <= drawn.high
    assert hits / 600 > 0.93


def test_few_values_give_a_median_without_interval() -> None:
    estimate = median_estimate([3.0, 1.0, 2.0], unit="ms", of="rounds")
    assert (estimate.point, estimate.low, estimate.high, estimate.n) == (2.0, None, None, 3)
    assert "too few" in estimate.method
    for bad in ([], [1.0, math.nan]):
        with pytest.raises(UsageError, match="median over rounds"):
            median_estimate(bad, unit="ms", of="rounds")


def test_a_ratio_whose_numerators_may_be_negative_says_so() -> None:
    parts = [(-2.0, 10.0), (1.0, 10.0), (-0.5, 10.0)]
    with pytest.raises(UsageError, match="not negative"):
        pooled_ratio(parts, unit="ms/token", of="blocks")
    found = pooled_ratio(parts, unit="ms/token", of="blocks", floor=-1e3)
    assert found.point == pytest.approx(-0.05)
    assert found.low is not None
    assert found.low < -0.05
