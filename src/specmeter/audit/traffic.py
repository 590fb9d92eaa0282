"""A claimed rate against the memory that the weights come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.audit.bound import BoundOutcome, Range, number, printed
from specmeter.audit.claim import Assumption
from specmeter.audit.speedup import most_tau
from specmeter.theory import bounds, catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.audit.claim import Claim

BANDWIDTH = "bandwidth-bound"
READ_SHARE = 0.75
"""Of a dense model's file that every token reads at least: a token embedding of its own is looked up, not read, and
makes up to a fifth of small models with large vocabularies."""
CACHED_BYTES = 256e6
"""Weights below this may stay in a processor's cache, where the memory's speed does not bind them."""


@dataclass(frozen=True)
class _Peak:
    low: float
    high: float
    text: str


def check_bandwidth(claim: Claim, noise: float) -> Iterator[BoundOutcome]:
    """Memory traffic that the claim needs, or claims, against the peak of the device."""
    peak = _peak(claim)
    claimed = printed(claim, "claimed_bandwidth_bytes_per_s")
    if claimed is not None and peak is not None:
        above = claimed.low > peak.high * (1 + noise)
        line = f"{_speed(claimed.value)} claimed {'>' if above else '<='} {peak.text}"
        rests_on = (_memory(claimed.value, peak),) if above else ()
        yield BoundOutcome(BANDWIDTH, "broken" if above else "weak", line, rests_on)
    if claim.bytes_per_token is None and claim.size_bytes is None:
        yield BoundOutcome(BANDWIDTH, "undecided", "no bytes per token or file size")
        return
    if peak is None:
        what = f"unknown device {claim.device!r}" if claim.device else "no device"
        yield BoundOutcome(BANDWIDTH, "undecided", f"{what} or bandwidth")
        return
    forwards = _forward_rate(claim)
    if forwards is None:
        yield BoundOutcome(BANDWIDTH, "undecided", "neither a rate of plain decoding nor tau")
        return
    yield _traffic(claim, *forwards, peak, noise)


def _traffic(claim: Claim, rate: Range, tau: float, peak: _Peak, noise: float) -> BoundOutcome:
    exact = printed(claim, "bytes_per_token")
    size = exact or printed(claim, "size_bytes")
    assert size is not None
    least = bounds.traffic(size.low * (1 if exact else READ_SHARE), rate.low, tau)
    nominal = bounds.traffic(size.value, rate.value, tau)
    per = f" / {number(tau)}" if tau > 1 else ""
    sum_ = f"{_bytes(size.value)} x {number(rate.value)} tok/s{per} = {_speed(nominal)}"
    mixture = claim.experts > 0 if claim.experts is not None else claim.mixture
    if exact is None and mixture:
        line = (
            f"{_bytes(size.value)} is the file of a mixture of experts, not what a token reads: bytes per token decide"
        )
        return BoundOutcome(BANDWIDTH, "undecided", line)
    if size.high < CACHED_BYTES:
        return BoundOutcome(BANDWIDTH, "undecided", f"weights of {_bytes(size.value)} may stay in a cache")
    if least > peak.high * (1 + noise):
        if exact is None and mixture is None:
            line = f"{sum_} > {peak.text}, unless the model is a mixture of experts: bytes per token decide"
            return BoundOutcome(BANDWIDTH, "undecided", line)
        weights = f"weights of {_bytes(size.value * peak.high / nominal)} per forward instead of {_bytes(size.value)}"
        rests_on = (_memory(nominal, peak), Assumption(name="weights", needs=weights))
        return BoundOutcome(BANDWIDTH, "broken", f"{sum_} > {peak.text}", rests_on)
    if nominal > peak.low:
        reason = "rounding, noise and what else a file holds may explain it"
        if peak.low != peak.high:
            reason = "which of these devices it is decides"
        return BoundOutcome(BANDWIDTH, "undecided", f"{sum_} is near or above {peak.text}: {reason}")
    return BoundOutcome(BANDWIDTH, "holds", f"{sum_} <= {peak.text}")


def _memory(speed: float, peak: _Peak) -> Assumption:
    return Assumption(name="bandwidth", needs=f"{_speed(speed)} from a memory of {number(peak.high / 1000000000.0)}")


def _forward_rate(claim: Claim) -> tuple[Range, float] | None:
    """Target forwards per second as a rate of one sequence and tokens per forward: the most demanding pair known."""
    found: list[tuple[Range, float]] = []
    baseline = printed(claim, "baseline_rate")
    alone = (claim.concurrency or 1) <= 1
    if baseline is not None and alone:
        found.append((baseline, 1.0))
    rate = printed(claim, "decode_rate") if alone and claim.window != "with prompt" else None
    interval = printed(claim, "token_interval_ms")
    if interval is not None:
        rate = Range(1e3 / interval.high, 1e3 / interval.value, 1e3 / interval.low)
    if rate is not None:
        if claim.is_baseline or not claim.speculates:
            found.append((rate, 1.0))
        elif (tau := most_tau(claim)) is not None:
            found.append((rate, tau.value))
    return max(found, key=lambda pair: pair[0].low / pair[1], default=None)


def _peak(claim: Claim) -> _Peak | None:
    said = printed(claim, "bandwidth_bytes_per_s")
    if said is not None:
        return _Peak(said.low, said.high, f"{_speed(said.value)}" + (f" of {claim.device}" if claim.device else ""))
    known = catalogue.peak(claim.device) if claim.device else None
    if known is None:
        return None
    doubt = "" if known.verified else ", unverified"
    speeds = _speed(known.high) if known.low == known.high else f"{_speed(known.low)} to {_speed(known.high)}"
    return _Peak(known.low, known.high, f"{speeds} ({', '.join(known.names)}{doubt})")


def _speed(bytes_per_s: float) -> str:
    return f"{number(bytes_per_s / 1e9)} GB/s"


def _bytes(count: float) -> str:
    return f"{number(count / 1e9)} GB"
