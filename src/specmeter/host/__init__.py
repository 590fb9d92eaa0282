"""The machine: what it is, what this process may use of it, and what else is going on there.

Tried on Linux only. What macOS and Windows print is parsed by functions that are tested on recorded text.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from specmeter import __version__
from specmeter.host.cgroup import find_cgroup
from specmeter.host.cpu import read_cpu, usable_cores
from specmeter.host.gpu import read_gpus
from specmeter.host.load import read_busy_processes, read_load_average
from specmeter.host.power import read_governor, read_power_source
from specmeter.host.virtual import read_container
from specmeter.record import Host


def read_host(*, load_sample_s: float = 0.5, root: Path = Path("/")) -> Host:
    """The machine as it is now; takes a little more than `load_sample_s` seconds. What cannot be told is None.

    `root` is where /proc and /sys are found.
    """
    import psutil

    system, system_version = _system()
    cpu, flags = read_cpu(root)
    cgroup = find_cgroup(root)
    container = read_container(root)
    memory = psutil.virtual_memory()
    limit = cgroup.memory_limit_bytes()
    return Host(
        hostname_sha256=hashlib.sha256(platform.node().encode()).hexdigest(),
        os=system,
        os_version=system_version,
        kernel=platform.version() if sys.platform == "win32" else platform.release(),
        machine=platform.machine(),
        python=platform.python_version(),
        specmeter=__version__,
        cpu=cpu,
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(cgroup.cores()),
        cpu_flags=flags,
        governor=read_governor(root),
        power_source=read_power_source(virtual=container is not None, root=root),
        memory_bytes=memory.total if limit is None else min(memory.total, limit),
        memory_available_bytes=memory_available_bytes(root),
        swap_used_bytes=_swap_used_bytes(),
        gpus=read_gpus(root),
        container=container,
        load_average=read_load_average(),
        busy_processes=read_busy_processes(load_sample_s),
    )


def memory_available_bytes(root: Path = Path("/")) -> int:
    """Memory that a new process could take now without swapping, within the limits of a container."""
    import psutil

    available = psutil.virtual_memory().available
    left = find_cgroup(root).memory_available_bytes()
    return available if left is None else min(available, left)


def _system() -> tuple[str, str]:
    """Name and version of the operating system."""
    if sys.platform == "darwin":
        return "macOS", platform.mac_ver()[0]
    if sys.platform == "win32":
        return "Windows", f"{platform.release()} ({platform.version()})"
    try:
        return platform.system(), platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system(), "unknown"


def _swap_used_bytes() -> int | None:
    import psutil

    try:
        return psutil.swap_memory().used
    except (psutil.Error, OSError, RuntimeError):
        return None
