"""`RunStore`: writes a run while it is measured."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
import zlib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from specmeter import __version__
from specmeter.errors import StoreError
from specmeter.files import (
    UNFINISHED,
    fix_for,
    is_link,
    make_folder_inside,
    open_to_change,
    remove_inside,
    remove_unfinished,
    write_inside,
)
from specmeter.record import (
    Arm,
    Certificate,
    Disturbance,
    DraftPair,
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
from specmeter.store.database import (
    DATABASE_FILES,
    DATABASE_NAME,
    close_written,
    create_database,
    make_schema,
    open_to_write,
    sqlite_errors,
)
from specmeter.store.guarded import LOCK_NAME, GuardedDatabase, RunLock, is_other, is_run
from specmeter.store.reader import CERTIFICATE_NAME, RunIdentity, RunReader, compare_identity
from specmeter.store.rows import insert

EXPERIMENT_NAME = "experiment.yaml"
ENVIRONMENT_NAME = "BENCHMARK_ENV.md"
SIGNATURE_NAME = "certificate.json.sig"
REPORT_NAME = "report.html"
"""Written after the certificate, if at all."""
LOGS_NAME = "logs"
RESCUED_NAME = f"{LOGS_NAME}/rescued.log"
"""What was lost of the damaged run that this one was saved from. No log of a session has that name."""
_SAME = "invocation = ? AND block = ? AND arm_id = ? AND prompt_id = ? AND superseded = 0"
_OURS = {LOCK_NAME, EXPERIMENT_NAME, LOGS_NAME, *DATABASE_FILES}
_CHANGES_SHOWN = 10
_STAGES_NAMED = 4
_FINDINGS_SHOWN = 1_000
"""More findings than these are left out of certificate.json; the database and exports have all of them."""


class RunStore(RunReader):
    """One run folder, to write and to read. Every method may raise `StoreError`; use it in the thread that opened it.

    Writers hold the folder's lock; any number of readers may look on meanwhile.
    """

    def __init__(self, folder: Path, db: sqlite3.Connection | GuardedDatabase, lock: RunLock | None) -> None:
        """Not for callers: see `create` and `open`."""
        super().__init__(folder, db)
        self._lock = lock
        self._file = self.path.lstat() if lock else None

    # --- opening and closing -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, folder: Path, *, experiment_yaml: str, experiment_json: str, plan: Iterable[tuple[int, int, str, str]]
    ) -> RunStore:
        """Start a run in a folder that is new or empty.

        `plan` lists every (invocation, block, arm id, prompt id) that makes the run complete, in order. A process
        killed in here leaves nothing that counts as a run: call it again.
        """

        def birth(db: sqlite3.Connection) -> None:
            make_schema(db)
            db.execute(
                "INSERT INTO run (id, specmeter, created_at, experiment_yaml, experiment_json, state) "
                "VALUES (1, ?, ?, ?, ?, 'partial')",
                (__version__, time.time(), experiment_yaml, experiment_json),
            )
            _insert_plan(db, plan)

        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (foreign := _foreign(folder)):
                make_folder_inside(folder, LOGS_NAME)
        except OSError as error:
            raise StoreError(
                f"{error.filename or folder}: cannot be created ({error.strerror})",
                fix="choose another folder with --out",
            ) from None
        if foreign:
            if (folder / DATABASE_NAME).is_file() and not is_run(folder):
                raise never_begun(folder)
            raise StoreError(
                f"{folder}: is not empty ({', '.join(foreign[:3])}, ...) and contains no run",
                fix="choose a new or empty folder with --out",
            )
        lock = RunLock(folder)
        try:
            remove_unfinished(folder)
            if is_run(folder):
                raise StoreError(
                    f"{folder}: already contains a run",
                    fix="run its own experiment to resume it, or choose a new folder with --out",
                )
            write_document(folder, EXPERIMENT_NAME, experiment_yaml)
            return cls(folder, create_database(folder / DATABASE_NAME, birth), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: Path, *, readonly: bool = False) -> RunStore:
        """Open a run: to continue with it (takes the lock), or to read it while it may be running."""
        if folder.name == DATABASE_NAME and folder.is_file():
            folder = folder.parent
        if not folder.is_dir():
            problem = "is not a folder" if folder.exists() else "does not exist"
            raise StoreError(
                f"{folder}: {problem}",
                fix="pass a run folder; `specmeter list` shows them",
            )
        path = folder / DATABASE_NAME
        if not path.is_file() and not is_link(path):
            fix = "pass a run folder; `specmeter list` shows them"
            if stages := sorted(it.parent.name for it in folder.glob(f"*/{DATABASE_NAME}"))[:_STAGES_NAMED]:
                fix = f"pass one of the runs in it, such as {', '.join(str(folder / it) for it in stages)}"
            raise StoreError(f"{folder}: not a run folder (no {DATABASE_NAME})", fix=fix)
        if not is_run(folder):
            raise never_begun(folder)
        if readonly:
            return cls(folder, GuardedDatabase(folder), None)
        lock = RunLock(folder)
        try:
            remove_unfinished(folder)
            return cls(folder, open_to_write(path, suspect=lock.left_behind), lock)
        except BaseException:
            lock.release(clean=False)
            raise

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether the folder holds a run (to be resumed) rather than nothing or a beginning (to be created)."""
        return is_run(folder)

    def close(self) -> None:
        """Merge the WAL and let others in; safe to call twice."""
        if self._guard is not None:
            self._guard.close()
            return
        try:
            close_written(self._db, moved=self._was_moved())
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- files beside the database -----------------------------------------------------------------------------------

    def log_path(self, session_id: str, arm_id: str) -> Path:
        """Where the engine's output of a session goes: a file that is there now; its name is fit for every file system.

        Raises `StoreError` where the folder of logs is a link, or something else than a file has that name.
        """
        arm = re.sub(r"[^A-Za-z0-9._-]+", "-", arm_id)[:80].strip("-.")
        name = f"{LOGS_NAME}/{arm}-{session_id}.log"
        self._refuse_moved()
        try:
            make_folder_inside(self.folder, LOGS_NAME)
            os.close(open_to_change(self.folder, name))
        except OSError as error:
            raise StoreError(
                f"{error.filename or self.folder / name}: cannot be written ({error.strerror})",
                fix="remove it, or choose another folder with --out",
            ) from None
        return self.folder / name

    def relative(self, path: Path) -> str:
        """`path` relative to the run folder, with forward slashes."""
        return path.relative_to(self.folder).as_posix()

    def write_environment(self, markdown: str) -> None:
        """Write BENCHMARK_ENV.md."""
        self._refuse_moved()
        write_document(self.folder, ENVIRONMENT_NAME, markdown)

    def _remove(self, name: str) -> None:
        try:
            remove_inside(self.folder, name)
        except OSError as error:
            raise StoreError(
                f"{self.folder / name}: cannot be removed ({error.strerror})", fix="check permissions, or remove it"
            ) from None

    # --- what the run is made of -------------------------------------------------------------------------------------

    def set_host(self, host: Host) -> None:
        """Record the machine; one more record when it is resumed in another state, nothing when unchanged."""
        text = host.model_dump_json()
        with self._transaction() as db:
            last = db.execute("SELECT json FROM host ORDER BY id DESC LIMIT 1").fetchone()
            if last != (text,):
                db.execute("INSERT INTO host (json) VALUES (?)", (text,))

    def set_experiment(self, experiment_json: str) -> None:
        """The experiment as it is gone on with: it may say again what becomes of disturbed blocks."""
        with self._transaction() as db:
            db.execute("UPDATE run SET experiment_json = ?", (experiment_json,))

    def set_models(self, models: Iterable[ModelIdentity]) -> None:
        self._replace("model", "name", ((model.name, model.model_dump_json()) for model in models))

    def set_arms(self, arms: Iterable[Arm]) -> None:
        self._replace("arm", "id", ((arm.id, arm.model_dump_json()) for arm in arms))

    def set_prompts(self, prompts: Iterable[Prompt]) -> None:
        self._replace("prompt", "id", ((prompt.id, prompt.model_dump_json()) for prompt in prompts))

    def set_pairs(self, pairs: Iterable[DraftPair]) -> None:
        """How each draft of the run goes with its target."""
        self._rewrite("pair", pairs)

    def extend_plan(self, plan: Iterable[tuple[int, int, str, str]]) -> None:
        """More requests, as `create` takes them, that make the run complete, after those that are planned already."""
        with self._transaction() as db:
            _insert_plan(db, plan)

    # --- is this the same run? ---------------------------------------------------------------------------------------

    def refuse_changes(self, now: RunIdentity) -> None:
        """Raises `StoreError` that lists every difference when the run could not continue with `now`."""
        changes = compare_identity(self.identity(), now)
        if changes:
            lines = [f"  {change}" for change in changes[:_CHANGES_SHOWN]]
            if len(changes) > _CHANGES_SHOWN:
                lines.append(f"  ... and {len(changes) - _CHANGES_SHOWN} more")
            raise StoreError(
                "\n".join([f"{self.folder}: cannot be resumed because something changed (was -> is)", *lines]),
                fix="choose another folder with --out to start a new run, or undo the change",
            )

    # --- writing what happens ----------------------------------------------------------------------------------------

    def begin(self, at: float) -> None:
        """The run starts, or continues, at `at` (seconds since the epoch); what was certified before no longer holds.

        Killed in here, it leaves a certificate.json that agrees with its data, or none; nothing looks like a change.
        """
        with self._transaction() as db:
            db.execute("DELETE FROM certificate")
            db.execute("DELETE FROM finding")
        self._remove(SIGNATURE_NAME)
        self._remove(CERTIFICATE_NAME)
        with self._transaction() as db:
            db.execute(
                "UPDATE run SET started_at = coalesce(started_at, ?), finished_at = NULL, interrupted = 0, "
                "reason = NULL, state = 'partial'",
                (at,),
            )

    def end(self, at: float, *, interrupted: bool = False, reason: str | None = None) -> None:
        """The run ends at `at`: on its own, or `interrupted` by a person; `reason` says what stopped it early."""
        with self._transaction() as db:
            db.execute("UPDATE run SET finished_at = ?, interrupted = ?, reason = ?", (at, interrupted, reason))

    def add_prediction(self, prediction: Prediction) -> None:
        """Store the prediction for an arm. Raises `StoreError` for an arm that has a prediction, or was measured."""
        name = f"prediction of {prediction.arm_id}"
        with self._transaction() as db:
            measured = db.execute("SELECT 1 FROM request WHERE arm_id = ? LIMIT 1", (prediction.arm_id,)).fetchone()
            if measured is not None and prediction.speedup is not None:
                raise StoreError(
                    f"{name}: a prediction must come before the measurement",
                    fix="predict each arm before its first session",
                )
            row = (prediction.arm_id, prediction.model_dump_json())
            try:
                db.execute("INSERT INTO prediction (arm_id, json) VALUES (?, ?)", row)
            except sqlite3.IntegrityError:
                raise StoreError(f"{name}: already stored", fix="predict each arm once") from None

    def add_probes(self, probes: Iterable[StepProbe]) -> None:
        """Keep what steps cost, or why that is not known."""
        with self._transaction() as db:
            rows = ((probe.model_dump_json(),) for probe in probes)
            db.executemany("INSERT INTO step_probe (json) VALUES (?)", rows)

    def add_prompt_tokens(self, prompts: Iterable[PromptTokens]) -> None:
        """Keep prompts as a target's engine tokenized them; what is known already stays as it is."""
        with self._transaction() as db:
            rows = ((it.target, it.prompt_id, zlib.compress(it.model_dump_json().encode())) for it in prompts)
            db.executemany("INSERT OR IGNORE INTO prompt_tokens (target, prompt_id, zlib_json) VALUES (?, ?, ?)", rows)

    def add_session(self, session: Session) -> None:
        """A session is ready; `update_session` completes it."""
        with self._transaction() as db:
            engine = session.engine.model_dump_json()
            db.execute("INSERT OR IGNORE INTO engine (json) VALUES (?)", (engine,))
            row = db.execute("SELECT id FROM engine WHERE json = ?", (engine,)).fetchone()
            text = session.model_dump_json(exclude={"engine"})
            try:
                db.execute("INSERT INTO session (id, engine_id, json) VALUES (?, ?, ?)", (session.id, row[0], text))
            except sqlite3.IntegrityError:
                raise StoreError(f"session {session.id}: already stored", fix="give each session a new id") from None

    def update_session(self, session: Session) -> None:
        """Replace what is known about a session, found by its id."""
        with self._transaction() as db:
            text = session.model_dump_json(exclude={"engine"})
            if db.execute("UPDATE session SET json = ? WHERE id = ?", (text, session.id)).rowcount == 0:
                raise StoreError(f"session {session.id}: unknown", fix="add it with add_session first")

    def add_load(
        self,
        requests: Iterable[tuple[Request, Sending | None]],
        telemetry: Iterable[Telemetry] = (),
        cell: LoadCell | None = None,
    ) -> None:
        """Store requests of a cell under load, durably when this returns, and the cell itself once it has ended.

        A cell that was broken off is measured again as a whole: its requests supersede those of an earlier session,
        answered or not. One that was never sent has no `Sending`. Raises `StoreError` for a request that is not in the
        plan.
        """
        with self._transaction() as db:
            for request, sending in requests:
                key = (request.invocation, request.block, request.arm_id, request.prompt_id)
                earlier = db.execute(f"SELECT id, attempt FROM request WHERE {_SAME}", key).fetchone()
                if earlier is not None:
                    db.execute("UPDATE request SET superseded = 1 WHERE id = ?", (earlier[0],))
                try:
                    insert(db, request, earlier[1] + 1 if earlier else 1, sending)
                except sqlite3.IntegrityError:
                    raise StoreError(
                        f"request {request.prompt_id} of {request.arm_id} in invocation {key[0]}, block {key[1]}: is "
                        "not in the plan",
                        fix="measure only requests of the plan",
                    ) from None
            _insert_telemetry(db, telemetry)
            if cell is not None:
                db.execute("INSERT INTO load_cell (json) VALUES (?)", (cell.model_dump_json(),))

    def add_request(
        self, request: Request, telemetry: Iterable[Telemetry] = (), energy: RequestEnergy | None = None
    ) -> None:
        """One request; see `add_requests`."""
        self.add_requests([(request, telemetry, energy)])

    def add_requests(self, requests: Iterable[tuple[Request, Iterable[Telemetry], RequestEnergy | None]]) -> None:
        """Store requests, all of them durably when this returns, with the telemetry sampled and the energy used
        meanwhile.

        Raises `StoreError`, and stores none, for a request that is not in the plan or has succeeded before. A retry of
        a failed one supersedes it; both are kept.
        """
        with self._transaction() as db:
            for request, telemetry, energy in requests:
                _insert_request(db, request)
                _insert_telemetry(db, telemetry)
                if energy is not None:
                    db.execute("INSERT INTO energy (json) VALUES (?)", (energy.model_dump_json(),))

    def exclude_block(self, found: Disturbance) -> None:
        """Keep a block and do not count it. Raises `StoreError` where it has no request that counts."""
        place = (found.invocation, found.block)
        with self._transaction() as db:
            done = "UPDATE request SET superseded = 1 WHERE invocation = ? AND block = ? AND superseded = 0"
            if db.execute(done, place).rowcount == 0:
                raise StoreError(f"block {place}: nothing left to exclude", fix="exclude each block once")
            values = (*place, found.again, found.model_dump_json())
            db.execute("INSERT INTO disturbance (invocation, block, again, json) VALUES (?, ?, ?, ?)", values)

    def add_telemetry(self, samples: Iterable[Telemetry]) -> None:
        """Store samples. Not while a request runs: an fsync is load, and a sampler's thread may not write."""
        with self._transaction() as db:
            _insert_telemetry(db, samples)

    # --- what follows from it ----------------------------------------------------------------------------------------

    def add_margins(self, margins: Iterable[Margin]) -> None:
        """Keep what the target said about places where texts differ."""
        with self._transaction() as db:
            db.executemany("INSERT INTO margin (json) VALUES (?)", ((margin.model_dump_json(),) for margin in margins))

    def add_profiles(self, profiles: Iterable[MatchProfile]) -> None:
        """Keep where draft models agree with texts."""
        with self._transaction() as db:
            rows = ((zlib.compress(profile.model_dump_json().encode()),) for profile in profiles)
            db.executemany("INSERT INTO profile (zlib_json) VALUES (?)", rows)

    def set_profiled(self, profiled: Profiled) -> None:
        """Keep whether every text was read."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO profiled VALUES (1, ?)", (profiled.model_dump_json(),))

    def add_routing(self, routing: TextRouting) -> None:
        """Keep which experts a target chooses, in the place of what was known of it."""
        with self._transaction() as db:
            row = (routing.target, routing.model_dump_json())
            db.execute("INSERT OR REPLACE INTO routing (target, json) VALUES (?, ?)", row)

    def set_certificate(self, certificate: Certificate, findings: Iterable[Finding]) -> None:
        """Replace the certificate and all findings, in the database and as certificate.json beside it.

        The database's certificate goes first and comes last: a run that is killed in between has none, and no half of
        one that would look like a change of its data. A signature of what was certified before goes with it.
        """
        kept = list(findings)
        with self._transaction() as db:
            db.execute("DELETE FROM certificate")
        self._remove(SIGNATURE_NAME)
        self._rewrite("finding", kept)
        document = certificate.model_dump(mode="json")
        document["findings"] = [
            finding.model_dump(mode="json", exclude_none=True) for finding in kept[:_FINDINGS_SHOWN]
        ]
        document["findings_left_out"] = max(0, len(kept) - _FINDINGS_SHOWN)
        write_document(self.folder, CERTIFICATE_NAME, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        with self._transaction() as db:
            db.execute("INSERT INTO certificate VALUES (1, ?)", (certificate.model_dump_json(),))
            db.execute("UPDATE run SET state = ?", (certificate.state,))

    # --- SQL ---------------------------------------------------------------------------------------------------------

    def _rewrite(self, table: str, records: Iterable[Record]) -> None:
        with self._transaction() as db:
            db.execute(f"DELETE FROM {table}")
            db.executemany(
                f"INSERT INTO {table} (json) VALUES (?)", ((record.model_dump_json(),) for record in records)
            )

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        if self._lock is None:
            raise StoreError(f"{self.folder}: opened read-only", fix="open the run with readonly=False")
        self._refuse_moved()
        with sqlite_errors(self.path):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _was_moved(self) -> bool:
        if self._lock is None or self._file is None:
            return False
        return is_other(self._file, self.path) or self._lock.was_moved_from(self.folder)

    def _refuse_moved(self) -> None:
        """Raises `StoreError` where the folder is no longer this run's."""
        if self._was_moved():
            raise StoreError(
                f"{self.folder}: the run folder, or {DATABASE_NAME} in it, was moved, removed or replaced during the "
                "run",
                fix="if it was moved, resume there with --out: everything measured so far is in it",
            )

    def _replace(self, table: str, key: str, rows: Iterable[Sequence[str]]) -> None:
        with self._transaction() as db:
            db.execute(f"DELETE FROM {table}")
            try:
                db.executemany(f"INSERT INTO {table} ({key}, json) VALUES (?, ?)", rows)
            except sqlite3.IntegrityError:
                raise StoreError(f"two {table}s have the same {key}", fix=f"give each {table} its own {key}") from None


def never_begun(folder: Path) -> StoreError:
    """Why a folder with a database in it holds no run: it was killed while it was made, or all of it is lost."""
    with suppress(OSError):
        if foreign := _foreign(folder):
            return StoreError(
                f"{folder}: its {DATABASE_NAME} is empty; its contents are lost ({', '.join(foreign[:3])} ... are "
                "left)",
                fix="copy the run folder again from its origin, or measure again with a new --out",
            )
    return StoreError(f"{folder}: the run was stopped before it started", fix="start it again with `specmeter run`")


def _foreign(folder: Path) -> list[str]:
    """What no beginning of a run leaves in its folder, logs of sessions included."""
    logs = folder / LOGS_NAME
    within = [f"{LOGS_NAME}/{it.name}" for it in logs.iterdir()] if logs.is_dir() and not is_link(logs) else []
    names = [it.name for it in folder.iterdir() if not UNFINISHED.fullmatch(it.name) and it.name not in _OURS]
    return sorted(names + within)


def _insert_plan(db: sqlite3.Connection, plan: Iterable[tuple[int, int, str, str]]) -> None:
    try:
        db.executemany("INSERT INTO plan (invocation, block, arm_id, prompt_id) VALUES (?, ?, ?, ?)", plan)
    except sqlite3.IntegrityError:
        raise StoreError("the plan lists the same request twice", fix="give arms and prompts unique ids") from None


def _insert_request(db: sqlite3.Connection, request: Request) -> None:
    key = (request.invocation, request.block, request.arm_id, request.prompt_id)
    name = f"request {request.prompt_id} of {request.arm_id} in invocation {key[0]}, block {key[1]}"
    earlier = db.execute(f"SELECT id, attempt, status FROM request WHERE {_SAME}", key).fetchone()
    if earlier is not None:
        if earlier[2] == "ok":
            raise StoreError(f"{name}: already stored", fix="measure only requests that missing() returns")
        db.execute("UPDATE request SET superseded = 1 WHERE id = ?", (earlier[0],))
    try:
        insert(db, request, attempt=earlier[1] + 1 if earlier else 1)
    except sqlite3.IntegrityError:
        raise StoreError(f"{name}: is not in the plan", fix="measure only requests that missing() returns") from None


def _insert_telemetry(db: sqlite3.Connection, samples: Iterable[Telemetry]) -> None:
    rows = ((sample.at, sample.model_dump_json()) for sample in samples)
    db.executemany("INSERT INTO telemetry (at, json) VALUES (?, ?)", rows)


def write_document(folder: Path, name: str, content: str | bytes) -> None:
    """Replace a document of a run or study folder as a whole: a reader, or a kill, sees the old or the new one."""
    try:
        write_inside(folder, name, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise StoreError(f"{folder / name}: cannot be written ({error.strerror})", fix=fix_for(error)) from None
