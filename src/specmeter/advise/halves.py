"""Which prompts an advice is looked for on, and on which others it is confirmed.

What is best on the prompts by which it was chosen looks a little too good on them. So the prompts of each kind are
dealt out in two halves: screen and race have one, the confirmation the other. A kind of a single prompt is in both.

The user's prompts are often of one kind, `user`, and differ in length, which matters to what a step costs. Where the
longest of a kind has `APART` times the characters of the shortest, its short and long prompts are kinds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from specmeter.advise.advice import AdviceQuestion
from specmeter.record import Prompt

MAX_PROMPTS = 16
"""Of a half, unless there are more kinds: each kind has one at least."""
MAX_OF_KIND = 8
"""Prompts of a kind in a half: with fewer, what differs between prompts has hardly a bound (Student's t of 4: 3.2, of
8: 2.4 standard errors), and more take time from blocks."""
MAX_LOADED = 4
"""Of a half under load, unless there are more clients: prompts share the machine, and blocks are the units."""
MAX_KINDS = 8
APART = 8.0
_MIN_APART = 4
"""Prompts of a kind that are distinguished by length."""


class Halves(NamedTuple):
    """Ids of prompts, in the order of the workloads."""

    search: tuple[str, ...]
    other: tuple[str, ...]
    held_out: bool
    """Whether no prompt is in both."""


def split(prompts: Sequence[Prompt], *, most: int = MAX_PROMPTS) -> Halves:
    """Two halves of the prompts, alike in kinds, of `most` at most."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    told = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))[:MAX_KINDS]
    each = max(1, min(MAX_OF_KIND, most // max(1, len(told))))
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
            found[prompt.id] = name if len(of_kind) >= _MIN_APART and longest >= APART * shortest else kind
    return found


MAX_AT_ONCE = 8
"""Clients that each have a prompt of their own, as far as there are this many."""


def prompts_of_half(asked: AdviceQuestion) -> int:
    """Most prompts of a half."""
    clients = min(max(asked.clients, default=0), MAX_AT_ONCE)
    return max(MAX_LOADED, clients) if clients else MAX_PROMPTS
