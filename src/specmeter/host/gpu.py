"""All GPUs of the machine, of every vendor, under one numbering: NVML's first, then AMD's, then the rest."""

from __future__ import annotations

import sys
from pathlib import Path

from specmeter.host.displays import read_macos_gpus, read_windows_gpus
from specmeter.host.drm import AmdCards, find_cards, read_card
from specmeter.host.nvml import Nvml
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
