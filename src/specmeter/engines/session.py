"""An engine, and a session of it: running with its models loaded, what it says about itself and what it can be asked.

One request is `generate`. Several in flight are submitted, and collected as they end:

    tickets = [session.submit(prompt, generation) for prompt in prompts]
    while ended := session.collect():
        print(ended.ticket, ended.result)

`SessionFacts.in_flight` says how many of them run at once; the others wait their turn, in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
