"""How many tokens a step yields: acceptance, from one probability, from rates by position, and from records of steps.

A step drafts up to gamma tokens; the target verifies them in one forward, accepts those up to the first that it does
not agree with, and adds one token of its own. So a step that accepts k tokens emits k + 1, and

    tau = E[tokens emitted per step] = 1 + E[accepted per step],    1 <= tau <= gamma + 1

Three descriptions of the same thing, kept apart because mixing them up is the usual mistake:

    alpha                  one probability for every position, independent of everything (the i.i.d. model)
    conditional rate a_i   probability that draft token i is accepted, given that tokens 1 .. i-1 were accepted
    marginal rate m_i      probability that draft token i is accepted: m_i = a_1 a_2 ... a_i, so it never rises with i

and a fourth, which engines print: accepted / drafted, the acceptance *rate* of a run. It is below alpha whenever
gamma > 1, because whatever follows a rejection counts as drafted and never as accepted.

Source: Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192,
section 3 (read in the paper), for the i.i.d. model. The rest follows from the definitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import distribution, numbers, plain, probabilities, refusal

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values

_HALVINGS = 60
"""Bisections of [0, 1]: more than a double can tell apart."""


@overload
def tokens_per_step(alpha: float, gamma: float) -> float: ...
@overload
def tokens_per_step(alpha: Many, gamma: Values) -> Floats: ...
@overload
def tokens_per_step(alpha: float, gamma: Many) -> Floats: ...
def tokens_per_step(alpha: Values, gamma: Values) -> float | Floats:
    """tau = (1 - alpha^(gamma+1)) / (1 - alpha) = 1 + alpha + alpha^2 + ... + alpha^gamma.

    Assumes that every draft token is accepted with the same probability, independently of the others (Leviathan et al.
    2023, arXiv 2211.17192, Eq. 1; read in the paper). `alpha` in [0, 1], `gamma` >= 0 whole tokens; they broadcast.
    """
    a, g = np.asarray(probabilities("alpha", alpha)), np.asarray(numbers("gamma", gamma, least=0, whole=True))
    return plain(_geometric(a, g))


@overload
def alpha_from_acceptance_rate(acceptance_rate: float, gamma: float) -> float: ...
@overload
def alpha_from_acceptance_rate(acceptance_rate: Many, gamma: Values) -> Floats: ...
@overload
def alpha_from_acceptance_rate(acceptance_rate: float, gamma: Many) -> Floats: ...
def alpha_from_acceptance_rate(acceptance_rate: Values, gamma: Values) -> float | Floats:
    """The alpha of the i.i.d. model under which accepted / drafted would be what was observed.

    Solves (alpha + alpha^2 + ... + alpha^gamma) / gamma = accepted / drafted by bisection: the left side rises from 0
    to 1 with alpha. It holds where every step drafted exactly `gamma` tokens; drafts of varying length, or an engine
    that stops drafting when it is unsure, need `position_rates` instead. Computed, no formula of a paper.

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


def marginal_rates(conditional: Many) -> Floats:
    """m_i = a_1 a_2 ... a_i. `conditional` has shape (..., gamma); so has the result."""
    return np.cumprod(_rates("conditional", conditional), axis=-1, dtype=np.float64)


def tokens_from_conditional(conditional: Many) -> float | Floats:
    """tau = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_gamma, for drafts of full length.

    `conditional` has shape (..., gamma); the result (...). No independence is assumed beyond what "conditional" says.
    """
    return plain(1 + marginal_rates(conditional).sum(axis=-1))


def tokens_from_marginal(marginal: Many) -> float | Floats:
    """tau = 1 + m_1 + ... + m_gamma, for drafts of full length. `marginal` has shape (..., gamma); the result (...)."""
    return plain(1 + _marginal(marginal).sum(axis=-1))


def tokens_by_gamma(conditional: Many) -> Floats:
    """tau for every draft length from 0 to that of the rates: shape (..., gamma) to (..., gamma + 1).

    Cutting a draft short does not change what happens before the cut. Longer drafts than were measured are not
    answered here: their rates are unknown.
    """
    marginal = marginal_rates(conditional)
    first = np.ones_like(marginal[..., :1])
    return np.cumsum(np.concatenate([first, marginal], axis=-1), axis=-1)


@dataclass(frozen=True)
class PositionRates:
    """What the steps of a run say about acceptance by position, as counts."""

    reached: tuple[int, ...]
    """Steps in which position i was drafted and everything before it accepted: the trials."""
    accepted: tuple[int, ...]
    """Steps in which position i was accepted: the successes."""

    @property
    def conditional(self) -> Floats:
        """a_i = accepted / reached. Shape (positions,)."""
        return np.array(self.accepted, dtype=np.float64) / np.array(self.reached, dtype=np.float64)

    @property
    def marginal(self) -> Floats:
        """m_i for drafts that never end before position i. Shape (positions,)."""
        return np.cumprod(self.conditional, dtype=np.float64)


def position_rates(steps: Iterable[tuple[int, int]]) -> PositionRates:
    """Conditional acceptance by position from (drafted, accepted) of every step.

    A step that drafted d tokens and accepted k < d says: positions 1 .. k were accepted, k + 1 was rejected. One that
    accepted all d says nothing about position d + 1: it ended there by its own length (`p_min`, an n-gram's end, the
    last token), which is censoring, not rejection. So

        a_i = (steps with accepted >= i) / (steps with drafted >= i and accepted >= i - 1)

    which is the product-limit (Kaplan-Meier) estimator with positions in place of times. Dividing by *all* steps
    instead, as some engines print, gives too low a rate wherever drafts differ in length.

    What it assumes: the drafter's stopping does not depend on whether the next token would have been accepted. A
    drafter that stops when it is unsure does just that, and the rates then hold for the tokens that it chose to draft,
    not for drafts forced to be longer.

    Leave out steps that restored a checkpoint: their tokens are verified again in the next step. The positions end
    where no step ever got. Raises `UsageError` without any draft, or where accepted exceeds drafted.
    """
    pairs = list(steps)
    if not any(drafted for drafted, _ in pairs):
        raise UsageError("steps: nothing was drafted", fix="give the steps of an arm that speculates")
    for place, (drafted, accepted) in enumerate(pairs):
        if not (0 <= accepted <= drafted and float(drafted).is_integer() and float(accepted).is_integer()):
            raise UsageError(
                f"steps[{place}] is ({drafted}, {accepted}): whole numbers with 0 <= accepted <= drafted are needed",
                fix="give `step.drafted` first, `step.accepted` second",
            )
    # Position i is tried where min(drafted, accepted + 1) >= i.
    reached = _at_least([min(drafted, accepted + 1) for drafted, accepted in pairs])
    succeeded = _at_least([accepted for _, accepted in pairs])
    return PositionRates(reached, succeeded + (0,) * (len(reached) - len(succeeded)))


def lossless_acceptance(target: Many, draft: Many) -> float | Floats:
    """Acceptance of a draft token under lossless sampling: alpha = sum over x of min(target(x), draft(x)).

    The rule: accept x, drawn from the draft's distribution, with probability min(1, target(x) / draft(x)); otherwise
    draw from the normalised positive part of (target - draft). Output is then distributed as the target's (Leviathan
    et al. 2023, arXiv 2211.17192, section 2.3 and Corollary 3.6, where it is 1 minus half the L1 distance; read in the
    paper). Its mean over contexts is the alpha of the i.i.d. model.

    Both have shape (..., vocabulary) and sum to 1; the result has shape (...).
    """
    t, d = _pair(target, draft)
    return plain(np.minimum(t, d).sum(axis=-1))


def sample_match_acceptance(target: Many, draft: Many) -> float | Floats:
    """Acceptance under llama.cpp's rule: sum over x of target(x) draft(x).

    The target samples its own token as if there were no draft, and the draft token is accepted when it is the same
    one. The output is the target's by construction, but at temperature > 0 agreement of two independent draws is
    rarer than acceptance under `lossless_acceptance`: each product is at most the smaller factor, and even a perfect
    draft (draft = target) is accepted only with probability sum target^2 instead of 1.

    A drafter that proposes its likeliest token does not sample: its distribution is 1 there and 0 elsewhere. Then both
    rules accept with the target's probability of that token, and they agree. Record which rule an engine uses: rates
    of the two cannot be compared.

    Both have shape (..., vocabulary) and sum to 1; the result has shape (...). Derived from the rule as it stands in
    llama.cpp's server; no paper.
    """
    t, d = _pair(target, draft)
    return plain((t * d).sum(axis=-1))


def _geometric(alpha: Floats, gamma: Floats) -> Floats:
    """1 + alpha + ... + alpha^gamma, exact near alpha = 1 too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # -expm1(n ln a) is 1 - a^n without cancellation; ln 0 = -inf gives 1, as it should.
        sums = -np.expm1((gamma + 1) * np.log(alpha)) / (1 - alpha)
    # Rounding may leave the range by one unit of the last digit.
    return np.clip(np.where(alpha == 1, gamma + 1, sums), 1, gamma + 1)


def _rates(name: str, value: Many) -> Floats:
    rates = np.asarray(probabilities(name, value))
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise UsageError(f"{name}: there is no position", fix="give one rate for each draft position, last axis")
    return rates


def _marginal(value: Many) -> Floats:
    rates = _rates("marginal", value)
    rises = np.concatenate([np.zeros_like(rates[..., :1]), np.diff(rates, axis=-1)], axis=-1) > 1e-12
    if rises.any():
        raise refusal(
            "marginal",
            rates,
            rises,
            "a marginal rate cannot exceed the one before it",
            "give P(position i accepted) over all steps that drafted it; conditional rates have their own function",
        )
    return rates


def _at_least(values: list[int]) -> tuple[int, ...]:
    """How many values are at least 1, at least 2, ..., up to the largest."""
    counts = np.bincount(values)[1:]
    return tuple(int(count) for count in np.cumsum(counts[::-1])[::-1])


def _pair(target: Many, draft: Many) -> tuple[Floats, Floats]:
    t, d = distribution("target", target), distribution("draft", draft)
    if t.shape[-1] != d.shape[-1]:
        raise UsageError(
            f"target has {t.shape[-1]} tokens and draft {d.shape[-1]}",
            fix="give both over one vocabulary, with 0 for tokens that a model does not have",
        )
    return t, d
