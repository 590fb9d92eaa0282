"""Special functions and fits: each against scipy's, over all that they are used for and beyond."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from specmeter.numbers.special import (
    beta_quantile,
    binomial_below,
    chi2_above,
    chi2_quantile_above,
    f_above,
    incomplete_beta,
    lowest,
    non_negative_fit,
    normal_below,
    t_above,
    t_quantile,
)

CLOSE = 1e-9
freedoms = st.floats(0.3, 1e4)
shapes = st.floats(0.05, 2000)


@given(shapes, shapes, st.floats(0, 1))
def test_incomplete_beta(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=CLOSE, abs=1e-14)


@given(freedoms, st.floats(-1e4, 1e4))
def test_student(df: float, t: float) -> None:
    assert t_above(df, t) == pytest.approx(special.stdtr(df, -t), rel=CLOSE, abs=1e-300)


@given(st.floats(1, 1e4), st.floats(0.51, 1 - 1e-9))
def test_quantiles_of_student(df: float, p: float) -> None:
    found = t_quantile(df, p)
    assert found == pytest.approx(special.stdtrit(df, p), rel=CLOSE)
    assert found == -t_quantile(df, 1 - p) or t_quantile(df, 1 - p) == pytest.approx(-found, rel=1e-6)


@pytest.mark.parametrize("df", [1, 2, 3, 7.5, 30, 1000, 100_000])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.975, 0.995, 1 - 1e-6])
def test_critical_values(df: float, p: float) -> None:
    assert t_quantile(df, p) == pytest.approx(special.stdtrit(df, p), rel=CLOSE, abs=1e-15)


@given(st.integers(1, 200), st.integers(1, 2000), st.floats(0, 1e3))
def test_tail_of_f(d1: int, d2: int, f: float) -> None:
    assert f_above(d1, d2, f) == pytest.approx(special.fdtrc(d1, d2, f), rel=CLOSE, abs=1e-100)


@given(st.floats(-30, 30))
def test_normal(z: float) -> None:
    assert normal_below(z) == pytest.approx(special.ndtr(z), rel=1e-12, abs=1e-300)


@given(st.integers(1, 3000), st.data(), st.floats(0.01, 0.99))
def test_binomial(n: int, data: st.DataObject, p: float) -> None:
    k = data.draw(st.integers(0, n - 1))
    assert binomial_below(k, n, p) == pytest.approx(special.bdtr(k, n, p), rel=CLOSE, abs=1e-300)


@given(st.integers(0, 100_000), st.integers(1, 100_000), st.floats(0.001, 0.999))
@settings(max_examples=50)
def test_bounds_of_shares(seen: int, others: int, level: float) -> None:
    assert beta_quantile(seen + 1, others, level) == pytest.approx(
        special.betaincinv(seen + 1, others, level), rel=1e-8
    )


@given(st.integers(1, 500), st.floats(0, 3000))
def test_chi_squared(df: int, x: float) -> None:
    assert chi2_above(df, x) == pytest.approx(special.chdtrc(df, x), rel=CLOSE, abs=1e-300)


@given(st.integers(1, 500), st.floats(1e-6, 1 - 1e-6))
def test_quantiles_of_chi_squared(df: int, p: float) -> None:
    assert chi2_quantile_above(df, p) == pytest.approx(special.chdtri(df, p), rel=1e-8)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(0, 20), st.booleans())
def test_non_negative_fit(seed: int, columns: int, more: int, alike: bool) -> None:
    """As good as scipy's, and allowed; the same where the solution is the only one."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(columns + more, columns)) * 10.0 ** rng.integers(-3, 4, size=columns)
    if alike:
        design[:, -1] = design[:, 0]
    values = rng.normal(size=columns + more)
    found, (known, loss) = non_negative_fit(design, values), optimize.nnls(design, values)
    assert (found >= 0).all()
    assert float(np.linalg.norm(design @ found - values)) == pytest.approx(loss, rel=1e-9, abs=1e-9)
    if not alike and more > 2:
        assert found == pytest.approx(known, rel=1e-6, abs=1e-9 / float(np.abs(design).max()))


def test_non_negative_fit_of_what_cannot_be_fitted() -> None:
    assert non_negative_fit(np.ones((3, 2)), -np.ones(3)).tolist() == [0, 0]
    assert non_negative_fit(np.zeros((3, 2)), np.ones(3)).tolist() == [0, 0]


@given(st.floats(-5, 5), st.floats(0.1, 10))
def test_lowest(place: float, width: float) -> None:
    def of(x: float) -> float:
        return math.cosh((x - place) / 4)

    low, high = place - width, place + 1.7 * width
    found, value = lowest(of, low, high)
    assert found == pytest.approx(place, abs=1e-6)
    assert value == pytest.approx(1.0)
    assert lowest(of, place + 1, place + 2)[0] == pytest.approx(place + 1, abs=1e-8)
