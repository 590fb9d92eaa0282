"""Bounds against runs made up step by step: whatever the steps were, no bound may lie below what really happened."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.theory import bounds

share = st.floats(0, 1)
length = st.integers(0, 64)
cost = st.floats(0, 4)


@dataclass(frozen=True)
class Run:
    """Steps of (drafted, accepted, cost of verification), in units of one plain target forward."""

    steps: list[tuple[int, int, float]]
    draft_cost: float

    @property
    def drafted(self) -> int:
        return sum(drafted for drafted, _, _ in self.steps)

    @property
    def accepted(self) -> int:
        return sum(accepted for _, accepted, _ in self.steps)

    @property
    def emitted(self) -> int:
        return self.accepted + len(self.steps)

    @property
    def speedup(self) -> float:
        return self.emitted / sum(verify + drafted * self.draft_cost for drafted, _, verify in self.steps)

    @property
    def cheapest_forward(self) -> float:
        return min(1.0, *(verify for _, _, verify in self.steps))

    @property
    def gamma(self) -> int:
        return max(drafted for drafted, _, _ in self.steps)

    @property
    def acceptance(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


@st.composite
def runs(draw: st.DrawFn, cheapest: float = 1.0) -> Run:
    """`cheapest`: least time of a forward over several tokens, in forwards over one."""
    step = st.integers(0, 12).flatmap(
        lambda drafted: st.tuples(
            st.just(drafted), st.integers(0, drafted), st.floats(cheapest if drafted else 1.0, 20)
        )
    )
    return Run(draw(st.lists(step, min_size=1, max_size=40)), draw(cost))


@given(runs())
def test_no_run_is_faster_than_its_bounds(run: Run) -> None:
    slack = 1 + 1e-9
    tau = bounds.tau_from_counts(run.accepted, len(run.steps))
    assert run.speedup <= tau * slack
    assert tau <= bounds.tau_from_acceptance(run.acceptance, run.gamma) * slack
    assert run.speedup <= bounds.cost_bound(tau, run.drafted / len(run.steps), run.draft_cost) * slack
    assert run.speedup <= bounds.cost_bound_any_length(run.acceptance, run.gamma, run.draft_cost) * slack


@given(runs(cheapest=0.05))
def test_where_several_tokens_cost_less_than_one_the_cheapest_forward_bounds(run: Run) -> None:
    slack, m = 1 + 1e-9, run.cheapest_forward
    tau = bounds.tau_from_counts(run.accepted, len(run.steps))
    g = run.drafted / len(run.steps)
    assert run.speedup <= bounds.tau_bound(tau, m) * slack
    assert run.speedup <= bounds.cost_bound(tau, g, run.draft_cost, m) * slack
    assert run.speedup <= bounds.cost_bound_any_length(run.acceptance, run.gamma, run.draft_cost, m) * slack
    assert bounds.cheapest_forward_needed(run.speedup, tau, g * run.draft_cost) >= m / slack - 1e-9


def test_a_forward_over_two_tokens_at_less_than_the_price_of_one() -> None:
    """Measured: 2.27x at tau 1.90, in every block, with counters that add up. A forward at 0.84 permits it."""
    assert bounds.tau_bound(1.90) == 1.90
    assert bounds.cheapest_forward_needed(2.27, 1.90) == pytest.approx(0.837, abs=1e-3)
    assert bounds.tau_bound(1.90, 0.83) > 2.27
    assert bounds.cheapest_forward_needed(1.5, 1.9, drafting=1.5) < 0


@given(runs())
def test_counters_of_a_run_obey_the_conservation_law(run: Run) -> None:
    assert bounds.conservation_gap(run.emitted, run.accepted, len(run.steps)) == 0
    assert bounds.fewest_forwards(run.emitted, run.accepted) == len(run.steps)
    assert bounds.fewest_forwards(run.emitted, run.accepted, run.gamma) == len(run.steps)
    # Without knowing what was accepted, the longest draft still leaves a least number of forwards.
    assert bounds.fewest_forwards(run.emitted, run.emitted, run.gamma) <= len(run.steps)


@given(share, share, length, length, cost, cost)
def test_bounds_grow_with_acceptance_and_fall_with_cost(
    low: float, high: float, short: int, long: int, cheap: float, dear: float
) -> None:
    low, high = sorted((low, high))
    short, long = sorted((short, long))
    cheap, dear = sorted((cheap, dear))
    assert bounds.tau_from_acceptance(low, long) <= bounds.tau_from_acceptance(high, long)
    assert bounds.tau_from_acceptance(high, short) <= bounds.tau_from_acceptance(high, long)
    assert bounds.cost_bound_any_length(low, long, cheap) <= bounds.cost_bound_any_length(high, long, cheap)
    assert bounds.cost_bound_any_length(high, long, dear) <= bounds.cost_bound_any_length(high, long, cheap)
    assert bounds.cost_bound_any_length(high, short, cheap) <= bounds.cost_bound_any_length(high, long, cheap) + 1e-12
    assert bounds.cost_bound_any_length(high, long, cheap) <= bounds.tau_from_acceptance(high, long)


@given(share, st.floats(0, 64), st.integers(1, 64), cost)
def test_the_bound_over_all_lengths_is_the_best_of_each(acceptance: float, part: float, gamma: int, c: float) -> None:
    g = min(part, gamma)
    one = bounds.cost_bound(bounds.tau_from_acceptance(acceptance, g), g, c)
    assert one <= bounds.cost_bound_any_length(acceptance, gamma, c) * (1 + 1e-12)


@given(st.floats(0, 0.999), st.integers(0, 32), cost)
def test_leviathans_prediction_never_exceeds_the_bounds(alpha: float, gamma: int, c: float) -> None:
    tau = math.fsum(alpha**i for i in range(gamma + 1))
    assert tau <= bounds.tau_from_acceptance(alpha, gamma) * (1 + 1e-12)
    assert tau / (gamma * c + 1) <= bounds.cost_bound_any_length(alpha, gamma, c) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("alpha", "gamma", "c", "factor"),
    [(0.75, 7, 0.02, 3.2), (0.80, 7, 0.04, 3.3), (0.82, 7, 0.11, 2.5), (0.65, 5, 0.02, 2.4)],
)
def test_published_speedups_of_leviathan_lie_below_the_bounds(
    alpha: float, gamma: int, c: float, factor: float
) -> None:
    assert factor <= bounds.cost_bound_any_length(alpha, gamma, c)


def test_the_claim_that_started_it() -> None:
    assert bounds.tau_from_acceptance(0.0025, 16) == pytest.approx(1.04)
    # A draft of 138 tok/s for a target of 55.3 cannot gain with so few accepted tokens, whatever the draft length.
    assert bounds.cost_bound_any_length(0.0025, 16, 55.3 / 138) == 1
    assert bounds.traffic(20.6e9, 55.3) == pytest.approx(1139e9, rel=1e-3)
    assert bounds.drafting_ms(708, 138) == pytest.approx(5130, rel=1e-3)


def test_windows_of_a_rate() -> None:
    rates = bounds.window_rates(201, predicted_ms=3219, prompt_n=20, prompt_ms=85, wall_ms=4097)
    assert rates["n / predicted_ms"] == pytest.approx(62.44, abs=0.01)
    assert rates["(n - 1) / predicted_ms"] == pytest.approx(62.13, abs=0.01)
    assert rates["(prompt_n + n) / (prompt_ms + predicted_ms)"] == pytest.approx(221 / 3.304)
    assert rates["n / wall_ms"] == pytest.approx(201 / 4.097)
    assert "n / predicted_ms" not in bounds.window_rates(10, wall_ms=5)
    summed = bounds.window_rates(3000, predicted_ms=22108.681, generations=10)
    assert summed["(n - 1) / predicted_ms"] == pytest.approx(2990 / 22.108681)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.tau_from_acceptance(1.01, 4),
        lambda: bounds.tau_from_acceptance(math.nan, 4),
        lambda: bounds.tau_from_acceptance(0.5, -1),
        lambda: bounds.tau_from_counts(-1, 4),
        lambda: bounds.tau_from_counts(1, 0),
        lambda: bounds.fewest_forwards(0, 0),
        lambda: bounds.cost_bound(0.9, 1, 1),
        lambda: bounds.cost_bound(1, 1, -1),
        lambda: bounds.cost_bound(1, 1, 1, 0),
        lambda: bounds.tau_bound(1, 1.01),
        lambda: bounds.cheapest_forward_needed(0, 1),
        lambda: bounds.drafting_ms(1, 0),
        lambda: bounds.traffic(0, 1),
        lambda: bounds.traffic(1, 1, tau=0.5),
        lambda: bounds.conservation_gap(-1, 0, 0),
        lambda: bounds.window_rates(1, predicted_ms=0),
    ],
)
def test_arguments_out_of_range_are_refused(call: object) -> None:
    with pytest.raises(ValueError):
        call()  # type: ignore[operator]


# --- curves over draft length ----------------------------------------------------------------------------------------


def tau_of(right: list[bool], gamma: int) -> float:
    """Tokens per step where a draft of the next token is right or not at each place of a text."""
    at = steps = 0
    while at < len(right):
        run = next((n for n, good in enumerate(right[at : at + gamma]) if not good), len(right[at : at + gamma]))
        at, steps = at + run + 1, steps + 1
    return len(right) / steps


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_longer_drafts_of_one_text_never_take_more_steps(right: list[bool]) -> None:
    lengths = [tau_of(right, gamma) for gamma in range(9)]
    assert lengths == sorted(lengths)
    assert all(length <= gamma + 1 for gamma, length in enumerate(lengths))


@given(st.lists(share, min_size=1, max_size=8))
def test_the_laws_of_a_curve_hold_for_every_chain(given_the_one_before: list[float]) -> None:
    tau, together, curve = 1.0, 1.0, [(0.0, 1.0, 1.0)]
    for gamma, conditional in enumerate(given_the_one_before, start=1):
        together *= conditional
        tau += together
        curve.append((gamma, tau, tau))
    assert bounds.curve_fault(curve) is None


def test_a_curve_that_falls_or_bends_upwards_says_where_and_by_how_much() -> None:
    exact = [(gamma, tau, tau) for gamma, tau in enumerate((1.0, 1.8, 2.4, 2.2))]
    fault = bounds.curve_fault(exact)
    assert fault is not None
    assert (fault.before, fault.at, fault.after, fault.error) == (2, 3, None, pytest.approx(0.1))
    rounded = [(gamma, tau - 0.1, tau + 0.1) for gamma, tau, _ in exact]
    assert bounds.curve_fault(rounded) is None
    bent = bounds.curve_fault([(1, 1.8, 1.8), (2, 2.0, 2.0), (4, 3.0, 3.0)])
    assert bent is not None
    assert (bent.before, bent.at, bent.after, bent.error) == (1, 2, 4, pytest.approx(0.1))


@given(st.lists(st.floats(1, 9), min_size=2, max_size=8))
def test_the_error_that_a_curve_needs_is_enough(values: list[float]) -> None:
    fault = bounds.curve_fault([(gamma, tau, tau) for gamma, tau in enumerate(values)])
    error = 0.0 if fault is None else fault.error
    for more, fails in ((1e-6, False), (-1e-3, error > 1e-3)):
        wide = [(gamma, tau - error - more, tau + error + more) for gamma, tau in enumerate(values)]
        assert (bounds.curve_fault(wide) is not None) == fails or (more < 0 and error <= 1e-3)
