"""When to stop drafting: rules that look at the draft model alone, one token at a time, before anything is verified.

A drafted token costs the same whether it is accepted or not, and every token after a rejection is lost. So a drafter
that notices its own doubt should stop. The rules differ in what they take for doubt:

    confidence     its best probability is low                      llama.cpp's `p_min`
    entropy        its distribution is flat                         AdaEDL
    rejection      somewhere in this draft, a rejection is likely   SpecDec++

None of them knows what verification costs; where that rises with the draft's length, as with a mixture of experts,
their threshold has to be chosen by `theory.utility` or by measurement. Drafts that end by such a rule are censored by
their own length: `theory.acceptance.position_rates` says how to read their acceptance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from specmeter.theory.arguments import distribution, numbers, plain, probabilities

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many


def stops_by_confidence(top_probability: float, p_min: float) -> bool:
    """Whether the draft model's best probability is below `p_min`: llama.cpp's rule. Both in [0, 1].

    llama.cpp applies it to a token that is already computed: the forward is paid for, the token thrown away.
    """
    return probabilities("top_probability", top_probability) < probabilities("p_min", p_min)


def entropy(draft: Many) -> float | Floats:
    """H = - sum over x of draft(x) ln draft(x), in nats. Shape (..., vocabulary) to (...)."""
    d = distribution("draft", draft)
    logs = np.log(d, out=np.zeros_like(d), where=d > 0)
    return plain(np.maximum(0.0, -(d * logs).sum(axis=-1)))


def entropy_acceptance(entropy: float, scale: float) -> float:
    """1 - sqrt(g H): what the draft's entropy alone says about its acceptance, `scale` = g.

    A flat distribution cannot agree with the target's by much. It is negative for very flat ones: no probability, but
    a score. `entropy` >= 0 in nats, `scale` > 0, fitted. AdaEDL, arXiv 2410.18351 (second hand).
    """
    return 1 - math.sqrt(numbers("scale", scale, least=0) * numbers("entropy", entropy, least=0))


def stops_by_entropy(entropy: float, scale: float, threshold: float) -> bool:
    """Whether 1 - sqrt(g H) < lambda, `threshold` = lambda. AdaEDL, arXiv 2410.18351 (second hand)."""
    return entropy_acceptance(entropy, scale) < numbers("threshold", threshold)


def rejection_probability(acceptance: Many) -> float:
    """P(at least one of the tokens drafted so far is rejected) = 1 - product of their acceptance probabilities.

    `acceptance` are conditional probabilities, predicted for each token of the draft so far, shape (tokens,); 0
    without any token.
    """
    values = np.asarray(probabilities("acceptance", acceptance))
    return float(1 - values.prod())


def stops_by_rejection(acceptance: Many, threshold: float) -> bool:
    """Whether P(a rejection so far) > h, `threshold` = h in [0, 1]. SpecDec++, arXiv 2405.19715 (second hand).

    Optimal, by that paper's argument, where the costs of drafting and verifying a token are constant.
    """
    return rejection_probability(acceptance) > probabilities("threshold", threshold)
