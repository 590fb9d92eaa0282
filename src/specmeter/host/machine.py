"""Reads what the machine is, what this process may use of it, what GPUs it has, and what else runs on it.

Instruction sets of the processor carry llama.cpp's own names, so that they compare with what an engine says it was
built for. What a container leaves are the CPU quota and memory limit of Linux control groups, versions 1 and 2: a limit
may stand in any folder from the process's own group up to the mount, and the smallest one rules.

GPUs have one numbering: NVML's first, then those that Linux lists besides. NVIDIA's driver library (NVML) also has
their sensors. Others are known by name, and on Linux by memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import psutil

from specmeter import __version__
from specmeter.host import read_int, read_text, run_command, scaled
from specmeter.record import Gpu, GpuSample, Host


def read_gpus(root: Path = Path("/")) -> tuple[Gpu, ...]:
    """What GPUs there are; one that nothing describes is left out, not guessed."""
    if sys.platform == "darwin":
        return parse_system_profiler(
            run_command(["system_profiler", "SPDisplaysDataType", "-json"], timeout_s=20) or ""
        )
    nvml = Nvml()
    known = nvml.gpus()
    nvml.close()
    cards = [(device, vendor) for device, vendor in find_cards(root).items() if vendor != "NVIDIA" or not known]
    return known + tuple(_card(len(known) + at, device, vendor) for at, (device, vendor) in enumerate(cards))


# Bits of nvmlClocksEventReasons. Idleness (0x1) lowers clocks too, but harms no measurement.
_REASONS: Mapping[int, str] = {
    0x002: "application_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
_CLOCK_SM = 1
_CLOCK_MEMORY = 2
_TEMPERATURE_GPU = 0


class Nvml:
    """An open connection to NVML; it has no GPUs where there is no driver. Whatever a GPU cannot tell is None."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] = []
        try:
            library = import_module("pynvml")
            library.nvmlInit()
        except Exception:
            # Whatever the reason (no module, no library, no driver, wrong version): nothing here can be asked.
            return
        self._library = library
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                self._handles.append(handle)

    def __len__(self) -> int:
        return len(self._handles)

    def close(self) -> None:
        """Let the library go; safe to call twice."""
        self._ask("nvmlShutdown")
        self._library, self._handles = None, []

    def gpus(self) -> tuple[Gpu, ...]:
        """What the GPUs are."""
        if not self._handles:
            return ()
        driver = _text(self._ask("nvmlSystemGetDriverVersion"))
        runtime = cuda_version(self._ask("nvmlSystemGetCudaDriverVersion_v2"))
        return tuple(self._gpu(index, handle, driver, runtime) for index, handle in enumerate(self._handles))

    def samples(self) -> tuple[GpuSample, ...]:
        """What the GPUs do, now."""
        return tuple(self._sample(index, handle) for index, handle in enumerate(self._handles))

    def energy_mj(self, index: int) -> int | None:
        """Millijoules of a GPU since its driver was loaded; None before Volta, which has no such counter."""
        return self._ask("nvmlDeviceGetTotalEnergyConsumption", self._handles[index])

    def power_w(self, index: int) -> float | None:
        """Power of a GPU, now."""
        return scaled(self._ask("nvmlDeviceGetPowerUsage", self._handles[index]), 1000)

    def _gpu(self, index: int, handle: Any, driver: str | None, runtime: str | None) -> Gpu:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        return Gpu(
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)) or "NVIDIA GPU",
            vendor="NVIDIA",
            memory_bytes=None if memory is None else int(memory.total),
            driver=driver,
            runtime=runtime,
            power_limit_w=scaled(limit_mw, 1000),
        )

    def _sample(self, index: int, handle: Any) -> GpuSample:
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            # Drivers before 535 know the older name only.
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return GpuSample(
            index=index,
            utilization_percent=None if use is None else float(use.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY),
            power_w=scaled(self._ask("nvmlDeviceGetPowerUsage", handle), 1000),
            celsius=self._ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU),
            throttle_reasons=throttle_names(reasons or 0),
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        if self._library is None:
            return None
        try:
            return getattr(self._library, function)(*arguments)
        except (AttributeError, self._library.NVMLError):
            return None


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the reasons in NVML's bit mask for clocks below their maximum, idleness left out."""
    return tuple(name for bit, name in _REASONS.items() if mask & bit)


def cuda_version(number: int | None) -> str | None:
    """`CUDA 12.8` from NVML's 12080."""
    return f"CUDA {number // 1000}.{number % 1000 // 10}" if number else None


def _text(value: Any) -> str | None:
    """Older bindings give bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


# PCI vendors that make GPUs one can compute on; a server's display chip and a VM's screen are none.
_VENDORS: Mapping[str, str] = {"0x1002": "AMD", "0x10de": "NVIDIA", "0x8086": "Intel"}


def find_cards(root: Path = Path("/")) -> dict[Path, str]:
    """Device folder of each card -> vendor, in the order of the cards' numbers."""
    found = (root / "sys/class/drm").glob("card*")
    cards = sorted((int(path.name[4:]), path) for path in found if re.fullmatch(r"card\d+", path.name))
    devices = {card / "device": _VENDORS.get(read_text(card / "device/vendor") or "") for _, card in cards}
    return {device: vendor for device, vendor in devices.items() if vendor}


def _card(index: int, device: Path, vendor: str) -> Gpu:
    model = read_text(device / "product_name") or f"{vendor} GPU (PCI device {read_text(device / 'device') or '?'})"
    driver = device / "driver"
    return Gpu(
        index=index,
        name=model,
        vendor=vendor,
        memory_bytes=read_int(device / "mem_info_vram_total"),
        driver=driver.resolve().name if driver.exists() else None,
    )


def parse_system_profiler(text: str) -> tuple[Gpu, ...]:
    """GPUs from the JSON of macOS's `system_profiler SPDisplaysDataType -json`.

    Apple's own share the machine's memory, so `memory_bytes` is None.
    """
    try:
        entries = json.loads(text)["SPDisplaysDataType"]
        names = [str(entry.get("sppci_model") or entry.get("_name") or "GPU") for entry in entries]
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()
    vendors = [next((it for it in ("AMD", "Intel", "NVIDIA") if it in name), "Apple") for name in names]
    return tuple(Gpu(index=at, name=name, vendor=vendors[at], runtime="Metal") for at, name in enumerate(names))


def read_host(*, load_sample_s: float = 0.5, ours: Collection[int] = (), root: Path = Path("/")) -> Host:
    """The machine as it is now; takes a little more than `load_sample_s` seconds. What cannot be told is None.

    `ours` are processes that are no other programs. `root` is where /proc and /sys are found.
    """
    system, system_version = _system()
    cpu, flags = read_cpu(root)
    container = read_container(root)
    memory = psutil.virtual_memory()
    limit = find_cgroup(root).memory_limit_bytes()
    swap_used_bytes = None
    with suppress(psutil.Error, OSError, RuntimeError):
        swap_used_bytes = psutil.swap_memory().used
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
        usable_cores=usable_cores(root),
        cpu_flags=flags,
        governor=read_governor(root),
        power_source=read_power_source(virtual=container is not None, root=root),
        memory_bytes=memory.total if limit is None else min(memory.total, limit),
        memory_available_bytes=memory_available_bytes(root),
        swap_used_bytes=swap_used_bytes,
        gpus=read_gpus(root),
        container=container,
        load_average=read_load_average(),
        busy_processes=read_busy_processes(load_sample_s, ours),
    )


def memory_available_bytes(root: Path = Path("/")) -> int:
    """Memory that a new process could take now without swapping, within the limits of a container."""
    available = psutil.virtual_memory().available
    left = find_cgroup(root).memory_available_bytes()
    return available if left is None else min(available, left)


def memory_free_bytes() -> int:
    """Memory that models could take now, that of GPUs included."""
    return memory_available_bytes() + sum(gpu.memory_bytes or 0 for gpu in read_gpus())


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


# llama.cpp's name -> the kernel's names, any of which proves it.
_FLAGS: Mapping[str, set[str]] = {
    "AVX": {"avx"},
    "AVX_VNNI": {"avx_vnni"},
    "AVX2": {"avx2"},
    "F16C": {"f16c"},
    "FMA": {"fma"},
    "BMI2": {"bmi2"},
    "AVX512": {"avx512f"},
    "AVX512_VBMI": {"avx512vbmi"},
    "AVX512_VNNI": {"avx512_vnni"},
    "AVX512_BF16": {"avx512_bf16"},
    "AMX_INT8": {"amx_int8"},
    "NEON": {"asimd", "neon"},
    "DOTPROD": {"asimddp"},
    "FP16_VA": {"asimdhp"},
    "MATMUL_INT8": {"i8mm"},
    "SVE": {"sve"},
    "SME": {"sme"},
}


def read_cpu(root: Path = Path("/")) -> tuple[str, tuple[str, ...]]:
    """Name of the processor and its instruction sets (Linux only); `root` is where /proc is found."""
    if sys.platform == "darwin":
        name, flags = (run_command(["sysctl", "-n", "machdep.cpu.brand_string"]) or "").strip(), ()
    else:
        name, flags = parse_cpuinfo(read_text(root / "proc/cpuinfo") or "")
    if not name and sys.platform == "linux":  # ARM kernels give numbers instead of a name; lscpu knows what they mean
        name = parse_lscpu_name(run_command(["lscpu"]) or "")
    return name or platform.processor() or platform.machine() or "unknown", flags


def parse_cpuinfo(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Name and instruction sets from Linux's /proc/cpuinfo (first processor)."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts.setdefault(key.strip(), value.strip())
    words = f"{facts.get('flags', '')} {facts.get('Features', '')}".split()
    return facts.get("model name"), tuple(flag for flag, names in _FLAGS.items() if not names.isdisjoint(words))


def parse_lscpu_name(text: str) -> str | None:
    """The `Model name` of lscpu's table."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Model name" and value.strip() not in ("", "-"):
            return value.strip()
    return None


def usable_cores(root: Path = Path("/")) -> float:
    """Cores this process may use: its affinity, and a container's quota where that is smaller."""
    allowed = 0
    with suppress(psutil.Error, AttributeError, OSError):  # macOS knows no affinity
        allowed = len(psutil.Process().cpu_affinity() or ())
    quota = find_cgroup(root).cores()
    return min(float(allowed or os.cpu_count() or 1), quota or math.inf)


# Words of the firmware's vendor and product -> the hypervisor.
_FIRMWARE: Mapping[str, str] = {
    "kvm": "kvm",
    "qemu": "qemu",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "parallels": "parallels",
    "xen": "xen",
    "amazon ec2": "amazon ec2",
    "google compute engine": "google compute engine",
    "virtual machine": "hyper-v",
    "bochs": "bochs",
}


def read_container(root: Path = Path("/")) -> str | None:
    """For example `docker on kvm`, `podman`, `wsl2`; None where the machine looks real, and outside Linux."""
    parts = [part for part in (_linux_container(root), _linux_machine(root)) if part]
    return " on ".join(parts) or None


def hypervisor_of(firmware: str) -> str | None:
    """The hypervisor that a vendor-and-product text gives away (`QEMU Standard PC`), or None."""
    lowered = firmware.lower()
    return next((name for word, name in _FIRMWARE.items() if word in lowered), None)


def _linux_container(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return read_text(root / "run/systemd/container")


def _linux_machine(root: Path) -> str | None:
    if "microsoft" in (read_text(root / "proc/sys/kernel/osrelease") or "").lower():
        return "wsl2"
    firmware = " ".join(
        text for name in ("sys_vendor", "product_name") if (text := read_text(root / "sys/class/dmi/id" / name))
    )
    named = hypervisor_of(firmware)
    # The processor says that there is a hypervisor, though not which one.
    hidden = "hypervisor" in (read_text(root / "proc/cpuinfo") or "").split()
    return named or ("virtual machine" if hidden else None)


PowerSource = Literal["mains", "battery", "unknown"]

# Schemes that every Windows has; names are translated, these numbers are not.
_WINDOWS_SCHEMES: Mapping[str, str] = {
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate performance",
}


def read_power_source(*, virtual: bool, root: Path = Path("/")) -> PowerSource:
    """Mains or battery, now. Without any battery in sight a real machine runs on mains; for a `virtual` one (container
    or VM) it is unknown."""
    seen = parse_power_supplies(root / "sys/class/power_supply") if sys.platform == "linux" else _ask_psutil()
    return seen or ("unknown" if virtual else "mains")


def parse_power_supplies(folder: Path) -> PowerSource | None:
    """The source from Linux's /sys/class/power_supply, None where that holds neither charger nor battery."""
    try:
        supplies = sorted(folder.iterdir())
    except OSError:
        return None
    states: list[PowerSource] = []
    for supply in supplies:
        # A wireless mouse has a battery too.
        if read_text(supply / "scope") == "Device":
            continue
        kind = read_text(supply / "type")
        if kind in ("Mains", "USB") and read_text(supply / "online") == "1":
            return "mains"
        if kind == "Battery" and read_text(supply / "present") != "0":
            states.append("battery" if read_text(supply / "status") == "Discharging" else "mains")
    if not states:
        return None
    return "battery" if "battery" in states else "mains"


def read_governor(root: Path = Path("/")) -> str | None:
    """Clock policy: the cpufreq governor (several joined by `+`), macOS's energy mode, Windows's power scheme."""
    if sys.platform == "darwin":
        return parse_pmset(run_command(["pmset", "-g"]) or "")
    if sys.platform == "win32":
        return parse_power_scheme(run_command(["powercfg", "/getactivescheme"]) or "")
    policies = (root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")
    governors = {text for path in policies if (text := read_text(path))}
    return "+".join(sorted(governors)) or None


def parse_pmset(text: str) -> str | None:
    """macOS's energy mode from `pmset -g`: `low power`, `high power` or `automatic`."""
    for key, names in (
        ("powermode", ("automatic", "low power", "high power")),
        ("lowpowermode", ("automatic", "low power")),
    ):
        found = re.search(rf"^\s*{key}\s+(\d)\s*$", text, re.MULTILINE)
        if found and int(found[1]) < len(names):
            return names[int(found[1])]
    return None


def parse_power_scheme(text: str) -> str | None:
    """Windows's power scheme from `powercfg /getactivescheme`, in English where it is one of the standard ones."""
    found = re.search(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*(?:\((.*)\))?", text, re.IGNORECASE)
    return (_WINDOWS_SCHEMES.get(found[1].lower()) or found[2]) if found else None


def _ask_psutil() -> PowerSource | None:
    try:
        battery = psutil.sensors_battery()
    except (psutil.Error, OSError, RuntimeError, AttributeError):
        return None
    if battery is None:
        return None
    # psutil answers None where the system cannot tell, whatever its stubs say.
    plugged = cast("bool | None", battery.power_plugged)
    if plugged is None:
        return None
    return "mains" if plugged else "battery"


# A share of one core below this is noise of any desktop.
_BUSY_SHARE = 0.1
_MOST_NAMES = 8


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
        return tuple(f"{name} ({share:.2f} cores)" for share, name in busiest[:_MOST_NAMES])


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
