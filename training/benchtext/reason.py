"""Long word problems solved step by step: every number after the first one has to be worked out."""

from __future__ import annotations

import random

from benchtext.chain import walk
from benchtext.world import PEOPLE, THINGS

PROBLEMS = 41 * 20  # 41 and 20 have no common divisor: the walk meets every pair of a person and a thing
OWNERS = [*PEOPLE, "Max"]


def items(rng: random.Random, held_out: bool) -> list[str]:
    """A header and one problem with its solution per state of a walk."""
    states = walk(rng, PROBLEMS, rng.randint(5, 16), held_out)
    number = rng.randint(1, 250)
    written = [f"Problems about {THINGS[states[0] % len(THINGS)]} and other things, solved step by step.\n\n"]
    for state in states:
        written.append(_problem(rng, state, number))
        number += 1
    return written


def _problem(rng: random.Random, state: int, number: int) -> str:
    owner, things = OWNERS[state % len(OWNERS)], THINGS[state % len(THINGS)]
    held = start = 20 + (number * 7 + state) % 60
    lines = [f"Problem {number}. {owner} has {held} {things}."]
    for step in range(1, 4 + state % 3):
        held, told = _step(rng, (state + step * 3) % 5, held, number, things)
        lines.append(f"Step {step}: {told}")
    lines += [_verdict(state, held, start), _parity(state // 3, held), f"Answer {number}: {held} {things}."]
    return "\n".join(lines) + "\n\n"


def _verdict(state: int, held: int, start: int) -> str:
    """Whether there are more than at first, said in one of three ways."""
    more, difference = held > start, abs(held - start)
    worked = f"{max(held, start)} - {min(held, start)} = {difference}"
    if state % 3 == 0:
        return f"That is {'more' if more else 'not more'} than {start}: {worked}."
    if state % 3 == 1:
        return f"From {start} it {'rose' if more else 'fell'} to {held}: {worked}."
    return f"{'Gained' if more else 'Lost'} in all: {worked}."


def _parity(form: int, held: int) -> str:
    """Whether the number is even or odd, said in one of three ways."""
    parity = "even" if held % 2 == 0 else "odd"
    if form % 3 == 0:
        return f"Since {held} ends in {held % 10}, it is {parity}."
    if form % 3 == 1:
        return f"{held} is {parity}, as its last digit {held % 10} is."
    return f"The digit {held % 10} at the end makes {held} {parity}."


def _step(rng: random.Random, form: int, held: int, number: int, things: str) -> tuple[int, str]:
    """One change of the number held, and the sentence that works it out."""
    # Were every amount chance, a model that takes the likeliest token would say the same one again and again.
    amount = rng.randint(3, 29) if rng.random() < 0.4 else (number + 4 * form) % 17 + 3
    if form == 0 and held < 90:
        return held * 2, f"the {things} double, {held} * 2 = {held * 2}."
    if form == 1 and held > 60 and held % 2 == 0:
        return held // 2, f"half are lost, {held} / 2 = {held // 2}."
    if form in (2, 3) and held > amount + 5:
        return held - amount, f"then {amount} go away, so {held} - {amount} = {held - amount}."
    return held + amount, f"now {amount} come in, which makes {held} + {amount} = {held + amount}."
