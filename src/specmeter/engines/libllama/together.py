"""Runs several requests of one session at once, which share its forwards."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from specmeter.errors import SpecmeterError
from specmeter.llama_binding.context import TimedLogits
from specmeter.record import Generation, Prompt, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.llama_binding.context import Context, Forward, Work


class Finished(NamedTuple):
    """A request that is over."""

    ticket: int
    result: Reply | SpecmeterError


@dataclass
class _Waiting:
    """A request that no slot was free for yet."""

    ticket: int
    prompt: Prompt
    generation: Generation
    sent_at: float
    """Seconds since the epoch."""


@dataclass
class _Flight:
    """A request in a slot."""

    ticket: int
    slot: int
    work: Work[Reply]
    forward: Forward
    """What it waits for."""
    queued_ms: float


class Together:
    """Requests of one session that share its forwards, at most one for each slot; further ones wait, in order.

        a request joins     as soon as a slot is free; its prompt is processed on its own, while the others wait
        draft               forwards of the draft model are shared by all that draft: the first tokens of all drafts
                            together, then the second ones, until the longest is done
        verify              one target forward over the last token and the draft of every request
        a request ends      and its slot is free before the next forward

    Every request has a memory of its own (a sequence of the context), and its text is that of decoding without
    speculation up to near ties: forwards over more tokens add up in another order. Requests that begin at once stay in
    step for as long as each needs one target forward; where a recurrent state has to be replayed, the replay joins the
    next forward of the others.

    Orca's iteration-level scheduling: Yu et al. 2022, OSDI; as llama.cpp's server does it, which adds prompts to the
    forwards of others, so that a step of these takes longer than with others that decode.
    """

    def __init__(self, target: Context, work: Callable[[Prompt, Generation, int], Work[Reply]]) -> None:
        """`work` answers a request in a slot: the number of a sequence of `target` (`InProcessSession.work`)."""
        self._target = target
        self._work = work
        self._free = list(range(len(target.sequences)))
        self._queue: deque[_Waiting] = deque()
        self._flights: list[_Flight] = []
        """In the order of their slots, so that their sequences have consecutive numbers where all slots are busy."""
        self._over: list[Finished] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._queue or self._flights or self._over)

    def submit(self, ticket: int, prompt: Prompt, generation: Generation, sent_at: float | None = None) -> None:
        """Add a request, which was sent at `sent_at` (seconds since the epoch; None: now)."""
        self._queue.append(_Waiting(ticket, prompt, generation, time.time() if sent_at is None else sent_at))

    def cancel(self, ticket: int) -> None:
        """Give a request up, wherever it is; nothing, if it has ended."""
        self._queue = deque(it for it in self._queue if it.ticket != ticket)
        for flight in [it for it in self._flights if it.ticket == ticket]:
            self._leave(flight)

    def advance(self) -> list[Finished]:
        """Let requests join, and carry out one forward of the target for all of them; the requests that are over."""
        while self._queue and self._free:
            self._join(self._queue.popleft())
        while drafting := [it for it in self._flights if it.forward.sequence.context is not self._target]:
            self._share(drafting)
        self._share(self._flights)
        over, self._over = self._over, []
        return over

    def _join(self, waiting: _Waiting) -> None:
        slot = self._free.pop(0)
        queued_ms = max(0.0, (time.time() - waiting.sent_at) * 1e3)
        work = self._work(waiting.prompt, waiting.generation, slot)
        try:
            forward = next(work)
        except StopIteration as done:
            self._free = sorted([*self._free, slot])
            self._over.append(Finished(waiting.ticket, _as_sent(done.value, queued_ms)))
        except SpecmeterError as error:
            self._free = sorted([*self._free, slot])
            self._over.append(Finished(waiting.ticket, error))
        else:
            self._flights.append(_Flight(waiting.ticket, slot, work, forward, queued_ms))
            self._flights.sort(key=lambda it: it.slot)

    def _share(self, flights: Sequence[_Flight]) -> None:
        """What these wait for, in one forward, or as few as their tokens fit into."""
        for group in list(_groups(flights)):
            context = group[0].forward.sequence.context
            began = time.perf_counter()
            try:
                rows = context.decode_together([it.forward for it in group])
            except SpecmeterError as error:
                for flight in group:
                    self._leave(flight)
                    self._over.append(Finished(flight.ticket, error))
                continue
            ended = time.perf_counter()
            for flight, its in zip(group, rows, strict=True):
                self._go_on(flight, TimedLogits(its, began, ended))

    def _go_on(self, flight: _Flight, answer: TimedLogits) -> None:
        try:
            flight.forward = flight.work.send(answer)
        except StopIteration as done:
            self._leave(flight)
            self._over.append(Finished(flight.ticket, _as_sent(done.value, flight.queued_ms)))
        except SpecmeterError as error:
            self._leave(flight)
            self._over.append(Finished(flight.ticket, error))

    def _leave(self, flight: _Flight) -> None:
        flight.work.close()
        self._flights.remove(flight)
        self._free = sorted([*self._free, flight.slot])


def _groups(flights: Iterable[_Flight]) -> Iterator[list[_Flight]]:
    """Requests whose forwards fit into one batch."""
    group: list[_Flight] = []
    tokens = rows = 0
    for flight in flights:
        forward, context = flight.forward, flight.forward.sequence.context
        its, its_rows = len(forward.tokens), len(forward.tokens) if forward.outputs == "all" else 1
        if group and (tokens + its > context.batch_size or rows + its_rows > context.rows):
            yield group
            group, tokens, rows = [], 0, 0
        group.append(flight)
        tokens, rows = tokens + its, rows + its_rows
    if group:
        yield group


def _as_sent(reply: Reply, queued_ms: float) -> Reply:
    """The reply with times from when it was sent, not from when it joined."""
    return reply.model_copy(
        update={
            "wall_ms": reply.wall_ms + queued_ms,
            "ttft_ms": None if reply.ttft_ms is None else reply.ttft_ms + queued_ms,
            "arrival_ms": tuple(at + queued_ms for at in reply.arrival_ms),
        }
    )
