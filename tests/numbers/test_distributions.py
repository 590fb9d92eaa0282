"""The permutation test keeps its level and finds real shifts; samples here are drawn from known distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from specmeter.numbers.distributions import Assignments, arrangements, holm, p_value

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
"""Counts of one text for the prompt with this number."""


def text(sharpness: float) -> Draw:
    """Texts of 16 sentences out of 12 that a prompt has for its own, some more often: their tokens come together."""

    def draw(rng: np.random.Generator, prompt: int) -> Floats:
        sentences, liked = world(prompt)
        chances = liked**sharpness
        return sentences[rng.choice(12, size=16, p=chances / chances.sum())].sum(axis=0)

    return draw


@cache
def world(prompt: int) -> tuple[Floats, Floats]:
    """Counts of tokens of each sentence, and how much it is liked."""
    rng = np.random.default_rng([77, prompt])
    sentences = np.array([np.bincount(rng.integers(0, 256, 6), minlength=256) for _ in range(12)])
    return sentences.astype(np.float64), rng.random(12) + 0.1


def wordy(rng: np.random.Generator, prompt: int) -> Floats:
    """As a usual text, with eight words more that are the same whatever the prompt."""
    counts = text(1.0)(rng, prompt)
    counts[:8] += 1
    return counts


def trial(rng: np.random.Generator, one: Draw, other: Draw, prompts: int, texts: int) -> float:
    pairs = [
        (np.array([one(rng, prompt) for _ in range(texts)]), np.array([other(rng, prompt) for _ in range(texts)]))
        for prompt in range(prompts)
    ]
    return p_value(pairs, Assignments(int(rng.integers(2**31))), 399)


@pytest.mark.parametrize(("prompts", "texts"), [(4, 3), (10, 4)])
def test_equal_distributions_are_rarely_suspected(prompts: int, texts: int) -> None:
    rng = np.random.default_rng(1)
    p_values = np.array([trial(rng, text(1.0), text(1.0), prompts, texts) for _ in range(200)])
    for level in (0.01, 0.05):
        expected, spread = 200 * level, math.sqrt(200 * level * (1 - level))
        assert (p_values <= level).sum() <= expected + 3 * spread
    assert 0.4 < p_values.mean() < 0.6


def test_texts_that_share_seeds_are_never_suspected() -> None:
    rng = np.random.default_rng(2)
    own = [np.array([text(1.0)(rng, prompt) for _ in range(4)]) for prompt in range(5)]
    assert p_value([(one, one) for one in own], Assignments(), 1999) == 1


@pytest.mark.parametrize(
    "other", [pytest.param(text(3.0), id="sharper", marks=pytest.mark.slow), pytest.param(wordy, id="wordy")]
)
def test_another_distribution_is_noticed(other: Draw) -> None:
    rng = np.random.default_rng(3)
    noticed = sum(trial(rng, text(1.0), other, 10, 5) <= 0.01 for _ in range(30))
    assert noticed >= 27


def test_one_text_again_and_again_is_noticed() -> None:
    """Greedy decoding that passes for sampling."""
    rng = np.random.default_rng(4)
    noticed = 0
    for _ in range(30):
        pairs = [
            (np.array([text(1.0)(rng, prompt)] * 4), np.array([text(1.0)(rng, prompt) for _ in range(4)]))
            for prompt in range(8)
        ]
        noticed += p_value(pairs, Assignments(), 399) <= 0.01
    assert noticed >= 27


def test_the_same_data_give_the_same_p_value() -> None:
    rng = np.random.default_rng(5)
    pairs = [(rng.random((4, 256)), rng.random((3, 256)) + 0.02) for _ in range(6)]
    assert p_value(pairs, Assignments(), 1999) == p_value(pairs, Assignments(), 1999)


def test_arrangements() -> None:
    assert arrangements([(2, 2)]) == pytest.approx(6)
    assert arrangements([(3, 3), (3, 3)]) == pytest.approx(400)
    assert arrangements([]) == 1
    assert arrangements([(50, 50)] * 50) == math.inf


def test_holm() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a": pytest.approx(0.03), "c": 0.06, "b": 0.06}
    assert holm({"a": 0.9, "b": 0.8})["a"] == 1
    assert holm({}) == {}
