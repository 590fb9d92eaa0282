"""Upper bounds on a speedup, on a rate and on counters, as functions of numbers.

Symbols, used here and in every message that cites a bound:

    gamma   most draft tokens per step                  g       mean draft tokens per step, g <= gamma
    a       acceptance rate, accepted / drafted         tau     tokens emitted per target forward
    c       draft cost: time of one draft forward over time of one target forward of one token
    S       speedup: decode rate over the decode rate of the same target without speculation
    F       successful target forwards after the prompt, rounds and plain decodes alike
    T(n)    time of a target forward over n tokens
    m       the cheapest forward that a step can have, in plain ones: min T(n) / T(1) for n = 1 .. gamma + 1, so m <= 1

A step costs at least the cheapest forward, m T(1), and at least T(1) (m + g c) if its g drafts are made one after the
other before it. Nothing else is assumed. What remains are ratios of sums over the steps of a run, so mean values per
step may be put in without any error:

    S <= (sum of emitted tokens) T(1) / (sum of step times) <= tau / m          speedup-above-tau
    S <= tau / (m + g c)                                                        speedup-above-cost-bound

m = 1 is *not* a law (docs/explanation/prediction.md). So m is an argument of these functions; if not measured, tau /
S says how small it would have to be (`cheapest_forward_needed`). A claim above a bound *with the m that was measured*
is false, or the baseline was not what it is called. All functions raise `ValueError` for arguments outside the ranges
that their docstrings name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_EXACT = 1e-9
"""What sums of printed digits are off by at most."""
CHEAP_FORWARD = 0.5
"""Least m that is believed of a CPU where nothing measured it: 0.67 was seen, and a quarter of that is left to other
machines and to noise."""


def tau_from_acceptance(acceptance: float, gamma: float) -> float:
    """Most tokens per target forward that an acceptance rate permits: 1 + a gamma.

    Accepted per step = a x drafted per step <= a gamma; the target adds one token of its own. It holds for accepted /
    drafted over a whole run, for the mean over prompts of such ratios, and for the probability alpha of the theory,
    since alpha + alpha^2 + ... + alpha^gamma <= alpha gamma. It does not hold for "share of the output that came from
    the draft", which some tools call acceptance.

    `acceptance` in [0, 1], `gamma` >= 0 (tokens per step).
    """
    _require(0 <= acceptance <= 1, "acceptance", acceptance)
    _require(gamma >= 0, "gamma", gamma)
    return 1 + acceptance * gamma


def tau_from_counts(accepted: float, forwards: float) -> float:
    """Tokens per target forward from counters: 1 + accepted / F.

    `accepted` >= 0 tokens, `forwards` > 0 target forwards. With steps in place of forwards it is what one step emits;
    the two differ when some forwards verify nothing.
    """
    _require(accepted >= 0, "accepted", accepted)
    _require(forwards > 0, "forwards", forwards)
    return 1 + accepted / forwards


def fewest_forwards(decoded: float, accepted: float, gamma: float | None = None) -> float:
    """Fewest target forwards that can have produced `decoded` tokens, of which at most `accepted` were drafts.

    Each forward emits one token of the target's own, so F >= decoded - accepted; and no forward emits more than
    gamma + 1, so F >= decoded / (gamma + 1). `decoded` > 0 counts tokens without the first of each generation, which
    comes from the prompt's forward.
    """
    _require(decoded > 0, "decoded", decoded)
    _require(accepted >= 0, "accepted", accepted)
    _require(gamma is None or gamma >= 0, "gamma", gamma)
    by_length = 1.0 if gamma is None else math.ceil(decoded / (gamma + 1) * (1 - 1e-12))
    return max(decoded - accepted, by_length)


def tau_bound(tau: float, cheapest_forward: float = 1.0) -> float:
    """Most that a speedup can be: tau / m, which is tau itself where no forward costs less than one over one token.

    `tau` >= 1 tokens per target forward; `cheapest_forward` in (0, 1]: min T(n) / T(1), n = 1 .. gamma + 1.
    """
    return cost_bound(tau, 0.0, 0.0, cheapest_forward)


def cheapest_forward_needed(speedup: float, tau: float, drafting: float = 0.0) -> float:
    """How cheap a forward has to be for a speedup to be possible: m <= tau / S - g c, in plain forwards.

    Above 1 it asks for nothing; at 0 or below, drafting alone takes longer than the whole run. `speedup` > 0, `tau`
    >= 1, `drafting` >= 0: what the drafts of a mean step cost, g c.
    """
    _require(speedup > 0, "speedup", speedup)
    _require(tau >= 1, "tau", tau)
    _require(drafting >= 0, "drafting", drafting)
    return tau / speedup - drafting


def cost_bound(tau: float, drafted_per_step: float, draft_cost: float, cheapest_forward: float = 1.0) -> float:
    """Speedup that remains after paying for the drafts of each step: tau / (m + g c).

    Assumes that drafts are made by a model, one token per forward, on the same device as the target, before the step
    that verifies them: true for a plain draft model, not for n-gram tables (c is about 0), for drafters that emit a
    block per forward, nor for a draft on another machine that works while the target verifies.

    `tau` >= 1, `drafted_per_step` >= 0 (mean over the same forwards as tau), `draft_cost` >= 0 (draft forward / target
    forward; rate of the target on its own / rate of the draft on its own); `cheapest_forward` in (0, 1]: m, 1 where no
    forward over up to gamma + 1 tokens costs less than one over a single token.
    """
    _require(tau >= 1, "tau", tau)
    _require(drafted_per_step >= 0, "drafted_per_step", drafted_per_step)
    _require(draft_cost >= 0, "draft_cost", draft_cost)
    _require(0 < cheapest_forward <= 1, "cheapest_forward", cheapest_forward)
    return tau / (cheapest_forward + drafted_per_step * draft_cost)


def cost_bound_any_length(acceptance: float, gamma: float, draft_cost: float, cheapest_forward: float = 1.0) -> float:
    """The cost bound when only the longest draft is known: the best over all draft lengths g from 0 to gamma.

    A step without a draft emits one token for one plain forward. One with g drafts emits (1 + a g) for (m + g c), which
    only grows or only falls with g, so that its largest value lies at g = 1 or at g = gamma: no mixture of steps beats
    max(1, (1 + a) / (m + c), (1 + a gamma) / (m + gamma c)). With m = 1 and a < c the best is not to draft, and the
    bound says only that nothing can be gained. Where every draft has full length (no p_min, no n-gram misses),
    `cost_bound` with g = gamma is sharper.

    `acceptance` in [0, 1], `gamma` >= 0, `draft_cost` >= 0, `cheapest_forward` in (0, 1].
    """
    lengths = (min(1.0, gamma), gamma) if gamma > 0 else ()
    permitted = (cost_bound(tau_from_acceptance(acceptance, g), g, draft_cost, cheapest_forward) for g in lengths)
    return max((1.0, *permitted))


def drafting_ms(drafted: float, draft_rate: float) -> float:
    """Least time to draft that many tokens one after the other, in ms: 1000 drafted / draft rate.

    A run that took less did not make those drafts with that model. `drafted` >= 0 tokens, `draft_rate` > 0 tokens per
    second of the draft on its own, on the device where it ran. Same assumptions as `cost_bound`, except that the draft
    may run elsewhere.
    """
    _require(drafted >= 0, "drafted", drafted)
    _require(draft_rate > 0, "draft_rate", draft_rate)
    return 1000 * drafted / draft_rate


def traffic(bytes_per_forward: float, tokens_per_second: float, tau: float = 1.0) -> float:
    """Least memory traffic of decoding, in bytes per second: weights of one forward x forwards per second.

    Every target forward reads the weights it uses once; it emits tau tokens. Compare with the peak bandwidth of the
    memory that holds them. `bytes_per_forward` > 0 are the weights read by a forward of one token: nearly the whole
    file of a dense model (a token embedding that is not shared with the output layer is looked up, not read), but only
    the shared part and the active experts of a mixture of experts, where the file size is not a lower bound. Weights
    that fit into caches escape the bound. `tokens_per_second` > 0 of one sequence; `tau` >= 1.
    """
    _require(bytes_per_forward > 0, "bytes_per_forward", bytes_per_forward)
    _require(tokens_per_second > 0, "tokens_per_second", tokens_per_second)
    _require(tau >= 1, "tau", tau)
    return bytes_per_forward * tokens_per_second / tau


def conservation_gap(decoded: int, accepted: int, forwards: int) -> int:
    """decoded - (accepted + F): 0 where the counters agree.

    Every successful target forward emits one token and the drafts that it accepts, so decoded = accepted + F.
    `decoded` are the tokens after the first of each generation, `forwards` the *successful* target forwards after the
    prompt; failed ones are counted elsewhere. Above 0, tokens were emitted that no successful forward stands behind.
    Below 0, forwards emitted nothing (replays after a restored checkpoint), or accepted tokens were cut off at a stop
    or limit (at most the length of one draft per generation).
    """
    _require(decoded >= 0, "decoded", decoded)
    _require(accepted >= 0, "accepted", accepted)
    _require(forwards >= 0, "forwards", forwards)
    return decoded - (accepted + forwards)


def window_rates(
    predicted_n: int,
    predicted_ms: float | None = None,
    prompt_n: int | None = None,
    prompt_ms: float | None = None,
    wall_ms: float | None = None,
    generations: int = 1,
) -> dict[str, float]:
    """Every rate (tokens per second) that might be printed for the same generation, by what it divides by what.

    Generated tokens over decode time, with or without the first (which decode time does not cover), or over the time
    of the whole run; and tokens of prompt and output together over the time of both. A printed rate that none of them
    reproduces was computed from something else. Counts >= 0, times > 0; `generations` >= 1 is how many were summed up.
    """
    _require(predicted_n >= 0, "predicted_n", predicted_n)
    _require(generations >= 1, "generations", generations)
    rates: dict[str, float] = {}
    totals = {"wall_ms": wall_ms}
    if predicted_ms is not None:
        _require(predicted_ms > 0, "predicted_ms", predicted_ms)
        rates["(n - 1) / predicted_ms"] = 1000 * max(0, predicted_n - generations) / predicted_ms
        rates["n / predicted_ms"] = 1000 * predicted_n / predicted_ms
        if prompt_ms is not None:
            _require(prompt_ms >= 0, "prompt_ms", prompt_ms)
            totals["(prompt_ms + predicted_ms)"] = prompt_ms + predicted_ms
    for name, total in totals.items():
        if total is None:
            continue
        _require(total > 0, name, total)
        rates[f"n / {name}"] = 1000 * predicted_n / total
        if prompt_n is not None:
            _require(prompt_n >= 0, "prompt_n", prompt_n)
            rates[f"(prompt_n + n) / {name}"] = 1000 * (prompt_n + predicted_n) / total
    return rates


@dataclass(frozen=True)
class CurveFault:
    """Where a curve of tokens per step over draft length breaks the laws of a chain most."""

    error: float
    """By how much each of its values would have to be off, at least, for the laws to hold."""
    before: float
    """Draft length from where the law binds."""
    at: float
    """Draft length whose value is too low."""
    after: float | None
    """Longer draft whose value is too high for that; None where the curve only falls."""


def curve_fault(curve: Sequence[tuple[float, float, float]]) -> CurveFault | None:
    """What of (gamma, least, most tokens per step), gamma rising, no chain of drafts gives; None where one does.

    tau(gamma) = 1 + P(first accepted) + ... + P(first gamma accepted), and each of these holds the next: so tau never
    falls as drafts grow, and each further draft adds no more than the one before it. It takes drafts whose beginning
    does not depend on their length, over the same texts. The first law then holds to the token for greedy drafts that
    are read from the text (a step that begins later ends no earlier); the second, of expectations, if steps begin at
    like places whatever the length.

    The least concave curve that nowhere falls and lies on or above all the least values lies above a most value by
    twice the error that would do: lowered by half of that it misses none by more.
    """
    top: list[tuple[float, float]] = []  # where the least such curve bends
    for gamma, least, _ in curve:
        while len(top) > 1 and _rise(top[-2], top[-1]) <= _rise(top[-2], (gamma, least)):
            top.pop()
        top.append((gamma, least))
    while len(top) > 1 and top[-1][1] <= top[-2][1]:
        top.pop()  # past its peak it stays
    found: list[CurveFault] = []
    for gamma, _, most in curve:
        if gamma >= top[-1][0]:
            found.append(CurveFault((top[-1][1] - most) / 2, top[-1][0], gamma, None))
        for left, right in pairwise(top):
            if left[0] < gamma < right[0]:
                above = left[1] + _rise(left, right) * (gamma - left[0])
                found.append(CurveFault((above - most) / 2, left[0], gamma, right[0]))
    worst = max(found, key=lambda fault: fault.error, default=None)
    return worst if worst is not None and worst.error > _EXACT else None


def _rise(left: tuple[float, float], right: tuple[float, float]) -> float:
    _require(left[0] < right[0], "gamma", right[0])
    return (right[1] - left[1]) / (right[0] - left[0])


def _require(holds: bool, name: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} is {value}")
