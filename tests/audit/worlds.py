"""Speculative decoding whose truth is known, because it was drawn.

A `World` says how often drafts are accepted, how that differs from prompt to prompt, and what forwards cost. Its steps
are drawn one by one with a seed, so that the counts keep every law of counting, and the times follow from the counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """What is true. Times in units of a plain token, `plain_ms` aside."""

    seed: int
    gamma: int = 4
    acceptance: float = 0.7
    """Chance that a draft is accepted, given those before it were, for the median prompt."""
    spread: float = 0.0
    """Standard deviation of the log odds of that chance from prompt to prompt."""
    draft_cost: float = 0.05
    """Of one draft token."""
    per_token: float = 0.02
    """What each further token adds to a target forward."""
    second: float = 1.0
    """Time of a forward over two tokens, `per_token` aside: below 1 where a CPU has a slower kernel for one row."""
    plain_ms: float = 20.0
    noise: float = 0.01
    """Relative standard deviation of every timing."""
    prompts: int = 8
    tokens: int = 256
    """Tokens generated per prompt, the first included."""


@dataclass(frozen=True)
class Request:
    """One prompt, decoded plainly and with drafts."""

    name: str
    predicted: int
    drafted: int
    accepted: int
    lengths: tuple[int, ...]
    """Drafts accepted by each step."""
    plain_ms: float
    ms: float

    @property
    def steps(self) -> int:
        """Verifications."""
        return len(self.lengths)

    @property
    def speedup(self) -> float:
        """Over plain decoding of the same tokens."""
        return self.plain_ms / self.ms


def requests(world: World) -> list[Request]:
    """All prompts of a world, drawn."""
    draw = random.Random(world.seed)
    return [_request(world, f"prompt-{number:02d}", draw) for number in range(world.prompts)]


def _request(world: World, name: str, draw: random.Random) -> Request:
    odds = world.acceptance / (1 - world.acceptance) * 2.718281828 ** draw.gauss(0, world.spread)
    chance = odds / (1 + odds)
    left, drafted, lengths, units = world.tokens - 1, 0, list[int](), 0.0
    while left > 0:
        drafts = min(world.gamma, max(0, left - 1))
        taken = 0
        while taken < drafts and draw.random() < chance:
            taken += 1
        lengths.append(taken)
        drafted += drafts
        left -= taken + 1
        forward = 1.0 if drafts == 0 else world.second + world.per_token * drafts
        units += forward + world.draft_cost * drafts
    plain = (world.tokens - 1) * world.plain_ms * (1 + draw.gauss(0, world.noise))
    spent = units * world.plain_ms * (1 + draw.gauss(0, world.noise))
    return Request(name, world.tokens, drafted, sum(lengths), tuple(lengths), plain, spent)


@dataclass(frozen=True)
class Sums:
    """All requests together."""

    tokens: int
    drafted: int
    accepted: int
    steps: int
    plain_ms: float
    ms: float

    @property
    def tau(self) -> float:
        """Tokens per verification, the target's own included."""
        return 1 + self.accepted / self.steps

    @property
    def acceptance(self) -> float:
        """Accepted / drafted."""
        return self.accepted / self.drafted

    @property
    def baseline(self) -> float:
        """Plain tokens per second."""
        return 1e3 * self.tokens / self.plain_ms

    @property
    def rate(self) -> float:
        """Tokens per second with drafts."""
        return 1e3 * self.tokens / self.ms

    @property
    def speedup(self) -> float:
        """By total time."""
        return self.plain_ms / self.ms


def together(drawn: Sequence[Request]) -> Sums:
    """Sums over requests; the first token of each belongs to its prompt and is left out."""
    return Sums(
        sum(request.predicted - 1 for request in drawn),
        sum(request.drafted for request in drawn),
        sum(request.accepted for request in drawn),
        sum(request.steps for request in drawn),
        sum(request.plain_ms for request in drawn),
        sum(request.ms for request in drawn),
    )
