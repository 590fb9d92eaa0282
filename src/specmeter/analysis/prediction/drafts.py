"""What steps yield: how long drafts are, and how many of their tokens are accepted, from whatever is known about it.

`Given`     one alpha for all positions, a rate for each, or a range of alpha that is assumed
`Counted`   the steps of requests that were measured, by prompt

Both become `Yields`, drawn for every gamma at once. Counted steps hold for another gamma by following one step token by
token:

    h_j = P(the drafter continues to token j | tokens 1 .. j-1 were drafted and accepted)
    a_j = P(token j is accepted | it was drafted and all before it were accepted)
    E[accepted] = sum over j <= gamma of  h_1 a_1 h_2 a_2 ... h_j a_j

h is 1 for a draft model without `p_min`; for n-gram methods h_1 is how often there is a draft at all. What a step costs
depends on the length of its draft whatever was accepted, so P(drafted >= j) is counted too. Beyond `Yields.measured`
the rates of the last half of the positions continue (docs/explanation/prediction.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.numbers.rates import target_forwards
from specmeter.theory.arguments import numbers, probabilities

if TYPE_CHECKING:
    from numpy.random import Generator

    from specmeter.record import Reply
    from specmeter.theory.arguments import Floats


@dataclass(frozen=True)
class Yields:
    """Drawn for gamma = 1 .. columns; row 0 is the point."""

    reached: Floats
    """P(accepted >= j) of a step that may draft this many. Shape (draws, gamma)."""
    drafted: Floats
    """P(drafted >= j). Shape (draws, gamma)."""
    rates: Floats
    """P(token j is accepted | drafted, and all before it accepted). Shape (draws, gamma)."""
    measured: int
    """Positions up to here were measured or given; the rest continues from them."""

    def tau(self, gamma: int) -> Floats:
        """Tokens emitted per step. Shape (draws,)."""
        return 1 + self.reached[:, :gamma].sum(axis=1)

    def lengths(self, gamma: int) -> Floats:
        """P(a step drafts 0, 1, ..., gamma tokens). Shape (draws, gamma + 1)."""
        at_least = np.concatenate([np.ones((len(self.drafted), 1)), self.drafted[:, :gamma]], axis=1)
        return at_least - np.concatenate([at_least[:, 1:], np.zeros((len(self.drafted), 1))], axis=1)

    def rejected(self, gamma: int) -> tuple[Floats, Floats]:
        """(P(a step rejects a token), mean accepted in such a step), if length tells nothing about acceptance.

        Shapes (draws,).
        """
        lengths = self.lengths(gamma)[:, 1:]
        whole = np.cumprod(self.rates[:, :gamma], axis=1)
        complete = (lengths * whole).sum(axis=1)
        chance = np.clip(self.drafted[:, 0] - complete, 0.0, 1.0)
        kept = self.reached[:, :gamma].sum(axis=1) - (lengths * whole * np.arange(1, gamma + 1)).sum(axis=1)
        return chance, np.clip(_ratio(kept, chance), 0.0, gamma)


class Acceptance(Protocol):
    """A source of acceptance."""

    @property
    def basis(self) -> Message:
        """Where it is from."""
        ...

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        """For gamma up to `longest`; row 0 is the point."""
        ...


@dataclass(frozen=True)
class Given:
    """Acceptance as stated: full drafts, each token accepted with the conditional rate of its position.

    `low` and `high` are the rates between which the truth is taken to lie, all positions together; the last position
    continues. `hits` is how often a step has a draft at all, with its range. Raises `UsageError` for a value that is
    not a probability.
    """

    rates: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hits: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """(point, low, high)."""
    basis: Message = field(default_factory=lambda: Message("rates.unnamed"))

    def __post_init__(self) -> None:
        if not self.rates:
            raise UsageError("acceptance: no rate given", fix="give alpha, or one rate for each position")
        for rates in (self.rates, self.low, self.high, self.hits):
            probabilities("acceptance", rates)
        if any(rates and len(rates) != len(self.rates) for rates in (self.low, self.high)):
            raise UsageError("acceptance: one range is needed for each rate", fix="give a range for each rate")

    @classmethod
    def alpha(
        cls, alpha: float, low: float | None = None, high: float | None = None, basis: Message | None = None
    ) -> Given:
        """One probability for every position, independent of everything."""
        ends = ((alpha if low is None else low,), (alpha if high is None else high,))
        return cls((alpha,), *ends, basis=basis or Message("rates.alpha", alpha=alpha))

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        place = rng.random((draws, 1))
        place[0] = -1.0
        rates = _between(self.rates, self.low, self.high, place, longest)
        hits = _between((self.hits[0],), (self.hits[1],), (self.hits[2],), rng.random((draws, 1)), 1)
        hits[0] = self.hits[0]
        return Yields(
            np.cumprod(rates, axis=1, dtype=np.float64) * hits,
            np.broadcast_to(hits, rates.shape),
            rates,
            longest if len(self.rates) == 1 else len(self.rates),
        )


def _between(
    point: Sequence[float], low: Sequence[float], high: Sequence[float], place: Floats, longest: int
) -> Floats:
    """Rates at a place between low (0) and high (1), the point where it is negative. Shape (draws, longest)."""

    def extended(rates: Sequence[float]) -> Floats:
        used = np.asarray(rates or point, dtype=np.float64)[:longest]
        return np.concatenate([used, np.full(max(0, longest - len(used)), used[-1])])

    drawn = extended(low) + place * (extended(high) - extended(low))
    return np.where(place < 0, extended(point), drawn)


Steps = Counter[tuple[int, int, int]]
"""(gamma in force, drafted, accepted) -> how many steps; a forward without a draft is (gamma, 0, 0)."""


def count_steps(reply: Reply, gamma: int) -> Steps:
    """The steps of one request, forwards without a draft included.

    A round that restored a checkpoint counts with what it accepted; its replay does not count as a step.
    """
    steps: Steps = Counter()
    replays = False
    for step in reply.steps:
        if not (replays and step.drafted == 0):
            steps[gamma, min(step.drafted, gamma), min(step.accepted, gamma)] += 1
        replays = step.restored
    forwards = target_forwards(reply.timings, reply.steps) or 0
    if plain := max(0, forwards - len(reply.steps)):
        steps[gamma, 0, 0] += plain
    return steps


@dataclass
class Counted:
    """Steps that were measured, by prompt; more may be added while a run continues."""

    prompts: dict[str, Steps] = field(default_factory=dict[str, Steps])
    basis: Message = field(default_factory=lambda: Message("rates.measured"))
    other_prompts: int | None = None
    """Of this many other prompts of the kind is predicted; None: of the very same ones, whose texts are known."""
    replayed: bool = False
    """Not counted but followed on the texts: exactly what the arm would do."""

    def add(self, prompt_id: str, steps: Mapping[tuple[int, int, int], int]) -> None:
        """Steps of one more request on a prompt."""
        self.prompts.setdefault(prompt_id, Counter()).update(steps)

    @property
    def longest(self) -> int:
        """The longest draft that was in force."""
        return max((gamma for steps in self.prompts.values() for gamma, _, _ in steps), default=0)

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return sum(drafted * n for steps in self.prompts.values() for (_, drafted, _), n in steps.items())

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        """Raises `UsageError` where no step was measured."""
        known = min(self.longest, longest)
        if not any(steps.total() for steps in self.prompts.values()):
            raise UsageError(
                "acceptance: no steps were measured", fix="use another source, or measure a configuration first"
            )
        counts = np.stack([_tally(steps, known) for steps in self.prompts.values()])
        # Of the very prompts that were counted every draw is the point.
        every, draws = draws, 1 if self.other_prompts is None else draws
        weights = self._weights(draws, rng)
        sums = np.tensordot(weights, counts, axes=1)
        steps, drafted, at_risk, tried, accepted = (sums[:, index] for index in range(5))
        going_on = _share(tried, at_risk, known, longest)
        rates = _share(accepted, tried, known, longest)
        lengths = np.minimum.accumulate(_ratio(drafted, steps), axis=1)
        if longest > known:
            last = np.ones(draws) if known < 2 else _ratio(lengths[:, -1], lengths[:, (known - 1) // 2])
            last = np.minimum(1.0, last) ** (1 / max(1, known - 1 - (known - 1) // 2))
            more = np.arange(1, longest - known + 1)
            lengths = np.concatenate([lengths, lengths[:, -1:] * last[:, np.newaxis] ** more], axis=1)
        reached = np.cumprod(going_on * rates, axis=1, dtype=np.float64)
        reached, lengths, rates = (np.broadcast_to(it, (every, longest)) for it in (reached, lengths, rates))
        return Yields(reached, lengths, rates, known)

    def _weights(self, draws: int, rng: Generator) -> Floats:
        """How much of each prompt is in a draw; row 0 is the data itself. Shape (draws, prompts)."""
        prompts = len(self.prompts)
        weights = np.ones((draws, prompts))
        if self.other_prompts is not None:
            likely = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=draws) / prompts
            weights = rng.multinomial(self.other_prompts, likely).astype(np.float64)
            weights[0] = 1.0
        return weights


def _tally(steps: Steps, longest: int) -> Floats:
    """Rows: steps that might draft j tokens; that did; with j-1 accepted; those that went on; with j accepted."""
    numbers("longest", longest, least=1, whole=True)
    rows = np.zeros((5, longest))
    for (gamma, drafted, accepted), n in steps.items():
        limit = min(gamma, longest)
        rows[0, :limit] += n
        rows[1, : min(drafted, limit)] += n
        rows[2, : min(accepted + 1, limit)] += n
        rows[3, : min(accepted + 1, drafted, limit)] += n
        rows[4, : min(accepted, limit)] += n
    return rows


def _share(part: Floats, whole: Floats, known: int, longest: int) -> Floats:
    """part / whole by position; where nothing came so far, and beyond what is known, that of the last half."""
    half = slice((known - 1) // 2, known)
    tail = _ratio(part[:, half].sum(axis=1), whole[:, half].sum(axis=1))[:, np.newaxis]
    found = np.divide(part, whole, out=np.broadcast_to(tail, part.shape).copy(), where=whole > 0)
    return np.concatenate([found, np.repeat(tail, longest - known, axis=1)], axis=1)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
