"""Cells under load as they are measured: on the mock engine in virtual time, and two clients on the real one."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmeter.engines.mock.engine import MockEngine, MockSession
from specmeter.engines.session import Ended
from specmeter.errors import EngineError, ExperimentError, UsageError
from specmeter.experiments.described import Described
from specmeter.experiments.file import load
from specmeter.experiments.schedule import arrivals
from specmeter.laboratory.cautions import queueing
from specmeter.laboratory.plan import make_plan
from specmeter.laboratory.run import Prepared, prepare, run
from specmeter.measure.loop import Observer
from specmeter.record import Request, Sending
from specmeter.store import RunState, RunStore
from specmeter.workloads.texts import BETWEEN


class Silent(Observer):
    """Only remembers."""

    def __init__(self, interrupt_after: int = 10**9) -> None:
        self.requests = 0
        self.failed: list[str] = []
        self._interrupt_after = interrupt_after

    def request_done(self, request: Request) -> None:  # noqa: ARG002
        self.requests += 1
        if self.requests == self._interrupt_after:
            raise KeyboardInterrupt

    def session_failed(self, arm_id: str, error: EngineError) -> None:  # noqa: ARG002
        self.failed.append(arm_id)


def write(folder: Path, **changes: Any) -> str:
    data: dict[str, Any] = {
        "name": "loaded",
        "targets": {"dense": "mock:dense"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": 4}],
        "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 2}],
        "engine": {"kind": "mock", "context": 1024},
        "load": {"clients": [1, 4], "rounds": 2},
        "generation": {"max_tokens": 16},
        "design": {"blocks": 2},
    }
    path = folder / "loaded.yaml"
    path.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    return str(path)


def measured(file: str, folder: Path, observer: Silent | None = None) -> tuple[RunState, Silent]:
    observer = observer or Silent()
    return run(prepare(load(file)), folder, observer), observer


def mended(file: str) -> Prepared:
    """The same experiment, and an engine without its faults."""
    return replace(prepare(load(file)), engine=MockEngine())


def told(store: RunStore, *, superseded: bool = False) -> list[tuple[Request, Sending]]:
    """Requests that were sent, with how."""
    requests = {(it.arm_id, it.block, it.prompt_id, it.session_id): it for it in store.requests(superseded=superseded)}
    sendings = store.sendings(superseded=superseded)
    return [(requests[it.arm_id, it.block, it.prompt_id, it.session_id], it) for it in sendings]


def opened(folder: Path) -> Any:
    return RunStore.open(folder, readonly=True)


def test_clients_ask_again_when_they_were_answered(tmp_path: Path) -> None:
    state, observer = measured(write(tmp_path), tmp_path / "run")
    assert (state.state, state.planned, state.ok) == ("complete", 2 * 2 * (4 + 8), 48)
    assert observer.requests == 48
    with opened(tmp_path / "run") as store:
        cells, sent = list(store.load_cells()), told(store)
        settings = {arm.id: arm.engine for arm in store.arms()}
    assert len(cells) == 8
    assert all(cell.complete for cell in cells)
    assert {(it.slots, it.context) for it in settings.values()} == {(1, 1024), (4, 4096)}
    for cell in cells:
        mine = [it for it in sent if (it[1].arm_id, it[1].block) == (cell.arm_id, cell.block)]
        assert {sending.client for _, sending in mine} == set(range(cell.slots))
        of_client: dict[int | None, list[Request]] = defaultdict(list)
        for request, sending in mine:
            assert sending.late_ms == pytest.approx(0, abs=0.01)
            assert sending.slot is not None
            of_client[sending.client].append(request)
        for requests in of_client.values():
            for first, second in pairwise(sorted(requests, key=lambda it: it.started_at)):
                assert first.reply is not None
                assert second.started_at == pytest.approx(first.started_at + first.reply.wall_ms / 1000, abs=1e-4)
        # Every slot's forward emits a token that no draft brought; so do fillers, which are no requests of the run.
        tokens = sum(it.reply.timings.predicted_n for it, _ in mine if it.reply)
        accepted = sum(it.reply.timings.draft_n_accepted or 0 for it, _ in mine if it.reply)
        tokens += sum(it.predicted_n for it in cell.fillers)
        accepted += sum(it.draft_n_accepted for it in cell.fillers)
        assert tokens == accepted + cell.counters["n_busy_slots_total"]
        assert len(mine) == cell.slots * (4 if cell.slots == 1 else 2)
        assert bool(cell.fillers) == (cell.slots > 1)
        # From the first of them to the end of the last one no client is without a request.
        began = min(it.started_at for it, _ in mine)
        ended = max(it.started_at + it.reply.wall_ms / 1000 for it, _ in mine if it.reply)
        spans = [(it.started_at, it.started_at + it.reply.wall_ms / 1000) for it, _ in mine if it.reply]
        spans += [(it.started_at, it.started_at + it.wall_ms / 1000) for it in cell.fillers]
        busy = sum(max(0.0, min(end, ended) - max(begin, began)) for begin, end in spans)
        assert busy == pytest.approx(cell.slots * (ended - began), rel=1e-3)
        leads = sorted(it.predicted_n for it in cell.fillers if it.started_at < began)
        assert leads == ([2, 6, 10, 14] if cell.slots > 1 else [])


def test_arrivals_are_drawn_per_block_and_shared_by_its_arms(tmp_path: Path) -> None:
    state, _ = measured(write(tmp_path, load={"rate": [2, 50], "requests": 8}), tmp_path / "run")
    assert state.state == "complete"
    with opened(tmp_path / "run") as store:
        due: dict[tuple[str, int, str], list[tuple[float, str]]] = defaultdict(list)
        began = {(it.arm_id, it.block): it.began_at for it in store.load_cells()}
        for request, sending in told(store):
            assert request.started_at == pytest.approx(sending.due_at, abs=1e-4)
            assert sending.client is None
            method, _, rate = sending.arm_id.partition("/")[2].rpartition("/")
            after = round(sending.due_at - began[sending.arm_id, sending.block], 3)
            due[rate, sending.block, method].append((after, sending.prompt_id))
    for rate in ("r2", "r50"):
        plain, drafting = (sorted(due[rate, 0, method]) for method in ("none", "draft-simple/small/g4"))
        assert plain == drafting
        assert [at for at, _ in plain] != [at for at, _ in sorted(due[rate, 1, "none"])]
    gaps = arrivals(4001, 2.0, 0, 0, seed=1)
    assert gaps[0] == 0
    assert gaps[-1] / 4000 == pytest.approx(0.5, rel=0.05)
    assert sum(b - a > 0.5 for a, b in pairwise(gaps)) / 4000 == pytest.approx(0.368, abs=0.03)


def test_text_before_a_prompt_has_exactly_its_tokens(tmp_path: Path) -> None:
    prepared = prepare(load(write(tmp_path, load={"clients": 2, "depth": [0, 100], "rounds": 4})))
    plain = {it.id: it for it in prepared.work.prompts["dense/none/c2"]}
    deep = prepared.work.prompts["dense/none/c2/d100"]
    assert [it.id for it in deep][:5:4] == [f"{next(iter(plain))}@100", f"{next(iter(plain))}@100#2"]
    for prompt in deep:
        assert prompt.of is not None
        own = plain[prompt.of].text
        assert prompt.text.endswith(BETWEEN + own)
        assert len(prompt.text.encode()) == 100 + len(own.encode()), "the mock has a token for every byte"
        assert prompt.sha256 == prompt.digest()
    assert len({it.text for it in deep}) == 4
    assert measured(write(tmp_path, load={"clients": 2, "depth": [0, 100]}), tmp_path / "run")[0].state == "complete"


def test_an_engine_that_dies_breaks_the_cell_off_and_loses_nothing(tmp_path: Path) -> None:
    dies = {"kind": "dies", "arm": "*/draft-simple/*/c4", "prompt": "bench/*#2", "block": 0}
    engine = {"kind": "mock", "context": 1024, "mock": {"faults": [dies]}}
    file = write(tmp_path, engine=engine)
    state, observer = measured(file, tmp_path / "run")
    assert state.state != "complete"
    assert observer.failed == ["dense/draft-simple/small/g4/c4"]
    with opened(tmp_path / "run") as store:
        (broken,) = (it for it in store.load_cells() if not it.complete)
        mine = [it for it, sending in told(store) if sending.session_id == broken.session_id]
    assert broken.counters == {}
    assert sum(it.status == "failed" for it in mine) >= 2
    assert all("died" in (it.error or "") or "ended" in (it.error or "") for it in mine if it.status == "failed")
    # The next start measures that cell again, all of it, and nothing else.
    again = Silent()
    assert run(mended(file), tmp_path / "run", again).state == "complete"
    assert again.requests == 8
    with opened(tmp_path / "run") as store:
        kept = [it for it, sending in told(store, superseded=True) if sending.session_id == broken.session_id]
        now = [it for it, _ in told(store) if it.arm_id == broken.arm_id and it.block == broken.block]
    assert len(kept) == len(mine)
    assert len(now) == 8
    assert {it.session_id for it in now}.isdisjoint({broken.session_id})


def test_ctrl_c_in_a_cell_keeps_what_was_in_flight_as_failed(tmp_path: Path) -> None:
    file = write(tmp_path, load={"clients": 4, "rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        measured(file, tmp_path / "run", Silent(interrupt_after=3))
    with opened(tmp_path / "run") as store:
        (cell,) = store.load_cells()
        sent = told(store)
    assert not cell.complete
    failed = [it for it, _ in sent if it.status == "failed"]
    assert len(sent) - len(failed) == 3
    assert 1 <= len(failed) <= 4
    assert all("cancelled" in (it.error or "") for it in failed)
    state, observer = measured(file, tmp_path / "run")
    assert (state.state, observer.requests) == ("complete", 2 * 2 * 8)


def test_a_cell_whose_clients_were_late_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[MockSession] = []
    collect, seconds = MockSession.collect, count(5, 5)

    def late(self: MockSession, timeout_s: float | None = None) -> Ended | None:
        """The first session under load tells that its clients sent later and later."""
        over = collect(self, timeout_s)
        if self not in sessions:
            sessions.append(self)
        if over is None or over.started_at is None or self is not sessions[0]:
            return over
        return over._replace(started_at=over.started_at + next(seconds))

    monkeypatch.setattr(MockSession, "collect", late)
    state, observer = measured(write(tmp_path), tmp_path / "run")
    assert (state.state, state.ok, observer.requests) == ("complete", 48, 48)
    with opened(tmp_path / "run") as store:
        first, again, *_ = store.load_cells()
        late_ms = store.late_before()
        counting = {sending.session_id for _, sending in told(store)}
        severities = {it.severity for it in store.findings() if it.check == "client-late"}
    assert (first.arm_id, first.block) == (again.arm_id, again.block)
    assert late_ms.keys() == {first.session_id}
    assert first.session_id not in counting
    assert severities == {"note"}


def test_a_session_that_does_not_start_fails_its_cell(tmp_path: Path) -> None:
    faults = [{"kind": "start-fails", "arm": "*/c1", "block": 0}]
    file = write(tmp_path, engine={"kind": "mock", "context": 1024, "mock": {"faults": faults}})
    state, observer = measured(file, tmp_path / "run")
    assert observer.failed
    assert state.failed == 4 * len(observer.failed)
    assert run(mended(file), tmp_path / "run", Silent()).state == "complete"


def test_more_clients_than_slots_only_where_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="36 requests would always queue"):
        load(write(tmp_path, load={"clients": [1, 100]}))
    file = write(tmp_path, load={"clients": [1, 6], "rounds": 2, "slots": 2})
    assert list(queueing(load(file).experiment.expand())) == [
        "6 clients share 2 slots: 4 requests always queue, which is part of the time to first token"
    ]
    plan = make_plan(load(file))
    assert {it.requests for it in plan.arms} == {2 * 4, 2 * 12}
    measured(file, tmp_path / "run")
    with opened(tmp_path / "run") as store:
        queued = [it.queued_ms or 0 for _, it in told(store) if it.arm_id.endswith("/c6")]
    assert max(queued) > 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such limit")
def test_more_clients_than_files_are_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 300))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    models = {"targets": {"dense": "bench:dense"}, "drafts": {"small": "bench:draft-small"}}
    file = write(tmp_path, **models, engine={}, load={"clients": 400, "slots": 8})
    with pytest.raises(ExperimentError, match=r"400 clients need \d+ open files, but this system allows 300"):
        prepare(load(file))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"load": {"clients": 4, "depth": 2000}}, "load.depth: 2000 tokens before"),
        (
            {"load": {"clients": 4}, "generation": {"max_tokens": 1020}},
            "use a longer context .-c 1\\d\\d\\d. or shorter",
        ),
    ],
)
def test_a_context_that_is_too_small_is_told_by_slot(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    file = write(tmp_path, **changes)
    with pytest.raises(ExperimentError, match=told):
        measured(file, tmp_path / "run")


def test_options_of_run_are_the_experiment_that_they_stand_for(tmp_path: Path) -> None:
    keys = Described(
        ("mock:dense",), ("mock:small",), gamma=(4,), load={"clients": [1, 4], "slo": {"ttft_ms": 500.0}}
    ).keys()
    assert keys["load"] == {"clients": [1, 4], "slo": {"ttft_ms": 500.0}}
    path = tmp_path / "it.yaml"
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    arms = load(str(path)).experiment.expand()
    assert [arm.id.rpartition("/")[2] for arm in arms if arm.role == "baseline"] == ["c1", "c4"]


@pytest.mark.slow
def test_two_clients_of_a_real_server(tmp_path: Path) -> None:
    """Conservation over all slots is exact, and each request has its own steps."""
    file = write(
        tmp_path,
        targets={"dense": "bench:dense"},
        drafts={"small": "bench:draft-small"},
        engine={"context": 512},
        load={"clients": 2, "rounds": 2},
        design={"blocks": 1},
    )
    state, _ = measured(file, tmp_path / "run")
    assert state.state == "complete"
    with opened(tmp_path / "run") as store:
        for cell in store.load_cells():
            # A cell that is measured again, since its clients were late on a busy machine, leaves its first one there.
            asked = [it for it, _ in told(store, superseded=True) if it.session_id == cell.session_id]
            replies = [it.reply for it in asked if it.reply]
            accepted = sum(it.timings.draft_n_accepted or 0 for it in replies)
            # The server tells a mean over its decodes, with six digits.
            busy = pytest.approx(cell.counters["n_busy_slots_total"], abs=0.01)
            tokens = sum(it.timings.predicted_n for it in replies) + sum(it.predicted_n for it in cell.fillers)
            assert tokens - accepted - sum(it.draft_n_accepted for it in cell.fillers) == busy
            assert {it.stop_reason for it in cell.fillers} <= {"limit", "eos"}
            spent = sum(it.timings.predicted_ms for it in replies) + sum(it.predicted_ms for it in cell.fillers)
            assert spent == pytest.approx(1000 * cell.counters["tokens_predicted_seconds_total"], abs=1)
            if "/none/" not in cell.arm_id:
                for it in replies:
                    assert sum(step.accepted for step in it.steps) == it.timings.draft_n_accepted
                    assert len(it.steps) == it.timings.predicted_n - 1 - (it.timings.draft_n_accepted or 0)
        assert {sending.slot for _, sending in told(store)} == {0, 1}
        for session in store.sessions():
            assert session.resolved["total_slots"] == 2
            assert session.resolved["slot_context"] == 512
