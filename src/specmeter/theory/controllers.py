"""Controllers: how much to draft, by what is gained over what is paid.

    utility = (tokens emitted per step) / (time of a step / time of a baseline step)

It is the speedup itself, measured over the last few steps in place of a whole run: above 1 speculation gains, below 1
it loses. By it an engine can decide between steps how long drafts should be: test a few lengths, keep the best for a
while, test again. Source: Cascade, "Utility-Driven Speculative Decoding for Mixture-of-Experts", arXiv 2506.20675
(abstract read; the numbers of its schedule second hand).

Rules that stop drafting look at the draft model alone (`engines.libllama.policies`). None of them knows what
verification costs; where that rises with the draft's length, as with a mixture of experts, their threshold has to be
chosen by the utility or by measurement. Drafts that end by such a rule are censored by their own length:
`theory.acceptance.position_rates` says how to read their acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.theory.arguments import distribution, numbers, plain, positive

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


def _check(trials: Sequence[Trial]) -> None:
    for place, trial in enumerate(trials):
        numbers(f"trials[{place}].gamma", trial.gamma, least=0, whole=True)
        numbers(f"trials[{place}].utility", trial.utility, least=0)


def entropy(draft: Many) -> float | Floats:
    """H = - sum over x of draft(x) ln draft(x), in nats. Shape (..., vocabulary) to (...)."""
    d = distribution("draft", draft)
    logs = np.log(d, out=np.zeros_like(d), where=d > 0)
    return plain(np.maximum(0.0, -(d * logs).sum(axis=-1)))
