"""Measures the memory bandwidth of this machine: reads and copies arrays far larger than its caches, on all cores.

Decoding reads every active weight once per forward, so bytes per second read are what a machine can promise. Each core
has a part of the arrays that it touched first itself (on a machine with several memory controllers, next to itself).
After a pass that is thrown away, the kernels run in turns, so that a disturbance meets all of them.

*Reading* has to do something with what it reads, and that must not be what takes the time. Several reductions are
tried, and the one with the highest median is taken; then it runs again over a piece that stays in a core's cache. If
it is not clearly faster there, the figure is a lower bound (`Bandwidth.memory_bound`). *Copying* counts the bytes read
and the bytes written, as STREAM does.

Source: McCalpin 1995, "Memory Bandwidth and Machine Balance in Current High Performance Computers" (arrays at least
four times as large as all caches; ours are eight times).
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from specmeter.cache import cache_dir
from specmeter.errors import UsageError
from specmeter.files import write_whole
from specmeter.host.ask import read_text
from specmeter.host.limits import memory_available_bytes
from specmeter.numbers.stats import median_estimate
from specmeter.record import Estimate, Host, Record
from specmeter.text import size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Part = NDArray[np.int64]

PASSES = 30
"""Passes over the arrays with each kernel."""
MIN_BYTES = 2**29
MAX_BYTES = 2**31
_UNKNOWN_CACHE_BYTES = 2**27
_CACHED_BYTES = 2**18
"""A piece that stays in one core's own cache."""
_CLEARLY = 1.3
"""A kernel that is this much faster in cache is held up by memory outside of it."""
_MAX_STORED = 100_000

Kernel = Callable[["Part"], object]

READERS: dict[str, Kernel] = {
    "maximum of int64": lambda part: part.max(),
    "or of int64": np.bitwise_or.reduce,
    "sum of int64": lambda part: part.sum(),
    "and of uint8": lambda part: np.bitwise_and.reduce(part.view(np.uint8)),
}
"""Reductions that read every byte once; none of them may stop early."""


class Bandwidth(Record):
    """What this machine's memory was seen to deliver to its cores; decimal GB/s."""

    format: Literal[1] = 1
    measured_at: float
    """Seconds since the epoch."""
    hostname_sha256: str
    cpu: str
    threads: int
    array_bytes: int
    """Size of each array, over all threads."""
    read: Estimate
    """Bytes read per second, median over passes."""
    copied: Estimate
    """Bytes read and written per second while copying."""
    read_best: float
    """The fastest pass; a machine that is shared with others shows more of itself here than in the median."""
    copied_best: float
    reader: str
    """The reduction that read fastest."""
    cached_read: float
    """The same reduction over a piece that stays in cache: one core's rate, times threads."""

    @property
    def memory_bound(self) -> bool:
        """Whether memory set the pace; otherwise `read` is a lower bound of what memory can deliver."""
        return self.cached_read > _CLEARLY * self.read.point


def measure_bandwidth(host: Host, threads: int | None = None, *, passes: int = PASSES) -> Bandwidth:
    """Measure now, on all cores this process may use, or on `threads` of them. Takes a few seconds.

    Raises `UsageError` when arrays that are larger than the caches do not fit into the memory that is free.
    """
    cores = host.physical_cores or host.logical_cores
    count = threads or max(1, min(cores, int(host.usable_cores or cores)))
    parts = [array_bytes(cache_bytes(), memory_available_bytes()) // 8 // count] * count
    with ThreadPoolExecutor(count) as pool:
        pairs = list(pool.map(_touched, parts))
        sources = [source for source, _ in pairs]
        moved = sum(part.nbytes for part in sources)
        rates: dict[str, list[float]] = {name: [] for name in (*READERS, "copy")}
        for index in range(passes + 1):
            seen = {name: _gb_per_s(pool, kernel, sources) for name, kernel in READERS.items()}
            seen["copy"] = _gb_per_s(pool, lambda pair: np.copyto(pair[1], pair[0]), pairs, 2 * moved)
            for name, rate in seen.items() if index else ():
                rates[name].append(rate)
    copied = rates.pop("copy")
    reader = max(rates, key=lambda name: float(np.median(rates[name])))
    return Bandwidth(
        measured_at=time.time(),
        hostname_sha256=host.hostname_sha256,
        cpu=host.cpu,
        threads=count,
        array_bytes=moved,
        read=median_estimate(rates[reader], unit="GB/s", of="passes"),
        copied=median_estimate(copied, unit="GB/s", of="passes"),
        read_best=max(rates[reader]),
        copied_best=max(copied),
        reader=reader,
        cached_read=count * _cached_rate(READERS[reader]),
    )


def array_bytes(cache: int | None, available: int) -> int:
    """Bytes of one array: eight times the caches where memory allows, two arrays in half of what is free.

    Raises `UsageError` where even four times the caches do not fit.
    """
    caches = cache or _UNKNOWN_CACHE_BYTES
    wanted = max(MIN_BYTES, min(MAX_BYTES, 8 * caches), 4 * caches)
    each = min(wanted, available // 4)
    if each < 4 * caches:
        raise UsageError(
            f"bandwidth: two arrays of {size(4 * caches)} (4x the caches) do not fit in half of the free "
            f"{size(available)}",
            fix="close other programs",
        )
    return each - each % 4096


# --- remembered -------------------------------------------------------------------------------------------------------


def remember(bandwidth: Bandwidth) -> Path | None:
    """Keep the measurement in the cache folder, for `remembered`; None where that cannot be written to."""
    with suppress(OSError):
        path = _place(bandwidth.hostname_sha256, bandwidth.cpu)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, bandwidth.model_dump_json(indent=2).encode())
        return path
    return None


def remembered(host: Host) -> Bandwidth | None:
    """What was last measured on this machine (same name, same processor); None where there is nothing to be read."""
    try:
        with _place(host.hostname_sha256, host.cpu).open("rb") as file:
            return Bandwidth.model_validate_json(file.read(_MAX_STORED))
    except (OSError, ValueError):
        return None


def _place(hostname_sha256: str, cpu: str) -> Path:
    identity = hashlib.sha256(f"{hostname_sha256}\0{cpu}".encode()).hexdigest()
    return cache_dir() / "bandwidth" / f"{identity[:32]}.json"


# --- one pass ---------------------------------------------------------------------------------------------------------


def _touched(length: int) -> tuple[Part, Part]:
    """A source and a destination whose pages this thread wrote first."""
    return np.arange(length, dtype=np.int64), np.full(length, -1, dtype=np.int64)


def _gb_per_s(
    pool: ThreadPoolExecutor, kernel: Callable[[Any], object], parts: Sequence[Any], size: int | None = None
) -> float:
    """Decimal GB/s of one pass of `kernel` over all parts at once: from the first one's start to the last one's end."""
    together = threading.Barrier(len(parts))

    def work(part: Any) -> tuple[float, float]:
        together.wait()
        started = time.perf_counter()
        kernel(part)
        return started, time.perf_counter()

    times = list(pool.map(work, parts))
    taken = max(end for _, end in times) - min(start for start, _ in times)
    return (size if size is not None else sum(part.nbytes for part in parts)) / taken / 1e9


def _cached_rate(kernel: Kernel) -> float:
    """Decimal GB/s of one core over a piece in its cache, the best of several tries."""
    piece = np.arange(_CACHED_BYTES // 8, dtype=np.int64)
    rounds = 200
    best = 0.0
    for _ in range(10):
        started = time.perf_counter()
        for _ in range(rounds):
            kernel(piece)
        best = max(best, rounds * piece.nbytes / (time.perf_counter() - started) / 1e9)
    return best


# --- caches -----------------------------------------------------------------------------------------------------------


def cache_bytes(root: Path = Path("/")) -> int | None:
    """Bytes of all caches of the outermost level together; None where the system does not say.

    `root` is where /sys is found (Linux).
    """
    # Caches are listed once per core that shares them.
    cpus = root / "sys/devices/system/cpu"
    found: dict[tuple[int, str], int] = {}
    for index in sorted(cpus.glob("cpu[0-9]*/cache/index[0-9]*")):
        level, size, shared = (read_text(index / name) for name in ("level", "size", "shared_cpu_list"))
        known = re.fullmatch(r"(\d{1,9})([KMG]?)", size or "")
        if known and level and level.isdecimal():
            unit = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[known[2]]
            found[int(level[:3]), shared or str(index)] = int(known[1]) * unit
    outermost = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == outermost) or None
