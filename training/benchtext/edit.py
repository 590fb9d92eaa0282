"""A table of towns, then the same table again and again, each time with a change that was asked for.

The cells of the first table are facts about the town of their row, which a model can also know; everything that was
changed since can only be copied from the table before.
"""

from __future__ import annotations

import random

from benchtext.chain import walk
from benchtext.world import CRAFTS, PEOPLE, RIVERS, TOWNS, town

Rows = list[list[str]]
CHOICES = {1: RIVERS, 2: CRAFTS, 3: PEOPLE}
"""Column -> what a cell of it may become."""


def items(rng: random.Random, held_out: bool) -> list[str]:
    """The original table, then two items per task: the request, and the whole table with the change made."""
    number = rng.randint(1, 90)
    rows: Rows = []
    for state in walk(rng, TOWNS, rng.randint(5, 10), held_out):
        known = town(state)
        rows.append([known.name, known.river, known.craft, known.mayor])
    written = [f"Table {number}:\n{_lines(rows)}\n"]
    for _ in range(rng.randint(3, 9)):
        number += 1
        changed, column = rng.choice(rows), rng.choice(list(CHOICES))
        old = changed[column]
        changed[column] = rng.choice([word for word in CHOICES[column] if word != old])
        request = f"Task: in {changed[0]}, {old} becomes {changed[column]}.\nTable {number}:\n"
        written += [request, f"{_lines(rows)}\n"]
    return written


def _lines(rows: Rows) -> str:
    return "".join(" ".join(row) + "\n" for row in rows)
