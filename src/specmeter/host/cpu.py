"""The processor: its name and the instruction sets that decide how fast it multiplies.

Instruction sets carry llama.cpp's own names, so that they compare with what an engine says it was built for.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from specmeter.host.command import run_command
from specmeter.host.kernel_files import read_text

# llama.cpp's name -> the operating system's names, any of which proves it.
_LINUX_FLAGS: Mapping[str, tuple[str, ...]] = {
    "AVX": ("avx",),
    "AVX_VNNI": ("avx_vnni",),
    "AVX2": ("avx2",),
    "F16C": ("f16c",),
    "FMA": ("fma",),
    "BMI2": ("bmi2",),
    "AVX512": ("avx512f",),
    "AVX512_VBMI": ("avx512vbmi",),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX_INT8": ("amx_int8",),
    "NEON": ("asimd", "neon"),
    "DOTPROD": ("asimddp",),
    "FP16_VA": ("asimdhp",),
    "MATMUL_INT8": ("i8mm",),
    "SVE": ("sve",),
    "SME": ("sme",),
}
_MACOS_INTEL_FLAGS: Mapping[str, tuple[str, ...]] = {
    "AVX": ("AVX1.0",),
    "AVX2": ("AVX2",),
    "F16C": ("F16C",),
    "FMA": ("FMA",),
    "BMI2": ("BMI2",),
    "AVX512": ("AVX512F",),
    "AVX512_VBMI": ("AVX512VBMI",),
    "AVX512_VNNI": ("AVX512VNNI",),
}
_MACOS_ARM_FLAGS: Mapping[str, tuple[str, ...]] = {
    "NEON": ("hw.optional.AdvSIMD", "hw.optional.neon"),
    "DOTPROD": ("hw.optional.arm.FEAT_DotProd",),
    "FP16_VA": ("hw.optional.arm.FEAT_FP16",),
    "MATMUL_INT8": ("hw.optional.arm.FEAT_I8MM",),
    "SME": ("hw.optional.arm.FEAT_SME",),
}
# Numbers of IsProcessorFeaturePresent (winnt.h); Windows names no others of ours.
_WINDOWS_FEATURES: Mapping[str, int] = {
    "AVX": 39,
    "AVX2": 40,
    "AVX512": 41,
    "NEON": 19,
    "DOTPROD": 43,
    "SVE": 46,
}


def read_cpu(root: Path = Path("/")) -> tuple[str, tuple[str, ...]]:
    """Name of the processor and its instruction sets; `root` is where /proc is found (Linux)."""
    if sys.platform == "darwin":
        name, flags = parse_sysctl_cpu(run_command(["sysctl", "hw", "machdep.cpu"]) or "")
    elif sys.platform == "win32":
        name, flags = _read_windows()
    else:
        name, flags = parse_cpuinfo(read_text(root / "proc/cpuinfo") or "")
        # ARM kernels give numbers instead of a name; lscpu knows what they stand for.
        name = name or parse_lscpu_name(run_command(["lscpu"]) or "")
    return name or platform.processor() or platform.machine() or "unknown", flags


def parse_cpuinfo(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Name and instruction sets from Linux's /proc/cpuinfo (first processor)."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts.setdefault(key.strip(), value.strip())
    words = f"{facts.get('flags', '')} {facts.get('Features', '')}".split()
    return facts.get("model name"), _known(_LINUX_FLAGS, words)


def parse_lscpu_name(text: str) -> str | None:
    """The `Model name` of lscpu's table."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Model name" and value.strip() not in ("", "-"):
            return value.strip()
    return None


def parse_sysctl_cpu(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Name and instruction sets from `sysctl hw machdep.cpu` of macOS, Intel or Apple silicon."""
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    intel = f"{facts.get('machdep.cpu.features', '')} {facts.get('machdep.cpu.leaf7_features', '')}".split()
    present = [key for key, value in facts.items() if value == "1"]
    return facts.get("machdep.cpu.brand_string"), _known(_MACOS_INTEL_FLAGS, intel) + _known(_MACOS_ARM_FLAGS, present)


def usable_cores(quota: float | None) -> float:
    """Cores this process may use: its affinity, and the container's `quota` where that is smaller."""
    allowed = float(_affinity())
    return allowed if quota is None else min(allowed, quota)


def _affinity() -> int:
    import psutil

    if sys.platform != "darwin":
        try:
            return max(1, len(psutil.Process().cpu_affinity() or ()))
        except (psutil.Error, AttributeError, OSError):
            pass
    return os.cpu_count() or 1


def _known(names: Mapping[str, tuple[str, ...]], words: Iterable[str]) -> tuple[str, ...]:
    present = set(words)
    return tuple(name for name, spellings in names.items() if present.intersection(spellings))


def _read_windows() -> tuple[str | None, tuple[str, ...]]:
    if sys.platform != "win32":
        return None, ()
    import ctypes
    import winreg

    try:
        key = winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0")
        with key:
            name = str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        name = None
    present = ctypes.windll.kernel32.IsProcessorFeaturePresent
    return name, tuple(flag for flag, number in _WINDOWS_FEATURES.items() if present(number))
