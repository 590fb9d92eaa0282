"""What other processes do to the machine, and how much of it a measurement bears: one standard for runs and probes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

# A share of one core below this is noise of any desktop.
_BUSY_SHARE = 0.1
_MOST_NAMES = 8
BUSY_PERCENT = 5.0
"""Mean share of the machine that others may have. On a quiet machine with two cores it is 0.8 % in the mean, and 6.4 %
in the worst of 334 single samples."""
SPIKE_PERCENT = 10.0
_SPIKES = 0.2
_LEAST_SPIKES = 3


def read_busy_processes(sample_s: float = 0.5) -> tuple[str, ...]:
    """Other processes that use at least a tenth of a core, busiest first: `python3 (0.98 cores)`.

    Watches for `sample_s` seconds. Names only: arguments may hold secrets.
    """
    start = time.monotonic()
    before = _cpu_seconds()
    time.sleep(sample_s)
    after = _cpu_seconds()
    elapsed = max(time.monotonic() - start, 1e-9)
    shares = sorted(
        ((seconds - before.get(key, ("", 0.0))[1]) / elapsed, name) for key, (name, seconds) in after.items()
    )
    busiest = [(share, name) for share, name in reversed(shares) if share >= _BUSY_SHARE]
    return tuple(f"{name} ({share:.2f} cores)" for share, name in busiest[:_MOST_NAMES])


def read_load_average() -> tuple[float, float, float] | None:
    """Runnable processes on average over 1, 5 and 15 minutes; None on Windows, which does not count them."""
    try:
        one, five, fifteen = os.getloadavg()
    except (OSError, AttributeError):
        return None
    return one, five, fifteen


def is_busy(shares: Sequence[float], gate: float = BUSY_PERCENT) -> bool:
    """Whether others took too much, by their shares of the machine in percent, sampled about once a second: more than
    `gate` in the mean, or more than `SPIKE_PERCENT` in a fifth of the samples (and in three at least)."""
    if not shares:
        return False
    spikes = sum(share > max(gate, SPIKE_PERCENT) for share in shares)
    return sum(shares) / len(shares) > gate or (spikes >= _LEAST_SPIKES and spikes >= _SPIKES * len(shares))


def busy_percent(threads: int | None, cores: int, logical_cores: int) -> float:
    """Mean share that others may have beside an engine with so many threads on the CPU.

    Where these take every one of the `cores`, one core taken by others is enough, because threads that wait for each
    other are as slow as the slowest.
    """
    if threads is None or threads < cores:
        return BUSY_PERCENT
    return min(BUSY_PERCENT, 100 / logical_cores)


def _cpu_seconds() -> dict[tuple[int, float], tuple[str, float]]:
    """(pid, start) -> (name, CPU seconds) of every other process that may be looked at."""
    import psutil

    found: dict[tuple[int, float], tuple[str, float]] = {}
    for process in psutil.process_iter():
        # pid 0 is Windows's idle process: idle time is not load.
        if process.pid in (0, os.getpid()):
            continue
        try:
            with process.oneshot():
                times = process.cpu_times()
                found[process.pid, process.create_time()] = (process.name(), times.user + times.system)
        except (psutil.Error, OSError):
            continue
    return found
