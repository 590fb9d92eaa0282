"""Opening `run.sqlite`, and telling people what is wrong with it in words they can act on.

Durability: WAL with `synchronous=FULL`. Each commit is one append to the WAL and one fsync, so a request survives a
killed process and a crash of the machine, at about the price of the fsync. (NORMAL would survive the kill only; on
macOS fsync reaches the drive but not always its platter: `fullfsync` would cost tens of milliseconds a request to
guard laptops that have a battery anyway.)
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from specmeter.errors import StoreError
from specmeter.store.migrations import MIGRATIONS, migrate, schema_version

BUSY_TIMEOUT_S = 10.0


def create_database(path: Path, birth: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """A new file, with what `birth` writes into it: all of that or, when killed meanwhile, nothing.

    The rollback journal is still in use here, so a file that is not empty and has no journal beside it is complete.
    """
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
    with sqlite_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            refuse_foreign(db, path)
            _tune(db)
            if suspect:
                check(db, path, quick=True)
            if schema_version(db) < len(MIGRATIONS):
                db.execute("BEGIN IMMEDIATE")
                migrate(db)
                db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
    return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """An existing run, while somebody else may be writing to it.

    The connection may write in SQLite's own terms (it has to, to read the WAL of a killed run), but no statement
    that changes anything gets through. On read-only media the file is read as it is.
    """
    with sqlite_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            db.close()
            if wal_size(path) > 0:
                raise StoreError(
                    f"{path}: the newest requests lie in {path.name}-wal, which cannot be merged in a read-only folder",
                    fix="copy the whole run folder to a writable place and use the copy",
                ) from None
            db = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, isolation_level=None)
        try:
            refuse_foreign(db, path)
            if schema_version(db) < len(MIGRATIONS):
                raise StoreError(
                    f"{path}: was written by an older specmeter (schema {schema_version(db)} of {len(MIGRATIONS)})",
                    fix="open it once for writing: `specmeter run` on its experiment, or RunStore.open(folder).close()",
                )
            db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
    return db


def is_run(path: Path) -> bool:
    """Whether the file was completely created. Damage counts as a run, so that nothing overwrites it."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    if not path.with_name(path.name + "-journal").exists():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as db:
            return schema_version(db) > 0
    except sqlite3.Error:
        return True


def is_older(path: Path) -> bool:
    """Whether the file was written by an older specmeter; damage and foreign files are for others to tell."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as db:
            return 0 < schema_version(db) < len(MIGRATIONS)
    except sqlite3.Error:
        return False


def wal_size(path: Path) -> int:
    """Bytes of requests not yet merged into the main file."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    """Raises `StoreError` for another program's database and for a newer specmeter's."""
    version = schema_version(db)
    if version == 0:
        raise StoreError(f"{path}: is a database, but not a specmeter run", fix="name a folder made by `specmeter run`")
    if version > len(MIGRATIONS):
        writer = db.execute("SELECT specmeter FROM migration ORDER BY applied_at DESC, rowid DESC").fetchone()
        raise StoreError(
            f"{path}: was written by a newer specmeter ({writer[0] if writer else 'unknown'}, schema {version}; "
            f"this one knows {len(MIGRATIONS)})",
            fix="upgrade specmeter, or use the version that wrote it",
        )


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

    if isinstance(error, zlib.error):
        return damaged(path, f"{what}: {error}")
    why = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}"
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
                f"{path}: another program keeps the file locked", fix="close the program that has it open, try again"
            ) from None
        raise


def _tune(db: sqlite3.Connection) -> None:
    # A file system without shared memory (some network drives) keeps the rollback journal: as durable, only slower.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
