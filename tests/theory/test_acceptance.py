"""Tokens per step: published numbers, agreement with simulation, bounds and monotonicity, refusal of what cannot be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import acceptance as acc
from specmeter.theory.bounds import tau_from_acceptance

moderate = settings(max_examples=60, deadline=None)
probability = st.floats(0, 1)


@pytest.mark.parametrize(
    ("alpha", "gamma", "tau"),
    [(0, 5, 1), (1, 5, 6), (0.5, 0, 1), (0.5, 1, 1.5), (0.8, 5, 3.68928), (0.9, 10, 6.861894)],
)
def test_tokens_per_step(alpha: float, gamma: int, tau: float) -> None:
    assert acc.tokens_per_step(alpha, gamma) == pytest.approx(tau, rel=1e-7)


def test_near_certain_acceptance_loses_no_digits() -> None:
    assert acc.tokens_per_step(1 - 1e-13, 8) == pytest.approx(9, rel=1e-11)


@pytest.mark.parametrize(
    ("alpha", "gamma", "named"),
    [
        *((alpha, 4, "alpha is") for alpha in (-0.1, 1.1, 80, np.nan, np.inf)),
        *((0.5, gamma, "gamma") for gamma in (-1, 2.5, np.nan, np.inf)),
    ],
)
def test_what_is_no_probability_or_length_is_named(alpha: float, gamma: float, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        acc.tokens_per_step(alpha, gamma)


@moderate
@given(probability, st.integers(0, 64))
def test_tau_lies_between_one_and_what_acceptance_permits(alpha: float, gamma: int) -> None:
    tau = acc.tokens_per_step(alpha, gamma)
    assert 1 <= tau <= min(gamma + 1, tau_from_acceptance(alpha, gamma)) * (1 + 1e-12)


@moderate
@given(probability, probability, st.integers(0, 64))
def test_tau_rises_with_alpha_and_gamma(one: float, other: float, gamma: int) -> None:
    low, high = sorted((one, other))
    slack = 1 - 1e-12
    assert acc.tokens_per_step(high, gamma) >= acc.tokens_per_step(low, gamma) * slack
    assert acc.tokens_per_step(high, gamma + 1) >= acc.tokens_per_step(high, gamma) * slack


@moderate
@given(probability, st.integers(1, 32))
def test_alpha_comes_back_from_the_acceptance_rate_it_causes(alpha: float, gamma: int) -> None:
    rate = min(1.0, (acc.tokens_per_step(alpha, gamma) - 1) / gamma)
    found = acc.alpha_from_acceptance_rate(rate, gamma)
    assert acc.tokens_per_step(found, gamma) == pytest.approx(acc.tokens_per_step(alpha, gamma), rel=1e-9)
    assert found >= rate - 1e-9  # accepted / drafted is below alpha: what follows a rejection was drafted too


def test_alpha_of_the_study_that_claims_most_for_least() -> None:
    assert acc.alpha_from_acceptance_rate(0.002, 16) == pytest.approx(0.03101, abs=1e-5)
    assert acc.alpha_from_acceptance_rate(np.array([0.0, 1.0]), 16).tolist() == [0, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: acc.alpha_from_acceptance_rate(0.5, 0),
        lambda: acc.tokens_per_step("much", 4),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.fix
