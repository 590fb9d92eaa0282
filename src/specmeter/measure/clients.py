"""The clients of a cell under load: who sends which request when.

Closed loop: this many clients take from one queue, and each sends its next request as soon as its last one has ended.
To keep the engine busy at all times, several clients begin with a filler, an ever longer one, so that they are out of
step, and one that finds the queue empty sends fillers until the last request of the run has ended. Fillers are no
requests of the run (`record.Filler`).

Open loop: requests are sent when they are due, whether or not others have ended. While a cell runs nothing is stored,
and nothing but the next request comes before an answer is taken note of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from specmeter.errors import EngineDiedError, EngineError, EngineHungError, stop_if_asked
from specmeter.record import Prompt, Reply

if TYPE_CHECKING:
    from specmeter.engines import EngineSession
    from specmeter.engines.session import Ended, Ticket
    from specmeter.errors import SpecmeterError
    from specmeter.record import Generation


_PATIENCE_S = 0.5
"""How long the clients wait at a time."""


class DueRequest(NamedTuple):
    """One request of a cell, before it is sent."""

    item: int
    """`FILLER`: none of the run."""
    prompt: Prompt
    generation: Generation

    @property
    def is_filler(self) -> bool:
        return self.item == FILLER


FILLER = -1


class EndedRequest(NamedTuple):
    """One request of a cell, when it has ended."""

    asked: DueRequest
    client: int | None
    due_at: float
    started_at: float
    result: Reply | SpecmeterError
    slot: int | None = None
    queued_ms: float | None = None

    @property
    def late_ms(self) -> float:
        """How much later it was sent than it was due."""
        return max(0.0, (self.started_at - self.due_at) * 1000)


class _Flying(NamedTuple):
    asked: DueRequest
    client: int | None
    due_at: float


class _Queue:
    """Requests to send: each goes to any free client; the calls of a recorded session go to one client, in order."""

    def __init__(self, asked: Iterable[DueRequest]) -> None:
        self._groups = (deque(it) for _, it in groupby(asked, key=_session))
        self._of_client: dict[int, deque[DueRequest]] = {}

    def next(self, client: int) -> DueRequest | None:
        mine = self._of_client.get(client)
        while not mine:
            mine = self._of_client[client] = next(self._groups, None) or deque()
            if not mine:
                return None
        return mine.popleft()


def _session(asked: DueRequest) -> object:
    turn = asked.prompt.turn
    return asked.item if turn is None else (asked.prompt.workload, turn.session)


@dataclass
class Clients:
    """The clients of one cell."""

    session: EngineSession
    clock: Callable[[], float]
    """Of the engine, in seconds."""
    ended: Callable[[EndedRequest], None]
    """Called with every request when it has ended."""
    _flying: dict[Ticket, _Flying] = field(default_factory=dict["Ticket", _Flying])

    def closed_loop(
        self,
        asked: Iterable[DueRequest],
        clients: int,
        lead: Sequence[DueRequest] = (),
        more: Iterable[DueRequest] = (),
    ) -> EngineError | None:
        """Send everything by this many clients; `lead`: what each begins with, `more`: what clients send
        while the last requests of the run are answered. What ended the engine before it was all answered: the requests
        in flight fail with it, and nothing more is sent."""
        queue, fillers = _Queue(asked), iter(more)
        now = self.clock()
        for client in range(clients):
            self._send(lead[client] if client < len(lead) else queue.next(client), client, now)
        while self._flying:
            stop_if_asked()
            if (over := self.session.collect(_PATIENCE_S)) is None:
                continue
            told = self._told(over)
            if (death := _death(told)) is not None:
                return self._all_failed(told, death)
            upcoming = queue.next(told.client or 0)
            if upcoming is None and any(not it.asked.is_filler for it in self._flying.values()):
                upcoming = next(fillers, None)
            self._send(upcoming, told.client, self._end_of(told))
            self.ended(told)
        return None

    def open_loop(self, asked: Iterable[DueRequest], after_s: Sequence[float]) -> EngineError | None:
        """Send each request this many seconds after now, and wait for all of them. As `closed_loop` otherwise."""
        began_at = self.clock()
        queue = iter(list(zip(asked, after_s, strict=True)))
        coming = next(queue, None)
        while coming is not None or self._flying:
            stop_if_asked()
            while coming is not None and began_at + coming[1] <= self.clock():
                self._send(coming[0], None, began_at + coming[1])
                coming = next(queue, None)
            wait_s = _PATIENCE_S if coming is None else max(0.0, began_at + coming[1] - self.clock())
            if not self._flying:
                self.session.wait(wait_s)
            elif (over := self.session.collect(wait_s)) is not None:
                told = self._told(over)
                if (death := _death(told)) is not None:
                    return self._all_failed(told, death)
                self.ended(told)
        return None

    def give_up(self) -> Iterator[EndedRequest]:
        """What is in flight when the cell is broken off, as failed."""
        now = self.clock()
        for flying in self._flying.values():
            error = EngineError(
                "cancelled: the measurement stopped during this request", fix="run the same command again"
            )
            yield EndedRequest(*flying, min(flying.due_at, now), error)
        self._flying.clear()

    def _send(self, asked: DueRequest | None, client: int | None, due_at: float) -> None:
        if asked is not None:
            ticket = self.session.submit(asked.prompt, asked.generation)
            self._flying[ticket] = _Flying(asked, client, due_at)

    def _told(self, over: Ended) -> EndedRequest:
        flying = self._flying.pop(over.ticket)
        started_at = flying.due_at if over.started_at is None else over.started_at
        return EndedRequest(*flying, started_at, over.result, over.slot, over.queued_ms)

    def _end_of(self, told: EndedRequest) -> float:
        """When a request had ended, by the clock of the engine."""
        return told.started_at + told.result.wall_ms / 1000 if isinstance(told.result, Reply) else self.clock()

    def _all_failed(self, told: EndedRequest, death: EngineError) -> EngineError:
        """Collect what fails with the engine."""
        self.ended(told)
        while self._flying and (over := self.session.collect()) is not None:
            self.ended(self._told(over))
        return death


def _death(told: EndedRequest) -> EngineError | None:
    return told.result if isinstance(told.result, EngineDiedError | EngineHungError) else None
