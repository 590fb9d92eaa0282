"""Filters and temperature in llama.cpp's order, against a plain transcription of its rules; drawing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specmeter.errors import EngineProtocolError, UsageError
from specmeter.llama_binding import sampling
from specmeter.record import Generation

moderate = settings(max_examples=100, deadline=None)


def free(temperature: float, **filters: float) -> Generation:
    """No filter but those that are named: where nothing is asked for, llama-server's hold."""
    return Generation.model_validate({"temperature": temperature, "top_k": 0, "top_p": 1, "min_p": 0} | filters)


def by_the_rules(logits: np.ndarray, top_k: int, top_p: float, min_p: float, temperature: float) -> np.ndarray:
    """A sorted list of candidates that shrinks, as in llama.cpp; sums in single precision, as there."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1:
        weights = np.exp((logits[order] - logits[order[0]]).astype(np.float32))
        shares = weights / weights.sum(dtype=np.float32)
        total, kept = np.float32(0), len(order)
        for place, share in enumerate(shares):
            total += share
            if total >= np.float32(top_p):
                kept = place + 1
                break
        order = order[:kept]
    if min_p > 0:
        least = logits[order[0]] + np.log(np.float32(min_p))
        order = [token for token in order if logits[token] >= least]
    result = np.zeros(len(logits))
    weights = np.exp((logits[order].astype(np.float64) - logits[order[0]]) / temperature)
    result[order] = weights / weights.sum()
    return result


_NORMAL = 1e-37
"""Just above the smallest normal number of single precision."""


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 2, 7, 300, 5000]),
    spread=st.sampled_from([0.01, 1.0, 6.0]),
    top_k=st.sampled_from([0, 1, 3, 40, 9000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.6, 1.0]),
    temperature=st.sampled_from([0.2, 1.0, 3.0]),
)
@moderate
def test_as_llama_cpp(
    seed: int, size: int, spread: float, top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    logits = np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)
    expected = by_the_rules(logits, top_k, top_p, min_p, temperature)
    found = sampling.probabilities(logits, free(temperature, top_k=top_k, top_p=top_p, min_p=min_p))
    # On the edge of top_p, single precision may stop a token earlier or later; a few where thousands are nearly equal.
    # Shares below single precision's normal numbers may be flushed to zero: a library in this process decides that.
    ours, theirs = found > _NORMAL, expected > _NORMAL
    assert abs(int(ours.sum()) - int(theirs.sum())) <= (1 if size < 1000 else 5)
    if (ours == theirs).all():
        np.testing.assert_allclose(found[ours], expected[ours], rtol=2e-5)
    assert found.sum() == pytest.approx(1)


def test_min_p_is_a_share_of_the_likeliest_before_the_temperature() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert (sampling.probabilities(logits, free(5, min_p=0.31)) > 0).tolist() == [True, True, False, False]
    assert (sampling.probabilities(logits, free(5, min_p=0.29)) > 0).tolist() == [True, True, True, False]


def test_where_nothing_is_asked_for_the_filters_are_those_of_llama_server() -> None:
    logits = np.random.default_rng(5).normal(0, 3, 500).astype(np.float32)
    same = free(0.7, top_k=40, top_p=0.95, min_p=0.05)
    found = sampling.probabilities(logits, Generation(temperature=0.7))
    np.testing.assert_array_equal(found, sampling.probabilities(logits, same))
    assert (found > 0).sum() < 40


def test_top_p_is_taken_before_the_temperature() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.1], dtype=np.float32))
    hot = sampling.probabilities(logits, free(5, top_p=0.85))
    # After the temperature, the first two would have 0.41 + 0.36 = 0.77 and the third would have to stay.
    assert hot[2] == 0
    assert hot[0] == pytest.approx(0.6**0.2 / (0.6**0.2 + 0.3**0.2), rel=1e-5)


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    # Of 0.4 and 0.3 the first has 0.571: enough for 0.55 only after top_k.
    assert (sampling.probabilities(logits, free(1, top_p=0.55)) > 0).sum() == 2
    assert (sampling.probabilities(logits, free(1, top_p=0.55, top_k=2)) > 0).sum() == 1


def test_exactly_k_stay_of_equal_logits() -> None:
    found = sampling.probabilities(np.zeros(50, dtype=np.float32), free(1, top_k=7))
    np.testing.assert_allclose(found, [1 / 7] * 7 + [0] * 43)


def test_many_rows_and_lazy_rows_are_rows() -> None:
    logits = np.random.default_rng(3).normal(0, 3, (4, 100)).astype(np.float32)
    generation = Generation(temperature=0.7, top_k=20, top_p=0.8)
    rows, lazy = sampling.probabilities(logits, generation), sampling.Rows(logits, generation)
    assert len(lazy) == 4
    for place in range(4):
        np.testing.assert_array_equal(rows[place], sampling.probabilities(logits[place], generation))
        np.testing.assert_array_equal(rows[place], lazy[place])
    assert lazy[2] is lazy[2]


def test_excluded_tokens_stay_excluded() -> None:
    logits = np.array([1.0, -np.inf, 0.0, -np.inf], dtype=np.float32)
    for generation in (free(2), free(2, top_k=3, top_p=0.99)):
        assert np.flatnonzero(sampling.probabilities(logits, generation)).tolist() == [0, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("generation", [free(1), free(1, top_k=2, top_p=0.5)])
def test_what_is_no_number_is_refused(bad: float, generation: Generation) -> None:
    logits = np.array([0.0, bad, 1.0], dtype=np.float32)
    with pytest.raises(EngineProtocolError):
        sampling.probabilities(logits, generation)
    with pytest.raises(EngineProtocolError):
        sampling.probabilities(np.full(3, -np.inf, dtype=np.float32), generation)


def test_greedy_has_no_distribution() -> None:
    with pytest.raises(UsageError):
        sampling.probabilities(np.zeros(3, dtype=np.float32), Generation(temperature=0))


def test_the_coldest_temperature_is_greedy() -> None:
    logits = np.array([1.0, 1.5, -2.0], dtype=np.float32)
    np.testing.assert_array_equal(sampling.probabilities(logits, Generation(temperature=1e-300)), [0, 1, 0])


@pytest.mark.parametrize("size", [1, 5, 1024, 1025, 5000])
def test_draw_is_the_inverse_of_the_running_sum(size: int) -> None:
    weights = np.random.default_rng(size).exponential(1, size)
    weights[::3] = 0 if size > 1 else 1
    uniform, rng = np.random.default_rng(7), np.random.default_rng(7)
    sums = weights.cumsum()
    for _ in range(300):
        assert sampling.draw(weights, rng) == np.searchsorted(sums, uniform.random() * sums[-1], side="right")


class Fixed(np.random.Generator):
    """A generator that always says the same number."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(1))
        self._number = number

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return self._number


@given(
    weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda weights: max(weights) > 1e-300),
    number=st.sampled_from([0.0, 0.5, 1 - 2**-53]),
    repeats=st.sampled_from([1, 200]),
)
@moderate
def test_impossible_tokens_are_never_drawn(weights: list[float], number: float, repeats: int) -> None:
    given_weights = np.array(weights * repeats)
    assert given_weights[sampling.draw(given_weights, Fixed(number))] > 0


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_nothing_is_drawn_from_nothing(weights: list[float]) -> None:
    with pytest.raises(UsageError):
        sampling.draw(np.array(weights), np.random.default_rng(1))


def test_best_is_the_first_of_equals() -> None:
    assert sampling.best(np.array([0.0, 3.0, 3.0], dtype=np.float32)) == 1
    with pytest.raises(EngineProtocolError):
        sampling.best(np.array([0.0, np.nan], dtype=np.float32))


@given(seed=st.integers(0, 1000), size=st.sampled_from([1, 9, 10, 11, 4000]))
@moderate
def test_confidence_is_a_share_among_ten(seed: int, size: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)
    assume(len(np.unique(logits)) == size)
    token, probability = sampling.confidence(logits)
    kept = sampling.probabilities(logits, free(1, top_k=10))
    assert token == int(logits.argmax())
    assert probability == pytest.approx(kept[token], rel=1e-5)
