"""How much other load a measurement bears: one standard for runs and for probes."""

from __future__ import annotations

from collections.abc import Sequence

BUSY_PERCENT = 5.0
"""Mean share of the machine that others may have. On a quiet machine with two cores it is 0.8 % in the mean, and 6.4 %
in the worst of 334 single samples."""
SPIKE_PERCENT = 10.0
_SPIKES = 0.2
_LEAST_SPIKES = 3


def is_busy(shares: Sequence[float], gate: float = BUSY_PERCENT) -> bool:
    """Whether others took too much, by their shares of the machine in percent, sampled about once a second: more than
    `gate` in the mean, or more than `SPIKE_PERCENT` in a fifth of the samples (and in three at least)."""
    if not shares:
        return False
    spikes = sum(share > max(gate, SPIKE_PERCENT) for share in shares)
    return sum(shares) / len(shares) > gate or (spikes >= _LEAST_SPIKES and spikes >= _SPIKES * len(shares))


def busy_percent(threads: int | None, cores: int, logical_cores: int) -> float:
    """Mean share that others may have beside an engine with so many threads on the CPU.

    Where these take every one of the `cores`, one core taken by others is enough, because threads that wait for each
    other are as slow as the slowest.
    """
    if threads is None or threads < cores:
        return BUSY_PERCENT
    return min(BUSY_PERCENT, 100 / logical_cores)
