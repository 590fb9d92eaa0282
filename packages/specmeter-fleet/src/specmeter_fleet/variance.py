"""How much devices differ that measured the same.

Each device has one value: the mean of the logarithm of a rate (decoding without speculation) or of a speedup over its
repetitions. These are invocations if a device has several, else blocks. The standard deviation of these values is the
spread between devices, noise included; `noise` is what the repetitions of each device alone would make it. Devices are
shown to differ if an F test says so: F = (spread / noise)^2, with n - 1 and repetitions - n degrees of freedom. The
interval of the mean is Student's over devices, from the noise if devices are closer to each other than that. A device
is unlike the others if its value lies outside of what they let expect of one more:

    t = (x - mean of the others) / (s * sqrt(1 + 1 / (n - 1))),  n - 2 degrees of freedom

s is the standard deviation of the others, or the noise if that is larger; the level is shared by all devices and
measures (Bonferroni), that of F as well. Of three devices none can be told to be the odd one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from specmeter.numbers.estimates import bare, deviation, from_log
from specmeter.numbers.special import f_above
from specmeter.numbers.stats import t_critical
from specmeter.record import Estimate

MIN_DEVICES = 4
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
    """What it would be if devices were alike, in percent; None where no device has two repetitions."""
    differ: bool
    """Whether that is too little to explain it."""
    unlike: Mapping[str, float]
    """Device unlike its fellows -> its value over the mean of theirs."""


def spread_between(repeats: Mapping[str, Sequence[float]], unit: str, tests: int) -> Spread:
    """Of two devices and more, from the logarithms of their repetitions; `tests` share the level."""
    logs = {device: float(np.mean(them)) for device, them in repeats.items()}
    n, sd = len(logs), float(np.std([*logs.values()], ddof=1))
    free = sum(len(them) - 1 for them in repeats.values())
    squares = sum(float(np.var(them)) * len(them) for them in repeats.values())
    noise = math.sqrt(squares / free * float(np.mean([1 / len(them) for them in repeats.values()]))) if free else 0.0
    larger = max(sd, noise)
    half = t_critical(n - 1, _LEVEL) * larger / math.sqrt(n) if larger > _ALIKE else None
    how = "Student t over devices" if half is not None else "no interval: devices say the same to the last digit"
    by_chance = f_above(n - 1, free, (sd / max(noise, _ALIKE)) ** 2) if free else 1.0
    return Spread(
        {device: math.exp(value) for device, value in logs.items()},
        from_log(float(np.mean([*logs.values()])), half, unit, how, n=n, of="devices"),
        bare(100 * sd, "%", how, n=n) if half is None else deviation(100 * sd, n, "%"),
        100 * noise if free else None,
        sd > _ALIKE and by_chance < (1 - _LEVEL) / tests,
        unlike(logs, noise, tests),
    )


def unlike(logs: Mapping[str, float], noise: float, tests: int) -> dict[str, float]:
    """Devices unlike their fellows, each with its ratio to them."""
    found: dict[str, float] = {}
    n = len(logs)
    for device, value in logs.items() if n >= MIN_DEVICES else ():
        others = np.array([it for name, it in logs.items() if name != device])
        s = max(float(np.std(others, ddof=1)), noise)
        gap = value - float(others.mean())
        if s > _ALIKE and abs(gap) / (s * math.sqrt(1 + 1 / (n - 1))) > t_critical(n - 2, 1 - (1 - _LEVEL) / tests):
            found[device] = math.exp(gap)
    return found
