"""Rates from counts and milliseconds, by one rule for every engine and arm.

Engines print rates of their own, each over its own window; specmeter stores counts and times and computes every rate
here. A rate that cannot be computed is None, never 0 and never a guess.

*The window.* A request produces `predicted_n` tokens, but the first of them costs nothing after the prompt: it is
sampled from the logits of the prompt's last forward. llama.cpp's server therefore ends `prompt_ms` and starts
`predicted_ms` when that first token has been sampled (`server_slot_stats`, tools/server/server-common.h), so
`predicted_ms` covers the other `predicted_n - 1` tokens:

    decode rate [tok/s] = 1000 * (predicted_n - 1) / predicted_ms

Newer builds print the same number as `predicted_per_second`; older ones divided `predicted_n` by the same time, which
overstates 32 tokens by 3 %.

*The conservation law.* After the first token, every successful target forward emits one token of its own plus the draft
tokens that it accepts:

    predicted_n - 1 = accepted + F

F counts target forwards after the prompt: verifications, replays after a restored checkpoint and plain decodes alike
(seen on llama.cpp's server: 47 tokens, 25 accepted, 22 forwards, 8 of them replays). It closes up to the tokens of the
last round that lie beyond a stop or the token limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmeter.record import Step, Timings


def decode_rate(timings: Timings) -> float | None:
    """Tokens per second while decoding; None when fewer than two tokens or no time were measured."""
    return _per_second(timings.predicted_n - 1, timings.predicted_ms)


def prompt_rate(timings: Timings) -> float | None:
    """Prompt tokens processed per second (tokens found in the cache are not in `prompt_n`); None without any."""
    return _per_second(timings.prompt_n, timings.prompt_ms)


def acceptance_rate(timings: Timings) -> float | None:
    """Accepted / drafted tokens; None when nothing was drafted, or the engine does not count it."""
    if not timings.draft_n or timings.draft_n_accepted is None:
        return None
    return timings.draft_n_accepted / timings.draft_n


def target_forwards(timings: Timings, steps: Sequence[Step] = ()) -> int | None:
    """F: target forwards after the prompt; None when that cannot be said.

    Every step is one forward, and emits its accepted tokens and one more. Engines print no line for decodes without a
    draft, so tokens that no step accounts for are taken as one forward each. Without steps this is the conservation law
    solved for F. Either way a failed forward goes unnoticed here: the check `conservation` compares F with the engine's
    own counter.
    """
    decoded = timings.predicted_n - 1
    if decoded < 1:
        return None
    if steps:
        forwards = len(steps) + max(0, decoded - sum(step.accepted + 1 for step in steps))
    elif timings.draft_n_accepted is not None:
        forwards = decoded - timings.draft_n_accepted
    else:
        return None
    return forwards if forwards > 0 else None


def tau(timings: Timings, steps: Sequence[Step] = ()) -> float | None:
    """Tokens emitted per target forward: (predicted_n - 1) / F, which is 1 + accepted / F where the law closes.

    1 for decoding without speculation. No speedup exceeds it where forwards over several tokens cost at least as much
    as one over a single token, because every step costs at least one (`theory.bounds`). None when fewer than two tokens
    were generated, or when the counters leave no forward at all.
    """
    forwards = target_forwards(timings, steps)
    return None if forwards is None else (timings.predicted_n - 1) / forwards


def _per_second(count: int, ms: float) -> float | None:
    return 1000.0 * count / ms if count > 0 and ms > 0 else None
