"""Single tokens of a text beside random ones, timed in turn: what a rate on random tokens says about text.

A mixture of experts need not send random tokens where it sends words. If it sends them to fewer experts, or one after
the other to the same ones, less has to come from memory: what the token before has read may still lie in a cache. So
rates of such a model on random tokens need not be its rates on text. `llama-bench` decodes random tokens, drawn from
the whole vocabulary, and so does this.

A round is a place in the text: `DEPTH` tokens are put into memory, then `TIMED` are decoded one by one, of the text and
of random tokens, each in the first place every other time. Nothing looks into these forwards.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from specmeter.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.llama_binding.context import Context

DEPTH = 64
"""Tokens in memory before those that are timed."""
TIMED = 24
"""Tokens of a round that are timed, of each sort."""
ROUNDS = 10
"""Rounds that are kept; one before them warms up."""
SEED = 1

_Times = tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...]


class TokenTimes(Record):
    """Mean ms of a single token, round by round; the places of both belong together."""

    text: _Times
    random: _Times


def draw(vocabulary: int, count: int) -> list[int]:
    """Random tokens, each of the vocabulary as likely as any other; always the same ones."""
    return [int(token) for token in np.random.default_rng(SEED).integers(vocabulary, size=count)]


def time_both(context: Context, text: Sequence[int], random: Sequence[int]) -> TokenTimes | None:
    """Decode both in turn; None where either is shorter than a round."""
    needed = DEPTH + TIMED
    if min(len(text), len(random)) < needed:
        return None
    times: dict[str, list[float]] = {"text": [], "random": []}
    sorts = [("text", text), ("random", random)]
    for index in range(ROUNDS + 1):
        for name, tokens in sorts if index % 2 else sorts[::-1]:
            start = (len(tokens) - needed) * index // ROUNDS
            context.cut(0)
            context.extend(tokens[start : start + DEPTH])
            ms = _one_by_one(context, tokens[start + DEPTH : start + needed])
            if index:
                times[name].append(ms)
    return TokenTimes(text=tuple(times["text"]), random=tuple(times["random"]))


def _one_by_one(context: Context, tokens: Sequence[int]) -> float:
    started = time.perf_counter()
    for token in tokens:
        context.decode([token])
    return 1e3 * (time.perf_counter() - started) / len(tokens)
