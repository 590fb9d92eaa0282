"""Checks a claim's counters against each other, and its rate against its own times and the memory of the machine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specmeter.audit.claim import (
    ONE,
    Assumption,
    BoundOutcome,
    Claim,
    Range,
    assumed,
    family_of,
    joined,
    length_binds,
    printed,
)
from specmeter.audit.equations import TOLERANCE, Equation, apart, window_of
from specmeter.audit.speedup import COUNTED, MEAN_OF_SPEEDUPS, RATES, most_tau, speedup_range
from specmeter.messages import Message, Value
from specmeter.theory import bounds
from specmeter.theory.catalogue import devices as catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


FAILED, CONSERVATION, WINDOW = "target-decode-failed", "conservation", "window-mismatch"
UNSAID_LENGTH = 128
"""Draft tokens of one step, at most, where a source does not say."""
LONGER = 3
"""Times the mean length that a draft has, at most, if a source says neither its length nor its certainty."""
LONG_DRAFT = 32
"""Accepted tokens of a last draft that one generation cut off, from which on a source would say how long drafts are."""
FEW_FAILURES = 0.01
"""Share of failed forwards that a rate may survive: more of them, and what came out is neither text nor time of it."""
SHORTEST = 16
"""Tokens of a mean generation, at least, where a source does not say how many it sums up."""
MANY_DRAFTS = 50
"""Fewer drafted tokens than this can all be accepted by luck."""

_OTHER_RUNS = (assumed("pooled", "audit.needs_other_runs"),)


def check_failed_forwards(claim: Claim) -> BoundOutcome | None:
    """Whether the target's verifications succeeded; None where none is known to have failed."""
    failed, decoded = claim.failed_forwards, claim.decoded_tokens
    if not failed:
        return None
    succeeded = claim.target_forwards
    least = claim.steps or (-(-claim.drafted // claim.gamma) if claim.drafted and claim.gamma else None)
    if least is None and decoded is not None and claim.accepted is not None:
        least = decoded - claim.accepted
    if succeeded is None and least is None:
        return BoundOutcome(FAILED, "doubtful", Message("audit.failed", failed=failed))
    attempts = succeeded + failed if succeeded is not None else max(least or 0, failed)
    counts = {"failed": failed, "attempts": attempts, "done": attempts - failed}
    line = Message("audit.failed_of", **counts, share=1 - failed / attempts)
    return BoundOutcome(FAILED, "broken" if failed > FEW_FAILURES * attempts else "doubtful", line)


def check_conservation(claim: Claim) -> Iterator[BoundOutcome]:
    """Every contradiction between counters, or that the law closes."""
    accepted, drafted, steps, gamma = claim.accepted, claim.drafted, claim.steps, claim.gamma
    if accepted is not None and drafted is not None and accepted > drafted:
        yield _broken(Message("audit.accepted_beyond", accepted=accepted, drafted=drafted))
    share = printed(claim, "acceptance")
    if share is not None and share.low > 1 + 1e-9:
        yield _broken(Message("audit.acceptance_beyond", percent=100 * share.value))
    if drafted and steps and gamma is not None and drafted > gamma * steps and length_binds(claim):
        line = Message("audit.drafted_beyond", drafted=drafted, gamma=gamma, steps=steps, most=gamma * steps)
        yield _broken(line, [*_several_at_once(claim, drafted / (gamma * steps or 1)), *_of_another(claim)])
    tau = printed(claim, "tau")
    firsts = 1e-9 if "tau" in claim.pooled else COUNTED  # the token of the prompt's own forward may count
    if tau is not None and gamma is not None and tau.low > (1 + gamma) * (1 + firsts):
        line = Message("audit.tau_beyond", tau=tau.value, most=1 + gamma)
        if length_binds(claim):
            yield _broken(line, _of_another(claim))
        elif family_of(claim) != "tree":
            yield BoundOutcome(CONSERVATION, "doubtful", Message("audit.unless_trees", line=line))
    decode, wall = printed(claim, "predicted_ms"), printed(claim, "wall_ms")
    if decode is not None and wall is not None and claim.runs == 1 and decode.low > wall.high * (1 + TOLERANCE):
        yield _broken(Message("audit.decoding_beyond", decoding_s=decode.value / 1e3, run_s=wall.value / 1e3))
    yield from _law(claim)


def _broken(line: Message, rests_on: Iterable[Assumption] = ()) -> BoundOutcome:
    return BoundOutcome(CONSERVATION, "broken", line, tuple(rests_on))


def _several_at_once(claim: Claim, requests: float) -> Iterator[Assumption]:
    """Forwards that served several requests each, where the source does not rule that out."""
    if claim.concurrency is None and claim.runs != 1 and requests >= SERVED:
        yield assumed("one-request", "audit.needs_at_once", requests=requests)


def _of_another(claim: Claim) -> Iterator[Assumption]:
    """Drafts of the other of two methods, which are longer."""
    if joined(claim):
        yield assumed("one-method", "audit.needs_longer_method", gamma=claim.gamma)


SERVED = 1.05
"""Requests per forward, at least, that point to several at once: one token too many is a wrong count."""


def _law(claim: Claim) -> Iterator[BoundOutcome]:
    """Tokens after the first = accepted drafts + successful forwards, but for drafts that are cut off."""
    decoded, accepted, gamma = claim.decoded_tokens, claim.accepted, claim.gamma
    if decoded is None or accepted is None or (claim.concurrency or 1) > 1:
        return  # a forward that serves several requests emits a token for each
    # A source that does not say how many generations it sums up may sum up many, each with a first token of its own.
    runs = claim.runs or max(1, (claim.predicted_n or 0) // SHORTEST)
    # At a stop or limit at most one draft per generation is cut off; sources that count the first token differently
    # are one off per generation.
    longest = max(1, gamma if gamma is not None and length_binds(claim) else _unsaid_length(claim))
    cut, usual = longest * runs + (claim.restores or 0), _usual_cut(claim, runs)
    forwards, steps = claim.target_forwards, claim.steps
    if forwards is None:
        excess = accepted + (steps or 0) - decoded
        code = "audit.least_with_steps" if steps else "audit.least"
        line = Message(code, accepted=accepted, steps=steps, decoded=decoded)
    else:
        excess = -bounds.conservation_gap(decoded, accepted, forwards)
        law = Message("audit.law", decoded=decoded, accepted=accepted, forwards=forwards, sum=accepted + forwards)
        line = Message("audit.law_excess", law=law, excess=excess)
        if -excess > (0 if claim.runs else runs - 1):
            served = (decoded - accepted) / forwards if forwards else 1.0
            yield _broken(Message("audit.law_gap", law=law, gap=-excess), _several_at_once(claim, served))
        elif excess < 0:
            yield BoundOutcome(CONSERVATION, "doubtful", Message("audit.law_gap_or_firsts", law=law, gap=-excess))
        elif excess <= min(cut, usual):
            yield BoundOutcome(CONSERVATION, "holds", law)
    if excess > min(cut, usual):
        each = {"least": math.ceil(excess / runs), "mean": math.ceil(min(cut, usual) / runs)}
        yield _broken(line, () if excess > cut else (assumed("last-draft", "audit.needs_last_draft", **each),))
    elif forwards is not None:
        return
    elif claim.runs is None and 2 * (cut_off := math.ceil(excess / longest)) > max(2, runs):
        yield _broken(line, (assumed("last-draft", "audit.needs_cut_drafts", least=cut_off, gamma=longest),))
    elif claim.runs == 1 and gamma is None and excess > LONG_DRAFT and family_of(claim) != "lookup":
        yield _broken(line, (assumed("last-draft", "audit.needs_long_draft", least=excess),))


def _unsaid_length(claim: Claim) -> int:
    """Tokens of the longest draft, at most, if a source does not say: the others had one each, at least, unless rounds
    without drafts count, too; none if drafts end at a least certainty."""
    drafted, others = claim.drafted, 0 if claim.p_min else max(0, (claim.steps or 1) - 1)
    return UNSAID_LENGTH if drafted is None else min(UNSAID_LENGTH, max(drafted - others, _longer_than_mean(claim)))


def _longer_than_mean(claim: Claim) -> int:
    """Tokens of a long draft, by the mean length."""
    return max(1, LONGER * math.ceil((claim.drafted or 0) / (claim.steps or 1)))


def _usual_cut(claim: Claim, runs: int) -> float:
    """Tokens by which the last drafts of this many generations are cut, at most, if they are as long as drafts are on
    average; without end for n-grams and for lengths that adapt or stop at a least certainty.
    """
    adapts = claim.p_min or family_of(claim) == "lookup" or not length_binds(claim)
    if not claim.drafted or not claim.steps or adapts:
        return math.inf
    return math.ceil(claim.drafted / claim.steps) * runs + (claim.restores or 0)


# --- equations --------------------------------------------------------------------------------------------------------


def check_equations(claim: Claim, found: Iterable[Equation]) -> Iterator[BoundOutcome]:
    """What the equations of a row refuse, but for those of speedups (`specmeter.audit.speedup.check_ratio`)."""
    alone, pooled = claim.runs == 1, set(claim.pooled)
    for it in found:
        if it.law == "acceptance-of-counts" and it.gap > 1 and (alone or not it.holds):
            yield _broken(it.line, () if alone or "acceptance" in pooled else _OTHER_RUNS)
        elif it.law in {"positions-fall", "tau-of-positions"} and it.gap > 1 + 1e-9 and "tau" in pooled:
            yield _broken(it.line)
        elif it.law == "tau-of-counts" and _miscounted(claim, it, COUNTED, SHORTEST):
            yield _broken(it.line, () if alone or {"tau", "accepted"} & pooled else _OTHER_RUNS)
        elif it.law == "token-time" and alone and it.gap > 1 + 1e-9:
            yield BoundOutcome(WINDOW, "broken", it.line)
        elif it.law == "rate-of-time" and it.gap > 1 + TOLERANCE:
            yield _of_window(claim, it)


def _miscounted(claim: Claim, it: Equation, most: float, shortest: float) -> bool:
    """Whether counts do not give tau, even if a draft was cut off at the end of each generation, which some sources
    count. `shortest`: tokens of a mean generation, if a source does not say how many it sums up."""
    accepted, steps = claim.accepted or 0, claim.steps or 1
    longest = claim.gamma or _longer_than_mean(claim)
    runs = claim.runs or max(1, (accepted + steps) // shortest)
    slack = max((MEAN_OF_SPEEDUPS - 1 if "tau" in claim.averaged else most) * it.right.value, longest * runs / steps)
    return apart(it.left, Range(it.right.low - slack, it.right.value, it.right.high + slack)) > 1 + 1e-9


def _of_window(claim: Claim, it: Equation) -> BoundOutcome:
    """A rate that is not the row's tokens over its time.

    The time of a whole run holds more than decoding, so that a rate above what it gives is nothing to wonder about.
    """
    if window_of(claim) != "unknown":
        return BoundOutcome(WINDOW, "broken", Message("audit.by_source", line=it.line))
    if claim.runs == 1:
        return BoundOutcome(WINDOW, "broken", it.line)
    if it.gap <= _most_by_averaging(claim) or (claim.runs or 1) > 1:
        return BoundOutcome(WINDOW, "undecided", Message("audit.mean_of_rates", line=it.line))
    spread = assumed("one-window", "audit.needs_spread_of_rates", spread=math.sqrt(it.gap - 1))
    at_once = _several_at_once(claim, it.right.low / it.left.high)
    return BoundOutcome(WINDOW, "broken", it.line, (*at_once, spread))


def contradictions(claim: Claim, found: Iterable[Equation]) -> Iterator[BoundOutcome]:
    """Numbers of the row that do not go together, unless it is said that they are means."""
    for it in found:
        if not it.fails(claim.kept):
            continue
        if it.law == "rate-of-time" and ((claim.runs or 1) > 1 or it.gap <= _most_by_averaging(claim, it.far)):
            continue
        if it.law == "tau-of-counts" and not _miscounted(claim, it, it.far - 1, math.inf):
            continue
        bound = (
            RATES if it.of_speedup else CONSERVATION if it.fields[0] in {"tau", "acceptance", "positions"} else WINDOW
        )
        yield BoundOutcome(bound, "broken", it.line, _OTHER_RUNS)
    for line in claim.against:
        yield BoundOutcome(CONSERVATION, "broken", line, _OTHER_RUNS)


def _most_by_averaging(claim: Claim, usual: float = 1.25) -> float:
    """Most by which the mean of several rates may differ from the rate of their mean time.

    The mean of 1/t is at least 1 / mean of t, and about 1 + (relative standard deviation)^2 times that; the factor 4
    and the denominator leave room for few and skewed values. Where nothing is said of a spread, half the rate is taken.
    """
    if claim.decode_rate_sd is None or claim.decode_rate is None:
        return usual
    spread = min(0.9, claim.decode_rate_sd / claim.decode_rate)
    return 1 + TOLERANCE + 4 * spread**2 / (1 - spread)


UNSTEADY = 0.1
"""Relative standard deviation of rates beyond which their mean says little."""


def remarks(claim: Claim) -> Iterator[Message]:
    """What counters show besides bounds. A target that drafts for itself is right every time, and slower."""
    speedup = speedup_range(claim)
    slower = speedup is not None and speedup.high < 1
    counted = claim.drafted is not None and claim.drafted >= MANY_DRAFTS and claim.accepted == claim.drafted
    if counted and slower and not claim.is_baseline:
        yield _remark("acceptance-by-construction", "audit.by_construction_counted", drafted=claim.drafted)
    elif claim.drafted is None and claim.acceptance == 1 and slower:
        yield _remark("acceptance-by-construction", "audit.by_construction")
    if claim.decode_rate is not None and claim.decode_rate_sd is not None:
        spread = claim.decode_rate_sd / claim.decode_rate
        if spread > UNSTEADY:
            yield _remark("baseline-unstable", "audit.unsteady", spread=spread)
    if claim.failed_draft_forwards:
        yield _remark("draft-decode-failed", "audit.draft_failed", failed=claim.failed_draft_forwards)


def _remark(check: str, code: str, **values: Value) -> Message:
    return Message("audit.remark", check=check, line=Message(code, **values))


# --- memory -----------------------------------------------------------------------------------------------------------

BANDWIDTH = "bandwidth-bound"
READ_SHARE = 0.75
"""Of a dense model's file that every token reads at least: a token embedding of its own is looked up, not read, and
makes up to a fifth of small models with large vocabularies."""
CACHED_BYTES = 256e6
"""Weights below this may stay in a processor's cache, where the memory's speed does not bind them."""


def check_bandwidth(claim: Claim, noise: float) -> Iterator[BoundOutcome]:
    """Memory traffic that the claim needs, or claims, against the peak of the device."""
    peak, text = _peak(claim) or (None, None)
    claimed = printed(claim, "claimed_bandwidth_bytes_per_s")
    if claimed is not None and peak is not None:
        above = claimed.low > peak.high * (1 + noise)
        traffic = Message("audit.claimed", gb_per_s=claimed.value / 1e9)
        line = Message("audit.above" if above else "audit.within", left=traffic, right=text)
        yield BoundOutcome(
            BANDWIDTH, "broken" if above else "weak", line, _memory(claimed.value, peak) if above else ()
        )
    if claim.bytes_per_token is None and claim.size_bytes is None:
        yield _unbound("audit.no_bytes")
    elif peak is None or text is None:
        yield _unbound("audit.unknown_device" if claim.device else "audit.no_device", device=claim.device)
    elif (forwards := _forward_rate(claim)) is None:
        yield _unbound("audit.no_forward_rate")
    else:
        yield _check_traffic(claim, *forwards, peak, text, noise)


def _unbound(code: str, **values: Value) -> BoundOutcome:
    return BoundOutcome(BANDWIDTH, "undecided", Message(code, **values))


def _check_traffic(claim: Claim, rate: Range, tau: float, peak: Range, text: Message, noise: float) -> BoundOutcome:
    exact = printed(claim, "bytes_per_token")
    size = exact or printed(claim, "size_bytes")
    assert size is not None
    least = bounds.traffic(size.low * (1 if exact else READ_SHARE), rate.low, tau)
    nominal = bounds.traffic(size.value, rate.value, tau)
    code = "audit.traffic_of_steps" if tau > 1 else "audit.traffic"
    gb = size.value / 1e9
    traffic = Message(code, size_gb=gb, rate=rate.value, tau=tau, gb_per_s=nominal / 1e9)
    mixture = claim.experts > 0 if claim.experts is not None else claim.mixture
    if exact is None and mixture:
        return _unbound("audit.mixture_file", size_gb=gb)
    if size.high < CACHED_BYTES:
        return _unbound("audit.cached", size_gb=gb)
    if least > peak.high * (1 + noise):
        if exact is None and mixture is None:
            return _unbound("audit.unless_mixture", traffic=traffic, peak=text)
        weights = assumed("weights", "audit.needs_weights", needed_gb=gb * peak.high / nominal, size_gb=gb)
        line = Message("audit.above", left=traffic, right=text)
        return BoundOutcome(BANDWIDTH, "broken", line, (*_memory(nominal, peak), weights))
    if nominal > peak.low:
        code = "audit.near_peak" if peak.low == peak.high else "audit.near_one_of_peaks"
        return _unbound(code, traffic=traffic, peak=text)
    return BoundOutcome(BANDWIDTH, "holds", Message("audit.within", left=traffic, right=text))


def _memory(speed: float, peak: Range) -> tuple[Assumption, ...]:
    return (assumed("bandwidth", "audit.needs_memory", gb_per_s=speed / 1e9, peak=peak.high / 1e9),)


def _forward_rate(claim: Claim) -> tuple[Range, float] | None:
    """Target forwards per second as a rate of one sequence and tokens per forward: the most demanding pair known."""
    found: list[tuple[Range, float]] = []
    alone = (claim.concurrency or 1) <= 1
    baseline, interval = printed(claim, "baseline_rate") if alone else None, printed(claim, "token_interval_ms")
    if baseline is not None:
        found.append((baseline, 1.0))
    rate = printed(claim, "decode_rate") if alone and claim.window != "with prompt" else None
    if interval is not None:
        rate = ONE.over(interval).by(1e3)
    if rate is not None:
        if claim.is_baseline or not claim.speculates:
            found.append((rate, 1.0))
        elif (tau := most_tau(claim)) is not None:
            found.append((rate, tau.value))
    return max(found, key=lambda pair: pair[0].low / pair[1], default=None)


def _peak(claim: Claim) -> tuple[Range, Message] | None:
    """Bytes per second that the memory gives at most, and what is said of it."""
    said = printed(claim, "bandwidth_bytes_per_s")
    if said is not None:
        code = "audit.peak_of" if claim.device else "audit.peak"
        return said, Message(code, gb_per_s=said.value / 1e9, device=claim.device)
    known = catalogue.peak(claim.device) if claim.device else None
    if known is None:
        return None
    code = "audit.peak" if known.low == known.high else "audit.peaks"
    speeds = Message(code, low=known.low / 1e9, gb_per_s=known.high / 1e9)
    code = "audit.catalogued" if known.verified else "audit.catalogued_unverified"
    return Range(known.low, known.low, known.high), Message(code, speeds=speeds, names=known.names)
