"""Every exception a user can meet; each message names what is wrong and what to do about it.

- `SpecmeterError`
    - `UsageError`: a flag, a file the user named, or a combination of them (exit 2)
        - `ExperimentError`: an experiment file
        - `ModelError`: a model reference or a model file
        - `StoreError`: a run folder
    - `EngineError`: the engine failed (exit 3)
        - `EngineStartError`: it never became ready
        - `EngineDiedError`: it ended while it was needed
        - `EngineHungError`: it stopped making progress
        - `EngineProtocolError`: it answered something that cannot be understood
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


class SpecmeterError(Exception):
    """Base of all errors that are shown to a user without a traceback.

    `message` says what is wrong and where (file, field or flag); `fix` says what to do.
    """

    exit_code = 2

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}"


class UsageError(SpecmeterError):
    """A flag, an argument or a combination of them cannot be used."""


class ExperimentError(UsageError):
    """An experiment file is malformed or asks for something impossible."""


class ModelError(UsageError):
    """A model reference cannot be resolved, or a model file cannot be read."""


class StoreError(UsageError):
    """A run folder is missing, damaged, newer than this version, or belongs to something else."""


class EngineError(SpecmeterError):
    """An engine failed; what was measured before is kept."""

    exit_code = 3


class EngineStartError(EngineError):
    """The engine did not become ready."""


class EngineDiedError(EngineError):
    """The engine ended unexpectedly."""


class EngineHungError(EngineError):
    """The engine runs but makes no progress."""


class EngineProtocolError(EngineError):
    """The engine's reply cannot be understood."""


_stop = threading.Event()


def ask_to_stop() -> None:
    """Raises `KeyboardInterrupt` and remembers it: Python drops what is raised while SQLite, ctypes or a finalizer
    calls back."""
    _stop.set()
    raise KeyboardInterrupt


def stop_asked() -> bool:
    """Whether somebody asked to stop."""
    return _stop.is_set()


def stop_if_asked() -> None:
    """Raises the `KeyboardInterrupt` that may have been dropped: asked before each step of what takes long."""
    if stop_asked() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


@contextmanager
def no_stop_becomes_an_error() -> Generator[None]:
    """Pydantic reports a Ctrl-C while it serializes as an error of its own: within this it is a `KeyboardInterrupt`."""
    try:
        yield
    except Exception:
        stop_if_asked()
        raise


def forget_stop() -> None:
    """What was asked to stop has ended."""
    _stop.clear()


@contextmanager
def interruptible() -> Generator[None]:
    """Within it no Ctrl-C is lost where Python's own handler would raise it, as in notebooks; the command line
    and programs with a handler of their own keep theirs."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return

    def hear(_number: int, _frame: object) -> None:
        ask_to_stop()

    signal.signal(signal.SIGINT, hear)
    try:
        yield
        stop_if_asked()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        forget_stop()
