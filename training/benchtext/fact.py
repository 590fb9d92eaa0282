"""Short questions and answers about the towns of an invented country, from west to east."""

from __future__ import annotations

import random

from benchtext.chain import walk
from benchtext.world import TOWNS, Town, town


def items(rng: random.Random, held_out: bool) -> list[str]:
    """A header and four to six numbered questions for each town of a walk."""
    states = walk(rng, TOWNS, rng.randint(6, 24), held_out)
    number = rng.randint(1, 300)
    written = [f"Questions and answers about the towns from {town(states[0]).name} to the east.\n\n"]
    for state in states:
        here, neighbour = town(state), town(state + 1)
        for question, answer in _questions(rng, state, here, neighbour):
            written.append(f"Q{number}. {question}\nA{number}. {answer}\n\n")
            number += 1
    return written


def _questions(rng: random.Random, state: int, here: Town, neighbour: Town) -> list[tuple[str, str]]:
    """The order of the questions depends on the place in the chain, so that no form returns at once."""
    name = here.name
    later = here.founded + rng.randint(11, 99)
    asked = [
        (f"Which river runs through {name}?", f"The {here.river} runs through {name}."),
        (f"When was {name} founded?", f"{here.mayor} founded it in {here.founded}."),
        (f"What is made in {name}?", f"People there make {here.craft} in {here.houses} houses."),
        (f"How old was {name} in {later}?", f"It was {later - here.founded} years old."),
    ]
    turn = state % 3
    asked = asked[turn:] + asked[:turn] if turn < 2 else [asked[2], asked[1], asked[3], asked[0]]
    return [*asked, (f"Which town lies east of {name}?", f"East of it lies {neighbour.name}.")]
