"""Clock and temperature of the processor, read from the few files that hold them.

Linux only: Apple and Windows show a plain user the nominal clock, which says nothing, and no temperature.
"""

from __future__ import annotations

import re
from pathlib import Path

from specmeter.host.kernel_files import read_int, read_text, scaled

# Drivers of processor temperatures, and the label of the value that stands for the whole package.
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal")
_PACKAGE_LABELS = ("Package id 0", "Tctl", "Tdie")
# Each read of a clock interrupts that core, so a large machine is only sampled.
_MOST_CLOCKS = 8


class CpuSensors:
    """Files with clocks and temperature, found once and read often."""

    def __init__(self, root: Path = Path("/")) -> None:
        cpus = root / "sys/devices/system/cpu"
        clocks = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=_number)
        self._clocks = clocks[:: max(1, -(-len(clocks) // _MOST_CLOCKS))]
        self._temperature = _find_temperature(root)

    def mhz(self) -> float | None:
        """Clock of the fastest of at most eight cores, evenly spread: the busy ones are the fast ones."""
        return scaled(max((khz for path in self._clocks if (khz := read_int(path)) is not None), default=None), 1e3)

    def celsius(self) -> float | None:
        """Temperature of the processor's package."""
        return scaled(read_int(self._temperature), 1e3) if self._temperature else None


def _number(path: Path) -> int:
    found = re.search(r"cpu(\d+)/cpufreq", path.as_posix())
    return int(found[1]) if found else 0


def _find_temperature(root: Path) -> Path | None:
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if read_text(folder / "name") not in _CPU_HWMON:
            continue
        inputs = sorted(folder.glob("temp*_input"))
        labels = {path: read_text(path.with_name(path.name.replace("_input", "_label"))) for path in inputs}
        package = [path for path in inputs if labels[path] in _PACKAGE_LABELS]
        if inputs:
            return (package or inputs)[0]
    return None
