"""Decisions that an engine can take between steps: how long to draft, when to stop, how much to verify."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import controllers
from specmeter.theory.controllers import Trial
from specmeter.theory.cost import speedup

moderate = settings(max_examples=60, deadline=None)


def test_utility_is_the_speedup() -> None:
    tau, gamma, v, c = 2.4, 3, 1.7, 0.1
    step_ms = 20 * (gamma * c + v)
    assert controllers.utility(tau, step_ms, 20) == pytest.approx(speedup(tau, gamma, v, draft_cost=c))


@pytest.mark.parametrize(
    ("rate", "baseline", "gain"),
    [
        # EVICT's table: Qwen3-30B on an A100, EAGLE-3, and with its own choice of nodes.
        (176.3, 144.5, 1.22),
        (202.8, 144.5, 1.40),
        # 35B-A3B on an RTX 3090, llama.cpp: two drafts each, then methods that lose.
        (146.2, 115.7, 1.26),
        (141.9, 115.7, 1.23),
        (103.1, 115.7, 0.89),
        (30.0, 115.7, 0.26),
    ],
)
def test_utility_of_published_rates(rate: float, baseline: float, gain: float) -> None:
    # Per token: one token in 1000 / rate ms.
    found = controllers.utility(1, 1000 / rate, 1000 / baseline)
    assert found == pytest.approx(gain, abs=0.006)
    assert found <= 3  # two drafts per step can emit three tokens at most


# --- Cascade ---------------------------------------------------------------------------------------------------------


def _test_phase(curve: dict[int, float], start: int, longest: int = 8) -> list[Trial]:
    trials: list[Trial] = []
    while (gamma := controllers.next_trial(trials, start=start, longest=longest)) is not None:
        trials.append(Trial(gamma, curve[gamma]))
        assert len(trials) <= controllers.MOST_TRIALS
    return trials


def test_a_test_climbs_while_it_gains() -> None:
    trials = _test_phase({2: 1.1, 3: 1.4, 4: 1.8, 5: 2.4, 6: 3.0}, start=2)
    assert [trial.gamma for trial in trials] == [2, 3, 4, 5]
    assert controllers.chosen_gamma(trials) == 5


def test_a_test_turns_to_the_other_side_and_stops_on_a_plateau() -> None:
    trials = _test_phase({3: 1.3, 4: 1.1, 2: 1.6, 1: 1.2}, start=3)
    assert [trial.gamma for trial in trials] == [3, 4, 2, 1]
    assert controllers.chosen_gamma(trials) == 2
    plateau = _test_phase({3: 1.3, 4: 1.35}, start=3)
    assert [trial.gamma for trial in plateau] == [3, 4]
    assert controllers.chosen_gamma(plateau) == 4


def test_where_nothing_gains_the_choice_is_not_to_draft() -> None:
    trials = _test_phase({2: 0.6, 1: 0.8}, start=2)
    assert [trial.gamma for trial in trials] == [2, 1]
    assert controllers.chosen_gamma(trials) == 0
    assert controllers.chosen_gamma([]) == 0
    assert controllers.next_trial([], start=0, longest=4) == 1
    assert controllers.next_trial([], start=9, longest=4) == 4


@moderate
@given(st.integers(0, 12), st.integers(1, 8), st.lists(st.floats(0, 3), min_size=9, max_size=9))
def test_a_test_ends_and_never_leaves_its_limits(start: int, longest: int, values: list[float]) -> None:
    trials = _test_phase(dict(enumerate(values)), start, longest)
    gammas = [trial.gamma for trial in trials]
    assert len(set(gammas)) == len(gammas)
    assert all(1 <= gamma <= longest for gamma in gammas)
    chosen = controllers.chosen_gamma(trials)
    assert chosen == 0 or values[chosen] == max(trial.utility for trial in trials) > 1


def test_back_off_doubles() -> None:
    assert [controllers.set_steps(falls) for falls in range(4)] == [16, 32, 64, 128]
    assert controllers.set_steps(1000) == 4096


# --- stopping --------------------------------------------------------------------------------------------------------


def test_entropy() -> None:
    assert controllers.entropy([1, 0, 0]) == 0
    assert controllers.entropy([0.25] * 4) == pytest.approx(math.log(4))
    assert np.asarray(controllers.entropy(np.array([[1, 0], [0.5, 0.5]]))) == pytest.approx([0, math.log(2)])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: controllers.utility(2, 0, 1), "step_ms"),
        (lambda: controllers.utility(2, 1, math.nan), "baseline_ms"),
        (lambda: controllers.utility(-2, 1, 1), "tokens_per_step"),
        (lambda: controllers.next_trial([], start=1, longest=0), "longest"),
        (lambda: controllers.chosen_gamma([Trial(1, math.nan)]), "utility"),
        (lambda: controllers.set_steps(-1), "falls"),
        (lambda: controllers.entropy([0.5, 0.1]), "draft"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
