"""The interface of an engine and of its sessions: what each says about itself and what it can be asked.

One request is `generate`. Several in flight are submitted, and collected as they end:

    tickets = [session.submit(prompt, generation) for prompt in prompts]
    while ended := session.collect():
        print(ended.ticket, ended.result)

`SessionFacts.in_flight` says how many of them run at once; the others wait their turn, in order.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NewType, Protocol, Self

from specmeter.errors import SpecmeterError

if TYPE_CHECKING:
    from specmeter.record import Arm, DeviceUse, EngineIdentity, Generation, ModelIdentity, Prompt, Reply


@dataclass(frozen=True)
class Launch:
    """All that an engine needs to start a session for one arm."""

    arm: Arm
    target: ModelIdentity
    draft: ModelIdentity | None
    log_path: Path
    """Where the engine's own output is captured."""
    start_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    """No token for this long means that the engine hangs."""
    kept_prompts_mib: int = 0
    """Room that a server has for what it read of prompts, beside the one at hand."""
    reuse: bool = False
    """Whether requests continue from what the server read of their prompt."""
    recalls: bool = False
    """Whether `recall` says what the server has of each prompt: it keeps nothing besides."""
    before: int = 0
    """Sessions of this arm that the run had already, so that a simulated one that is resumed does not repeat them."""


@dataclass(frozen=True)
class SessionFacts:
    """What a session says about itself once it is ready; `measure` turns it into a `Session` record."""

    argv: tuple[str, ...]
    ready_ms: float
    resolved: dict[str, Any]
    speculating: bool | None = None
    devices: tuple[DeviceUse, ...] = ()
    draft_devices: tuple[DeviceUse, ...] = ()
    layers_offloaded: tuple[int, int] | None = None
    draft_layers_offloaded: tuple[int, int] | None = None
    pids: tuple[int, ...] = ()
    """Processes of the engine, for telemetry."""
    in_flight: int = 1
    """Requests that run at the same time; more wait their turn."""
    server: str | None = None
    """Which process it is, where one is kept for several sessions."""


Ticket = NewType("Ticket", int)
"""A request in flight, by a number that its session gives out once."""


class Ended(NamedTuple):
    """A request that is over."""

    ticket: Ticket
    result: Reply | SpecmeterError
    """What `generate` would have returned or raised."""
    started_at: float | None = None
    """When it was sent, by the clock of the engine; None for one that never was."""
    slot: int | None = None
    """Slot of the server that answered it; None where the engine does not say."""
    queued_ms: float | None = None
    """How long the engine let it wait before it began with it; None where the engine does not say."""


class Candidate(NamedTuple):
    """A token that may come next."""

    token: int
    logprob: float
    """Natural logarithm of the target's probability, before any sampling."""


class EngineSession(Protocol):
    """One running engine with one target (and draft) loaded."""

    facts: SessionFacts

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        ...

    def recall(self, prompt: Prompt) -> None:
        """Bring what was read to where it was when this call of a recorded session came; nothing for other prompts, and
        where nothing is kept. Raises what `generate` raises."""

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        """Put a request in flight and return at once. One thread submits, collects and cancels.

        A request that fails, fails alone: its error is collected. An engine that dies fails all that are in flight.
        """
        ...

    def collect(self, timeout_s: float | None = None) -> Ended | None:
        """The next request that ends; None when nothing is in flight, or nothing ended within `timeout_s` seconds."""
        ...

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up: it is never collected, and the engine stops working on it. Nothing, if it has ended."""
        ...

    def totals(self) -> dict[str, float]:
        """What the engine has counted since it started, by the names of `LoadCell.counters`; empty where it counts
        nothing. Not while requests are in flight that are being measured."""
        return {}

    def settle(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """The replies of a cell under load, all of which have ended, with what is known only then: what the engine logs
        of each. The same ones in the same order; unchanged where nothing comes to them."""
        return replies

    def wait(self, seconds: float) -> None:
        """Let time pass by the engine's clock, with nothing in flight."""
        time.sleep(seconds)

    def candidates(
        self, prompt: Prompt, generated: tuple[int, ...], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target thinks may follow `prompt` and the tokens `generated` after it, likeliest first.

        At least one, at most `count`. The first is what greedy decoding says: likelier tokens that `generation` rules
        out (the end, with `ignore_eos`) are not listed. Raises what `generate` raises.
        """
        ...

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids that the target processes for `prompt`: its template and what the model adds are part of it."""
        ...

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without special tokens added, for length-controlled prompts."""
        ...

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Text of `token_ids`."""
        ...

    def close(self) -> None:
        """Give up what is in flight, and end the engine and everything it started; safe to call twice."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Engine(Protocol):
    """Starts sessions. What it is asked and what it can tell, its traits say (`specmeter.engines.registry`)."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte (hashes are cached by size and modification time), and its traits."""
        ...

    def start(self, launch: Launch) -> EngineSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`."""
        ...

    def clock(self) -> float:
        """Seconds since the epoch; virtual for engines that simulate time."""
        ...


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What each counter grew by; one that first appears in `after` started from 0."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


# --- several requests in flight, on threads --------------------------------------------------------------------------

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


class SlotReply(NamedTuple):
    """How a request in flight was answered."""

    reply: Reply
    slot: int | None = None
    queued_ms: float | None = None


class ThreadedSession(EngineSession):
    """A session whose engine is asked by `answer`, which blocks: at most `facts.in_flight` threads do so at a time.

    They start with the first `submit`: a lone `generate` stays on the thread that calls it and meets none of this.
    Threads and not an event loop, because the clients are our own and block in `recv`, where they cost the engine
    least; bytes are only stamped and stored while a reply streams, so that threads hardly ever meet at the
    interpreter's lock.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._flying: dict[Ticket, Stop] = {}
        self._ended: SimpleQueue[tuple[Ticket, SlotReply | Exception, float]] = SimpleQueue()
        self.most_at_once = 0
        """Requests that may be on their way at once, where these are more than the engine works on."""
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def answer(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        """What `generate` does. Raises anything once `stop` was asked."""

    def fly(self, prompt: Prompt, generation: Generation, stop: Stop) -> SlotReply:
        """What `submit` does with a request that has started, where that is not what `generate` does."""
        return SlotReply(self.answer(prompt, generation, stop))

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
            result: SlotReply | Exception = self.fly(prompt, generation, stop)
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
