"""Measures electric energy with counters and power sensors, read by a thread and at the edges of each request.

Every source gives joules since it was opened:

- a *counter* (RAPL, NVIDIA GPUs since Volta) is read and unwrapped. Its value is as old as its last change;
- a *power sensor* (NVIDIA GPUs before Volta) is sampled, and energy is the area under straight lines between
  samples. Time between two samples further apart than `LONGEST_GAP_S` is not covered;
- `powermetrics` (Mac) gives the mean power of intervals that follow each other. Only root may run it, so it is started
  through `sudo -n`, which never asks for a password.

A request took the difference of two readings. Of its time, what no reading covers is `unseen`. If that is much of the
time, the joules are not known (`consumption`). Counted are processors, memory and GPUs, by whatever program.

*RAPL*: a package has a counter (`package-0`), and on some machines memory that is not part of it (`dram`). Cores and
graphics are part of the package, and `psys` holds the packages: both are left out. Counters start again at zero beyond
`max_energy_range_uj`. Since Linux 5.10 only root reads them (CVE-2020-8694). Source:
Documentation/power/powercap/powercap.rst of the Linux kernel.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from specmeter.host.ask import read_int, read_text
from specmeter.host.gpus import Nvml
from specmeter.host.machine import read_container
from specmeter.host.telemetry import CpuTimer, share
from specmeter.record import PowerMeter

INTERVAL_MS = 200
_LONGEST_LINE = 10_000
_LAST_BLOCK_S = 2.0
_ELAPSED = re.compile(r"\*\*\* Sampled system activity .*\((\d+(?:\.\d+)?)ms elapsed\)")
_COMBINED = re.compile(r"Combined Power \(CPU \+ GPU \+ ANE\): (\d+(?:\.\d+)?) mW")
_PACKAGE = re.compile(r"Intel energy model derived package power .*: (\d+(?:\.\d+)?)W")
_COMMAND = ("sudo", "-n", "powermetrics", "-b", "1", "-i", str(INTERVAL_MS), "--samplers", "cpu_power,gpu_power")

REFUSED = (
    "powermetrics runs for root alone: let sudo run it without a password "
    "(`sudo visudo`, then the line `YOU ALL=(root) NOPASSWD: /usr/bin/powermetrics`)"
)

POLL_S = 0.1
"""A counter of a GPU changes about so often; reading all sources takes far less than a millisecond."""
LONGEST_GAP_S = 1.0
"""Between two samples of a power sensor."""
MAX_W = 2000.0
"""No package draws more. A counter that was not read for as long as it needs to begin again at this power may have done
so more than once."""
IDLE_S = 3.0
_JOIN_S = 2.0
_REMEMBERED = 20_000
"""Readings: half an hour."""
_FIRST_BLOCK_S = 3 * INTERVAL_MS / 1000 + 2.0


class Reading(NamedTuple):
    """What a source says at one moment, since it was opened."""

    joules: float
    age_s: float
    """Since the source last said anything new."""
    blind_s: float
    """Time that no sample covers."""


class Source(Protocol):
    """Something that tells energy."""

    @property
    def name(self) -> str: ...
    @property
    def prompt(self) -> bool:
        """Whether a reading costs microseconds, so that the measuring thread may take one itself."""
        ...

    def poll(self, now: float) -> None:
        """Look at it; about every `POLL_S`. Nothing is raised."""

    def reading(self, now: float) -> Reading: ...


class Counter:
    """A counter of energy that begins again at zero beyond its range."""

    def __init__(
        self, name: str, read: Callable[[], int | None], unit_j: float, *, full: int | None = None, prompt: bool = False
    ) -> None:
        self.name, self.prompt = name, prompt
        self._read, self._unit_j, self._full = read, unit_j, full
        self._lock = threading.Lock()
        self._last: int | None = None
        self._read_at = self._changed_at = time.monotonic()
        self._joules = self._blind_s = 0.0

    def poll(self, now: float) -> None:
        """Only a prompt counter is read under the lock, by two threads: a driver that hangs keeps the meter's alone."""
        if self.prompt:
            with self._lock:
                self._take(self._read(), now)
        else:
            value = self._read()
            with self._lock:
                self._take(value, now)

    def reading(self, now: float) -> Reading:
        with self._lock:
            return Reading(self._joules, max(0.0, now - self._changed_at), self._blind_s)

    def _take(self, value: int | None, now: float) -> None:
        if value is None:
            return  # its age grows
        since, self._read_at = now - self._read_at, now
        before, self._last = self._last, value
        if before is None or value != before or self.prompt:
            # A prompt counter is renewed every millisecond: the same value means that nothing was used.
            self._changed_at = now
        if before is None:
            return
        gained = value - before
        # So much time may be enough for more than a round of the counter; one without a known end was set back.
        wrapped = since * MAX_W > self._full * self._unit_j if self._full is not None else gained < 0
        if wrapped:
            self._blind_s += since
        else:
            self._joules += (gained + (self._full or 0 if gained < 0 else 0)) * self._unit_j


class Sensor:
    """A sensor of power, integrated."""

    prompt = False

    def __init__(self, name: str, read: Callable[[], float | None]) -> None:
        self.name = name
        self._read = read
        self._lock = threading.Lock()
        self._last: tuple[float, float] | None = None
        self._opened_at = time.monotonic()
        self._joules = self._blind_s = 0.0

    def poll(self, now: float) -> None:
        watts = self._read()
        if watts is None:
            return
        with self._lock:
            if self._last is not None:
                at, before = self._last
                self._joules += (now - at) * (watts + before) / 2
                if now - at > LONGEST_GAP_S:
                    self._blind_s += now - at
            self._last = now, watts

    def reading(self, now: float) -> Reading:
        """With what the power last seen makes of the time since."""
        with self._lock:
            if self._last is None:
                return Reading(0.0, now - self._opened_at, 0.0)
            at, watts = self._last
            age = max(0.0, now - at)
            return Reading(self._joules + age * watts, age, self._blind_s)


class Intervals:
    """Intervals that another program tells, one after the other."""

    prompt = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self._joules = self._blind_s = 0.0
        self._watts: float | None = None

    def add(self, seconds: float, joules: float) -> None:
        """An interval that ends now."""
        with self._lock:
            now = time.monotonic()
            if self._watts is not None and now - self._at > seconds + LONGEST_GAP_S:
                self._blind_s += now - self._at - seconds
            self._at, self._joules = now, self._joules + joules
            self._watts = joules / seconds if seconds > 0 else self._watts

    def poll(self, now: float) -> None:
        """Nothing to do: they come by themselves."""

    def reading(self, now: float) -> Reading:
        with self._lock:
            age = max(0.0, now - self._at)
            return Reading(self._joules + age * (self._watts or 0.0), age, self._blind_s)


class Spent(NamedTuple):
    """Energy between two moments."""

    joules: Mapping[str, float]
    """By source."""
    seconds: float
    unseen_s: float
    """Of the source that covers the least."""


@dataclass(frozen=True)
class Moment:
    """Readings of all sources at one moment."""

    at: float
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class EnergySources:
    """What can be read on this machine."""

    found: tuple[Source, ...] = ()
    unread: tuple[str, ...] = ()
    """What cannot be read, and how to allow it."""
    close: Callable[[], None] = lambda: None


class EnergyMeter:
    """All sources, read from `__enter__` to `__exit__`; without any source it does nothing.

        with EnergyMeter(find_sources()) as meter:
            before = meter.now()
            ...
            spent = meter.between(before, meter.now())

    Nothing is ever raised into the measurement: a source that stops answering grows old.
    """

    def __init__(self, sources: EnergySources) -> None:
        self._sources = sources
        self._past: deque[Moment] = deque(maxlen=_REMEMBERED)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sources that can be read."""
        return tuple(source.name for source in self._sources.found)

    def __enter__(self) -> Self:
        if self.names:
            self._poll(time.monotonic())
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        self._sources.close()

    def now(self) -> Moment | None:
        """Readings now; None where nothing can be read."""
        if not self.names:
            return None
        now = time.monotonic()
        for source in self._sources.found:
            if source.prompt:
                with contextlib.suppress(Exception):
                    source.poll(now)
        return self._moment(now)

    def _moment(self, now: float) -> Moment:
        moment = Moment(now, tuple(source.reading(now) for source in self._sources.found))
        self._past.append(moment)
        return moment

    def until(self, before: Moment | None, seconds: float | None) -> float | None:
        """Joules of all sources from a moment until this many seconds later, which have passed: on a straight line
        between the readings on either side of it. None where that is not known."""
        if before is None or seconds is None:
            return None
        at, past = before.at + seconds, [*self._past]
        place = bisect_left(past, at, key=lambda it: it.at)
        if not 0 < place < len(past):
            return None
        last, moment = past[place - 1], past[place]
        share = (at - last.at) / (moment.at - last.at)
        pairs = zip(before.readings, last.readings, moment.readings, strict=True)
        return max(0.0, sum(a.joules + share * (b.joules - a.joules) - zero.joules for zero, a, b in pairs))

    def between(self, before: Moment | None, after: Moment | None) -> Spent | None:
        """What was used from one moment to the other."""
        if before is None or after is None or not after.at > before.at:
            return None
        pairs = list(zip(before.readings, after.readings, strict=True))
        seconds = after.at - before.at
        unseen = max(first.age_s + last.age_s + last.blind_s - first.blind_s for first, last in pairs)
        joules = {
            name: max(0.0, last.joules - first.joules) for name, (first, last) in zip(self.names, pairs, strict=True)
        }
        return Spent(joules, seconds, min(seconds, unseen))

    def facts(self) -> PowerMeter:
        """What is read here, and why other things are not."""
        return PowerMeter(sources=self.names, unread=self._sources.unread)

    def at_rest(self) -> PowerMeter:
        """The same with the power of the machine while nothing is measured; takes `IDLE_S` seconds."""
        if not self.names:
            return self.facts()
        timer = CpuTimer()
        busy, before = timer.read(), self.now()
        time.sleep(IDLE_S)
        spent, used = self.between(before, self.now()), share(busy, timer.read())
        trusted = spent is not None and spent.unseen_s < spent.seconds / 2
        idle_w = sum(spent.joules.values()) / spent.seconds if spent is not None and trusted else None
        return self.facts().model_copy(update={"idle_w": idle_w, "idle_cpu_percent": round(used.all_percent, 2)})

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            self._poll(time.monotonic())

    def _poll(self, now: float) -> None:
        for source in self._sources.found:
            # Whatever goes wrong in a driver: the source grows old, and the measurement continues.
            with contextlib.suppress(Exception):
                source.poll(now)
        self._moment(now)


def find_sources(root: Path = Path("/")) -> EnergySources:
    """Everything here that tells energy. On a Mac this starts `powermetrics`; to be closed, as `EnergyMeter` does."""
    if sys.platform == "darwin":
        return _mac()
    packages, closed = rapl_counters(root) if sys.platform == "linux" else ((), ())
    found: list[Source] = [*packages]
    unread = [*closed]
    if not packages and not closed:
        unread.append(_no_counter(root))
    nvml = Nvml()
    for index in range(len(nvml)):
        name = f"gpu-{index}"
        if nvml.energy_mj(index) is not None:
            found.append(Counter(name, partial(nvml.energy_mj, index), 1e-3))
        elif nvml.power_w(index) is not None:
            found.append(Sensor(name, partial(nvml.power_w, index)))
        else:  # one that is partitioned, for example
            unread.append(f"{name} reports neither energy nor power")
    return EnergySources(tuple(found), tuple(unread), nvml.close)


def _mac() -> EnergySources:
    chip = Intervals("chip")
    try:
        running = PowerMetrics(chip.add)
    except (OSError, subprocess.SubprocessError):
        return EnergySources(unread=(REFUSED,))
    if running.wait(_FIRST_BLOCK_S):
        return EnergySources((chip,), (), running.close)
    running.close()
    return EnergySources(unread=(REFUSED,))


def _no_counter(root: Path) -> str:
    if sys.platform != "linux":
        return f"CPU energy cannot be read on {'Windows' if sys.platform == 'win32' else sys.platform}"
    where = read_container(root)
    return "CPU energy cannot be read: Linux has no counter here (/sys/class/powercap)" + (
        f"; usual in virtual machines and containers ({where})" if where else ""
    )


def rapl_counters(root: Path = Path("/")) -> tuple[tuple[Counter, ...], tuple[str, ...]]:
    """Counters of packages and of memory that are no part of them; and why others cannot be read, with the fix."""
    found: list[Counter] = []
    closed: list[str] = []
    folders = (root / "sys/class/powercap").glob("intel-rapl:*")
    for folder in sorted(folders, key=lambda it: [int(number) for number in re.findall(r"\d+", it.name)]):
        # `intel-rapl-mmio` shows the same packages a second time.
        place = re.fullmatch(r"intel-rapl:(\d+)(?::\d+)?", folder.name)
        name = read_text(folder / "name") or ""
        if not place or not re.fullmatch(r"package-[\w-]+|dram", name):  # others lie within these
            continue
        file, full = folder / "energy_uj", read_int(folder / "max_energy_range_uj")
        if read_int(file) is None:
            closed.append(f"/{file.relative_to(root).as_posix()}")
        else:
            shown = f"dram-{place[1]}" if name == "dram" else name
            found.append(Counter(shown, partial(read_int, file), 1e-6, full=full, prompt=True))
    if not closed:
        return tuple(found), ()
    what = "the processor's energy counter" + ("s are" if len(closed) > 1 else " is")
    return tuple(found), (f"{what} readable by root alone: sudo chmod a+r {' '.join(closed)} (until the next boot)",)


def blocks(lines: Iterable[str]) -> Iterator[tuple[float, float]]:
    """(seconds, joules) of every interval that is told whole."""
    elapsed_s: float | None = None
    for line in lines:
        if found := _ELAPSED.search(line[:_LONGEST_LINE]):
            elapsed_s = float(found[1]) / 1000
            continue
        mw, w = _COMBINED.search(line[:_LONGEST_LINE]), _PACKAGE.search(line[:_LONGEST_LINE])
        watts = float(mw[1]) / 1000 if mw else float(w[1]) if w else None
        if watts is not None and elapsed_s is not None:
            yield elapsed_s, watts * elapsed_s
            elapsed_s = None


class PowerMetrics:
    """The running program; `emit(seconds, joules)` is called on a thread of its own for every interval."""

    def __init__(self, emit: Callable[[float, float], object]) -> None:
        """Raises `OSError` where it cannot be started at all."""
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
        self._emit = emit
        self._seen = False
        self._known = threading.Event()
        """Set with the first interval, or when there will be none."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="powermetrics", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether a first interval has come, within this many seconds; known at once where the program ends before."""
        self._known.wait(timeout_s)
        return self._seen

    def close(self) -> None:
        """End it. It runs as root and cannot be signalled: once its output is closed it ends at its next line."""
        self._stop.set()
        self._thread.join(_LAST_BLOCK_S)
        with contextlib.suppress(OSError):
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_BLOCK_S)

    def _read(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        try:
            with output:
                for seconds, joules in blocks(output):
                    self._emit(seconds, joules)
                    self._seen = True
                    self._known.set()
                    if self._stop.is_set():
                        return
        finally:
            self._known.set()
