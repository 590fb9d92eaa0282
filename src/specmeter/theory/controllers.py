"""Controllers: how much to draft or to verify, by what is gained over what is paid, and when to stop by doubt alone.

    utility = (tokens emitted per step) / (time of a step / time of a baseline step)

It is the speedup itself, measured over the last few steps in place of a whole run: above 1 speculation gains, below 1
it loses. Two decisions rest on it here, as pure functions that an engine can call between steps:

- how long drafts should be (Cascade: test a few lengths, keep the best for a while, test again);
- how many nodes of a draft tree are worth verifying (EVICT: those that bring more than they cost).

Sources: Cascade, "Utility-Driven Speculative Decoding for Mixture-of-Experts", arXiv 2506.20675 (abstract read; the
numbers of its schedule second hand). EVICT, "Making Every Verified Token Count", arXiv 2605.00342 (abstract read; the
rule second hand).

Rules that stop drafting look at the draft model alone, one token at a time, before anything is verified. A drafted
token costs the same whether it is accepted or not, and every token after a rejection is lost. So a drafter that notices
its own doubt should stop. The rules differ in what they take for doubt:

    confidence     its best probability is low                      llama.cpp's `p_min`
    entropy        its distribution is flat                         AdaEDL
    rejection      somewhere in this draft, a rejection is likely   SpecDec++

None of them knows what verification costs; where that rises with the draft's length, as with a mixture of experts,
their threshold has to be chosen by the utility or by measurement. Drafts that end by such a rule are censored by their
own length: `theory.acceptance.position_rates` says how to read their acceptance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import distribution, numbers, plain, positive, positives, probabilities

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many

TEST_STEPS = 4
"""Steps over which Cascade measures one draft length (second hand)."""
SET_STEPS = 16
"""Steps for which it keeps the length it chose (second hand)."""
MOST_TRIALS = 4
"""Draft lengths that one test tries at most (second hand)."""
BASELINE_EVERY = 100
"""Steps after which the time of a baseline step is measured again: contexts grow (second hand)."""


def utility(tokens_per_step: float, step_ms: float, baseline_ms: float) -> float:
    """tau / (step / baseline): the speedup over the steps that the means were taken from.

    `tokens_per_step` >= 0 emitted, `step_ms` > 0 per step, `baseline_ms` > 0 per token of plain decoding. Cascade,
    arXiv 2506.20675 (abstract read).
    """
    tokens = numbers("tokens_per_step", tokens_per_step, least=0)
    return tokens * positive("baseline_ms", baseline_ms) / positive("step_ms", step_ms)


class Trial(NamedTuple):
    """A draft length and the utility that it showed in a test."""

    gamma: int
    utility: float


def next_trial(
    trials: Sequence[Trial], *, start: int, longest: int, most_trials: int = MOST_TRIALS, tolerance: float = 0.10
) -> int | None:
    """The draft length to test next, or None when the test is over.

    Hill climbing: the first trial is `start`, the best length known; if it gains the next is longer by one, else
    shorter. As long as a trial beats the one before, go on in its direction; otherwise try the other side of the best.
    The test ends after `most_trials`, when two trials in a row differ by no more than `tolerance`, at `longest`, and
    at length 0, which needs no trial: its utility is 1 by definition.

    Cascade, arXiv 2506.20675, as it is summarised second hand; details that the summary leaves open are ours.
    """
    limit = int(numbers("longest", longest, least=1, whole=True))
    share = numbers("tolerance", tolerance, least=0)
    if not trials:
        return min(max(int(numbers("start", start, least=0, whole=True)), 1), limit)
    _check(trials)
    if len(trials) >= most_trials:
        return None
    last = trials[-1]
    if len(trials) == 1:
        candidate = last.gamma + (1 if last.utility >= 1 else -1)
    else:
        before = trials[-2]
        if abs(last.utility - before.utility) <= share * before.utility:
            return None
        direction = 1 if last.gamma > before.gamma else -1
        best = max(trials, key=lambda trial: trial.utility)
        candidate = last.gamma + direction if last.utility > before.utility else best.gamma - direction
    known = {trial.gamma for trial in trials}
    return candidate if 1 <= candidate <= limit and candidate not in known else None


def chosen_gamma(trials: Sequence[Trial]) -> int:
    """The length to keep after a test: that of the highest utility above 1, the shortest of equals; 0 where none is."""
    _check(trials)
    best = max(trials, key=lambda trial: (trial.utility, -trial.gamma), default=Trial(0, 1.0))
    return best.gamma if best.utility > 1 else 0


def set_steps(falls: int, *, first: int = SET_STEPS, most: int = 4096) -> int:
    """Steps for which a choice is kept: `first`, doubled by every test in a row that ended at length 0, up to `most`.

    Testing costs time exactly where speculation does not pay; backing off bounds that cost. The published schedule is
    said to lose 5 % at worst where fixed lengths 1, 2 and 3 lose 26, 38 and 54 % (Cascade, second hand). The limit
    `most` is ours.
    """
    doubled = int(numbers("falls", falls, least=0, whole=True))
    return int(min(positive("most", most), positive("first", first) * 2.0 ** min(doubled, 64)))


def tree_utilities(path_probabilities: Many, costs: Many) -> Floats:
    """Predicted speedup of verifying the k likeliest nodes of a draft tree, for k = 0, 1, ..., nodes.

        (1 + p_1 + ... + p_k) C(0) / C(k),    p sorted from large to small

    A path probability is the product of acceptance probabilities from the root to a node, so p_1 + ... + p_k is the
    expected number of accepted drafts, and the 1 is the root itself: the token that a step emits anyway. A node is
    never likelier than its parent, so the k likeliest form a tree. A plain draft is a tree without branches.

    `path_probabilities` in [0, 1], shape (nodes,), in any order; `costs` > 0 are times C(0), ..., C(nodes) of a step
    that verifies so many drafts, shape (nodes + 1,), measured beforehand. EVICT, arXiv 2605.00342 (second hand).
    """
    probability = np.atleast_1d(np.asarray(probabilities("path_probabilities", path_probabilities)))
    cost = positives("costs", costs)
    if probability.ndim != 1 or cost.shape != (len(probability) + 1,):
        raise UsageError(
            f"costs has shape {cost.shape}, but {probability.size} nodes need ({probability.size + 1},)",
            fix="give the cost of verifying 0, 1, ..., all nodes: one more than there are nodes",
        )
    emitted = np.concatenate([[1.0], 1 + np.cumsum(np.sort(probability)[::-1])])
    return emitted * cost[0] / cost


def nodes_to_verify(path_probabilities: Many, costs: Many) -> int:
    """k* = argmax over k of (expected tokens) / C(k): how many of the likeliest nodes to verify, the fewest of equals.

    0: verify nothing, decode plainly. See `tree_utilities`. EVICT, arXiv 2605.00342 (second hand).
    """
    return int(np.argmax(tree_utilities(path_probabilities, costs)))


def _check(trials: Sequence[Trial]) -> None:
    for place, trial in enumerate(trials):
        numbers(f"trials[{place}].gamma", trial.gamma, least=0, whole=True)
        numbers(f"trials[{place}].utility", trial.utility, least=0)


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
