"""Experts touched: the uniform model, measured unions of others, overlap models and their fits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import roofline as moe

moderate = settings(max_examples=60, deadline=None)


@st.composite
def routings(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(2, 512))
    return total, draw(st.integers(1, total))


@pytest.mark.parametrize(
    ("total", "used", "tokens", "uniform", "measured"),
    [
        (256, 8, 4, 30.5, 22),
        (256, 8, 8, 57.4, 36),
        (256, 8, 16, 102, 56),
        (128, 8, 4, 29.1, 20.4),
        (256, 10, 5, 46.2, 36.1),
        (256, 10, 16, 120.7, 67.6),
        (128, 4, 4, 15.3, 11.6),
        (128, 8, 4, 29.1, 23.7),
    ],
    ids=["35b-4", "35b-8", "35b-16", "cohere", "laguna-5", "laguna-16", "gpt-oss-120b", "qwen3-235b"],
)
def test_uniform_unions_lie_above_measured_ones(
    total: int, used: int, tokens: int, uniform: float, measured: float
) -> None:
    assert moe.expected_union(tokens, total, used) == pytest.approx(uniform, abs=0.06)
    share = moe.fit_union([tokens], [measured], total, used).parameter
    assert 0.4 < share < 0.75
    assert moe.union_of_draws(tokens, total, used, share) == pytest.approx(measured)


@pytest.mark.parametrize(("total", "used", "threshold"), [(256, 8, 95), (8, 1, 23), (4, 1, 11), (16, 1, 47)])
def test_saturation_thresholds(total: int, used: int, threshold: int) -> None:
    assert moe.saturation_threshold(total, used) == threshold
    assert moe.expected_union(threshold, total, used) >= 0.95 * total
    assert moe.expected_union(threshold - 1, total, used) < 0.95 * total


def test_saturation_before_rounding() -> None:
    assert moe.saturation_tokens(256, 8) == pytest.approx(94.36, abs=0.005)
    assert moe.saturation_tokens(256, 8, 0) == 0
    assert moe.saturation_tokens(8, 8) == 1


def test_uniform_expectation_is_that_of_drawn_experts() -> None:
    random = np.random.default_rng(5)
    drawn = [len({*np.concatenate([random.permutation(32)[:4] for _ in range(6)])}) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(moe.expected_union(6, 32, 4), rel=0.01)


@moderate
@given(routings(), st.integers(1, 300))
def test_bounds_and_growth_of_the_union(routing: tuple[int, int], tokens: int) -> None:
    total, used = routing
    union = moe.expected_union(tokens, total, used)
    assert used * (1 - 1e-9) <= union <= min(total, tokens * used) * (1 + 1e-9)
    assert moe.expected_union(tokens + 1, total, used) >= union


@moderate
@given(routings(), st.integers(1, 100), st.floats(0, 1))
def test_overlap_models_stay_between_all_alike_and_all_different(
    routing: tuple[int, int], tokens: int, parameter: float
) -> None:
    total, used = routing
    for curve in (moe.union_of_draws, moe.union_of_power):
        union = curve(tokens, total, used, parameter)
        assert used * (1 - 1e-9) <= union <= min(total, tokens * used) * (1 + 1e-9)
        assert curve(1, total, used, parameter) == pytest.approx(used)
        assert curve(tokens, total, used, 0) == pytest.approx(used)
    assert moe.union_of_draws(tokens, total, used, 1) == pytest.approx(moe.expected_union(tokens, total, used))


def test_fits_of_the_published_unions_of_35b() -> None:
    tokens, unions = [4, 8, 16], [22, 36, 56]
    power = moe.fit_union(tokens, unions, 256, 8, "power")
    draws = moe.fit_union(tokens, unions, 256, 8)
    assert power.parameter == pytest.approx(0.72, abs=0.01)
    assert power.rms < 0.03 < draws.rms < 0.1
    assert draws.parameter == pytest.approx(0.52, abs=0.01)
    assert power.union(1) == 8
    assert np.asarray(power.union(np.array(tokens))) / unions - 1 == pytest.approx(np.array(power.residuals))


@moderate
@given(st.sampled_from(["draws", "power"]), st.floats(0.05, 0.95))
def test_fits_recover_their_own_parameter(model: moe.OverlapModel, parameter: float) -> None:
    tokens = np.array([2, 3, 5, 9, 17])
    curve = {"draws": moe.union_of_draws, "power": moe.union_of_power}[model]
    fit = moe.fit_union(tokens, np.asarray(curve(tokens, 256, 8, parameter)), 256, 8, model)
    assert fit.parameter == pytest.approx(parameter, abs=1e-5)
    assert fit.rms < 1e-5


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: moe.expected_union(4, 8, 9), "used"),
        (lambda: moe.expected_union(4, 8, 0), "used"),
        (lambda: moe.expected_union(4, 0, 0), "experts"),
        (lambda: moe.expected_union(-1, 8, 2), "tokens"),
        (lambda: moe.expected_union(math.nan, 8, 2), "tokens"),
        (lambda: moe.expected_union(4, 8.5, 2), "experts"),  # type: ignore[arg-type]
        (lambda: moe.saturation_tokens(8, 2, 1), "share"),
        (lambda: moe.union_of_draws(2, 8, 2, 1.5), "share"),
        (lambda: moe.union_of_power(2, 8, 2, -1), "exponent"),
        (lambda: moe.fit_union([], [], 8, 2), "no point"),
        (lambda: moe.fit_union([1], [2], 8, 2), "one token"),
        (lambda: moe.fit_union([4], [9], 8, 2), "unions"),
        (lambda: moe.fit_union([2, 4], [3], 8, 2), "shape"),
        (lambda: moe.fit_union([2], [5], 64, 2), "unions"),
        (lambda: moe.fit_union([2], [3], 8, 2, "other"), "model"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
