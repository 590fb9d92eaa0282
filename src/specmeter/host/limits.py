"""What this process may use of the machine: cores, memory and open files, within what a container leaves.

A container's limits are the CPU quota and memory limit of Linux control groups, versions 1 and 2: a limit may stand in
any folder from the process's own group up to the mount, and the smallest one rules."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from specmeter.host.ask import read_int, read_text


def memory_available_bytes(root: Path = Path("/")) -> int:
    """Memory that a new process could take now without swapping, within the limits of a container."""
    available = psutil.virtual_memory().available
    left = find_cgroup(root).memory_available_bytes()
    return available if left is None else min(available, left)


# Version 1 writes "no limit" as the largest multiple of a page that fits into 63 bits.
_NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True)
class Cgroup:
    """Folders that may limit this process, innermost first; none outside Linux."""

    cpu: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()

    def cores(self) -> float | None:
        """CPU quota in cores, or None without one."""
        return min((quota for folder in self.cpu if (quota := _quota(folder)) is not None), default=None)

    def memory_limit_bytes(self) -> int | None:
        """Memory limit, or None without one."""
        return min((limit for folder in self.memory if (limit := _limit(folder)) is not None), default=None)

    def memory_available_bytes(self) -> int | None:
        """Memory left below the limits, page cache that can be dropped counted as free; None without a limit."""
        return min((left for folder in self.memory if (left := _left(folder)) is not None), default=None)


def find_cgroup(root: Path = Path("/")) -> Cgroup:
    """The folders of this process, from /proc/self/mounts and /proc/self/cgroup below `root`."""
    mounts = read_text(root / "proc/self/mounts") or ""
    groups = read_text(root / "proc/self/cgroup") or ""
    found = Cgroup(cpu=_folders(root, mounts, groups, "cpu"), memory=_folders(root, mounts, groups, "memory"))
    return Cgroup(
        cpu=tuple(folder for folder in found.cpu if _quota(folder) is not None),
        memory=tuple(folder for folder in found.memory if _limit(folder) is not None),
    )


def _folders(root: Path, mounts: str, groups: str, controller: str) -> tuple[Path, ...]:
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            paths[name] = path
    folders: list[Path] = []
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4 or not (
            fields[2] == "cgroup2" or (fields[2] == "cgroup" and controller in fields[3].split(","))
        ):
            continue
        mount = root / fields[1].replace("\\040", " ").lstrip("/")
        # In a container the path is often that of the host and does not exist here; the mount itself always does.
        own = paths.get("" if fields[2] == "cgroup2" else controller, "/").strip("/")
        inner = mount / own if ".." not in own.split("/") else mount
        while inner != mount:
            folders.append(inner)
            inner = inner.parent
        folders.append(mount)
    return tuple(folders)


def _quota(folder: Path) -> float | None:
    text = read_text(folder / "cpu.max")
    if text is None:
        quota, period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")
    else:
        words = text.split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        quota, period = int(words[0]), int(words[1])
    return quota / period if quota and period and quota > 0 else None


def _limit(folder: Path) -> int | None:
    limits = (read_int(folder / "memory.max"), read_int(folder / "memory.limit_in_bytes"))
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)


def _left(folder: Path) -> int | None:
    limit = _limit(folder)
    used = read_int(folder / "memory.current")
    if used is None:
        used = read_int(folder / "memory.usage_in_bytes")
    if limit is None or used is None:
        return limit
    droppable = 0
    for line in (read_text(folder / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key in ("inactive_file", "total_inactive_file") and value.isdigit():
            droppable = max(droppable, int(value))
    return max(0, limit - max(0, used - droppable))


def usable_cores(root: Path = Path("/")) -> float:
    """Cores this process may use: its affinity, and a container's quota where that is smaller."""
    allowed = 0
    with suppress(psutil.Error, AttributeError, OSError):  # macOS knows no affinity
        allowed = len(psutil.Process().cpu_affinity() or ())
    quota = find_cgroup(root).cores()
    return min(float(allowed or os.cpu_count() or 1), quota or math.inf)


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to `wanted` where it is lower and the hard one allows it; the number that is allowed now, at
    least `wanted` where there is no such limit. Processes that are started later inherit it."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    except (ValueError, OSError):
        return soft
    return max(soft, most)
