"""A speedup from yields and costs: at one gamma, over a range of them, and over gamma and alpha together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.prediction import DRAWS, LEVEL, LONGEST, SEED
from specmeter.analysis.prediction.costs import Costs, DrawnCosts
from specmeter.analysis.prediction.drafts import Given, Yields
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.numbers.estimates import of_draws
from specmeter.record import Estimate, Record
from specmeter.theory.acceptance import alpha_from_acceptance_rate
from specmeter.theory.arguments import numbers, probabilities

if TYPE_CHECKING:
    from numpy.random import Generator

    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.theory.arguments import Floats


_HALVINGS = 30
"""Until a break-even alpha is known to nine digits."""


class Parts(Record):
    """Cost of a step, in single-token forward passes of the target."""

    draft: float
    """Drafting."""
    verify: float
    """The target's forward pass over the draft tokens and one more."""
    restore: float
    """Restoring and replaying the state of a recurrent target."""
    rest: float
    """Sampling and other work."""
    first: float = 0.0
    """Share of the extra cost of a request's first step, in which the draft model reads the prompt."""

    @property
    def total(self) -> float:
        """Total."""
        return self.draft + self.verify + self.restore + self.rest + self.first


PARTS = tuple(Parts.model_fields)


class AtGamma(Record):
    """Prediction for one draft length."""

    gamma: int
    speedup: Estimate
    tau: float
    """Tokens per step, including steps without a draft; a replay belongs to its step."""
    drafted: float
    """Draft tokens per step."""
    parts: Parts
    extrapolated: bool
    """Whether acceptance or cost was extrapolated from shorter drafts."""


class Surface(Record):
    """Points of the speedup over gamma and alpha, for drafts of full length; no intervals."""

    gammas: tuple[int, ...]
    alphas: tuple[float, ...]
    speedups: tuple[tuple[float, ...], ...]
    """One row for each gamma, one column for each alpha."""
    break_even: tuple[Estimate | None, ...]
    """The alpha at which each gamma gains nothing and loses nothing; None where no acceptance suffices."""
    best: tuple[int, ...]
    """The gamma among them with the highest speedup, for each alpha; 0 where none gains."""


@dataclass(frozen=True)
class Predicted:
    """Predictions for several draft lengths from one source of costs and one of acceptance."""

    by_gamma: tuple[AtGamma, ...]
    """One per draft length, the shortest first."""
    cost: Message
    """Source of the costs."""
    acceptance: Message
    """Source of the acceptance rate."""
    recurrent: bool
    """Whether the target restores a checkpoint after each rejection and replays accepted tokens."""
    slot_bytes: float = 0.0
    """Memory of each recurrent state that the target keeps instead, one for each draft token of each request."""

    @property
    def best(self) -> AtGamma | None:
        """The draft length with the highest speedup; None if none gains."""
        best = max(self.by_gamma, key=lambda at: at.speedup.point)
        return best if best.speedup.point > 1 else None


def predict(acceptance: Acceptance, costs: Costs, gammas: Sequence[int], *, by_model: bool) -> Predicted:
    """The speedup at each of `gammas`; `by_model` says that a draft model makes the drafts.

    Raises `UsageError` for a gamma below 1 or above `LONGEST`, and where the costs do not know the draft model.
    """
    wanted = check_gammas(gammas)
    yields, table = _draw(acceptance, costs, max(wanted), by_model)
    return Predicted(
        tuple(_at(gamma, yields, table) for gamma in wanted),
        costs.basis,
        acceptance.basis,
        table.recurrent,
        table.slot_bytes,
    )


def draw_costs(costs: Costs, gamma: int, *, by_model: bool, rng: Generator) -> DrawnCosts:
    """What steps of up to `gamma` drafts cost. Raises `UsageError` where the costs do not know the draft model.

    Arms that share costs and whose `rng` begins alike meet the same costs in every draw, so that their ratios leave
    open only what they do not share.
    """
    if by_model and not costs.has_draft:
        raise UsageError(
            f"{costs.basis}: the cost of the draft model is unknown",
            fix="probe the target model together with its draft model, or give the draft model",
        )
    return costs.draw(gamma, DRAWS, rng, by_model)


def draw_speedup(acceptance: Acceptance, table: DrawnCosts, gamma: int, *, rng: Generator) -> tuple[Floats, float]:
    """(drawn speedups at `gamma`, the first one the point; tokens emitted per step at the point).

    `table` was drawn for `gamma`. Raises `UsageError` where no step was measured.
    """
    speedups, _, tau = _speedup(gamma, acceptance.draw(gamma, DRAWS, rng), table)
    return speedups, tau


def surface(costs: Costs, gammas: Sequence[int], alphas: Sequence[float], *, by_model: bool) -> Surface:
    """Speedups over gamma x alpha, the break-even alpha of each gamma and the best gamma of each alpha."""
    wanted = check_gammas(gammas)
    columns = tuple(float(alpha) for alpha in np.atleast_1d(probabilities("alpha", list(alphas))))
    rows = np.empty((len(wanted), len(columns)))
    table = costs.draw(max(wanted), DRAWS, np.random.default_rng(SEED), by_model)
    only = _first(table)
    for column, alpha in enumerate(columns):
        yields = Given.alpha(alpha).draw(max(wanted), 1, np.random.default_rng(SEED))
        for row, gamma in enumerate(wanted):
            rows[row, column] = _speedup(gamma, yields, only)[0][0]
    best = tuple(wanted[int(np.argmax(column))] if column.max() > 1 else 0 for column in rows.T)
    return Surface(
        gammas=wanted,
        alphas=columns,
        speedups=tuple(tuple(float(value) for value in row) for row in rows),
        break_even=tuple(_break_even(gamma, table) for gamma in wanted),
        best=best,
    )


def check_gammas(gammas: Sequence[int]) -> tuple[int, ...]:
    """`gammas` in order, each once. Raises `UsageError` for none, or for a value that is not a draft length."""
    if not gammas:
        raise UsageError("gamma: no draft length given", fix="give at least one draft length")
    values = np.atleast_1d(numbers("gamma", list(gammas), least=1, most=LONGEST, whole=True))
    return tuple(sorted({int(value) for value in values}))


def _draw(acceptance: Acceptance, costs: Costs, longest: int, by_model: bool) -> tuple[Yields, DrawnCosts]:
    rng = np.random.default_rng(SEED)
    yields = acceptance.draw(longest, DRAWS, rng)
    return yields, draw_costs(costs, longest, by_model=by_model, rng=rng)


def _at(gamma: int, yields: Yields, table: DrawnCosts) -> AtGamma:
    speedups, parts, tau = _speedup(gamma, yields, table)
    return AtGamma(
        gamma=gamma,
        speedup=of_draws(speedups, "x", level=LEVEL),
        tau=tau,
        drafted=float(yields.drafted[0, :gamma].sum()),
        parts=parts,
        extrapolated=gamma > min(yields.measured, table.measured),
    )


def _speedup(gamma: int, yields: Yields, table: DrawnCosts) -> tuple[Floats, Parts, float]:
    """Drawn speedups, at most gamma + 1, what a step emits, where noise puts costs below a plain token; the parts of a
    step's cost and the tokens that it emits, at the point."""
    lengths = yields.lengths(gamma)
    draft = (lengths * table.draft[:, : gamma + 1]).sum(axis=1)
    verify = (lengths * table.verify[:, : gamma + 1]).sum(axis=1)
    tau, restore = yields.tau(gamma), np.zeros(len(lengths))
    if table.recurrent:
        chance, kept = yields.rejected(gamma)
        # A replay goes over what was accepted and the token in place of the rejected one, and emits one more.
        restore = chance * (table.verify_at(kept + 1) + table.restore)
        tau = tau + chance
    means = (it[0] for it in (draft, verify, restore, table.rest, table.first * tau))
    parts = Parts(**dict(zip(PARTS, map(float, means), strict=True)))
    speedups = tau / (draft + verify + restore + table.rest + table.first * tau)
    return np.minimum(speedups, gamma + 1), parts, float(tau[0])


def _break_even(gamma: int, table: DrawnCosts) -> Estimate | None:
    """The alpha at which steps of full drafts yield what they cost."""
    if not table.recurrent:
        rates = (table.draft[:, gamma] + table.verify[:, gamma] + table.rest - 1) / gamma
        if rates[0] > 1:
            return None
        alpha = np.asarray(alpha_from_acceptance_rate(np.clip(rates, 0.0, 1.0), gamma))
        return of_draws(alpha, "1", level=LEVEL)
    # How often there is a replay depends on alpha as well, so it is looked for by halving.
    low, high = np.zeros(len(table.rest)), np.ones(len(table.rest))
    if _speedup(gamma, _full(high, gamma), table)[0][0] < 1:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gains = _speedup(gamma, _full(middle, gamma), table)[0] >= 1
        low, high = np.where(gains, low, middle), np.where(gains, middle, high)
    return of_draws(high, "1", level=LEVEL)


def _full(alpha: Floats, gamma: int) -> Yields:
    """Of full drafts, every token accepted with the same probability; one alpha for each draw."""
    rates = np.repeat(alpha[:, np.newaxis], gamma, axis=1)
    return Yields(np.cumprod(rates, axis=1, dtype=np.float64), np.ones_like(rates), rates, gamma)


def _first(table: DrawnCosts) -> DrawnCosts:
    """The point alone."""
    return type(table)(
        verify=table.verify[:1],
        draft=table.draft[:1],
        rest=table.rest[:1],
        restore=table.restore[:1],
        recurrent=table.recurrent,
        measured=table.measured,
        first=table.first,
        slot_bytes=table.slot_bytes,
    )
