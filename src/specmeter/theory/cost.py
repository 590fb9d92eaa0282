"""What a step costs and what it yields: speedup, best draft length, break-even acceptance; and one formula that fails.

Costs are in units of one target forward of one token, T(1):

    c           one draft forward (one token)                  draft_cost
    v(gamma)    T(gamma + 1) / T(1), verification               verification
    r           the rest of a step (sampling, restoring state)  rest

    S = tau / (gamma c + v(gamma) + r)                                  the general form

v = 1 and r = 0 give the classical formula of Leviathan et al. 2023 (arXiv 2211.17192, Theorem 3.8; read in the
paper). Verification at the price of one token is nearly true of a dense model whose weights have to be read anyway
while arithmetic is spare; a mixture of experts reads more experts for more tokens (`theory.roofline`), and there v is
what decides. The general form is exact as an identity between means over steps: with mean draft length for gamma and
mean costs it is the measured speedup. As a prediction it is as good as its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.acceptance import alpha_from_acceptance_rate, tokens_by_gamma, tokens_per_step
from specmeter.theory.arguments import numbers, plain, positive, probabilities
from specmeter.theory.bounds import cost_bound

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values

LONGEST = 64
"""Draft lengths that are searched unless another limit is given: beyond it, drafts wait longer than anybody would."""


# --- the classical model ---------------------------------------------------------------------------------------------


@overload
def classical_speedup(alpha: float, gamma: float, draft_cost: float) -> float: ...
@overload
def classical_speedup(alpha: Many, gamma: Values, draft_cost: float) -> Floats: ...
@overload
def classical_speedup(alpha: float, gamma: Many, draft_cost: float) -> Floats: ...
def classical_speedup(alpha: Values, gamma: Values, draft_cost: float) -> float | Floats:
    """Walltime improvement (1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1)).

    Assumes independent acceptance, drafts of full length, and that verifying gamma + 1 positions takes as long as
    decoding one token. `alpha` in [0, 1], `gamma` >= 0 whole tokens (they broadcast), `draft_cost` >= 0. Leviathan et
    al. 2023, arXiv 2211.17192, Theorem 3.8 (read in the paper).
    """
    c = numbers("draft_cost", draft_cost, least=0)
    tau, g = _tau_and_gamma(alpha, gamma)
    return plain(tau / (g * c + 1))


def some_gamma_helps(alpha: float, draft_cost: float) -> bool:
    """Whether any draft length gains time in the classical model: alpha > c.

    gamma = 1 then gives (1 + alpha) / (1 + c) > 1, and if one token does not pay for its draft, neither does the
    next, which is accepted more rarely. Leviathan et al. 2023, arXiv 2211.17192, Corollary 3.9 (read in the paper).
    Necessary, not sufficient, once verification costs more than one token.
    """
    return probabilities("alpha", alpha) > numbers("draft_cost", draft_cost, least=0)


def optimal_gamma(alpha: float, draft_cost: float, *, longest: int = LONGEST) -> int:
    """Draft length from 0 to `longest` with the highest classical speedup; the shortest one of equals.

    0 means that no length gains. Without any draft cost every further token gains, and the answer is `longest`. For
    costs of verification take the largest of `speedup_by_gamma`.
    """
    limit = int(numbers("longest", longest, least=0, whole=True))
    return int(np.argmax(classical_speedup(alpha, np.arange(limit + 1), draft_cost)))


# --- the general form ------------------------------------------------------------------------------------------------


@overload
def step_cost(gamma: float, verification: float, *, draft_cost: float = 0.0, rest: float = 0.0) -> float: ...
@overload
def step_cost(gamma: Many, verification: Values, *, draft_cost: float = 0.0, rest: float = 0.0) -> Floats: ...
def step_cost(gamma: Values, verification: Values, *, draft_cost: float = 0.0, rest: float = 0.0) -> float | Floats:
    """gamma c + v + r: time of a step in target forwards of one token. It is the tau at which nothing is gained.

    `gamma` >= 0 tokens drafted (a mean is fine), `verification` > 0 (measured ones may lie a little below 1),
    `draft_cost` >= 0, `rest` >= 0. `gamma` and `verification` broadcast.
    """
    g = np.asarray(numbers("gamma", gamma, least=0))
    v = np.asarray(numbers("verification", verification, least=0))
    cost = g * numbers("draft_cost", draft_cost, least=0) + v + numbers("rest", rest, least=0)
    if not (cost > 0).all():
        raise UsageError("verification is 0 and nothing else costs anything", fix="give T(gamma + 1) / T(1)")
    return plain(cost)


@overload
def speedup(
    tau: float, gamma: float, verification: float = 1.0, *, draft_cost: float = 0.0, rest: float = 0.0
) -> float: ...
@overload
def speedup(
    tau: Many, gamma: Many, verification: Values = 1.0, *, draft_cost: float = 0.0, rest: float = 0.0
) -> Floats: ...
def speedup(
    tau: Values, gamma: Values, verification: Values = 1.0, *, draft_cost: float = 0.0, rest: float = 0.0
) -> float | Floats:
    """S = tau / (gamma c + v(gamma) + r).

    `tau` tokens emitted per step, from 1 to gamma + 1; the rest as in `step_cost`. All three broadcast. S <= tau
    wherever v >= 1; where a forward over several tokens costs less than one over one, S may exceed it
    (`theory.bounds`).
    """
    t, g = np.asarray(numbers("tau", tau, least=1)), np.asarray(numbers("gamma", gamma, least=0))
    if (t > g + 1 + 1e-9).any():
        raise UsageError(
            f"tau is {t.max():g}: a step of gamma drafts emits at most gamma + 1 tokens",
            fix="give tokens emitted per step as tau, and the tokens drafted per step as gamma",
        )
    cost = np.asarray(step_cost(g, verification, draft_cost=draft_cost, rest=rest))
    return plain(t / cost)


def speedup_by_gamma(conditional: Many, verification: Many, *, draft_cost: float = 0.0, rest: float = 0.0) -> Floats:
    """S for draft lengths 0, 1, ..., gamma, from measured rates and costs. Shape (gamma + 1,).

    `conditional` are the acceptance rates by position, shape (gamma,); `verification` is v(0), v(1), ..., v(gamma),
    shape (gamma + 1,), with v(0) = 1. Length 0 is plain decoding, S = 1: it has neither drafts nor `rest`.
    """
    tau = tokens_by_gamma(conditional)
    if tau.ndim != 1 or np.shape(verification) != tau.shape:
        raise UsageError(
            f"verification has shape {np.shape(verification)}, but {tau.shape[-1] - 1} rates need ({tau.shape[-1]},)",
            fix="give v(0), v(1), ..., v(gamma): one more than there are rates",
        )
    gains = speedup(tau, np.arange(len(tau)), verification, draft_cost=draft_cost, rest=rest)
    return np.concatenate([[1.0], gains[1:]])


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
    With v = 1, r = 0 and gamma = 1 it is c: the condition of `some_gamma_helps`.
    """
    rate = break_even_rate(gamma, verification, draft_cost=draft_cost, rest=rest)
    return rate if rate > 1 else alpha_from_acceptance_rate(rate, gamma)


# --- a claim, and what acceptance permits ----------------------------------------------------------------------------


def claimed_batch_speedup(gamma: float, sequential_ms: float, draft_ms: float, verify_ms: float) -> float:
    """gamma T_seq / (T_draft + T_verify): a published formula that is not a speedup. Kept in order to be recognised.

    Eq. 2 of "Does Speculative Decoding Help Mixture-of-Experts?" (AtomGradient, 2026: 306 runs on an M2 Ultra; read)
    calls it the speedup by "batch verification amortization", said to hold even when all drafts are rejected.

    Why it fails. The numerator is the time to *decode* gamma tokens, the denominator the time to *check* gamma drafts:
    it counts every drafted token as output. But a rejected draft is not output. A step that accepts nothing emits one
    token and took T_draft + T_verify >= T_seq for it, so it is slower than plain decoding however cheap checking is.
    The factor is the speedup only at full acceptance, and not even then: such a step emits gamma + 1 tokens.

    What acceptance permits is `permitted_speedup`. All times in ms, above 0 (`draft_ms` may be 0); `gamma` > 0.
    """
    step_ms = numbers("draft_ms", draft_ms, least=0) + positive("verify_ms", verify_ms)
    return positive("gamma", gamma) * positive("sequential_ms", sequential_ms) / step_ms


def permitted_speedup(acceptance_rate: float, gamma: float, draft_cost: float = 0.0) -> float:
    """The most that accepted / drafted permits: (1 + acceptance_rate gamma) / (1 + gamma c).

    The numerator is tau, counted and not assumed; the denominator is the least that a step can cost, one target
    forward and its drafts, where no forward costs less than one over a single token. Verification of gamma + 1
    positions only makes it worse. `acceptance_rate` in [0, 1], `gamma` >= 0 tokens drafted per step. Same as
    `theory.bounds.cost_bound`, where the assumptions stand.
    """
    rate, g = probabilities("acceptance_rate", acceptance_rate), numbers("gamma", gamma, least=0)
    return cost_bound(1 + rate * g, g, numbers("draft_cost", draft_cost, least=0))


def _tau_and_gamma(alpha: Values, gamma: Values) -> tuple[Floats, Floats]:
    g = np.asarray(numbers("gamma", gamma, least=0, whole=True))
    return np.asarray(tokens_per_step(np.asarray(probabilities("alpha", alpha)), g)), g
