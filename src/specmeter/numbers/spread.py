"""How much devices differ that measured the same.

Each device has one value: the mean over its blocks of the logarithm of a rate (plain decoding) or of a speedup. The
standard deviation of these values is the spread between devices, noise of blocks included; `noise` is what that noise
alone would make it. Devices are shown to differ where an F test says so: F = (spread / noise)^2, with n - 1 and
blocks - n degrees of freedom. Devices that are closer to each other than their noise are so by luck: then neither the
spread nor the mean has an interval. A device is unlike its fellows where its value lies outside of what they let
expect of one more:

    t = (x - mean of the others) / (s * sqrt(1 + 1 / (n - 1))),  n - 2 degrees of freedom

s is the standard deviation of the others, or the noise where that is larger; the level is shared by all devices and
measures (Bonferroni), that of F as well. Of three devices none can be told to be the odd one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from specmeter.numbers.estimates import bare, deviation, student_geometric
from specmeter.numbers.special import f_above
from specmeter.numbers.stats import t_critical
from specmeter.record import Estimate

LEAST = 4
"""Devices of which one can be told to be unlike the others."""
_LEVEL = 0.95
_ALIKE = 1e-12


class Spread(NamedTuple):
    """What devices say of one measure."""

    values: Mapping[str, float]
    """Device -> its own value."""
    mean: Estimate
    """Over devices: it holds for this kind of machine."""
    spread: Estimate
    """Standard deviation between devices, in percent."""
    noise: float | None
    """What it would be if devices were alike, in percent; None where no device has two blocks."""
    differ: bool
    """Whether that is too little to explain it."""
    unlike: Mapping[str, float]
    """Device unlike its fellows -> its value over the mean of theirs."""


def spread_between(blocks: Mapping[str, Sequence[float]], unit: str, tests: int) -> Spread:
    """Of two devices and more, from the logarithms of their blocks; `tests` share the level."""
    logs = {device: float(np.mean(them)) for device, them in blocks.items()}
    n, sd = len(logs), float(np.std([*logs.values()], ddof=1))
    free = sum(len(them) - 1 for them in blocks.values())
    squares = sum(float(np.var(them)) * len(them) for them in blocks.values())
    noise = math.sqrt(squares / free * float(np.mean([1 / len(them) for them in blocks.values()]))) if free else 0.0
    if sd < max(noise, _ALIKE):
        why = "no interval: devices are closer to each other than the noise of their blocks"
        mean = bare(math.exp(float(np.mean([*logs.values()]))), unit, why, n=n, of="devices")
        spread = bare(100 * sd, "%", why, n=n)
    else:
        how = "Student t over devices"
        mean = student_geometric([*logs.values()], unit, how, alone="one value", of="devices")
        spread = deviation(100 * sd, n, "%")
    by_chance = f_above(n - 1, free, (sd / max(noise, _ALIKE)) ** 2) if free else 1.0
    return Spread(
        {device: math.exp(value) for device, value in logs.items()},
        mean,
        spread,
        100 * noise if free else None,
        sd > _ALIKE and by_chance < (1 - _LEVEL) / tests,
        unlike(logs, noise, tests),
    )


def unlike(logs: Mapping[str, float], noise: float, tests: int) -> dict[str, float]:
    """Devices unlike their fellows, each with its ratio to them."""
    found: dict[str, float] = {}
    n = len(logs)
    for device, value in logs.items() if n >= LEAST else ():
        others = np.array([it for name, it in logs.items() if name != device])
        s = max(float(np.std(others, ddof=1)), noise)
        gap = value - float(others.mean())
        if s > _ALIKE and abs(gap) / (s * math.sqrt(1 + 1 / (n - 1))) > t_critical(n - 2, 1 - (1 - _LEVEL) / tests):
            found[device] = math.exp(gap)
    return found
