"""Rates: the window of llama.cpp's server, the conservation law, and nothing invented from nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.numbers.rates import acceptance_rate, decode_rate, prompt_rate, target_forwards, tau
from specmeter.record import Step, Timings


def timings(predicted_n: int, predicted_ms: float = 1000.0, drafted: int = 0, accepted: int = 0) -> Timings:
    return Timings(
        prompt_n=10,
        prompt_ms=50.0,
        predicted_n=predicted_n,
        predicted_ms=predicted_ms,
        draft_n=drafted,
        draft_n_accepted=accepted,
    )


def step(drafted: int, accepted: int, restored: bool = False) -> Step:
    return Step(drafted=drafted, accepted=accepted, at_ms=0.0, restored=restored)


def test_first_token_is_free() -> None:
    # As the server prints it: 300 tokens in 2203.239 ms after the first one.
    assert decode_rate(timings(300, 2203.239)) == pytest.approx(299 / 2.203239)


def test_prompt_rate() -> None:
    assert prompt_rate(timings(1)) == pytest.approx(200.0)


@pytest.mark.parametrize("case", [timings(0), timings(1), timings(5, 0.0)])
def test_no_decode_rate_from_nothing(case: Timings) -> None:
    assert decode_rate(case) is None


def test_no_prompt_rate_from_a_cached_prompt() -> None:
    assert prompt_rate(Timings(prompt_n=0, prompt_ms=0.0, predicted_n=2, predicted_ms=1.0, cache_n=10)) is None


def test_acceptance() -> None:
    assert acceptance_rate(timings(32, drafted=40, accepted=10)) == 0.25
    assert acceptance_rate(timings(32)) is None


def test_plain_decoding_has_tau_one() -> None:
    assert tau(timings(33)) == 1.0
    assert tau(timings(33), [step(0, 0)] * 32) == 1.0


def test_tau_from_counters() -> None:
    # Seen on a real server: 32 tokens, 12 accepted, 19 target forwards after the prompt.
    assert target_forwards(timings(32, drafted=30, accepted=12)) == 19
    assert tau(timings(32, drafted=30, accepted=12)) == pytest.approx(31 / 19)


def test_tau_from_steps_counts_plain_decodes_that_left_no_line() -> None:
    # Two rounds emit 3 + 1 tokens; the other 6 of 10 decoded tokens took one forward each.
    assert target_forwards(timings(11, drafted=8, accepted=2), [step(4, 2), step(4, 0)]) == 8


def test_a_replay_emits_one_token_of_its_own() -> None:
    # The first 11 tokens that a real server made of a hybrid model with these steps, after the first.
    steps = [step(4, 0, restored=True), step(0, 0), step(4, 1, restored=True), step(0, 0), step(4, 4)]
    assert target_forwards(timings(11, drafted=12, accepted=5), steps) == 5
    assert tau(timings(11, drafted=12, accepted=5), steps) == pytest.approx(10 / 5)


def test_tokens_cut_at_the_limit_do_not_add_forwards() -> None:
    assert target_forwards(timings(3, drafted=4, accepted=4), [step(4, 4)]) == 1


@pytest.mark.parametrize("case", [timings(0), timings(1), timings(5, drafted=4, accepted=4)])
def test_no_tau_from_nothing(case: Timings) -> None:
    assert tau(case) is None


@given(st.lists(st.integers(0, 8).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))), min_size=1))
def test_steps_and_counters_agree_where_the_law_closes(rounds: list[tuple[int, int]]) -> None:
    accepted = sum(a for _, a in rounds)
    whole = timings(1 + accepted + len(rounds), drafted=sum(d for d, _ in rounds), accepted=accepted)
    steps = [step(d, a) for d, a in rounds]
    assert target_forwards(whole) == target_forwards(whole, steps) == len(rounds)
    assert tau(whole, steps) == pytest.approx(1 + accepted / len(rounds))
