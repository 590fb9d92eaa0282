"""One engine process: started in a group of its own, ended as a whole, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from specmeter.engines import guard
from specmeter.errors import EngineStartError
from specmeter.files import without_links

LOOPBACK = "127.0.0.1"


class EngineProcess:
    """A command under `guard`, its output going straight into a file.

    The guard holds the far end of a pipe; when this process closes it or dies in any way, the engine is ended.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, stdin: str = "") -> None:
        """Start `argv`; `stdin` is what it reads from its standard input. Raises `EngineStartError`."""
        self.log_path = log_path
        order = json.dumps({"argv": list(argv), "stdin": stdin}).encode() + b"\n"
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(log_path, "wb", opener=without_links) as log:
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
        except OSError as error:
            raise EngineStartError(
                f"cannot start an engine that writes to {log_path} ({error.strerror})",
                fix="check that the folder is writable and that memory and process slots are free",
            ) from error
        assert self._guard.stdin is not None
        self._lifeline = self._guard.stdin
        with contextlib.suppress(BrokenPipeError):  # a guard that died at once is seen by `exit_code`
            self._lifeline.write(order)
            self._lifeline.flush()

    def exit_code(self) -> int | None:
        """None while it runs; 128 + number when a signal ended it."""
        return self._guard.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None when it still runs after `timeout_s` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._guard.wait(timeout_s)
        return None

    def pids(self) -> tuple[int, ...]:
        """Processes of the engine that are alive now, without the guard."""
        with contextlib.suppress(psutil.Error):
            return tuple(child.pid for child in psutil.Process(self._guard.pid).children(recursive=True))
        return ()

    def close(self) -> None:
        """End the engine and everything it started, politely and then by force; safe to call twice."""
        with contextlib.suppress(OSError):
            self._lifeline.close()
        try:
            if self.wait(guard.GRACE_S + 1.0) is None:
                self._kill()
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.kill()
        self._guard.wait()


def clean_environment(*, trace: bool) -> dict[str, str]:
    """This process's environment without what would configure llama.cpp behind the experiment's back."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    return env | {"LLAMA_TRACE": "1"} if trace else env


def default_threads() -> int:
    """Physical cores, as far as this process may use them."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(psutil.cpu_count(logical=False) or usable, usable))


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Whether nothing listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return True
    return False
