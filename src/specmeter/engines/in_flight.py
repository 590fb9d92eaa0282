"""Several requests in flight through an interface that blocks: each on a thread, started with the first `submit`.

A lone `generate` stays on the thread that calls it and meets none of this. Threads and not an event loop, because the
clients are our own and block in `recv`, where they cost the engine least; bytes are only stamped and stored while a
reply streams, so that threads hardly ever meet at the interpreter's lock.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from specmeter.engines.session import Ended, EngineSession, Ticket
from specmeter.errors import SpecmeterError

if TYPE_CHECKING:
    from specmeter.record import Generation, Prompt, Reply

_TICK_S = 0.5
"""Waits are cut into these, since Ctrl-C does not end a longer one on Windows."""


class GivenUpError(Exception):
    """The request was cancelled while it waited for the engine."""


class Stop:
    """A request's own: when it began, and from another thread that it is given up."""

    def __init__(self) -> None:
        self.asked = False
        self.began_at = 0.0
        """When the engine was asked, by the engine's clock; 0 before."""
        self._lock = threading.Lock()
        self._break_off: Callable[[], object] | None = None

    def begin(self) -> None:
        """The engine is asked now; of several times the last one counts, as some requests need to be prepared."""
        self.began_at = time.time()

    def ask(self) -> None:
        with self._lock:
            self.asked = True
            if self._break_off is not None:
                self._break_off()

    def by(self, break_off: Callable[[], object] | None) -> None:
        """`break_off` ends the wait of the request from now on; it is called at once where that was asked for."""
        with self._lock:
            self._break_off = break_off
            if self.asked and break_off is not None:
                break_off()


class Flown(NamedTuple):
    """How a request in flight was answered."""

    reply: Reply
    slot: int | None = None
    queued_ms: float | None = None


class ThreadedSession(EngineSession):
    """A session whose engine is asked by `answer`, which blocks: at most `facts.in_flight` threads do so at a time."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._flying: dict[Ticket, Stop] = {}
        self._ended: SimpleQueue[tuple[Ticket, Flown | Exception, float]] = SimpleQueue()
        self.most_at_once = 0
        """Requests that may be on their way at once, where these are more than the engine works on."""
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def answer(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        """What `generate` does. Raises anything once `stop` was asked."""

    def fly(self, prompt: Prompt, generation: Generation, stop: Stop) -> Flown:
        """What `submit` does with a request that has begun, where that is not what `generate` does."""
        return Flown(self.answer(prompt, generation, stop))

    @abstractmethod
    def end(self) -> None:
        """End the engine and everything it started, so that every `answer` ends; safe to call twice."""

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        return self.answer(prompt, generation, Stop())

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        """Put a request in flight and return at once; see the protocol."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                max(self.facts.in_flight, self.most_at_once), thread_name_prefix="request"
            )
        ticket, stop = Ticket(next(self._numbers)), Stop()
        self._flying[ticket] = stop
        self._threads.submit(self._fly, ticket, prompt, generation, stop)
        return ticket

    def collect(self, timeout_s: float | None = None) -> Ended | None:
        """The next request that ends; see the protocol."""
        ends_at = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        while self._flying:
            left = ends_at - time.monotonic()
            try:
                ticket, result, began_at = self._ended.get(timeout=max(0.0, min(_TICK_S, left)))
            except Empty:
                if left <= 0:
                    return None
                continue
            if self._flying.pop(ticket, None) is None:
                continue  # it was cancelled
            if isinstance(result, Exception) and not isinstance(result, SpecmeterError):
                raise result
            if isinstance(result, Exception):
                return Ended(ticket, result, began_at)
            return Ended(ticket, result.reply, began_at, result.slot, result.queued_ms)
        return None

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up; see the protocol."""
        if (stop := self._flying.pop(ticket, None)) is not None:
            stop.ask()

    def close(self) -> None:
        """Give up what is in flight, and end the engine; safe to call twice."""
        for ticket in tuple(self._flying):
            self.cancel(ticket)
        try:
            self.end()
        finally:
            if self._threads is not None:
                self._threads.shutdown()
                self._threads = None

    def _fly(self, ticket: Ticket, prompt: Prompt, generation: Generation, stop: Stop) -> None:
        if stop.asked:
            return
        stop.begin()
        try:
            result: Flown | Exception = self.fly(prompt, generation, stop)
        except Exception as error:
            result = error
        self._ended.put((ticket, result, stop.began_at))


class Overlaps:
    """Notices requests that ran at the same time: what their server counts as a whole belongs to none of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._begun = 0

    @contextmanager
    def watch(self) -> Generator[Callable[[], bool]]:
        """Around a request: whether it has been alone so far."""
        with self._lock:
            self._running += 1
            self._begun += 1
            begun, alone = self._begun, self._running == 1
        try:
            yield lambda: alone and self._begun == begun
        finally:
            with self._lock:
                self._running -= 1
