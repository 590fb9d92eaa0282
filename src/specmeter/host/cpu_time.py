"""How the machine's processor time divides between this program with its engine, and everybody else."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

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


@dataclass(frozen=True)
class CpuShare:
    """Percent of the whole machine between two moments."""

    all_percent: float
    other_percent: float


class CpuTimer:
    """Reads the counters of the machine, of this process and of the engine's processes: only these."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        import psutil

        self._own = psutil.Process()
        self._engine: dict[int, psutil.Process] = {}
        for pid in pids:
            # An engine that is gone already is nothing to watch.
            with suppress(psutil.Error, ValueError):
                self._engine[pid] = psutil.Process(pid)

    def read(self) -> CpuTime:
        """The counters now."""
        import psutil

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
        )

    def engine_rss_bytes(self) -> int | None:
        """Resident memory of the engine's processes together; None when none is alive."""
        import psutil

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
    was already counted while it lived is taken off.
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
        other_percent=min(100.0, 100 * max(0.0, busy - ours) / total),
    )
