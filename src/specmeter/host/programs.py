"""How much of the processor other programs take while something is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

import psutil

# A share of one core below this is noise of any desktop.
_BUSY_SHARE = 0.1
_MAX_NAMES = 8


def read_busy_processes(sample_s: float = 0.5, ours: Collection[int] = ()) -> tuple[str, ...]:
    """Processes, `ours` left out, that use at least a tenth of a core, busiest first: `python3 (0.98 cores)`.

    Watches for `sample_s` seconds. Names only: arguments may hold secrets.
    """
    others = OtherPrograms()
    others.taken(ours)
    time.sleep(sample_s)
    return others.taken(ours)


class OtherPrograms:
    """Which other processes use the processor, between one look and the next."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[tuple[int, float], tuple[str, float]]] | None = None

    def taken(self, ours: Collection[int] = ()) -> tuple[str, ...]:
        """Those that used at least a tenth of a core since the last look, busiest first: `python3 (0.98 cores)`. None
        at the first look."""
        now, after = time.monotonic(), _cpu_seconds(ours)
        (start, before), self._before = self._before or (now, after), (now, after)
        elapsed = max(now - start, 1e-9)
        shares = sorted(
            ((seconds - before[key][1]) / elapsed, name) for key, (name, seconds) in after.items() if key in before
        )
        busiest = [(share, name) for share, name in reversed(shares) if share >= _BUSY_SHARE]
        return tuple(f"{name} ({share:.2f} cores)" for share, name in busiest[:_MAX_NAMES])


def read_load_average() -> tuple[float, float, float] | None:
    """Runnable processes on average over 1, 5 and 15 minutes; None on Windows, which does not count them."""
    try:
        one, five, fifteen = os.getloadavg()
    except (OSError, AttributeError):
        return None
    return one, five, fifteen


def _cpu_seconds(ours: Collection[int] = ()) -> dict[tuple[int, float], tuple[str, float]]:
    """(pid, start) -> (name, CPU seconds) of every other process that may be looked at."""
    found: dict[tuple[int, float], tuple[str, float]] = {}
    for process in psutil.process_iter():
        # pid 0 is Windows's idle process: idle time is not load.
        if process.pid in (0, os.getpid(), *ours):
            continue
        try:
            with process.oneshot():
                times = process.cpu_times()
                found[process.pid, process.create_time()] = (process.name(), times.user + times.system)
        except (psutil.Error, OSError):
            continue
    return found
