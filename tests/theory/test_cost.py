"""Speedups: published tables, the general form, break-even, and a claim beside what acceptance permits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import cost
from specmeter.theory.acceptance import tokens_per_step
from specmeter.theory.bounds import cost_bound, tau_from_acceptance

moderate = settings(max_examples=60, deadline=None)
probability = st.floats(0, 1)
draft_costs = st.floats(0, 2)


@pytest.mark.parametrize(
    ("alpha", "gamma", "speed"),
    [
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ],
)
def test_table_of_free_drafts(alpha: float, gamma: int, speed: float) -> None:
    assert cost.classical_speedup(alpha, gamma, 0) == pytest.approx(speed, abs=0.006)


@pytest.mark.parametrize(
    ("alpha", "gamma", "draft_cost", "predicted", "measured"),
    [
        (0.75, 7, 0.02, 3.2, 3.4),
        (0.80, 7, 0.04, 3.3, 2.8),
        (0.82, 7, 0.11, 2.5, 1.7),
        (0.62, 7, 0.02, 2.3, 2.6),
        (0.65, 5, 0.02, 2.4, 3.1),
        (0.74, 3, 0.11, 2.0, 2.2),
    ],
)
def test_table_of_t5(alpha: float, gamma: int, draft_cost: float, predicted: float, measured: float) -> None:
    assert cost.classical_speedup(alpha, gamma, draft_cost) == pytest.approx(predicted, abs=0.07)
    # Some of the measurements exceed the prediction (alpha is rounded, acceptance is not independent), none the bound.
    assert measured < gamma + 1


@moderate
@given(probability, st.integers(0, 40), draft_costs)
def test_the_general_form_contains_the_classical_one(alpha: float, gamma: int, draft_cost: float) -> None:
    general = tokens_per_step(alpha, gamma) / cost.step_cost(gamma, 1.0, draft_cost=draft_cost)
    assert general == pytest.approx(cost.classical_speedup(alpha, gamma, draft_cost))


@moderate
@given(probability, st.integers(0, 40), st.floats(1, 20), draft_costs, st.floats(0, 5))
def test_no_speedup_exceeds_tau(alpha: float, gamma: int, v: float, draft_cost: float, rest: float) -> None:
    tau = tokens_per_step(alpha, gamma)
    gain = tau / cost.step_cost(gamma, v, draft_cost=draft_cost, rest=rest)
    assert gain <= tau
    assert gain <= cost_bound(tau, gamma, draft_cost) * (1 + 1e-12)
    assert gain >= tau / cost.step_cost(gamma, v + 1, draft_cost=draft_cost, rest=rest)


# --- break-even ------------------------------------------------------------------------------------------------------


@moderate
@given(st.integers(1, 32), st.floats(1, 10), st.floats(0, 0.5))
def test_at_break_even_nothing_is_gained(gamma: int, v: float, draft_cost: float) -> None:
    rate = cost.break_even_rate(gamma, v, draft_cost=draft_cost)
    alpha = cost.break_even_alpha(gamma, v, draft_cost=draft_cost)
    if cost.step_cost(gamma, v, draft_cost=draft_cost) > gamma + 1 + 1e-9:
        assert rate == alpha == math.inf
    elif rate <= 1:
        tau = 1 + rate * gamma
        assert tau / cost.step_cost(gamma, v, draft_cost=draft_cost) == pytest.approx(1)
        assert tokens_per_step(alpha, gamma) == pytest.approx(tau)


def test_break_even_by_number() -> None:
    assert cost.break_even_rate(4, 1.6, draft_cost=0.1) == pytest.approx(0.25)
    assert cost.break_even_alpha(1, draft_cost=0.3) == pytest.approx(0.3)
    assert cost.break_even_rate(4, 0.98) == 0
    assert cost.break_even_alpha(4, 0.98) == 0


# --- a claim and what acceptance permits -----------------------------------------------------------------------------


def test_a_published_line_and_the_width_at_which_another_kernel_takes_over() -> None:
    """thc1006, qwen3.8-speculative-decoding-rtx3090, docs/COST_MODEL.md (147deedf, August 2026): MTP, widths 2 to 9."""
    k = [0.8888 + 0.2904 * (w - 1) for w in range(2, 10)]
    line = cost.cycle_line(range(2, 10), [*k[:-1], 0.74 * k[-1]])
    assert line is not None
    assert (line.k0, line.c, line.r2) == (pytest.approx(0.8888), pytest.approx(0.2904), pytest.approx(1))
    assert (line.first, line.last, line.fails_at, line.off) == (2, 8, 9, pytest.approx(-0.26))


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_line_ends_at_a_jump_and_not_at_noise_or_one_odd_width(factor: float) -> None:
    widths = [2, 3, 4, 5, 6, 7, 8, 9, 10, 17]
    noise = [1.01, 0.98, 1.02, 1.0, 0.99, 1.01, 0.99, 1.0, 1.01, 0.99]
    even = [(0.9 + 0.25 * (w - 1)) * by for w, by in zip(widths, noise, strict=True)]
    straight = cost.cycle_line(widths, even)
    assert straight is not None
    assert (straight.last, straight.fails_at) == (17, None)
    assert straight.c == pytest.approx(0.25, rel=0.03)
    jump = cost.cycle_line(widths, [it * (factor if w > 8 else 1) for w, it in zip(widths, even, strict=True)])
    assert jump is not None
    assert (jump.last, jump.fails_at, jump.off) == (8, 9, pytest.approx(factor - 1, abs=0.04))
    odd = cost.cycle_line(widths, [it * (factor if w == 6 else 1) for w, it in zip(widths, even, strict=True)])
    assert odd is not None
    assert odd.fails_at is None
    assert cost.cycle_line(widths[:3], even[:3]) is None


def test_the_claim_of_the_306_runs_is_its_own_formula() -> None:
    # Of the paper: 18.1 ms per token plainly, 229 ms for a round of 16 drafts, acceptance 0.2 %, "speedup" 1.26.
    claimed = 16 * (1000 / 55.3) / 229
    assert claimed == pytest.approx(1.26, abs=0.01)
    permitted = cost.permitted_speedup(0.002, 16)
    assert permitted == pytest.approx(1.032)
    assert claimed > permitted
    assert cost.permitted_speedup(0.002, 16, 55.3 / 138.0) == pytest.approx(0.139, abs=0.001)
    # One round of that duration emits 1.032 tokens, not 16.
    tau = tau_from_acceptance(0.002, 16)
    assert tau / cost.step_cost(16, 229 / (1000 / 55.3)) == pytest.approx(0.081, abs=0.001)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: cost.classical_speedup(1.2, 4, 0.1), "alpha"),
        (lambda: cost.classical_speedup(0.5, 4, -0.1), "draft_cost"),
        (lambda: cost.classical_speedup(0.5, 4, math.nan), "draft_cost"),
        (lambda: cost.classical_speedup(0.5, -4, 0.1), "gamma"),
        (lambda: cost.step_cost(2, math.nan), "verification"),
        (lambda: cost.step_cost(0, 0), "verification"),
        (lambda: cost.break_even_rate(0), "gamma"),
        (lambda: cost.permitted_speedup(4, 4), "acceptance_rate"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
