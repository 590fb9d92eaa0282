"""Engines: what can generate tokens for a measurement. One interface, several implementations.

An `Engine` starts `EngineSession`s, one per arm and block. A session generates one request at a time and can be
closed at any moment; closing always ends its whole process group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specmeter.engines.session import Candidate, EngineSession, SessionFacts

if TYPE_CHECKING:
    from specmeter.engines.mock import MockSpec
    from specmeter.record import Arm, EngineIdentity, ModelIdentity

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
