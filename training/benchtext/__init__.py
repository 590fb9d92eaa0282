"""Unlimited seeded text for the bench models: five kinds, one generator each.

A *document* is a list of items: the first one is a header that says what follows, each further one is a complete
question, function, problem, section or edited list. Items make progress on purpose: every one carries a counter and the
successor of the name in the item before it, so that a model that always takes its likeliest token keeps moving instead
of repeating a sentence. Within an item some tokens follow from rules that any model learns, some from tables that a
larger model holds more of, some from arithmetic, and some are plain chance. That mixture is what makes a small draft
agree with a large target often, but not always.

Training and held-out text never meet: the seeds differ, and so do the places where documents may start. Every kind
walks a long closed chain of states (towns, function names, ...); about a seventh of that chain, in whole arcs, is
reserved, and training documents stop before they enter such an arc.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from benchtext import code, edit, fact, reason, zh

Items = list[str]

KINDS: dict[str, Callable[[random.Random, bool], Items]] = {
    "fact": fact.items,
    "code": code.items,
    "reason": reason.items,
    "zh": zh.items,
    "edit": edit.items,
}

# Share of documents of each kind in the training mixture.
SHARES = {"fact": 0.20, "code": 0.20, "reason": 0.22, "zh": 0.16, "edit": 0.22}
CHAT_SHARE = 0.10


def document(kind: str, seed: int, index: int, held_out: bool) -> Items:
    """The items of document number `index` of a kind; the same arguments give the same text on every machine."""
    split = "held-out" if held_out else "training"
    return KINDS[kind](random.Random(f"{split}:{seed}:{kind}:{index}"), held_out)


def in_chat(items: Items, asked: int) -> str:
    """The same document as one ChatML exchange: the user gives the first `asked` items, the answer continues them."""
    question, answer = "".join(items[:asked]).strip("\n"), "".join(items[asked:]).strip("\n")
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"


def stream(seed: int) -> Iterator[str]:
    """Endless training documents, mixed by `SHARES`, some of them as chat."""
    rng = random.Random(f"mixture:{seed}")
    kinds, weights = list(SHARES), list(SHARES.values())
    index = 0
    while True:
        kind = rng.choices(kinds, weights)[0]
        items = document(kind, seed, index, held_out=False)
        asked = rng.randint(1, min(6, len(items) - 1))
        yield in_chat(items, asked) if rng.random() < CHAT_SHARE else "".join(items)
        index += 1
