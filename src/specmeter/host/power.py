"""Where the power comes from and how the clock is governed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from specmeter.host.command import run_command
from specmeter.host.kernel_files import read_text

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
    import psutil

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
