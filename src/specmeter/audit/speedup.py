"""Checks a claimed speedup against what acceptance and the cost of drafting permit.

If a bound is broken, each assumption behind it gets the amount by which it would have to be wrong, so that the claim
could be true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from specmeter.audit.across import MAX_SPREAD
from specmeter.audit.claim import (
    ONE,
    Assumption,
    BoundOutcome,
    Claim,
    Range,
    assumed,
    drafts_one_by_one,
    family_of,
    joined,
    length_binds,
    may_be_tree,
    printed,
)
from specmeter.audit.equations import SPEEDS, Equation
from specmeter.messages import Message, Value
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
    """The claimed speedup of decoding: as printed, as the ratio of the rates, or what both allow; None where neither is
    there. Where the two do not agree, the lower one is taken: it is easier to believe.
    """
    said, rates = printed(claim, "speedup"), _ratio(claim)
    if said is None or rates is None or claim.speedup_of == "run":
        return rates or said
    low, value = max(said.low, rates.low), said.value
    if low > min(said.high, rates.high):
        low, value = min(said.low, rates.low), min(said.value, rates.value)
    return Range(low, value, max(said.high, rates.high))


def check_ratio(claim: Claim, found: Iterable[Equation]) -> BoundOutcome | None:
    """Whether a printed speedup is what its rates or times give; None if they are missing, or if it nearly is."""
    it = next((it for it in found if it.law.startswith("speedup")), None)
    if it is None:
        return None
    said, means = it.left, not SPEEDS.isdisjoint(claim.averaged) and claim.window != "with prompt"
    turned = said.low > 1 > it.right.high and not means  # a gain is printed where the rates show a loss
    if it.gap <= (SAME_RATIO if turned or claim.runs == 1 else UNLIKELY_RATIO):
        return None
    if (claim.concurrency or 1) > 1:
        return BoundOutcome(RATES, "undecided", it.line)
    spread = math.sqrt(math.log(it.gap))
    rests_on = (assumed("pooled", "audit.needs_spread_of_speedups", times=math.exp(spread)),)
    if claim.baseline_from is not None:
        wanted = (claim.decode_rate or 0) / (claim.speedup or 1)
        plain = assumed("baseline", "audit.needs_baseline_rate", rate=wanted, baseline=claim.baseline_from)
        rests_on = (plain, *rests_on)
    elif claim.runs == 1 or (it.gap > (UNLIKELY_RATIO if turned else WRONG_RATIO) and not means):
        rests_on = ()
    if it.law == "speedup-of-rates" and (prompt := _prompt_needed(claim, said.value, it.right.value)) is not None:
        rests_on = (assumed("one-window", "audit.needs_prompts", times=prompt), *rests_on)
    return BoundOutcome(RATES, "broken", it.line, rests_on)


def _prompt_needed(claim: Claim, said: float, rates: float) -> float | None:
    """Time of the prompt over that of decoding without speculation for which decode rates give the printed speedup end
    to end.

    With p for it, S = (p + 1) / (p + 1 / r) for the ratio r of the rates. None where no prompt would do: S lies beyond
    r, or on the other side of 1.
    """
    if said == 1 or claim.prompt_ms is not None or claim.window == "with prompt":
        return None
    needed = (1 - said / rates) / (said - 1)
    return needed if needed > 0 else None


def most_tau(claim: Claim) -> Limit | None:
    """Most tokens per target forward that anything in the claim permits, by the sharpest of its numbers."""
    found: list[Limit] = []
    decoded, forwards = claim.decoded_tokens, claim.target_forwards
    if decoded is not None and forwards and (claim.concurrency or 1) <= 1:
        found.append(_tau(decoded / forwards, "audit.tau.forwards", decoded=decoded, forwards=forwards))
    if claim.accepted is not None and claim.steps:
        tau = bounds.tau_from_counts(claim.accepted, claim.steps)
        found.append(_tau(tau, "audit.tau.steps", accepted=claim.accepted, steps=claim.steps))
    if decoded is not None and claim.accepted is not None:
        fewest = bounds.fewest_forwards(decoded, claim.accepted, _longest(claim))
        found.append(_tau(decoded / fewest, "audit.tau.fewest_forwards", decoded=decoded, forwards=fewest))
    said = printed(claim, "tau")
    if said is not None:
        found.append(_tau(said.high, "audit.tau.printed", "tau"))
    found += _from_share(claim, said)
    if not found and (gamma := _longest(claim)) is not None:
        return replace(_tau(1.0 + gamma, "audit.tau.gamma", gamma=gamma), weak=gamma > 0)
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
        most = 1 / (1 - share.high) if share.high < 1 else math.inf
        return [] if most == math.inf else [_tau(most, "audit.tau.output", "acceptance", share=share.high)]
    if claim.gamma is None or not length_binds(claim) or may_be_tree(claim):
        return []
    value = bounds.tau_from_acceptance(min(1.0, share.high), claim.gamma)
    # A printed tau above this speaks another language of acceptance (per position, of a tree): then only tau holds.
    if said is not None and said.low > value:
        return []
    return [_tau(value, "audit.tau.share", "acceptance", share=share.high, gamma=claim.gamma)]


def _tau(value: float, code: str, *fields: str, **made_of: Value) -> Limit:
    value = max(1.0, value)
    return Limit(value, Message(code, tau=value, **made_of), value, fields)


def acceptance_range(claim: Claim) -> Range | None:
    """Accepted / drafted, from the counts where they are there."""
    if claim.accepted is not None and claim.drafted and claim.accepted <= claim.drafted:
        return ONE.by(claim.accepted / claim.drafted)
    return printed(claim, "acceptance")


def check_share(claim: Claim) -> BoundOutcome | None:
    """tau <= 1 + a gamma, where drafts are chains for sure; None where they may be trees, or a number is missing."""
    tau, share = printed(claim, "tau"), acceptance_range(claim)
    chain = claim.tree is False or family_of(claim) == "model"
    if tau is None or share is None or not claim.gamma or not chain or share.low > 1 or claim.acceptance_of == "output":
        return None
    most = bounds.tau_from_acceptance(min(1.0, share.high), claim.gamma)
    line = Message("audit.tau_of_share", tau=tau.value, share=share.high, gamma=claim.gamma, most=most)
    if tau.low <= most or (claim.accepted is not None and tau.low <= most * (1 + COUNTED)):
        return None
    if "acceptance" in claim.averaged and tau.low <= most * MEAN_OF_ACCEPTANCE:
        return BoundOutcome(SHARE, "doubtful", Message("audit.but_mean_of_acceptance", line=line))
    needed = (tau.low - 1) / claim.gamma
    pooled = assumed("pooled", "audit.needs_acceptance", acceptance=needed, printed=share.value)
    return BoundOutcome(SHARE, "broken", line, (pooled, assumed("acceptance", "audit.needs_other_acceptance")))


def check_tau(claim: Claim, noise: float) -> BoundOutcome | None:
    """S <= tau / m; None where no speedup is claimed, or nothing was drafted."""
    speedup = speedup_range(claim)
    if speedup is None or claim.drafted_nothing:
        return None
    limit = most_tau(claim)
    if limit is None:
        if speedup.low <= 1 + noise:
            return BoundOutcome(TAU, "holds", _within(claim, speedup, 1.0, Message("audit.least_tau")))
        return _without_length(claim, speedup)
    return _compare(TAU, claim, speedup, _with_cheap_forwards(claim, limit), noise)


def _with_cheap_forwards(claim: Claim, limit: Limit) -> Limit:
    m = claim.cheapest_forward
    if m is None or m == 1:
        return replace(limit, text=Message("audit.tau", tau=limit.text))
    value = bounds.tau_bound(limit.tau, m)
    return replace(limit, value=value, text=Message("audit.tau_over_m", tau=limit.tau, m=m, bound=value))


def _without_length(claim: Claim, speedup: Range) -> BoundOutcome:
    """How long drafts would have to be: any has one token, so that a speedup which one permits is possible."""

    def undecided(code: str, **values: Value) -> BoundOutcome:
        line = Message("audit.missing", speedup=_said(claim, speedup), missing=Message(code, **values))
        return BoundOutcome(TAU, "undecided", line)

    share = acceptance_range(claim)
    if share is None or not 0 < share.high <= 1:
        return undecided("audit.no_tau")
    if may_be_tree(claim):
        return undecided("audit.no_tau_of_tree")
    cost = draft_cost(claim) if _drafts_cost(claim) else None
    spare = share.high - speedup.low * (cost.low if cost is not None else 0.0)
    needed = math.inf if spare <= 0 else (speedup.low - 1) / spare
    if needed > LONGEST:
        return undecided("audit.no_gamma_enough", acceptance=share.high)
    if (gamma := math.ceil(needed - 1e-9)) > 1:
        return undecided("audit.gamma_needed", acceptance=share.high, gamma=gamma)
    least = bounds.tau_from_acceptance(share.high, 1)
    text = Message("audit.tau", tau=Message("audit.tau.shortest", share=share.high, tau=least))
    return BoundOutcome(TAU, "holds", _within(claim, speedup, least, text))


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
        times.append(ONE.over(decode).by(1e3 * claim.predicted_n))
    if not times:
        return None
    time = max(times, key=lambda time: time.high)
    least = bounds.drafting_ms(claim.drafted, rate.high)
    broken = least > time.high * (1 + noise)
    drafting = Message("audit.drafting", drafted=claim.drafted, rate=rate.value, drafting_s=claim.drafted / rate.value)
    run = Message("audit.time_of_run", run_s=time.value / 1e3)
    line = Message("audit.above" if broken else "audit.within", left=drafting, right=run)
    if not broken:
        return BoundOutcome(TIME, "weak", line)
    faster = assumed("draft-rate", "audit.needs_faster_draft", times=least / time.high)
    return BoundOutcome(TIME, "broken", line, (faster,))


def draft_cost(claim: Claim) -> Range | None:
    """c: time of a draft forward over time of a target forward, each on its own.

    None under load: a draft's rate is that of one request, the target's that of all or of each.
    """
    ratio = printed(claim, "speed_ratio")
    if ratio is not None:
        return ONE.over(ratio)
    if (claim.concurrency or 1) > 1:
        return None
    draft, target = printed(claim, "draft_rate"), printed(claim, "baseline_rate")
    if target is None:
        decode, said = printed(claim, "decode_rate"), printed(claim, "speedup")
        target = None if decode is None or said is None else decode.over(said)
    return None if draft is None or target is None else target.over(draft)


def _cost_limit(claim: Claim, cost: Range) -> Limit | None:
    m, c, gamma, decoded = claim.cheapest_forward or 1.0, cost.low, claim.gamma, claim.decoded_tokens

    def limit(code: str, value: float, tau: float, drafted: float, /, *fields: str, **terms: Value) -> Limit:
        text = Message(f"audit.cost.{code}", tau=tau, bound=value, m=m, c=c, **terms)
        length = {"gamma": "full", "any_gamma": "any"}.get(code, "")
        return Limit(value, text, tau, fields, drafted, c, length=length, weak=length == "any")

    if claim.accepted is not None and claim.drafted is not None:
        forwards = None
        if decoded is not None:
            alone = claim.target_forwards if (claim.concurrency or 1) <= 1 else None
            forwards = alone or bounds.fewest_forwards(decoded, claim.accepted, _longest(claim))
        elif claim.steps:
            forwards, decoded = claim.steps, claim.steps + claim.accepted
        if forwards and decoded:
            tau, drafted = max(1.0, decoded / forwards), claim.drafted / forwards
            return limit("counts", bounds.cost_bound(tau, drafted, c, m), tau, drafted, drafted=drafted)
    share = acceptance_range(claim)
    if share is None or share.low > 1 or claim.acceptance_of == "output":
        return None
    most = min(1.0, share.high)
    if gamma is None:
        # (1 + a g) / (1 + g c) lies between 1 and a / c; one draft per step stands for the length that is not known.
        return limit("any_gamma", max(1.0, most / c), 1 + most, 1.0, "acceptance", share=most) if m == 1 else None
    tau = bounds.tau_from_acceptance(most, gamma)
    if claim.p_min:
        value = bounds.cost_bound_any_length(most, gamma, c, m)
        return limit("up_to_gamma", value, tau, gamma, "acceptance", gamma=gamma)
    return limit("gamma", bounds.cost_bound(tau, gamma, c, m), tau, gamma, "acceptance", gamma=gamma)


def _compare(bound: str, claim: Claim, speedup: Range, limit: Limit, noise: float) -> BoundOutcome:
    sides = {"left": _said(claim, speedup), "right": limit.text}
    if speedup.low > limit.value * (1 + noise):
        line = Message("audit.above", **sides)
        excuse = explained(claim, speedup.low, limit)
        if excuse is not None:
            return BoundOutcome(bound, "doubtful", Message("audit.but", line=line, excuse=excuse))
        return BoundOutcome(bound, "broken", line, tuple(needs(claim, speedup.low, limit)))
    if speedup.low > limit.value and speedup.low > 1 + min(noise, MAX_SPREAD):
        excess = speedup.low / limit.value - 1
        line = Message("audit.above_by_noise", **sides, excess=excess, noise=noise)
        return BoundOutcome(bound, "doubtful", line)
    slow = speedup.high <= 1
    result = "weak" if limit.weak and not slow else "holds"
    return BoundOutcome(bound, result, _within(claim, speedup, limit.value, limit.text))


def _within(claim: Claim, speedup: Range, limit: float, text: Message) -> Message:
    slack = "" if speedup.value <= limit else "_rounding" if speedup.low <= limit else "_noise"
    return Message(f"audit.within{slack}", left=_said(claim, speedup), right=text)


def _said(claim: Claim, speedup: Range) -> Message:
    rates = _ratio(claim)
    of_rates = rates is not None and speedup.value == rates.value
    if of_rates and claim.speedup != speedup.value and claim.decode_rate and claim.baseline_rate:
        found = {"rate": claim.decode_rate, "baseline_rate": claim.baseline_rate}
        return Message("audit.ratio", speedup=speedup.value, **found)
    return Message("audit.speedup", speedup=speedup.value)


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
    text: Message
    tau: float
    """Tokens per target forward that it rests on."""
    fields: tuple[str, ...] = ()
    """Fields of the claim that tau comes from; none: counts, which are sums."""
    drafted: float = 0.0
    """Tokens drafted per target forward."""
    cost: float = 0.0
    """Of one of them, in plain target forwards."""
    length: str = ""
    """`full`: every draft was taken to have gamma tokens; `any`: the length is not known, and the best was taken."""
    weak: bool = False
    """Whether nearly anything would obey it."""


def needs(claim: Claim, speedup: float, limit: Limit) -> Iterator[Assumption]:
    """What would have to be wrong for a speedup above the limit to be true; at least one thing, the likeliest first."""
    drafting = limit.drafted * limit.cost
    cheapest = bounds.cheapest_forward_needed(speedup, limit.tau, drafting)
    if cheapest > 0:
        m = claim.cheapest_forward
        measured = "" if m is None else Message("audit.measured", share=m)
        yield assumed("forward", "audit.needs_forward", forward=_forward(claim, cheapest), measured=measured)
    if drafting and speedup * max(claim.cheapest_forward or 1.0, drafting) <= limit.tau:
        yield assumed("in-turn", "audit.needs_overlap")
    if drafting:
        yield from _cheaper_drafts(claim, speedup, limit)
    wanted = speedup * ((claim.cheapest_forward or 1.0) + drafting)
    if not one_pool(claim, limit):
        yield from _other_means(claim, speedup, wanted, limit)
    said = claim.acceptance
    if "acceptance" in limit.fields and claim.acceptance_of is None and said is not None and said < 1:
        of_output = 1 / (1 - said)
        longest = math.inf if claim.gamma is None or not length_binds(claim) else 1 + claim.gamma
        if min(of_output, longest) >= wanted:
            yield assumed("acceptance", "audit.needs_share_of_output", tau=of_output)
    if joined(claim):
        yield assumed("one-method", "audit.needs_other_method", tau=wanted)
    if (claim.concurrency or 1) > 1:
        yield assumed("same-load", "audit.needs_fuller_batches", requests=claim.concurrency)
    factor = speedup / limit.value
    if claim.speedup is not None and (claim.baseline_rate is None or claim.baseline_from is not None):
        yield assumed("baseline", "audit.needs_faster_plain", times=factor)
    elif (where := claim.baseline_from or claim.baseline_device) is not None:
        yield assumed("baseline", "audit.needs_faster_baseline", times=factor, baseline=where)


def _forward(claim: Claim, share: float) -> Message:
    """A forward over the tokens of a step, in that share of the time of one token."""
    code = "audit.forward" if claim.gamma else "audit.forward_of_several"
    return Message(code, tokens=(claim.gamma or 0) + 1, share=_as_share(share))


def _cheaper_drafts(claim: Claim, speedup: float, limit: Limit) -> Iterator[Assumption]:
    """With g drafts of cost c per step, tau / S is the time left for drafting and verifying, in plain forwards."""
    each = (limit.tau - 1) / limit.drafted
    left = limit.tau / speedup - (claim.cheapest_forward or 1.0)
    if limit.length == "any" and each > 0:
        yield assumed("draft-rate", "audit.needs_faster_draft", times=limit.cost * speedup / each)
    elif left > 0:
        yield assumed("draft-rate", "audit.needs_faster_draft", times=limit.drafted * limit.cost / left)
    else:
        yield assumed("draft-rate", "audit.needs_free_drafts", forward=_forward(claim, limit.tau / speedup))
    # (1 + a g) / (1 + g c) >= S, solved for g; above S = 1 more drafts help only where each gives more than it costs.
    spare = speedup * limit.cost - each
    if limit.length == "full" and speedup < 1 and spare > 0:
        length = (1 - speedup) / spare
        yield assumed("full-length", "audit.needs_shorter_drafts", length=length, gamma=claim.gamma)


def _other_means(claim: Claim, speedup: float, wanted: float, limit: Limit) -> Iterator[Assumption]:
    said, gamma = claim.acceptance, claim.gamma
    if "acceptance" in limit.fields and said is not None:
        pooled = speedup * limit.cost if limit.length == "any" else (wanted - 1) / (gamma or 1)
        if pooled <= 1:
            yield assumed("pooled", "audit.needs_acceptance", acceptance=pooled, printed=said)
    elif gamma is None or wanted <= 1 + gamma:
        yield assumed("pooled", "audit.needs_pooled_tau", tau=wanted, printed=limit.tau)


def one_pool(claim: Claim, limit: Limit) -> bool:
    """Whether speedup and tau are known to be of the same runs in the same way: sums of all, or means over the same."""
    fields = {*_of_speedup(claim), *limit.fields}
    return claim.runs == 1 or fields <= set(claim.pooled) or (bool(limit.fields) and fields <= set(claim.averaged))


def explained(claim: Claim, speedup: float, limit: Limit) -> Message | None:
    """Why a speedup above a limit says nothing, where the source itself gives the reason."""
    factor = speedup / limit.value
    cheapest = bounds.cheapest_forward_needed(speedup, limit.tau, limit.drafted * limit.cost)
    if claim.cheapest_forward is None and cheapest >= bounds.CHEAP_FORWARD and _CPU.search(claim.device or ""):
        return Message("audit.cheap_forward", share=_as_share(cheapest))
    averaged = set(claim.averaged)
    if one_pool(claim, limit):
        return None
    if averaged & set(limit.fields) and factor <= MEAN_OF_ACCEPTANCE:
        return Message("audit.mean_of_acceptance", times=MEAN_OF_ACCEPTANCE)
    if averaged & set(_of_speedup(claim)) and factor <= MEAN_OF_SPEEDUPS:
        return Message("audit.mean_of_speedups")
    return None


def _of_speedup(claim: Claim) -> tuple[str, ...]:
    return ("speedup",) if claim.speedup is not None else ("decode_rate", "baseline_rate")


def _as_share(value: float) -> str:
    if value > 0.99:
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"
