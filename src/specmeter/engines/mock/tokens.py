"""A tokenizer for an engine without a vocabulary: 256 bytes, and 256 words for what the mock itself says."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product

from specmeter.record.base import utf8

BYTES = 256
WORDS = 256
WORD_LENGTH = 5


@lru_cache(maxsize=1024)
def tokenize(text: str) -> tuple[int, ...]:
    """Ids below 256 are bytes of the UTF-8 text, the others words. Raises `EngineProtocolError`."""
    known = _word_ids()
    data = utf8(text)
    ids: list[int] = []
    at = 0
    while at < len(data):
        word = known.get(data[at : at + WORD_LENGTH])
        ids.append(data[at] if word is None else word)
        at += 1 if word is None else WORD_LENGTH
    return tuple(ids)


def detokenize(token_ids: tuple[int, ...]) -> str:
    """Inverse of `tokenize`; bytes that are no UTF-8 become U+FFFD."""
    words = _words()
    return b"".join(words[i - BYTES] if i >= BYTES else bytes([i]) for i in token_ids).decode(errors="replace")


@cache
def _words() -> tuple[bytes, ...]:
    """Two syllables each, with the space before them."""
    syllables = [a + b for a, b in product("bdkm", "aeio")]
    return tuple(f" {first}{second}".encode() for first, second in product(syllables, repeat=2))


@cache
def _word_ids() -> dict[bytes, int]:
    return {word: BYTES + index for index, word in enumerate(_words())}
