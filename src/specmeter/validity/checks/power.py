"""Whether the joules of a run can be believed. Its speedups do not rest on them, so all of this is notes; a number that
cannot be known is withheld where it is computed (`consumption`)."""

from __future__ import annotations

import numpy as np

from specmeter.host.telemetry import BUSY_PERCENT
from specmeter.text import percent
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.evidence import not_applicable, unseen
from specmeter.validity.checks.machine import loads_by_arm
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Findings, about_arm, about_run

_NOT_AT_REST_PERCENT = 10.0
"""Share of the processor that may be busy while the power at rest is measured: specmeter's own start is part of it."""


def energy_read(data: RunData) -> Findings:
    """Joules without enough readings, of changing sources, with other programs in them, or above a rest that was none.

    An arm's energy is withheld if readings cover less than 90 % of its requests' time, or if its sources changed.
    Counters know no processes: what other programs took is in the joules (5 % of the processor in the mean is told).
    Power at rest counts only where it lies below that of every arm, and the processor was at most 10 % busy.
    """
    if data.simulated:
        yield not_applicable(None, "time is virtual")
        return
    if data.energies is None:
        reasons = [why for host in data.hosts if host.power_meter for why in host.power_meter.unread]
        yield not_applicable(None, reasons[0] if reasons else "no energy was read")
        return
    loads = loads_by_arm(data)
    for arm in (*data.summary.arms, *data.summary.controls):
        used = arm.energy
        if used is None:
            yield unseen(arm.arm_id, "the energy of its requests was not read")
            continue
        if used.why:
            yield about_arm(
                "energy-read",
                "note",
                arm.arm_id,
                f"energy: {used.why}",
                "raise max_tokens, or measure again where the counters can be read all the time",
                requests_read=used.requests,
                requests=used.requests_ok,
                unseen=round(used.unseen, 3),
                sources=", ".join(used.sources),
            )
        shares = [load.other_cpu_percent for load in loads.get(arm.arm_id, [])]
        if shares and np.mean(shares) > BUSY_PERCENT:
            yield about_arm(
                "energy-read",
                "note",
                arm.arm_id,
                f"its joules include other programs: {percent(float(np.mean(shares)) / 100, 1)} of the processor "
                "on average",
                "end other programs, and measure again",
                other_cpu_percent=round(float(np.mean(shares)), 2),
                samples=len(shares),
            )
    yield from _rest(data)


def _rest(data: RunData) -> Findings:
    busy = [
        host.power_meter.idle_cpu_percent
        for host in data.hosts
        if host.power_meter and host.power_meter.idle_w is not None and host.power_meter.idle_cpu_percent is not None
    ]
    if busy and min(busy) > _NOT_AT_REST_PERCENT:
        yield about_run(
            "energy-read",
            "note",
            f"{percent(min(busy) / 100)} of the processor was busy when the power at rest was measured",
            "end other programs before the run starts; until then use the joules that include idle power",
            idle_cpu_percent=min(busy),
        )
    powers = {arm.arm_id: arm.energy for arm in data.summary.arms if arm.energy and arm.energy.power_w is not None}
    for arm_id, used in powers.items():
        if used.idle_w is not None and used.power_w is not None and used.idle_w >= used.power_w:
            yield about_arm(
                "energy-read",
                "note",
                arm_id,
                f"it drew {used.power_w:.1f} W, no more than the machine at rest ({used.idle_w:.1f} W)",
                "measure again on a machine that is at rest before the run starts",
                power_w=round(used.power_w, 2),
                idle_w=round(used.idle_w, 2),
            )


CHECKS: tuple[Check, ...] = (
    Check(
        id="energy-read",
        threat="joules read too rarely, or used by other programs",
        severity="note",
        look=energy_read,
        saw=("hosts", "arms", "requests", "telemetry", "energy"),
        assumes="counters and sensors tell what the machine took, and what they do not cover is like the rest",
        otherwise="joules are off by what was not read; speedups do not rest on them",
    ),
)
