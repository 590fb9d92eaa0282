"""Saves what can be read of a damaged run, row by row, into a new folder that can be read, checked and resumed.

The certificate is copied if nothing was lost. Otherwise a log that lists what was lost takes its place, is certified
with the rest, and keeps every later check from calling the run valid.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specmeter.errors import StoreError
from specmeter.files import is_link, read_inside
from specmeter.store.database import DATABASE_NAME, create_database, make_schema, tables
from specmeter.store.guarded import GuardedDatabase, copy_database, is_run, is_written
from specmeter.store.reader import CERTIFICATE_NAME, TABLES
from specmeter.store.rows import REQUEST_COLUMNS, RequestRow, restore, unpacked
from specmeter.store.run import ENVIRONMENT_NAME, EXPERIMENT_NAME, LOGS_NAME, RESCUED_NAME, SIGNATURE_NAME, never_begun

_RECORDS = {table: record for record, table in TABLES.items()}
_KINDS: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (float, int), "TEXT": (str,), "BLOB": (bytes,)}
_HEADER = 100
"""Bytes before the first page of an SQLite file."""
_MAX_BYTES = 2**30
"""Of one file beside the database."""
_UNANSWERED = "status = 'ok' AND id NOT IN (SELECT request_id FROM reply)"


@dataclass
class Rescued:
    """What was saved of a run, and what was not."""

    folder: Path
    saved: Counter[str] = field(default_factory=Counter[str])
    """Table -> rows."""
    lost: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Table or file -> what is wrong with each thing in it that was left out."""

    @property
    def resumable(self) -> bool:
        """Whether all is there that says what was to be measured, so that resuming finds nothing changed."""
        return not self.lost.keys() & {"plan", "arm", "prompt", "model"}


def rescue(folder: Path, to: Path) -> Rescued:
    """Save what can be read of the run in `folder` into the new folder `to`; `folder` stays as it is.

    A request whose answer was lost is left out, so that resuming the run measures it again. Raises `StoreError` where
    nothing can be saved, `to` exists, or the run is being written.
    """
    if is_written(folder):
        raise StoreError(f"{folder}: another process is writing to it", fix="wait until it ends")
    if (folder / DATABASE_NAME).is_file() and not is_run(folder):
        raise never_begun(folder)
    if to.exists() or is_link(to):
        raise StoreError(f"{to}: already exists", fix="choose a new folder with --out")
    found = Rescued(to)
    with tempfile.TemporaryDirectory(prefix="specmeter-") as name:
        scratch = Path(name)
        copy_database(folder, scratch)
        with closing(_opened(folder, scratch)) as source:
            try:
                to.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=".specmeter-", dir=to.parent) as unfinished:
                    made = Path(unfinished) / to.name
                    (made / LOGS_NAME).mkdir(parents=True)
                    _save(folder, source, made, found)
                    made.rename(to)
            except OSError as error:
                raise StoreError(
                    f"{to}: cannot be written ({error.strerror})", fix="choose another folder with --out"
                ) from None
    return found


def _save(folder: Path, source: GuardedDatabase, to: Path, found: Rescued) -> None:
    with closing(create_database(to / DATABASE_NAME, lambda db: _fill(db, source, found))) as db:
        logs = (f"{LOGS_NAME}/{it.name}" for it in sorted((folder / LOGS_NAME).glob("*.log")))
        for name in (EXPERIMENT_NAME, ENVIRONMENT_NAME, *_CERTIFIED, *logs):
            try:
                content = read_inside(folder, name, _MAX_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.lost[name] = [error.strerror or str(error)]
            else:
                (to / name).write_bytes(content)
        if not found.lost:
            return
        for table in ("certificate", "finding"):
            db.execute(f"DELETE FROM {table}")
            del found.saved[table]
    for name in _CERTIFIED:
        (to / name).unlink(missing_ok=True)
    lost = [f"{what}: {one}\n" for what, each in found.lost.items() for one in each]
    with (to / RESCUED_NAME).open("a", encoding="utf-8") as log:
        log.writelines((f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: specmeter rescue; lost:\n", *lost))


_CERTIFIED = (CERTIFICATE_NAME, SIGNATURE_NAME)


def _opened(folder: Path, scratch: Path) -> GuardedDatabase:
    """The copy of a run, to be read; with a new header where its own is what is damaged."""
    try:
        return GuardedDatabase(scratch)
    except StoreError as first:
        try:
            _write_header(scratch / DATABASE_NAME)
            return GuardedDatabase(scratch)
        except (StoreError, OSError):
            raise StoreError(first.message.replace(str(scratch), str(folder)), fix=_FROM_ELSEWHERE) from None


_FROM_ELSEWHERE = "copy the run folder again from its origin, or measure again"


def _write_header(path: Path) -> None:
    """The header that specmeter's databases have: all have pages of one size, and nothing else in it is needed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_schema(db)
        header = bytearray(db.serialize()[:_HEADER])
    pages = path.stat().st_size // int.from_bytes(header[16:18])
    header[28:32] = pages.to_bytes(4)
    with path.open("r+b") as file:
        file.write(header)


def _fill(db: sqlite3.Connection, source: GuardedDatabase, found: Rescued) -> None:
    make_schema(db)
    db.execute("DELETE FROM format")
    source.db.text_factory = bytes
    for table in tables():
        columns = [(str(it[1]), str(it[2])) for it in db.execute(f"PRAGMA table_info({table})")]
        names = ", ".join(name for name, _ in columns)
        places = ", ".join("?" * len(columns))
        for rowid, values in _rows(source, table, names, found):
            try:
                kept = [_sound(value, kind) for value, (_, kind) in zip(values, columns, strict=True)]
                _refuse_unreadable(db, table, dict(zip((name for name, _ in columns), kept, strict=True)))
                db.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", kept)
            except (ValueError, TypeError, zlib.error, sqlite3.Error, RecursionError) as error:
                found.lost.setdefault(table, []).append(f"row {rowid}: {' '.join(str(error).split())[:200]}")
            else:
                found.saved[table] += 1
    if not found.saved["run"] or not found.saved["format"]:
        raise StoreError(f"{source.path.name}: the record of the run is missing", fix=_FROM_ELSEWHERE)
    for (row,) in db.execute(f"SELECT id FROM request WHERE {_UNANSWERED} ORDER BY id").fetchall():
        _leave_out(db, "request", row, "its answer was lost", found)
    while orphans := db.execute("PRAGMA foreign_key_check").fetchall():
        for table, row in {(str(it[0]), int(it[1])) for it in orphans}:
            _leave_out(db, table, row, "what it belongs to was lost", found)


def _leave_out(db: sqlite3.Connection, table: str, row: int, why: str, found: Rescued) -> None:
    db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    found.saved[table] -= 1
    found.lost.setdefault(table, []).append(f"row {row}: {why}")


def _rows(source: GuardedDatabase, table: str, names: str, found: Rescued) -> Iterator[tuple[int, Sequence[Any]]]:
    """(number, values) of the rows of a table: from its start, and from its end up to what cannot be read."""
    query, last = f"SELECT rowid, {names} FROM {table} ORDER BY rowid", 0
    try:
        with source.bounded():
            for last, *values in source.db.execute(query):
                yield last, values
            return
    except sqlite3.Error as error:
        found.lost.setdefault(table, []).append(f"rows after {last}: {error}")
    with suppress(sqlite3.Error), source.bounded():
        for rowid, *values in source.db.execute(f"{query} DESC"):
            if rowid <= last:
                return
            yield rowid, values


def _sound(value: Any, kind: str) -> Any:
    """A value of a column. Raises `ValueError` where it is none of its kind."""
    if isinstance(value, bytes) and kind == "TEXT":
        return value.decode("utf-8")
    if value is not None and not isinstance(value, _KINDS[kind]):
        raise ValueError(f"{value!r:.40} where a column has {kind}")
    return value


def _refuse_unreadable(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    """Raises `ValueError` or `zlib.error` for a row whose document is not what a run stores."""
    if table == "reply":
        row = db.execute(f"SELECT {REQUEST_COLUMNS} FROM request WHERE id = ?", (values["request_id"],)).fetchone()
        if row is not None:
            restore(RequestRow._make(row), values["zlib_json"])
    elif (record := _RECORDS.get(table)) is not None:
        record.model_validate_json(values["json"] if "json" in values else unpacked(values["zlib_json"]))
    elif "json" in values:
        json.loads(values["json"])
