"""Whether a probe can be believed: by the same standards that a run's requests are held to.

A probe that was taken beside other work looks like any other: its times are too long, and not all by the same factor.
So a probe records what else was running, and suspicions are drawn from that.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from specmeter.host.telemetry import gate_for, is_busy
from specmeter.messages import Message
from specmeter.record.measured import names_of

if TYPE_CHECKING:
    from specmeter.probe.record import Probe

WIDEST = 1.5
"""High over low end of the interval of T(1) that is still a measurement. Of the probe for which this gate was made
(125 ms [42, 358], beside other work) it was 8.5."""
DRIFT = 1.25
"""T(1) of the slower half of the rounds over the faster half, in medians, beyond which the machine was not the same."""
_MIN_ROUNDS = 6


def suspicions(probe: Probe) -> tuple[Message, ...]:
    """Reasons not to use a probe; empty where there are none."""
    found: list[Message] = []
    if is_busy(probe.other_cpu_percent, gate_for(probe.settings, probe.host)):
        mean, most = fmean(probe.other_cpu_percent) / 100, max(probe.other_cpu_percent) / 100
        found.append(Message("probe-doubt.busy", programs=names_of(probe.programs), mean=mean, most=most))
    first = probe.target_ms.points[0].ms
    if first.low is not None and first.high is not None and first.high > WIDEST * first.low:
        found.append(Message("probe-doubt.uncertain", ms=first.point, low=first.low, high=first.high))
    rounds = probe.plain_rounds_ms
    if len(rounds) >= _MIN_ROUNDS:
        early, late = median(rounds[: len(rounds) // 2]), median(rounds[(len(rounds) + 1) // 2 :])
        if max(early, late) > DRIFT * min(early, late):
            found.append(Message("probe-doubt.drift", early=early, late=late))
    return tuple(found)
