"""Whether the machine was left to the measurement: blocks are judged by telemetry alone, never by what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.host.telemetry import QUIET, Gate, Seen, gate_beside, is_disturbed, seen
from specmeter.record import Disturbance

if TYPE_CHECKING:
    from specmeter.record import Arm, Host, Session, Telemetry
    from specmeter.store import RunReader

MOST_TIMES = 3
"""Blocks that are measured in all, times those that were planned."""
LEAST_CALM = 3
"""Calm blocks without which there is no number, where more were planned."""
_NAMED = 3


def gate_of(arms: Mapping[str, Arm], sessions: Sequence[Session], host: Host) -> Gate:
    """What others may have of the machine beside these sessions."""
    cores = host.physical_cores or host.logical_cores
    gates = [QUIET]
    for session in sessions:
        if session.devices and not all(use.device.startswith("CPU") for use in session.devices):
            continue
        read = session.resolved.get("threads")
        threads = read if isinstance(read, int) else arms[session.arm_id].engine.threads or cores
        gates.append(gate_beside(threads, cores, host.logical_cores))
    return min(gates)


def disturbance(
    store: RunReader, place: tuple[int, int], arms: Mapping[str, Arm], host: Host, repeat_s: float | None = None
) -> Disturbance | None:
    """What disturbed a block (invocation, block), the last time that it was measured; None for a calm one, for one
    without an answer, and where there is no telemetry. It is given up where disturbed blocks took `repeat_s` in all."""
    every = store.disturbances()
    before = [it for it in every if (it.invocation, it.block) == place]
    since = before[-1].ended_at if before else -math.inf
    sessions = [it for it in store.sessions() if (it.invocation, it.block) == place and it.started_at >= since]
    if not sessions:
        return None
    began, ended = sessions[0].started_at, max(it.ended_at or it.started_at for it in sessions)
    found = [it for it in store.telemetry(since=began) if it.at <= ended]
    if not is_disturbed(by_session([(it.at, seen(it)) for it in found], sessions), gate_of(arms, sessions, host)):
        return None
    requests = sum((key.invocation, key.block) == place for key in store.done_keys())
    if not requests:
        return None
    blocks = {(it.invocation, it.block) for it in store.cells()}
    shares = [it.other_cpu_percent for it in found]
    took = ended - began + sum(it.ended_at - it.began_at for it in every)
    return Disturbance(
        invocation=place[0],
        block=place[1],
        attempt=len(before) + 1,
        requests=requests,
        began_at=began,
        ended_at=ended,
        samples=len(found),
        mean_percent=sum(shares) / len(shares),
        highest_percent=max(shares),
        slowed=sum(slow for _, slow in map(seen, found)),
        programs=_busiest(found),
        again=len(every) < (MOST_TIMES - 1) * len(blocks) and took <= (math.inf if repeat_s is None else repeat_s),
    )


def by_session(samples: Sequence[tuple[float, Seen]], sessions: Sequence[Session]) -> list[list[Seen]]:
    """Of samples with their times, what those of each session say."""
    return [[said for at, said in samples if one.started_at <= at <= (one.ended_at or math.inf)] for one in sessions]


def _busiest(samples: Sequence[Telemetry]) -> tuple[str, ...]:
    """Programs with the most cores that they took, the busiest first."""
    cores: dict[str, list[float]] = {}
    for it in samples:
        for told in it.programs:
            name, _, taken = told.rpartition(" (")
            cores.setdefault(name, []).append(float(taken.removesuffix(" cores)")))
    most = sorted(((max(them), name) for name, them in cores.items()), reverse=True)
    return tuple(f"{name} ({taken:.2f} cores)" for taken, name in most[:_NAMED])
