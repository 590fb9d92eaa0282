"""A cell under load: its clients at work, and all that is kept of it.

The cell is what is measured, stored and repeated as a whole. Half of one is not a measurement: it is kept, and
superseded when the cell is measured again.

The record of a request, from what was asked and how it ended; and the seed of what is sampled.

Clients of a cell under load: who sends which request when.

Closed loop: so many clients take from one queue, and each sends its next request as soon as its last one has ended. The
engine never has more to do than the clients have asked for, and never less: several clients begin with a filler, an
ever longer one, so that they are out of step, and one that finds the queue empty sends fillers until the last
request of the run has ended. These are no requests of the run (`record.Filler`).

Open loop: requests are sent when they are due, whether or not others have ended. What the engine cannot answer in time
waits with the engine.

While a cell runs nothing is stored, and nothing but the next request comes before an answer is taken note of.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from specmeter.engines.session import differences
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, stop_if_asked
from specmeter.experiments.schedule import Turn, arrivals
from specmeter.record import Filler, Load, LoadCell, Prompt, Reply, Request, Sending

if TYPE_CHECKING:
    from specmeter.engines import EngineSession
    from specmeter.engines.session import Ended, Ticket
    from specmeter.errors import SpecmeterError
    from specmeter.record import Generation


_PATIENCE_S = 0.5
"""How long the clients wait at a time."""
LATE = 0.02
"""Share of the clients' time that may pass between the end of a request and the start of the next."""


def late_share(late_ms: float, duration_ms: float, at_once: float) -> float:
    """Share of the time of so many clients in which requests were due and not sent."""
    return late_ms / (duration_ms * at_once) if duration_ms * at_once > 0 else 0.0


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


class Told(NamedTuple):
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


@dataclass
class Clients:
    """The clients of one cell."""

    session: EngineSession
    clock: Callable[[], float]
    """Of the engine, in seconds."""
    ended: Callable[[Told], None]
    """Called with every request when it has ended."""
    _flying: dict[Ticket, _Flying] = field(default_factory=dict["Ticket", _Flying])

    def closed_loop(
        self,
        asked: Iterable[DueRequest],
        clients: int,
        lead: Sequence[DueRequest] = (),
        more: Iterable[DueRequest] = (),
    ) -> EngineError | None:
        """Send everything by so many clients; `lead`: what each begins with, `more`: what clients send
        while the last requests of the run are answered. What ended the engine before it was all answered: the requests
        in flight fail with it, and nothing more is sent."""
        queue, fillers = iter(asked), iter(more)
        now = self.clock()
        for client in range(clients):
            self._send(lead[client] if client < len(lead) else next(queue, None), client, now)
        while self._flying:
            stop_if_asked()
            if (over := self.session.collect(_PATIENCE_S)) is None:
                continue
            told = self._told(over)
            if (death := _death(told)) is not None:
                return self._all_failed(told, death)
            upcoming = next(queue, None)
            if upcoming is None and any(not it.asked.is_filler for it in self._flying.values()):
                upcoming = next(fillers, None)
            self._send(upcoming, told.client, self._end_of(told))
            self.ended(told)
        return None

    def open_loop(self, asked: Iterable[DueRequest], after_s: Sequence[float]) -> EngineError | None:
        """Send each request so many seconds after now, and wait for all of them. As `closed_loop` otherwise."""
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

    def give_up(self) -> Iterator[Told]:
        """What is in flight when the cell is broken off, as failed."""
        now = self.clock()
        for flying in self._flying.values():
            error = EngineError(
                "given up: the cell was broken off while this was answered", fix="run the same command again"
            )
            yield Told(*flying, min(flying.due_at, now), error)
        self._flying.clear()

    def _send(self, asked: DueRequest | None, client: int | None, due_at: float) -> None:
        if asked is not None:
            ticket = self.session.submit(asked.prompt, asked.generation)
            self._flying[ticket] = _Flying(asked, client, due_at)

    def _told(self, over: Ended) -> Told:
        flying = self._flying.pop(over.ticket)
        started_at = flying.due_at if over.started_at is None else over.started_at
        return Told(*flying, started_at, over.result, over.slot, over.queued_ms)

    def _end_of(self, told: Told) -> float:
        """When a request had ended, by the clock of the engine."""
        return told.started_at + told.result.wall_ms / 1000 if isinstance(told.result, Reply) else self.clock()

    def _all_failed(self, told: Told, death: EngineError) -> EngineError:
        """Collect what fails with the engine."""
        self.ended(told)
        while self._flying and (over := self.session.collect()) is not None:
            self.ended(self._told(over))
        return death


def _death(told: Told) -> EngineError | None:
    return told.result if isinstance(told.result, EngineDiedError | EngineHungError) else None


def _filler(told: Told) -> Filler | None:
    reply = told.result
    if not isinstance(reply, Reply):
        return None
    return Filler(
        client=told.client or 0,
        started_at=told.started_at,
        wall_ms=reply.wall_ms,
        prompt_n=reply.timings.prompt_n or 0,
        predicted_n=reply.timings.predicted_n,
        predicted_ms=reply.timings.predicted_ms,
        draft_n=reply.timings.draft_n or 0,
        draft_n_accepted=reply.timings.draft_n_accepted or 0,
        restores=sum(step.restored for step in reply.steps),
        stop_reason=reply.stop_reason,
    )


def cpu_ms() -> float:
    """CPU time of this process, all of its threads."""
    return time.process_time() * 1000


def request_of(
    turn: Turn, session_id: str, item: int, prompt: Prompt, started_at: float, result: Reply | EngineError
) -> Request:
    """A request of a cell, answered or failed."""
    answered = isinstance(result, Reply)
    return Request(
        invocation=turn.invocation,
        block=turn.block,
        position=turn.position,
        item=item,
        arm_id=turn.arm_id,
        prompt_id=prompt.id,
        prompt_sha256=prompt.sha256,
        kind=prompt.kind,
        session_id=session_id,
        started_at=started_at,
        status="ok" if answered else "failed",
        error=None if answered else str(result),
        reply=result if answered else None,
    )


def block_seed(seed: int, invocation: int, block: int) -> int:
    """The seed of sampled generations in a block: another one in each, the same for all of its arms, on any machine.

    So blocks are independent samples, which a comparison of distributions needs, and a resumed run goes on as it began.
    """
    digest = sha256(f"{seed}:{invocation}:{block}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**32 - 1)  # 2**32 - 1 asks llama.cpp for a seed of its own


class Kept(NamedTuple):
    """What is stored of a cell."""

    requests: list[tuple[Request, Sending]]
    cell: LoadCell
    broken_off: EngineError | None
    """What ended its engine."""

    def is_late(self, load: Load) -> bool:
        """Whether clients, all of whose requests were answered, were too late: of a closed loop alone."""
        whole = self.cell.complete and all(request.status == "ok" for request, _ in self.requests)
        late_ms = sum(sending.late_ms for _, sending in self.requests)
        took_ms = 1000 * (self.cell.ended_at - self.cell.began_at)
        return whole and load.clients is not None and late_share(late_ms, took_ms, load.clients) > LATE


@dataclass
class LoadedCell:
    """One cell, in one session. `clock` is that of the engine, in seconds; `seed` that of the experiment's design."""

    turn: Turn
    load: Load
    session_id: str
    session: EngineSession
    clock: Callable[[], float]
    seed: int

    def serve(
        self,
        asked: Sequence[DueRequest],
        done: Callable[[Request], None],
        keep: Callable[[Kept], None],
        lead: Sequence[DueRequest] = (),
    ) -> Kept:
        """Send everything as the load says. `done` hears of each request that ends; `keep` stores what there is in the
        end, also of a cell that anything (Ctrl-C included) breaks off. `lead`: what clients begin with.
        """
        told: list[Told] = []

        def ended(it: Told) -> None:
            told.append(it)
            if not it.asked.is_filler:
                done(self._request(it))

        clients = Clients(self.session, self.clock, ended)
        before, cpu = self.session.totals(), cpu_ms()
        began_at, death, complete = self.clock(), None, False
        try:
            if self.load.rate is None:
                more = cycle(it._replace(item=FILLER) for it in asked) if lead else ()
                death = clients.closed_loop(asked, self.load.clients or 1, lead, more)
            else:
                due_s = arrivals(len(asked), self.load.rate, self.turn.invocation, self.turn.block, self.seed)
                death = clients.open_loop(asked, due_s)
            complete = death is None
        finally:
            ended_at, spent = self.clock(), cpu_ms() - cpu
            told += clients.give_up()
            requests, fillers = self._settled(told, complete=complete)
            cell = LoadCell(
                invocation=self.turn.invocation,
                block=self.turn.block,
                arm_id=self.turn.arm_id,
                session_id=self.session_id,
                began_at=began_at,
                ended_at=ended_at,
                complete=complete,
                slots=self.session.facts.in_flight,
                client_cpu_ms=max(0.0, spent),
                counters=self._counted(before) if complete and None not in fillers else {},
                fillers=tuple(it for it in fillers if it is not None),
            )
            kept = Kept(requests, cell, death)
            keep(kept)
        return kept

    def _counted(self, before: dict[str, float]) -> dict[str, float]:
        with contextlib.suppress(EngineError):
            return differences(before, self.session.totals())
        return {}

    def _settled(
        self, told: Sequence[Told], *, complete: bool
    ) -> tuple[list[tuple[Request, Sending]], list[Filler | None]]:
        """Requests with what the engine tells only when all is over, such as the steps in its log; and fillers, None
        for one that failed."""
        replies = [it.result for it in told if isinstance(it.result, Reply)]
        settled = iter(self.session.settle(replies) if complete else replies)
        whole = [it._replace(result=next(settled)) if isinstance(it.result, Reply) else it for it in told]
        of_run = [(self._request(it), self._sending(it)) for it in whole if not it.asked.is_filler]
        return of_run, [_filler(it) for it in whole if it.asked.is_filler]

    def _request(self, told: Told) -> Request:
        asked, result = told.asked, told.result
        if not isinstance(result, Reply | EngineError):
            raise result
        return request_of(self.turn, self.session_id, asked.item, asked.prompt, told.started_at, result)

    def _sending(self, told: Told) -> Sending:
        return Sending(
            invocation=self.turn.invocation,
            block=self.turn.block,
            arm_id=self.turn.arm_id,
            prompt_id=told.asked.prompt.id,
            session_id=self.session_id,
            client=told.client,
            due_at=told.due_at,
            late_ms=told.late_ms,
            slot=told.slot,
            queued_ms=None if told.queued_ms is None else max(0.0, told.queued_ms),
        )
