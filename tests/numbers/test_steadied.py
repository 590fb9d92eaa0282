"""Requests that were held up: what a comparison of arms makes of them, and what it leaves as it was."""

from __future__ import annotations

import numpy as np

from specmeter.numbers.stalls import FAR, steadied
from specmeter.numbers.stats import speedup_over_halves

ARMS, BLOCKS, PROMPTS = 3, 8, 8


def world(seed: int, noise: float = 0.05, stalls: float = 0.0) -> np.ndarray:
    """Logs of times, arms x blocks x prompts: all arms alike, prompts and blocks differ."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 0.5, (1, 1, PROMPTS)) + rng.normal(0, 0.1, (1, BLOCKS, 1))
    logs = logs + rng.normal(0, noise, (ARMS, BLOCKS, PROMPTS))
    return logs + np.log(1 + 2.0 * (rng.random(logs.shape) < stalls))


def between(logs: np.ndarray) -> np.ndarray:
    """Log ratio of the first two arms, block by block, all prompts together."""
    total = np.log(np.exp(logs).sum(axis=2))
    return total[0] - total[1]


def test_what_is_not_held_up_stays_as_it_is() -> None:
    logs = world(1)
    assert np.mean(steadied(logs) == logs) > 0.97  # normal noise beyond the limit
    assert np.abs(steadied(logs) - logs).max() < 0.1


def test_a_request_that_was_held_up_counts_for_little_more_than_the_others() -> None:
    calm = world(2)
    disturbed = calm.copy()
    disturbed[1, 3, 5] += np.log(10)
    found = steadied(disturbed)
    assert 0 < found[1, 3, 5] - calm[1, 3, 5] < 1.5 * FAR * 0.05
    assert np.abs(np.delete(found - steadied(calm), 3, axis=1)).max() < 0.05


def test_a_slow_block_and_a_slow_prompt_and_a_slow_arm_stay() -> None:
    logs = world(3)
    for place in (np.s_[:, 2], np.s_[:, :, 4], np.s_[1]):
        slow = logs.copy()
        slow[place] += 1.0
        assert np.allclose(steadied(slow) - steadied(logs), slow - logs, atol=0.05)


def test_an_arm_is_judged_by_its_own_noise() -> None:
    logs = world(4)
    rng = np.random.default_rng(4)
    logs[2] += rng.normal(0, 0.4, logs[2].shape)
    assert np.mean(steadied(logs)[2] == logs[2]) > 0.95


def test_what_is_missing_stays_missing_and_two_blocks_say_nothing() -> None:
    logs = world(5, stalls=0.05)
    logs[2, 3:] = np.nan
    found = steadied(logs)
    assert (np.isnan(found) == np.isnan(logs)).all()
    assert steadied(logs[:, :2]) is not None
    assert np.array_equal(steadied(logs[:, :2]), logs[:, :2], equal_nan=True)
    assert np.array_equal(steadied(np.zeros((2, 4, 3))), np.zeros((2, 4, 3)))


def test_stalls_no_longer_decide_who_is_ahead_and_intervals_still_hold() -> None:
    raw, calmed, covered, wide = [], [], 0, 0
    for seed in range(200):
        logs = world(seed, stalls=0.03)
        raw.append(between(logs).mean())
        ratios = between(steadied(logs))
        calmed.append(ratios.mean())
        found = speedup_over_halves([ratios[:4], ratios[4:]])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1 <= found.high
        wide += found.high / found.low > 1.2
    assert np.std(calmed) < 0.5 * np.std(raw)
    assert covered >= 183  # of 200 at 95 %, less three standard deviations
    assert wide < 20


def test_halves_count_alike_however_many_blocks_they_have() -> None:
    found = speedup_over_halves([np.log([1.0, 1.1]), np.log([1.4, 1.5, 1.4, 1.5, 1.4, 1.5])])
    assert found is not None
    assert np.isclose(np.log(found.point), (np.log(1.1) / 2 + np.log(1.4 * 1.5) / 2) / 2)
    assert found.n == 8
    assert speedup_over_halves([np.log([1.0, 1.1]), np.log([1.4])]) is None
    assert speedup_over_halves([np.zeros(4)]) is None
    assert speedup_over_halves([]) is None
