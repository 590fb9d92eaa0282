"""Energy counters of x86 processors as Linux shows them: RAPL, "running average power limit".

A package has a counter of its own (`package-0`), and on some machines its memory has another that is not part of it
(`dram`). Cores and integrated graphics lie within the package, and `psys`, the whole platform, holds the packages: both
are left out, or joules would be counted twice. Counters count microjoules, are renewed about once in a millisecond, and
begin again at zero beyond `max_energy_range_uj`.

Since Linux 5.10 they are readable by root alone: seen closely enough, they tell what others compute
(CVE-2020-8694). Sources: Documentation/power/powercap/powercap.rst of the Linux kernel; Khan et al. 2018, "RAPL in
action", doi:10.1145/3177754.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from specmeter.host.kernel_files import read_int, read_text

_FOLDER = "sys/class/powercap"


class Zone(NamedTuple):
    """One counter that can be read."""

    name: str
    """`package-0`, `dram-0`."""
    file: Path
    range_uj: int | None
    """Where it begins again; None where the system does not say."""

    def read_uj(self) -> int | None:
        """The counter now; None where it cannot be read."""
        return read_int(self.file)


def find_zones(root: Path = Path("/")) -> tuple[tuple[Zone, ...], tuple[str, ...]]:
    """Counters of packages and of memory that are no part of them; and why others cannot be read, with the fix."""
    zones: list[Zone] = []
    closed: list[str] = []
    for folder in sorted((root / _FOLDER).glob("intel-rapl:*"), key=_place):
        # `intel-rapl-mmio` shows the same packages a second time.
        place = re.fullmatch(r"intel-rapl:(\d+)(?::\d+)?", folder.name)
        name = _name(read_text(folder / "name") or "", place[1]) if place else None
        if name is None:
            continue
        file = folder / "energy_uj"
        if read_int(file) is None:
            closed.append(f"/{file.relative_to(root).as_posix()}")
        else:
            zones.append(Zone(name, file, read_int(folder / "max_energy_range_uj")))
    if not closed:
        return tuple(zones), ()
    what = "the processor's energy counter" + ("s are" if len(closed) > 1 else " is")
    return tuple(zones), (f"{what} readable by root alone: sudo chmod a+r {' '.join(closed)} (until the next boot)",)


def _name(name: str, package: str) -> str | None:
    """What is shown for a zone; None for one that lies within another."""
    if re.fullmatch(r"package-[\w-]+", name):
        return name
    return f"dram-{package}" if name == "dram" else None


def _place(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", folder.name)))
