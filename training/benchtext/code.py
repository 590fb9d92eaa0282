"""Python functions with a docstring and a check whose result has to be computed."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchtext.chain import table, walk, words

NOUNS = words(
    """
    price weight score length speed height count level cost size rate depth volume total signal width power charge
    margin offset yield tax mark reading value load delay
    """
)
NAMES = words(
    """
    values items numbers entries samples data rows points
    """
)

# Docstring, body, and what the function computes.
Written = tuple[str, list[str], Callable[[list[int]], int | list[int]]]


def _scale(x: str, k: int) -> Written:
    return (
        f"Multiply each of the {x} by {k}.",
        [
            "    result = []",
            f"    for value in {x}:",
            f"        result.append(value * {k})",
            "    return result",
        ],
        lambda v: [i * k for i in v],
    )


def _sum_above(x: str, k: int) -> Written:
    return (
        f"Add up the {x} above {k}.",
        [
            "    total = 0",
            f"    for value in {x}:",
            f"        if value > {k}:",
            "            total += value",
            "    return total",
        ],
        lambda v: sum(i for i in v if i > k),
    )


def _shift(x: str, k: int) -> Written:
    return f"Add {k} to all {x}.", [f"    return [value + {k} for value in {x}]"], lambda v: [i + k for i in v]


def _count_below(x: str, k: int) -> Written:
    return (
        f"Count how many {x} are below {k}.",
        [
            "    count = 0",
            f"    for value in {x}:",
            f"        if value < {k}:",
            "            count = count + 1",
            "    return count",
        ],
        lambda v: sum(i < k for i in v),
    )


def _clip(x: str, k: int) -> Written:
    return (
        f"Limit every one of the {x} to {k}.",
        [
            "    limited = []",
            f"    while len(limited) < len({x}):",
            f"        limited.append(min({x}[len(limited)], {k}))",
            "    return limited",
        ],
        lambda v: [min(i, k) for i in v],
    )


def _largest(x: str, k: int) -> Written:
    return (
        f"Return the largest of the {x}, but at least {k}.",
        [
            f"    best = {k}",
            f"    for value in {x}:",
            "        best = max(best, value)",
            "    return best",
        ],
        lambda v: max([k, *v]),
    )


def _spread(x: str, k: int) -> Written:
    return (
        f"Difference of extremes of the {x}, plus {k}.",
        [
            f"    low, high = min({x}), max({x})",
            f"    return high - low + {k}",
        ],
        lambda v: max(v) - min(v) + k,
    )


def _keep(x: str, k: int) -> Written:
    return (
        f"Keep the {x} that {k} divides.",
        [
            f"    kept = [value for value in {x} if value % {k} == 0]",
            "    return kept",
        ],
        lambda v: [i for i in v if i % k == 0],
    )


VERBS = {
    "scale": _scale,
    "sum": _sum_above,
    "shift": _shift,
    "count": _count_below,
    "clip": _clip,
    "largest": _largest,
    "spread": _spread,
    "keep": _keep,
}
FUNCTIONS = len(VERBS) * len(NOUNS) * 5
_NAME = table("argument", FUNCTIONS, len(NAMES))


def items(rng: random.Random, held_out: bool) -> list[str]:
    """A module docstring and one function with its check per state of a walk."""
    states = walk(rng, FUNCTIONS, rng.randint(6, 20), held_out)
    number = rng.randint(1, 200)
    written = [f'"""Functions for {_noun(states[0])} and what follows, part {number}."""\n\n\n']
    for state in states:
        written.append(_function(rng, state, number))
        number += 1
    return written


def _noun(state: int) -> str:
    return NOUNS[state % len(NOUNS)]


def _function(rng: random.Random, state: int, number: int) -> str:
    verb = list(VERBS)[state % len(VERBS)]
    argument = NAMES[_NAME[state]]
    constant = 2 + (state * 3 + number) % 11
    described, body, meaning = VERBS[verb](argument, constant)
    name = f"{verb}_{_noun(state)}_{number}"
    # One number that follows from the place, or the likeliest list would always be the same.
    given = [rng.randint(2, 19), 2 + (state * 5 + number) % 18, rng.randint(2, 19)]
    lines = [f"def {name}({argument}):", f'    """{described}"""', *body, "", ""]
    return "\n".join(lines) + f"\nassert {name}({given}) == {meaning(given)}\n\n\n"
