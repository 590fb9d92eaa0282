"""Which tokens are scored, and what follows from their surprise: against plain loops and definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specmeter.analysis.perplexity import perplexity, relative, token_error, window_length, windows_of
from specmeter.errors import UsageError


@pytest.mark.parametrize(("tokens", "context"), [(1024, 512), (5000, 512), (3000, 200), (777, 33)])
def test_windows_follow_each_other_and_their_second_half_is_scored(tokens: int, context: int) -> None:
    windows = windows_of(tokens, context)
    # As the tool does it: tokens[start + first + 1] to tokens[start + context - 1] of each whole chunk.
    expected = [
        start + place + 1
        for start in range(0, tokens - context + 1, context)
        for place in range(context // 2, context - 1)
    ]
    assert scored(windows_of(tokens, context)) == expected
    assert windows.scored == context - context // 2 - 1


@pytest.mark.parametrize(("tokens", "context", "stride"), [(3000, 512, 256), (3000, 256, 64), (1025, 512, 512)])
def test_with_a_stride_each_token_behind_the_first_window_is_scored_once(
    tokens: int, context: int, stride: int
) -> None:
    windows = windows_of(tokens, context, stride)
    assert windows.length == math.ceil((context + stride // 2) / 256) * 256
    places = scored(windows)
    assert places == list(range(windows.length - stride, windows.length - stride + windows.count * stride))
    assert places[-1] < tokens
    assert tokens - places[-1] <= stride + 1


def test_the_last_window_ends_within_the_text() -> None:
    for tokens in range(768, 1400):
        windows = windows_of(tokens + 1, 512, 128)
        assert (windows.count - 1) * windows.step + windows.length <= tokens + 1


def test_a_text_too_short_for_a_window_is_refused_with_the_numbers() -> None:
    assert windows_of(512, 512).count == 1
    with pytest.raises(UsageError, match="the text has 511 tokens; one window needs 512"):
        windows_of(511, 512)
    with pytest.raises(UsageError, match="768 and one more"):
        windows_of(768, 512, 256)


@pytest.mark.parametrize(("context", "stride"), [(15, 0), (0, 0), (64, 256), (16, -1)])
def test_windows_that_cannot_be_are_refused(context: int, stride: int) -> None:
    with pytest.raises(UsageError):
        windows_of(100_000, context, stride)


def test_a_stride_of_a_whole_window_is_refused() -> None:
    length = window_length(512, 10_000)
    with pytest.raises(UsageError):
        windows_of(10**6, 512, length * 2)


def test_perplexity_is_the_exponential_of_the_mean() -> None:
    surprise = [0.2, 0.9, 0.4, 0.6]
    found = perplexity(surprise, scored=10)
    assert found.point == pytest.approx(math.exp(0.525))
    mean, half = 0.525, 3.182446 * np.std(surprise, ddof=1) / 2
    assert found.low == pytest.approx(math.exp(mean - half), rel=1e-6)
    assert found.high == pytest.approx(math.exp(mean + half), rel=1e-6)
    assert found.n == 4
    assert "40 tokens in 4 windows" in found.method


def test_one_window_and_windows_that_do_not_vary_have_no_interval() -> None:
    assert perplexity([0.5], 100).low is None
    assert perplexity([0.5, 0.5], 100).high is None


def test_surprise_that_is_no_number_is_refused() -> None:
    for bad in ([], [math.nan, 0.5], [math.inf]):
        with pytest.raises(UsageError):
            perplexity(bad, 10)


def test_the_error_of_tokens_is_the_standard_error_of_their_mean() -> None:
    values = np.random.default_rng(1).exponential(0.7, 500)
    found = token_error(float(values.sum()), float(np.square(values).sum()), len(values))
    assert found == pytest.approx(math.exp(values.mean()) * values.std(ddof=1) / math.sqrt(500), rel=1e-9)
    assert token_error(2.0, 2.0, 2) is None
    assert token_error(1.0, 1.0, 1) is None


def test_pairing_windows_takes_their_difficulty_out() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(1.5, 0.5, 60)
    first, second = hard + rng.normal(0, 0.01, 60), hard + 0.02 + rng.normal(0, 0.01, 60)
    change = relative(second.tolist(), first.tolist(), 255)
    assert change.point == pytest.approx(math.exp(float((second - first).mean())))
    assert change.low is not None
    assert change.high is not None
    assert change.low > 1
    alone = perplexity(first.tolist(), 255)
    assert alone.low is not None
    assert alone.high is not None
    assert (change.high / change.low - 1) < 0.1 * (alone.high / alone.low - 1)


def test_other_windows_cannot_be_paired() -> None:
    with pytest.raises(UsageError):
        relative([1.0, 2.0], [1.0], 10)


def scored(windows: object) -> list[int]:
    """Places in the text of all scored tokens, by a plain loop."""
    from specmeter.analysis.perplexity import Windows

    assert isinstance(windows, Windows)
    return [
        index * windows.step + place + 1
        for index in range(windows.count)
        for place in range(windows.first, windows.length - 1)
    ]
