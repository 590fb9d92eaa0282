"""MoESD's model: its growth function, and parameters that come back from times that it made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory.experts import expected_union, mean_load
from specmeter.theory.moesd import MoesdModel, fit_moesd, growth

moderate = settings(max_examples=60, deadline=None)
TRUTH = MoesdModel(bias=4.0, k1=1.5, k2=0.12, k3=0.8, knee_scale=0.5, base=1.01, ridge_point=150.0)
TOKENS = np.concatenate([np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 100, 120]) * length for length in (1, 3, 5)])
USED = np.repeat([2, 4, 8], len(TOKENS))
GRID = np.tile(TOKENS, 3)


@moderate
@given(st.floats(0, 500), st.floats(1, 300), st.floats(1, 1.05))
def test_growth_rises_and_never_bends_down(tokens: float, knee: float, base: float) -> None:
    before, here, after = (growth(tokens + shift, knee, base) for shift in (0, 1, 2))
    assert 1 <= before <= here <= after
    assert after - here >= (here - before) * (1 - 1e-6) - 1e-9


def test_growth_by_number() -> None:
    assert growth(3, 10, 2) == pytest.approx(8)
    assert growth(10, 10, 1.1) == pytest.approx(1.1**10)
    assert growth(14, 10, 1.1) == pytest.approx(1.1**10 * (1 + math.log(1.1) * 4))
    assert growth(50, 10, 1) == 1
    step = 1e-6
    left = (growth(10, 10, 1.1) - growth(10 - step, 10, 1.1)) / step
    right = (growth(10 + step, 10, 1.1) - growth(10, 10, 1.1)) / step
    assert left == pytest.approx(right, rel=1e-4)


def test_the_model_is_the_sum_of_its_terms() -> None:
    expected = (
        TRUTH.bias
        + TRUTH.k1 * growth(20, 75, 1.01)
        + TRUTH.k2 * expected_union(20, 64, 8)
        + TRUTH.k3 * growth(mean_load(20, 64, 8), 75, 1.01)
    )
    assert TRUTH.forward_ms([20], 64, 8) == pytest.approx([expected])


def test_parameters_come_back_from_exact_times() -> None:
    ms = TRUTH.forward_ms(GRID, 64, USED)
    fit = fit_moesd(GRID, ms, 64, USED, 150)
    assert fit.rms_ms < 1e-6
    for name in ("bias", "k1", "k2", "k3", "knee_scale", "base"):
        assert getattr(fit.model, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3)


def test_21_points_with_noise_predict_the_rest() -> None:
    truth = TRUTH.forward_ms(GRID, 64, USED)
    noisy = truth * (1 + 0.01 * np.random.default_rng(4).standard_normal(len(truth)))
    chosen = np.linspace(0, len(GRID) - 1, 21).round().astype(int)
    fit = fit_moesd(GRID[chosen], noisy[chosen], 64, USED[chosen], 150)
    assert set(GRID[chosen]) >= {GRID.min(), GRID.max()}
    assert fit.model.forward_ms(GRID, 64, USED) == pytest.approx(truth, rel=0.06)
    assert min(fit.model.bias, fit.model.k1, fit.model.k2, fit.model.k3) >= 0
    assert len(fit.residuals_ms) == 21


def test_a_dense_model_and_any_unit_of_time() -> None:
    dense = replace(TRUTH, k2=0.0, k3=0.0)
    ms = dense.forward_ms(TOKENS, 8, 8)
    seconds = fit_moesd(TOKENS, ms / 1000, 8, 8, 150)
    assert seconds.model.forward_ms(TOKENS, 8, 8) * 1000 == pytest.approx(ms, rel=0.01)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: growth(-1, 10, 1.1), "tokens"),
        (lambda: growth(1, 0, 1.1), "knee"),
        (lambda: growth(1, 10, 0.9), "base"),
        (lambda: growth(1e6, 1e6, 2), "base"),
        (lambda: fit_moesd([1, 2, 3], [1, 2, 3], 8, 2, 100), "points"),
        (lambda: fit_moesd([], [], 8, 2, 100), "no point"),
        (lambda: fit_moesd(range(1, 9), [1] * 7, 8, 2, 100), "shape"),
        (lambda: fit_moesd(range(1, 9), [0] * 8, 8, 2, 100), "ms"),
        (lambda: fit_moesd(range(1, 9), [math.nan] * 8, 8, 2, 100), "ms"),
        (lambda: fit_moesd(range(8), [1] * 8, 8, 2, 100), "tokens"),
        (lambda: fit_moesd(range(1, 9), [1] * 8, 8, 9, 100), "used"),
        (lambda: fit_moesd(range(1, 9), [1] * 8, 8, [2, 4], 100), "used"),
        (lambda: fit_moesd(range(1, 9), [1] * 8, 8, 2, 0), "ridge_point"),
        (lambda: fit_moesd(range(1, 9), [1] * 8, 8, 2, 100, knee_scale=(2, 1)), "knee_scale"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
