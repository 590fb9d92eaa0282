"""Engines: what can generate tokens for a measurement. One interface, several implementations.

An `Engine` starts `EngineSession`s, one per arm and block. A session generates one request at a time and can be
closed at any moment; closing always ends its whole process group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from specmeter.engines.mock import MockSpec
    from specmeter.record import (
        Arm,
        DeviceUse,
        EngineIdentity,
        Generation,
        ModelIdentity,
        Prompt,
        Reply,
    )


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
    """Starts sessions."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte (hashes are cached by size and modification time)."""
        ...

    def start(self, launch: Launch) -> EngineSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`."""
        ...

    def clock(self) -> float:
        """Seconds since the epoch; virtual for engines that simulate time."""
        ...


def load_engine(kind: str, *, binary: str | None = None, mock: MockSpec | None = None) -> Engine:
    """The engine of that kind, its module imported only now.

    Raises `EngineStartError` when the engine is not usable on this machine, `KeyError` for an unknown kind.
    """
    return _LOADERS[kind](binary, mock)


def check_arm(kind: str, arm: Arm, *, has_draft: bool) -> None:
    """Raise `ExperimentError`, naming the field, for an arm that engines of this kind cannot run as it is written."""
    if kind == "libllama":
        from specmeter.engines.libllama import methods

        methods.check_arm(arm, has_draft=has_draft)
    elif kind != "mock":
        from specmeter.engines.llama_cpp import methods as llama_methods

        llama_methods.check_arm(arm, has_draft=has_draft)
        if kind == "embedded" and arm.engine.rpc:
            from specmeter.errors import ExperimentError

            raise ExperimentError(
                f"arm {arm.id}: engine.rpc: the embedded engine was built without RPC",
                fix="use a native llama-server built with -DGGML_RPC=ON (engine.kind: native)",
            )


def _embedded(binary: str | None, mock: MockSpec | None) -> Engine:  # noqa: ARG001
    from specmeter.engines.llama_cpp.embedded import EmbeddedEngine

    return EmbeddedEngine()


def _native(binary: str | None, mock: MockSpec | None) -> Engine:  # noqa: ARG001
    from specmeter.engines.llama_cpp.native import NativeEngine

    return NativeEngine(Path(binary) if binary else None)


def _mock(binary: str | None, mock: MockSpec | None) -> Engine:  # noqa: ARG001
    from specmeter.engines.mock import MockEngine, MockSpec

    return MockEngine(mock or MockSpec())


def _libllama(binary: str | None, mock: MockSpec | None) -> Engine:  # noqa: ARG001
    from specmeter.engines.libllama.engine import LibllamaEngine

    return LibllamaEngine()


_LOADERS = {"embedded": _embedded, "native": _native, "libllama": _libllama, "mock": _mock}
