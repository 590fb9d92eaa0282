"""How many tokens a step yields: acceptance, from one probability, from rates by position, and from records of steps.

A step that accepts k tokens emits k + 1, and

    tau = E[tokens emitted per step] = 1 + E[accepted per step],    1 <= tau <= gamma + 1

Three descriptions of the same thing, which docs/explanation/prediction.md tells apart:

    alpha                  one probability for every position, independent of everything (the i.i.d. model)
    conditional rate a_i   probability that draft token i is accepted, given that tokens 1 .. i-1 were accepted
    marginal rate m_i      probability that draft token i is accepted: m_i = a_1 a_2 ... a_i, so it never rises with i

and a fourth, which engines print: accepted / drafted, the acceptance *rate* of a run.

Source: Leviathan, Kalman & Matias 2023, arXiv 2211.17192, section 3 (read in the paper), for the i.i.d. model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from specmeter.theory.arguments import numbers, plain, probabilities

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values

_HALVINGS = 60
"""Bisections of [0, 1]: more than a double can tell apart."""


def tokens_per_step(alpha: float, gamma: float) -> float:
    """tau = (1 - alpha^(gamma+1)) / (1 - alpha) = 1 + alpha + alpha^2 + ... + alpha^gamma.

    Assumes that every draft token is accepted with the same probability, independently of the others (Leviathan et al.
    2023, arXiv 2211.17192, Eq. 1; read in the paper). `alpha` in [0, 1], `gamma` >= 0 whole tokens.
    """
    a, g = np.asarray(probabilities("alpha", alpha)), np.asarray(numbers("gamma", gamma, least=0, whole=True))
    return float(_geometric(a, g))


@overload
def alpha_from_acceptance_rate(acceptance_rate: float, gamma: float) -> float: ...
@overload
def alpha_from_acceptance_rate(acceptance_rate: Many, gamma: Values) -> Floats: ...
def alpha_from_acceptance_rate(acceptance_rate: Values, gamma: Values) -> float | Floats:
    """The alpha of the i.i.d. model under which accepted / drafted would be what was observed.

    Solves (alpha + alpha^2 + ... + alpha^gamma) / gamma = accepted / drafted by bisection: the left side rises from 0
    to 1 with alpha. It holds where every step drafted exactly `gamma` tokens; drafts of varying length, or an engine
    that stops drafting when it is unsure, need rates by position instead. Computed, no formula of a paper.

    `acceptance_rate` in [0, 1], `gamma` >= 1 whole tokens; they broadcast.
    """
    rate = np.asarray(probabilities("acceptance_rate", acceptance_rate))
    g = np.asarray(numbers("gamma", gamma, least=1, whole=True))
    rate, g = np.broadcast_arrays(rate, g)
    low, high = np.zeros(rate.shape), np.ones(rate.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = (_geometric(middle, g) - 1) < rate * g
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return plain(np.where(rate >= 1, 1.0, np.where(rate <= 0, 0.0, (low + high) / 2)))


def _geometric(alpha: Floats, gamma: Floats) -> Floats:
    """1 + alpha + ... + alpha^gamma, exact near alpha = 1 too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # -expm1(n ln a) is 1 - a^n without cancellation; ln 0 = -inf gives 1, as it should.
        sums = -np.expm1((gamma + 1) * np.log(alpha)) / (1 - alpha)
    # Rounding may leave the range by one unit of the last digit.
    return np.clip(np.where(alpha == 1, gamma + 1, sums), 1, gamma + 1)
