"""The best of many predictions: how much of it is luck."""

from __future__ import annotations

import numpy as np
import pytest

from specmeter.numbers.estimates import luck_of_best

SHARED, DRAWS, TIMES = 0.03, 300, 200


def best(rng: np.random.Generator, arms: int, spread: float, own: float) -> tuple[float, float, bool]:
    """(error of the best prediction, the same less its luck, whether its range holds the truth then)."""
    truth = spread * rng.standard_normal(arms)
    points = truth + SHARED * rng.standard_normal() + own * rng.standard_normal(arms)
    apart = SHARED * rng.standard_normal((1, DRAWS)) + own * rng.standard_normal((arms, DRAWS))
    logs = np.hstack([points[:, None], points[:, None] + apart])
    which = int(points.argmax())
    much = luck_of_best(np.exp(logs))
    error = float(points[which] - truth[which])
    low, high = np.quantile(logs[which] - much, [0.025, 0.975])
    return error, error - much, bool(low <= truth[which] <= high)


@pytest.mark.parametrize(("arms", "spread"), [(20, 0.0), (20, 0.1), (200, 0.0), (200, 0.05)])
def test_the_best_of_many_predictions_is_no_longer_too_high_by_much(arms: int, spread: float) -> None:
    rng = np.random.default_rng([arms, int(1000 * spread)])
    found = np.array([best(rng, arms, spread, 0.02) for _ in range(TIMES)])
    before, after, held = found.mean(axis=0)
    assert 0 < before - after < before + 3 * SHARED / np.sqrt(TIMES)
    assert held > 0.85
    if spread == 0.0:
        assert before > 0.03
        assert after < 0.6 * before


def test_it_is_nothing_where_arms_differ_by_more_than_they_err() -> None:
    rng = np.random.default_rng(1)
    logs = np.arange(8.0)[:, None] + np.hstack([np.zeros((8, 1)), 0.01 * rng.standard_normal((8, 400))])
    assert luck_of_best(np.exp(logs)) < 0.003
    assert luck_of_best(np.exp(np.hstack([np.zeros((8, 1)), 0.1 * rng.standard_normal((8, 400))]))) > 0.05
