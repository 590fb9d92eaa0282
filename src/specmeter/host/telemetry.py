"""State of the machine while requests run, about once a second, from a thread that never disturbs them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from specmeter.host.cgroup import find_cgroup
from specmeter.host.cpu_time import CpuTime, CpuTimer, share
from specmeter.host.gpu import GpuSensors
from specmeter.host.kernel_files import read_int, read_text, scaled
from specmeter.host.power import read_power_source
from specmeter.record import Telemetry

# A battery's controller is slow to answer, and its state does not change often.
_BATTERY_EVERY_S = 10.0
# A shorter last interval holds too few clock ticks to be divided.
_SHORTEST_PART = 0.2
_JOIN_S = 10.0
# Drivers of processor temperatures, and the label of the value that stands for the whole package.
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal")
_PACKAGE_LABELS = ("Package id 0", "Tctl", "Tdie")
# Each read of a clock interrupts that core, so a large machine is only sampled.
_MOST_CLOCKS = 8


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
        """The engine's processes from now on; the interval that is under way begins anew."""
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
        self._gpus = GpuSensors()
        self._cpu = CpuSensors()
        self._cgroup = find_cgroup()
        self._battery: tuple[float, bool | None] | None = None
        self.watch(pids)

    def watch(self, pids: tuple[int, ...]) -> None:
        self._timer = CpuTimer(pids)
        self._before: CpuTime = self._timer.read()

    def sample(self, at: float) -> Telemetry:
        import psutil

        now = self._timer.read()
        used = share(self._before, now)
        self._before = now
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
        clocks = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=_number)
        self._clocks = clocks[:: max(1, -(-len(clocks) // _MOST_CLOCKS))]
        self._temperature = _find_temperature(root)

    def mhz(self) -> float | None:
        """Clock of the fastest of at most eight cores, evenly spread: the busy ones are the fast ones."""
        return scaled(max((khz for path in self._clocks if (khz := read_int(path)) is not None), default=None), 1e3)

    def celsius(self) -> float | None:
        """Temperature of the processor's package."""
        return scaled(read_int(self._temperature), 1e3) if self._temperature else None


def _number(path: Path) -> int:
    found = re.search(r"cpu(\d+)/cpufreq", path.as_posix())
    return int(found[1]) if found else 0


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
