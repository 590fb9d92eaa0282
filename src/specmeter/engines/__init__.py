"""Engines: what can generate tokens for a measurement. One interface, several implementations (`kinds` finds them).

An `Engine` starts `EngineSession`s, one per arm and block. A session generates one request at a time and can be
closed at any moment; closing always ends its whole process group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from specmeter.engines.kinds import check_arm, load_engine

if TYPE_CHECKING:
    from specmeter.record import (
        Arm,
        DeviceUse,
        EngineIdentity,
        Generation,
        ModelIdentity,
        Prompt,
        Reply,
    )

__all__ = ["Candidate", "Engine", "EngineSession", "Launch", "SessionFacts", "check_arm", "load_engine"]


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


class Candidate(NamedTuple):
    """A token that may come next."""

    token: int
    logprob: float
    """Natural logarithm of the target's probability, before any sampling."""


class EngineSession(Protocol):
    """One running engine with one target (and draft) loaded."""

    @property
    def facts(self) -> SessionFacts: ...

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        ...

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
        """End the engine and everything it started; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Engine(Protocol):
    """Starts sessions. What it is asked and what it can tell, its kind's traits say (`specmeter.engines.kinds`)."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte (hashes are cached by size and modification time), and its traits."""
        ...

    def start(self, launch: Launch) -> EngineSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`."""
        ...

    def clock(self) -> float:
        """Seconds since the epoch; virtual for engines that simulate time."""
        ...
