"""What a configuration does to sessions: right by hand, and its interval covers what it should."""

from __future__ import annotations

import numpy as np
import pytest

from specmeter.analysis.sessions import SessionParts, reweighted, time_ratio, with_blocks
from specmeter.record import Prompt, Turn


def test_a_ratio_by_hand() -> None:
    found = time_ratio([10.0, 20.0], [5.0, 20.0], [1.0, 3.0], ["a", "a"])
    assert found is not None
    assert found.point == pytest.approx((10 + 60) / (5 + 60))
    # e = w (B - R A): 10 - 5 R and 60 - 60 R, opposite to each other
    error = 10 - 5 * 70 / 65
    assert found.low is not None
    linear = 2 / 1 * 2 * error**2 / 70**2
    # One call is 60 of 65 s: what the two ratios, 2 and 1, say of a third one.
    floor = np.log(2) ** 2 / 2 * ((5 / 65) ** 2 + (60 / 65) ** 2)
    assert floor > linear
    assert np.log(found.point / found.low) == pytest.approx(12.706 * np.sqrt(floor), rel=1e-3)
    assert (found.n, found.of) == (2, "calls")
    even = time_ratio([10.0, 30.0, 20.0], [5.0, 20.0, 10.0], [1.0, 1.0, 1.0], ["a"] * 3)
    assert even is not None
    assert even.low is not None
    errors = np.array([10, 30, 20]) - 60 / 35 * np.array([5, 20, 10])
    assert np.log(even.point / even.low) == pytest.approx(
        4.3027 * max(np.sqrt(3 / 2 * (errors**2).sum()) / 60, np.log(4 / 3) / np.sqrt(3) * np.sqrt(525) / 35), rel=1e-3
    )


def test_blocks_add_to_what_calls_show() -> None:
    found = time_ratio([10.0, 11.0, 9.0, 10.0], [5.0, 5.4, 4.6, 5.1], [1.0] * 4, ["a"] * 4)
    assert found is not None
    apart = with_blocks(found, [0.5, 0.9])
    assert found.low is not None
    assert apart.low is not None
    assert apart.low < 0.5 * found.low  # two blocks, one degree of freedom
    assert with_blocks(found, [0.7]) == found


def test_calls_that_are_left_stand_for_those_that_are_not() -> None:
    def call(own: str, kind: str, weight: float, text: str = "x") -> Prompt:
        turn = Turn(session="s", number=0, weight=weight)
        return Prompt(id=own, workload="w", kind=kind, text=text, sha256="0" * 64, turn=turn)

    deep = "x" * 40_000
    drawn = [call("a", "prose", 2), call("b", "prose", 2), call("c", "code", 5), call("d", "prose", 3, deep)]
    kept = reweighted([drawn[0]], drawn)
    assert {own: it.turn.weight for own, it in kept.items() if it.turn} == {"a": 12}
    kept = reweighted(drawn[1:3], drawn)
    assert {own: it.turn.weight for own, it in kept.items() if it.turn} == {"b": 7, "c": 5}


def test_sessions_are_units_if_there_are_enough() -> None:
    times = list(range(1, 13))
    found = time_ratio(times, [0.5 * it for it in times], [1.0] * 12, [f"s{it % 6}" for it in range(12)])
    assert found is not None
    assert (found.n, found.of, found.point) == (6, "sessions", pytest.approx(2.0))
    one = time_ratio([3.0], [2.0], [1.0], ["a"])
    assert one is not None
    assert one.low is None
    assert time_ratio([0.0], [0.0], [1.0], ["a"]) is None


@pytest.mark.parametrize(("calls", "sessions"), [(32, 1), (12, 1), (48, 8)])
def test_intervals_cover_at_temperature_1(calls: int, sessions: int) -> None:
    """Answers of both sides have other lengths; per token they take what the texts need, call by call."""
    chance = np.random.default_rng(5)
    covered, trials = 0, 1500
    among = 0.1 if sessions > 1 else 0.0
    of_session = [f"s{place * sessions // calls}" for place in range(calls)]
    for _ in range(trials):
        per_session = np.exp(chance.normal(0, among, sessions))
        gain = 1.2 * per_session[np.arange(calls) * sessions // calls] * np.exp(chance.normal(0, 0.25, calls))
        recorded = chance.integers(20, 400, calls)
        read = chance.gamma(2.0, 200.0, calls)
        plain = 30.0 * np.exp(chance.normal(0, 0.03, calls))
        times = read + plain * recorded, read + plain / gain * recorded * np.exp(chance.normal(0, 0.03, calls))
        found = time_ratio(times[0], times[1], np.ones(calls), of_session)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        # The truth: expected time of a call without over with speculation.
        mean = 1 / 1.2 * np.exp(0.25**2 / 2 + among**2 / 2) * np.exp(0.03**2 / 2)
        truth = (400.0 + 30.0 * np.exp(0.03**2 / 2) * 209.5) / (400.0 + 30.0 * np.exp(0.03**2 / 2) * 209.5 * mean)
        covered += found.low <= truth <= found.high
    assert 0.925 <= covered / trials <= 0.975


def test_what_speculation_can_touch() -> None:
    parts = SessionParts(again=1.0, new=3.0, draft=1.0, verify=4.0, other=1.0)
    assert (parts.total, parts.generating) == (10.0, 0.5)
