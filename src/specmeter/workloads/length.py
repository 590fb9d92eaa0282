"""Prompts of an exact number of tokens, cut from text with the target's own tokenizer.

Cutting the token ids of a long text after n tokens is not enough: their text, tokenized again by the engine, may come
out longer or shorter, because tokens merge differently at the cut, a character is split, or a tokenizer adds and drops
a space at the start. So every cut is tokenized again, moved until the count is n, and refused if it never is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from specmeter.errors import ExperimentError
from specmeter.workloads.packaged import sample_text
from specmeter.workloads.spec import Item

BROKEN = "\ufffd"
"""What a detokenizer writes for half a character."""
PLACES_PER_PROMPT = 50
"""Places of the text that are tried before giving up on a prompt."""
MOVES_PER_PLACE = 12
CHARACTERS_PER_TOKEN = 24
"""So much text is tokenized for each token wanted; ordinary text has 1 to 5."""
VOCABULARY = 512
"""Different tokens that random prompts are made of: enough for timing, and few enough to look at one by one."""


class Tokenizer(NamedTuple):
    """The target's tokenizer."""

    tokenize: Callable[[str], tuple[int, ...]]
    """Text -> token ids, without special tokens added."""
    detokenize: Callable[[tuple[int, ...]], str]
    """Token ids -> text."""


def cut(text: str, count: int, tokenizer: Tokenizer) -> str | None:
    """The start of `text` that has exactly `count` tokens; None when no cut has, or when the text is too short."""
    ids = tokenizer.tokenize(text)
    size, tried = count, set[int]()
    while 0 < size <= len(ids) and size not in tried and len(tried) < MOVES_PER_PLACE:
        tried.add(size)
        candidate = tokenizer.detokenize(ids[:size])
        counted = len(tokenizer.tokenize(candidate))
        if counted == count and (BROKEN not in candidate or BROKEN in text):
            return candidate
        size += count - counted or 1
    return None


def cut_lengths(
    text: str, lengths: Sequence[int], per_length: int, seed: int, tokenizer: Tokenizer, place: str
) -> Iterator[Item]:
    """Prompts of each length, beginning at different lines of `text` (at any character where lines are few).

    `place` names the text in messages. Raises `ExperimentError` when a length cannot be reached.
    """
    starts = [0, *(index + 1 for index, character in enumerate(text[:-1]) if character == "\n")]
    if len(starts) < PLACES_PER_PROMPT:
        starts = list(range(len(text)))
    for length in lengths:
        order = random.Random(f"{seed}:{length}").sample(starts, len(starts))
        pieces = (text[start : start + CHARACTERS_PER_TOKEN * length] for start in order)
        for index, prompt in enumerate(_cut_several(pieces, length, per_length, tokenizer, place)):
            yield Item(f"{length}-{index}", f"length-{length}", prompt, token_count=length)


def random_lengths(lengths: Sequence[int], per_length: int, seed: int, tokenizer: Tokenizer) -> Iterator[Item]:
    """Prompts of random tokens, drawn evenly from those that occur in a sample of ordinary text.

    Tokens that are not whole characters are left out. Raises `ExperimentError` when a length cannot be reached.
    """
    known = sorted(set(tokenizer.tokenize(sample_text())))
    drawn = random.Random(f"{seed}").sample(known, min(len(known), VOCABULARY))
    usable = [token for token in drawn if BROKEN not in tokenizer.detokenize((token,))]
    for length in lengths:
        pieces = _random_texts(usable, 2 * length + 64, random.Random(f"{seed}:{length}"), tokenizer)
        texts = _cut_several(pieces, length, per_length, tokenizer, "random tokens")
        for index, prompt in enumerate(texts):
            yield Item(f"{length}-{index}", f"random-{length}", prompt, token_count=length, random_tokens=True)


def _random_texts(usable: Sequence[int], count: int, rng: random.Random, tokenizer: Tokenizer) -> Iterator[str]:
    """Texts of `count` tokens drawn from `usable`; longer than needed, since neighbours may merge."""
    while usable:
        yield tokenizer.detokenize(tuple(rng.choices(usable, k=count)))


def _cut_several(
    pieces: Iterable[str], length: int, per_length: int, tokenizer: Tokenizer, place: str
) -> Iterable[str]:
    """`per_length` different prompts of `length` tokens, from the first pieces that allow it."""
    texts: dict[str, None] = {}
    for piece in islice(pieces, PLACES_PER_PROMPT * per_length):
        text = cut(piece, length, tokenizer)
        if text is not None:
            texts[text] = None
        if len(texts) == per_length:
            return texts
    raise ExperimentError(
        f"workloads: found {len(texts)} of {per_length} prompts of exactly {length} tokens in {place}",
        fix="use a longer text, a smaller length, or a smaller per_length",
    )
