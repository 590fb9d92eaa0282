"""Speeds and their spread: means within prompts, drift within blocks, and two levels told from one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from factory import BASE, run_data, with_requests
from numpy.typing import NDArray

from specmeter.validity.checks.speeds import (
    MIN_REPEATS,
    BlockEffect,
    Drift,
    Levels,
    Speeds,
    drift,
    repeats,
    speeds_of,
    two_levels,
    variation,
)

Floats = NDArray[np.float64]


def speeds(logs: Floats) -> Speeds:
    prompts, blocks = logs.shape
    return Speeds(logs, tuple(f"p{i}" for i in range(prompts)), tuple((0, block) for block in range(blocks)))


def test_rates_are_those_of_the_requests() -> None:
    data = run_data()
    found = speeds_of(data.by_arm[BASE])
    assert found.logs.shape == (3, 4)
    assert found.cells == ((0, 0), (0, 1), (0, 2), (0, 3))
    row = data.by_arm[BASE][0].row
    rate = 1000 * ((row.predicted_n or 0) - 1) / (row.predicted_ms or 0)
    assert found.logs[found.prompts.index(row.prompt_id), row.block] == pytest.approx(math.log(rate))


def test_what_decoded_nothing_has_no_rate() -> None:
    data = with_requests(run_data(), lambda row: row.arm_id == BASE and row.block == 1, predicted_n=1)
    assert speeds_of(data.by_arm[BASE]).cells == ((0, 0), (0, 2), (0, 3))
    nothing = speeds_of(with_requests(data, BASE, predicted_ms=0.0).by_arm[BASE])
    assert nothing.by_block() == {}
    assert variation(nothing) is None
    assert len(repeats(nothing)) == 0


def test_variation_between_and_within_blocks() -> None:
    rng = np.random.default_rng(1)
    logs = rng.normal(0, 1, (200, 1)) + rng.normal(0, 0.05, (1, 30)) + rng.normal(0, 0.02, (200, 30))
    found = variation(speeds(logs))
    assert found is not None
    assert found.between == pytest.approx(0.05, rel=0.3)
    assert found.within == pytest.approx(0.02, rel=0.05)
    assert found.of_a_block == found.between


def test_a_missing_request_changes_little() -> None:
    rng = np.random.default_rng(2)
    logs = rng.normal(0, 1, (20, 1)) + rng.normal(0, 0.01, (20, 6))
    whole = variation(speeds(logs))
    logs[3, 2] = np.nan
    holed = variation(speeds(logs))
    assert whole is not None
    assert holed is not None
    assert holed.within == pytest.approx(whole.within, rel=0.1)


def test_one_block_is_judged_by_its_prompts() -> None:
    found = variation(speeds(np.log([[40.0], [44.0], [36.0], [40.0]])))
    assert found is not None
    assert found.between == 0
    assert found.of_a_block == pytest.approx(found.within / 2)
    assert variation(speeds(np.array([[1.0]]))) is None


# --- drift -----------------------------------------------------------------------------------------------------------


def points(order: Callable[[int], list[int]], per_s: float, noise: float = 0.002) -> list[BlockEffect]:
    rng = np.random.default_rng(3)
    return [
        BlockEffect(
            arm, block, 10_000.0 * block + 60 * place, float(per_s * 60 * place + 0.1 * block + rng.normal(0, noise))
        )
        for block in range(6)
        for place, arm in enumerate(order(block))
    ]


def test_drift_is_found_where_arms_take_turns() -> None:
    found = drift(points(lambda block: [0, 1, 2, 3] if block % 3 else [3, 1, 0, 2], 0.001))
    assert found is not None
    assert found.per_s == pytest.approx(0.001, rel=0.1)
    assert found.ratio > 20


def test_no_drift_without_one() -> None:
    found = drift(points(lambda block: [0, 1, 2, 3] if block % 3 else [3, 1, 0, 2], 0.0))
    assert found is not None
    assert found.ratio < 4


def test_drift_cannot_be_told_from_arms_that_never_take_turns() -> None:
    assert drift(points(lambda _: [0, 1, 2, 3], 0.001)) is None
    assert drift(points(lambda block: [0, 1] if block % 2 else [1, 0], 0.001)[:8]) is None
    assert drift([]) is None


def test_a_perfect_drift() -> None:
    found = drift(points(lambda block: [0, 1, 2] if block % 2 else [2, 1, 0], 0.001, noise=0.0))
    assert isinstance(found, Drift)
    assert found.ratio > 1e6


# --- two levels ------------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(0, 0.03, shape),
    "uniform": lambda rng, shape: rng.uniform(-0.15, 0.15, shape),
    "lognormal": lambda rng, shape: -np.log1p(rng.lognormal(-3, 1, shape)),
    "exponential": lambda rng, shape: -rng.exponential(0.06, shape),
    "heavy-tailed": lambda rng, shape: 0.03 * rng.standard_t(2, shape),
    "seldom-disturbed": lambda rng, shape: np.where(
        rng.random(shape) < 0.7, rng.normal(0, 0.004, shape), -rng.random(shape) / 2
    ),
    "drifting": lambda rng, shape: (
        rng.normal(0, 0.01, shape)
        + 0.04 * rng.permuted(np.tile(np.linspace(0, 1, shape[0])[:, None], shape[1]), axis=0)
    ),
}


@pytest.mark.parametrize(
    ("shape", "size"), list(product(SHAPES, [(40, 2), (22, 3), (10, 4), (2, 40), (4, 12), (1, 40)]))
)
def test_one_level_is_seldom_taken_for_two(shape: str, size: tuple[int, int]) -> None:
    """At most one false alarm in a hundred, whatever the noise looks like, with blocks and prompts of their own."""
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        blocks = rng.normal(0, 0.04, (1, size[1])) if size[0] > 1 else 0.0
        found = repeats(speeds(SHAPES[shape](rng, size) + rng.normal(0, 0.3, (size[0], 1)) + blocks))
        assert len(found) >= MIN_REPEATS or size in {(2, 40), (1, 40)}
        alarms += two_levels(found) is not None
    assert alarms <= 2


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("size", [(60, 2), (60, 3), (25, 4), (5, 40), (1, 100)])
def test_two_levels_are_seen(share: float, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    seen: list[Levels] = []
    for _ in range(20):
        slow = -0.3 * (rng.random(size) < share)
        blocks = rng.normal(0, 0.04, (1, size[1])) if size[0] > 1 else 0.0
        logs = rng.normal(0, 0.3, (size[0], 1)) + blocks + slow + rng.normal(0, 0.02, size)
        levels = two_levels(repeats(speeds(logs)))
        seen += [levels] if levels is not None else []
    assert len(seen) >= 18
    assert np.median([levels.apart for levels in seen]) == pytest.approx(0.29, abs=0.03)
    assert np.median([levels.upper_share for levels in seen]) == pytest.approx(2 * share * (1 - share), abs=0.12)


def test_levels_that_hardly_matter_are_none() -> None:
    rng = np.random.default_rng(9)
    near = rng.normal(0, 0.001, 400) + 0.03 * (rng.random(400) < 0.5)
    assert two_levels(near) is None
    rare = rng.normal(0, 0.001, 400) + 0.3 * (rng.random(400) < 0.05)
    assert two_levels(rare) is None


def test_few_and_equal_values() -> None:
    assert two_levels(np.array([1.0])) is None
    assert two_levels(np.zeros(50)) is None
    assert len(repeats(speeds(np.ones((30, 1))))) == 0
    assert len(repeats(speeds(np.random.default_rng(1).normal(size=(5000, 3))))) <= 1000


def test_missing_requests_are_no_differences() -> None:
    logs = np.random.default_rng(1).normal(0, 0.01, (30, 2))
    logs[:5, 1] = np.nan
    assert len(repeats(speeds(logs))) == 25
    logs[:, 0] = np.nan
    assert len(repeats(speeds(logs))) == 0
