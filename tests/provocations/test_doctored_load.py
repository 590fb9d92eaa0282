"""Finished runs under load that were doctored: what a reader is told of them."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from provocations.doctored import copied, forged, judge, requests_of, sql
from specmeter.cli import invoke
from specmeter.record import Step

EXPERIMENT: dict[str, Any] = {
    "name": "loaded",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": 4}],
    "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 2}],
    "engine": {"kind": "mock"},
    "load": {"clients": [1, 4], "slo": {"ttft_ms": 20_000}},
    "generation": {"max_tokens": 32},
    "design": {"blocks": 2},
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    file = folder / "loaded.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return copied(clean, tmp_path / "run")


@pytest.mark.parametrize("load", ["x", [1], {"slo": "x"}, {"slo": [1]}, {"slo": {"tpot_ms": -1}}, {"slo": {"p99": 1}}])
def test_a_load_that_cannot_be_one(load: object, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patched = json.dumps({"load": load})
    if not isinstance(load, dict):
        sql(copy, "UPDATE run SET experiment_json = json_remove(experiment_json, '$.load')")
    sql(copy, "UPDATE run SET experiment_json = json_patch(experiment_json, ?)", patched)
    for command in ("show", "check", "report"):
        assert invoke([command, str(copy)]) == 2
        assert "the stored experiment is not valid: load" in capsys.readouterr().err


def told(folder: Path) -> set[tuple[str, str]]:
    """(check, severity or `unseen`) of what a reader is told of a folder without its certificate."""
    return set(judge(forged(folder)).told)


SD = "dense/draft-simple/small/g4/c4"
ONE = f"(SELECT id FROM request WHERE arm_id = '{SD}' LIMIT 1 OFFSET 2)"
ALL = f"(SELECT id FROM request WHERE arm_id = '{SD}')"
CELL = f"UPDATE load_cell SET json = json_set(json, '$.{{}}', {{}}) WHERE json_extract(json, '$.arm_id') = '{SD}'"
SENT = {
    "sending-removed": f"DELETE FROM sending WHERE request_id = {ONE}",
    "sendings-removed": f"DELETE FROM sending WHERE request_id IN {ALL}",
    "lateness-wiped": f"UPDATE sending SET late_ms = late_ms + 3 WHERE request_id = {ONE}",
    "due-later": f"UPDATE sending SET due_at = due_at + 0.2 WHERE request_id IN {ALL}",
    "sent-earlier": f"UPDATE request SET started_at = started_at - 0.5 WHERE id = {ONE}",
    "other-client": f"UPDATE sending SET client = (client + 1) % 4 WHERE request_id = {ONE}",
    "client-of-no-load": f"UPDATE sending SET client = 4 WHERE request_id = {ONE}",
    "forwards-halved": CELL.format("counters.n_decode_total", "json_extract(json, '$.counters.n_decode_total') / 2"),
    "forwards-tenfold": CELL.format("counters.n_decode_total", "json_extract(json, '$.counters.n_decode_total') * 10"),
}
"""Each makes what is on record of how requests were sent contradict the rest."""
NOT_TIMES = {
    "late-text": f"UPDATE sending SET late_ms = 'x' WHERE request_id = {ONE}",
    "late-negative": f"UPDATE sending SET late_ms = -5 WHERE request_id = {ONE}",
    "late-infinite": f"UPDATE sending SET late_ms = 9e999 WHERE request_id = {ONE}",
    "queued-negative": f"UPDATE sending SET queued_ms = -5 WHERE request_id = {ONE}",
    "due-infinite": f"UPDATE sending SET due_at = 9e999 WHERE request_id = {ONE}",
}


@pytest.fixture(scope="module")
def kept(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    return told(copied(clean, tmp_path_factory.mktemp("forged") / "run"))


def test_a_clean_run_agrees_with_itself(kept: set[tuple[str, str]]) -> None:
    assert {check for check, _ in kept} & {"records-differ", "conservation", "steps-differ"} == set()


@pytest.mark.parametrize("name", SENT)
def test_how_requests_were_sent_contradicts_the_rest(name: str, copy: Path, kept: set[tuple[str, str]]) -> None:
    sql(copy, SENT[name])
    assert told(copy) - kept >= {("records-differ", "invalid")}


def test_a_cell_that_is_shorter_than_its_requests(copy: Path) -> None:
    sql(copy, CELL.format("ended_at", "json_extract(json, '$.ended_at') - 0.5"))
    assert ("records-differ", "suspect") in told(copy)


@pytest.mark.parametrize("name", NOT_TIMES)
def test_a_time_that_is_not_one(name: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql(copy, NOT_TIMES[name])
    for command in ("show", "check"):
        assert invoke([command, str(copy)]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_counters_of_a_cell_that_are_gone_or_off(copy: Path, clean: Path, tmp_path: Path) -> None:
    sql(copy, CELL.format("counters", "json_object()"))
    assert ("conservation", "unseen") in told(copy)
    other = copied(clean, tmp_path / "other")
    fewer = "json_extract(json, '$.counters.n_busy_slots_total') - 3"
    sql(other, CELL.format("counters.n_busy_slots_total", fewer))
    assert ("conservation", "invalid") in told(other)


def with_steps(folder: Path, change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> None:
    """Change one request's steps, as one who adapts the number of them too."""
    one = next(it for it in requests_of(folder).values() if it.arm_id == SD and it.reply and it.reply.steps)
    assert one.reply is not None
    bulk = one.reply.model_copy(update={"steps": change(one.reply.steps)})
    kept = bulk.model_dump_json(include={"text", "token_ids", "raw_timings", "arrival_ms", "steps"}, exclude_none=True)
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        key = (one.session_id, one.prompt_id)
        (row,) = db.execute("SELECT id FROM request WHERE session_id = ? AND prompt_id = ?", key).fetchone()
        db.execute("UPDATE reply SET zlib_json = ? WHERE request_id = ?", (zlib.compress(kept.encode()), row))
        db.execute("UPDATE request SET step_n = ? WHERE id = ?", (len(bulk.steps), row))


def test_a_step_more_in_one_request_emitted_nothing(copy: Path) -> None:
    with_steps(copy, lambda steps: (*steps, steps[-1].model_copy(update={"drafted": 0, "accepted": 0})))
    assert ("conservation", "invalid") in told(copy)


def test_steps_that_were_taken_away(copy: Path) -> None:
    with_steps(copy, lambda _: ())
    sql(copy, f"UPDATE request SET step_n = 3 WHERE step_n = 0 AND arm_id = '{SD}'")
    assert ("records-differ", "invalid") in told(copy)
