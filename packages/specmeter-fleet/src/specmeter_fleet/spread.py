"""How much of an answer is the machine's: what differs between devices that measured the same.

Each device has one value: the mean over its blocks of the logarithm of a rate (plain decoding) or of a speedup. The
standard deviation of these values is the spread between devices, noise of blocks included; `noise` is what that noise
alone would make it. A device is unlike its fellows where its value lies outside of what they let expect of one more:

    t = (x - mean of the others) / (s * sqrt(1 + 1 / (n - 1))),  n - 2 degrees of freedom

s is the standard deviation of the others, or the noise where that is larger; the level is shared by all devices and
measures (Bonferroni). Of three devices none can be told to be the odd one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specmeter.analysis.comparison import Side, read_side
from specmeter.analysis.reading import RunReport
from specmeter.numbers.estimates import bare, deviation, student_geometric
from specmeter.numbers.stats import t_critical
from specmeter.record import Arm, Estimate
from specmeter.store import RunStore

LEAST = 4
"""Devices of which one can be told to be unlike the others."""
_LEVEL = 0.95
_ALIKE = 1e-12


class Spread(NamedTuple):
    """What devices say of an arm."""

    arm: Arm
    values: Mapping[str, float]
    """Device -> its rate in tok/s (a baseline), or its speedup."""
    mean: Estimate
    """Over devices: it holds for this kind of machine."""
    spread: Estimate
    """Standard deviation between devices, in percent."""
    noise: float
    """What it would be if devices were alike, in percent."""
    unlike: Mapping[str, float]
    """Device unlike its fellows -> its value over the mean of theirs."""


def spreads(folder: Path) -> tuple[RunReport, list[Spread]]:
    """Of a run that several devices measured: what it says, and how they differ. Raises `StoreError`."""
    side = read_side(folder)
    arms = [arm for arm in side.report.arms if arm.role != "control" and arm.id not in side.report.invalid]
    device_of = _devices(folder)
    found = [(arm, _blocks(side, arm, device_of)) for arm in arms]
    known = [(arm, them) for arm, them in found if len(them) > 1]
    tests = sum(len(them) for _, them in known)
    return side.report, [_spread(arm, them, tests) for arm, them in known]


def _devices(folder: Path) -> Mapping[int, str]:
    with RunStore.open(folder, readonly=True) as store:
        return {it: host.device or "" for host in store.hosts() for it in host.invocations}


def _blocks(side: Side, arm: Arm, device_of: Mapping[int, str]) -> dict[str, list[float]]:
    """Device -> logarithm of the arm's rate, or speedup, in each block, on the prompts that every block has."""
    sides = [side.rates.get(arm.id, {})]
    if arm.baseline_id is not None:
        sides.append(side.rates.get(arm.baseline_id, {}))
    cells = [cell for cell in sides[0] if all(cell in it for it in sides)]
    if not cells:
        return {}
    prompts = set[str].intersection(*({*it[cell]} for it in sides for cell in cells))
    found: dict[str, list[float]] = {}
    for cell in cells if prompts else ():
        rates = [
            math.log(1000 * sum(it[cell][p][0] for p in prompts) / sum(it[cell][p][1] for p in prompts)) for it in sides
        ]
        found.setdefault(device_of.get(cell[0], ""), []).append(rates[0] - sum(rates[1:]))
    return found


def _spread(arm: Arm, blocks: Mapping[str, list[float]], tests: int) -> Spread:
    values = {device: float(np.mean(them)) for device, them in blocks.items()}
    logs, n = np.array([*values.values()]), len(values)
    free = sum(len(them) - 1 for them in blocks.values())
    squares = sum(float(np.var(them)) * len(them) for them in blocks.values())
    noise = math.sqrt(squares / free * float(np.mean([1 / len(them) for them in blocks.values()]))) if free else 0.0
    sd = float(np.std(logs, ddof=1))
    shown = (
        bare(0.0, "%", "devices gave the same value to the last digit", n=n)
        if np.ptp(logs) < _ALIKE
        else deviation(100 * sd, n, "%")
    )
    mean = student_geometric(
        logs, "tok/s" if arm.baseline_id is None else "x", "Student t over devices", alone="one value", of="devices"
    )
    return Spread(
        arm,
        {device: math.exp(value) for device, value in values.items()},
        mean,
        shown,
        100 * noise,
        _unlike(values, noise, tests),
    )


def _unlike(values: Mapping[str, float], noise: float, tests: int) -> dict[str, float]:
    found: dict[str, float] = {}
    n = len(values)
    for device, value in values.items() if n >= LEAST else ():
        others = np.array([it for name, it in values.items() if name != device])
        s = max(float(np.std(others, ddof=1)), noise)
        gap = value - float(others.mean())
        if s > _ALIKE and abs(gap) / (s * math.sqrt(1 + 1 / (n - 1))) > t_critical(n - 2, 1 - (1 - _LEVEL) / tests):
            found[device] = math.exp(gap)
    return found
