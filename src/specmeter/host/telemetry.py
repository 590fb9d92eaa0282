"""Samples the state of the machine about once a second while requests run, from a thread that does not disturb them.

It also says how much of the processor other programs took, and how much of that a run or a probe can bear.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from specmeter.host.ask import read_int, read_text, scaled
from specmeter.host.gpus import Nvml
from specmeter.host.limits import find_cgroup
from specmeter.host.machine import read_power_source
from specmeter.host.programs import OtherPrograms
from specmeter.record import EngineSettings, Host, Telemetry

# A battery's controller is slow to answer, and its state does not change often.
_BATTERY_EVERY_S = 10.0
# A shorter last interval holds too few clock ticks to be divided.
_SHORTEST_PART = 0.2
_JOIN_S = 10.0
# Drivers of processor temperatures, and the label of the value that stands for the whole package.
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal")
_PACKAGE_LABELS = ("Package id 0", "Tctl", "Tdie")
# Each read of a clock interrupts that core, so a large machine is only sampled.
_MAX_CLOCKS = 8


class TelemetrySampler:
    """Samples the machine every `interval_s` seconds between `__enter__` and `__exit__`, and once more at the end.

    `emit` gets each record on the sampler's own thread; hand it over with `queue.SimpleQueue().put` where the receiver
    belongs to another thread. `clock` gives the records' time of day. Nothing is ever raised into the measurement:
    samples that could not be taken or emitted are counted in `failures`.

        samples = queue.SimpleQueue()
        with TelemetrySampler(samples.put) as sampler:
            sampler.watch(session.facts.pids)
            ...
    """

    def __init__(
        self,
        emit: Callable[[Telemetry], object],
        *,
        pids: Iterable[int] = (),
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._emit = emit
        self._interval_s = interval_s
        self._clock = clock
        self._pids = tuple(pids)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._probe: _Probe | None = None
        self.failures = 0

    def watch(self, pids: Iterable[int]) -> None:
        """The engine's processes from now on; the interval that is under way begins again."""
        self._pids = tuple(pids)
        self._guarded(self._rewatch)

    def __enter__(self) -> Self:
        self._guarded(self._open)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        # A GPU driver that hangs must not hang the measurement; the thread is a daemon and dies with the process.
        self._thread.join(_JOIN_S)

    def _open(self) -> None:
        self._probe = _Probe(self._pids)

    def _rewatch(self) -> None:
        with self._lock:
            if self._probe is not None:
                self._probe.watch(self._pids)

    def _run(self) -> None:
        start = time.monotonic()
        last, count = start, 0
        while not self._stop.wait(max(0.0, start + (count + 1) * self._interval_s - time.monotonic())):
            self._guarded(self._sample)
            last = time.monotonic()
            # After a suspend or a long stall the missed samples are gone, not made up for.
            count = max(count + 1, int((last - start) / self._interval_s))
        if time.monotonic() - last >= _SHORTEST_PART * self._interval_s:
            self._guarded(self._sample)
        if self._probe is not None:
            self._guarded(self._probe.close)

    def _sample(self) -> None:
        with self._lock:
            record = self._probe.sample(self._clock()) if self._probe is not None else None
        if record is not None:
            self._emit(record)

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:
            # Telemetry may be incomplete; the measurement must not be.
            self.failures += 1


class _Probe:
    """All sensors, open."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._gpus = Nvml()
        self._cpu = CpuSensors()
        self._cgroup = find_cgroup()
        self._battery: tuple[float, bool | None] | None = None
        self._others = OtherPrograms()
        self._others.taken(pids)
        self.watch(pids)

    def watch(self, pids: tuple[int, ...]) -> None:
        self._pids = pids
        self._timer = CpuTimer(pids)
        self._before: CpuTime = self._timer.read()

    def sample(self, at: float) -> Telemetry:
        now = self._timer.read()
        used = share(self._before, now)
        self._before = now
        programs = self._others.taken(self._pids) if used.other_percent > SPIKE_PERCENT else ()
        available = psutil.virtual_memory().available
        left = self._cgroup.memory_available_bytes()
        return Telemetry(
            at=at,
            cpu_percent=used.all_percent,
            other_cpu_percent=used.other_percent,
            memory_available_bytes=available if left is None else min(available, left),
            engine_rss_bytes=self._timer.engine_rss_bytes(),
            cpu_mhz=self._cpu.mhz(),
            cpu_celsius=self._cpu.celsius(),
            on_battery=self._on_battery(),
            gpus=self._gpus.samples(),
            programs=programs,
        )

    def close(self) -> None:
        self._gpus.close()

    def _on_battery(self) -> bool | None:
        now = time.monotonic()
        if self._battery is None or now - self._battery[0] >= _BATTERY_EVERY_S:
            source = read_power_source(virtual=True)
            self._battery = (now, None if source == "unknown" else source == "battery")
        return self._battery[1]


class CpuSensors:
    """Files with clocks and temperature, found once and read often.

    Linux only: Apple and Windows show a plain user the nominal clock, which says nothing, and no temperature.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        cpus = root / "sys/devices/system/cpu"
        clocks = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=lambda it: int(it.parts[-3][3:]))
        self._clocks = clocks[:: max(1, -(-len(clocks) // _MAX_CLOCKS))]
        self._temperature = _find_temperature(root)

    def mhz(self) -> float | None:
        """Clock of the fastest of at most eight cores, evenly spread: the busy ones are the fast ones."""
        return scaled(max((khz for path in self._clocks if (khz := read_int(path)) is not None), default=None), 1e3)

    def celsius(self) -> float | None:
        """Temperature of the processor's package."""
        return scaled(read_int(self._temperature), 1e3) if self._temperature else None


def _find_temperature(root: Path) -> Path | None:
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if read_text(folder / "name") not in _CPU_HWMON:
            continue
        inputs = sorted(folder.glob("temp*_input"))
        labels = {path: read_text(path.with_name(path.name.replace("_input", "_label"))) for path in inputs}
        package = [path for path in inputs if labels[path] in _PACKAGE_LABELS]
        if inputs:
            return (package or inputs)[0]
    return None


# Linux counts guests within user and nice; Windows counts interrupts within system. Stolen time went to others.
_BUSY_FIELDS = ("user", "nice", "system", "irq", "softirq", "steal")
_IDLE_FIELDS = ("idle", "iowait")


@dataclass(frozen=True)
class CpuTime:
    """Counters in CPU seconds at one moment."""

    busy: float
    total: float
    own: float
    """This process."""
    reaped: float
    """Children of this process that ended and were waited for (0 where the system does not keep it)."""
    engine: dict[int, float]
    """Processes of the engine that are alive."""
    stolen: float = 0.0
    """Of `busy`: what a hypervisor gave to other machines."""


@dataclass(frozen=True)
class CpuShare:
    """Percent of the whole machine between two moments."""

    all_percent: float
    other_percent: float


class CpuTimer:
    """Reads the counters of the machine, of this process and of the engine's processes: only these."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._own = psutil.Process()
        self._engine: dict[int, psutil.Process] = {}
        for pid in pids:
            # An engine that is gone already is nothing to watch.
            with suppress(psutil.Error, ValueError):
                self._engine[pid] = psutil.Process(pid)

    def read(self) -> CpuTime:
        """The counters now."""
        machine = psutil.cpu_times()
        busy = sum(float(getattr(machine, name, 0.0)) for name in _BUSY_FIELDS)
        idle = sum(float(getattr(machine, name, 0.0)) for name in _IDLE_FIELDS)
        own = self._own.cpu_times()
        engine: dict[int, float] = {}
        for pid, process in self._engine.items():
            try:
                times = process.cpu_times()
            except (psutil.Error, OSError):
                continue
            engine[pid] = times.user + times.system + times.children_user + times.children_system
        return CpuTime(
            busy=busy,
            total=busy + idle,
            own=own.user + own.system,
            reaped=own.children_user + own.children_system,
            engine=engine,
            stolen=float(getattr(machine, "steal", 0.0)),
        )

    def engine_rss_bytes(self) -> int | None:
        """Resident memory of the engine's processes together; None when none is alive."""
        sizes: list[int] = []
        for process in self._engine.values():
            try:
                sizes.append(process.memory_info().rss)
            except (psutil.Error, OSError):
                continue
        return sum(sizes) if sizes else None


def share(before: CpuTime, after: CpuTime) -> CpuShare:
    """Shares between two readings of one timer.

    An engine that ended in between is still counted as ours: its last CPU seconds arrive in `reaped`, from which what
    was already counted while it lived is taken off. Stolen time went to others, whatever is ours: kernels without
    `PARAVIRT_TIME_ACCOUNTING` count it among a process's own seconds as well, which would cancel it.
    """
    total = after.total - before.total
    if total <= 0:
        return CpuShare(all_percent=0.0, other_percent=0.0)
    ended = sum(seconds for pid, seconds in before.engine.items() if pid not in after.engine)
    ours = (
        (after.own - before.own)
        + max(0.0, after.reaped - before.reaped - ended)
        + sum(seconds - before.engine.get(pid, seconds) for pid, seconds in after.engine.items())
    )
    busy = max(0.0, after.busy - before.busy)
    return CpuShare(
        all_percent=min(100.0, 100 * busy / total),
        other_percent=min(100.0, 100 * max(0.0, busy - ours, after.stolen - before.stolen) / total),
    )


BUSY_PERCENT = 5.0
"""Mean share of the machine that others may have. On a quiet machine with two cores it is 0.8 % in the mean, and 6.4 %
in the worst of 334 single samples."""
SPIKE_PERCENT = 10.0
_SPIKES = 0.2
_MIN_SPIKES = 3
SHORT_PERCENT = 20.0
"""Mean share in a session of fewer samples; its last one may hold a fifth of a second, and few ticks of the clock."""
_CALM_S = 3


class Gate(NamedTuple):
    """What others may have of the machine beside an engine, in percent."""

    mean: float = BUSY_PERCENT
    left: float = 0.0
    """Of the cores that the engine leaves free: what others always have of these is the same for every arm."""


QUIET = Gate()


def gate_beside(threads: int | None, cores: int, logical_cores: int) -> Gate:
    """What others may have beside an engine with this many threads on the CPU; None where it does not decode there.

    Where these take every one of the `cores`, one core taken by others is enough, because threads that wait for each
    other are as slow as the slowest.
    """
    if threads is None:
        return QUIET
    if threads < cores:
        return Gate(left=100 * (cores - threads) / logical_cores)
    return Gate(min(BUSY_PERCENT, 100 / logical_cores))


def gate_for(settings: EngineSettings, host: Host) -> Gate:
    """What others may have beside an engine with these settings, as far as they tell before it runs."""
    cores = host.physical_cores or host.logical_cores
    on_cpu = not host.gpus or not settings.gpu_layers
    return gate_beside(settings.threads or cores if on_cpu else None, cores, host.logical_cores)


def is_busy(shares: Sequence[float], gate: Gate = QUIET, among: Sequence[float] = ()) -> bool:
    """Whether others took too much, by their shares of the machine in percent, sampled about once a second: more than
    the gate in the mean, or more than `SPIKE_PERCENT` in a fifth of the samples (and in three at least); of what they
    have of cores that are left free, as far as it changes from what is usual `among` all samples."""
    if not shares:
        return False
    usual = median(among or shares)
    if gate.left and usual <= gate.left + gate.mean:
        shares = [abs(share - usual) for share in shares]
    spikes = sum(share > max(gate.mean, SPIKE_PERCENT) for share in shares)
    return sum(shares) / len(shares) > gate.mean or (spikes >= _MIN_SPIKES and spikes >= _SPIKES * len(shares))


HARMLESS = frozenset({"application_clocks", "sync_boost", "display_clocks"})
"""Clocks of a GPU lowered by settings, the same for every arm."""
POWER_CAP = frozenset({"sw_power_cap"})
"""A GPU at its power limit: what it does at full load, and part of what an arm costs."""
THROTTLED = 0.05
"""Share of the samples (and two at least) with a GPU slowed by heat or its hardware that says something."""


SLOW_CLOCK = 0.8
"""Share of the highest clock beside it that says something."""


class Seen(NamedTuple):
    """What a sample says of disturbances."""

    at: float
    other_percent: float
    """Share of the machine that others took."""
    slowed: bool = False
    """Whether a GPU was slowed down."""
    mhz: float | None = None
    """Clock of the processor."""


def is_slowing(reasons: Iterable[str]) -> bool:
    """Whether heat or its hardware slowed a GPU down."""
    return bool(set(reasons) - HARMLESS - POWER_CAP)


def seen(sample: Telemetry) -> Seen:
    """What a sample says of disturbances."""
    slowed = any(is_slowing(gpu.throttle_reasons) for gpu in sample.gpus)
    return Seen(sample.at, sample.other_cpu_percent, slowed, sample.cpu_mhz)


def others_were_busy(sessions: Sequence[Sequence[Seen]], gate: Gate = QUIET) -> bool:
    """Whether others were busy in some sessions, by the samples of each: in all of them together, or in one of them."""
    among = [it.other_percent for samples in sessions for it in samples]
    short = Gate(SHORT_PERCENT, gate.left)
    parts = [[it.other_percent for it in samples] for samples in sessions]
    return is_busy(among, gate, among) or any(
        is_busy(part, gate if len(part) >= _MIN_SPIKES else short, among) for part in parts
    )


def gpu_was_slowed(samples: Sequence[Seen]) -> bool:
    """Whether heat or its hardware slowed a GPU down in this many samples that it says something."""
    return sum(it.slowed for it in samples) >= max(2, THROTTLED * len(samples))


def lowest_clock(sessions: Iterable[Sequence[Seen]]) -> float:
    """The processor's median clock in the slowest session over that in the fastest, of sessions with three samples or
    more that tell it; 1 where fewer than two do."""
    clocks = [[it.mhz for it in samples if it.mhz] for samples in sessions]
    medians = [median(part) for part in clocks if len(part) >= _MIN_SPIKES]
    return min(medians) / max(medians) if medians else 1.0


def wait_for_calm(limit_s: float, gate: Gate = QUIET, *, sleep: Callable[[float], object] = time.sleep) -> bool:
    """Wait until others took little of the machine for three seconds, no longer than the limit; whether they did."""
    timer = CpuTimer()
    before, calm, ends = timer.read(), 0, time.monotonic() + limit_s
    while calm < _CALM_S and time.monotonic() < ends:
        sleep(1.0)
        now = timer.read()
        calm = calm + 1 if share(before, now).other_percent <= gate.mean + gate.left else 0
        before = now
    return calm >= _CALM_S
