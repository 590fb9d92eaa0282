"""Reads what the machine is: processor, system, power source and container, all of it together as a `Host`.

Instruction sets of the processor carry llama.cpp's own names, so that they compare with what an engine says it was
built for."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import psutil

from specmeter import __version__
from specmeter.host.ask import read_text, run_command
from specmeter.host.gpus import read_gpus
from specmeter.host.limits import find_cgroup, memory_available_bytes, usable_cores
from specmeter.host.programs import read_busy_processes, read_load_average
from specmeter.record import Host


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
