"""What a speedup is besides the mean over blocks, and how often the intervals are right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coverage_worlds import covered_by_prompts, covered_shares, stalled_runs
from gap_worlds import covered_with_gaps
from specmeter.analysis.gain import pooled_speedup, speedup_over_prompts
from specmeter.analysis.stalls import excesses, limit
from specmeter.numbers.stats import MIN_PROMPTS, Pool, bounded_ratio, over_prompts

# --- over prompts ----------------------------------------------------------------------------------------------------


def test_the_interval_over_prompts_holds_other_prompts_and_that_over_blocks_does_not() -> None:
    blocks, prompts = covered_by_prompts(np.random.default_rng(3), 400, prompts=4, blocks=4)
    assert blocks < 0.3
    assert prompts > 0.92  # of 400 intervals of 95 %, fewer than 369 hold once in 500 times


@pytest.mark.parametrize(("prompts", "blocks"), [(4, 3), (8, 4), (25, 8)])
def test_intervals_over_prompts_hold_as_often_as_they_say(prompts: int, blocks: int) -> None:
    assert covered_by_prompts(np.random.default_rng(4), 400, prompts, blocks)[1] > 0.92


def test_blocks_that_differ_by_more_than_prompts_count_as_well() -> None:
    """Otherwise alike prompts would promise more about other prompts than is known about these."""
    draw = np.random.default_rng(5)
    logs = 0.001 * draw.standard_normal((1, 6)) + 0.1 * draw.standard_normal((4, 1))
    found = speedup_over_prompts(logs)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.high / found.low > 1.2


def test_no_interval_over_few_prompts_one_block_or_gaps() -> None:
    logs = np.log(np.array([[1.1, 1.2, 1.4, 1.3], [1.2, 1.2, 1.5, 1.3]]))
    assert speedup_over_prompts(logs) is not None
    assert speedup_over_prompts(logs[:, : MIN_PROMPTS - 1]) is None
    assert speedup_over_prompts(logs[:1]) is None
    assert speedup_over_prompts(np.where(logs == logs[0, 0], np.nan, logs)) is None
    assert speedup_over_prompts(np.full((3, 4), 0.2)) is None


def test_several_arms_widen_it() -> None:
    logs = np.log(np.array([[1.1, 1.2, 1.4, 1.3], [1.2, 1.2, 1.5, 1.3]]))
    one, five = speedup_over_prompts(logs), speedup_over_prompts(logs, among=5)
    assert one is not None
    assert five is not None
    assert one.low is not None
    assert five.low is not None
    assert (five.low < one.low, five.point) == (True, one.point)


# --- by total time ---------------------------------------------------------------------------------------------------


def test_pooled_is_all_tokens_over_all_time() -> None:
    units = [(Pool(100, 500), Pool(100, 1000)), (Pool(300, 4500), Pool(300, 4000)), (Pool(50, 100), Pool(50, 210))]
    found = pooled_speedup(units)
    assert found.point == pytest.approx((450 / 5100) / (450 / 5210))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.point < found.high
    assert pooled_speedup(units[:1]).low is None
    assert pooled_speedup([units[0]] * 3).low is None


def test_pooled_intervals_hold_as_often_as_they_say() -> None:
    draw, hits, runs = np.random.default_rng(6), 0, 400
    for _ in range(runs):
        ms = 1000 * np.exp(0.03 * draw.standard_normal(8)[:, None] + 0.01 * draw.standard_normal((8, 2)))
        found = pooled_speedup([(Pool(100, arm / 1.5), Pool(100, base)) for arm, base in ms.tolist()])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.5 <= found.high
    assert hits > 0.92 * runs


# --- shares ----------------------------------------------------------------------------------------------------------


def test_a_share_cannot_leave_its_bounds() -> None:
    """71.3 [0.0, 100.0]: two prompts, cut at the ends."""
    found = bounded_ratio([(95, 100), (48, 100)], unit="1", of="prompts", ceiling=1.0)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.point < found.high < 1
    assert (found.n, found.of) == (2, "prompts")


def test_a_yield_lies_between_one_and_gamma_and_one() -> None:
    found = bounded_ratio([(100, 21), (100, 40)], unit="tokens/forward", of="prompts", floor=1.0, ceiling=5.0)
    assert found.low is not None
    assert found.high is not None
    assert 1 < found.low < found.point < found.high < 5
    unknown = bounded_ratio([(100, 21), (100, 40)], unit="tokens/forward", of="prompts", floor=1.0)
    assert unknown.low is not None
    assert unknown.high is not None
    assert 1 < unknown.low < unknown.high


def test_shares_and_speedups_have_intervals_from_as_many_prompts() -> None:
    parts = [(95.0, 100.0), (48.0, 100.0), (70.0, 100.0), (60.0, 100.0)]
    enough, few = over_prompts(parts, unit="1", ceiling=1.0), over_prompts(parts[1:], unit="1", ceiling=1.0)
    assert enough == bounded_ratio(parts, unit="1", of="prompts", ceiling=1.0)
    assert len(parts) == MIN_PROMPTS
    assert (few.point, few.low, few.high, few.n) == (178 / 300, None, None, 3)
    assert "too few" in few.method


@pytest.mark.parametrize("parts", [[(5, 10)], [(5, 10), (10, 20)], [(10, 10), (20, 20)], [(0, 10), (0, 20)]])
def test_no_interval_where_nothing_varies(parts: list[tuple[float, float]]) -> None:
    found = bounded_ratio(parts, unit="1", of="prompts", ceiling=1.0)
    assert (found.low, found.high) == (None, None)


def test_what_lies_beyond_its_bounds_has_no_interval() -> None:
    found = bounded_ratio([(100, 12), (100, 9)], unit="tokens/forward", of="prompts", floor=1.0, ceiling=5.0)
    assert (found.low, found.high) == (None, None)
    assert "not between 1 and 5" in found.method


@pytest.mark.parametrize(("mean", "sd", "prompts"), [(0.7, 0.15, 4), (0.95, 0.07, 4), (0.9, 0.1, 3), (0.5, 0.3, 8)])
def test_intervals_of_shares_hold(mean: float, sd: float, prompts: int) -> None:
    ours, cut = covered_shares(np.random.default_rng(9), 500, prompts, mean, sd)
    assert ours > 0.9
    assert ours > cut - 0.02


# --- stalls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompts", "blocks", "least"), [(4, 3, 0.85), (4, 4, 0.85), (8, 6, 0.95), (2, 9, 0.95)])
def test_stalls_are_seen_and_clean_arms_seldom_suspected(prompts: int, blocks: int, least: float) -> None:
    covered, seen, false = stalled_runs(np.random.default_rng(2), 300, prompts, blocks, share=0.1)
    assert covered < 0.94, "the interval does not know"
    assert seen >= least
    assert false <= 0.01


def test_a_slow_block_is_not_a_stall_and_a_stall_in_it_is() -> None:
    times = np.log(np.full((4, 3), 10.0))
    times[:, 1] += math.log(2)
    assert not (excesses(times) > limit(excesses(times))).any()
    times[2, 1] += math.log(2)
    assert np.argwhere(excesses(times) > limit(excesses(times))).tolist() == [[2, 1]]


@pytest.mark.parametrize("prompts", [1, 2, 3])
def test_a_slow_block_of_few_prompts_is_not_a_stall(prompts: int) -> None:
    """With one or two prompts a whole slow block was reported as stalled requests."""
    draw = np.random.default_rng(7)
    for _ in range(50):
        times = np.log(8 + 4 * draw.random((prompts, 1))) + 0.01 * draw.standard_normal((prompts, 4))
        times[:, 2] += math.log(2)
        assert not (np.nan_to_num(excesses(times)) > limit(excesses(times))).any()


def test_an_arm_whose_times_vary_anyway_does_not_stall() -> None:
    times = np.random.default_rng(1).normal(2.0, 0.3, (6, 5))
    assert not (excesses(times) > limit(excesses(times))).any()


def test_nothing_repeated_nothing_seen() -> None:
    excess = excesses(np.zeros((4, 1)))
    assert not np.isfinite(excess).any()
    assert limit(excess) == math.inf


# --- what was completed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "prompts"), [(8, 8), (4, 4)])
def test_no_interval_where_nearly_all_would_be_completed(blocks: int, prompts: int) -> None:
    """One block, then a single prompt: held in 59 % of runs and advised in 22 % as long as gaps passed for measured."""
    completed = np.zeros((blocks, prompts), dtype=np.bool_)
    completed[0] = completed[:, 0] = True
    assert covered_with_gaps(1, 20, completed)[1:] == (0.0, 0.0)


@pytest.mark.parametrize(("blocks", "prompts", "whole", "then"), [(8, 8, 1, 4), (4, 8, 1, 4), (4, 4, 2, 1)])
def test_intervals_know_the_error_of_what_was_completed(blocks: int, prompts: int, whole: int, then: int) -> None:
    completed = np.ones((blocks, prompts), dtype=np.bool_)
    completed[whole:, then:] = False
    held, given, advised = covered_with_gaps(2, 150, completed)
    assert given == 1
    assert held >= 0.93
    assert advised <= 0.03
