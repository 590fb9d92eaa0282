"""Tokens per step: published numbers, agreement with simulation, bounds and monotonicity, refusal of what cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import acceptance as acc
from specmeter.theory.bounds import tau_from_acceptance

moderate = settings(max_examples=60, deadline=None)
probability = st.floats(0, 1)
rates = st.lists(probability, min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("alpha", "gamma", "tau"),
    [(0, 5, 1), (1, 5, 6), (0.5, 0, 1), (0.5, 1, 1.5), (0.8, 5, 3.68928), (0.9, 10, 6.861894)],
)
def test_tokens_per_step(alpha: float, gamma: int, tau: float) -> None:
    assert acc.tokens_per_step(alpha, gamma) == pytest.approx(tau, rel=1e-7)


def test_near_certain_acceptance_loses_no_digits() -> None:
    assert acc.tokens_per_step(1 - 1e-13, 8) == pytest.approx(9, rel=1e-11)


def test_arrays_broadcast_and_scalars_stay_floats() -> None:
    table = acc.tokens_per_step(np.array([0.5, 1.0]), np.array([[1], [3]]))
    assert table.tolist() == [[1.5, 2.0], [1.875, 4.0]]
    assert isinstance(acc.tokens_per_step(0.5, 2), float)


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
def test_one_alpha_is_a_row_of_equal_conditional_rates(alpha: float, gamma: int) -> None:
    assert acc.tokens_from_conditional([alpha] * gamma) == pytest.approx(acc.tokens_per_step(alpha, gamma))


@moderate
@given(rates)
def test_conditional_and_marginal_rates_say_the_same(conditional: list[float]) -> None:
    marginal = acc.marginal_rates(conditional)
    assert acc.tokens_from_marginal(marginal) == pytest.approx(acc.tokens_from_conditional(conditional))


def test_a_marginal_rate_taken_for_a_conditional_one_gives_another_tau() -> None:
    conditional = [0.8, 0.8, 0.8]
    marginal = acc.marginal_rates(conditional)
    assert acc.tokens_from_marginal(marginal) == pytest.approx(2.952)
    assert acc.tokens_from_conditional(marginal) == pytest.approx(1 + 0.8 + 0.8 * 0.64 + 0.8 * 0.64 * 0.512)


@moderate
@given(rates)
def test_tau_by_gamma_cuts_drafts_short(conditional: list[float]) -> None:
    by_gamma = acc.tokens_by_gamma(conditional)
    assert by_gamma[0] == 1
    for gamma in range(1, len(conditional) + 1):
        assert by_gamma[gamma] == pytest.approx(acc.tokens_from_conditional(conditional[:gamma]))


def test_rates_of_several_runs_at_once() -> None:
    runs = np.array([[0.5, 0.5], [1.0, 0.0]])
    assert np.asarray(acc.tokens_from_conditional(runs)).tolist() == [1.75, 2.0]
    assert acc.tokens_by_gamma(runs).tolist() == [[1, 1.5, 1.75], [1, 2, 2]]


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


# --- rates from steps ------------------------------------------------------------------------------------------------


def test_a_draft_that_ends_by_itself_is_no_rejection() -> None:
    # Two drafts of 1, accepted; one of 3 with 2 accepted; one of 2, rejected at once.
    found = acc.position_rates([(1, 1), (1, 1), (3, 2), (2, 0)])
    assert found.reached == (4, 1, 1)
    assert found.accepted == (3, 1, 0)
    assert found.conditional.tolist() == [0.75, 1, 0]
    assert found.marginal.tolist() == [0.75, 0.75, 0]


def test_full_drafts_give_back_accepted_over_drafted() -> None:
    steps = [(4, 4), (4, 0), (4, 2), (4, 1), (4, 4)]
    found = acc.position_rates(steps)
    tau = 1 + sum(accepted for _, accepted in steps) / len(steps)
    assert acc.tokens_from_conditional(found.conditional) == pytest.approx(tau)


def test_rates_are_recovered_from_censored_steps() -> None:
    random = np.random.default_rng(7)
    truth = [0.9, 0.7, 0.6, 0.3]
    steps: list[tuple[int, int]] = []
    for length in random.integers(0, 5, size=40_000):
        agreed = random.random(length) < truth[:length]
        steps.append((int(length), int(np.argmin([*agreed, False]))))
    assert acc.position_rates(steps).conditional == pytest.approx(truth, abs=0.02)


@moderate
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=40))
def test_counts_of_positions_are_those_of_a_plain_loop(raw: list[tuple[int, int]]) -> None:
    steps = [(drafted, min(drafted, accepted)) for drafted, accepted in raw]
    if not any(drafted for drafted, _ in steps):
        return
    found = acc.position_rates(steps)
    for position, (reached, accepted) in enumerate(zip(found.reached, found.accepted, strict=True), start=1):
        assert reached == sum(d >= position and a >= position - 1 for d, a in steps)
        assert accepted == sum(a >= position for _, a in steps)
    assert sum(found.accepted) == sum(accepted for _, accepted in steps)


@pytest.mark.parametrize(
    "steps", [[], [(0, 0)], [(2, 3)], [(2, -1)], [(-1, 0)], [(2.5, 1)], [(math.inf, 1)], [(math.nan, 1)]]
)
def test_steps_that_cannot_be(steps: list[tuple[Any, Any]]) -> None:
    with pytest.raises(UsageError, match="steps"):
        acc.position_rates(steps)


# --- rules of verification -------------------------------------------------------------------------------------------


def _distributions(seed: int, size: int = 16) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(size, 0.3)), random.dirichlet(np.full(size, 0.3))


def test_lossless_acceptance_is_one_less_half_the_distance() -> None:
    target, draft = _distributions(1)
    assert acc.lossless_acceptance(target, draft) == pytest.approx(1 - np.abs(target - draft).sum() / 2)
    assert acc.lossless_acceptance(target, target) == pytest.approx(1)
    assert acc.lossless_acceptance([1, 0], [0, 1]) == 0


def test_both_rules_accept_as_often_as_their_formulas_say() -> None:
    target, draft = _distributions(2)
    random, size = np.random.default_rng(3), 200_000
    proposed = random.choice(len(draft), size=size, p=draft)
    kept = random.random(size) < np.minimum(1, target[proposed] / draft[proposed])
    matched = random.choice(len(target), size=size, p=target) == proposed
    assert kept.mean() == pytest.approx(acc.lossless_acceptance(target, draft), abs=0.005)
    assert matched.mean() == pytest.approx(acc.sample_match_acceptance(target, draft), abs=0.005)


@moderate
@given(st.integers(0, 10_000))
def test_matching_samples_never_beats_lossless_sampling(seed: int) -> None:
    target, draft = _distributions(seed)
    match, lossless = acc.sample_match_acceptance(target, draft), acc.lossless_acceptance(target, draft)
    assert 0 <= match <= lossless <= 1 + 1e-12
    greedy = np.zeros_like(draft)
    greedy[np.argmax(draft)] = 1
    both = acc.sample_match_acceptance(target, greedy), acc.lossless_acceptance(target, greedy)
    assert both == pytest.approx((target[np.argmax(draft)],) * 2)


def test_a_perfect_draft_that_samples_is_still_refused_by_matching() -> None:
    assert acc.sample_match_acceptance([0.5, 0.5], [0.5, 0.5]) == 0.5
    assert acc.lossless_acceptance([0.5, 0.5], [0.5, 0.5]) == 1


def test_distributions_of_many_positions_at_once() -> None:
    target = np.array([[0.5, 0.5], [1.0, 0.0]])
    assert np.asarray(acc.lossless_acceptance(target, target)).tolist() == [1, 1]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: acc.tokens_from_conditional([]),
        lambda: acc.tokens_from_marginal([0.2, 0.5]),
        lambda: acc.alpha_from_acceptance_rate(0.5, 0),
        lambda: acc.lossless_acceptance([0.5, 0.4], [0.5, 0.5]),
        lambda: acc.lossless_acceptance([0.5, 0.5], [1, 0, 0]),
        lambda: acc.lossless_acceptance([], []),
        lambda: acc.tokens_per_step("much", 4),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.fix
