"""Checks of the machine: was it free, and did it stay the same while requests ran?

Telemetry comes about once a second. A sample tells about the second before it, and belongs to the request that was
running then; those between requests tell nothing about any rate. Most checks also look before anything is measured.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from specmeter.host.telemetry import (
    HARMLESS,
    QUIET,
    SLOW_CLOCK,
    SPIKE_PERCENT,
    THROTTLED,
    Gate,
    Seen,
    gate_beside,
    is_busy,
    is_slowing,
)
from specmeter.measure import calm as rule
from specmeter.messages import Message, Value
from specmeter.record import Arm, Disturbance, Finding, Host, KvType, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, not_applicable, not_checkable, of_arm, of_run
from specmeter.validity.checks.run_data import RunData, Sample

_SIMULATED = Message("unchecked.simulated")
_NO_HOST = Message("unchecked.no_host")


# --- host-busy -------------------------------------------------------------------------------------------------------

_SAMPLE_S = 1.0
"""Time that a sample tells about."""
_SLOW_CLOCKS = 0.25
_MIN_CLOCKS = 8
_CLOCKS_APART = 0.9
_LOW_MEMORY = 0.03


def host_busy(data: RunData) -> Findings:
    """Other programs, slowed processors, or memory running out while the requests of an arm ran.

    Others: 5 % of the machine in the mean over the arm's samples, or 10 % of it in a fifth of them. Where the engine's
    threads take every core of the CPU, one core taken by others is enough, however many there are: threads that wait
    for each other are as slow as the slowest. What others always have of cores that the engine leaves free is the same
    for every arm, and does not count. GPUs: a thermal or hardware slowdown in 5 % of the samples; at the power
    limit it is a note. Clocks: a quarter of the samples a fifth below the run's fastest, or a median a tenth below that
    of the baseline. Memory: less than 3 % of it available at any time.

    Assumes: samples one second apart show what happened during the requests.
    Otherwise: short bursts may fall between two samples, or miss all requests: suspect at most.
    """
    if data.simulated:
        yield not_applicable(None, _SIMULATED)
        return
    if not data.telemetry:
        yield not_checkable(None, Message("unchecked.no_telemetry"))
        return
    samples = loads_by_arm(data)
    fastest = _fastest_mhz(load for loads in samples.values() for load in loads)
    started = _first_sessions(data)
    for arm in data.arms.values():
        loads = samples.get(arm.id, [])
        if not loads:
            yield not_checkable(arm.id, Message("unchecked.no_sample"))
            continue
        baseline = samples.get(arm.baseline_id or "", [])
        yield from _others(arm, loads, baseline, _gate(data, arm, started.get(arm.id)))
        yield from _gpus(arm, loads, baseline)
        yield from _clocks(arm, loads, baseline, fastest)
        yield from _memory(data, arm, loads)


def loads_by_arm(data: RunData) -> dict[str, list[Sample]]:
    """Samples by the arm whose request was running, or had just ended."""
    rows = sorted((at, ms or 0.0, arm_id) for at, ms, arm_id in data.requests.values("started_at", "wall_ms", "arm_id"))
    starts = [start for start, _, _ in rows]
    found: dict[str, list[Sample]] = {}
    for load in data.telemetry:
        last = bisect_right(starts, load.at) - 1
        if last >= 0 and starts[last] + rows[last][1] / 1000 >= load.at - _SAMPLE_S:
            found.setdefault(rows[last][2], []).append(load)
    return found


def _others(arm: Arm, loads: Sequence[Sample], baseline: Sequence[Sample], gate: Gate) -> Findings:
    shares = np.array([load.other_cpu_percent for load in loads])
    beside = [load.other_cpu_percent for load in baseline]
    if not is_busy(shares.tolist(), gate, [*shares.tolist(), *beside]):
        return
    yield of_arm(
        "suspect",
        arm.id,
        Message("host-busy.others", mean_percent=float(shares.mean()), highest_percent=float(shares.max())),
        Message("host-busy.fix_others"),
        mean_percent=round(float(shares.mean()), 2),
        gate_percent=round(gate.mean, 2),
        highest_percent=round(float(shares.max()), 2),
        samples=len(shares),
        samples_above_10_percent=int((shares > SPIKE_PERCENT).sum()),
        mean_percent_of_baseline=round(float(np.mean(beside)), 2) if beside else None,
    )


def _gate(data: RunData, arm: Arm, session: Session | None) -> Gate:
    """What others may have of the machine beside the arm."""
    host = data.hosts[-1] if data.hosts else None
    if host is None or session is None or not session.devices:
        return QUIET
    on_cpu = all(use.device.startswith("CPU") for use in session.devices)
    threads = _threads(arm, session) if on_cpu else None
    return gate_beside(threads, host.physical_cores or host.logical_cores, host.logical_cores)


def _gpus(arm: Arm, loads: Sequence[Sample], baseline: Sequence[Sample]) -> Findings:
    reasons = Counter(reason for load in loads for reason in set(load.gpu_throttle) - HARMLESS)
    throttled = sum(is_slowing(load.gpu_throttle) for load in loads)
    capped = reasons["sw_power_cap"]
    if max(throttled, capped) < max(2, THROTTLED * len(loads)):
        return
    harmful = throttled >= max(2, THROTTLED * len(loads))
    names = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    yield of_arm(
        "suspect" if harmful else "note",
        arm.id,
        Message("host-busy.gpu", slowed_samples=max(throttled, capped), samples=len(loads), reasons=names),
        Message("host-busy.fix_throttled") if harmful else Message("host-busy.fix_capped"),
        reasons=", ".join(names),
        throttled_samples=throttled,
        power_capped_samples=capped,
        throttled_samples_of_baseline=sum(is_slowing(load.gpu_throttle) for load in baseline),
    )


def _fastest_mhz(loads: Iterable[Sample]) -> float | None:
    """Clock that the fastest tenth of all samples has, in MHz."""
    clocks = [load.cpu_mhz for load in loads if load.cpu_mhz]
    return float(np.quantile(clocks, 0.9)) if len(clocks) >= _MIN_CLOCKS else None


def _clocks(arm: Arm, loads: Sequence[Sample], baseline: Sequence[Sample], fastest: float | None) -> Findings:
    mine = [load.cpu_mhz for load in loads if load.cpu_mhz]
    base = [load.cpu_mhz for load in baseline if load.cpu_mhz]
    if fastest is None or len(mine) < _MIN_CLOCKS:
        return
    slow = sum(mhz < SLOW_CLOCK * fastest for mhz in mine)
    usual = float(np.median(base)) if len(base) >= _MIN_CLOCKS else None
    if slow < _SLOW_CLOCKS * len(mine) and (usual is None or np.median(mine) >= _CLOCKS_APART * usual):
        return
    yield of_arm(
        "suspect",
        arm.id,
        Message("host-busy.clock", median_mhz=float(np.median(mine)), fastest_mhz=fastest),
        Message("host-busy.fix_clock"),
        median_mhz=round(float(np.median(mine))),
        median_mhz_of_baseline=None if usual is None else round(usual),
        fastest_mhz=round(fastest),
        slow_samples=slow,
        samples=len(mine),
    )


def _memory(data: RunData, arm: Arm, loads: Sequence[Sample]) -> Findings:
    least = min(load.memory_available_bytes for load in loads)
    if data.hosts and least < _LOW_MEMORY * data.hosts[-1].memory_bytes:
        yield of_arm(
            "suspect",
            arm.id,
            Message("host-busy.memory", memory_available_bytes=least),
            Message("host-busy.fix_memory"),
            memory_bytes=data.hosts[-1].memory_bytes,
        )


# --- free-cores ------------------------------------------------------------------------------------------------------

_CORES = re.compile(r"\((\d+(?:\.\d+)?) cores\)$")
_BUSY_CORES = 0.5


def free_cores(data: RunData) -> Findings:
    """More threads than cores, or cores that others were using when the run began.

    Threads beyond what the process may use wait for each other in every layer. Beyond the physical cores they share
    execution units, which costs little and helps little: a note. Half a core in other hands counts as busy when the
    engine's threads leave none free; where telemetry was recorded, that tells better what it did (`host-busy`), and it
    is a note here. So is a load average above the cores, because it also remembers what ended a minute ago.

    Assumes: threads beyond the free cores wait for each other.
    Otherwise: hyperthreads and idle programs may cost little: suspect at most.
    """
    if data.simulated:
        yield not_applicable(None, _SIMULATED)
        return
    if not data.hosts:
        yield not_checkable(None, _NO_HOST)
        return
    host = data.hosts[-1]
    usable = host.usable_cores or float(host.logical_cores)
    started = _first_sessions(data)
    for arm in data.arms.values():
        count = _threads(arm, started.get(arm.id))
        if count is not None and count > min(usable, host.physical_cores or usable):
            yield _too_many(arm.id, count, usable, host)
    cores = min(usable, float(host.physical_cores or usable))
    yield from _taken(data, _most_threads(data) or (int(cores) if _sets_threads(data) else None), cores)


def _sets_threads(data: RunData) -> bool:
    """Whether the engine is told its threads: those of a server that already ran are neither known nor ours to set."""
    return "threads" in data.traits.settings


def _most_threads(data: RunData) -> int | None:
    """Threads of the arm with the most, where any says them."""
    started = _first_sessions(data)
    found = (_threads(arm, started.get(arm.id)) for arm in data.arms.values())
    return max((count for count in found if count is not None), default=None)


def _threads(arm: Arm, session: Session | None) -> int | None:
    """Threads in force, or asked for; None: as many as the engine takes on its own, which are the cores it may use."""
    read = None if session is None else session.resolved.get("threads")
    return read if isinstance(read, int) else arm.engine.threads


def _first_sessions(data: RunData) -> dict[str, Session]:
    found: dict[str, Session] = {}
    for session in data.sessions.values():
        found.setdefault(session.arm_id, session)
    return found


def _too_many(arm_id: str, threads: int, usable: float, host: Host) -> Finding:
    over = threads > usable
    return of_arm(
        "suspect" if over else "note",
        arm_id,
        Message("free-cores.too_many", threads=threads, usable_cores=usable)
        if over
        else Message("free-cores.shared", threads=threads, physical_cores=host.physical_cores),
        usable_cores=usable,
        physical_cores=host.physical_cores,
        logical_cores=host.logical_cores,
    )


def _taken(data: RunData, threads: int | None, cores: float) -> Findings:
    """What other programs took when the run was started, each time; threads that are not known may be all."""
    host = max(data.hosts, key=_busy_cores)
    busy = _busy_cores(host)
    if busy >= _BUSY_CORES and (threads or cores) + busy > cores:
        known: dict[str, Value] = {} if threads is None else {"threads": threads}
        yield of_run(
            "note" if data.telemetry else "suspect",
            Message(
                "free-cores.taken" if known else "free-cores.taken_beside",
                busy_cores=busy,
                cores=cores,
                processes=host.busy_processes[:3],
                **known,
            ),
            Message("free-cores.fix_taken" if _sets_threads(data) and threads != 1 else "free-cores.fix_served"),
            busy_cores=round(busy, 2),
            processes=", ".join(host.busy_processes),
        )
    loaded = max((it.load_average[0] for it in data.hosts if it.load_average), default=0.0)
    if busy < _BUSY_CORES and loaded > cores:
        yield of_run(
            "note",
            Message("free-cores.loaded", load_average=loaded, cores=cores),
            Message("free-cores.fix_loaded"),
            load_average=round(loaded, 2),
        )


def _busy_cores(host: Host) -> float:
    return sum(float(seen.group(1)) for name in host.busy_processes if (seen := _CORES.search(name)))


# --- power-source ----------------------------------------------------------------------------------------------------

_SAVING = frozenset({"low power", "power saver"})
"""Energy modes of macOS and Windows that hold the clock down."""
_X86 = frozenset({"x86_64", "amd64", "x86", "i686"})


def power_source(data: RunData) -> Findings:
    """A machine on its battery, or told to save power.

    The governor `powersave` holds the clock at its lowest under most of Linux's drivers, but those of Intel and newer
    AMD processors call their normal dynamic mode by that name: on x86 it is a note.

    Assumes: battery and power saving lower the clock.
    Otherwise: some machines keep their clock anyway: suspect at most.
    """
    if data.simulated:
        yield not_applicable(None, _SIMULATED)
        return
    if not data.hosts:
        yield not_checkable(None, _NO_HOST)
        return
    known = [load.on_battery for load in data.telemetry if load.on_battery is not None]
    started = sum(host.power_source == "battery" for host in data.hosts)
    if started or any(known):
        yield of_run(
            "suspect",
            Message("power-source.battery"),
            Message("power-source.fix_battery"),
            starts_on_battery=started,
            samples_on_battery=sum(known),
            samples=len(known),
        )
    elif not known and all(host.power_source == "unknown" for host in data.hosts):
        yield not_checkable(None, Message("unchecked.power_source"))
    for governor, machine in dict.fromkeys((host.governor, host.machine) for host in data.hosts):
        names = set((governor or "").split("+"))
        if "powersave" in names or names & _SAVING:
            dynamic = not names & _SAVING and machine.lower() in _X86
            yield of_run(
                "note" if dynamic else "suspect",
                Message(
                    "power-source.policy",
                    governor=governor,
                    perhaps=Message("power-source.perhaps") if dynamic else "",
                ),
                Message("power-source.fix_policy"),
                machine=machine,
            )


# --- memory-short ----------------------------------------------------------------------------------------------------

_FULL = 0.9
_SWAPPED_BYTES = 100 * 2**20
_BITS: Mapping[KvType, float] = {
    "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5,
}  # fmt: skip
"""Bits of one element of the KV cache; other types, which other engines have, are taken for 16."""


class Need(NamedTuple):
    """Memory that an arm takes."""

    arm_id: str
    size_bytes: int
    measured: bool


def memory_short(data: RunData) -> Findings:
    """Models and caches that fill nine tenths of the memory that was free, or more.

    What is mapped from a file and does not fit is read from disk again and again, token by token. Sizes are those that
    the engine printed; before a run, weights and KV cache for the whole context (an upper bound where layers have a
    sliding window). Memory of GPUs counts as free: which part goes there is not known beforehand. Swap that grew by
    100 MB between two starts of the run says the same after the event.

    Assumes: models and caches need the memory that the engine printed, or that headers list.
    Otherwise: GPU memory counts as free, wherever the models go: suspect at most.
    """
    if data.simulated:
        yield not_applicable(None, _SIMULATED)
        return
    if not data.hosts:
        yield not_checkable(None, _NO_HOST)
        return
    free = min(host.memory_available_bytes + sum(gpu.memory_bytes or 0 for gpu in host.gpus) for host in data.hosts)
    started = _first_sessions(data)
    for arm in data.arms.values():
        need = _need(data, arm, started.get(arm.id))
        if need is None:
            yield not_checkable(arm.id, Message("unchecked.model_size"))
        elif need.size_bytes > _FULL * free:
            yield of_arm(
                "suspect",
                arm.id,
                Message("memory-short.found", needed_bytes=need.size_bytes, free_bytes=free),
                printed_by_the_engine=need.measured,
            )
    swap = [host.swap_used_bytes for host in data.hosts if host.swap_used_bytes is not None]
    if swap and max(swap) - swap[0] > _SWAPPED_BYTES:
        yield of_run(
            "suspect",
            Message("memory-short.swapped", swapped_bytes=max(swap) - swap[0]),
            Message("memory-short.fix_swapped"),
            swap_used_bytes_at_first=swap[0],
            swap_used_bytes_at_most=max(swap),
        )


def _need(data: RunData, arm: Arm, session: Session | None) -> Need | None:
    uses = (*session.devices, *session.draft_devices) if session else ()
    if any(use.model_buffer_bytes for use in uses):
        size = sum(use.model_buffer_bytes + use.kv_buffer_bytes + use.compute_buffer_bytes for use in uses)
        return Need(arm.id, size, measured=True)
    size = 0.0
    settings = arm.engine
    types: tuple[tuple[KvType | None, ...], ...] = (
        (settings.kv_type_k, settings.kv_type_v),
        (settings.draft_kv_type_k, settings.draft_kv_type_v),
    )
    for name, kinds in zip((arm.target, arm.draft), types, strict=True):
        if name is None:
            continue
        if name not in data.models:
            return None
        model = data.models[name]
        per_token = (model.header.kv_bytes_per_token or 0) if model.header else 0
        bits = sum(_BITS.get(kind or "f16", 16) for kind in kinds)
        size += model.size_bytes + per_token * bits / 32 * settings.full_context
    return Need(arm.id, round(size), measured=False)


# --- excluded-block ---------------------------------------------------------------------------------------------------


def excluded_block(data: RunData) -> Findings:
    """Blocks that were measured again although nothing disturbed them, or fewer calm blocks than an interval needs.

    Telemetry alone may set a block aside: what is on record is held against the samples of that time by the same rule,
    and every answer that does not count against what is on record. Where blocks were given up and fewer than three calm
    ones are left, there is no number.

    Assumes: samples one second apart show whether other programs disturbed a block.
    Otherwise: an undisturbed block may be repeated, but never because of its result.
    """
    if data.simulated:
        yield not_applicable(None, _SIMULATED)
        return
    times = Counter((it.invocation, it.block) for it in data.disturbances)
    again = [key for key, count in data.replaced.items() if count > times[key.invocation, key.block]]
    again = [key for key in again if (arm := data.arms.get(key.arm_id)) is None or arm.load is None]
    if again:
        yield of_run(
            "invalid", Message("excluded-block.replaced", requests=len(again)), Message("excluded-block.fix_replaced")
        )
    for it in data.disturbances:
        if _is_calm(data, it):
            said = Message("excluded-block.calm", block=it.block + 1, attempt=it.attempt)
            yield of_run("invalid", said, Message("excluded-block.fix_replaced"))
    if not data.disturbances:
        return
    planned = {key[:2] for key in data.plan}
    few = rule.is_too_busy(planned, data.disturbances)
    worst = max(data.disturbances, key=lambda it: it.mean_percent)
    host = data.hosts[-1] if data.hosts and _sets_threads(data) else None
    yield of_run(
        "invalid" if few else "note",
        Message(
            "excluded-block.busy" if few else "excluded-block.done",
            blocks=len(data.disturbances),
            calm=len(planned - {(it.invocation, it.block) for it in data.disturbances if not it.again}),
            what=worst.what,
        ),
        Message("excluded-block.fix_busy", **worst.ways_out(host, _most_threads(data)))
        if few
        else Message("host-busy.fix_others"),
    )


def _is_calm(data: RunData, found: Disturbance) -> bool:
    """Whether the samples of a block that was excluded say that nothing disturbed it."""
    place = (found.invocation, found.block)
    sessions = [it for it in data.sessions.values() if (it.invocation, it.block) == place]
    sessions = [it for it in sessions if found.began_at <= it.started_at <= found.ended_at]
    if not data.hosts:
        return False
    samples = [Seen(it.at, it.other_cpu_percent, is_slowing(it.gpu_throttle), it.cpu_mhz) for it in data.telemetry]
    return rule.found(samples, sessions, data.arms, data.hosts[-1]) is None


CHECKS: tuple[Check, ...] = (
    Check(
        "host-busy", "suspect", host_busy, saw=("hosts", "arms", "sessions", "requests", "telemetry"), per_device=True
    ),
    Check(
        "free-cores",
        "suspect",
        free_cores,
        saw=("hosts", "arms", "sessions", "telemetry"),
        before=True,
        per_device=True,
    ),
    Check("power-source", "suspect", power_source, saw=("hosts", "telemetry"), before=True, per_device=True),
    Check(
        "memory-short",
        "suspect",
        memory_short,
        saw=("hosts", "arms", "models", "sessions"),
        before=True,
        per_device=True,
    ),
)


CALM_CHECKS: tuple[Check, ...] = (
    Check(
        "excluded-block",
        "invalid",
        excluded_block,
        saw=("hosts", "arms", "sessions", "requests", "telemetry", "disturbances"),
        per_device=True,
    ),
)
