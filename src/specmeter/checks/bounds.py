"""Checks of arithmetic: counters that add up, speedups that acceptance permits, rates that memory can feed.

The bounds are those of `specmeter.theory.bounds`, applied to single requests and to blocks, where every number is at
hand and none needs to be inferred. Symbols as there: tau, gamma, c, S, F.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, median_low
from typing import NamedTuple

from specmeter.checks.check import Check, Findings, about_arm, about_request
from specmeter.checks.evidence import (
    Law,
    answered,
    longest_draft,
    not_applicable,
    unseen,
    used_sessions,
)
from specmeter.checks.run_data import RequestData, RunData
from specmeter.record import Arm, DeviceUse, Estimate, Finding, Host, Session, Severity
from specmeter.stats import Pair, Pool, geometric_speedup, speedup_over_invocations

TOLERANCE = 0.05
"""How far above a bound a speedup may seem to lie. What is measured with (streaming, step lines) was seen to take up to
4.2 % from plain decoding and 1.7 % from speculation, where no core was free for it."""
LEVEL = 0.99
"""Of the interval that has to lie above a bound: many arms are checked, and none may be accused by chance."""
CACHE_BYTES = 256 * 1024 * 1024
"""Weights that may stay in a processor's largest cache, and need not be read from memory."""
SAME_RATE = 0.002
"""Printed rates are rounded, and so may the times be that they are compared with."""
SLACK_MS = 20.0
"""Engine and client read different clocks."""
LUMP_MS = 100.0
"""A wait below this may be one for a processor: the instrumented engine's clients waited 25 to 60 ms on a machine with
twice as much work as processors."""


# --- counters --------------------------------------------------------------------------------------------------------


def conservation(data: RunData) -> Findings:
    """`predicted_n - 1 = accepted + F`: each successful forward emits one token and the drafts it accepts."""
    for arm, requests in answered(data):
        law = Law(arm, used_sessions(data, requests), requests)
        uncounted = 0
        for request in requests:
            gap = law.gap(request)
            if gap is None:
                uncounted += 1
            elif gap[0] > 0 or gap[1] < -law.idle_forwards(request):
                yield _does_not_close(request, law, gap)
        if uncounted:
            yield unseen(
                arm.id, f"the engine counted no target forwards in {uncounted} of {len(requests)} requests (/metrics)"
            )


def _does_not_close(request: RequestData, law: Law, gap: tuple[int, int]) -> Finding:
    row = request.row
    decoded, accepted = (row.predicted_n or 1) - 1, row.draft_n_accepted or 0
    forwards = round(request.decodes or 0)
    fewest, most = law.prompt_forwards(request)
    prompt = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    if gap[0] > 0:
        what = f"at least {gap[0]} tokens came out of no successful forward"
        remedy = "verification failed, or the counters are broken: see the engine's log, and use another build"
    else:
        what = f"at least {-gap[1]} forwards emitted nothing"
        remedy = "see whether somebody else used the server, and whether the engine counts accepted tokens in full"
    return about_request(
        "conservation",
        "invalid",
        request,
        f"{what}: {decoded} decoded, {accepted} accepted, {forwards} forwards of which the prompt took {prompt}",
        remedy,
        decoded=decoded,
        accepted=accepted,
        forwards=forwards,
        prompt_forwards=fewest,
        prompt_forwards_at_most=most,
        unexplained=gap[0] if gap[0] > 0 else gap[1],
    )


def counters_absurd(data: RunData) -> Findings:
    """Counts and times that contradict each other by themselves."""
    limit = data.experiment.generation.max_tokens
    limits = {name: prompt.max_tokens for name, prompt in data.prompts.items() if prompt.max_tokens is not None}
    for arm, requests in answered(data):
        for request in requests:
            what = _absurd(arm, request, limits.get(request.row.prompt_id, limit))
            if what is not None:
                row = request.row
                yield about_request(
                    "counters-absurd",
                    "invalid",
                    request,
                    what,
                    "the engine's counters cannot be used: try another build of it",
                    predicted_n=row.predicted_n,
                    draft_n=row.draft_n,
                    draft_n_accepted=row.draft_n_accepted,
                    prompt_ms=row.prompt_ms,
                    predicted_ms=row.predicted_ms,
                    wall_ms=row.wall_ms,
                )


def _absurd(arm: Arm, request: RequestData, limit: int) -> str | None:
    row = request.row
    drafted, accepted, predicted = row.draft_n or 0, row.draft_n_accepted or 0, row.predicted_n or 0
    spent, wall = (row.prompt_ms or 0.0) + (row.predicted_ms or 0.0), row.wall_ms or 0.0
    if accepted > drafted:
        return f"{accepted} tokens were accepted and only {drafted} drafted"
    if accepted and accepted >= predicted:
        return f"{accepted} drafted tokens were accepted, but only {predicted} were generated"
    if drafted and not arm.speculates:
        return f"{drafted} tokens were drafted in an arm that drafts nothing"
    if predicted > limit:
        return f"{predicted} tokens were generated, and no more than {limit} asked for"
    if spent > wall * 1.02 + SLACK_MS:
        return f"the engine accounts for {spent:.0f} ms, and the request took {wall:.0f} ms"
    return None


def window_mismatch(data: RunData) -> Findings:
    """A rate is computed over another window: with load or prompt time, or with tokens that the time does not cover.

    specmeter computes every rate from counts and times by one rule, so the engine's own rate is only a witness. It
    should be (n - 1) / ms; older builds print n / ms. Anything else means that count, time or rate are not what they
    are called.
    """
    for arm, requests in answered(data):
        older = looked = 0
        for request in requests:
            decoded, ms, said = (request.row.predicted_n or 0) - 1, request.row.predicted_ms, request.printed_rate
            if decoded < 1 or not ms or said is None:
                continue
            looked += 1
            rate = 1000 * decoded / ms
            off, off_older = abs(said - rate), abs(said - rate * (decoded + 1) / decoded)
            if min(off, off_older) > SAME_RATE * rate:
                yield _other_window(request, said, rate)
            elif off_older < off and off > 1e-5 * rate:
                older += 1
        if not looked:
            yield not_applicable(arm.id, "the engine prints no rate of its own")
        elif older:
            yield about_arm(
                "window-mismatch",
                "note",
                arm.id,
                f"the engine's own rate counts the first token, whose time it leaves out, in {older} requests",
                "compare with specmeter's rates, which leave it out on both sides, and never with the engine's",
                requests=older,
            )


def _other_window(request: RequestData, said: float, rate: float) -> Finding:
    row = request.row
    return about_request(
        "window-mismatch",
        "invalid",
        request,
        f"the engine prints {said:.2f} tok/s, but {row.predicted_n} tokens in {row.predicted_ms:.1f} ms are {rate:.2f}",
        "use an engine whose counts, times and rates belong together",
        printed_tok_s=said,
        computed_tok_s=rate,
        predicted_n=row.predicted_n,
        predicted_ms=row.predicted_ms,
    )


def clock_differs(data: RunData) -> Findings:
    """The engine's clock leaves out time that its client saw pass: every rate made from it is too high.

    From the first token to the end of the answer the client waits as long as the engine decodes. On a machine with four
    times as much work as processors a server's waited 4 ms longer at most, in 400 requests. Where tokens were not sent
    one by one, it can only tell of the whole request, and then time spent waiting for others looks the same. The
    (lower) median of an arm is taken, so that single hiccups do not count. A single request, and a wait that is short
    enough to be one for a processor, are only suspect.
    """
    for arm, requests in answered(data):
        rows = [request.row for request in requests if (request.row.predicted_n or 0) > 1]
        if not rows:
            yield not_applicable(arm.id, "nothing was decoded")
            continue
        times = [(row.wall_ms, row.ttft_ms, row.prompt_ms or 0.0, row.predicted_ms) for row in rows]
        streamed = all(first is not None for _, first, _, _ in times)
        known = [
            (ms, wall - ms - (first if streamed and first is not None else prompt))
            for wall, first, prompt, ms in times
            if wall is not None and ms is not None
        ]
        if not known:
            yield unseen(arm.id, "the times of engine and client are not both on record")
            continue
        usual, left_out = median(ms for ms, _ in known), median_low([left for _, left in known])
        if left_out > SLACK_MS + TOLERANCE * usual:
            single, sure = len(known) == 1, streamed and len(known) > 1 and left_out > LUMP_MS
            if not streamed:
                fix = "see whether somebody else used the server; with stream_tokens the decode time can be told apart"
            elif not sure:
                fix = "it may have waited for a busy machine: end other programs, and generate more tokens"
            else:
                fix = "rates of this engine cannot be compared with those of others: use another build of it"
            yield about_arm(
                "clock-differs",
                "invalid" if sure else "suspect",
                arm.id,
                f"the engine accounts for {usual:.0f} ms of decoding, and its client waited {left_out:.0f} ms longer "
                + ("in the only request: its rates " if single else "(medians over the requests): its rates ")
                + ("are too high" if sure else "may be too high"),
                fix,
                predicted_ms=usual,
                left_out_ms=left_out,
                requests=len(known),
                streamed=streamed,
            )


# --- speedups --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """Sums over the requests of a block that an arm and its baseline both answered."""

    floor_ms: float = 0.0
    """Least time that the arm's steps can have taken."""
    ms: float = 0.0
    """Time that they took."""
    tokens: int = 0
    base_ms: float = 0.0
    base_tokens: int = 0


@dataclass(slots=True)
class _Excess:
    """How far an arm is above a bound: floor / time of each block; more than 1 is impossible."""

    ratio: Estimate
    speedup: Estimate

    @property
    def bound(self) -> float:
        """The speedup at which floor and time would be equal."""
        return self.speedup.point / self.ratio.point

    @property
    def certain(self) -> bool:
        low = self.ratio.low
        if low is None and self.ratio.n > 1:
            low = self.ratio.point  # blocks that agree to nine digits: a clock without noise
        return low is not None and low > 1 + TOLERANCE


@dataclass(slots=True)
class _Invocations:
    """Blocks by invocation."""

    of: dict[int, dict[int, _Block]] = field(default_factory=dict[int, dict[int, _Block]])

    def block(self, invocation: int, block: int) -> _Block:
        return self.of.setdefault(invocation, {}).setdefault(block, _Block())


def _excess(data: RunData, arm: Arm, requests: Sequence[RequestData], draft_ms: float = 0.0) -> _Excess | None:
    """Compare the time of an arm's steps with the least that they can take, block by block; None without a baseline.

    A step takes at least one target forward, a forward over several tokens at least as long as one over a single
    token, and that is what the baseline measured, for the same prompt in the same block:

        floor = sum over requests of  F (baseline's ms / its tokens) + drafted tokens x draft_ms

    With draft_ms = 0, floor / time is S / tau; summing over requests and not over their means makes it exact where
    prompts differ in speed. F is the fewest forwards that the counters permit, so a tau too large makes no alarm.
    """
    sessions = used_sessions(data, requests)
    gamma = longest_draft(arm, sessions[0] if sessions else None)
    sums = _Invocations()
    for request, plain in data.beside_baseline[arm.id]:
        row, base = request.row, plain.row
        tokens, base_tokens = (row.predicted_n or 0) - 1, (base.predicted_n or 0) - 1
        if tokens < 1 or base_tokens < 1 or not row.predicted_ms or not base.predicted_ms:
            continue
        forwards = max(tokens - (row.draft_n_accepted or 0), tokens / (gamma + 1))
        block = sums.block(row.invocation, row.block)
        block.floor_ms += forwards * base.predicted_ms / base_tokens + (row.draft_n or 0) * draft_ms
        block.ms += row.predicted_ms
        block.tokens += tokens
        block.base_ms += base.predicted_ms
        block.base_tokens += base_tokens
    return _estimated(sums) if sums.of else None


def _estimated(sums: _Invocations) -> _Excess:
    units = [list(blocks.values()) for blocks in sums.of.values()]
    ratio = [[(Pool(it.floor_ms, it.ms), Pool(1, 1)) for it in blocks] for blocks in units]
    speedup = [[(Pool(it.tokens, it.ms), Pool(it.base_tokens, it.base_ms)) for it in blocks] for blocks in units]
    return _Excess(_over_units(ratio), _over_units(speedup))


def _over_units(units: Sequence[Sequence[Pair]]) -> Estimate:
    """Geometric mean over blocks, or over invocations where there are several, as speedups are estimated."""
    if len(units) == 1:
        return geometric_speedup(units[0], level=LEVEL)
    return speedup_over_invocations(units, level=LEVEL).estimate


def speedup_above_tau(data: RunData) -> Findings:
    """S <= tau: a step costs at least one target forward.

    `invalid` where the whole interval lies above; `suspect` where the speedup itself does and noise may be the reason.
    """
    for arm, requests in answered(data):
        excess = _excess(data, arm, requests) if arm.speculates else None
        if excess is None:
            yield not_applicable(arm.id, "it has no speedup of its own to be bounded")
        elif excess.certain:
            yield _above_tau(arm, excess, "invalid", "verification failed, or the baseline is slowed down")
        elif excess.ratio.point > 1 + TOLERANCE:
            yield _above_tau(arm, excess, "suspect", "it may be noise: measure more blocks on a quiet machine")


def _above_tau(arm: Arm, excess: _Excess, severity: Severity, why: str) -> Finding:
    ratio = excess.ratio
    return about_arm(
        "speedup-above-tau",
        severity,
        arm.id,
        f"a speedup of {excess.speedup.point:.2f} is above the {excess.bound:.2f} tokens that a target forward emits: "
        f"a step took {100 * (1 - 1 / ratio.point):.0f} % less time than one plain token",
        f"{why}; see the findings of conservation and target-decode-failed",
        speedup=excess.speedup.point,
        tau=excess.bound,
        excess=ratio.point,
        excess_low=ratio.low,
        excess_high=ratio.high,
        level=LEVEL,
        units=ratio.n,
        tolerance=TOLERANCE,
    )


def speedup_above_cost_bound(data: RunData) -> Findings:
    """S <= tau / (1 + g c), where the draft's own cost c is bounded by the bandwidth of the memory it lies in."""
    for arm, requests in answered(data):
        least = _draft_floor(data, arm, requests)
        if isinstance(least, _Blind):
            yield (unseen if least.applies else not_applicable)(arm.id, least.reason)
            continue
        excess = _excess(data, arm, requests, least.ms)
        if excess is None:
            yield not_applicable(arm.id, "it has no speedup of its own to be bounded")
        elif excess.certain:
            yield about_arm(
                "speedup-above-cost-bound",
                "suspect",
                arm.id,
                f"a speedup of {excess.speedup.point:.2f} is above {excess.bound:.2f}, which remains of tau when each "
                f"drafted token takes {least.ms:.3f} ms or more",
                "see whether the draft really ran where the log says, and whether its forwards failed",
                speedup=excess.speedup.point,
                bound=excess.bound,
                draft_ms_at_least=least.ms,
                device=least.device,
                excess_low=excess.ratio.low,
                tolerance=TOLERANCE,
            )


def draft_time_bound(data: RunData) -> Findings:
    """Drafting alone takes longer than the request: those drafts were not made by that model."""
    for arm, requests in answered(data):
        least = _draft_floor(data, arm, requests)
        if isinstance(least, _Blind):
            # Nothing claims how fast the draft is by itself, so there is nothing that could be contradicted.
            yield not_applicable(arm.id, least.reason)
            continue
        for request in requests:
            row = request.row
            floor_ms = (row.draft_n or 0) * least.ms
            if row.predicted_ms is not None and floor_ms > row.predicted_ms:
                yield about_request(
                    "draft-time-bound",
                    "invalid",
                    request,
                    f"{row.draft_n} drafted tokens take {floor_ms:.0f} ms or more on {least.device}, and decoding took "
                    f"{row.predicted_ms:.0f} ms",
                    "see the engine's log for forwards of the draft that failed",
                    drafted=row.draft_n,
                    draft_ms_at_least=least.ms,
                    predicted_ms=row.predicted_ms,
                )


# --- memory ----------------------------------------------------------------------------------------------------------


class _Blind(NamedTuple):
    """Why nothing is known."""

    reason: str
    applies: bool = True


class _Peak(NamedTuple):
    """What no traffic can exceed."""

    bytes_per_s: float
    device: str


class _DraftTime(NamedTuple):
    """Least time that a draft takes for a token."""

    ms: float
    device: str


def bandwidth_bound(data: RunData) -> Findings:
    """Weights are read faster than the memory can deliver them: time, count or the idea of the bytes is wrong."""
    for arm, requests in answered(data):
        header = data.header(arm.target)
        if data.simulated:
            yield not_applicable(arm.id, "a simulated engine reads no memory")
            continue
        if header is None:
            yield unseen(arm.id, f"the header of {arm.target} is not on record")
            continue
        if header.bytes_per_token <= CACHE_BYTES:
            yield not_applicable(arm.id, "the weights may lie in a processor's cache, whose bandwidth is not known")
            continue
        peak = _peak_of_sessions(data, used_sessions(data, requests), draft=False)
        if isinstance(peak, _Blind):
            yield unseen(arm.id, peak.reason)
            continue
        ms = sum(request.row.predicted_ms or 0.0 for request in requests)
        tokens = sum(max(0, (it.row.predicted_n or 0) - 1 - (it.row.draft_n_accepted or 0)) for it in requests)
        traffic = 1000 * tokens * (header.bytes_per_token - CACHE_BYTES) / ms if ms else 0.0
        if traffic > peak.bytes_per_s:
            yield about_arm(
                "bandwidth-bound",
                "suspect",
                arm.id,
                f"{1000 * tokens / ms:.1f} forwards a second of {header.bytes_per_token / 1e9:.2f} GB read at least "
                f"{traffic / 1e9:.0f} GB/s; the memory of {peak.device} delivers {peak.bytes_per_s / 1e9:.0f} GB/s",
                "see whether forwards failed or weights lie elsewhere; of an MoE only active experts may be counted",
                traffic_bytes_per_s=traffic,
                peak_bytes_per_s=peak.bytes_per_s,
                bytes_per_token=header.bytes_per_token,
                device=peak.device,
            )


def _draft_floor(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> _DraftTime | _Blind:
    """Least time for one drafted token: the draft's weights over the peak bandwidth of the memory that holds them.

    Only for drafts made token by token, by a model of its own, on this machine.
    """
    if arm.methods != ("draft-simple",) or arm.draft is None:
        return _Blind("no draft model that makes one token after the other drafts alone for it", applies=False)
    if data.simulated:
        return _Blind("a simulated draft reads no memory", applies=False)
    header = data.header(arm.draft)
    if header is None:
        return _Blind(f"the header of {arm.draft} is not on record, nor was its rate measured by itself")
    peak = _peak_of_sessions(data, used_sessions(data, requests), draft=True)
    if isinstance(peak, _Blind):
        return _Blind(f"the draft's rate was not measured by itself, and {peak.reason}")
    if header.bytes_per_token <= CACHE_BYTES:
        return _Blind("the draft's rate was not measured by itself, and it may lie in a processor's cache")
    return _DraftTime(1000 * (header.bytes_per_token - CACHE_BYTES) / peak.bytes_per_s, peak.device)


def _peak_of_sessions(data: RunData, sessions: Sequence[Session], *, draft: bool) -> _Peak | _Blind:
    """The fastest memory that can have held the weights in any of these sessions."""
    peaks: list[_Peak] = []
    for session in sessions:
        uses = session.draft_devices if draft else session.devices
        layers = session.draft_layers_offloaded if draft else session.layers_offloaded
        peak = _peak(data.hosts, uses, layers)
        if isinstance(peak, _Blind):
            return peak
        peaks.append(peak)
    return max(peaks, default=_Blind("no session is on record"))


_MAKERS = {"CUDA": "nvidia", "ROCM": "amd", "HIP": "amd", "METAL": "apple", "MTL": "apple"}
"""Backend -> maker of its GPUs; others take any."""
_CPU_BUFFERS = ("CPU", "BLAS", "ACCEL", "AMX")


def _peak(hosts: Sequence[Host], uses: Sequence[DeviceUse], layers: tuple[int, int] | None) -> _Peak | _Blind:
    """The peak bandwidth of what holds weights: of all GPUs together that the backend may have meant, or of the CPU."""
    from specmeter.theory import catalogue

    held = [use.device.upper() for use in uses if use.model_buffer_bytes]
    gpus = [name for name in held if not name.startswith(_CPU_BUFFERS)]
    if not held:
        return _Blind("the engine does not say where the weights lie")
    if any(name.startswith("RPC") for name in gpus):
        return _Blind("some weights lie on another machine")
    if gpus and (layers is None or layers[0] < layers[1]):
        return _Blind("some layers are computed by the CPU, others by a GPU")
    if gpus:
        makers = {next((maker for prefix, maker in _MAKERS.items() if name.startswith(prefix)), "") for name in gpus}
        names = [[gpu.name for gpu in host.gpus if "" in makers or gpu.vendor.casefold() in makers] for host in hosts]
    else:
        names = [[host.cpu] for host in hosts]
    found: list[_Peak] = []
    for of_host in names:
        # Names may hold commas, which the catalogue takes for lists.
        peaks = [catalogue.peak(name) if "," not in name else None for name in of_host]
        known = [peak.high for peak in peaks if peak is not None]
        if not known or len(known) < len(peaks):
            return _Blind(f"the peak bandwidth of {', '.join(of_host) or 'the GPU'} is not in the catalogue")
        found.append(_Peak(sum(known), ", ".join(of_host)))
    return max(found, default=_Blind("the machine is not on record"))


CHECKS: tuple[Check, ...] = (
    Check(
        "conservation",
        "counters do not add up: tokens that no forward stands behind, or forwards without a token",
        "invalid",
        conservation,
        saw=("requests", "replies", "sessions", "arms"),
        assumes=(
            "each successful forward emits one token and the drafts it accepts; a prompt takes one forward per batch: "
            "counting. Tokens cut off at a stop and replays after a restore are allowed for"
        ),
        otherwise=(
            "a method that emits otherwise (several tokens of the target's own per forward) would break the law "
            "itself; none of those that can be run does"
        ),
    ),
    Check(
        "counters-absurd",
        "counts and times that contradict each other",
        "invalid",
        counters_absurd,
        saw=("requests", "arms", "prompts", "experiment"),
        assumes="no more can be accepted than drafted, generated than asked for, or accepted than generated: counting",
        otherwise=(
            "clocks may differ, so that an engine which accounts for more time than passed is judged with 2 % and 20 "
            "ms to spare"
        ),
    ),
    Check(
        "window-mismatch",
        "a rate is computed over another window (load, prompt, tokens counted with the prompt)",
        "invalid",
        window_mismatch,
        saw=("requests", "replies"),
        assumes=(
            "the engine's own rate is (n - 1) / ms or n / ms of the counts and times it printed: arithmetic on three "
            "printed numbers, rounded"
        ),
        otherwise="a rate that is neither shows that one of the three is not what it is called",
    ),
    Check(
        "clock-differs",
        "the engine's clock leaves out time that passed",
        "invalid",
        clock_differs,
        saw=("requests", "arms"),
        assumes=(
            "from first token to end the client waits as long as the engine decodes; waiting for a processor explains "
            "less than 0.1 s in the median"
        ),
        otherwise="on a machine that starves the client for longer the engine's clock would be accused wrongly",
    ),
    Check(
        "speedup-above-tau",
        "faster than tokens per target forward allow",
        "invalid",
        speedup_above_tau,
        saw=("requests", "arms", "sessions"),
        assumes=(
            "a step costs at least one target forward, and no forward over 1 to gamma + 1 tokens is cheaper than the "
            "cheapest that was measured"
        ),
        otherwise="where the cheapest forward is not known, it is a note that says how cheap it would have to be",
    ),
    Check(
        "speedup-above-cost-bound",
        "faster than tokens per target forward allow once drafts are paid for",
        "suspect",
        speedup_above_cost_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        assumes=(
            "as speedup-above-tau, and each drafted token is a forward of the draft that reads its weights from the "
            "memory they lie in, whose peak bandwidth the catalogue gives"
        ),
        otherwise=(
            "a wrong catalogue entry, a larger cache, or a draft that overlaps with the target breaks it: suspect at "
            "most"
        ),
    ),
    Check(
        "draft-time-bound",
        "drafting alone takes longer than the whole request",
        "invalid",
        draft_time_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        assumes=(
            "each drafted token is a forward of the draft that reads its weights from memory, whose peak bandwidth the "
            "catalogue gives"
        ),
        otherwise="a wrong catalogue entry or a cache that holds the draft breaks it",
    ),
    Check(
        "bandwidth-bound",
        "weights are read faster than the memory can deliver them",
        "suspect",
        bandwidth_bound,
        saw=("requests", "arms", "models", "sessions", "hosts"),
        assumes=(
            "each forward reads the weights that the header counts, less 256 MiB of cache, from memory whose peak the "
            "catalogue gives"
        ),
        otherwise=(
            "a wrong catalogue entry, a larger cache, or experts that consecutive tokens share break it: suspect at "
            "most"
        ),
    ),
)
