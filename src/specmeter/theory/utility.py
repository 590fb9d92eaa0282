"""What is gained over what is paid: the number by which a controller decides how much to draft or to verify.

    utility = (tokens emitted per step) / (time of a step / time of a baseline step)

It is the speedup itself, measured over the last few steps in place of a whole run: above 1 speculation gains, below 1
it loses. Two decisions rest on it here, as pure functions that an engine can call between steps:

- how long drafts should be (Cascade: test a few lengths, keep the best for a while, test again);
- how many nodes of a draft tree are worth verifying (EVICT: those that bring more than they cost).

Sources: Cascade, "Utility-Driven Speculative Decoding for Mixture-of-Experts", arXiv 2506.20675 (abstract read; the
numbers of its schedule second hand). EVICT, "Making Every Verified Token Count", arXiv 2605.00342 (abstract read; the
rule second hand).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import numbers, positive, positives, probabilities

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
