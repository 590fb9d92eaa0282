"""Engines: what can generate tokens for a measurement. One interface, several implementations (`kinds` finds them).

An `Engine` starts `EngineSession`s, one per arm and block. A session generates one request at a time and can be
closed at any moment; closing always ends its whole process group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specmeter.engines.kinds import check_arm, load_engine
from specmeter.engines.session import Candidate, EngineSession, SessionFacts

if TYPE_CHECKING:
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
