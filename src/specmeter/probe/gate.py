"""Whether a probe can be believed: by the same standards that a run's requests are held to.

A probe that was taken beside other work looks like any other: its times are too long, and not all by the same factor.
So it records what else was running, and suspicions are drawn from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median
from typing import TYPE_CHECKING

from specmeter.host.telemetry import busy_percent, is_busy
from specmeter.text import percent

if TYPE_CHECKING:
    from specmeter.probe import Probe

WIDEST = 1.5
"""High over low end of the interval of T(1) that is still a measurement. Of the probe for which this gate was made
(125 ms [42, 358], beside other work) it was 8.5."""
DRIFT = 1.25
"""T(1) of the slower half of the rounds over the faster half, in medians, beyond which the machine was not the same."""
_LEAST_ROUNDS = 6


def suspicions(probe: Probe) -> tuple[str, ...]:
    """Reasons not to use a probe, in words; empty where there are none."""
    return tuple(_suspicions(probe))


def _suspicions(probe: Probe) -> Iterator[str]:
    host = probe.host
    cores = host.physical_cores or host.logical_cores
    on_cpu = not host.gpus or not probe.settings.gpu_layers
    gate = busy_percent((probe.settings.threads or cores) if on_cpu else None, cores, host.logical_cores)
    if is_busy(probe.other_cpu_percent, gate):
        yield (
            f"other programs used {percent(fmean(probe.other_cpu_percent) / 100)} of the machine during the "
            f"probe, and up to {percent(max(probe.other_cpu_percent) / 100)}"
        )
    first = probe.target_ms.points[0].ms
    if first.low is not None and first.high is not None and first.high > WIDEST * first.low:
        yield f"T(1) came out as {first.point:.3g} ms [{first.low:.3g}, {first.high:.3g}]: too uncertain to use"
    rounds = probe.plain_rounds_ms
    if len(rounds) >= _LEAST_ROUNDS:
        early, late = median(rounds[: len(rounds) // 2]), median(rounds[(len(rounds) + 1) // 2 :])
        if max(early, late) > DRIFT * min(early, late):
            yield f"T(1) moved from {early:.3g} to {late:.3g} ms during the probe"
