"""One writer per run folder.

The lock is the operating system's own, on an open file: it ends with the process that holds it, however that process
ends, so a killed run never leaves a stale lock behind. The file's text only names the holder, for messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import psutil

from specmeter.errors import StoreError
from specmeter.files import NotPlainError, lock, open_inside, open_to_change, read_inside

LOCK_NAME = "run.lock"
PATIENCE_TRIES = 5
_MOST_BYTES = 4096


class RunLock:
    """Exclusive until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises `StoreError` when another process has it or the folder cannot be written."""
        try:
            self._file: int | None = open_to_change(folder, LOCK_NAME)
        except NotPlainError as error:
            raise StoreError(
                f"{folder / LOCK_NAME}: {error.strerror}", fix="remove it, if you trust this folder to be a run"
            ) from None
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be written ({error.strerror})",
                fix="make the folder writable, or copy it to a place that is",
            ) from None
        try:
            _lock_patiently(self._file)
        except BlockingIOError:
            self._drop()
            raise _busy(folder) from None
        except OSError as error:
            self._drop()
            raise StoreError(
                f"{folder}: this file system does not support file locks ({error.strerror})",
                fix="choose a folder on a local disk with --out",
            ) from None
        self.left_behind = os.fstat(self._file).st_size > 0
        """The last holder did not release it: it was killed."""
        _write(self._file, json.dumps({"pid": os.getpid(), "since": time.time()}))

    def release(self, *, clean: bool = True) -> None:
        """Let others in; safe to call twice. Unless `clean`, the next holder finds it as after a kill.

        The file stays: removing it would race with the next holder.
        """
        if self._file is not None:
            # A disk that is full now must not keep the lock.
            with contextlib.suppress(OSError):
                if clean:
                    _write(self._file, "")
            self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_written(folder: Path) -> bool:
    """Whether a process writes to the run folder now. It is asked without changing anything in it."""
    try:
        file = open_inside(folder, LOCK_NAME)
    except OSError:
        return False
    with file:
        try:
            lock(file.fileno(), shared=True)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks, on which nothing can be measured
            return False
    return False


def _lock_patiently(file: int) -> None:
    """A reader who asks whether the run `is_written` holds the lock for an instant; that must not refuse a run."""
    for _ in range(PATIENCE_TRIES):
        try:
            return lock(file)
        except BlockingIOError:
            time.sleep(0.02)
    return lock(file)


def _busy(folder: Path) -> StoreError:
    pid = _recorded_pid(folder)
    if pid is None:
        return StoreError(f"{folder}: another process is writing to this run", fix="wait until it has ended")
    if not psutil.pid_exists(pid):
        return StoreError(
            f"{folder}: process {pid} wrote to this run and has ended, but a process it started is still running",
            fix="end the engine it left running, then try again",
        )
    return StoreError(
        f"{folder}: process {pid} is writing to this run",
        fix=f"wait for it, end process {pid}, or choose another folder with --out",
    )


def _recorded_pid(folder: Path) -> int | None:
    try:
        return int(json.loads(read_inside(folder, LOCK_NAME, _MOST_BYTES))["pid"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(file: int, text: str) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    os.ftruncate(file, 0)
    os.write(file, text.encode())
