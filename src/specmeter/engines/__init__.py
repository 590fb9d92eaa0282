"""Engines: what can generate tokens for a measurement. One interface, several implementations (`registry` finds them).

An `Engine` starts `EngineSession`s, one per arm and block. A session generates one request at a time and can be
closed at any moment; closing always ends its whole process group.
"""

from __future__ import annotations

from specmeter.engines.registry import check_arm, load_engine
from specmeter.engines.session import Candidate, Engine, EngineSession, Launch, SessionFacts

__all__ = ["Candidate", "Engine", "EngineSession", "Launch", "SessionFacts", "check_arm", "load_engine"]
