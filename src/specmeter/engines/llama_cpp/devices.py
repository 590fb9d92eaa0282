"""What llama.cpp calls the things that it computes on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Devices that compute on the processor, or elsewhere.
_NO_GPU = ("CPU", "BLAS", "ACCEL", "RPC")


@dataclass(frozen=True)
class Device:
    """Something an engine can compute on."""

    name: str
    """The engine's name for it: `CPU`, `CUDA0`, `Vulkan1`."""
    description: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a graphics processor of this machine."""
        return not self.name.startswith(_NO_GPU)


def parse_devices(text: str) -> tuple[Device, ...]:
    """Devices from `llama-server --list-devices`, which leaves the processor out."""
    _, _, listed = text.partition("Available devices:")
    entry = r"^\s+(\w+(?:\[[^\]]*\])?): (.* \(\d+ MiB, \d+ MiB free\))\s*$"
    return tuple(Device(name, description) for name, description in re.findall(entry, listed, re.MULTILINE))


def any_remote(names: Iterable[str]) -> bool:
    """Whether any of these names of devices or buffers (`RPC0`, `RPC0[10.0.0.2:50052]`) is one on another machine."""
    return any(name.startswith("RPC") for name in names)
