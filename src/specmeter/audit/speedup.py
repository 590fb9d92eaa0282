"""A claimed speedup against what acceptance and the cost of drafting permit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.audit.outcome import Outcome, decoded_tokens, drafts_one_by_one, is_baseline
from specmeter.audit.printed import Range, number, printed
from specmeter.theory import bounds

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

TAU, COST, TIME = "speedup-above-tau", "speedup-above-cost-bound", "draft-time-bound"


@dataclass(frozen=True)
class Limit:
    """A bound with the arithmetic that gives it."""

    value: float
    text: str
    weak: bool = False


def speedup_range(claim: Claim) -> Range | None:
    """The claimed speedup: as printed, as the ratio of the rates, or what both allow; None where neither is there.

    Where the two do not agree, the lower one is taken: it is easier to believe.
    """
    said, rates = printed(claim, "speedup"), _ratio(claim)
    if said is None or rates is None:
        return said or rates
    low = max(said.low, rates.low)
    if low > min(said.high, rates.high):
        low = min(said.low, rates.low)
    return Range(low, said.value, max(said.high, rates.high))


def disagreement(claim: Claim) -> str | None:
    """A printed speedup that the row's own rates do not give."""
    said, rates = printed(claim, "speedup"), _ratio(claim)
    if said is None or rates is None or (said.low <= rates.high * 1.005 and rates.low <= said.high * 1.005):
        return None
    return f"printed speedup {number(said.value)}, but its rates give {number(rates.value)}"


def most_tau(claim: Claim) -> Limit | None:
    """Most tokens per target forward that anything in the claim permits, by the sharpest of its numbers."""
    found: list[Limit] = []
    decoded = decoded_tokens(claim)
    if decoded is not None and claim.target_forwards and (claim.concurrency or 1) <= 1:
        value = max(1.0, decoded / claim.target_forwards)
        found.append(Limit(value, f"{decoded} / {claim.target_forwards} = {number(value)}"))
    if claim.accepted is not None and claim.steps:
        value = bounds.tau_from_counts(claim.accepted, claim.steps)
        found.append(Limit(value, f"1 + {claim.accepted} / {claim.steps} = {number(value)}"))
    if decoded is not None and claim.accepted is not None:
        forwards = bounds.fewest_forwards(decoded, claim.accepted, claim.gamma)
        value = decoded / forwards
        found.append(Limit(value, f"{decoded} / {number(forwards)} = {number(value)}"))
    said = printed(claim, "tau")
    if said is not None:
        found.append(Limit(said.high, number(said.high)))
    share = acceptance_range(claim)
    if claim.gamma is not None and share is not None:
        value = bounds.tau_from_acceptance(share.high, claim.gamma)
        # A printed tau above this speaks another language of acceptance (per position, of a tree): then only tau holds.
        if said is None or said.low <= value:
            found.append(Limit(value, f"1 + {number(share.high)} x {claim.gamma} = {number(value)}"))
    if claim.gamma is not None and not found:
        found.append(Limit(1.0 + claim.gamma, f"1 + {claim.gamma} = {claim.gamma + 1}", weak=claim.gamma > 0))
    return min(found, key=lambda limit: limit.value, default=None)


def acceptance_range(claim: Claim) -> Range | None:
    """Accepted / drafted, from the counts where they are there."""
    if claim.accepted is not None and claim.drafted and claim.accepted <= claim.drafted:
        share = claim.accepted / claim.drafted
        return Range(share, share, share)
    return printed(claim, "acceptance")


def check_tau(claim: Claim, noise: float) -> Outcome | None:
    """S <= tau; None where no speedup is claimed."""
    speedup = speedup_range(claim)
    if speedup is None or is_baseline(claim):
        return None
    limit = most_tau(claim)
    if limit is None:
        if speedup.low <= 1 + noise:
            return Outcome(TAU, "holds", f"{_said(claim, speedup)} <= 1 <= tau" + _slack(speedup, 1.0))
        return Outcome(TAU, "undecided", f"{_said(claim, speedup)}: no acceptance and draft length, tau or counts")
    return _compare(TAU, claim, speedup, Limit(limit.value, f"tau = {limit.text}", limit.weak), noise)


def check_cost(claim: Claim, noise: float) -> Outcome | None:
    """S <= tau / (1 + g c); None where no speedup is claimed, or drafting is not known to cost time in a row."""
    speedup = speedup_range(claim)
    cost = draft_cost(claim)
    if speedup is None or cost is None or is_baseline(claim) or claim.draft_elsewhere or not drafts_one_by_one(claim):
        return None
    limit = _cost_limit(claim, cost)
    return None if limit is None else _compare(COST, claim, speedup, limit, noise)


def check_drafting_time(claim: Claim, noise: float) -> Outcome | None:
    """Drafting alone takes no longer than the run; None where counts, time or the draft's rate are missing."""
    rate = printed(claim, "draft_rate")
    if rate is None or not claim.drafted or not drafts_one_by_one(claim) or (claim.concurrency or 1) > 1:
        return None
    times = [time for field in ("predicted_ms", "wall_ms") if (time := printed(claim, field)) is not None]
    decode = printed(claim, "decode_rate")
    if not times and decode is not None and claim.predicted_n:
        times = [Range(1e3 / decode.high, 1e3 / decode.value, 1e3 / decode.low).times(claim.predicted_n)]
    if not times:
        return None
    time = max(times, key=lambda time: time.high)
    least = bounds.drafting_ms(claim.drafted, rate.high)
    broken = least > time.high * (1 + noise)
    line = (
        f"{claim.drafted} drafts / {number(rate.value)} tok/s = {number(least / 1e3)} s "
        f"{'>' if broken else '<='} {number(time.value / 1e3)} s of the run"
    )
    return Outcome(TIME, "broken" if broken else "weak", line)


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
    decoded = decoded_tokens(claim)
    c = number(cost.low)
    if claim.accepted is not None and claim.drafted is not None:
        forwards = None
        if decoded is not None:
            alone = claim.target_forwards if (claim.concurrency or 1) <= 1 else None
            forwards = alone or bounds.fewest_forwards(decoded, claim.accepted, claim.gamma)
        elif claim.steps:
            forwards, decoded = claim.steps, claim.steps + claim.accepted
        if forwards and decoded:
            tau, drafted = max(1.0, decoded / forwards), claim.drafted / forwards
            value = bounds.cost_bound(tau, drafted, cost.low)
            text = f"{number(tau)} / (1 + {number(drafted)} x {c}) = {number(value)}"
            return Limit(value, f"tau / (1 + g c) = {text}")
    share = acceptance_range(claim)
    if share is None or claim.gamma is None:
        return None
    tau = bounds.tau_from_acceptance(share.high, claim.gamma)
    at_full_length = f"{number(tau)} / (1 + {claim.gamma} x {c})"
    if not claim.p_min:
        value = bounds.cost_bound(tau, claim.gamma, cost.low)
        return Limit(value, f"tau / (1 + gamma c) = {at_full_length} = {number(value)}")
    value = bounds.cost_bound_any_length(share.high, claim.gamma, cost.low)
    return Limit(value, f"max(1, {at_full_length}) = {number(value)}")


def _compare(bound: str, claim: Claim, speedup: Range, limit: Limit, noise: float) -> Outcome:
    said = _said(claim, speedup)
    if speedup.low > limit.value * (1 + noise):
        return Outcome(bound, "broken", f"{said} > {limit.text}")
    if speedup.low > limit.value and speedup.low > 1 + noise:
        excess = speedup.low / limit.value - 1
        line = f"{said} > {limit.text}, but by {excess:.2%} only: timing noise may be {noise:.1%}"
        return Outcome(bound, "doubtful", line)
    slow = speedup.high <= 1
    result = "weak" if limit.weak and not slow else "holds"
    return Outcome(bound, result, f"{said} <= {limit.text}" + _slack(speedup, limit.value))


def _slack(speedup: Range, limit: float) -> str:
    if speedup.value <= limit:
        return ""
    return " within rounding" if speedup.low <= limit else " within timing noise"


def _said(claim: Claim, speedup: Range) -> str:
    if claim.speedup is None and claim.decode_rate and claim.baseline_rate:
        return f"S = {number(claim.decode_rate)} / {number(claim.baseline_rate)} = {number(speedup.value)}"
    return f"S = {number(speedup.value)}"


def _ratio(claim: Claim) -> Range | None:
    rate, baseline = printed(claim, "decode_rate"), printed(claim, "baseline_rate")
    return None if rate is None or baseline is None else rate.over(baseline)
