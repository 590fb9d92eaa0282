"""Which prompts an advice is looked for on, and on which others it is confirmed.

What is best on the prompts by which it was chosen is a little too good on them. So the prompts of each kind are dealt
out in two halves: screen and race have one, the confirmation the other. A kind of a single prompt is in both.

The user's prompts are often of one kind, `user`, and differ in length, which matters to what a step costs. Where the
longest of a kind has `APART` times the characters of the shortest, its short and long prompts are kinds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from specmeter.record import Prompt

MOST_PROMPTS = 4
"""Of a half, unless there are more kinds: each kind has one at least."""
MOST_KINDS = 8
APART = 8.0
_LEAST_APART = 4
"""Prompts of a kind that are told apart by length."""


class Halves(NamedTuple):
    """Ids of prompts, in the order of the workloads."""

    search: tuple[str, ...]
    other: tuple[str, ...]
    held_out: bool
    """Whether no prompt is in both."""


def split(prompts: Sequence[Prompt], *, most: int = MOST_PROMPTS) -> Halves:
    """Two halves of the prompts, alike in kinds, of `most` at most."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    told = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))[:MOST_KINDS]
    each = max(1, most // max(1, len(told)))
    search, other, held_out = set[str](), set[str](), True
    for kind in told:
        # By their digests: an order that has nothing to do with what they say.
        drawn = [prompt.id for prompt in sorted(by_kind[kind], key=lambda prompt: (prompt.sha256, prompt.id))]
        held_out &= len(drawn) > 1
        search.update(drawn[0::2][:each])
        other.update((drawn[1::2] or drawn)[:each])
    ids = [prompt.id for prompt in prompts]
    return Halves(tuple(it for it in ids if it in search), tuple(it for it in ids if it in other), held_out)


def kinds_by_length(prompts: Sequence[Prompt]) -> dict[str, str]:
    """Prompt id -> kind, `user-short` or `user-long` where the prompts of a kind differ much in length."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    found: dict[str, str] = {}
    for kind, of_kind in by_kind.items():
        lengths = {prompt.id: sum(len(it["content"]) for it in prompt.messages) for prompt in of_kind}
        shortest, longest = max(1, min(lengths.values())), max(lengths.values())
        middle = math.sqrt(shortest * longest)
        for prompt in of_kind:
            name = f"{kind}-{'long' if lengths[prompt.id] > middle else 'short'}"
            found[prompt.id] = name if len(of_kind) >= _LEAST_APART and longest >= APART * shortest else kind
    return found
