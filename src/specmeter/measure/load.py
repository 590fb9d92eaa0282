"""A cell under load: its clients at work, and all that is kept of it.

The cell is what is measured, stored and repeated as a whole. Half of one is not a measurement: it is kept, and
superseded when the cell is measured again.

The record of a request, from what was asked and how it ended; and the seed of what is sampled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from specmeter.engines.session import differences
from specmeter.errors import EngineError
from specmeter.experiments.schedule import Turn, arrivals
from specmeter.measure.clients import Clients, DueRequest, Told, cpu_ms
from specmeter.record import Load, LoadCell, Prompt, Reply, Request, Sending

if TYPE_CHECKING:
    from specmeter.engines import EngineSession


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


@dataclass
class LoadedCell:
    """One cell, in one session. `clock` is that of the engine, in seconds; `seed` that of the experiment's design."""

    turn: Turn
    load: Load
    session_id: str
    session: EngineSession
    clock: Callable[[], float]
    seed: int

    def serve(self, asked: Sequence[DueRequest], done: Callable[[Request], None], keep: Callable[[Kept], None]) -> Kept:
        """Send everything as the load says. `done` hears of each request that ends; `keep` stores what there is in the
        end, also of a cell that anything (Ctrl-C included) breaks off."""
        told: list[Told] = []

        def ended(it: Told) -> None:
            told.append(it)
            done(self._request(it))

        clients = Clients(self.session, self.clock, ended)
        before, cpu = self.session.totals(), cpu_ms()
        began_at, death, complete = self.clock(), None, False
        try:
            if self.load.rate is None:
                death = clients.closed_loop(asked, self.load.clients or 1)
            else:
                due_s = arrivals(len(asked), self.load.rate, self.turn.invocation, self.turn.block, self.seed)
                death = clients.open_loop(asked, due_s)
            complete = death is None
        finally:
            ended_at, spent = self.clock(), cpu_ms() - cpu
            told += clients.give_up()
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
                counters=self._counted(before) if complete else {},
            )
            kept = Kept(self._settled(told, complete=complete), cell, death)
            keep(kept)
        return kept

    def _counted(self, before: dict[str, float]) -> dict[str, float]:
        with contextlib.suppress(EngineError):
            return differences(before, self.session.totals())
        return {}

    def _settled(self, told: Sequence[Told], *, complete: bool) -> list[tuple[Request, Sending]]:
        """Requests with what the engine tells only when all is over, such as the steps in its log."""
        replies = [it.result for it in told if isinstance(it.result, Reply)]
        settled = iter(self.session.settle(replies) if complete else replies)
        whole = (it._replace(result=next(settled)) if isinstance(it.result, Reply) else it for it in told)
        return [(self._request(it), self._sending(it)) for it in whole]

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
