"""Closed chains of states, with arcs of them kept away from training."""

from __future__ import annotations

import random

ARC = 20
RESERVED_EVERY = 7
RESERVED_ARC = 3


def is_reserved(state: int) -> bool:
    """True for states that only held-out documents may start in."""
    return (state // ARC) % RESERVED_EVERY == RESERVED_ARC


def walk(rng: random.Random, length: int, count: int, held_out: bool) -> list[int]:
    """`count` successive states of a chain of `length` states, or fewer where a training walk meets a reserved arc.

    A held-out walk starts near the beginning of a reserved arc, so that most of its items lie inside the arc.
    """
    while True:
        start = rng.randrange(length)
        if is_reserved(start) == held_out and (not held_out or start % ARC < 6):
            break
    states = [(start + step) % length for step in range(count)]
    if held_out:
        return states
    for position, state in enumerate(states):
        if is_reserved(state):
            return states[:position]
    return states


def table(name: str, size: int, choices: int) -> list[int]:
    """A fixed pseudo-random table: `size` numbers below `choices`, known to every document."""
    rng = random.Random(f"table:{name}")
    return [rng.randrange(choices) for _ in range(size)]


def words(text: str) -> list[str]:
    """A list of words written as running text."""
    return text.split()
