"""All GPUs of the machine, of every vendor, under one numbering: NVML's first, then AMD's, then the rest.

NVIDIA's are asked through the driver's own management library (NVML). Linux lists all in /sys/class/drm: AMD's with
their sensors, others by name only. macOS (`system_profiler`) and Windows (WMI) give no sensors to a plain user.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from specmeter.host import read_int, read_text, run_command, scaled
from specmeter.record import Gpu, GpuSample


def read_gpus(root: Path = Path("/")) -> tuple[Gpu, ...]:
    """What GPUs there are; one that nothing describes is left out, not guessed."""
    if sys.platform == "darwin":
        return read_macos_gpus()
    nvml = Nvml()
    try:
        known = nvml.gpus()
    finally:
        nvml.close()
    if sys.platform == "win32":
        others = [gpu for gpu in read_windows_gpus() if gpu.vendor != "NVIDIA" or not known]
        return known + tuple(gpu.model_copy(update={"index": len(known) + at}) for at, gpu in enumerate(others))
    cards = [(device, vendor) for device, vendor in find_cards(root).items() if vendor != "NVIDIA" or not known]
    # AMD's before the rest, so that their numbers are those of `GpuSensors`.
    cards.sort(key=lambda card: card[1] != "AMD")
    return known + tuple(read_card(len(known) + at, device, vendor, root) for at, (device, vendor) in enumerate(cards))


class GpuSensors:
    """Open sensors of all GPUs that have any; to be closed."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._nvml = Nvml()
        self._amd = AmdCards(len(self._nvml), root)

    def samples(self) -> tuple[GpuSample, ...]:
        """State of each GPU now, by the indices of `read_gpus`."""
        return self._nvml.samples() + self._amd.samples()

    def close(self) -> None:
        """Let the sensors go; safe to call twice."""
        self._nvml.close()


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


def read_card(index: int, device: Path, vendor: str, root: Path = Path("/")) -> Gpu:
    """What the card is."""
    hwmon = _hwmon(device)
    model = read_text(device / "product_name") or f"{vendor} GPU (PCI device {read_text(device / 'device') or '?'})"
    return Gpu(
        index=index,
        name=model,
        vendor=vendor,
        memory_bytes=read_int(device / "mem_info_vram_total"),
        driver=_driver(device, root),
        runtime=_rocm(root) if vendor == "AMD" else None,
        power_limit_w=scaled(read_int(hwmon / "power1_cap"), 1e6) if hwmon else None,
    )


def sample_card(index: int, device: Path, hwmon: Path | None) -> GpuSample:
    """What an AMD card does, now. amdgpu gives micro-watts, hertz and thousandths of a degree."""
    busy = read_int(device / "gpu_busy_percent")
    used = read_int(device / "mem_info_vram_used")
    if hwmon is None:
        return GpuSample(index=index, utilization_percent=busy, memory_used_bytes=used)
    return GpuSample(
        index=index,
        utilization_percent=busy,
        memory_used_bytes=used,
        sm_mhz=scaled(read_int(hwmon / "freq1_input"), 1e6),
        memory_mhz=scaled(read_int(hwmon / "freq2_input"), 1e6),
        power_w=power_w(hwmon),
        celsius=scaled(read_int(hwmon / "temp1_input"), 1e3),
    )


class AmdCards:
    """The AMD cards of this machine, found once and sampled often; indices start at `first`."""

    def __init__(self, first: int, root: Path = Path("/")) -> None:
        devices = [device for device, vendor in find_cards(root).items() if vendor == "AMD"]
        self._cards = [(first + place, device, _hwmon(device)) for place, device in enumerate(devices)]

    def samples(self) -> tuple[GpuSample, ...]:
        """What the cards do, now."""
        return tuple(sample_card(index, device, hwmon) for index, device, hwmon in self._cards)

    def sensors(self) -> dict[int, Path]:
        """Index -> folder with the sensors of each card that has any."""
        return {index: hwmon for index, _, hwmon in self._cards if hwmon is not None}


def power_w(hwmon: Path) -> float | None:
    """Power of an AMD card, now."""
    power = read_int(hwmon / "power1_average")
    return scaled(read_int(hwmon / "power1_input") if power is None else power, 1e6)


def _hwmon(device: Path) -> Path | None:
    return min((device / "hwmon").glob("hwmon*"), default=None)


def _driver(device: Path, root: Path) -> str | None:
    try:
        module = (device / "driver").resolve(strict=True).name
    except OSError:
        return None
    version = read_text(root / "sys/module" / module / "version")
    return f"{module} {version}" if version else module


def _rocm(root: Path) -> str | None:
    version = read_text(root / "opt/rocm/.info/version")
    return f"ROCm {version}" if version else None


_WMI = (
    "Get-CimInstance Win32_VideoController"
    " | Select-Object Name,AdapterCompatibility,AdapterRAM,DriverVersion | ConvertTo-Json"
)
_UNITS: Mapping[str, int] = {"MB": 2**20, "GB": 2**30}
# Not GPUs: the basic driver, remote desktop, virtual screens.
_NO_GPU = re.compile(r"basic (display|render)|remote display|mirror|virtual|hyper-v|vmware|qxl|indirect", re.IGNORECASE)


def read_macos_gpus() -> tuple[Gpu, ...]:
    """GPUs of this Mac."""
    return parse_system_profiler(run_command(["system_profiler", "SPDisplaysDataType", "-json"], timeout_s=20) or "")


def read_windows_gpus() -> tuple[Gpu, ...]:
    """GPUs of this Windows machine, NVIDIA's included (NVML knows those better)."""
    script = f"[Console]::OutputEncoding = [Text.Encoding]::UTF8; {_WMI}"
    argv = ["powershell", "-NoProfile", "-NonInteractive", "-Command", script]
    return parse_video_controllers(run_command(argv, timeout_s=20) or "")


def parse_system_profiler(text: str) -> tuple[Gpu, ...]:
    """GPUs from the JSON of `system_profiler SPDisplaysDataType -json`.

    Apple silicon shares the machine's memory, so `memory_bytes` is None there.
    """
    entries = _objects(_objects_of(_json(text), "SPDisplaysDataType"))
    return tuple(_mac_gpu(index, entry) for index, entry in enumerate(entries))


def parse_video_controllers(text: str) -> tuple[Gpu, ...]:
    """GPUs from `Win32_VideoController` as JSON: an object for one, an array for several."""
    found = _json(text)
    entries = [
        entry
        for entry in _objects(found if isinstance(found, list) else [found])
        if entry.get("Name") and not _NO_GPU.search(str(entry["Name"]))
    ]
    return tuple(_windows_gpu(index, entry) for index, entry in enumerate(entries))


def _mac_gpu(index: int, entry: Mapping[str, Any]) -> Gpu:
    name = str(entry.get("sppci_model") or entry.get("_name") or "GPU")
    cores = entry.get("sppci_cores")
    metal = str(entry.get("spdisplays_mtlgpufamilysupport") or entry.get("spdisplays_metal") or "")
    version = re.search(r"metal(\d+)", metal)
    size = re.fullmatch(r"(\d+) (MB|GB)", str(entry.get("spdisplays_vram", "")))
    return Gpu(
        index=index,
        name=f"{name} ({cores} cores)" if cores else name,
        vendor=_vendor(f"{name} {entry.get('spdisplays_vendor', '')}"),
        memory_bytes=int(size[1]) * _UNITS[size[2]] if size else None,
        runtime=f"Metal {version[1]}" if version else ("Metal" if "supported" in metal else None),
    )


def _windows_gpu(index: int, entry: Mapping[str, Any]) -> Gpu:
    name = str(entry["Name"])
    ram = entry.get("AdapterRAM")
    # The field has 32 bits: from 4 GiB on it says anything.
    known = isinstance(ram, int) and 0 < ram < 4 * 2**30 - 2**20
    driver = entry.get("DriverVersion")
    return Gpu(
        index=index,
        name=name,
        vendor=_vendor(f"{name} {entry.get('AdapterCompatibility', '')}"),
        memory_bytes=ram if known else None,
        driver=str(driver) if driver else None,
    )


def _vendor(text: str) -> str:
    lowered = text.lower()
    for word, vendor in (("nvidia", "NVIDIA"), ("amd", "AMD"), ("radeon", "AMD"), ("advanced micro", "AMD")):
        if word in lowered:
            return vendor
    return next((vendor for vendor in ("Apple", "Intel", "Qualcomm") if vendor.lower() in lowered), "unknown")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _objects_of(value: Any, key: str) -> Any:
    return cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", entry) for entry in cast("list[Any]", value) if isinstance(entry, dict)]
