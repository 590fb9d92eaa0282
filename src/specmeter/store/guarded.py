"""Opens `run.sqlite` for reading without changing its folder, and holds the lock of the one writer.

The run may be a stranger's, or may still be measured. How it is read depends on who else has it:

- *A process writes to it* (it holds the lock): in place, read-only, through the shared memory that SQLite's writer
  made, so that no request is read in halves.
- *No writer, and everything is in the main file*: in place as it is (`immutable`), without locks, and without the
  files that SQLite would make beside it. If the run is resumed meanwhile, the reader is told so.
- *No writer, but a kill left a WAL or a journal*: a private copy, which SQLite recovers.

A connection that reads may name nothing but our own tables, may call only a few functions, and does no more work than
a file of that size can need: a database can be made so that few pages hold billions of rows.

The lock is the operating system's own, on an open file: it ends with the process that holds it. The file's text only
names the holder, for messages.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from specmeter.errors import StoreError
from specmeter.files import NotPlainError, lock, open_inside, open_to_change, read_inside
from specmeter.store.database import (
    BUSY_TIMEOUT_S,
    DATABASE_FILES,
    DATABASE_NAME,
    format_of,
    refuse_foreign,
    refuse_odd_files,
    sqlite_errors,
    tables,
)
from specmeter.store.rows import MAX_DOCUMENT

LOCK_NAME = "run.lock"
PATIENCE_TRIES = 5
_MAX_BYTES = 4096


class RunLock:
    """Exclusive until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises `StoreError` when another process has it or the folder cannot be written."""
        try:
            self._file: int | None = open_to_change(folder, LOCK_NAME)
        except NotPlainError as error:
            raise StoreError(
                f"{folder / LOCK_NAME}: {error.strerror}", fix="remove this file if you trust the folder"
            ) from None
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be written ({error.strerror})",
                fix="make the folder writable, or copy it to a writable location",
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
                fix="use --out with a folder on a local disk",
            ) from None
        self.left_behind = os.fstat(self._file).st_size > 0
        """The last holder did not release it: it was killed."""
        _write(self._file, json.dumps({"pid": os.getpid(), "since": time.time()}))

    def was_moved_from(self, folder: Path) -> bool:
        """Whether the lock is held and no longer that of `folder`, which was moved, removed or replaced."""
        return self._file is not None and is_other(os.fstat(self._file), folder / LOCK_NAME)

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


def is_other(found: os.stat_result, path: Path) -> bool:
    """Whether a path leads to another file than the one that was found there, or to none."""
    try:
        return not os.path.samestat(found, path.lstat())
    except OSError:
        return True


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
        return StoreError(f"{folder}: another process is writing to this run", fix="wait until it ends")
    import psutil

    if not psutil.pid_exists(pid):
        return StoreError(
            f"{folder}: process {pid} has ended, but a process that it started still uses this run",
            fix="stop that engine process, then try again",
        )
    return StoreError(
        f"{folder}: process {pid} is writing to this run",
        fix=f"wait, stop process {pid}, or choose another folder with --out",
    )


def _recorded_pid(folder: Path) -> int | None:
    try:
        return int(json.loads(read_inside(folder, LOCK_NAME, _MAX_BYTES))["pid"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(file: int, text: str) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    os.ftruncate(file, 0)
    os.write(file, text.encode())


_WAL, _JOURNAL = f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-journal"
_FUNCTIONS = frozenset({"count", "min", "max", "coalesce"})
_PRAGMAS = frozenset({"integrity_check", "quick_check"})
_STEPS = 10_000
"""Of SQLite's machine between two looks at the work that is left: a fraction of a millisecond."""
_STEPS_AT_LEAST = 100_000
_STEPS_PER_BYTE = 2
"""A row of the plan, the shortest there is, has 60 bytes and takes some 40 steps."""
_MAX_COPIED = 64 * 2**30


class GuardedDatabase:
    """A run's database, open to be read; `close` it in the thread that opened it."""

    def __init__(self, folder: Path) -> None:
        """Raises `StoreError` for files that are not plain, for what is not a run, and for a damaged one."""
        self.path = folder / DATABASE_NAME
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._left = self._allowed = 0
        self._active = 0
        refuse_odd_files(folder)
        with sqlite_errors(self.path):
            self._seen = _state(self.path)
            live = is_written(folder)
            size = sum((folder / name).stat().st_size for name in (DATABASE_NAME, _WAL) if (folder / name).exists())
            self._allowed = _STEPS_AT_LEAST + _STEPS_PER_BYTE * size
            if live:
                self._seen = None
                self.db = self._limited(_connected(self.path, "mode=ro"))
            elif leftovers(folder):
                self.db = self._copied(folder)
            else:
                self.db = self._limited(_connected(self.path, "immutable=1"))
            self.db.execute("PRAGMA query_only = ON")
            self.db.set_authorizer(_authorizer())

    def close(self) -> None:
        """Safe to call twice."""
        self.db.close()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    @contextmanager
    def bounded(self) -> Generator[None]:
        """One query, with those that are made while it continues: bounded, and of one state of the file.

        Raises `StoreError` where the run was resumed meanwhile.
        """
        if not self._active:
            self._left = self._allowed
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
        if self._seen is not None and _state(self.path) != self._seen:
            raise StoreError(f"{self.path}: changed while being read", fix="try again")

    def _copied(self, folder: Path) -> sqlite3.Connection:
        """A private copy, with what lay beside the file merged."""
        self._scratch = tempfile.TemporaryDirectory(prefix="specmeter-")
        try:
            copy_database(folder, Path(self._scratch.name))
            return self._limited(sqlite3.connect(Path(self._scratch.name) / DATABASE_NAME, isolation_level=None))
        except BaseException:
            self._scratch.cleanup()
            raise

    def _limited(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """The connection, with its limits, after a look at its schema."""
        try:
            self._left = self._allowed
            db.set_progress_handler(self._work, _STEPS)
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_DOCUMENT)
            db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
                db.execute(f"PRAGMA {pragma}").fetchall()
            refuse_foreign(db, self.path)
        except BaseException:
            db.close()
            raise
        return db

    def _work(self) -> bool:
        self._left -= _STEPS
        return self._left < 0


def is_run(folder: Path) -> bool:
    """Whether a folder's database was completely created. Damage counts as a run, so that nothing overwrites it."""
    try:
        if (folder / DATABASE_NAME).lstat().st_size == 0:
            return False
    except OSError:
        return False
    if not (folder / _JOURNAL).exists():
        return True
    with tempfile.TemporaryDirectory(prefix="specmeter-") as scratch:
        try:
            refuse_odd_files(folder)
            copy_database(folder, Path(scratch))
            with closing(sqlite3.connect(Path(scratch) / DATABASE_NAME)) as db:
                return format_of(db) is not None
        except (sqlite3.Error, OSError, StoreError):
            return True


def leftovers(folder: Path) -> bool:
    """Whether what was written last lies beside the main file, in a run that is not being written."""
    wal = folder / _WAL
    return (folder / _JOURNAL).exists() or (wal.exists() and wal.stat().st_size > 0)


def copy_database(folder: Path, to: Path) -> None:
    """Copy the database with what a killed writer left beside it. Raises `StoreError`."""
    for name in DATABASE_FILES:
        if name.endswith("-shm"):  # made again from the WAL
            continue
        try:
            with open_inside(folder, name) as source, (to / name).open("xb") as copy:
                if source.seek(0, 2) > min(_MAX_COPIED, shutil.disk_usage(to).free):
                    raise OSError(errno.EFBIG, "is too large")
                source.seek(0)
                shutil.copyfileobj(source, copy, 2**20)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                f"{folder / name}: cannot be copied for reading ({error.strerror})",
                fix="check its permissions and the free space in the temporary folder (TMPDIR)",
            ) from None


def _connected(path: Path, how: str) -> sqlite3.Connection:
    place = path.resolve().as_posix()
    uri = f"file://{'' if place.startswith('/') else '/'}{quote(place.encode('utf-8', 'surrogateescape'))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written to. It is not opened: closing it would drop locks of this process."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _authorizer() -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Says which statements may be prepared: SELECTs of our own tables, with a few functions."""
    readable = {*tables(), "sqlite_master", "sqlite_schema"}

    def allowed(action: int, first: str | None, second: str | None, where: str | None, trigger: str | None) -> int:
        if trigger is not None:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ:
            ours = first in readable and where in ("main", None)
        elif action == sqlite3.SQLITE_FUNCTION:
            ours = second in _FUNCTIONS
        elif action == sqlite3.SQLITE_PRAGMA:
            ours = first in _PRAGMAS
        else:
            ours = action == sqlite3.SQLITE_SELECT
        return sqlite3.SQLITE_OK if ours else sqlite3.SQLITE_DENY

    return allowed
