"""All GPUs of the machine under one numbering: NVML's first, then those that Linux lists besides.

NVIDIA's are asked through the driver's own management library (NVML), which also has their sensors. Others are known by
name, and on Linux by memory, which tells whether an engine's GPU layers are computed on one and whether models fit."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from specmeter.host.ask import read_int, read_text, run_command, scaled
from specmeter.record import Gpu, GpuSample


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
