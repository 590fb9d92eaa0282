"""`RunReader`: reads a run, while it is measured and afterwards; and tells whether it may be resumed.

A run may be resumed only if nothing that it measures has changed; if something has, it says what.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import ValidationError

from specmeter.engines.registry import traits_on_record
from specmeter.errors import StoreError
from specmeter.experiments.schedule import Cell
from specmeter.files import read_inside
from specmeter.record import (
    Arm,
    Certificate,
    Disturbance,
    DraftPair,
    EngineIdentity,
    EngineTraits,
    Finding,
    Host,
    LoadCell,
    Margin,
    MatchProfile,
    ModelIdentity,
    Prediction,
    Profiled,
    Prompt,
    PromptTokens,
    Record,
    Request,
    RequestEnergy,
    Sending,
    Session,
    StepProbe,
    Telemetry,
    TextRouting,
)
from specmeter.record.base import first_fault
from specmeter.store.columns import NAMES, RequestColumns, columns_of
from specmeter.store.database import DATABASE_NAME, check, damaged, sqlite_errors, unreadable
from specmeter.store.guarded import GuardedDatabase
from specmeter.store.rows import (
    REQUEST_COLUMNS,
    SENDING_COLUMNS,
    RequestKey,
    RequestRow,
    reply_document,
    restore,
    shared,
    unpacked,
)

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment

ABSENT = "(absent)"
_LONGEST = 80


@dataclass(frozen=True)
class RunIdentity:
    """All that must stay the same from the first request of a run to its last.

    Parts that a run has not recorded yet (a run killed before its first session has no engine) are empty, and
    compare equal to anything.
    """

    experiment: Mapping[str, Any]
    """The resolved experiment as JSON data."""
    engine: EngineIdentity | None = None
    models: Sequence[ModelIdentity] = ()
    prompts: Sequence[Prompt] = ()
    arms: Sequence[Arm] = ()


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    field: str
    """For example `experiment.design.blocks` or `engine.libraries.libllama.so`."""
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.field}: {self.was} -> {self.now}"


def compare_identity(was: RunIdentity, now: RunIdentity) -> list[Change]:
    """Every field that changed, in the order experiment, arms, engine, models, prompts; empty when none did.

    Paths may change (a cache that moved), bytes may not.
    """
    parts = (
        ("experiment", was.experiment, now.experiment),
        ("arms", _arms(was), _arms(now)),
        ("engine", _engine(was), _engine(now)),
        ("models", _models(was), _models(now)),
        ("prompts", _prompts(was), _prompts(now)),
    )
    return [change for name, before, after in parts if before and after for change in _differences(name, before, after)]


def _arms(identity: RunIdentity) -> dict[str, Any]:
    return {arm.id: arm.model_dump(mode="json") for arm in identity.arms}


def _engine(identity: RunIdentity) -> dict[str, Any]:
    fields = {"kind", "version", "build", "binary_sha256", "libraries"}
    return {} if identity.engine is None else identity.engine.model_dump(mode="json", include=fields)


def _models(identity: RunIdentity) -> dict[str, Any]:
    return {model.name: {"sha256": model.sha256} for model in identity.models}


def _prompts(identity: RunIdentity) -> dict[str, Any]:
    return {prompt.id: prompt.model_dump(mode="json", exclude={"id", "text"}) for prompt in identity.prompts}


def _differences(field: str, was: Any, now: Any) -> Iterator[Change]:
    before, after = _children(was), _children(now)
    if before is not None and after is not None:
        for key in before | after:
            yield from _differences(f"{field}.{key}", before.get(key, ABSENT), after.get(key, ABSENT))
    elif was != now:
        yield Change(field, _shown(was), _shown(now))


def _children(value: Any) -> dict[str, Any] | None:
    """Items of a mapping by key and of a list by index; None for a plain value."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(cast("Sequence[Any]", value))}
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


CERTIFICATE_NAME = "certificate.json"
_MAX_CERTIFICATE = 64 * 1024 * 1024

R = TypeVar("R", bound=Record)
TABLES: dict[type[Record], str] = {
    Host: "host",
    Arm: "arm",
    Prompt: "prompt",
    ModelIdentity: "model",
    EngineIdentity: "engine",
    Telemetry: "telemetry",
    RequestEnergy: "energy",
    Disturbance: "disturbance",
    LoadCell: "load_cell",
    Prediction: "prediction",
    StepProbe: "step_probe",
    PromptTokens: "prompt_tokens",
    MatchProfile: "profile",
    Profiled: "profiled",
    TextRouting: "routing",
    DraftPair: "pair",
    Margin: "margin",
    Finding: "finding",
    Certificate: "certificate",
}
"""What lies in the column `json` or `zlib_json` of which table. That of a session lacks its engine, that of a reply its
request."""
_COMPRESSED = {PromptTokens, MatchProfile}


@dataclass(frozen=True)
class RunState:
    """Progress of a run.

    complete: every planned request has an ok record. failed: the run came to its own end without that (the engine
    would not do it). partial: it was interrupted or killed, or is running now.
    """

    state: Literal["complete", "partial", "failed"]
    planned: int
    ok: int
    failed: int
    """Planned requests whose last attempt failed."""
    started_at: float | None
    finished_at: float | None
    reason: str | None
    """Why the run ended early."""

    def state_now(self, *, written: bool) -> Literal["measuring", "checking", "complete", "partial", "failed"]:
        """The same; `measuring` and `checking` while a process writes to the run."""
        return ("measuring" if self.ok < self.planned else "checking") if written else self.state

    def is_finished(self, *, checked: bool) -> bool:
        """Whether nothing is left to do: a run that was stopped before it was `checked` still lacks that."""
        return checked and self.state == "complete"


_PLAN = """(SELECT * FROM plan WHERE NOT EXISTS (
    SELECT 1 FROM disturbance d WHERE d.again = 0 AND d.invocation = plan.invocation AND d.block = plan.block))"""
"""What is to be measured: all that was planned but for blocks that were given up."""


def certificate_file(folder: Path) -> bytes | None:
    """certificate.json of a folder; None where there is none.

    Raises `StoreError` when it cannot be read, or is larger than any certificate.
    """
    try:
        return read_inside(folder, CERTIFICATE_NAME, _MAX_CERTIFICATE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{folder / CERTIFICATE_NAME}: cannot be read: {error.strerror}",
            fix="check its permissions, or remove it and run `specmeter check` again",
        ) from None


class RunReader:
    """The reading half of a run folder. Every method may raise `StoreError`; use it in the thread that opened it."""

    def __init__(self, folder: Path, db: sqlite3.Connection | GuardedDatabase) -> None:
        """Not for callers: see `RunStore.open`."""
        self.folder = folder
        self.path = folder / DATABASE_NAME
        self._guard = db if isinstance(db, GuardedDatabase) else None
        self._db = db.db if isinstance(db, GuardedDatabase) else db

    def check(self) -> None:
        """Full integrity check; reads everything. Raises `StoreError` that says how to rescue the data."""
        with self._bounded():
            check(self._db, self.path, quick=False)

    # --- what the run is made of -------------------------------------------------------------------------------------

    @property
    def experiment_yaml(self) -> str:
        """The experiment file as it was given."""
        return str(self._one("SELECT experiment_yaml FROM run")[0])

    @property
    def experiment_json(self) -> str:
        """The experiment as it was resolved."""
        return str(self._one("SELECT experiment_json FROM run")[0])

    def experiment(self) -> Experiment:
        """The same, as what it is."""
        from specmeter.experiments.experiment import ON_RECORD, Experiment  # 40 ms, for few commands

        try:
            return Experiment.model_validate_json(self.experiment_json, context=ON_RECORD)
        except ValidationError as error:
            raise StoreError(
                f"{self.folder}: the stored experiment is not valid: {first_fault(error)}"[:500],
                fix="copy the run folder again from its origin",
            ) from None

    @property
    def written_by(self) -> str:
        """Version of specmeter that began the run."""
        return str(self._one("SELECT specmeter FROM run")[0])

    def hosts(self) -> list[Host]:
        """The machine at each start of the run, oldest first."""
        return list(self._documents(Host))

    def arms(self) -> list[Arm]:
        return list(self._documents(Arm))

    def models(self) -> list[ModelIdentity]:
        return list(self._documents(ModelIdentity))

    def prompts(self) -> Iterator[Prompt]:
        return self._documents(Prompt)

    def pairs(self) -> list[DraftPair]:
        """How each draft goes with its target; empty in runs of mocks."""
        return list(self._documents(DraftPair))

    def predictions(self) -> list[Prediction]:
        """What was expected of each arm before it was measured."""
        return list(self._documents(Prediction))

    def probes(self) -> list[StepProbe]:
        """What steps cost, measured while the run went on."""
        return list(self._documents(StepProbe))

    def identity(self) -> RunIdentity:
        """What the run has been measuring so far."""
        engine = next(self._documents(EngineIdentity, "ORDER BY rowid DESC LIMIT 1"), None)
        experiment = json.loads(self.experiment_json)
        return RunIdentity(experiment, engine, self.models(), tuple(self.prompts()), self.arms())

    def traits(self) -> EngineTraits:
        """What the run's engine states about itself."""
        engine = next(self._documents(EngineIdentity, "ORDER BY id LIMIT 1"), None)
        try:
            kind = engine.kind if engine else str(json.loads(self.experiment_json)["engine"]["kind"])
        except (KeyError, TypeError, ValueError):
            raise damaged(self.path, "its experiment is not valid") from None
        return traits_on_record(kind, engine.traits if engine else None)

    # --- what happened -----------------------------------------------------------------------------------------------

    def state(self) -> RunState:
        """How far the run has come, counted now."""
        started_at, finished_at, interrupted, reason = self._one(
            "SELECT started_at, finished_at, interrupted, reason FROM run"
        )
        planned = int(self._one(f"SELECT count(*) FROM {_PLAN}")[0])
        counts = dict(self._query("SELECT status, count(*) FROM request WHERE superseded = 0 GROUP BY status"))
        ok = int(counts.get("ok", 0))
        ended = finished_at is not None and not interrupted
        state = "complete" if ok == planned else "failed" if ended else "partial"
        return RunState(state, planned, ok, int(counts.get("failed", 0)), started_at, finished_at, reason)

    def was_complete(self) -> bool:
        """Whether every request was there when the run was certified last: what it lacks now was taken out."""
        return str(self._one("SELECT state FROM run")[0]) == "complete"

    def is_settled(self) -> bool:
        """Whether it was complete, and is."""
        return self.was_complete() and self.state().state == "complete"

    def planned(self) -> dict[str, int]:
        """Arm id -> number of requests that make it complete."""
        return dict(self._query(f"SELECT arm_id, count(*) FROM {_PLAN} GROUP BY arm_id"))

    def cells(self) -> tuple[Cell, ...]:
        """Arms in blocks, in the order in which the plan has them; those without any request are left out."""
        rows = self._query(
            "SELECT invocation, block, arm_id FROM plan GROUP BY invocation, block, arm_id ORDER BY min(seq)"
        )
        turns: Counter[tuple[int, int]] = Counter()
        found: list[Cell] = []
        for invocation, block, arm_id in rows:
            found.append(Cell(invocation, block, turns[invocation, block], arm_id))
            turns[invocation, block] += 1
        return tuple(found)

    def done_keys(self) -> set[RequestKey]:
        """Requests that have an ok record."""
        columns = ", ".join(RequestKey._fields)
        rows = self._query(f"SELECT {columns} FROM request WHERE superseded = 0 AND status = 'ok'")
        return {RequestKey(*row) for row in rows}

    def missing(self) -> list[RequestKey]:
        """Planned requests without an ok record, failed ones included, in the order of the plan."""
        rows = self._query(
            f"""SELECT invocation, block, arm_id, prompt_id FROM {_PLAN} p WHERE NOT EXISTS (
                SELECT 1 FROM request r WHERE r.superseded = 0 AND r.status = 'ok' AND r.invocation = p.invocation
                AND r.block = p.block AND r.arm_id = p.arm_id AND r.prompt_id = p.prompt_id) ORDER BY seq"""
        )
        return [RequestKey(*row) for row in rows]

    def rows(self, *, superseded: bool = False) -> Iterator[RequestRow]:
        """Numbers of every request in the order of measurement, without its bulk: fast, for summaries.

        Failed attempts that a retry replaced come only with `superseded`.
        """
        where = "" if superseded else "WHERE superseded = 0"
        return (self.row(list(it)) for it in self._query(f"SELECT {REQUEST_COLUMNS} FROM request {where} ORDER BY id"))

    def columns(self) -> RequestColumns:
        """The same of all requests at once, without rows: for summaries of a million."""
        query = f"SELECT {', '.join(NAMES)} FROM request WHERE superseded = 0 ORDER BY id"
        try:
            return columns_of(self._query(query), NAMES)
        except ValueError as error:
            raise unreadable(self.path, "a row of the table request", error) from None

    def row(self, values: list[Any]) -> RequestRow:
        """The row of what `raw` found as `REQUEST_COLUMNS`. Raises `StoreError` where it cannot be one."""
        try:
            return shared(values)
        except ValueError as error:
            raise unreadable(self.path, "a row of the table request", error) from None

    def requests(self, *, superseded: bool = False) -> Iterator[Request]:
        """Every request in full, in the order of measurement, one in memory at a time; see `rows`."""
        return (request for _, request in self.attempts(superseded=superseded))

    def attempts(self, *, superseded: bool = True) -> Iterator[tuple[int, Request]]:
        """(number of the attempt, from 1, and the request): as `requests`, replaced failures included."""
        where = "" if superseded else "WHERE superseded = 0"
        for *values, bulk in self._query(
            f"SELECT {REQUEST_COLUMNS}, zlib_json FROM request LEFT JOIN reply ON request_id = id {where} ORDER BY id"
        ):
            row = self.row(values)
            try:
                yield row.attempt, restore(row, bulk)
            except (zlib.error, ValueError) as error:
                raise unreadable(self.path, f"the reply of {row.prompt_id} of {row.arm_id}", error) from None

    def sessions(self) -> Iterator[Session]:
        """Every session in the order of starting."""
        engines: dict[int, EngineIdentity] = {}
        for engine_id, engine_json, text in self._query(
            "SELECT engine.id, engine.json, session.json FROM session JOIN engine ON engine.id = engine_id ORDER BY seq"
        ):
            try:
                if engine_id not in engines:
                    engines[engine_id] = EngineIdentity.model_validate_json(engine_json)
                session = Session.model_validate({**json.loads(text), "engine": engines[engine_id]})
            except (ValueError, TypeError) as error:
                raise unreadable(self.path, "a row of the table session", error) from None
            yield session

    def telemetry(self, since: float = -math.inf) -> Iterator[Telemetry]:
        """Samples in the order of time, from a moment on."""
        where = "" if since == -math.inf else f"WHERE at >= {since!r}"
        return self._documents(Telemetry, f"{where} ORDER BY at, id")

    def energies(self) -> Iterator[RequestEnergy]:
        """Energy of each request that counts, in the order of measurement; none where the machine tells nothing."""
        found = self._documents(RequestEnergy)
        if not self.disturbances():
            return found
        last = {RequestKey(it.invocation, it.block, it.arm_id, it.prompt_id): it for it in found}
        done = self.done_keys()
        return (it for key, it in last.items() if key in done)

    def disturbances(self) -> list[Disturbance]:
        """Blocks that were excluded, in the order of measurement."""
        return list(self._documents(Disturbance))

    def replaced(self) -> dict[RequestKey, int]:
        """How often a request had an answer that does not count."""
        columns = ", ".join(RequestKey._fields)
        query = f"SELECT {columns}, count(*) FROM request WHERE superseded = 1 AND status = 'ok' GROUP BY {columns}"
        return {RequestKey(*key): int(count) for *key, count in self._query(query)}

    def late_before(self) -> dict[str, float]:
        """Session id -> by how many ms requests were sent too late, of cells that were answered and measured again."""
        late_ms: dict[str, float] = {}
        query = "SELECT session_id, status, late_ms FROM sending JOIN request ON id = request_id WHERE superseded = 1"
        for session_id, status, ms in self._query(query):
            late_ms[session_id] = late_ms.get(session_id, 0.0) + (float(ms) if status == "ok" else math.nan)
        return {session_id: ms for session_id, ms in late_ms.items() if not math.isnan(ms)}

    def asked(self) -> dict[RequestKey, int]:
        """How often a request was asked in all, where it was more than once."""
        columns = ", ".join(RequestKey._fields)
        query = f"SELECT {columns}, count(*) FROM request GROUP BY {columns} HAVING count(*) > 1"
        return {RequestKey(*key): int(count) for *key, count in self._query(query)}

    def load_cells(self) -> Iterator[LoadCell]:
        """Cells under load in the order of measurement, those that were broken off included."""
        return self._documents(LoadCell)

    def sendings(self, *, superseded: bool = False) -> Iterator[Sending]:
        """How requests of cells under load were sent, in the order of their ends; `superseded`: also those of cells
        that were measured again."""
        where = "" if superseded else "WHERE superseded = 0"
        names = (*RequestKey._fields, "session_id", *SENDING_COLUMNS)
        for values in self._query(
            f"SELECT {', '.join(names)} FROM sending JOIN request ON id = request_id {where} ORDER BY id"
        ):
            try:
                yield Sending.model_validate(dict(zip(names, values, strict=True)))
            except ValueError as error:
                raise unreadable(self.path, "a row of the table sending", error) from None

    # --- what follows from it ----------------------------------------------------------------------------------------

    def margins(self) -> list[Margin]:
        """What the target said about places where texts differ, in the order of asking."""
        return list(self._documents(Margin))

    def prompt_tokens(self) -> list[PromptTokens]:
        """Prompts as token ids."""
        return list(self._documents(PromptTokens))

    def profiles(self) -> list[MatchProfile]:
        """Where draft models agree with texts, in the order of making."""
        return list(self._documents(MatchProfile))

    def profiled(self) -> Profiled | None:
        """Whether drafts read every text; None where none was asked to."""
        return next(self._documents(Profiled), None)

    def routing(self) -> list[TextRouting]:
        """Which experts the targets choose for the run's texts; empty in runs of dense ones."""
        return list(self._documents(TextRouting))

    def certificate(self) -> Certificate | None:
        """The last one issued; None for a run that was never checked."""
        return next(self._documents(Certificate), None)

    def certificate_file(self) -> bytes | None:
        """certificate.json as it lies beside the database; None where there is none. Raises `StoreError`."""
        return certificate_file(self.folder)

    def certificate_sha256(self) -> str | None:
        """SHA-256 of certificate.json, which names the whole run in short; None where it cannot be read."""
        with contextlib.suppress(StoreError):
            content = self.certificate_file()
            return None if content is None else hashlib.sha256(content).hexdigest()
        return None

    def findings(self) -> Iterator[Finding]:
        """What the checks found when the certificate was issued."""
        return self._documents(Finding)

    def raw(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a SELECT, for hashing or scanning the run as it lies on disk."""
        return self._query(query)

    def reply(self, bulk: bytes, key: RequestKey | RequestRow) -> dict[str, Any]:
        """What `raw` found as `zlib_json` of a request. Raises `StoreError`, naming it, where it cannot be read."""
        try:
            return reply_document(bulk)
        except (zlib.error, ValueError) as error:
            raise unreadable(self.path, f"the reply of {key.prompt_id} of {key.arm_id}", error) from None

    # --- SQL ---------------------------------------------------------------------------------------------------------

    def _query(self, sql: str) -> Iterator[tuple[Any, ...]]:
        with sqlite_errors(self.path), self._bounded():
            # Not `yield from`: that would close the cursor of a reader who leaves early after the database is closed.
            for row in self._db.execute(sql):  # noqa: UP028
                yield row

    def _bounded(self) -> contextlib.AbstractContextManager[None]:
        return self._guard.bounded() if self._guard else contextlib.nullcontext()

    def _one(self, sql: str) -> tuple[Any, ...]:
        for row in self._query(sql):
            return row
        raise damaged(self.path, "the record of the run is missing")

    def _documents(self, record: type[R], order: str = "ORDER BY rowid") -> Iterator[R]:
        table, column = TABLES[record], "zlib_json" if record in _COMPRESSED else "json"
        for (stored,) in self._query(f"SELECT {column} FROM {table} {order}"):
            try:
                yield record.model_validate_json(unpacked(stored) if record in _COMPRESSED else stored)
            except (zlib.error, ValueError) as error:
                raise unreadable(self.path, f"a row of the table {table}", error) from None
