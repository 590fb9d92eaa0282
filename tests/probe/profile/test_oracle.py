"""The oracle against every other way through a text, and costs against those that made the times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import profile

from specmeter.errors import UsageError
from specmeter.probe.draft_lengths import LengthCosts, best_walk, fit_costs, fixed_walk, match_lengths
from specmeter.probe.replay import Limits, ModelDrafts, replay

LONGEST = 3


def brute_force(lengths: list[int], costs: LengthCosts, limits: Limits) -> float:
    """The cheapest of all ways, each followed to its end."""

    def least(at: int) -> float:
        if at >= len(lengths):
            return 0.0
        found = []
        for drafted in range(max(0, min(LONGEST, limits.most(at + 1))) + 1):
            accepted = min(drafted, lengths[at], len(lengths) - at - 1)
            after, pay = at + accepted + 1, float(costs.step[drafted])
            if limits.replays and accepted < drafted and after < len(lengths):
                after, pay = after + 1, pay + (float(costs.again[accepted]) if costs.again is not None else 0.0)
            found.append(pay + least(after))
        return min(found)

    return least(0)


prices = st.lists(st.floats(0.1, 4.0), min_size=LONGEST + 1, max_size=LONGEST + 1).map(np.array)


@given(
    matches=st.text("01", min_size=2, max_size=9),
    step=prices,
    again=prices,
    replays=st.booleans(),
    room=st.one_of(st.none(), st.integers(0, 9)),
    more=st.integers(0, 3),
)
@settings(max_examples=150)
def test_no_other_way_is_cheaper(
    matches: str, step: np.ndarray, again: np.ndarray, replays: bool, room: int | None, more: int
) -> None:
    lengths, costs = match_lengths(matches), LengthCosts(step, again)
    limits = Limits(len(matches) + more, room, replays=replays)
    best = best_walk(lengths, costs, limits)
    assert best.cost(costs) == pytest.approx(brute_force(lengths, costs, limits))
    for gamma in range(LONGEST + 1):
        fixed = fixed_walk(lengths, gamma, limits, longest=LONGEST)
        assert best.cost(costs) <= fixed.cost(costs) + 1e-9
        emitted = sum(1 + it.accepted for it in fixed.rounds) + int(fixed.again.sum())
        assert emitted == len(lengths)


@given(matches=st.text("01", min_size=2, max_size=40), gamma=st.integers(1, 6), replays=st.booleans())
def test_fixed_lengths_walk_as_they_are_replayed(matches: str, gamma: int, replays: bool) -> None:
    limits = Limits(len(matches), replays=replays)
    steps = replay(ModelDrafts(profile(matches), gamma), limits)
    walk = fixed_walk(match_lengths(matches), gamma, limits)
    assert len(steps) == len(walk.rounds) + int(walk.again.sum())
    assert sum(it.drafted for it in steps) == sum(it.drafted for it in walk.rounds)
    assert sum(it.accepted for it in steps) == sum(it.accepted for it in walk.rounds)


def test_drafts_are_as_long_as_they_agree_where_drafting_is_cheap() -> None:
    costs = LengthCosts(np.array([1.0, 1.1, 1.2, 1.3]))
    best = best_walk(match_lengths("0" + "0001110111"), costs)
    assert [tuple(it) for it in best.rounds] == [(0, 0), (0, 0), (0, 0), (3, 3), (2, 2)]
    assert best.cost(costs) == pytest.approx(3 * 1.0 + 1.3 + 1.2)
    dear = LengthCosts(np.array([1.0, 3.0, 5.0, 9.0]))
    assert {it.drafted for it in best_walk(match_lengths("0" + "1" * 20), dear).rounds} == {0}


@pytest.mark.parametrize("replays", [False, True])
def test_costs_are_found_in_what_fixed_lengths_took(replays: bool) -> None:
    random = np.random.default_rng(3)
    lengths = [match_lengths("".join(random.choice(["0", "1"], 90, p=[0.3, 0.7]))) for _ in range(4)]
    gammas = (1, 2, 4, 8)
    true = LengthCosts(np.interp(np.arange(9), [0, 1, 2, 4, 8], [1, 1.1, 1.3, 1.6, 3.0]), 0.5 + 0.1 * np.arange(9.0))
    walks = [
        fixed_walk(text, gamma, Limits(len(text) + 1, replays=replays), longest=8)
        for gamma in gammas
        for text in lengths
    ]
    fit = fit_costs(walks, [walk.cost(true) for walk in walks], gammas)
    assert fit.costs.step == pytest.approx(true.step)
    assert fit.variance == pytest.approx(0, abs=1e-12)
    if replays:
        assert fit.costs.again == pytest.approx(true.again)
    noisy = [walk.cost(true) * float(np.exp(random.normal(0, 0.02))) for walk in walks]
    assert 0.005 < fit_costs(walks, noisy, gammas).variance ** 0.5 < 0.06
    with pytest.raises(UsageError, match="too little"):
        fit_costs(walks[:3], noisy[:3], gammas)
    with pytest.raises(UsageError, match="longer than any"):
        walks[-1].cost(LengthCosts(true.step[:3]))


def test_a_long_text_takes_no_time() -> None:
    """Thousands of tokens and 32 lengths: each place is looked at once."""
    lengths = match_lengths("0" + "1110" * 2000)
    assert len(best_walk(lengths, LengthCosts(1 + 0.05 * np.arange(33.0))).rounds) == 2000


def test_between_measured_lengths_costs_have_the_shape_of_a_probe() -> None:
    """Four rows may be cheaper than three; a probe of another hour is a factor away."""
    lengths = [
        match_lengths("".join(np.random.default_rng(seed).choice(["0", "1"], 60, p=[0.3, 0.7]))) for seed in (1, 2)
    ]
    true = LengthCosts(np.array([1.0, 1.1, 1.6, 1.3, 1.9, 1.7, 2.3, 2.0, 2.6]))
    walks = [fixed_walk(text, gamma, longest=8) for gamma in (2, 4, 8) for text in lengths]
    measured = [walk.cost(true) for walk in walks]
    by_shape = fit_costs(walks, measured, (2, 4, 8), [1.0, *(1.2 * true.step[1:])])
    assert by_shape.costs.step[2:] == pytest.approx(true.step[2:], rel=0.02)
    on_lines = fit_costs(walks, measured, (2, 4, 8))
    assert on_lines.costs.step[3] > 1.5
