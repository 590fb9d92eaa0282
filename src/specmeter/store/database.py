"""Making `run.sqlite` and writing to it, and telling people what is wrong with it in words they can act on.

Durability: WAL with `synchronous=FULL`. Each commit is one append to the WAL and one fsync, so a request survives a
killed process and a crash of the machine, at about the price of the fsync. (NORMAL would survive the kill only; on
macOS fsync reaches the drive but not always its platter: `fullfsync` would cost tens of milliseconds a request to
guard laptops that have a battery anyway.)

A run that is resumed may come from a stranger: its files are looked at before SQLite opens them, and its
schema before anything is written. How a run is read without changing it is in `guarded`.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from specmeter.errors import StoreError
from specmeter.files import oddity, open_inside
from specmeter.store.schema import FORMAT, foreign_objects, format_of, missing_objects

DATABASE_NAME = "run.sqlite"
DATABASE_FILES = tuple(DATABASE_NAME + end for end in ("", "-wal", "-shm", "-journal"))
BUSY_TIMEOUT_S = 10.0
_JOURNAL_OF_SEVERAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
"""How a rollback journal ends that names another file, which SQLite would delete; one of ours never does."""


def create_database(path: Path, birth: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """A new file, with what `birth` writes into it: all of that or, when killed meanwhile, nothing.

    The rollback journal is still in use here, so a file that is not empty and has no journal beside it is complete.
    """
    refuse_odd_files(path.parent)
    with sqlite_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            birth(db)
            db.execute("COMMIT")
            _tune(db)
        except BaseException:
            db.close()
            raise
    return db


def open_to_write(path: Path, *, suspect: bool) -> sqlite3.Connection:
    """An existing run; the caller holds the lock. SQLite recovers what a killed run left; `suspect` has it checked."""
    refuse_odd_files(path.parent)
    with sqlite_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            refuse_foreign(db, path)
            _tune(db)
            if suspect:
                check(db, path, quick=True)
        except BaseException:
            db.close()
            raise
    return db


def close_written(db: sqlite3.Connection) -> None:
    """Close it, with everything in the main file: a reader that looks on would keep SQLite from doing so by itself."""
    try:
        db.execute("PRAGMA busy_timeout = 500")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error:  # a full disk; what was committed lies in the WAL
        pass
    finally:
        db.close()


def refuse_odd_files(folder: Path) -> None:
    """Raises `StoreError` where the database or what SQLite keeps beside it is not a plain file, or names another
    one."""
    for name in DATABASE_FILES:
        if why := oddity(folder, name):
            raise StoreError(
                f"{folder / name}: {why}", fix="get the run folder from where it was made, or copy it with `cp -rL`"
            )
    if _journal_end(folder) == _JOURNAL_OF_SEVERAL:
        raise StoreError(
            f"{folder / DATABASE_NAME}-journal: names a file elsewhere, which SQLite would delete",
            fix=f"get the run folder from where it was made; specmeter never wrote this {DATABASE_NAME}-journal",
        )


def _journal_end(folder: Path) -> bytes:
    try:
        with open_inside(folder, f"{DATABASE_NAME}-journal") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(_JOURNAL_OF_SEVERAL)))
            return file.read()
    except OSError:
        return b""


def refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    """Raises `StoreError` for another program's database, for another format, and for one with more or other objects
    than ours: a view, a trigger or an index of a stranger would be carried out by whatever reads or writes."""
    made = format_of(db)
    if made is None:
        raise StoreError(f"{path}: is a database, but not a specmeter run", fix="name a folder made by `specmeter run`")
    number, writer = made
    if number != FORMAT:
        raise StoreError(
            f"{path}: has format {number}, written by specmeter {writer[:_LONGEST_REASON]}; this one reads format "
            f"{FORMAT}",
            fix="use the version that wrote it, or measure again into another folder with --out",
        )
    if foreign := foreign_objects(db):
        raise StoreError(
            f"{path}: contains something specmeter did not write ({foreign[0][:_LONGEST_REASON]!r})",
            fix="get the run folder from where it was made, or drop it with `sqlite3` if it is your own",
        )
    if missing := missing_objects(db):
        raise damaged(path, f"something specmeter wrote is missing: {missing[0][:_LONGEST_REASON]!r}")


def check(db: sqlite3.Connection, path: Path, *, quick: bool) -> None:
    """Let SQLite look for damage; `quick` skips the comparison of indexes with tables. Raises `StoreError`."""
    pragma = "quick_check" if quick else "integrity_check"
    with sqlite_errors(path):
        problems = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}(3)")]
    if problems != ["ok"]:
        raise damaged(path, "; ".join(problems))


_LONGEST_REASON = 300
"""Characters of an error that are shown."""


def unreadable(path: Path, what: str, error: Exception) -> StoreError:
    """A record that is not what a run stores: nothing that SQLite could recover, unless its bytes are broken."""
    from pydantic import ValidationError

    from specmeter.record.faults import first_fault

    if isinstance(error, zlib.error):
        return damaged(path, f"{what}: {error}")
    why = first_fault(error, "record") if isinstance(error, ValidationError) else str(error)
    return StoreError(
        f"{path}: {what} cannot be read ({why[:_LONGEST_REASON]})",
        fix="it was changed or written by another version: get the run folder from where it was made, or measure again",
    )


def damaged(path: Path, detail: str) -> StoreError:
    name = path.name
    return StoreError(
        f"{path}: is damaged ({detail})",
        fix=f"copy {name} and {name}-wal together first (the newest requests are in the -wal), then in the copy: "
        f"sqlite3 {name} .recover | sqlite3 rescued.sqlite (.dump where .recover is missing), "
        f"and put rescued.sqlite in place of {name} and {name}-wal",
    )


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    """Turns what SQLite raises about files into a `StoreError`; mistakes in our SQL pass through."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damaged(path, str(error)) from None
        if code in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG):
            raise damaged(path, f"it yields more data than its size allows: {error}") from None
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise StoreError(
                f"{path}: cannot be written ({error}); everything stored before is safe",
                fix="free disk space, then start the same run again: it resumes with what is missing",
            ) from None
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise StoreError(
                f"{path}: cannot be opened ({error})",
                fix="check the permissions of the file and its folder, or copy the run folder to a writable place",
            ) from None
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreError(
                f"{path}: another program keeps the file locked",
                fix="close the program that has it open, then try again",
            ) from None
        raise


def _tune(db: sqlite3.Connection) -> None:
    # A file system without shared memory (some network drives) keeps the rollback journal: as durable, only slower.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
