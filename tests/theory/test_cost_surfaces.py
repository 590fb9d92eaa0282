"""Surfaces T(b, n): straight between measured points, silent outside, taken apart by the model they were made by."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from specmeter.errors import UsageError
from specmeter.record import BatchPoint, Estimate
from specmeter.theory.curves import CostSurface, fit_surface
from specmeter.theory.roofline import expected_union

B, N = (1, 2, 4, 8, 16), (1, 2, 3, 5, 9)


def surface(ms: Callable[[int, int], float], *, union: bool = False) -> list[BatchPoint]:
    def made_up(value: float, unit: str) -> Estimate:
        return Estimate(point=value, low=0.9 * value, high=1.1 * value, n=9, unit=unit, method="made up")

    def experts(b: int, n: int) -> float:
        return expected_union(float(b * n), 32, 4)

    return [
        BatchPoint(
            sequences=b,
            tokens=n,
            depth=128,
            ms=made_up(ms(b, n), "ms"),
            union=made_up(experts(b, n), "experts") if union else None,
        )
        for b in B
        for n in N
    ]


def test_between_points_the_surface_is_straight_and_outside_it_is_silent() -> None:
    found = CostSurface.of(surface(lambda b, n: 10 + 2 * b * n))
    assert found.estimate(1, 1).point == 12
    assert found.estimate(6, 4).point == pytest.approx(58)
    between = found.estimate(3, 4)
    assert (between.point, between.low, between.high) == pytest.approx((34, 0.9 * 34, 1.1 * 34))
    assert "between measured points" in between.method
    assert found.covers(16, 9)
    assert not found.covers(17, 1)
    for b, n in ((17, 1), (0.5, 1), (4, 10)):
        with pytest.raises(UsageError, match="was not measured"):
            found.estimate(b, n)
    assert found.curve(3).tokens.tolist() == list(N)
    assert found.curve(3).ms_at(5) == pytest.approx(40)


def test_target_efficiency_is_the_inverse_of_verification() -> None:
    found = CostSurface.of(surface(lambda b, n: 10 + b * n))
    for b in (1, 8):
        v, efficiency = found.verification(b, 4), found.target_efficiency(b, 4)
        assert v.point == pytest.approx((10 + 5 * b) / (10 + b))
        assert efficiency.point == pytest.approx(1 / v.point)
        assert efficiency.low is not None
        assert v.high is not None
        assert efficiency.low == pytest.approx(1 / v.high)
        assert found.verification(b, 0).point == found.target_efficiency(b, 0).point == 1


def test_rows_of_unequal_length_answer_where_both_neighbours_do() -> None:
    points = [point for point in surface(lambda b, n: 1.0 + b * n) if point.sequences * point.tokens <= 40]
    found = CostSurface.of(points)
    assert found.covers(4, 9)
    assert not found.covers(6, 9)
    assert found.curve(6).tokens.tolist() == [1, 2, 3, 5]
    with pytest.raises(UsageError, match="without points"):
        CostSurface.of([])
    other = points[0].model_copy(update={"depth": 512})
    with pytest.raises(UsageError, match="depths"):
        CostSurface.of([*points, other])


@pytest.mark.parametrize(
    ("model", "ms"),
    [
        ("affine", lambda b, n: 10 + 0.5 * b * n + 0.3 * b),
        ("roofline", lambda b, n: 10 + 0.5 * max(0.0, b * n - 12) + 0.3 * b),
        ("experts", lambda b, n: 2 + 0.05 * b * n + 0.6 * expected_union(float(b * n), 32, 4) + 0.3 * b),
        ("moesd", lambda b, n: 5 + 2 * (math.exp(0.02 * min(b * n, 20)) * (1 + 0.02 * max(0, b * n - 20)))),
    ],
)
def test_each_model_is_found_again(model: str, ms: Callable[[int, int], float]) -> None:
    moe = model == "experts"
    rng = np.random.default_rng(1)
    points = surface(lambda b, n: ms(b, n) * float(np.exp(rng.normal(0, 0.002))), union=moe)
    fits = fit_surface(points, *((32, 4) if moe else (0, 0)))
    assert fits[0].model == model
    assert fits[0].rms < 0.01
    assert ("experts" in {fit.model for fit in fits}) == moe
    if model == "affine":
        assert fits[0].parameters == pytest.approx({"floor": 10, "slope": 0.5, "sequence": 0.3}, rel=0.1)


def test_too_few_points_judge_nothing() -> None:
    assert fit_surface(surface(lambda b, n: 1.0 * b * n)[:3]) == ()
    assert fit_surface([]) == ()
