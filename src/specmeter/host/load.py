"""What other processes do to the machine."""

from __future__ import annotations

import os
import time

# A share of one core below this is noise of any desktop.
_BUSY_SHARE = 0.1
_MOST_NAMES = 8


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
