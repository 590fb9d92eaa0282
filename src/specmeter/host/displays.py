"""GPUs as macOS (`system_profiler`) and Windows (WMI) describe them; neither gives sensors to a plain user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from specmeter.host.command import run_command
from specmeter.record import Gpu

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
