"""Creates `run.sqlite`, writes to it, and turns SQLite's errors into words that a user can act on.

The schema is one list of statements. Any change of it is another `FORMAT`; the table `format` says which one a file has
and which specmeter made it.

Durability: WAL with `synchronous=FULL`. Each commit is one append to the WAL and one fsync, so it survives a
killed process and a crash of the machine, at about the price of the fsync. (On macOS fsync reaches the drive but not
always its platter: `fullfsync` would cost tens of milliseconds a request.)

A run that is resumed may come from a stranger: its files are looked at before SQLite opens them, and its schema before
anything is written. How a run is read without changing it is in `guarded`.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from specmeter import __version__
from specmeter.errors import StoreError, stop_if_asked
from specmeter.files import oddity, open_inside
from specmeter.record.base import first_fault

APPLICATION_ID = 0x73706D74
"""`spmt` in ASCII: lets tools such as file(1) tell a run from any other SQLite file."""
FORMAT = 1

_FORMAT_TABLE = "CREATE TABLE format (number INTEGER NOT NULL, specmeter TEXT NOT NULL)"
"""The same in every format. A table, since a damaged file that was rescued with `.dump` has lost `user_version`."""
_STATEMENTS = (
    _FORMAT_TABLE,
    # The run, what it is made of, and what was measured. A request is split in two: numbers that summaries read are
    # columns of `request`; texts, tokens, arrival times and steps are one compressed JSON document in `reply`, so that
    # a summary never touches them. A retried request keeps its failed predecessor, marked `superseded`; the partial
    # index admits one request that counts per key.
    """CREATE TABLE run (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        specmeter TEXT NOT NULL,
        created_at REAL NOT NULL,
        experiment_yaml TEXT NOT NULL,
        experiment_json TEXT NOT NULL,
        state TEXT NOT NULL,
        started_at REAL,
        finished_at REAL,
        interrupted INTEGER NOT NULL DEFAULT 0,
        reason TEXT
    )""",
    """CREATE TABLE plan (
        seq INTEGER PRIMARY KEY,
        invocation INTEGER NOT NULL,
        block INTEGER NOT NULL,
        arm_id TEXT NOT NULL,
        prompt_id TEXT NOT NULL,
        UNIQUE (invocation, block, arm_id, prompt_id)
    )""",
    "CREATE TABLE host (id INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    "CREATE TABLE arm (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE prompt (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE model (seq INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE engine (id INTEGER PRIMARY KEY, json TEXT NOT NULL UNIQUE)",
    """CREATE TABLE session (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        engine_id INTEGER NOT NULL REFERENCES engine (id),
        json TEXT NOT NULL
    )""",
    """CREATE TABLE request (
        id INTEGER PRIMARY KEY,
        invocation INTEGER NOT NULL,
        block INTEGER NOT NULL,
        position INTEGER NOT NULL,
        item INTEGER NOT NULL,
        arm_id TEXT NOT NULL,
        prompt_id TEXT NOT NULL,
        prompt_sha256 TEXT NOT NULL,
        kind TEXT NOT NULL,
        session_id TEXT NOT NULL,
        started_at REAL NOT NULL,
        attempt INTEGER NOT NULL,
        superseded INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL CHECK (status IN ('ok', 'failed')),
        error TEXT,
        stop_reason TEXT,
        wall_ms REAL,
        ttft_ms REAL,
        prompt_n INTEGER,
        prompt_ms REAL,
        predicted_n INTEGER,
        predicted_ms REAL,
        cache_n INTEGER,
        draft_n INTEGER,
        draft_n_accepted INTEGER,
        step_n INTEGER,
        target_forwards INTEGER,
        FOREIGN KEY (invocation, block, arm_id, prompt_id)
            REFERENCES plan (invocation, block, arm_id, prompt_id)
    )""",
    """CREATE UNIQUE INDEX request_that_counts ON request (invocation, block, arm_id, prompt_id)
        WHERE superseded = 0""",
    "CREATE TABLE reply (request_id INTEGER PRIMARY KEY REFERENCES request (id), zlib_json BLOB NOT NULL)",
    "CREATE TABLE telemetry (id INTEGER PRIMARY KEY, at REAL NOT NULL, json TEXT NOT NULL)",
    # Electric energy of each request, where it was read; none for requests that failed.
    "CREATE TABLE energy (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    # Blocks that were excluded. Their requests are `superseded`; of one that was given up the plan does not count.
    """CREATE TABLE disturbance (
        seq INTEGER PRIMARY KEY,
        invocation INTEGER NOT NULL,
        block INTEGER NOT NULL,
        again INTEGER NOT NULL,
        json TEXT NOT NULL
    )""",
    # Cells under load, and how each of their requests was sent. One that was broken off keeps both.
    "CREATE TABLE load_cell (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    """CREATE TABLE sending (
        request_id INTEGER PRIMARY KEY REFERENCES request (id),
        client INTEGER, due_at REAL NOT NULL, late_ms REAL NOT NULL, slot INTEGER, queued_ms REAL
    )""",
    # What was expected of each arm before its first session, and what steps cost; written once, never replaced.
    "CREATE TABLE prediction (seq INTEGER PRIMARY KEY, arm_id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE step_probe (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    # Prompts as token ids, where each draft agrees with each text, which experts the targets choose for the texts.
    """CREATE TABLE prompt_tokens (
        seq INTEGER PRIMARY KEY,
        target TEXT NOT NULL,
        prompt_id TEXT NOT NULL,
        zlib_json BLOB NOT NULL,
        UNIQUE (target, prompt_id)
    )""",
    "CREATE TABLE profile (seq INTEGER PRIMARY KEY, zlib_json BLOB NOT NULL)",
    "CREATE TABLE profiled (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL)",
    "CREATE TABLE routing (seq INTEGER PRIMARY KEY, target TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    # What checks need beside the measurements (pairs of models, margins), and what they found.
    "CREATE TABLE pair (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    "CREATE TABLE margin (id INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    "CREATE TABLE finding (id INTEGER PRIMARY KEY, json TEXT NOT NULL)",
    "CREATE TABLE certificate (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL)",
)


def make_schema(db: sqlite3.Connection) -> None:
    """Make everything; the caller holds a transaction, so that all of it happens or nothing."""
    for statement in _STATEMENTS:
        db.execute(statement)
    db.execute("INSERT INTO format VALUES (?, ?)", (FORMAT, __version__))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {FORMAT}")


def format_of(db: sqlite3.Connection) -> tuple[int, str] | None:
    """The number of a run's format and the specmeter that made it; None for a database that is not a run."""
    if _FORMAT_TABLE not in _objects(db):
        return None
    row = db.execute("SELECT number, specmeter FROM format").fetchone()
    return (row[0], str(row[1])) if row and isinstance(row[0], int) else None


def tables() -> tuple[str, ...]:
    """Names of all tables; one that refers to another comes after it."""
    made = (sql.removeprefix("CREATE TABLE ") for sql in _STATEMENTS if sql.startswith("CREATE TABLE "))
    return tuple(re.split(r"\W", name, maxsplit=1)[0] for name in made)


def _objects(db: sqlite3.Connection) -> frozenset[str]:
    """The statements that made the tables, indexes, views and triggers of a database; spaces do not count."""
    made = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset(" ".join(str(sql).split()) for (sql,) in made)


@lru_cache
def _ours() -> frozenset[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_schema(db)
        return _objects(db)


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


def close_written(db: sqlite3.Connection, *, moved: bool = False) -> None:
    """Close it, with everything in the main file: a reader that looks on would keep SQLite from doing so on its own.

    Of a run that was `moved` SQLite would remove what lies beside the file that has its name now; Python 3.11 cannot
    tell it not to.
    """
    try:
        if moved:
            if sys.version_info >= (3, 12):
                db.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
            return
        db.execute("PRAGMA busy_timeout = 500")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error:  # closed before; or a full disk: what was committed lies in the WAL
        pass
    finally:
        db.close()


def refuse_odd_files(folder: Path) -> None:
    """Raises `StoreError` where the database or what SQLite keeps beside it is not a plain file, or names another
    one."""
    for name in DATABASE_FILES:
        if why := oddity(folder, name):
            raise StoreError(f"{folder / name}: {why}", fix="copy the run folder again from its origin, with `cp -rL`")
    if _journal_end(folder) == _JOURNAL_OF_SEVERAL:
        raise StoreError(
            f"{folder / DATABASE_NAME}-journal: points to a file elsewhere, which SQLite would delete",
            fix=f"copy the run folder again from its origin; specmeter never wrote this {DATABASE_NAME}-journal",
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
        raise StoreError(f"{path}: is a database, but not a specmeter run", fix="pass a folder made by `specmeter run`")
    number, writer = made
    if number != FORMAT:
        raise StoreError(
            f"{path}: has format {number} (specmeter {writer[:_LONGEST_REASON]}), but this version reads format "
            f"{FORMAT}",
            fix="use the version that wrote it, or measure again with another --out",
        )
    # Plain tables are never read, and a rescue with `.recover` leaves one.
    if foreign := sorted(sql for sql in _objects(db) - _ours() if not sql.upper().startswith("CREATE TABLE ")):
        raise StoreError(
            f"{path}: contains something specmeter did not write ({foreign[0][:_LONGEST_REASON]!r})",
            fix="copy the run folder again from its origin, or remove your additions with `sqlite3`",
        )
    if missing := sorted(_ours() - _objects(db)):
        what = re.sub(r"^CREATE (?:UNIQUE )?(\w+) (\w+).*", lambda it: f"{it[1].lower()} {it[2]}", missing[0])
        raise damaged(path, f"its {what} is missing")


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

    if isinstance(error, zlib.error):
        return damaged(path, f"{what}: {error}")
    why = first_fault(error, "record") if isinstance(error, ValidationError) else str(error)
    return StoreError(
        f"{path}: {what} cannot be read ({why[:_LONGEST_REASON]})",
        fix=f"copy the run folder again, or save what is readable with `specmeter rescue {path.parent}`",
    )


def damaged(path: Path, detail: str) -> StoreError:
    return StoreError(
        f"{path}: is damaged ({detail[:_LONGEST_REASON]})",
        fix=f"save what is still readable with `specmeter rescue {path.parent}`",
    )


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    """Turns what SQLite raises into a `StoreError`: damage, unless it names another cause."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a mistake of the caller
        raise
    except UnicodeDecodeError as error:  # SQLite's message quotes what is damaged
        raise damaged(path, str(error)) from None
    except sqlite3.Error as error:
        stop_if_asked()  # within a function that SQLite calls, it comes out as an error
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_AUTH:  # a statement that is not ours
            raise
        if code in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG):
            raise damaged(path, f"it contains more data than its size allows: {error}") from None
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise StoreError(
                f"{path}: cannot be written ({error}); everything stored so far is safe",
                fix="free some disk space, then run the same command again to resume",
            ) from None
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise StoreError(
                f"{path}: cannot be opened ({error})",
                fix="check the permissions of the file and its folder, or copy the run folder to a writable location",
            ) from None
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreError(
                f"{path}: another program keeps the file locked",
                fix="close that program, then try again",
            ) from None
        raise damaged(path, str(error)) from None


def _tune(db: sqlite3.Connection) -> None:
    # A file system without shared memory (some network drives) keeps the rollback journal: as durable, only slower.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
