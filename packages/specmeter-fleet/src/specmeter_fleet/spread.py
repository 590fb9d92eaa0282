"""How much of an answer is the machine's: what differs between devices that measured the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from specmeter.analysis.comparison import Side, read_side
from specmeter.analysis.reading import RunReport
from specmeter.record import Arm
from specmeter.store import RunStore
from specmeter_fleet.variance import Spread, spread_between


def spreads(folder: Path) -> tuple[RunReport, list[tuple[Arm, Spread]]]:
    """Of a run that several devices measured: what it says, and how they differ. Raises `StoreError`."""
    side = read_side(folder)
    arms = [arm for arm in side.report.arms if arm.role != "control" and arm.id not in side.report.invalid]
    device_of = _devices(folder)
    found = [(arm, _repeats(side, arm, device_of)) for arm in arms]
    known = [(arm, them) for arm, them in found if len(them) > 1]
    tests = sum(len(them) for _, them in known)
    return side.report, [
        (arm, spread_between(them, "tok/s" if arm.baseline_id is None else "x", tests)) for arm, them in known
    ]


def _devices(folder: Path) -> Mapping[int, str]:
    with RunStore.open(folder, readonly=True) as store:
        return {it: host.device or "" for host in store.hosts() for it in host.invocations}


def _repeats(side: Side, arm: Arm, device_of: Mapping[int, str]) -> dict[str, list[float]]:
    """Device -> logarithm of the arm's rate, or speedup, in each invocation, or each block where all devices have one
    invocation, on the prompts that every block has."""
    sides = [side.rates.get(arm.id, {})]
    if arm.baseline_id is not None:
        sides.append(side.rates.get(arm.baseline_id, {}))
    cells = [cell for cell in sides[0] if all(cell in it for it in sides)]
    prompts = set[str].intersection(*({*it[cell]} for it in sides for cell in cells)) if cells else set[str]()
    several = len(device_of) > len({*device_of.values()})
    found: dict[str, dict[object, list[float]]] = {}
    for cell in cells if prompts else ():
        rates = [
            math.log(1000 * sum(it[cell][p][0] for p in prompts) / sum(it[cell][p][1] for p in prompts)) for it in sides
        ]
        repeats = found.setdefault(device_of.get(cell[0], ""), {})
        repeats.setdefault(cell[0] if several else cell, []).append(rates[0] - sum(rates[1:]))
    return {device: [fmean(it) for it in repeats.values()] for device, repeats in found.items()}
