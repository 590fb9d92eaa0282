"""The schema of `run.sqlite`, as a list of steps that only ever grows.

A released step is never edited: a change of the schema is a new function at the end of `MIGRATIONS`. The table
`migration` says which steps a file has seen, when, and by which specmeter; `user_version` repeats their number.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache

from specmeter import __version__

APPLICATION_ID = 0x73706D74
"""`spmt` in ASCII: lets tools such as file(1) tell a run from any other SQLite file."""

Migration = Callable[[sqlite3.Connection], None]


def m001_run(db: sqlite3.Connection) -> None:
    """The run, what it is made of, and what was measured.

    A request is split in two: numbers that summaries read are columns of `request`; texts, tokens, arrival times and
    steps are one compressed JSON document in `reply`, so that a summary never touches them. A retried request keeps
    its failed predecessor, marked `superseded`; the partial index admits one request that counts per key.
    """
    for statement in (
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
    ):
        db.execute(statement)


def m002_validity(db: sqlite3.Connection) -> None:
    """What checks need beside the measurements (pairs of models, margins), and what they found."""
    for statement in (
        "CREATE TABLE pair (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
        "CREATE TABLE margin (id INTEGER PRIMARY KEY, json TEXT NOT NULL)",
        "CREATE TABLE finding (id INTEGER PRIMARY KEY, json TEXT NOT NULL)",
        "CREATE TABLE certificate (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL)",
    ):
        db.execute(statement)


def m003_predictions(db: sqlite3.Connection) -> None:
    """What was expected of each arm before its first session; written once, never replaced."""
    db.execute("CREATE TABLE prediction (seq INTEGER PRIMARY KEY, arm_id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)")


def m004_profiles(db: sqlite3.Connection) -> None:
    """Prompts as token ids, and where each draft agrees with each text; documents are compressed."""
    db.execute(
        """CREATE TABLE prompt_tokens (
            seq INTEGER PRIMARY KEY,
            target TEXT NOT NULL,
            prompt_id TEXT NOT NULL,
            zlib_json BLOB NOT NULL,
            UNIQUE (target, prompt_id)
        )"""
    )
    db.execute("CREATE TABLE profile (seq INTEGER PRIMARY KEY, zlib_json BLOB NOT NULL)")
    db.execute("CREATE TABLE profiled (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL)")


def m005_step_probes(db: sqlite3.Connection) -> None:
    """What steps cost, measured before the first arm of a kind was predicted; written once, never replaced."""
    db.execute("CREATE TABLE step_probe (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)")


def m006_energy(db: sqlite3.Connection) -> None:
    """Electric energy of each request, where it was read; none for requests that failed."""
    db.execute("CREATE TABLE energy (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)")


def m007_routing(db: sqlite3.Connection) -> None:
    """Which experts the targets choose for the run's texts; written once, never replaced."""
    db.execute("CREATE TABLE routing (seq INTEGER PRIMARY KEY, target TEXT NOT NULL UNIQUE, json TEXT NOT NULL)")


def m008_load(db: sqlite3.Connection) -> None:
    """Cells under load, and how each of their requests was sent. One that was broken off keeps both."""
    db.execute("CREATE TABLE load_cell (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)")
    db.execute(
        """CREATE TABLE sending (
            request_id INTEGER PRIMARY KEY REFERENCES request (id),
            client INTEGER, due_at REAL NOT NULL, late_ms REAL NOT NULL, slot INTEGER, queued_ms REAL
        )"""
    )


MIGRATIONS: tuple[Migration, ...] = (
    m001_run,
    m002_validity,
    m003_predictions,
    m004_profiles,
    m005_step_probes,
    m006_energy,
    m007_routing,
    m008_load,
)


_LEDGER = """CREATE TABLE IF NOT EXISTS migration (
            name TEXT PRIMARY KEY, applied_at REAL NOT NULL, specmeter TEXT NOT NULL
        )"""


def schema_version(db: sqlite3.Connection) -> int:
    """Number of migrations that the file has seen; 0 for a database that is not a run.

    The table counts, not `user_version`: a damaged file that was rescued with `.dump` has lost the latter.
    """
    made = _objects(db)
    if not _objects_after(()) <= made or not any(sql.startswith("CREATE TABLE run (") for sql in made):
        return 0
    return int(db.execute("SELECT count(*) FROM migration").fetchone()[0])


def is_outdated(db: sqlite3.Connection) -> bool:
    """Whether an older specmeter wrote the file."""
    return schema_version(db) < len(MIGRATIONS)


def migrate(db: sqlite3.Connection) -> None:
    """Apply what is missing; the caller holds a transaction, so that all of it happens or nothing."""
    seen = schema_version(db)
    db.execute(_LEDGER)
    for step in MIGRATIONS[seen:]:
        step(db)
        db.execute("INSERT INTO migration VALUES (?, ?, ?)", (step.__name__, time.time(), __version__))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def foreign_objects(db: sqlite3.Connection, version: int) -> list[str]:
    """How everything in a file of this version was made that no migration made, but for plain tables: these are never
    read, and a rescue with `.recover` leaves one."""
    others = _objects(db) - _objects_after(MIGRATIONS[:version])
    return sorted(sql for sql in others if not sql.upper().startswith("CREATE TABLE "))


def missing_objects(db: sqlite3.Connection, version: int) -> list[str]:
    """How everything was made that a file of this version lacks."""
    return sorted(_objects_after(MIGRATIONS[:version]) - _objects(db))


def tables() -> frozenset[str]:
    """Names of all tables that migrations make."""
    made = (sql.removeprefix("CREATE TABLE ") for sql in _objects_after(MIGRATIONS) if sql.startswith("CREATE TABLE "))
    return frozenset(re.split(r"\W", name, maxsplit=1)[0] for name in made)


def _objects(db: sqlite3.Connection) -> frozenset[str]:
    """The statements that made the tables, indexes, views and triggers of a database; spaces do not count."""
    made = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset(" ".join(str(sql).split()) for (sql,) in made)


@lru_cache
def _objects_after(steps: tuple[Migration, ...]) -> frozenset[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(_LEDGER)
        for step in steps:
            step(db)
        return _objects(db)
