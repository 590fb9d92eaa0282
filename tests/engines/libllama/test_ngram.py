"""The lookup drafts what llama.cpp's `ngram-simple` drafts, against a transcription of its search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.engines.llama_cpp.draft_rules import NgramLookup
from specmeter.errors import UsageError


def searched(n: int, m: int, tokens: list[int], sampled: int) -> list[int]:
    """llama.cpp's rule by its own variables: `tokens` without the last one, a search backwards, no position 0."""
    cur_len = len(tokens)
    if cur_len <= n + m + 1:
        return []
    pattern = [*tokens[cur_len - n + 1 : cur_len], sampled]
    match_pos = 0
    j = cur_len - n - 1
    while j > 0:
        if all(tokens[j + k] == pattern[k] for k in range(n)):
            match_pos = j
            break
        j -= 1
    if match_pos == 0:
        return []
    copy_max = min(m, cur_len - (match_pos + n))
    if copy_max < n:
        return []
    return tokens[match_pos + n : match_pos + n + copy_max]


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=150),
    n=st.integers(1, 5),
    m=st.integers(1, 8),
    strides=st.lists(st.integers(1, 6), min_size=1, max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_drafts_what_llama_cpp_drafts(text: list[int], n: int, m: int, strides: list[int]) -> None:
    lookup, length, step = NgramLookup(n, m), 1, 0
    while length <= len(text):
        expected = searched(n, m, text[: length - 1], text[length - 1])
        assert lookup.draft(text[:length], 1000) == expected
        assert lookup.draft(text[:length], 2) == expected[:2]
        length += strides[step % len(strides)]
        step += 1


def test_what_followed_the_newest_match() -> None:
    text = [9, 1, 2, 5, 5, 1, 2, 6, 7, 8, 8, 1, 2]
    assert NgramLookup(2, 4).draft(text, 4) == [6, 7, 8, 8]
    assert NgramLookup(2, 4).draft(text, 1) == [6]
    assert NgramLookup(2, 4).draft(text, 0) == []


def test_short_texts_and_short_drafts_give_nothing() -> None:
    # 13 tokens: one more than n + m + 2 are needed, that is m <= 8.
    text = [9, 1, 2, 5, 5, 1, 2, 6, 7, 8, 8, 1, 2]
    assert NgramLookup(2, 8).draft(text, 8) == [6, 7, 8, 8, 1]
    assert NgramLookup(2, 9).draft(text, 9) == []
    # A longest draft below n never drafts: llama.cpp throws away what is shorter than n.
    assert NgramLookup(2, 1).draft(text, 1) == []


def test_the_first_token_starts_no_match() -> None:
    tail = [3, 4, 5, 6, 7, 1, 2]
    assert NgramLookup(2, 2).draft([1, 2, *tail], 2) == []
    assert NgramLookup(2, 2).draft([0, 1, 2, *tail], 2) == [3, 4]


def test_reset_forgets() -> None:
    lookup = NgramLookup(2, 4)
    text = [9, 1, 2, 5, 5, 1, 2, 6, 7, 8, 8, 1, 2]
    assert lookup.draft(text, 4)
    with pytest.raises(UsageError, match="shorter"):
        lookup.draft(text[:9], 4)
    lookup.reset()
    other = [4, 4, 4, 3, 0, 3, 0, 3, 1, 2]
    assert lookup.draft(other, 4) == []


@pytest.mark.parametrize(("n", "longest"), [(0, 4), (3, 0)])
def test_lengths_are_at_least_one(n: int, longest: int) -> None:
    with pytest.raises(UsageError):
        NgramLookup(n, longest)


def test_colliding_hashes_do_not_matter() -> None:
    # -1 and -2 have one hash in CPython, and so have the tuples of them.
    assert hash((-1, 5)) == hash((-2, 5))
    text = [0, -1, 5, 7, 7, -2, 5, 6, 6, 4, 4, -1, 5]
    assert NgramLookup(2, 2).draft(text, 2) == [7, 7]


def test_a_long_text_all_at_once_and_bit_by_bit() -> None:
    text = np.random.default_rng(1).integers(0, 12, 3000).tolist()
    grown = NgramLookup(3, 6)
    for length in range(1, len(text)):
        drafted = grown.draft(text[:length], 6)
    assert drafted == NgramLookup(3, 6).draft(text[: len(text) - 1], 6)
    assert drafted
