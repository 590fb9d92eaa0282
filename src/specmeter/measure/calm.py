"""Finds blocks that other programs disturbed, by telemetry alone and never by what was measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from specmeter.host.telemetry import (
    QUIET,
    SLOW_CLOCK,
    Gate,
    Seen,
    gate_beside,
    gpu_was_slowed,
    lowest_clock,
    others_were_busy,
    seen,
)
from specmeter.record import Disturbance

if TYPE_CHECKING:
    from specmeter.record import Arm, Host, Session, Telemetry
    from specmeter.record.measured import Cause
    from specmeter.store import RunReader

MAX_TIMES = 3
"""Blocks that are measured in all, times those that were planned."""
MIN_CALM = 3
"""Calm blocks without which there is no number, where more were planned."""
_NAMED = 3


def is_too_busy(planned: Collection[tuple[int, int]], aside: Sequence[Disturbance]) -> bool:
    """Whether planned blocks (invocation, block) were given up, and fewer calm ones are left than a number needs."""
    given_up = {(it.invocation, it.block) for it in aside if not it.again}
    return bool(given_up) and len(set(planned) - given_up) < min(MIN_CALM, len(set(planned)))


def gate_of(arms: Mapping[str, Arm], sessions: Sequence[Session], host: Host) -> Gate:
    """What others may have of the machine beside these sessions."""
    cores = host.physical_cores or host.logical_cores
    threads = [it for it in (_threads(session, arms, cores) for session in sessions) if it is not None]
    return min([QUIET, *(gate_beside(it, cores, host.logical_cores) for it in threads)])


def _threads(session: Session, arms: Mapping[str, Arm], cores: int) -> int | None:
    """Threads that a session decodes with on the processor; None where it does not decode there."""
    if session.devices and not all(use.device.startswith("CPU") for use in session.devices):
        return None
    read = session.resolved.get("threads")
    return read if isinstance(read, int) else arms[session.arm_id].engine.threads or cores


class Found(NamedTuple):
    """What disturbed a block."""

    cause: Cause
    clock: float | None = None
    """Of a clock that fell: the slowest session's over the fastest's."""


def found(samples: Sequence[Seen], sessions: Sequence[Session], arms: Mapping[str, Arm], host: Host) -> Found | None:
    """The rule: what disturbed these sessions of a block; None where nothing did.

    Others were busy beside them; a GPU was slowed down by heat or its hardware; or the clock of the processor was a
    fifth lower in one session than in another with as many threads on it. Nothing of what was measured is asked.
    """
    parts = by_session(samples, sessions)
    if others_were_busy(parts, gate_of(arms, sessions, host)):
        return Found("others")
    if gpu_was_slowed([it for part in parts for it in part]):
        return Found("gpu")
    alike: dict[int, list[list[Seen]]] = {}
    for part, session in zip(parts, sessions, strict=True):
        threads = _threads(session, arms, host.physical_cores or host.logical_cores)
        if threads is not None and session.devices:
            alike.setdefault(threads, []).append(part)
    clock = min(map(lowest_clock, alike.values()), default=1.0)
    return Found("clock", clock) if clock < SLOW_CLOCK else None


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
    samples = [it for it in store.telemetry(since=began) if it.at <= ended]
    why = found([seen(it) for it in samples], sessions, arms, host)
    if why is None:
        return None
    requests = sum((key.invocation, key.block) == place for key in store.done_keys())
    if not requests:
        return None
    blocks = {(it.invocation, it.block) for it in store.cells()}
    shares = [it.other_cpu_percent for it in samples]
    took = ended - began + sum(it.ended_at - it.began_at for it in every)
    return Disturbance(
        invocation=place[0],
        block=place[1],
        attempt=len(before) + 1,
        requests=requests,
        began_at=began,
        ended_at=ended,
        samples=len(samples),
        mean_percent=sum(shares) / len(shares),
        highest_percent=max(shares),
        slowed=sum(seen(it).slowed for it in samples),
        programs=busiest(samples),
        cause=why.cause,
        clock=why.clock,
        again=len(every) < (MAX_TIMES - 1) * len(blocks) and took <= (math.inf if repeat_s is None else repeat_s),
    )


def by_session(samples: Sequence[Seen], sessions: Sequence[Session]) -> list[list[Seen]]:
    """The samples of each session."""
    return [[it for it in samples if one.started_at <= it.at <= (one.ended_at or math.inf)] for one in sessions]


def busiest(samples: Sequence[Telemetry]) -> tuple[str, ...]:
    """Programs with the most cores that they took, the busiest first."""
    cores: dict[str, list[float]] = {}
    for it in samples:
        for told in it.programs:
            name, _, taken = told.rpartition(" (")
            cores.setdefault(name, []).append(float(taken.removesuffix(" cores)")))
    most = sorted(((max(them), name) for name, them in cores.items()), reverse=True)
    return tuple(f"{name} ({taken:.2f} cores)" for taken, name in most[:_NAMED])
