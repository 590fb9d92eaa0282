"""How far each assumption behind a broken bound would have to be wrong for the claim to be true."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.audit.bound import number
from specmeter.audit.claim import Assumption
from specmeter.audit.methods import length_binds
from specmeter.theory import bounds

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

MEAN_OF_SPEEDUPS = 1.28
"""Most by which a mean of speedups may exceed the pooled one: exp(s^2) where they spread over prompts by s = 0.5."""
MEAN_OF_ACCEPTANCE = 2.0
"""Most by which a mean of acceptance over prompts may understate pooled tau."""
_CPU = re.compile(
    r"\bcpu\b|xeon|epyc|ryzen|threadripper|\bcore[ -](i\d|ultra)|\bi[3579]-\d{4,5}|graviton|snapdragon|raspberry"
    r"|\bddr\d",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Limit:
    """What a bound permits, with what it is made of."""

    value: float
    text: str
    tau: float
    """Tokens per target forward that it rests on."""
    fields: tuple[str, ...] = ()
    """Fields of the claim that tau comes from; none: counts, which are sums."""
    drafted: float = 0.0
    """Tokens drafted per target forward."""
    cost: float = 0.0
    """Of one of them, in plain target forwards."""
    full_length: bool = False
    """Whether every draft was taken to have gamma tokens."""
    any_length: bool = False
    """Whether the draft length is not known, and the best was taken."""
    weak: bool = False
    """Whether nearly anything would obey it."""


def needs(claim: Claim, speedup: float, limit: Limit) -> Iterator[Assumption]:
    """What would have to be wrong for a speedup above the limit to be true; at least one thing, the likeliest first."""
    over = f"{claim.gamma + 1}" if claim.gamma else "several"
    drafting = limit.drafted * limit.cost
    cheapest = bounds.cheapest_forward_needed(speedup, limit.tau, drafting)
    if cheapest > 0:
        measured = "" if claim.cheapest_forward is None else f", where {number(claim.cheapest_forward)} was measured"
        forward = f"a forward over {over} tokens in {_share(cheapest)} of the time of one{measured}"
        yield Assumption(name="forward", needs=forward)
    if drafting:
        yield from _cheaper_drafts(claim, speedup, limit, over)
    wanted = speedup * ((claim.cheapest_forward or 1.0) + drafting)
    if not one_pool(claim, limit):
        yield from _other_means(claim, speedup, wanted, limit)
    said = claim.acceptance
    if "acceptance" in limit.fields and claim.acceptance_of is None and said is not None and said < 1:
        of_output = 1 / (1 - said)
        longest = math.inf if claim.gamma is None or not length_binds(claim) else 1 + claim.gamma
        if min(of_output, longest) >= wanted:
            yield Assumption(
                name="acceptance", needs=f"an acceptance that is the share of the output (tau = {number(of_output)})"
            )
    factor = speedup / limit.value
    if claim.speedup is not None and (claim.baseline_rate is None or claim.baseline_from is not None):
        faster = f"plain decoding {factor:.3g} times as fast as what it is compared with"
        yield Assumption(name="baseline", needs=faster)
    elif claim.baseline_from is not None:
        yield Assumption(
            name="baseline", needs=f"a baseline {factor:.3g} times as fast as that of {claim.baseline_from}"
        )


def _cheaper_drafts(claim: Claim, speedup: float, limit: Limit, over: str) -> Iterator[Assumption]:
    """With g drafts of cost c per step, tau / S is the time left for drafting and verifying, in plain forwards."""
    each = (limit.tau - 1) / limit.drafted
    left = limit.tau / speedup - (claim.cheapest_forward or 1.0)
    if limit.any_length and each > 0:
        faster = limit.cost * speedup / each
        yield Assumption(name="draft-rate", needs=f"a draft {faster:.3g} times as fast as its printed rate")
    elif left > 0:
        faster = limit.drafted * limit.cost / left
        yield Assumption(name="draft-rate", needs=f"a draft {faster:.3g} times as fast as its printed rate")
    else:
        free = f"free drafts and a forward over {over} tokens in {_share(limit.tau / speedup)} of the time of one"
        yield Assumption(name="draft-rate", needs=free)
    # (1 + a g) / (1 + g c) >= S, solved for g; above S = 1 more drafts help only where each gives more than it costs.
    spare = speedup * limit.cost - each
    if limit.full_length and speedup < 1 and spare > 0:
        length = number((1 - speedup) / spare)
        yield Assumption(name="full-length", needs=f"drafts of {length} tokens on average, not {claim.gamma}")


def _other_means(claim: Claim, speedup: float, wanted: float, limit: Limit) -> Iterator[Assumption]:
    said, gamma = claim.acceptance, claim.gamma
    if "acceptance" in limit.fields and said is not None:
        pooled = speedup * limit.cost if limit.any_length else (wanted - 1) / (gamma or 1)
        if pooled <= 1:
            yield Assumption(
                name="pooled", needs=f"a pooled acceptance of {pooled:.2g} instead of the printed {number(said)}"
            )
    elif gamma is None or wanted <= 1 + gamma:
        yield Assumption(name="pooled", needs=f"a pooled tau of {number(wanted)} instead of {number(limit.tau)}")


def one_pool(claim: Claim, limit: Limit) -> bool:
    """Whether speedup and tau are known to be of the same runs in the same way: sums of all, or means over the same."""
    fields = {*_of_speedup(claim), *limit.fields}
    return claim.runs == 1 or fields <= set(claim.pooled) or (bool(limit.fields) and fields <= set(claim.averaged))


def explained(claim: Claim, speedup: float, limit: Limit) -> str | None:
    """Why a speedup above a limit says nothing, where the source itself gives the reason."""
    factor = speedup / limit.value
    cheapest = bounds.cheapest_forward_needed(speedup, limit.tau, limit.drafted * limit.cost)
    if (
        claim.cheapest_forward is None
        and cheapest >= bounds.CHEAP_FORWARD
        and claim.device
        and _CPU.search(claim.device)
    ):
        return (
            f"a forward over several tokens in {_share(cheapest)} of the time of one would explain it, and CPUs "
            "have such forwards"
        )
    averaged = set(claim.averaged)
    if one_pool(claim, limit):
        return None
    if averaged & set(limit.fields) and factor <= MEAN_OF_ACCEPTANCE:
        return f"a mean of acceptance over prompts may understate tau {MEAN_OF_ACCEPTANCE:g} times"
    if averaged & set(_of_speedup(claim)) and factor <= MEAN_OF_SPEEDUPS:
        return "a mean of the prompts' speedups may exceed the pooled one by as much"
    return None


def _of_speedup(claim: Claim) -> tuple[str, ...]:
    return ("speedup",) if claim.speedup is not None else ("decode_rate", "baseline_rate")


def _share(value: float) -> str:
    if value > 0.99:
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"
