"""Measures a cell under load: its clients at work, and the record of it.

A cell is measured, stored and repeated as a whole. Half of one is kept, and superseded when it is measured again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from specmeter.engines.session import differences
from specmeter.errors import EngineError
from specmeter.experiments.schedule import Cell, arrivals
from specmeter.measure.clients import FILLER, Clients, DueRequest, EndedRequest
from specmeter.measure.requests import request_of
from specmeter.record import Filler, Load, LoadCell, Reply, Request, Sending

if TYPE_CHECKING:
    from specmeter.engines import EngineSession


LATE = 0.02
"""Share of the clients' time that may pass between the end of a request and the start of the next."""


def late_share(late_ms: float, duration_ms: float, at_once: float) -> float:
    """Share of the time of this many clients in which requests were due and not sent."""
    return late_ms / (duration_ms * at_once) if duration_ms * at_once > 0 else 0.0


def _filler(told: EndedRequest) -> Filler | None:
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

    turn: Cell
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
        told: list[EndedRequest] = []

        def ended(it: EndedRequest) -> None:
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
        self, told: Sequence[EndedRequest], *, complete: bool
    ) -> tuple[list[tuple[Request, Sending]], list[Filler | None]]:
        """Requests with what the engine tells only when all is over, such as the steps in its log; and fillers, None
        for one that failed."""
        replies = [it.result for it in told if isinstance(it.result, Reply)]
        settled = iter(self.session.settle(replies) if complete else replies)
        whole = [it._replace(result=next(settled)) if isinstance(it.result, Reply) else it for it in told]
        of_run = [(self._request(it), self._sending(it)) for it in whole if not it.asked.is_filler]
        return of_run, [_filler(it) for it in whole if it.asked.is_filler]

    def _request(self, told: EndedRequest) -> Request:
        asked, result = told.asked, told.result
        if not isinstance(result, Reply | EngineError):
            raise result
        return request_of(self.turn, self.session_id, asked.item, asked.prompt, told.started_at, result)

    def _sending(self, told: EndedRequest) -> Sending:
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
