"""How a draft is verified.

Row i of the n + 1 rows is what the target says about place i, given the draft up to there. Every rule walks along the
draft, stops at the first token that it rejects and puts the target's own token there; if it accepts all, row n gives
one more.

    greedy         accept while the draft is the target's best token
    rejection      accept x with probability min(1, target(x) / draft(x)), else draw from max(0, target - draft)
    sample match   draw the target's own token, accept while the draft is the same

Greedy text is exactly the target's; the other two leave its *distribution* exactly as it is.

Sources: Leviathan, Kalman & Matias 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318, theorem 1
(rejection). Matching is what llama.cpp's server does (common_sampler_sample_and_accept_n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.llama_binding.sampling import best, draw

if TYPE_CHECKING:
    from specmeter.llama_binding.sampling import Floats, Logits

    class TargetRows(Protocol):
        """Distributions by place: an array of shape (places, vocabulary), or `sampling.Rows`."""

        def __len__(self) -> int: ...

        def __getitem__(self, place: int, /) -> Floats: ...

    DraftRows = Sequence[Floats | None] | Floats | None

    """Distributions that the drafted tokens were drawn from. None, for one place or for all: not drawn but chosen."""


class Verification(NamedTuple):
    """What one step emits: the first `accepted` tokens of the draft, then `token`."""

    accepted: int
    token: int
    """The target's own: a correction after a rejection, a bonus after a whole draft."""


def greedy(drafted: Sequence[int], logits: Logits) -> Verification:
    """Accept while the draft is the token of the largest logit. `logits` has shape (len(drafted) + 1, vocabulary).

    Rows after the first rejection are never looked at.
    """
    _check(drafted, len(logits))
    for place, token in enumerate(drafted):
        own = best(logits[place])
        if own != token:
            return Verification(place, own)
    return Verification(len(drafted), best(logits[len(drafted)]))


def rejection(
    drafted: Sequence[int], draft_probs: DraftRows, target_probs: TargetRows, rng: np.random.Generator
) -> Verification:
    """Rejection sampling: the target's distribution, with as many drafts accepted as any rule can.

    `draft_probs` has a row for every drafted token: the distribution that it was drawn from, after the same filters
    and temperature as it was drawn with. A token that was not drawn but chosen (a lookup, a drafter that takes its
    best token) has None in place of its row: all of its probability was on that token, so it is accepted with the
    target's probability of it, and the residual is the target without it. None for all rows where all are such.

    `target_probs` has len(drafted) + 1 rows. Both have shape (..., vocabulary).
    """
    _check(drafted, len(target_probs))
    if draft_probs is not None and len(draft_probs) != len(drafted):
        raise UsageError(
            f"draft_probs has {len(draft_probs)} rows for {len(drafted)} drafted tokens",
            fix="give one distribution per draft token, or None",
        )
    for place, token in enumerate(drafted):
        target = target_probs[place]
        draft = None if draft_probs is None else draft_probs[place]
        if draft is None:
            if rng.random() < target[token]:
                continue
            residual = target.copy()
            residual[token] = 0.0
        else:
            if not draft[token] > 0:
                raise UsageError(
                    f"drafted[{place}] is token {token}, which has probability 0 in its own distribution",
                    fix="give the distribution that the token was drawn from",
                )
            if rng.random() * draft[token] < target[token]:
                continue
            residual = np.maximum(target - draft, 0.0)
        # Equal distributions reject nothing; a residual without any mass can only be rounding.
        return Verification(place, draw(residual if residual.any() else target, rng))
    return Verification(len(drafted), draw(target_probs[len(drafted)], rng))


def sample_match(drafted: Sequence[int], target_probs: TargetRows, rng: np.random.Generator) -> Verification:
    """llama.cpp's rule: draw the target's token at each place, accept while the draft is the same one.

    One number of `rng` for each token that comes out, as in decoding without speculation: with the same seed the text
    is the same, not only its distribution. `target_probs` has len(drafted) + 1 rows of shape (vocabulary,).
    """
    _check(drafted, len(target_probs))
    for place, token in enumerate(drafted):
        own = draw(target_probs[place], rng)
        if own != token:
            return Verification(place, own)
    return Verification(len(drafted), draw(target_probs[len(drafted)], rng))


def _check(drafted: Sequence[int], rows: int) -> None:
    if rows != len(drafted) + 1:
        raise UsageError(
            f"{len(drafted)} draft tokens need {len(drafted) + 1} rows from the target, not {rows}",
            fix="give one row per draft token and one more",
        )
