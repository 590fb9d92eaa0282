"""A claimed speedup against what acceptance and the cost of drafting permit.

Where a bound is broken, each assumption behind it says how far it would have to be wrong for the claim to be true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specmeter.audit.across import MOST
from specmeter.audit.claim import (
    Assumption,
    BoundOutcome,
    Claim,
    Range,
    drafts_one_by_one,
    family_of,
    length_binds,
    may_be_tree,
    number,
    printed,
)
from specmeter.theory import bounds

RATES, SHARE, TAU = "speedup-not-its-rates", "tau-not-its-acceptance", "speedup-above-tau"
COST, TIME = "speedup-above-cost-bound", "draft-time-bound"
LONGEST = 10_000
"""Draft tokens per step; more than that is said of no engine."""
COUNTED = 0.02
"""Share by which tau may miss what counts give: sources differ by the first and the last step of a generation."""
SAME_RATIO = 1.05
"""Factor by which a printed speedup and the ratio of printed rates may differ without a word: means of other things."""
UNLIKELY_RATIO, WRONG_RATIO = 1.3, 1.5
"""Factors from which on they are implausible, and wrong: exp(s^2) for speedups that spread over prompts by s = 0.51 and
0.64, where the demo's spread by 0.2 to 0.3."""


def speedup_range(claim: Claim) -> Range | None:
    """The claimed speedup: as printed, as the ratio of the rates, or what both allow; None where neither is there.

    Where the two do not agree, the lower one is taken: it is easier to believe.
    """
    both = _both(claim)
    if both is None:
        return printed(claim, "speedup") or _ratio(claim)
    said, rates, _ = both
    if _end_to_end(claim) is not None:
        return rates
    low, value = max(said.low, rates.low), said.value
    if low > min(said.high, rates.high):
        low, value = min(said.low, rates.low), min(said.value, rates.value)
    return Range(low, value, max(said.high, rates.high))


def check_ratio(claim: Claim) -> BoundOutcome | None:
    """Whether a printed speedup is what its rates give; None where both are not there, or where it is nearly so."""
    both, whole = _both(claim), _end_to_end(claim)
    if whole is not None:
        return BoundOutcome(RATES, "weak", whole)
    if both is None:
        return None
    said, rates, factor = both
    if factor <= UNLIKELY_RATIO and not (claim.runs == 1 and factor > SAME_RATIO):
        return None
    line = disagreement(claim) or ""
    if (claim.concurrency or 1) > 1:
        return BoundOutcome(RATES, "undecided", line)
    means = {"speedup", "decode_rate", "baseline_rate"} & set(claim.averaged)
    if claim.window == "with prompt":
        means = frozenset[str]()  # benchmarks that time whole runs print the ratio of their means
    spread = math.sqrt(math.log(factor))
    words = f"a mean over prompts whose speedups spread by {spread:.2f} in their logarithm"
    rests_on = (Assumption(name="pooled", needs=words),)
    if claim.baseline_from is not None:
        wanted = f"{number((claim.decode_rate or 0) / (claim.speedup or 1))} tok/s, not that of {claim.baseline_from}"
        rests_on = (Assumption(name="baseline", needs=f"a baseline of {wanted}"), *rests_on)
    elif claim.runs == 1 or (factor > WRONG_RATIO and not means):
        rests_on = ()
    if (prompt := _prompt_needed(claim, said.value, rates.value)) is not None:
        words = f"a speedup end to end, with prompts that take {number(prompt)} times as long as plain decoding"
        rests_on = (Assumption(name="one-window", needs=words), *rests_on)
    return BoundOutcome(RATES, "broken", line, rests_on)


def _prompt_needed(claim: Claim, said: float, rates: float) -> float | None:
    """Time of the prompt over that of plain decoding for which decode rates give the printed speedup end to end.

    With p for it, S = (p + 1) / (p + 1 / r) for the ratio r of the rates. None where no prompt would do: S lies beyond
    r, or on the other side of 1.
    """
    if said == 1 or claim.prompt_ms is not None or claim.window == "with prompt":
        return None
    needed = (1 - said / rates) / (said - 1)
    return needed if needed > 0 else None


def _end_to_end(claim: Claim) -> str | None:
    """A printed speedup of the whole run, in words: the row's own times give it, and its rates do not."""
    both = _both(claim)
    if both is None or both[2] <= SAME_RATIO:
        return None
    said = both[0]
    whole, decode, prompt = (printed(claim, name) for name in ("wall_ms", "predicted_ms", "prompt_ms"))
    if claim.baseline_wall_ms is not None and whole is not None:
        plain = claim.baseline_wall_ms
    elif prompt is not None and claim.predicted_n and claim.baseline_rate:
        plain = prompt.value + 1e3 * claim.predicted_n / claim.baseline_rate
        if whole is None:
            spent = decode.value if decode is not None else 1e3 * claim.predicted_n / (claim.decode_rate or 1)
            whole = Range(prompt.value + spent, prompt.value + spent, prompt.value + spent)
    else:
        return None
    if not said.low / SAME_RATIO <= plain / whole.value <= said.high * SAME_RATIO:
        return None
    return f"S = {number(said.value)} end to end: {number(plain / 1e3)} s / {number(whole.value / 1e3)} s"


def disagreement(claim: Claim) -> str | None:
    """A printed speedup that the row's own rates do not give, in words."""
    both = _both(claim)
    if both is None or both[2] <= SAME_RATIO or _end_to_end(claim) is not None:
        return None
    said, rates, _ = both
    where = "" if claim.baseline_from is None else f" with the baseline of {claim.baseline_from}"
    return (
        f"the printed speedup is {number(said.value)}, but its rates give {number(claim.decode_rate or 0)} / "
        f"{number(claim.baseline_rate or 0)} = {number(rates.value)}{where}"
    )


def _both(claim: Claim) -> tuple[Range, Range, float] | None:
    """(printed speedup, ratio of the rates, least factor between the two); None where one is missing."""
    said, rates = printed(claim, "speedup"), _ratio(claim)
    if said is None or rates is None:
        return None
    return said, rates, max(1.0, said.low / rates.high, rates.low / said.high)


def most_tau(claim: Claim) -> Limit | None:
    """Most tokens per target forward that anything in the claim permits, by the sharpest of its numbers."""
    found: list[Limit] = []
    decoded = claim.decoded_tokens
    if decoded is not None and claim.target_forwards and (claim.concurrency or 1) <= 1:
        found.append(_tau(decoded / claim.target_forwards, f"{decoded} / {claim.target_forwards}"))
    if claim.accepted is not None and claim.steps:
        value = bounds.tau_from_counts(claim.accepted, claim.steps)
        found.append(_tau(value, f"1 + {claim.accepted} / {claim.steps}"))
    if decoded is not None and claim.accepted is not None:
        forwards = bounds.fewest_forwards(decoded, claim.accepted, _longest(claim))
        found.append(_tau(decoded / forwards, f"{decoded} / {number(forwards)}"))
    said = printed(claim, "tau")
    if said is not None:
        found.append(Limit(said.high, number(said.high), said.high, ("tau",)))
    found += _from_share(claim, said)
    if claim.gamma is not None and not found:
        return _tau(1.0 + claim.gamma, f"1 + {claim.gamma}", weak=claim.gamma > 0) if length_binds(claim) else None
    return min(found, key=lambda limit: limit.value, default=None)


def _longest(claim: Claim) -> int | None:
    """Most tokens that a step can draft, where that is known."""
    return claim.gamma if length_binds(claim) else None


def _from_share(claim: Claim, said: Range | None) -> list[Limit]:
    """What acceptance permits; nothing where it may be a share of a tree's nodes, or speaks of something else."""
    share = acceptance_range(claim)
    if share is None or share.low > 1:
        return []
    if claim.acceptance_of == "output" and claim.accepted is None:
        return (
            [_tau(1 / (1 - share.high), f"1 / (1 - {number(share.high)})", ("acceptance",))] if share.high < 1 else []
        )
    if claim.gamma is None or not length_binds(claim) or may_be_tree(claim):
        return []
    value = bounds.tau_from_acceptance(min(1.0, share.high), claim.gamma)
    # A printed tau above this speaks another language of acceptance (per position, of a tree): then only tau holds.
    if said is not None and said.low > value:
        return []
    return [_tau(value, f"1 + {number(share.high)} x {claim.gamma}", ("acceptance",))]


def _tau(value: float, text: str, fields: tuple[str, ...] = (), *, weak: bool = False) -> Limit:
    value = max(1.0, value)
    return Limit(value, f"{text} = {number(value)}", value, fields, weak=weak)


def acceptance_range(claim: Claim) -> Range | None:
    """Accepted / drafted, from the counts where they are there."""
    if claim.accepted is not None and claim.drafted and claim.accepted <= claim.drafted:
        share = claim.accepted / claim.drafted
        return Range(share, share, share)
    return printed(claim, "acceptance")


def check_share(claim: Claim) -> BoundOutcome | None:
    """tau <= 1 + a gamma, where drafts are chains for sure; None where they may be trees, or a number is missing."""
    tau, share = printed(claim, "tau"), acceptance_range(claim)
    chain = claim.tree is False or family_of(claim) == "model"
    if tau is None or share is None or not claim.gamma or not chain or share.low > 1 or claim.acceptance_of == "output":
        return None
    most = bounds.tau_from_acceptance(min(1.0, share.high), claim.gamma)
    line = f"tau = {number(tau.value)} > 1 + {number(share.high)} x {claim.gamma} = {number(most)}"
    if tau.low <= most or (claim.accepted is not None and tau.low <= most * (1 + COUNTED)):
        return None
    if "acceptance" in claim.averaged and tau.low <= most * MEAN_OF_ACCEPTANCE:
        return BoundOutcome(SHARE, "doubtful", f"{line}, but this is a mean of acceptance over prompts")
    pooled = (
        f"a pooled acceptance of {number((tau.low - 1) / claim.gamma)} instead of the printed {number(share.value)}"
    )
    other = Assumption(name="acceptance", needs="an acceptance of something else than the drafted tokens")
    return BoundOutcome(SHARE, "broken", line, (Assumption(name="pooled", needs=pooled), other))


def check_tau(claim: Claim, noise: float) -> BoundOutcome | None:
    """S <= tau / m; None where no speedup is claimed, or nothing was drafted."""
    speedup = speedup_range(claim)
    if speedup is None or claim.drafted_nothing:
        return None
    limit = most_tau(claim)
    if limit is None:
        if speedup.low <= 1 + noise:
            return BoundOutcome(TAU, "holds", f"{_said(claim, speedup)} <= 1 <= tau" + _slack(speedup, 1.0))
        return BoundOutcome(TAU, "undecided", f"{_said(claim, speedup)}: {_gamma_needed(claim, speedup)}")
    return _compare(TAU, claim, speedup, _with_cheap_forwards(claim, limit, "tau"), noise)


def _with_cheap_forwards(claim: Claim, limit: Limit, name: str) -> Limit:
    m = claim.cheapest_forward
    if m is None or m == 1:
        return replace(limit, text=f"{name} = {limit.text}")
    value = bounds.tau_bound(limit.tau, m)
    return replace(limit, value=value, text=f"{name} / m = {number(limit.tau)} / {number(m)} = {number(value)}")


def _gamma_needed(claim: Claim, speedup: Range) -> str:
    """What is missing; of draft lengths how long they would have to be."""
    share = acceptance_range(claim)
    if share is None or not 0 < share.high <= 1:
        return "neither acceptance with gamma, nor tau, nor counts"
    if may_be_tree(claim):
        return "no tau or counts, and its acceptance may be a share of a tree's nodes"
    cost = draft_cost(claim) if _drafts_cost(claim) else None
    spare = share.high - speedup.low * (cost.low if cost is not None else 0.0)
    if spare <= 0:
        return f"no gamma is enough at an acceptance of {number(share.high)}"
    needed = (speedup.low - 1) / spare
    if needed > LONGEST:
        return f"no gamma is enough at an acceptance of {number(share.high)}"
    gamma = math.ceil(needed - 1e-9)
    return f"gamma is missing; at an acceptance of {number(share.high)} it would have to be at least {gamma:,}"


def check_cost(claim: Claim, noise: float) -> BoundOutcome | None:
    """S <= tau / (m + g c); None where no speedup is claimed, or drafting is not known to cost time in a row."""
    speedup = speedup_range(claim)
    cost = draft_cost(claim)
    if speedup is None or cost is None or claim.drafted_nothing or not _drafts_cost(claim):
        return None
    limit = _cost_limit(claim, cost)
    return None if limit is None else _compare(COST, claim, speedup, limit, noise)


def _drafts_cost(claim: Claim) -> bool:
    return drafts_one_by_one(claim) and not claim.draft_elsewhere


def check_drafting_time(claim: Claim, noise: float) -> BoundOutcome | None:
    """Drafting alone takes no longer than the run; None where counts, time or the draft's rate are missing."""
    rate = printed(claim, "draft_rate")
    if rate is None or not claim.drafted or not drafts_one_by_one(claim) or (claim.concurrency or 1) > 1:
        return None
    times = [time for field in ("predicted_ms", "wall_ms") if (time := printed(claim, field)) is not None]
    decode = printed(claim, "decode_rate")
    if decode is not None and claim.predicted_n and (not times or claim.runs != 1):
        times.append(Range(1e3 / decode.high, 1e3 / decode.value, 1e3 / decode.low).times(claim.predicted_n))
    if not times:
        return None
    time = max(times, key=lambda time: time.high)
    least = bounds.drafting_ms(claim.drafted, rate.high)
    broken = least > time.high * (1 + noise)
    line = (
        f"{claim.drafted} drafts / {number(rate.value)} tok/s = {number(claim.drafted / rate.value)} s "
        f"{'>' if broken else '<='} {number(time.value / 1000.0)} s of the run"
    )
    if not broken:
        return BoundOutcome(TIME, "weak", line)
    faster = f"a draft {least / time.high:.3g} times as fast as its printed rate"
    return BoundOutcome(TIME, "broken", line, (Assumption(name="draft-rate", needs=faster),))


def draft_cost(claim: Claim) -> Range | None:
    """c: time of a draft forward over time of a target forward, each by itself."""
    ratio = printed(claim, "speed_ratio")
    if ratio is not None:
        return Range(1 / ratio.high, 1 / ratio.value, 1 / ratio.low)
    draft = printed(claim, "draft_rate")
    target = printed(claim, "baseline_rate")
    if target is None:
        decode, said = printed(claim, "decode_rate"), printed(claim, "speedup")
        target = None if decode is None or said is None else decode.over(said)
    return None if draft is None or target is None else target.over(draft)


def _cost_limit(claim: Claim, cost: Range) -> Limit | None:
    m = claim.cheapest_forward or 1.0
    one, c = number(m), number(cost.low)
    decoded = claim.decoded_tokens
    if claim.accepted is not None and claim.drafted is not None:
        forwards = None
        if decoded is not None:
            alone = claim.target_forwards if (claim.concurrency or 1) <= 1 else None
            forwards = alone or bounds.fewest_forwards(decoded, claim.accepted, _longest(claim))
        elif claim.steps:
            forwards, decoded = claim.steps, claim.steps + claim.accepted
        if forwards and decoded:
            tau, drafted = max(1.0, decoded / forwards), claim.drafted / forwards
            value = bounds.cost_bound(tau, drafted, cost.low, m)
            text = f"tau / ({one} + g c) = {number(tau)} / ({one} + {number(drafted)} x {c}) = {number(value)}"
            return Limit(value, text, tau, (), drafted, cost.low)
    share = acceptance_range(claim)
    if share is None or share.low > 1 or claim.acceptance_of == "output":
        return None
    most = min(1.0, share.high)
    if claim.gamma is None:
        value = max(1.0, most / cost.low)
        text = f"max(1, a / c) = max(1, {number(most)} / {c}) = {number(value)}, whatever gamma is"
        # (1 + a g) / (1 + g c) lies between 1 and a / c; one draft per step stands for the length that is not known.
        return (
            Limit(value, text, 1 + most, ("acceptance",), 1.0, cost.low, any_length=True, weak=True) if m == 1 else None
        )
    tau = bounds.tau_from_acceptance(most, claim.gamma)
    at_full_length = f"{number(tau)} / ({one} + {claim.gamma} x {c})"
    if not claim.p_min:
        value = bounds.cost_bound(tau, claim.gamma, cost.low, m)
        text = f"tau / ({one} + gamma c) = {at_full_length} = {number(value)}"
        return Limit(value, text, tau, ("acceptance",), claim.gamma, cost.low, full_length=True)
    value = bounds.cost_bound_any_length(most, claim.gamma, cost.low, m)
    return Limit(value, f"max(1, {at_full_length}) = {number(value)}", tau, ("acceptance",), claim.gamma, cost.low)


def _compare(bound: str, claim: Claim, speedup: Range, limit: Limit, noise: float) -> BoundOutcome:
    said = _said(claim, speedup)
    if speedup.low > limit.value * (1 + noise):
        line = f"{said} > {limit.text}"
        excuse = explained(claim, speedup.low, limit)
        if excuse is not None:
            return BoundOutcome(bound, "doubtful", f"{line}, but {excuse}")
        return BoundOutcome(bound, "broken", line, tuple(needs(claim, speedup.low, limit)))
    if speedup.low > limit.value and speedup.low > 1 + min(noise, MOST):
        excess = speedup.low / limit.value - 1
        line = f"{said} > {limit.text}, but only by {excess:.2%}: timing noise may be {noise:.1%}"
        return BoundOutcome(bound, "doubtful", line)
    slow = speedup.high <= 1
    result = "weak" if limit.weak and not slow else "holds"
    return BoundOutcome(bound, result, f"{said} <= {limit.text}" + _slack(speedup, limit.value))


def _slack(speedup: Range, limit: float) -> str:
    if speedup.value <= limit:
        return ""
    return " within rounding" if speedup.low <= limit else " within timing noise"


def _said(claim: Claim, speedup: Range) -> str:
    rates = _ratio(claim)
    of_rates = rates is not None and speedup.value == rates.value
    if of_rates and claim.speedup != speedup.value and claim.decode_rate and claim.baseline_rate:
        return f"S = {number(claim.decode_rate)} / {number(claim.baseline_rate)} = {number(speedup.value)}"
    return f"S = {number(speedup.value)}"


def _ratio(claim: Claim) -> Range | None:
    rate, baseline = printed(claim, "decode_rate"), printed(claim, "baseline_rate")
    return None if rate is None or baseline is None else rate.over(baseline)


# --- assumptions of a broken bound ------------------------------------------------------------------------------------

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
        forward = f"a forward over {over} tokens in {_as_share(cheapest)} of the time of one{measured}"
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
        free = f"free drafts and a forward over {over} tokens in {_as_share(limit.tau / speedup)} of the time of one"
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
            f"a forward over several tokens in {_as_share(cheapest)} of the time of one would explain it, and CPUs "
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


def _as_share(value: float) -> str:
    if value > 0.99:
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"
