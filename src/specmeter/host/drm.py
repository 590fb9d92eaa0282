"""GPUs as Linux lists them in /sys/class/drm: AMD's with their sensors, others by name only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from specmeter.host.kernel_files import read_int, read_text, scaled
from specmeter.record import Gpu, GpuSample

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
