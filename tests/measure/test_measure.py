"""The measuring loop and the run around it, on the mock engine: virtual time, real records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from pydantic import BaseModel, model_serializer

from specmeter.analysis.reading import read_run
from specmeter.errors import EngineError, EngineStartError, ExperimentError, StoreError, ask_to_stop, forget_stop
from specmeter.experiments import schedule
from specmeter.experiments.file import load
from specmeter.laboratory.run import choose_folder, prepare, run
from specmeter.measure import Work, loop
from specmeter.measure.loop import Observer, _CellRunner
from specmeter.record import EngineSettings, Prompt, Request
from specmeter.store import RunState, RunStore
from specmeter.store.locate import find_run

if TYPE_CHECKING:
    from specmeter.engines import EngineSession


class Silent(Observer):
    """Remembers what was asked, and what failed."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.failures: list[str] = []

    def request_done(self, request: Request) -> None:
        self.requests.append(request)

    def session_failed(self, arm_id: str, error: EngineError) -> None:  # noqa: ARG002
        self.failures.append(arm_id)


def write(folder: Path, **changes: Any) -> str:
    data: dict[str, Any] = {
        "name": "mocked",
        "targets": {"dense": "mock:dense", "moe": "mock:moe"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": 4}],
        "workloads": [{"source": "bench", "kinds": ["fact", "edit"], "per_kind": 2}],
        "engine": {"kind": "mock"},
        "generation": {"max_tokens": 32},
    }
    path = folder / "mocked.yaml"
    path.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    return str(path)


def measured(file: str, folder: Path) -> tuple[RunState, Silent]:
    observer = Silent()
    return run(prepare(load(file)), folder, observer), observer


def faults(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "mock", "mock": {"faults": list(items)}, **more}


def test_a_run_measures_every_planned_request_once(tmp_path: Path) -> None:
    state, observer = measured(write(tmp_path), tmp_path / "run")
    assert (state.state, state.ok, state.planned) == ("complete", 48, 48)
    assert len(observer.requests) == 48
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        counts = Counter((r.invocation, r.block, r.arm_id, r.prompt_id) for r in store.requests())
        sessions = list(store.sessions())
    assert set(counts.values()) == {1}
    assert len(sessions) == 4 * 3
    for session in sessions:
        assert session.ended_at is not None
        assert session.warmup_ms > 0
        assert session.prompt_forwards == 1
    assert (tmp_path / "run" / "BENCHMARK_ENV.md").read_text(encoding="utf-8").startswith("# Benchmark environment")
    assert (tmp_path / "run" / "experiment.yaml").read_text(encoding="utf-8") == Path(write(tmp_path)).read_text()


def test_the_report_shows_a_dense_gain_and_names_the_arm(tmp_path: Path) -> None:
    measured(write(tmp_path), tmp_path / "run")
    report = read_run(tmp_path / "run")
    dense, moe = report.answers
    assert (dense.decision, dense.arm_id) == ("speculate", "dense/draft-simple/small/g4")
    assert dense.speedup is not None
    assert dense.speedup.low is not None
    assert dense.speedup.low > 1
    assert moe.decision == "do not speculate"
    assert report.summary.complete


def test_ctrl_c_keeps_what_was_measured_and_the_rest_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    prepared = prepare(load(write(tmp_path)))
    interrupted = Interrupting(after=17)
    with pytest.raises(KeyboardInterrupt):
        run(prepared, folder, interrupted)
    with RunStore.open(folder, readonly=True) as store:
        state = store.state()
        assert (state.state, state.reason) == ("partial", "interrupted")
        assert state.ok >= 17, "what was reported is stored; so are requests that were stored together with it"
        assert all(session.ended_at for session in store.sessions())
    resumed, observer = measured(write(tmp_path), folder)
    assert (resumed.state, resumed.ok) == ("complete", 48)
    assert len(observer.requests) == 48 - state.ok


def test_requests_are_stored_before_they_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones together: a group is on disk as a whole when its first one is reported."""
    folder, transactions = tmp_path / "run", list[int]()
    store_requests = RunStore.add_requests

    def counted(store: RunStore, requests: list[Any]) -> None:
        transactions.append(len(requests))
        store_requests(store, requests)

    class Looking(Silent):
        def request_done(self, request: Request) -> None:
            super().request_done(request)
            with RunStore.open(folder, readonly=True) as store:
                assert _key(request) in store.done_keys()
                assert store.state().ok == sum(transactions)

    monkeypatch.setattr(RunStore, "add_requests", counted)
    monkeypatch.setattr(loop, "TOGETHER_S", 3600.0)
    observer = Looking()
    run(prepare(load(write(tmp_path))), folder, observer)
    assert len(observer.requests) == sum(transactions) == 48
    sessions = {request.session_id for request in observer.requests}
    assert len(transactions) == len(sessions) + 1, "the first request, then what each session still had"


def _key(request: Request) -> tuple[int, int, str, str]:
    return request.invocation, request.block, request.arm_id, request.prompt_id


def test_a_ctrl_c_that_became_another_error_is_still_one(tmp_path: Path) -> None:
    """Pydantic does that with one that arrives while it serializes."""

    class Stops(BaseModel):
        @model_serializer
        def told(self) -> str:
            ask_to_stop()
            return ""

    class Serializing(Silent):
        def request_done(self, request: Request) -> None:  # noqa: ARG002
            Stops().model_dump_json()

    try:
        with pytest.raises(KeyboardInterrupt):
            run(prepare(load(write(tmp_path))), tmp_path / "run", Serializing())
    finally:
        forget_stop()  # a worker of pytest ignores SIGINT, so `run` leaves it to the program
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert store.state().reason == "interrupted"


class Interrupting(Silent):
    """Presses Ctrl-C after so many requests."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def request_done(self, request: Request) -> None:
        super().request_done(request)
        if len(self.requests) == self.after:
            raise KeyboardInterrupt


def test_an_engine_that_dies_costs_one_request(tmp_path: Path) -> None:
    engine = faults({"kind": "dies", "arm": "moe/draft*", "prompt": "*edit*", "block": 1})
    state, observer = measured(write(tmp_path, engine=engine), tmp_path / "run")
    failed = [request for request in observer.requests if request.status == "failed"]
    assert failed
    assert {request.arm_id for request in failed} == {"moe/draft-simple/small/g4"}
    assert all(request.error for request in failed)
    assert state.ok + len(failed) == state.planned
    assert state.state == "failed"
    report = read_run(tmp_path / "run")
    assert report.summary.complete is False
    assert report.summary.requests_failed == len(failed)


def test_a_session_that_does_not_start_fails_its_requests_and_the_others_go_on(tmp_path: Path) -> None:
    engine = faults({"kind": "start-fails", "arm": "dense/none", "block": 0})
    state, observer = measured(write(tmp_path, engine=engine), tmp_path / "run")
    assert (state.failed, state.ok) == (4, 44)
    assert observer.failures == ["dense/none"]


def test_an_engine_that_never_starts_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="3 sessions in a row"):
        measured(write(tmp_path, engine=faults({"kind": "start-fails"})), tmp_path / "run")
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert store.state().failed == 12


def test_failed_requests_are_tried_again_on_resume(tmp_path: Path) -> None:
    """The fault is part of the experiment, so the second try fails too: what counts is that it was tried."""
    engine = faults({"kind": "dies", "arm": "dense/none", "block": 0, "prompt": "*fact*"})
    file = write(tmp_path, engine=engine)
    first, _ = measured(file, tmp_path / "run")
    second, observer = measured(file, tmp_path / "run")
    assert first.failed > 0
    assert len(observer.requests) == first.failed
    assert second.planned == first.planned


@pytest.mark.parametrize("kind", ["hangs", "garbage"])
def test_other_failures_are_recorded_with_their_reason(tmp_path: Path, kind: str) -> None:
    engine = faults({"kind": kind, "arm": "dense/draft*", "block": 0, "prompt": "*fact*"})
    _, observer = measured(write(tmp_path, engine=engine), tmp_path / "run")
    failed = [request for request in observer.requests if request.status == "failed"]
    assert failed
    assert all(request.error and "fix:" in request.error for request in failed)


def test_an_arm_that_did_not_speculate_is_no_answer(tmp_path: Path) -> None:
    """The server went on without speculation: what was measured is the baseline a second time."""
    arms = [{"draft": "small", "gamma": [2, 4]}]
    file = write(tmp_path, arms=arms, engine=faults({"kind": "inactive", "arm": "dense/draft*g4"}))
    measured(file, tmp_path / "run")
    report = read_run(tmp_path / "run")
    assert report.invalid == {"dense/draft-simple/small/g4"}
    assert report.answers[0].arm_id == "dense/draft-simple/small/g2"


def test_a_changed_experiment_is_refused_and_the_change_named(tmp_path: Path) -> None:
    measured(write(tmp_path), tmp_path / "run")
    with pytest.raises(StoreError, match=r"experiment\.design\.blocks: 3 -> 4"):
        measured(write(tmp_path, design={"blocks": 4}), tmp_path / "run")


def test_a_changed_model_is_refused(tmp_path: Path) -> None:
    measured(write(tmp_path), tmp_path / "run")
    prepared = prepare(load(write(tmp_path)))
    other = prepared.work.models["small"].model_copy(update={"sha256": "0" * 64})
    work = Work(**{**vars(prepared.work), "models": {**prepared.work.models, "small": other}})
    with pytest.raises(StoreError, match=r"models\.small\.sha256"):
        run(replace(prepared, work=work), tmp_path / "run", Silent())


def test_a_prompt_beyond_the_context_is_refused_before_anything_starts(tmp_path: Path) -> None:
    engine = {"kind": "mock", "context": 48}
    with pytest.raises(ExperimentError, match=r"the prompt has \d+ tokens, .* the context has room for 48"):
        measured(write(tmp_path, engine=engine), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_context_that_is_not_given_fits_the_longest_prompt(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 6000)
    prompts = [{"source": "file", "paths": ["long.txt"], "format": "completion"}]
    file = write(tmp_path, engine={"kind": "mock"}, workloads=prompts)
    prepared = prepare(load(file))
    contexts = {arm.engine.context for arm in prepared.work.arms.values()}
    assert contexts == {prepared.experiment.engine.context}
    (context,) = contexts
    assert context is not None
    assert context % 256 == 0
    assert context >= 6000
    measured(file, tmp_path / "run")
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert store.state().state == "complete"
        certificate = store.certificate()
    assert certificate is not None
    assert certificate.verdict != "invalid"
    measured(file, tmp_path / "run")  # the same experiment, to be resumed


def stopped(file: str, folder: Path) -> None:
    """A run that ends before its first request."""
    prepared = prepare(load(file))
    settings = EngineSettings(context=48)
    arms = {name: arm.model_copy(update={"engine": settings}) for name, arm in prepared.work.arms.items()}
    with pytest.raises(ExperimentError, match=r"engine\.context: prompt .* has \d+ tokens"):
        run(replace(prepared, work=replace(prepared.work, arms=arms)), folder, Silent())


def test_the_latest_run_is_one_that_holds_requests_if_there_is_any(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stopped(write(tmp_path), runs / "too-long")
    assert find_run("latest", runs) == runs / "too-long"
    measured(write(tmp_path), runs / "measured")
    stopped(write(tmp_path), runs / "too-long-again")
    assert find_run("latest", runs) == runs / "measured"


def test_a_fresh_server_for_every_request(tmp_path: Path) -> None:
    measured(write(tmp_path, design={"session": "request", "blocks": 1}), tmp_path / "run")
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        sessions = list(store.sessions())
        assert len({request.session_id for request in store.requests()}) == len(sessions) == 16


def test_all_arms_of_a_block_meet_the_prompts_in_the_same_order(tmp_path: Path) -> None:
    _, observer = measured(write(tmp_path), tmp_path / "run")
    orders: dict[int, set[tuple[str, ...]]] = {}
    for block in range(3):
        for arm in {request.arm_id for request in observer.requests}:
            ids = tuple(r.prompt_id for r in observer.requests if r.arm_id == arm and r.block == block)
            orders.setdefault(block, set()).add(ids)
    assert all(len(order) == 1 for order in orders.values())
    assert len(set.union(*orders.values())) > 1


def test_the_latest_unfinished_run_of_the_same_experiment_is_chosen(tmp_path: Path) -> None:
    prepared = prepare(load(write(tmp_path)))
    text = prepared.experiment.model_dump_json()
    folder, resumed = choose_folder("mocked", text, runs=tmp_path / "runs")
    assert not resumed
    with pytest.raises(KeyboardInterrupt):
        run(prepared, folder, Interrupting(after=2))
    assert choose_folder("mocked", text, runs=tmp_path / "runs") == (folder, True)
    assert choose_folder("mocked", text, runs=tmp_path / "runs", new=True)[1] is False
    assert choose_folder("mocked", "{}", runs=tmp_path / "runs")[1] is False
    assert find_run("latest", tmp_path / "runs") == folder
    assert find_run(str(folder / "run.sqlite")) == folder, "its database stands for the folder"
    measured(write(tmp_path), folder)
    assert choose_folder("mocked", text, runs=tmp_path / "runs")[1] is False


def test_a_run_that_was_stopped_before_it_was_checked_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    prepared = prepare(load(write(tmp_path)))
    text = prepared.experiment.model_dump_json()
    folder, _ = choose_folder("mocked", text, runs=tmp_path / "runs")
    with monkeypatch.context() as patch:
        patch.setattr("specmeter.validity.losslessness.measure_margins", stop)
        with pytest.raises(KeyboardInterrupt):
            run(prepared, folder, Silent())
    assert choose_folder("mocked", text, runs=tmp_path / "runs") == (folder, True)
    _, observer = measured(write(tmp_path), folder)
    assert observer.requests == []
    assert read_run(folder).certificate is not None
    assert choose_folder("mocked", text, runs=tmp_path / "runs")[1] is False


def test_a_run_that_was_begun_in_another_order_goes_on_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order lies in the folder, whatever another version would plan."""
    file, folder = write(tmp_path), tmp_path / "run"
    real = schedule.plan
    with monkeypatch.context() as earlier:
        earlier.setattr(schedule, "plan", lambda *args, first=(): tuple(reversed(real(*args))))  # noqa: ARG005
        planned = [cell.arm_id for cell in prepare(load(file)).work.cells]
        with pytest.raises(KeyboardInterrupt):
            run(prepare(load(file)), folder, Interrupting(after=6))
    assert measured(file, folder)[0].state == "complete"
    with RunStore.open(folder, readonly=True) as store:
        order = [session.arm_id for session in store.sessions()]
        assert [cell.arm_id for cell in store.cells()] == planned
    assert list(dict.fromkeys(order)) == list(dict.fromkeys(planned))
    assert planned != [cell.arm_id for cell in prepare(load(file)).work.cells]


def test_baselines_are_measured_before_the_arms_that_need_them(tmp_path: Path) -> None:
    file = write(tmp_path, arms=[{"draft": "small", "gamma": [2, 4, 8]}])
    cells = prepare(load(file)).work.cells
    assert {cell.arm_id for cell in cells[:2]} == {"dense/none", "moe/none"}


class Wordy:
    """A session whose tokenizer needs two tokens for every character of a warm-up."""

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        return tuple(range(2 * len(prompt.text)))


def test_a_warm_up_that_would_not_fit_is_cut(tmp_path: Path) -> None:
    """Words in reverse order may be more tokens than the prompt that fills the context."""
    prepared = prepare(load(write(tmp_path, engine={"kind": "mock", "context": 1024})))
    bench = _CellRunner(prepared.work, prepared.engine, cast("RunStore", None), Silent())
    arm = next(iter(prepared.work.arms.values()))
    prompt = Prompt(id="warm-up", workload="text", kind="fact", text="word " * 200, sha256="0" * 64)
    bench.lengths[arm.target, prompt.id] = 968
    cut = bench._reversed(cast("EngineSession", Wordy()), arm, prompt, tokens=32)
    assert 968 < 2 * len(cut.text) <= 1024 - 32
    bench.lengths[arm.target, prompt.id] = 400
    same = bench._reversed(cast("EngineSession", Wordy()), arm, prompt, tokens=32)
    assert len(same.text.split()) == len(prompt.text.split()), "far from the limit nothing is tokenized"
    assert same.text.startswith(cut.text)
