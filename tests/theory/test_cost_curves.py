"""Measured cost curves: what they answer, where they refuse, and which model of them is preferred."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_curves import curve_of
from specmeter.errors import UsageError
from specmeter.record import Estimate
from specmeter.theory.curves import CostCurve, CostModel, CostPoint, compare_fits, fit_cost
from specmeter.theory.roofline import expected_union, fit_union

moderate = settings(max_examples=40, deadline=None)
TOKENS = np.array([1, 2, 3, 5, 9, 17, 33])


def union(tokens: np.ndarray) -> np.ndarray:
    return np.asarray(expected_union(tokens, 64, 4))


TIMES = {
    "affine": 10 + 0.5 * TOKENS,
    "roofline": 10 + 0.5 * np.maximum(0, TOKENS - 6.3),
    "experts": 2 + 0.05 * TOKENS + 0.6 * union(TOKENS),
}


def test_between_points_the_curve_is_straight() -> None:
    curve = curve_of([1, 5, 9], [10, 20, 30])
    assert curve.tokens.tolist() == [1, 5, 9]
    assert curve.ms_at(3) == 15
    assert curve.ms_at([1, 7]).tolist() == [10, 25]
    assert curve.verification(0) == 1
    assert (curve.verification(2), curve.verification(8)) == (1.5, 3)


@pytest.mark.parametrize("outside", [0.5, 9.5, 17])
def test_outside_its_points_it_refuses(outside: float) -> None:
    curve = curve_of([1, 5, 9], [10, 20, 30])
    with pytest.raises(UsageError, match=r"n = 1 to 9|tokens") as caught:
        curve.ms_at(outside)
    assert caught.value.fix


def test_ratios_need_a_point_of_one_token() -> None:
    curve = curve_of([2, 4], [10, 20])
    assert curve.ms_at(3) == 15
    with pytest.raises(UsageError, match=r"T\(1\) was not measured"):
        curve.verification(2)


def test_intervals_of_ratios() -> None:
    curve = curve_of([1, 5], [10, 20], spread=0.05, units=5)
    ratio = curve.verification_estimate(4)
    assert (ratio.point, ratio.n) == (2, 5)
    width = math.exp(math.hypot(math.log(1.05), math.log(1.05)))
    assert (ratio.low, ratio.high) == (pytest.approx(2 / width), pytest.approx(2 * width))
    assert curve_of([1, 5], [10, 20]).verification_estimate(4).low is None
    assert curve.verification_estimate(0).point == 1
    with pytest.raises(UsageError, match="was not measured, only n"):
        curve.verification_estimate(2)


def test_estimates_of_different_levels_give_no_interval() -> None:
    def point(tokens: int, level: float) -> CostPoint:
        ms = Estimate(
            point=10.0 * tokens, low=9.0 * tokens, high=11.0 * tokens, level=level, n=3, unit="ms", method="t"
        )
        return CostPoint(tokens=tokens, ms=ms)

    mixed = CostCurve(points=(point(1, 0.95), point(2, 0.9)))
    assert mixed.verification_estimate(1).low is None


@pytest.mark.parametrize("model", ["affine", "roofline", "experts"])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_model_that_made_a_curve_is_preferred(model: CostModel, noise: float) -> None:
    noisy = TIMES[model] * (1 + noise * np.random.default_rng(11).standard_normal(len(TOKENS)))
    best, second, *_ = compare_fits(curve_of(TOKENS, noisy), union)
    assert best.model == model
    assert second.aicc - best.aicc > 2
    assert best.rms <= 2 * noise + 1e-9
    assert best.ms_at(TOKENS) == pytest.approx(TIMES[model], rel=3 * noise + 1e-6)


def test_parameters_by_name() -> None:
    fit = fit_cost(curve_of(TOKENS, TIMES["experts"]), "experts", union)
    assert fit.parameters == pytest.approx({"floor": 2, "slope": 0.05, "expert": 0.6})
    knee = fit_cost(curve_of(TOKENS, TIMES["roofline"]), "roofline")
    assert knee.parameters == pytest.approx({"floor": 10, "slope": 0.5, "knee": 6.3}, rel=1e-4)


def test_unions_may_come_from_a_fit_of_measured_ones() -> None:
    overlap = fit_union([4, 8, 16], [22, 36, 56], 256, 8, "power")
    times = 5 + 0.3 * np.asarray(overlap.union(TOKENS))
    best, *_ = compare_fits(curve_of(TOKENS, times), overlap.union)
    assert best.model == "experts"
    assert best.parameters["expert"] == pytest.approx(0.3)


def test_too_few_points_judge_no_model() -> None:
    few = curve_of([1, 2, 3], [1, 2, 3])
    assert fit_cost(few, "affine").aicc == math.inf
    with pytest.raises(UsageError, match="3 points"):
        compare_fits(few)
    assert [fit.model for fit in compare_fits(curve_of(TOKENS[:5], TIMES["affine"][:5]), union)] == ["affine"]


@moderate
@given(st.lists(st.floats(0.1, 1e4), min_size=6, max_size=12))
def test_fits_never_become_cheaper_with_tokens(times: list[float]) -> None:
    curve = curve_of(range(1, len(times) + 1), times)
    for fit in compare_fits(curve, union):
        predicted = fit.ms_at(np.arange(1.0, 40.0))
        assert (np.diff(predicted) >= -1e-9 * predicted.max()).all()
        assert predicted[len(times) - 1] / times[-1] - 1 == pytest.approx(fit.residuals[-1], abs=1e-9)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: CostCurve(points=()), "has no points"),
        (lambda: curve_of([1, 1], [2, 3]), "ascend"),
        (lambda: curve_of([1, 2], [2, 0]), "ms"),
        (lambda: fit_cost(curve_of([1], [2]), "affine"), "1 points"),
        (lambda: fit_cost(curve_of(TOKENS, TIMES["affine"]), "experts"), "union"),
        (lambda: fit_cost(curve_of(TOKENS, TIMES["affine"]), "affine", union), "union"),
        (lambda: fit_cost(curve_of(TOKENS, TIMES["affine"]), "experts", lambda n: n[:2]), "union"),
        (lambda: fit_cost(curve_of(TOKENS, TIMES["affine"]), "cubic"), "model"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
