"""A catalogue of devices with their peak memory bandwidth, and the way from a spelled name to an entry.

Names are compared without case, spaces, punctuation, vendor words and memory sizes ("NVIDIA GeForce RTX 3090 24GB" is
RTX 3090, "M2Ultra_192GB" is M2 Ultra); what then remains must be a name or an alias, whole. "RTX 3090 Ti" is never
RTX 3090, and a name that fits several entries ("A100", "M3 Max") gives all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from specmeter.errors import UsageError

MAX_NAME = 200
"""Characters of a device's name; a longer one cannot be a name."""

_WORDS = frozenset({"nvidia", "geforce", "apple", "amd", "radeon", "instinct"})
_FILLERS = frozenset({"gpu", "graphics", "unified", "memory", "vram", "ram", "chip", "tm", "r"})
_SIZE = re.compile(r"\d{1,4}gi?b")
_GLUED_SIZE = re.compile(r"(?<=[a-z])\d{1,4}gi?b$")

Positive = Annotated[float, Field(gt=0)]


class DeviceEntry(BaseModel):
    """One entry of `devices.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    aliases: tuple[str, ...] = ()
    bandwidth_gb_s: Positive
    """Peak, as the maker states it; decimal GB/s."""
    upper_gb_s: Positive | None = None
    """Bus width x transfer rate, where the maker rounds down."""
    fp16_tflops: Positive | None = None
    memory_gb: tuple[int, ...] = ()
    source: str
    verified: bool = True
    """False where the figure was not found in a source of its own."""

    @property
    def peak_bytes_per_s(self) -> float:
        """What no traffic can exceed."""
        return (self.upper_gb_s or self.bandwidth_gb_s) * 1e9


@dataclass(frozen=True)
class Peak:
    """Peak bandwidth of what a name may mean: exact where `low == high`."""

    low: float
    """Bytes per second of the slowest device that the name fits."""
    high: float
    """Bytes per second of the fastest one."""
    names: tuple[str, ...]
    verified: bool


@cache
def devices() -> tuple[DeviceEntry, ...]:
    """All entries, in the order of the file."""
    text = (resources.files("specmeter.theory.catalogue") / "devices.yaml").read_text(encoding="utf-8")
    return tuple(DeviceEntry.model_validate(entry) for entry in yaml.safe_load(text)["devices"])


def find(name: str) -> tuple[DeviceEntry, ...]:
    """The entries that a name fits: one, several where it is ambiguous, none where it is unknown."""
    if len(name) > MAX_NAME:
        return ()
    exact, plain = _key(name, sizes=True), _key(name, sizes=False)
    index = _index()
    return index.get(exact) or index.get(plain) or ()


def named(name: str) -> tuple[DeviceEntry, ...]:
    """The entries that a name fits, at least one; raises `UsageError` that names the nearest ones."""
    found = find(name)
    if not found:
        known = {key: entries[0].name for key, entries in _index().items()}
        near = get_close_matches(_key(name[:MAX_NAME], sizes=True), known, n=3, cutoff=0.5)
        names = [known[key] for key in near] or [device.name for device in devices()]
        raise UsageError(
            f"device {name[:MAX_NAME]!r} is not in the catalogue", fix=f"use one of {', '.join(dict.fromkeys(names))}"
        )
    return found


def peak(name: str) -> Peak | None:
    """Peak bandwidth for a name, or for a list of names (`RTX 3090, RTX 3090`) together; None where one is unknown."""
    parts = [find(part) for part in name.split(",")] if name.count(",") < 64 else [()]
    if not all(parts):
        return None
    speeds = [[device.peak_bytes_per_s for device in part] for part in parts]
    return Peak(
        sum(map(min, speeds)),
        sum(map(max, speeds)),
        tuple(device.name for part in parts for device in part),
        all(device.verified for part in parts for device in part),
    )


@cache
def _index() -> dict[str, tuple[DeviceEntry, ...]]:
    found: dict[str, list[DeviceEntry]] = {}
    for device in devices():
        for key in dict.fromkeys(_key(name, sizes=True) for name in (device.name, *device.aliases)):
            found.setdefault(key, []).append(device)
    return {key: tuple(entries) for key, entries in found.items()}


def _key(name: str, *, sizes: bool) -> str:
    """What is left of a name to compare: letters and digits, without words that say nothing."""
    plain = re.sub(r"(?<=\d)\s+(?=gi?b\b)", "", name.lower().replace("max+", "max"))
    words = re.findall(r"[a-z0-9]+", plain)
    words = [word for word in words if word not in _WORDS and word not in _FILLERS]
    if not sizes:
        words = [word for word in words if not _SIZE.fullmatch(word)]
    key = "".join(words)
    return key if sizes else _GLUED_SIZE.sub("", key)
