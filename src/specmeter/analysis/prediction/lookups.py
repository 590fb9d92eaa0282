"""What `ngram-map-k` drafts along a text, as if the request before had a prompt of the same length.

A server keeps the table from one request to the next. At each it forgets what lay beyond the prompt before, and does
not look again at places up to there: after a prompt of the same length (a warm-up is one) only what is generated is
looked up. What is left of other texts is not on record, so this is not a replay that a counter could be held against,
but near enough to predict by: drafted tokens were the server's in 17 of 18 requests, on prompts of 56 to 215 tokens.

Read in common/ngram-map.cpp of llama.cpp (`common_ngram_map_draft`, key_only): the table holds for each n-gram the
first place that it was entered with; a key that was drafted from drafts next time as many tokens as were accepted
then, and none after a rejection at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from specmeter.profile.replay import PLAIN, Round

if TYPE_CHECKING:
    from specmeter.profile.replay import Limits


def follow_map(prompt: Sequence[int], text: Sequence[int], n: int, longest: int, limits: Limits) -> Iterator[Round]:
    """Every step from the first token of `text` to its end."""
    begin, entered, at = len(prompt), len(prompt) - 1, 1
    places: dict[tuple[int, ...], int] = {}
    kept: dict[tuple[int, ...], int] = {}
    while at < len(text):
        history = [*prompt, *text[:at]]
        known, key = history[:-1], tuple(history[-n:])
        newest = len(known) - n - longest - 1
        draft: list[int] = []
        if len(known) >= 2 * n + longest:
            place = places.get(key)
            for new in chain(range(begin - n - longest - 1, entered, -1), range(newest, max(begin, entered), -1)):
                gram = tuple(known[new : new + n])
                if place is None and gram == key:
                    place = new
                places.setdefault(gram, new)
            entered = max(newest, entered)
            if place is not None and place > 0:
                draft = known[place + n : place + n + min(longest, kept.get(key, longest))]
        draft = draft[: max(0, limits.most(at))]
        left = text[at : len(text) - 1]
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, left, strict=False)))
        if draft:
            kept[key] = accepted
        yield Round(len(draft), accepted) if draft else PLAIN
        at += accepted + 1
