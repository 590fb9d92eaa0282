"""The oracle: the best draft length at every step of a text, by one who knows where the draft will agree.

With L(i) the tokens of the draft that agree after i tokens (`profile`), c(d) what a step of d drafts costs and V(i)
what is still to be paid, both in plain tokens,

    V(i) = min over d = 0 .. min(D, room) of   c(d) + V(i + a + 1)             a = min(L(i), d), the tokens accepted
                                               c(d) + r(a) + V(i + a + 2)      where the target cannot forget and a < d

and V is 0 at the end of the text. On a target that cannot forget (recurrent, hybrid) a rejection is followed by a
forward that replays what was accepted, costs r(a) and emits one token more. The programme looks at every length at
every place once, so its walk is the cheapest of all, every fixed length's among them; no controller that drafts up to
D tokens can pay less at these costs.

What steps cost is learnt from fixed lengths that were measured beside plain decoding (`fit_costs`): the replay says how
many steps of each length a fixed length took on each text, the clock says what they took together, and c and r are the
non-negative least squares solution, with c(0) = 1 by definition. So whatever a step holds beside forwards is in its
cost, as it is when drafts are accepted, in the same minutes. Between the measured lengths c follows the shape of a step
probe, where there is one: kernels are made for some numbers of rows, and four may be cheaper than three. What lies on
straight lines there is c over that shape, else c itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.profile.replay import Limits, Round

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats


@dataclass(frozen=True)
class Costs:
    """What steps cost, in plain tokens."""

    step: Floats
    """c(d) for d = 0 .. D drafted tokens. Shape (D + 1,)."""
    again: Floats | None = None
    """r(a) for a = 0 .. D accepted tokens; None: the target forgets at no cost. Shape (D + 1,)."""

    @property
    def longest(self) -> int:
        """D."""
        return len(self.step) - 1


@dataclass(frozen=True)
class Walk:
    """A way through a text."""

    rounds: tuple[Round, ...]
    """Its steps; a forward that a rejection makes necessary belongs to the step that was rejected."""
    drafted: Floats
    """How many steps drafted 0 .. D tokens. Shape (D + 1,)."""
    again: Floats
    """How many replays followed a step that accepted 0 .. D tokens. Shape (D + 1,)."""

    def cost(self, costs: Costs) -> float:
        """All of it, in plain tokens. Raises `UsageError` where a step is longer than any whose cost is known."""
        if self.drafted[costs.longest + 1 :].any():
            raise UsageError("a step is longer than any whose cost is known", fix="measure longer drafts")
        length = min(len(self.drafted), len(costs.step))
        replays = 0.0 if costs.again is None else float(self.again[:length] @ costs.again[:length])
        return float(self.drafted[:length] @ costs.step[:length]) + replays


def best_walk(lengths: Sequence[int], costs: Costs, limits: Limits | None = None) -> Walk:
    """The cheapest way through a text, of those that draft up to `costs.longest` tokens; among equals, short drafts.

    `lengths` are the tokens that agree from every place after the first token on (`figures.match_lengths`).
    """
    end, limits = len(lengths), limits or Limits(len(lengths) + 1)
    drafts = np.arange(costs.longest + 1)
    again = np.zeros(costs.longest + 1) if costs.again is None else costs.again
    left_to_pay = np.zeros(end + 1)
    chosen = [0] * end
    for at in range(end - 1, -1, -1):
        tried = drafts[: _most(at, costs.longest, limits) + 1]
        accepted = np.minimum(tried, min(lengths[at], end - at - 1))
        after = at + accepted + 1
        pay = costs.step[: len(tried)]
        if limits.replays:
            replayed = (accepted < tried) & (after < end)
            after = after + replayed
            pay = pay + np.where(replayed, again[accepted], 0.0)
        total = pay + left_to_pay[after]
        chosen[at] = int(total.argmin())
        left_to_pay[at] = total[chosen[at]]
    return _walk(lengths, chosen, costs.longest, limits)


def fixed_walk(lengths: Sequence[int], gamma: int, limits: Limits | None = None, *, longest: int | None = None) -> Walk:
    """The way through a text where every step drafts `gamma` tokens, or as many as there is room for; `longest` is the
    D that its counts reach to, at least gamma."""
    return _walk(lengths, [gamma] * len(lengths), max(gamma, longest or 0), limits or Limits(len(lengths) + 1))


def _most(at: int, longest: int, limits: Limits) -> int:
    """Most tokens to draft in a step that starts `at` tokens after the first."""
    return max(0, min(longest, limits.most(at + 1)))


def _walk(lengths: Sequence[int], wanted: Sequence[int], longest: int, limits: Limits) -> Walk:
    rounds: list[Round] = []
    drafted, again = np.zeros(longest + 1), np.zeros(longest + 1)
    at, end = 0, len(lengths)
    while at < end:
        length = _most(at, wanted[at], limits)
        accepted = min(length, lengths[at], end - at - 1)
        rounds.append(Round(length, accepted))
        drafted[length] += 1
        at += accepted + 1
        if limits.replays and accepted < length and at < end:
            again[accepted] += 1
            at += 1
    return Walk(tuple(rounds), drafted, again)


# --- costs from fixed lengths ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Costs, and how well they explain what they were learnt from."""

    costs: Costs
    residuals: Floats
    """Logarithm of measured over explained time of each text of each fixed length. Shape (walks,)."""
    unknowns: int

    @property
    def variance(self) -> float:
        """Of the logarithm by which one text's time differs from what the costs say."""
        return float(self.residuals @ self.residuals) / max(1, len(self.residuals) - self.unknowns)


def fit_costs(
    walks: Sequence[Walk], measured: Sequence[float], gammas: Sequence[int], shape: Sequence[float] | None = None
) -> Fit:
    """c, and r where there are replays, from what `walks` of fixed lengths `gammas` took: `measured`, in plain tokens.

    `shape` is c(d) for d = 0 .. D up to a factor that changes slowly with d. r is a straight line in the tokens
    accepted. Relative errors are made small, so long texts count no more than short ones. Raises `UsageError` where
    there are fewer walks than unknowns.
    """
    from scipy.optimize import nnls  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    knots = np.unique([0, *gammas]).astype(np.float64)
    length = len(walks[0].drafted) if walks else 0
    steps = np.arange(length, dtype=np.float64)
    weights = np.stack([np.interp(steps, knots, unit) for unit in np.eye(len(knots))], axis=1)
    if shape is not None:
        weights = weights * np.array(shape)[:, np.newaxis]
    counts = np.array([walk.drafted for walk in walks]).reshape(len(walks), length)
    replays = np.array([walk.again for walk in walks]).reshape(len(walks), length)
    times = np.array(measured, dtype=np.float64)
    columns = [counts @ weights[:, 1:]]
    if replays.any():
        columns += [replays.sum(axis=1, keepdims=True), (replays @ steps)[:, np.newaxis]]
    matrix = np.concatenate(columns, axis=1)
    if len(walks) < matrix.shape[1] or not (times > 0).all():
        raise UsageError("costs of steps: too little was measured", fix="measure more fixed lengths or prompts")
    plain = counts @ weights[:, 0]
    found: Floats = np.asarray(nnls(matrix / times[:, np.newaxis], (times - plain) / times)[0], dtype=np.float64)
    known = np.concatenate([[1.0], found[: len(knots) - 1]])
    again = found[len(knots) - 1] + found[len(knots)] * steps if replays.any() else None
    residuals = np.log(times / (matrix @ found + plain))
    return Fit(Costs(weights @ known, again), residuals, matrix.shape[1])
