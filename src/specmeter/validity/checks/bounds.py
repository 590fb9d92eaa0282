"""Checks of bounds: speedups that acceptance permits, rates that memory can feed.

The bounds are those of `specmeter.theory.bounds`, applied to single requests and to blocks. Symbols as there: tau,
gamma, c, m, S, F. Every bound rests on something that a machine may do otherwise (forwards over several tokens that
cost less than one, caches, catalogues), so a number above one is doubtful. It is false if the run's own times
contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.messages import Message
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, speedup_over_invocations
from specmeter.record import Arm, DeviceUse, Estimate, Finding, Host, Session, Severity
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, answered, not_applicable, not_checkable, of_arm, of_request
from specmeter.validity.checks.counters import OWN_WORK, SLACK_MS
from specmeter.validity.checks.law import longest_draft
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import used_sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]

CACHE_BYTES = 256 * 1024 * 1024
"""Weights that may stay in a processor's largest cache, and need not be read from memory."""


class Blind(NamedTuple):
    """Why nothing is known."""

    reason: Message
    applies: bool = True


class TrafficLimit(NamedTuple):
    """What no traffic can exceed."""

    bytes_per_s: float
    device: str


class DraftTime(NamedTuple):
    """Least time that a draft takes for a token."""

    ms: float
    device: str


def draft_floor(data: RunData, arm: Arm, requests: Requests) -> DraftTime | Blind:
    """Least time for one drafted token: the draft's weights over the peak bandwidth of the memory that holds them.

    Only for drafts made token by token, by a model of its own, on this machine.
    """
    if arm.methods != ("draft-simple",) or arm.draft is None:
        return Blind(Message("unchecked.no_model_drafts_alone"), applies=False)
    if data.simulated:
        return Blind(Message("unchecked.simulated"), applies=False)
    header = data.header(arm.draft)
    if header is None:
        return Blind(Message("unchecked.no_draft_header", draft=arm.draft))
    peak = peak_of_sessions(data, used_sessions(data, requests), draft=True)
    if isinstance(peak, Blind):
        return Blind(Message("unchecked.no_draft_rate", reason=peak.reason))
    if header.bytes_per_token <= CACHE_BYTES:
        return Blind(Message("unchecked.draft_in_cache"))
    return DraftTime(1000 * (header.bytes_per_token - CACHE_BYTES) / peak.bytes_per_s, peak.device)


def peak_of_sessions(data: RunData, sessions: Sequence[Session], *, draft: bool) -> TrafficLimit | Blind:
    """The fastest memory that can have held the weights in any of these sessions."""
    peaks: list[TrafficLimit] = []
    for session in sessions:
        uses = session.draft_devices if draft else session.devices
        layers = session.draft_layers_offloaded if draft else session.layers_offloaded
        peak = _peak(data.hosts, uses, layers)
        if isinstance(peak, Blind):
            return peak
        peaks.append(peak)
    return max(peaks, default=Blind(Message("unchecked.no_session")))


_MAKERS = {"CUDA": "nvidia", "ROCM": "amd", "HIP": "amd", "METAL": "apple", "MTL": "apple"}
"""Backend -> maker of its GPUs; others take any."""
CPU_BUFFERS = ("CPU", "BLAS", "ACCEL", "AMX")


def _peak(hosts: Sequence[Host], uses: Sequence[DeviceUse], layers: tuple[int, int] | None) -> TrafficLimit | Blind:
    """The peak bandwidth of what holds weights: of all GPUs together that the backend may have meant, or of the CPU."""
    from specmeter.theory.catalogue import devices as catalogue

    held = [use.device.upper() for use in uses if use.model_buffer_bytes]
    gpus = [name for name in held if not name.startswith(CPU_BUFFERS)]
    if not held:
        return Blind(Message("unchecked.weights_unknown"))
    if any(name.startswith("RPC") for name in gpus):
        return Blind(Message("unchecked.weights_remote"))
    if gpus and (layers is None or layers[0] < layers[1]):
        return Blind(Message("unchecked.layers_split"))
    if gpus:
        makers = {next((maker for prefix, maker in _MAKERS.items() if name.startswith(prefix)), "") for name in gpus}
        names = [[gpu.name for gpu in host.gpus if "" in makers or gpu.vendor.casefold() in makers] for host in hosts]
    else:
        names = [[host.cpu] for host in hosts]
    found: list[TrafficLimit] = []
    for of_host in names:
        # Names may hold commas, which the catalogue takes for lists.
        peaks = [catalogue.peak(name) if "," not in name else None for name in of_host]
        known = [peak.high for peak in peaks if peak is not None]
        if not known or len(known) < len(peaks):
            return Blind(Message("unchecked.no_peak", device=of_host or Message("unchecked.gpu")))
        found.append(TrafficLimit(sum(known), ", ".join(of_host)))
    return max(found, default=Blind(Message("unchecked.no_host")))


TOLERANCE = OWN_WORK
"""How far above a bound a speedup may seem to lie."""
PROBED = 0.15
"""By how much a forward may have been cheaper than the run's own probe measured it."""
LEVEL = 0.99
"""Of the interval that has to lie above a bound: many arms are checked, and none may be accused by chance."""


# --- speedups --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """Sums over the requests of a block that an arm and its baseline both answered."""

    forwards_ms: float = 0.0
    """What the arm's forwards took if each took as long as a plain token."""
    drafting_ms: float = 0.0
    """Least time that its drafts can have taken."""
    ms: float = 0.0
    """Time that all of it took."""
    tokens: int = 0
    base_ms: float = 0.0
    base_tokens: int = 0

    def add(self, other: _Block) -> None:
        """Take in another one."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class _Excess:
    """How far an arm is above a bound: floor / time of each block, where the floor takes a plain token's time for every
    forward; more than 1 needs cheaper ones."""

    ratio: Estimate
    speedup: Estimate
    needed: float
    """Time of a forward, in plain tokens, at which floor and time of all blocks together are equal."""
    plain_ms: float
    """Mean time of a plain token."""

    @property
    def bound(self) -> float:
        """The speedup at which floor and time would be equal."""
        return self.speedup.point / self.ratio.point

    @property
    def certain(self) -> bool:
        """Whether noise cannot be the reason."""
        low = self.ratio.low
        if low is None and self.ratio.n > 1:
            low = self.ratio.point  # blocks that agree to nine digits: a clock without noise
        return low is not None and low > 1 + TOLERANCE

    @property
    def above(self) -> bool:
        """Whether the bound is passed at all, be it by chance."""
        return self.certain or self.ratio.point > 1 + TOLERANCE


def _excess(data: RunData, arm: Arm, requests: Requests, draft_ms: float = 0.0) -> _Excess | None:
    """Compare the time of an arm's steps with what they would take at the price of plain tokens, block by block; None
    without a baseline.

    A step takes at least one target forward. What that costs is not known, but what a plain token cost is, for the same
    prompt in the same block, by the baseline:

        floor = sum over requests of  F (baseline's ms / its tokens) + drafted tokens x draft_ms

    With draft_ms = 0, floor / time is S / tau; summing over requests and not over their means makes it exact where
    prompts differ in speed. F is the fewest forwards that the counters permit, so a tau too large makes no alarm.
    """
    sessions = used_sessions(data, requests)
    gamma = longest_draft(arm, sessions[0] if sessions else None)
    pairs = data.beside_baseline[arm.id]
    pairs = pairs.at(_timed(pairs.own) & _timed(pairs.base))
    tokens, base_tokens = (it.whole("predicted_n") - 1 for it in (pairs.own, pairs.base))
    ms, base_ms = (it.number("predicted_ms") for it in (pairs.own, pairs.base))
    forwards = np.maximum(tokens - pairs.own.whole("draft_n_accepted"), tokens / (gamma + 1))
    drafting_ms = pairs.own.whole("draft_n") * draft_ms
    each = (forwards * base_ms / base_tokens, drafting_ms, ms, tokens, base_ms, base_tokens)
    blocks, which = pairs.own.distinct("invocation", "block")
    sums = [np.bincount(which, weights=it, minlength=len(blocks)).tolist() for it in each]
    units: dict[int, list[_Block]] = {}
    """Blocks by invocation."""
    for (invocation, _), *of_block in zip(blocks, *sums, strict=True):
        units.setdefault(invocation, []).append(_Block(*of_block))
    return _estimated(list(units.values())) if units else None


def _timed(requests: Requests) -> Bools:
    """Those that decoded anything, in a time that is known."""
    return (requests.whole("predicted_n") > 1) & (np.nan_to_num(requests.number("predicted_ms")) != 0)


def _estimated(units: Sequence[Sequence[_Block]]) -> _Excess:
    ratio = [[(Pool(it.forwards_ms + it.drafting_ms, it.ms), Pool(1, 1)) for it in blocks] for blocks in units]
    speedup = [[(Pool(it.tokens, it.ms), Pool(it.base_tokens, it.base_ms)) for it in blocks] for blocks in units]
    whole = _Block()
    for it in chain.from_iterable(units):
        whole.add(it)
    needed = (whole.ms - whole.drafting_ms) / whole.forwards_ms
    return _Excess(_over_units(ratio), _over_units(speedup), needed, whole.base_ms / whole.base_tokens)


def _over_units(units: Sequence[Sequence[Pair]]) -> Estimate:
    """Geometric mean over blocks, or over invocations where there are several, as speedups are estimated."""
    if len(units) == 1:
        return geometric_speedup(units[0], level=LEVEL)
    return speedup_over_invocations(units, level=LEVEL).estimate


class _StepTime(NamedTuple):
    """What a run's own steps say about the time that it took."""

    ms: float | None
    """Mean time of a step, drafting included, and so the most that a mean forward took; None where steps are not told
    apart."""
    beyond_ms: float
    """How much longer a request's steps took than its decoding, at most; above 0 one of the two is false."""


def _own_steps(requests: Requests) -> _StepTime:
    """Time of the steps after the first of each request, which lie within its decode time.

    The engine reports both. Its steps end one after the other, so from the first end to the last no more time can
    pass than decoding took: that is arithmetic, whatever the machine does.
    """
    several = requests.at(requests.whole("steps.number") > 1)
    spans = several.values("steps.first_ms", "steps.last_ms", "steps.number", "predicted_ms")
    told = [(last - first, number, ms or 0.0) for first, last, number, ms in spans]
    steps = sum(count - 1 for _, count, _ in told)
    beyond = max((ms - whole * (1 + TOLERANCE) - SLACK_MS for ms, _, whole in told), default=0.0)
    mean = sum(ms for ms, _, _ in told) / steps if steps > 0 and len(told) == len(requests) else None
    return _StepTime(mean, max(0.0, beyond))


def speedup_above_tau(data: RunData) -> Findings:
    """S <= tau / m: a step costs at least one target forward, and that at least the cheapest.

    A speedup above tau needs forwards over several tokens that take less time than one over a single token. CPUs have
    such, so that this alone is a `note`; it is `suspect` where they would have to be cheaper than the run's own probe
    shows, or without one cheaper than was ever seen, or where neither its steps nor a CPU makes them plausible.
    `invalid` it is only where the engine's own steps took longer than the decode time that the speedup is made from.

    Assumes: invalid only if the engine's own steps took longer than its decode time, which is arithmetic. The bound
    assumes that no forward pass over several tokens is faster than one over a single token.
    Otherwise: CPUs have such forward passes, so it is a note. Suspect if they would have to be over 15% cheaper than
    this run's probe shows; without a probe, below 0.5, or if neither a CPU nor a timed step explains them.
    """
    for arm, requests in answered(data):
        excess = _excess(data, arm, requests) if arm.speculates else None
        if excess is None:
            yield not_applicable(arm.id, Message("unchecked.no_speedup"))
        elif excess.above:
            yield _above_tau(data, arm, requests, excess)


def _above_tau(data: RunData, arm: Arm, requests: Requests, excess: _Excess) -> Finding:
    seen = _own_steps(requests)
    longest = longest_draft(arm, next(iter(used_sessions(data, requests)), None)) + 1
    probed = _probed_forward(data, arm, longest - 1)
    severity = "invalid" if seen.beyond_ms > 0 else _doubt(data, arm, requests, excess, seen)
    if severity == "invalid":
        remedy = Message("speedup-above-tau.fix_clock")
    elif severity == "note":
        remedy = Message("speedup-above-tau.fix_cheap")
    elif not excess.certain:
        remedy = Message("speedup-above-tau.fix_noise")
    else:
        remedy = Message("speedup-above-tau.fix")
    return of_arm(
        severity,
        arm.id,
        Message(
            "speedup-above-tau.found",
            speedup=excess.speedup.point,
            tau=excess.bound,
            longest=longest,
            forward_needed=excess.needed,
            steps=""
            if seen.ms is None
            else Message("speedup-above-tau.steps", step_ms=seen.ms, plain_ms=excess.plain_ms),
            probed="" if probed is None else Message("speedup-above-tau.probed", forward_probed=probed),
            clock=Message("speedup-above-tau.clock") if severity == "invalid" else "",
        ),
        remedy,
        excess=excess.ratio.point,
        excess_low=excess.ratio.low,
        excess_high=excess.ratio.high,
        forward_probed=probed,
        step_ms=seen.ms,
        steps_beyond_decode_ms=seen.beyond_ms or None,
        level=LEVEL,
        units=excess.ratio.n,
        tolerance=TOLERANCE,
    )


def _probed_forward(data: RunData, arm: Arm, longest: int) -> float | None:
    """Time of the cheapest forward over several tokens that the run's own probe of such steps shows, in plain tokens.

    A step that drafts d tokens and has nothing accepted is a forward over d + 1 tokens and the drafting of d. None
    where no such steps were probed, or where a draft model's part of them is not known.
    """
    found: list[float] = []
    for probe in data.step_probes:
        if (probe.baseline_id, probe.target, probe.draft) != (arm.baseline_id, arm.target, arm.draft):
            continue
        timed = [(it, it.step_ms | it.steady_ms) for it in probe.rounds]
        for drafted in {count for _, steps in timed for count in steps if 0 < count <= longest}:
            forwards = [
                (steps[drafted] - drafted * (it.drafting_ms or 0.0)) / it.plain_ms
                for it, steps in timed
                if drafted in steps and (it.drafting_ms is not None or probe.draft is None)
            ]
            found += [median(forwards)] if forwards else []
    return min(found, default=None)


def _doubt(data: RunData, arm: Arm, requests: Requests, excess: _Excess, seen: _StepTime) -> Severity:
    """Whether the forwards that a speedup needs can be believed: those that the run probed, where it did; else those of
    a CPU, or those whose steps were timed."""
    from specmeter.theory.bounds import CHEAP_FORWARD

    probed = _probed_forward(data, arm, longest_draft(arm, next(iter(used_sessions(data, requests)), None)))
    if probed is not None:
        return "note" if excess.needed >= probed * (1 - PROBED) else "suspect"
    sessions = used_sessions(data, requests)
    held = [use.device for session in sessions for use in session.devices if use.model_buffer_bytes]
    on_cpu = bool(held) and all(name.upper().startswith(CPU_BUFFERS) for name in held)
    return "note" if excess.needed >= CHEAP_FORWARD and (on_cpu or seen.ms is not None) else "suspect"


def speedup_above_cost_bound(data: RunData) -> Findings:
    """S <= tau / (m + g c), where the draft's own cost c is bounded by the bandwidth of the memory it lies in.

    Assumes: as `speedup-above-tau`; also, each draft token is a forward pass of the draft model that reads its weights
    at no more than the catalogued peak bandwidth.
    Otherwise: cheap forward passes make it a note; a wrong catalogue entry, a larger cache or drafting in parallel make
    it wrong: suspect at most.
    """
    for arm, requests in answered(data):
        least = draft_floor(data, arm, requests)
        if isinstance(least, Blind):
            yield (not_checkable if least.applies else not_applicable)(arm.id, least.reason)
            continue
        excess = _excess(data, arm, requests, least.ms)
        if excess is None:
            yield not_applicable(arm.id, Message("unchecked.no_speedup"))
        elif excess.certain:
            yield of_arm(
                _doubt(data, arm, requests, excess, _own_steps(requests)),
                arm.id,
                Message(
                    "speedup-above-cost-bound.found",
                    speedup=excess.speedup.point,
                    bound=excess.bound,
                    draft_ms_at_least=least.ms,
                    unless=Message("speedup-above-cost-bound.unless", forward_needed=excess.needed)
                    if excess.needed > 0
                    else "",
                ),
                device=least.device,
                excess_low=excess.ratio.low,
                forward_needed=excess.needed,
                tolerance=TOLERANCE,
            )


def draft_time_bound(data: RunData) -> Findings:
    """Drafting alone takes longer than the request: those drafts were not made by that model, if memory and caches are
    what the catalogue and we take them for.

    Assumes: each draft token is a forward pass of the draft model that reads its weights at no more than the catalogued
    peak bandwidth.
    Otherwise: a wrong catalogue entry, or a cache that holds the draft model, makes it wrong: suspect at most.
    """
    for arm, requests in answered(data):
        least = draft_floor(data, arm, requests)
        if isinstance(least, Blind):
            # Nothing claims how fast the draft is by itself, so there is nothing that could be contradicted.
            yield not_applicable(arm.id, least.reason)
            continue
        for request in requests.at(requests.whole("draft_n") * least.ms > requests.number("predicted_ms")):
            row = request.row
            floor_ms = (row.draft_n or 0) * least.ms
            if row.predicted_ms is not None:
                yield of_request(
                    "suspect",
                    request,
                    Message(
                        "draft-time-bound.found",
                        drafted=row.draft_n,
                        floor_ms=floor_ms,
                        device=least.device,
                        predicted_ms=row.predicted_ms,
                    ),
                    draft_ms_at_least=least.ms,
                )


# --- memory ----------------------------------------------------------------------------------------------------------


def bandwidth_bound(data: RunData) -> Findings:
    """Weights are read faster than the memory can deliver them: time, count or the idea of the bytes is wrong.

    Assumes: each forward pass reads the weights that the header lists, less 268 MB of cache, at no more than the
    catalogued peak bandwidth.
    Otherwise: a wrong catalogue entry, a larger cache, or experts shared by consecutive tokens make it wrong: suspect
    at most.
    """
    for arm, requests in answered(data):
        header = data.header(arm.target)
        if data.simulated:
            yield not_applicable(arm.id, Message("unchecked.simulated"))
            continue
        if header is None:
            yield not_checkable(arm.id, Message("unchecked.no_header", model=arm.target))
            continue
        if header.bytes_per_token <= CACHE_BYTES:
            yield not_applicable(arm.id, Message("unchecked.in_cache"))
            continue
        peak = peak_of_sessions(data, used_sessions(data, requests), draft=False)
        if isinstance(peak, Blind):
            yield not_checkable(arm.id, peak.reason)
            continue
        ms = sum(ms or 0.0 for (ms,) in requests.values("predicted_ms"))
        tokens = int(np.maximum(0, requests.whole("predicted_n") - 1 - requests.whole("draft_n_accepted")).sum())
        traffic = 1000 * tokens * (header.bytes_per_token - CACHE_BYTES) / ms if ms else 0.0
        if traffic > peak.bytes_per_s:
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "bandwidth-bound.found",
                    forwards_per_s=1000 * tokens / ms,
                    bytes_per_token=header.bytes_per_token,
                    traffic_bytes_per_s=traffic,
                    device=peak.device,
                    peak_bytes_per_s=peak.bytes_per_s,
                ),
            )


CHECKS: tuple[Check, ...] = (
    Check(
        "speedup-above-tau",
        "invalid",
        speedup_above_tau,
        saw=("requests", "replies", "arms", "sessions", "step-probes"),
        needs=("drafts",),
    ),
    Check(
        "speedup-above-cost-bound",
        "suspect",
        speedup_above_cost_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        needs=("drafts",),
    ),
    Check(
        "draft-time-bound",
        "suspect",
        draft_time_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        needs=("drafts",),
    ),
    Check(
        "bandwidth-bound",
        "suspect",
        bandwidth_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        needs=("drafts",),
    ),
)
