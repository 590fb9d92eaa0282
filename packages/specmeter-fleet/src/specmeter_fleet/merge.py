"""Merges runs of one experiment, an invocation each, into one run: what several devices measured.

Rows are copied as they are, and their numbers continue. A sample of telemetry and a host say which device they belong
to. Predictions and costs of steps are those of the first run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specmeter import __version__
from specmeter.errors import StoreError
from specmeter.files import fix_for, read_inside
from specmeter.store.database import DATABASE_NAME, create_database, make_schema
from specmeter.store.integrity import MAX_BYTES_OF_LOG
from specmeter.store.reader import RunIdentity, RunReader, compare_identity
from specmeter.store.run import EXPERIMENT_NAME, LOGS_NAME, RunStore, write_document

_OF_THE_FIRST = ("arm", "prompt", "model", "pair", "prediction", "step_probe", "profiled")
"""Alike in all runs, or of the first alone."""
_OF_EACH = ("energy", "disturbance", "load_cell", "margin")
_ONCE = ("prompt_tokens", "routing")
_COLUMNS = {
    "arm": "id, json",
    "prompt": "id, json",
    "model": "name, json",
    "prediction": "arm_id, json",
    "profiled": "id, json",
    "disturbance": "invocation, block, again, json",
    "prompt_tokens": "target, prompt_id, zlib_json",
    "routing": "target, json",
}
"""All but the number of a row; of other tables it is `json`."""


class Part(NamedTuple):
    """A run of one invocation, and what its device is called."""

    folder: Path
    device: str
    invocation: int


def merge(parts: Sequence[Part], to: Path, *, experiment_yaml: str, experiment_json: str) -> None:
    """Make the run `to`, which does not exist, of `parts`, in their order; it has no certificate yet.

    Raises `StoreError` for parts that did not measure the same, for one that holds another invocation than it should,
    and where nothing can be written.
    """
    try:
        (to / LOGS_NAME).mkdir(parents=True)
        write_document(to, EXPERIMENT_NAME, experiment_yaml)
        merging = _Merging(experiment_yaml, experiment_json)
        create_database(to / DATABASE_NAME, lambda db: merging.fill(db, parts)).close()
        for part in parts:
            for log in sorted((part.folder / LOGS_NAME).glob("*.log")):
                name = f"{LOGS_NAME}/{log.name}"
                (to / name).write_bytes(read_inside(part.folder, name, MAX_BYTES_OF_LOG))
    except OSError as error:
        raise StoreError(f"{error.filename or to}: {error.strerror}", fix=fix_for(error)) from None


class _Merging:
    def __init__(self, experiment_yaml: str, experiment_json: str) -> None:
        self._experiment = (experiment_yaml, experiment_json)
        self._requests = 0
        """Numbers that are taken."""
        self._profiles: set[bytes] = set()

    def fill(self, db: sqlite3.Connection, parts: Sequence[Part]) -> None:
        make_schema(db)
        first: RunIdentity | None = None
        began: list[float] = []
        ended: list[float] = []
        complete = True
        for part in parts:
            with RunStore.open(part.folder, readonly=True) as run:
                identity = _without_choice(run.identity())
                if first is not None and (changes := compare_identity(first, identity)):
                    raise StoreError(
                        f"{part.folder}: {part.device} measured something else: {changes[0]}",
                        fix="measure this invocation again, with the same files on every device",
                    )
                state = run.state()
                complete = complete and state.state == "complete"
                began.append(state.started_at or 0.0)
                ended.append(state.finished_at or 0.0)
                self._add(db, part, run, first=first is None)
                first = first or identity
        text, asked = self._experiment
        experiment = json.loads(asked)
        if first is not None and experiment["engine"]["context"] is None:  # it fits the prompts, as the parts found
            experiment["engine"]["context"] = first.experiment["engine"]["context"]
        db.execute(
            "INSERT INTO run (id, specmeter, created_at, experiment_yaml, experiment_json, state, started_at, "
            "finished_at) VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
            (
                __version__,
                min(began),
                text,
                json.dumps(experiment),
                "complete" if complete else "failed",
                min(began),
                max(ended),
            ),
        )

    def _add(self, db: sqlite3.Connection, part: Part, run: RunReader, *, first: bool) -> None:
        plan = list(run.raw("SELECT invocation, block, arm_id, prompt_id FROM plan ORDER BY seq"))
        if others := {row[0] for row in plan} - {part.invocation}:
            raise StoreError(
                f"{part.folder}: contains invocation {min(others)}, not only {part.invocation}",
                fix="pass the folder in which this invocation was measured",
            )
        db.executemany("INSERT INTO plan (invocation, block, arm_id, prompt_id) VALUES (?, ?, ?, ?)", plan)
        for table in (*(_OF_THE_FIRST if first else ()), *_OF_EACH, *_ONCE):
            _copy(db, run, table, "OR IGNORE " if table in _ONCE else "")
        for (text,) in run.raw("SELECT json FROM host ORDER BY id"):
            host = {**json.loads(text), "device": part.device, "invocations": [part.invocation]}
            db.execute("INSERT INTO host (json) VALUES (?)", (json.dumps(host),))
        samples = run.raw("SELECT at, json FROM telemetry ORDER BY id")
        owned = ((at, json.dumps({**json.loads(text), "invocation": part.invocation})) for at, text in samples)
        db.executemany("INSERT INTO telemetry (at, json) VALUES (?, ?)", owned)
        self._sessions(db, run)
        self._answers(db, run)
        for (profile,) in run.raw("SELECT zlib_json FROM profile ORDER BY seq"):
            if profile not in self._profiles:
                self._profiles.add(profile)
                db.execute("INSERT INTO profile (zlib_json) VALUES (?)", (profile,))

    def _sessions(self, db: sqlite3.Connection, run: RunReader) -> None:
        engines: dict[int, int] = {}
        for engine_id, text in run.raw("SELECT id, json FROM engine ORDER BY id"):
            db.execute("INSERT OR IGNORE INTO engine (json) VALUES (?)", (text,))
            (engines[engine_id],) = db.execute("SELECT id FROM engine WHERE json = ?", (text,)).fetchone()
        rows = run.raw("SELECT id, engine_id, json FROM session ORDER BY seq")
        moved = ((name, engines[engine_id], text) for name, engine_id, text in rows)
        db.executemany("INSERT INTO session (id, engine_id, json) VALUES (?, ?, ?)", moved)

    def _answers(self, db: sqlite3.Connection, run: RunReader) -> None:
        """Requests, with what hangs on their numbers."""
        before = self._requests

        def numbered(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
            for number, *values in rows:
                self._requests = max(self._requests, before + number)
                yield (before + number, *values)

        for table, key in (("request", "id"), ("reply", "request_id"), ("sending", "request_id")):
            names = [str(it[1]) for it in db.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join([key, *(name for name in names if name != key)])
            places = ", ".join("?" * len(names))
            rows = numbered(run.raw(f"SELECT {columns} FROM {table} ORDER BY {key}"))
            db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)


def _copy(db: sqlite3.Connection, run: RunReader, table: str, how: str) -> None:
    columns = _COLUMNS.get(table, "json")
    places = ", ".join("?" * len(columns.split(",")))
    rows = run.raw(f"SELECT {columns} FROM {table} ORDER BY rowid")
    db.executemany(f"INSERT {how}INTO {table} ({columns}) VALUES ({places})", rows)


def _without_choice(identity: RunIdentity) -> RunIdentity:
    """Of a part, what all parts have in common; one that was resumed may follow another rule for disturbed blocks."""
    experiment = {name: value for name, value in identity.experiment.items() if name != "only"}
    experiment["design"] = {**experiment["design"], "disturbed": None}
    return RunIdentity(experiment, identity.engine, identity.models, identity.prompts, identity.arms)
