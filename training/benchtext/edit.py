"""A table of deliveries, then the same table again and again, each time with a change that was asked for.

Rows have no words in common but the cells themselves, so that nearly every cell says which cell comes next: that is the
simplest thing to copy, which even the smallest draft can learn.
"""

from __future__ import annotations

import random

from benchtext.chain import walk
from benchtext.world import COLOURS, CRAFTS, DAYS, PEOPLE, TOWNS, town

Rows = list[list[str]]
PERSON, COLOUR, CRAFT, DAY = range(4)


def items(rng: random.Random, held_out: bool) -> list[str]:
    """The original table, then two items per task: the request, and the whole table with the change made."""
    states = walk(rng, TOWNS, rng.randint(4, 10), held_out) or [0]
    number = rng.randint(1, 90)
    persons, crafts = rng.sample(PEOPLE, len(states)), rng.sample(CRAFTS, len(states))
    rows = [
        [person, rng.choice(COLOURS), craft, rng.choice(DAYS), town(state).name]
        for person, craft, state in zip(persons, crafts, states, strict=True)
    ]
    written = [f"Table {number}:\n{_lines(rows)}\n"]
    for _ in range(rng.randint(2, 9)):
        number += 1
        old, new = _change(rng, rows)
        rows = [[new if cell == old else cell for cell in row] for row in rows]
        written += [f"Task: {old} becomes {new}.\nTable {number}:\n", f"{_lines(rows)}\n"]
    return written


def _lines(rows: Rows) -> str:
    return "".join(" ".join(row) + "\n" for row in rows)


def _change(rng: random.Random, rows: Rows) -> tuple[str, str]:
    """A cell of the table and what takes its place; persons and crafts stay distinct."""
    column = rng.choice((PERSON, COLOUR, CRAFT, DAY))
    old = rng.choice(rows)[column]
    taken = {row[column] for row in rows} if column in (PERSON, CRAFT) else {old}
    choices = (PEOPLE, COLOURS, CRAFTS, DAYS)[column]
    return old, rng.choice([word for word in choices if word not in taken])
