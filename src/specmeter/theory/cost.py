"""What a step costs and what it yields: speedup, break-even acceptance, and what acceptance permits.

Costs are in units of one target forward of one token, T(1):

    c           one draft forward (one token)                  draft_cost
    v(gamma)    T(gamma + 1) / T(1), verification               verification
    r           the rest of a step (sampling, restoring state)  rest

    S = tau / (gamma c + v(gamma) + r)                                  the general form

It is exact as an identity between means over steps. v = 1 and r = 0 give the classical formula of Leviathan et al. 2023
(arXiv 2211.17192, Theorem 3.8; read in the paper). docs/explanation/prediction.md says when that is nearly true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.acceptance import alpha_from_acceptance_rate, tokens_per_step
from specmeter.theory.arguments import numbers, positive, probabilities
from specmeter.theory.bounds import cost_bound

if TYPE_CHECKING:
    from specmeter.theory.arguments import Many

# --- the classical model ---------------------------------------------------------------------------------------------


def classical_speedup(alpha: float, gamma: float, draft_cost: float) -> float:
    """Walltime improvement (1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1)).

    Assumes independent acceptance, drafts of full length, and that verifying gamma + 1 positions takes as long as
    decoding one token. `alpha` in [0, 1], `gamma` >= 0 whole tokens, `draft_cost` >= 0. Leviathan et al. 2023,
    arXiv 2211.17192, Theorem 3.8 (read in the paper).
    """
    c = numbers("draft_cost", draft_cost, least=0)
    return tokens_per_step(alpha, gamma) / (gamma * c + 1)


# --- the general form ------------------------------------------------------------------------------------------------


def step_cost(gamma: float, verification: float, *, draft_cost: float = 0.0, rest: float = 0.0) -> float:
    """gamma c + v + r: time of a step in target forwards of one token. It is the tau at which nothing is gained.

    `gamma` >= 0 tokens drafted (a mean is fine), `verification` > 0 (measured ones may lie a little below 1),
    `draft_cost` >= 0, `rest` >= 0.
    """
    g, v = numbers("gamma", gamma, least=0), numbers("verification", verification, least=0)
    cost = g * numbers("draft_cost", draft_cost, least=0) + v + numbers("rest", rest, least=0)
    if cost <= 0:
        raise UsageError("verification is 0 and all other costs are 0 too", fix="give T(gamma + 1) / T(1)")
    return cost


# --- break-even ------------------------------------------------------------------------------------------------------


def break_even_rate(gamma: float, verification: float = 1.0, *, draft_cost: float = 0.0, rest: float = 0.0) -> float:
    """Accepted / drafted at which S = 1: (gamma c + v + r - 1) / gamma.

    Exact, whatever the distribution of acceptance, since tau = 1 + accepted per step. 0 where a step costs no more
    than one forward; infinity where no acceptance suffices. `gamma` > 0 tokens drafted per step (a mean is fine).
    """
    g = positive("gamma", gamma)
    rate = (step_cost(g, verification, draft_cost=draft_cost, rest=rest) - 1) / g
    return float("inf") if rate > 1 else max(0.0, rate)


def break_even_alpha(gamma: int, verification: float = 1.0, *, draft_cost: float = 0.0, rest: float = 0.0) -> float:
    """The i.i.d. alpha at which S = 1: tau(alpha, gamma) = gamma c + v + r.

    `break_even_rate`, turned into an alpha by `alpha_from_acceptance_rate`; infinity where no acceptance suffices.
    With v = 1, r = 0 and gamma = 1 it is c: drafting gains exactly if alpha > c.
    """
    rate = break_even_rate(gamma, verification, draft_cost=draft_cost, rest=rest)
    return rate if rate > 1 else alpha_from_acceptance_rate(rate, gamma)


# --- what acceptance permits ------------------------------------------------------------------------------------------


def permitted_speedup(acceptance_rate: float, gamma: float, draft_cost: float = 0.0) -> float:
    """The most that accepted / drafted permits: (1 + acceptance_rate gamma) / (1 + gamma c).

    The numerator is tau, counted and not assumed; the denominator is the least that a step can cost, one target
    forward and its drafts, where no forward costs less than one over a single token. Verification of gamma + 1
    positions only makes it worse. `acceptance_rate` in [0, 1], `gamma` >= 0 tokens drafted per step. Same as
    `theory.bounds.cost_bound`, where the assumptions stand.
    """
    rate, g = probabilities("acceptance_rate", acceptance_rate), numbers("gamma", gamma, least=0)
    return cost_bound(1 + rate * g, g, numbers("draft_cost", draft_cost, least=0))


# --- whole cycles by their width --------------------------------------------------------------------------------------

LEAST_WIDTHS = 4
"""Of a line: two parameters, and something to judge them by."""
OFF_LINE = 0.1
"""Relative distance from which a width is off the line through all before it, if these scatter by less than a third."""


@dataclass(frozen=True)
class CycleLine:
    """k(w) = k0 + c (w - 1): a whole speculative cycle of width w = gamma + 1, in plain decode steps."""

    k0: float
    c: float
    r2: float
    first: float
    """The widths that the line was fitted to."""
    last: float
    fails_at: float | None = None
    """The next width, where the line fails."""
    off: float = 0.0
    """(measured - line) / line at that width."""


def cycle_line(widths: Many, costs: Many) -> CycleLine | None:
    """The line through cycles of widths from 2 on, ascending, up to where it fails: another kernel, a limit of
    arithmetic. None for too few widths.

    thc1006, qwen3.8-speculative-decoding-rtx3090, docs/COST_MODEL.md (147deedf, August 2026): on an RTX 3090 c is 0.25
    to 0.29 and k0 0.89 to 0.94 for widths up to 8; at 9, beyond llama.cpp's MMVQ_MAX_BATCH_SIZE, k is 26 % below it.
    """
    x, k = np.asarray(widths, dtype=np.float64) - 1, np.asarray(costs, dtype=np.float64)
    for known in range(LEAST_WIDTHS, len(x) + 1):
        c, k0 = (float(value) for value in np.polyfit(x[:known], k[:known], 1))
        apart = k / (k0 + c * x) - 1
        scatter = float(np.sqrt(np.mean(apart[:known] ** 2)))
        after = apart[known : known + 2]  # one width alone may be noise
        fails = bool(len(after)) and abs(float(np.sum(np.sign(after)))) == len(after)
        fails = fails and float(np.abs(after).min()) > max(OFF_LINE, 3 * scatter)
        if fails or known == len(x):
            total = float(np.sum((k[:known] - k[:known].mean()) ** 2))
            r2 = 1 - float(np.sum((k[:known] - k0 - c * x[:known]) ** 2)) / total if total > 0 else 1.0
            line = CycleLine(k0, c, r2, float(x[0] + 1), float(x[known - 1] + 1))
            return replace(line, fails_at=float(x[known] + 1), off=float(after[0])) if fails else line
    return None
