"""What the tests of the instrumented engine share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engines.llama_fixtures import core
from specmeter.llama_binding.context import Context
from specmeter.record import EngineSettings

Opened = Callable[..., Context]
SETTINGS = EngineSettings(context=512)


def core_path(name: str) -> Path:
    """The file of a shipped core."""
    return Path(core(name).path)
