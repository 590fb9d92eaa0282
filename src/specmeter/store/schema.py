"""The schema of `run.sqlite`: one list of statements, format 1.

Any change of it is another `FORMAT`. The table `format` says which one a file has and which specmeter made it.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import lru_cache

from specmeter import __version__

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


def foreign_objects(db: sqlite3.Connection) -> list[str]:
    """How everything in a file was made that is not of the schema, but for plain tables: these are never read, and a
    rescue with `.recover` leaves one."""
    return sorted(sql for sql in _objects(db) - _ours() if not sql.upper().startswith("CREATE TABLE "))


def missing_objects(db: sqlite3.Connection) -> list[str]:
    """How everything of the schema was made that a file lacks."""
    return sorted(_ours() - _objects(db))


def tables() -> frozenset[str]:
    """Names of all tables."""
    made = (sql.removeprefix("CREATE TABLE ") for sql in _ours() if sql.startswith("CREATE TABLE "))
    return frozenset(re.split(r"\W", name, maxsplit=1)[0] for name in made)


def _objects(db: sqlite3.Connection) -> frozenset[str]:
    """The statements that made the tables, indexes, views and triggers of a database; spaces do not count."""
    made = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset(" ".join(str(sql).split()) for (sql,) in made)


@lru_cache
def _ours() -> frozenset[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_schema(db)
        return _objects(db)
