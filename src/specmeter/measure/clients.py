"""Clients of a cell under load: who sends which request when.

A closed loop has so many clients, which take from one queue: each sends its next request as soon as its last one has
ended. So the engine never has more to do than the clients have asked for, and never less until the queue is empty.

Nothing is stored while a cell runs: a write to the disk would delay the client at hand, and half a cell is not a
measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.errors import EngineDiedError, EngineHungError
from specmeter.record import Reply

if TYPE_CHECKING:
    from specmeter.engines import EngineSession
    from specmeter.engines.session import Ended, Ticket
    from specmeter.errors import SpecmeterError
    from specmeter.record import Generation, Prompt

_PATIENCE_S = 0.5
"""How long the clients wait at a time."""


@dataclass(frozen=True)
class Asked:
    """One request of a cell, before it is sent."""

    item: int
    prompt: Prompt
    generation: Generation


@dataclass(frozen=True)
class Told:
    """One request of a cell, when it has ended."""

    asked: Asked
    client: int | None
    due_at: float
    started_at: float
    result: Reply | SpecmeterError

    @property
    def late_ms(self) -> float:
        return max(0.0, (self.started_at - self.due_at) * 1000)


@dataclass
class ClosedLoop:
    """Clients that share a queue. `clock` is that of the engine, in seconds."""

    session: EngineSession
    clock: Callable[[], float]
    ended: Callable[[Told], None]
    """Called with every request when it has ended."""
    _flying: dict[Ticket, tuple[Asked, int, float]] = field(default_factory=dict["Ticket", "tuple[Asked, int, float]"])

    def serve(self, asked: Sequence[Asked], clients: int) -> bool:
        """Send everything; whether it came to its end. An engine that died or hangs fails all that is in flight, and
        nothing more is sent."""
        queue = iter(asked)
        alive = True
        now = self.clock()
        for client in range(clients):
            self._send(next(queue, None), client, now)
        while self._flying:
            over = self.session.collect(_PATIENCE_S)
            if over is None:
                continue
            request, client, due_at = self._flying.pop(over.ticket)
            told = Told(request, client, due_at, over.started_at or due_at, over.result)
            alive = alive and not isinstance(over.result, EngineDiedError | EngineHungError)
            if alive:  # before anything else is done with the answer
                self._send(next(queue, None), client, _end(told, over, self.clock))
            self.ended(told)
        return alive

    def _send(self, request: Asked | None, client: int, due_at: float) -> None:
        if request is not None:
            ticket = self.session.submit(request.prompt, request.generation)
            self._flying[ticket] = (request, client, due_at)


def _end(told: Told, over: Ended, clock: Callable[[], float]) -> float:
    """When a request had ended, by the clock of the engine."""
    if over.started_at is None or not isinstance(told.result, Reply):
        return clock()
    return over.started_at + told.result.wall_ms / 1000


def cpu_ms() -> float:
    """CPU time of this process, all of its threads."""
    return time.process_time() * 1000
