"""Checks whether the joules of a run can be believed.

Findings are notes, since speedups do not rest on joules. A number that cannot be known is withheld (`consumption`).
"""

from __future__ import annotations

import numpy as np

from specmeter.host.telemetry import (
    QUIET,
)
from specmeter.messages import Message
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, not_applicable, not_checkable, of_arm, of_run
from specmeter.validity.checks.machine import loads_by_arm
from specmeter.validity.checks.run_data import RunData

_NOT_AT_REST_PERCENT = 10.0
"""Share of the processor that may be busy while the power at rest is measured: specmeter's own start is part of it."""


def energy_read(data: RunData) -> Findings:
    """Joules without enough readings, of changing sources, with other programs in them, or above a rest that was none.

    An arm's energy is withheld if readings cover less than 90 % of its requests' time, or if its sources changed.
    Counters know no processes: what other programs took is in the joules (5 % of the processor in the mean is told).
    Power at rest counts only where it lies below that of every arm, and the processor was at most 10 % busy.

    Assumes: counters and sensors show what the machine used, and gaps are like the rest.
    Otherwise: joules are wrong by what was not read; speedups do not depend on them.
    """
    if data.simulated:
        yield not_applicable(None, Message("unchecked.simulated"))
        return
    if data.energies is None:
        reasons = [why for host in data.hosts if host.power_meter for why in host.power_meter.unread]
        why = Message("unchecked.energy_unread", reason=reasons[0]) if reasons else Message("unchecked.no_energy")
        yield not_applicable(None, why)
        return
    loads = loads_by_arm(data)
    for arm in (*data.summary.arms, *data.summary.controls):
        used = arm.energy
        if used is None:
            yield not_checkable(arm.arm_id, Message("unchecked.no_energy_of_arm"))
            continue
        if used.why:
            yield of_arm(
                "note",
                arm.arm_id,
                Message("energy-read.withheld", why=used.why),
                Message("energy-read.fix_withheld"),
                requests_read=used.requests,
                requests=used.requests_ok,
                unseen=round(used.unseen, 3),
                sources=", ".join(used.sources),
            )
        shares = [load.other_cpu_percent for load in loads.get(arm.arm_id, [])]
        if shares and np.mean(shares) > QUIET.mean:
            yield of_arm(
                "note",
                arm.arm_id,
                Message("energy-read.others", other_cpu_percent=float(np.mean(shares))),
                Message("host-busy.fix_others"),
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
        yield of_run(
            "note", Message("energy-read.no_rest", idle_cpu_percent=min(busy)), Message("energy-read.fix_no_rest")
        )
    powers = {arm.arm_id: arm.energy for arm in data.summary.arms if arm.energy and arm.energy.power_w is not None}
    for arm_id, used in powers.items():
        if used.idle_w is not None and used.power_w is not None and used.idle_w >= used.power_w:
            yield of_arm(
                "note",
                arm_id,
                Message("energy-read.below_rest", power_w=used.power_w, idle_w=used.idle_w),
                Message("energy-read.fix_below_rest"),
                power_w=round(used.power_w, 2),
                idle_w=round(used.idle_w, 2),
            )


CHECKS: tuple[Check, ...] = (
    Check("energy-read", "note", energy_read, saw=("hosts", "arms", "requests", "telemetry", "energy")),
)
