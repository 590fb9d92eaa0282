"""Starts and ends engine processes, each in a group of its own, and runs single jobs in a child process.

A crash of a job ends only the child. `run_in_subprocess` is the parent's side, `serve` the child's. The child reads an
order (JSON, from standard input) and leaves in the folder that it is given: `progress`, a line for every part that is
done; what the job itself writes; and `error.json` if the job cannot be done. It ends with its parent, even if that is
killed (`engines.guard`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import psutil
from pydantic import BaseModel, Field

from specmeter.engines import guard
from specmeter.engines.llama_cpp.log import last_words
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineStartError, SpecmeterError, UsageError
from specmeter.files import without_links
from specmeter.record import Record

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


S = TypeVar("S")


def on_free_port(start: Callable[[int], S], attempts: int) -> S:
    """What `start` makes of a free port; another is tried, so often in all, where a program took it meanwhile. `start`
    ends what it began before it raises `EngineStartError`."""
    while True:
        port, attempts = free_port(), attempts - 1
        try:
            return start(port)
        except EngineStartError:
            if is_free(port) or attempts < 1:
                raise


Heard = Callable[[int, int], None]
"""Called with (parts done, parts in all)."""

_ERROR, _PROGRESS, _LOG = "error.json", "progress", "llama.log"
_MAX_BYTES = 64 * 2**20
_MAX_LOG = 256 * 1024
_POLL_S = 0.1


class _Error(Record):
    engine: bool
    """Whether llama.cpp failed, or the order cannot be carried out."""
    message: Annotated[str, Field(max_length=10_000)]
    fix: Annotated[str, Field(max_length=10_000)]


def run_in_subprocess(
    module: str,
    order: BaseModel,
    folder: Path,
    heard: Heard | None = None,
    *,
    limit_s: float | None = None,
    started: Callable[[Sequence[int]], None] | None = None,
) -> None:
    """Run `python -m MODULE`, whose main program is `serve`, to its end in `folder`, which must be empty.

    `started` receives the ids of its processes.

    Raises what the job raised as `EngineError` or `UsageError`, `EngineDiedError` when the child ended otherwise, and
    `EngineHungError` when it is not done after `limit_s`; it is ended then.
    """
    process = EngineProcess(
        (sys.executable, "-P", "-m", module, str(folder)),
        env=clean_environment(trace=False),
        log_path=folder / _LOG,
        stdin=order.model_dump_json(),
    )
    if started is not None:
        started(process.pids())
    told, ends_at = "", None if limit_s is None else time.monotonic() + limit_s
    try:
        code = None
        while code is None:
            if ends_at is not None and time.monotonic() > ends_at:
                raise EngineHungError(f"llama.cpp did not finish within {limit_s:.0f} s", fix="use a smaller model")
            code = process.wait(_POLL_S)
            # Also after the end: a child that is done within one look has told what it did all the same.
            line = _last_line(folder / _PROGRESS) if heard is not None else ""
            if heard is not None and line not in ("", told):
                told = line
                heard(*map(int, line.split("/")))
    finally:
        process.close()
    if (folder / _ERROR).exists():
        error = _Error.model_validate_json(read_result(folder / _ERROR))
        raise (EngineError if error.engine else UsageError)(error.message, fix=error.fix)
    if code != 0:
        raise _died(code, folder / _LOG)


def read_result(path: Path) -> bytes:
    """What the job left in a file. Raises `EngineDiedError` when there is nothing, or too much."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError:
        content = b""
    if not content or len(content) > _MAX_BYTES:
        raise EngineDiedError(
            f"{path.name}: the measuring process wrote no result", fix="check that the disk is not full, and try again"
        )
    return content


def serve(job: Callable[[str, Path, Heard], None]) -> int:
    """The child's main program: carry out one order; the exit code. `job` gets the order as JSON, and the folder."""
    folder = Path(sys.argv[1])
    order = sys.stdin.read()
    with (folder / _PROGRESS).open("ab", buffering=0) as progress:

        def heard(parts: int, total: int) -> None:
            progress.write(f"{parts}/{total}\n".encode())

        try:
            job(order, folder, heard)
        except SpecmeterError as error:
            told = _Error(engine=isinstance(error, EngineError), message=error.message[:10_000], fix=error.fix[:10_000])
            (folder / _ERROR).write_text(told.model_dump_json(), encoding="utf-8")
            return 1
    return 0


def _last_line(path: Path) -> str:
    """The last complete line, empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 100))
            lines = file.read().decode().split("\n")
    except OSError:
        return ""
    return lines[-2] if len(lines) > 1 else ""


def _died(code: int, log: Path) -> EngineDiedError:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MAX_LOG))
        words = last_words(file.read().decode("utf-8", "replace"))
    return EngineDiedError(
        f"llama.cpp ended during the measurement (exit code {code}): {'; '.join(words) or 'it printed nothing'}",
        fix="check the model file with `specmeter models inspect`, and that enough memory is free",
    )
