"""Changes of a finished run folder by hand: what a careless script would do.

    copy = copied(clean_run, tmp_path / "copy")
    DOCTORINGS["decode-halved"](copy)
    told = judge(forged(copy))

Each doctoring changes one thing and leaves everything else as it was measured; columns that the store derives are
derived again. `forged` removes the certificate too (its row, its file and the findings), so that nothing but the data
itself can say that it is false. `judge` looks the way a reader does, by `specmeter check`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmeter.cli import invoke
from specmeter.record import Reply, Request, Step
from specmeter.store.rows import REQUEST_COLUMNS, insert, restore, shared
from specmeter.validity.checks.registry import CHECKS

BASE, SD, NGRAM = "dense/none", "dense/draft-simple/small/g4", "dense/ngram-simple/g4/n3"
"""Ids of the arms of `EXPERIMENT`."""

EXPERIMENT: dict[str, Any] = {
    "name": "clean",
    "targets": {"dense": "bench:dense"},
    "drafts": {"small": "bench:draft-small"},
    "workloads": [{"source": "bench", "name": "text", "kinds": ["fact", "code", "edit"], "per_kind": 1}],
    "arms": [{"draft": "small", "gamma": 4}, {"method": "ngram-simple", "gamma": 4, "ngram_n": 3}],
    "design": {"blocks": 3, "warmup": "short", "disturbed": "keep"},
    "engine": {"context": 512, "threads": 1},
    "generation": {"max_tokens": 40},
}
"""A run with nothing wrong in it, of some ten seconds."""

Told = frozenset[tuple[str, str]]
"""(check, severity) of findings that are more than notes; (check, `unseen`) of checks that could have found a number
false, and had nothing to look at, which makes an arm suspect."""

_GRAVE = frozenset(check.id for check in CHECKS if check.severity == "invalid")


@dataclass(frozen=True)
class Judged:
    """What `specmeter check` says of a folder."""

    verdict: str
    """`refused` where the command does not read it at all."""
    told: Told
    message: str
    """The first `invalid` finding, else the first `suspect` one, or why the folder was refused."""


def judge(folder: Path) -> Judged:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(["check", str(folder), "--json"])
    if code not in (0, 1):
        return Judged("refused", frozenset({("refused", "invalid")}), err.getvalue().strip())
    document = json.loads(out.getvalue())
    grave = [it for severity in ("invalid", "suspect") for it in document["findings"] if it["severity"] == severity]
    told = {(it["check"], it["severity"]) for it in grave}
    for outcome in document["checks"]:
        if outcome["check"] in _GRAVE and any(gap["applies"] for gap in outcome["unchecked"]):
            told.add((outcome["check"], "unseen"))
    return Judged(document["verdict"], frozenset(told), grave[0]["message"]["text"] if grave else "")


def applies(name: str, run: Path) -> bool:
    """Whether a run has what a doctoring changes."""
    return name != "report-edited" or (run / "report.html").is_file()


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def forged(folder: Path) -> Path:
    """Without its certificate: row, findings and file are gone."""
    with _database(folder) as db:
        db.execute("DELETE FROM certificate")
        db.execute("DELETE FROM finding")
    (folder / "certificate.json").unlink()
    return folder


# --- tools ------------------------------------------------------------------------------------------------------------

Change = Callable[[Request], Request | None]
"""None: the request is removed."""


def connected(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "run.sqlite")


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(connected(folder)) as db, db:
        yield db


def sql(folder: Path, statement: str, *values: object) -> None:
    with _database(folder) as db:
        assert db.execute(statement, values).rowcount != 0, statement


def requests_of(folder: Path) -> dict[int, Request]:
    """Row -> request, in the order of measurement."""
    query = f"SELECT id, {REQUEST_COLUMNS}, zlib_json FROM request LEFT JOIN reply ON request_id = id ORDER BY id"
    with _database(folder) as db:
        return {row_id: restore(shared(values), bulk) for row_id, *values, bulk in db.execute(query)}


def change_requests(folder: Path, change: Change, arm_id: str | None = None) -> None:
    """Change every request, or those of one arm."""
    changed = 0
    before = requests_of(folder)
    with _database(folder) as db:
        for row_id, request in before.items():
            if arm_id not in (None, request.arm_id):
                continue
            new = change(request)
            if new == request:
                continue
            changed += 1
            (attempt,) = db.execute("SELECT attempt FROM request WHERE id = ?", (row_id,)).fetchone()
            db.execute("DELETE FROM reply WHERE request_id = ?", (row_id,))
            db.execute("DELETE FROM request WHERE id = ?", (row_id,))
            if new is not None:
                _put(db, row_id, new, attempt)
    assert changed, "nothing was changed"


def _put(db: sqlite3.Connection, row_id: int, request: Request, attempt: int = 1) -> None:
    insert(db, request, attempt)
    (last,) = db.execute("SELECT max(id) FROM request").fetchone()
    (own,) = db.execute("SELECT last_insert_rowid()").fetchone()
    new = own if request.reply is not None else last
    db.execute("UPDATE reply SET request_id = ? WHERE request_id = ?", (row_id, new))
    db.execute("UPDATE request SET id = ? WHERE id = ?", (row_id, new))


def change_documents(folder: Path, table: str, change: Callable[[dict[str, Any]], None], **where: Any) -> None:
    """Change the JSON documents of a table, all of them or those whose fields have these values."""
    changed = 0
    with _database(folder) as db:
        for row_id, text in db.execute(f"SELECT rowid, json FROM {table}").fetchall():
            document = json.loads(text)
            if all(document.get(key) == value for key, value in where.items()):
                change(document)
                new = json.dumps(document)
                changed += json.loads(text) != document
                db.execute(f"UPDATE {table} SET json = ? WHERE rowid = ?", (new, row_id))
    assert changed, f"no {table} was changed"


def replied(change: Callable[[Reply], dict[str, Any]]) -> Change:
    """A change of the reply's fields."""

    def apply(request: Request) -> Request:
        assert request.reply is not None
        return request.model_copy(update={"reply": request.reply.model_copy(update=change(request.reply))})

    return apply


def timed(change: Callable[[Reply], dict[str, Any]]) -> Change:
    """A change of counts and times as the engine reports them."""
    return replied(lambda reply: {"timings": reply.timings.model_copy(update=change(reply))})


def _printed(reply: Reply, factor: float) -> dict[str, Any]:
    """Decode time multiplied, in the column and as the engine printed it."""
    ms = reply.timings.predicted_ms * factor
    printed = dict(reply.raw_timings)
    for name, by in (
        ("predicted_ms", factor),
        ("predicted_per_token_ms", factor),
        ("predicted_per_second", 1 / factor),
    ):
        if name in printed:
            printed[name] *= by
    return {"timings": reply.timings.model_copy(update={"predicted_ms": ms}), "raw_timings": printed}


def _steps(steps: Sequence[Step], factor: float) -> tuple[Step, ...]:
    parts = ("draft_ms", "verify_ms", "sample_ms", "restore_ms", "other_ms")
    return tuple(
        step.model_copy(
            update={"at_ms": step.at_ms * factor}
            | {name: value * factor for name in parts if (value := getattr(step, name)) is not None}
        )
        for step in steps
    )


def _remove(folder: Path, where: str) -> None:
    """Requests and the plan for them."""
    with _database(folder) as db:
        db.execute(f"DELETE FROM reply WHERE request_id IN (SELECT id FROM request WHERE {where})")
        assert db.execute(f"DELETE FROM request WHERE {where}").rowcount
        assert db.execute(f"DELETE FROM plan WHERE {where}").rowcount


def _decode_ms(request: Request) -> float:
    return request.reply.timings.predicted_ms if request.reply else 0.0


def _by_prompt(folder: Path, arm_id: str) -> dict[str, list[Request]]:
    """Prompt -> requests of an arm, in the order of measurement."""
    found: dict[str, list[Request]] = {}
    for request in requests_of(folder).values():
        if request.arm_id == arm_id:
            found.setdefault(request.prompt_id, []).append(request)
    return found


# --- counters ---------------------------------------------------------------------------------------------------------


def accepted_raised(folder: Path) -> None:
    """More was accepted than was."""
    change_requests(
        folder,
        timed(lambda it: {"draft_n_accepted": min((it.timings.draft_n or 0), (it.timings.draft_n_accepted or 0) + 5)}),
        SD,
    )


def drafted_cut(folder: Path) -> None:
    """As if nothing had been drafted in vain."""
    change_requests(folder, timed(lambda it: {"draft_n": it.timings.draft_n_accepted}), SD)


def drafted_doubled(folder: Path) -> None:
    change_requests(folder, timed(lambda it: {"draft_n": 2 * (it.timings.draft_n or 0)}), SD)


def tokens_doubled(folder: Path) -> None:
    change_requests(folder, timed(lambda it: {"predicted_n": 2 * it.timings.predicted_n}), SD)


def forwards_lowered(folder: Path) -> None:
    """Two tokens more accepted and two forwards fewer: the law of conservation holds, the steps do not."""

    def change(reply: Reply) -> dict[str, Any]:
        accepted = (reply.timings.draft_n_accepted or 0) + 2
        timings = reply.timings.model_copy(
            update={"draft_n_accepted": accepted, "draft_n": max(accepted, (reply.timings.draft_n or 0))}
        )
        counters = dict(reply.counters)
        if "n_decode_total" in counters:
            counters["n_decode_total"] -= 2
        return {"timings": timings, "counters": counters}

    change_requests(folder, replied(change), SD)


def steps_edited(folder: Path) -> None:
    """The steps accept everything; the counters stay."""
    whole = replied(lambda it: {"steps": tuple(s.model_copy(update={"accepted": s.drafted}) for s in it.steps)})
    change_requests(folder, whole, SD)


def forwards_dropped(folder: Path) -> None:
    """Nothing is left to hold counts against: neither steps nor counters of forwards."""
    change_requests(folder, replied(lambda _: {"steps": (), "counters": {}}), SD)


# --- times ------------------------------------------------------------------------------------------------------------


def decode_halved(folder: Path) -> None:
    change_requests(folder, timed(lambda it: {"predicted_ms": it.timings.predicted_ms / 2}), SD)


def decode_halved_and_printed(folder: Path) -> None:
    """Also in what the engine printed."""
    change_requests(folder, replied(lambda it: _printed(it, 0.5)), SD)


def faster_than_arrivals(folder: Path) -> None:
    """Every time of the arm but those at which its tokens arrived."""

    def change(reply: Reply) -> dict[str, Any]:
        by = 1 / 3.3
        first = {} if reply.ttft_ms is None else {"ttft_ms": reply.ttft_ms * by}
        return _printed(reply, by) | first | {"wall_ms": reply.wall_ms * by, "steps": _steps(reply.steps, by)}

    change_requests(folder, replied(change), SD)


def arrivals_stretched(folder: Path) -> None:
    change_requests(folder, replied(lambda it: {"arrival_ms": tuple(at * 3.3 for at in it.arrival_ms)}), SD)


def arrivals_dropped(folder: Path) -> None:
    """Nothing is left to hold the engine's clock against but the whole request."""
    change_requests(folder, replied(lambda _: {"arrival_ms": (), "ttft_ms": None}), SD)


def wall_below_decode(folder: Path) -> None:
    change_requests(folder, replied(lambda it: {"wall_ms": it.timings.predicted_ms / 2}), SD)


def baseline_slowed(folder: Path) -> None:
    change_requests(folder, replied(lambda it: _printed(it, 2.0)), BASE)


def steps_slower_than_decode(folder: Path) -> None:
    change_requests(folder, replied(lambda it: {"steps": _steps(it.steps, 3.0)}), SD)


def requests_apart_by_1_ms(folder: Path) -> None:
    """All requests of the run begin 1 ms after one another."""
    first = min(request.started_at for request in requests_of(folder).values())
    count = iter(range(1_000_000))
    change_requests(folder, lambda it: it.model_copy(update={"started_at": first + next(count) / 1e3}))


def requests_before_their_session(folder: Path) -> None:
    change_requests(folder, lambda it: it.model_copy(update={"started_at": it.started_at - 3600}), SD)


def requests_after_their_session(folder: Path) -> None:
    change_requests(folder, lambda it: it.model_copy(update={"started_at": it.started_at + 3600}), SD)


def sessions_end_early(folder: Path) -> None:
    """Sessions that ended as they began."""
    change_documents(folder, "session", lambda it: it.update(ended_at=it["started_at"] + 1e-3), arm_id=SD)


def sessions_overlap(folder: Path) -> None:
    """All sessions ran from the start of the run to its end."""
    with _database(folder) as db:
        documents = [json.loads(text) for (text,) in db.execute("SELECT json FROM session")]
    ends = {
        "started_at": min(it["started_at"] for it in documents),
        "ended_at": max(it["ended_at"] for it in documents),
    }
    change_documents(folder, "session", lambda it: it.update(ends))


# --- blocks and requests ----------------------------------------------------------------------------------------------


def block_removed(folder: Path) -> None:
    """The last block is gone: its requests, its sessions, the plan for it. The experiment still asks for it."""
    _remove(folder, "block = 2")
    sql(folder, "DELETE FROM session WHERE json_extract(json, '$.block') = 2")


def block_never_asked_for(folder: Path) -> None:
    """The same, and the experiment as it was expanded asks for one block less; the file it was read from does not."""
    block_removed(folder)
    with _database(folder) as db:
        (text,) = db.execute("SELECT experiment_json FROM run").fetchone()
        document = json.loads(text)
        document["design"]["blocks"] = 2
        db.execute("UPDATE run SET experiment_json = ?", (json.dumps(document),))


def slow_requests_removed(folder: Path) -> None:
    """The slowest prompt of the arm, with the plan for it."""
    slowest = max(_by_prompt(folder, SD).items(), key=lambda item: sum(map(_decode_ms, item[1])))[0]
    _remove(folder, f"arm_id = '{SD}' AND prompt_id = '{slowest}'")


def slow_requests_failed(folder: Path) -> None:
    slowest = max(_by_prompt(folder, SD).items(), key=lambda item: sum(map(_decode_ms, item[1])))[0]
    failed = {"status": "failed", "error": "no answer", "reply": None}
    change_requests(folder, lambda it: it.model_copy(update=failed) if it.prompt_id == slowest else it, SD)


def block_copied(folder: Path) -> None:
    """One block's replies stand in all blocks."""
    first = {(it.arm_id, it.prompt_id): it for it in requests_of(folder).values() if it.block == 0}
    change_requests(folder, lambda it: it.model_copy(update={"reply": first[it.arm_id, it.prompt_id].reply}))


def best_requests_copied(folder: Path) -> None:
    """Of each prompt, the arm's fastest reply stands in all its blocks."""
    best = {prompt: min(found, key=_decode_ms).reply for prompt, found in _by_prompt(folder, SD).items()}
    change_requests(folder, lambda it: it.model_copy(update={"reply": best[it.prompt_id]}), SD)


def prompt_removed(folder: Path) -> None:
    """A prompt that the experiment asks for is nowhere."""
    prompt = next(iter(_by_prompt(folder, SD)))
    _remove(folder, f"prompt_id = '{prompt}'")
    sql(folder, "DELETE FROM prompt WHERE id = ?", prompt)


def invocation_copied(folder: Path) -> None:
    """The whole run a second time, as if it had been repeated."""
    rows = requests_of(folder)
    with _database(folder) as db:
        last = max(rows)
        sessions = "SELECT engine_id, json FROM session ORDER BY seq"
        for engine_id, text in db.execute(sessions).fetchall():
            session = json.loads(text)
            session |= {"id": session["id"] + "-again", "invocation": 1}
            values = (session["id"], engine_id, json.dumps(session))
            db.execute("INSERT INTO session (id, engine_id, json) VALUES (?, ?, ?)", values)
        for row_id, request in rows.items():
            again = request.model_copy(update={"invocation": 1, "session_id": request.session_id + "-again"})
            key = (again.invocation, again.block, again.arm_id, again.prompt_id)
            db.execute("INSERT INTO plan (invocation, block, arm_id, prompt_id) VALUES (?, ?, ?, ?)", key)
            _put(db, last + row_id, again)


def arms_exchanged(folder: Path) -> None:
    """The replies of the draft arm are those of the baseline, and the other way round."""
    replies = {(it.arm_id, it.block, it.prompt_id): it.reply for it in requests_of(folder).values()}
    other = {SD: BASE, BASE: SD}

    def change(it: Request) -> Request:
        reply = replies[other.get(it.arm_id, it.arm_id), it.block, it.prompt_id]
        return it.model_copy(update={"reply": reply})

    change_requests(folder, change)


# --- identity ---------------------------------------------------------------------------------------------------------


def session_names_another_model(folder: Path) -> None:
    """The command line of the arm's sessions names a file that the models' table does not have."""
    change_documents(folder, "session", lambda it: it.update(argv=_renamed(it["argv"], "dense")), arm_id=SD)


def _renamed(argv: list[str], name: str) -> list[str]:
    return [word.replace(f"{name}.gguf", f"{name}-900m.gguf") for word in argv]


def model_renamed(folder: Path) -> None:
    """The target is called a larger model."""

    def change(it: dict[str, Any]) -> None:
        it.update(reference="bench:dense-900m", path=it["path"].replace("dense.gguf", "dense-900m.gguf"))
        it.update(size_bytes=900_086_880, sha256="9" * 64)

    change_documents(folder, "model", change, name="dense")


def draft_called_another(folder: Path) -> None:
    """The draft is called the larger one."""

    def change(it: dict[str, Any]) -> None:
        it.update(reference="bench:draft-large", path=it["path"].replace("draft-small", "draft-large"))

    change_documents(folder, "model", change, name="small")


def gamma_edited(folder: Path) -> None:
    """The arm is said to have drafted 2 tokens at a time."""
    change_documents(folder, "arm", lambda it: it.update(gamma=2), id=SD)


def session_gamma_edited(folder: Path) -> None:
    """The command line of the arm's sessions asks for drafts of 7 tokens."""

    def change(it: dict[str, Any]) -> None:
        it["argv"] = [re.sub(r'((?:n_max|gamma)\\?"?[:=]\s*)4', r"\g<1>7", word) for word in it["argv"]]

    change_documents(folder, "session", change, arm_id=SD)


def baseline_by_another_build(folder: Path) -> None:
    """The baseline's sessions are said to be those of another engine."""
    with _database(folder) as db:
        (text,) = db.execute("SELECT json FROM engine ORDER BY id").fetchone()
        other = json.loads(text) | {"version": "b9999", "binary_sha256": "8" * 64}
        row_id = db.execute("INSERT INTO engine (json) VALUES (?)", (json.dumps(other),)).lastrowid
        db.execute("UPDATE session SET engine_id = ? WHERE json_extract(json, '$.arm_id') = ?", (row_id, BASE))


def threads_edited(folder: Path) -> None:
    """The arm table says that the baseline had two threads."""
    change_documents(folder, "arm", lambda it: it["engine"].update(threads=2), id=BASE)


# --- texts ------------------------------------------------------------------------------------------------------------


def tokens_edited(folder: Path) -> None:
    """Other tokens than the target's stand in the arm's replies from the twelfth on."""
    edited = replied(lambda it: {"token_ids": it.token_ids[:12] + tuple(7 + one % 1000 for one in it.token_ids[12:])})
    change_requests(folder, edited, SD)


def text_edited(folder: Path) -> None:
    """The text is another than its tokens."""
    change_requests(folder, replied(lambda it: {"text": "An answer that was never given. " + it.text[:20]}), SD)


def tokens_cut(folder: Path) -> None:
    """Fewer tokens are kept than were counted."""
    change_requests(folder, replied(lambda it: {"token_ids": it.token_ids[:10]}), SD)


def prompt_edited(folder: Path) -> None:
    """A prompt reads otherwise than its hash says."""
    change_documents(folder, "prompt", lambda it: it.update(text="Write a poem about the sea."))


# --- files ------------------------------------------------------------------------------------------------------------


def _appended(folder: Path, name: str) -> None:
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write("\n# one line more\n")


def environment_edited(folder: Path) -> None:
    """The file about the machine, which is what people read and share."""
    _appended(folder, "BENCHMARK_ENV.md")


def yaml_edited(folder: Path) -> None:
    _appended(folder, "experiment.yaml")


def report_edited(folder: Path) -> None:
    report = folder / "report.html"
    report.write_text(report.read_text("utf-8").replace("1.", "2.", 40), encoding="utf-8")


def log_removed(folder: Path) -> None:
    next(path for path in sorted((folder / "logs").iterdir()) if "draft" in path.name).unlink()


def logs_emptied(folder: Path) -> None:
    for path in (folder / "logs").iterdir():
        path.write_text("", encoding="utf-8")


def telemetry_dropped(folder: Path) -> None:
    """Nothing says any longer whether the machine was busy."""
    sql(folder, "DELETE FROM telemetry")


# --- certificate ------------------------------------------------------------------------------------------------------


def row_deleted_block_removed(folder: Path) -> None:
    """The database has no certificate any more, the file beside it stays, and a block is gone."""
    with _database(folder) as db:
        db.execute("DELETE FROM certificate")
        db.execute("DELETE FROM finding")
    block_removed(folder)


def verdict_edited(folder: Path) -> None:
    """Numbers are changed; certificate and findings say that all is well."""
    decode_halved(folder)

    def well(text: str) -> dict[str, Any]:
        document = json.loads(text)
        return document | {"verdict": "valid", "arms": dict.fromkeys(document["arms"], "valid")}

    with _database(folder) as db:
        (text,) = db.execute("SELECT json FROM certificate").fetchone()
        db.execute("UPDATE certificate SET json = ?", (json.dumps(well(text)),))
        db.execute("DELETE FROM finding")
    path = folder / "certificate.json"
    path.write_text(json.dumps(well(path.read_text("utf-8")) | {"findings": [], "findings_left_out": 0}), "utf-8")


def file_deleted(folder: Path) -> None:
    (folder / "certificate.json").unlink()


def predictions_made_afterwards(folder: Path) -> None:
    """What was expected was written down when the run had ended."""
    change_documents(folder, "prediction", lambda it: it.update(made_at=it["made_at"] + 3600))


def host_renamed(folder: Path) -> None:
    change_documents(folder, "host", lambda it: it.update(cpu="Intel(R) Xeon(R) Platinum 8592+"))


def draft_hash_changed(folder: Path) -> None:
    """Everywhere in the database."""
    with _database(folder) as db:
        (old,) = db.execute("SELECT json_extract(json, '$.sha256') FROM model WHERE name = 'small'").fetchone()
        new = old[::-1]
        db.execute("UPDATE model SET json = replace(json, ?, ?)", (old, new))
        for table in ("profile",):
            for row_id, bulk in db.execute(f"SELECT rowid, zlib_json FROM {table}").fetchall():
                text = zlib.decompress(bulk).replace(old.encode(), new.encode())
                db.execute(f"UPDATE {table} SET zlib_json = ? WHERE rowid = ?", (zlib.compress(text), row_id))


def attempt_raised(folder: Path) -> None:
    sql(folder, "UPDATE request SET attempt = 3 WHERE id = (SELECT min(id) FROM request)")


def accepted_raised_without_profile(folder: Path) -> None:
    """One token more accepted in each request, in its last step as well, and no trace of what the draft says."""

    def change(reply: Reply) -> dict[str, Any]:
        timings = reply.timings
        if not timings.draft_n or timings.draft_n_accepted == timings.draft_n:
            return {}
        accepted = {"draft_n_accepted": (timings.draft_n_accepted or 0) + 1}
        at = next((n for n, it in enumerate(reply.steps) if it.accepted < it.drafted), None)
        steps = tuple(
            it.model_copy(update={"accepted": it.accepted + 1}) if n == at else it for n, it in enumerate(reply.steps)
        )
        raw = {name: accepted.get(name, value) for name, value in reply.raw_timings.items()}
        return {"timings": timings.model_copy(update=accepted), "raw_timings": raw, "steps": steps}

    change_requests(folder, replied(change), SD)
    with _database(folder) as db:
        db.execute("DELETE FROM profile")
        db.execute("DELETE FROM profiled")


def block_an_hour_early(folder: Path) -> None:
    """One block of an arm, before its session."""
    early = "UPDATE request SET started_at = started_at - 3600 WHERE block = 1 AND arm_id = ?"
    sql(folder, early, SD)


Doctoring = Callable[[Path], None]

DATA: dict[str, Doctoring] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(
            accepted_raised,
            drafted_cut,
            drafted_doubled,
            tokens_doubled,
            forwards_lowered,
            steps_edited,
            forwards_dropped,
        ),
        *(decode_halved, decode_halved_and_printed, faster_than_arrivals, arrivals_stretched, arrivals_dropped),
        *(wall_below_decode, baseline_slowed, steps_slower_than_decode, requests_apart_by_1_ms),
        *(requests_before_their_session, requests_after_their_session, sessions_end_early, sessions_overlap),
        *(block_removed, block_never_asked_for, slow_requests_removed, slow_requests_failed),
        *(prompt_removed, invocation_copied, arms_exchanged),
        *(session_names_another_model, model_renamed, draft_called_another, gamma_edited, session_gamma_edited),
        *(baseline_by_another_build, threads_edited),
        *(tokens_edited, text_edited, tokens_cut, prompt_edited),
        *(log_removed, logs_emptied, predictions_made_afterwards),
        *(attempt_raised, accepted_raised_without_profile, block_an_hour_early),
    )
}
"""Changes of the data: judged with the certificate as it was, and again without it."""

AGREEING: dict[str, Doctoring] = {
    function.__name__.replace("_", "-"): function
    for function in (block_copied, best_requests_copied, telemetry_dropped, host_renamed, draft_hash_changed)
}
"""Changes after which the data still agrees with itself: only the certificate finds them."""

AROUND: dict[str, Doctoring] = {
    function.__name__.replace("_", "-"): function
    for function in (
        environment_edited,
        yaml_edited,
        report_edited,
        row_deleted_block_removed,
        verdict_edited,
        file_deleted,
    )
}
"""Changes of what lies around the data: judged as they are."""
