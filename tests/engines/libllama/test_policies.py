"""Rules that look at the draft alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.engines.libllama.policies import Confidence, EntropyStop, Fixed
from specmeter.errors import UsageError


def never() -> float:
    raise AssertionError("the entropy was computed for nothing")


def test_fixed_is_fixed() -> None:
    policy = Fixed(5)
    for _ in range(3):
        policy.begin()
        assert policy.length() == 5
        assert policy.goes_on(never, never)
        policy.observe(5, 0, 1e9)


@given(p=st.floats(0, 1), p_min=st.floats(0, 1))
def test_confidence_is_llama_cpps_rule(p: float, p_min: float) -> None:
    policy = Confidence(8, p_min)
    assert policy.length() == 8
    assert policy.goes_on(lambda: p, never) is (p >= p_min)


@given(entropy=st.floats(0, 13), threshold=st.floats(-3, 1), scale=st.floats(0, 5))
def test_entropy_stop_is_the_published_rule(entropy: float, threshold: float, scale: float) -> None:
    score = 1 - math.sqrt(scale * entropy)
    if math.isclose(score, threshold, abs_tol=1e-9):
        return
    policy = EntropyStop(8, threshold, scale)
    assert policy.goes_on(never, lambda: entropy) is (score >= threshold)


@pytest.mark.parametrize("gamma", [-1, 1025, 2.5])
def test_lengths_are_bounded(gamma: float) -> None:
    with pytest.raises(UsageError, match="gamma"):
        Fixed(gamma)  # type: ignore[arg-type]


@pytest.mark.parametrize("p_min", [-0.1, 80, math.nan])
def test_p_min_is_a_fraction(p_min: float) -> None:
    with pytest.raises(UsageError, match="p_min"):
        Confidence(4, p_min)


@pytest.mark.parametrize(("threshold", "scale"), [(1.5, 1), (math.nan, 1), (0.5, -1), (0.5, math.inf)])
def test_entropy_stop_refuses_what_never_holds(threshold: float, scale: float) -> None:
    with pytest.raises(UsageError):
        EntropyStop(4, threshold, scale)
