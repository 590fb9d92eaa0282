"""The live view: what runs, what is done, interim numbers that say they are, and no more than fits."""

from __future__ import annotations

import io
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hosts import HOST
from specmeter.analysis import progress as progress_module
from specmeter.analysis.progress import read_progress
from specmeter.analysis.reading import read_run
from specmeter.analysis.summary import interim
from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.laboratory.run import Prepared, prepare
from specmeter.messages import words
from specmeter.record import Estimate, Request, Session, Telemetry
from specmeter.show.names import Names
from specmeter.show.terminal.console import JsonScreen, Screen
from specmeter.show.terminal.progress import RunProgress, Silence, so_far
from specmeter.store import RunStore

EXPERIMENT = """
name: watched
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
arms: [{draft: small, gamma: [2, 4, 8]}]
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
design: {blocks: 3, order: as-written}
engine: {kind: mock}
generation: {max_tokens: 16}
"""


@dataclass(frozen=True)
class Measured:
    """A run that is told again, request by request."""

    prepared: Prepared
    requests: list[Request]
    sessions: dict[str, Session]
    folder: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("watched")
    file = folder / "watched.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    with RunStore.open(folder / "run", readonly=True) as store:
        sessions = {session.id: session for session in store.sessions()}
        return Measured(prepare(load(str(file), ())), list(store.requests()), sessions, folder / "run")


@contextmanager
def going_on(run: Measured, done: int, folder: Path, screen: Screen) -> Generator[RunProgress]:
    """The same run after its first `done` requests, as it goes on, and what was shown of it."""
    work = run.prepared.work
    text = work.experiment.model_dump_json()
    with RunStore.create(folder, experiment_yaml="", experiment_json=text, plan=work.keys()) as store:
        store.begin(0.0)
        store.set_arms(work.arms.values())
        store.set_models(it.model_copy(update={"origin": "path"}) for it in work.models.values())  # time is not virtual
        view = RunProgress(folder, screen)
        view.opened(store, resumed=False)
        cells = {(cell.invocation, cell.block, cell.arm_id): cell for cell in work.cells}
        last = None
        for request in run.requests[:done]:
            cell = cells[request.invocation, request.block, request.arm_id]
            if cell != last:
                view.session_starting(cell, 2)
                store.add_session(run.sessions[request.session_id])
                last = cell
            store.add_request(request)
            view.request_done(request)
        yield view


def shown(view: RunProgress, console: Screen) -> str:
    with console.capture() as capture:
        console.print(view._display())  # pyright: ignore[reportPrivateUsage]
    return capture.get()


def called(run: Measured, request: Request) -> str:
    return Names(run.prepared.work.arms.values()).render(request.arm_id, words("en"))


def terminal(width: int, height: int) -> Screen:
    return Screen(force_terminal=True, width=width, height=height, file=io.StringIO(), color_system=None)


def test_on_a_terminal_it_shows_what_runs_and_interim_numbers(run: Measured, tmp_path: Path) -> None:
    console = terminal(100, 20)
    with going_on(run, 21, tmp_path / "run", console) as view:
        text = shown(view, console)
    assert "21/24" in text
    assert "left" in text
    lines = text.splitlines()
    (now,) = [line for line in lines if line.startswith("> ")]
    assert called(run, run.requests[20]) in now
    assert all("~" in line for line in lines if "draft model small" in line and "block" not in line)
    assert sum("baseline" in line for line in lines) == 1


def test_off_a_terminal_each_block_has_one_line(run: Measured, tmp_path: Path) -> None:
    out = io.StringIO()
    with going_on(run, 24, tmp_path / "run", Screen(file=out, width=200)):
        _, *told = out.getvalue().splitlines()
    assert [line.partition(" requests done")[0] for line in told] == [
        *("block 1/3: 0/24", "block 2/3: 8/24", "block 3/3: 16/24")
    ]
    assert max(map(len, told)) < 100


def test_a_speedup_above_what_a_step_emits_is_not_told(run: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    held_up = Estimate(point=27.68, low=None, high=None, n=1, unit="x", method="")

    def held(*asked: Any) -> dict[str, Any]:
        return {arm_id: (rate, speedup and held_up) for arm_id, (rate, speedup) in interim(*asked).items()}

    assert any(it.speedup for it in read_progress(run.folder).arms)
    monkeypatch.setattr(progress_module, "interim", held)
    assert [it.speedup for it in read_progress(run.folder).arms] == [None] * 4


def test_threads_of_a_server_that_already_ran_are_not_ours_to_set() -> None:
    now = 0.0
    silence = Silence(lambda: now)
    sample = Telemetry(at=0, cpu_percent=100, other_cpu_percent=50, memory_available_bytes=1)
    now = 90.0  # the server needed so long to start
    assert silence.news_line("plain", sample, HOST) == ""
    now = 120.0
    assert silence.news_line("plain", sample, HOST, ours=False).endswith("; close other programs")
    now = 121.0
    assert silence.news_line("plain", sample, HOST) == ""


def test_interim_numbers_are_those_of_the_summary(run: Measured) -> None:
    found = read_progress(run.folder)
    final = read_run(run.folder).summary.arms
    assert {it.arm_id: it.speedup for it in found.arms} == {it.arm_id: it.speedup for it in final}
    rates = {it.arm_id: it.decode_rate.point for it in final if it.decode_rate}
    assert {it.arm_id: it.tokens_per_second for it in found.arms} == pytest.approx(rates)
    assert (found.state, found.done, found.planned, found.seconds_left) == ("complete", 24, 24, 0)


def test_another_process_reads_how_far_a_run_has_come(run: Measured, tmp_path: Path) -> None:
    with going_on(run, 16, tmp_path / "run", Screen(file=io.StringIO())):
        found = read_progress(tmp_path / "run")
    assert (found.state, found.done, found.planned) == ("measuring", 16, 24)
    assert (found.block, found.blocks) == (2, 3)
    assert [(it.done, it.planned) for it in found.arms] == [(4, 6)] * 4
    each = [it.seconds_each or 0.0 for it in found.arms]
    assert found.seconds_left == pytest.approx(2 * sum(each))
    assert read_progress(tmp_path / "run").state == "partial"  # its writer has ended


def test_long_runs_are_not_summarised_on_the_way(run: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "MAX_REQUESTS", 23)
    found = read_progress(run.folder)
    assert [it.speedup for it in found.arms] == [None] * 4


def test_cells_under_load_have_interim_speedups(tmp_path: Path) -> None:
    file = tmp_path / "loaded.yaml"
    text = EXPERIMENT.replace("[2, 4, 8]", "4").replace("blocks: 3", "blocks: 2")
    file.write_text(text + "load: {clients: [1, 2], rate: 0.3, requests: 8}\n", encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    final = {arm.arm_id: arm.speedup for arm in read_run(tmp_path / "run").summary.arms}
    found = {it.arm_id: it for it in read_progress(tmp_path / "run").arms if it.speedup is not None}
    assert {arm_id.rpartition("/")[2] for arm_id in found} == {"c1", "c2", "r0.3"}
    for arm_id, it in found.items():
        # With ramp and drain, which the summary leaves out.
        assert it.speedup is not None
        assert it.speedup.n == 2
        assert it.speedup.point == pytest.approx(getattr(final[arm_id], "point", None), rel=0.35)
        assert it.tokens_per_second


def test_programs_read_a_json_object_a_line(run: Measured, tmp_path: Path) -> None:
    out = io.StringIO()
    screen = JsonScreen(file=out)
    with going_on(run, 24, tmp_path / "run", screen):
        screen.say("warning: \x1b[31m\u202e", "none")
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {it["event"] for it in told} == {"progress", "message"}
    steps = [it for it in told if it["event"] == "progress"]
    assert all(it["interim"] for it in steps)
    assert [it["done"] for it in steps] == sorted(it["done"] for it in steps)
    assert {"arm_id", "done", "planned", "tokens_per_second", "speedup"} <= steps[-1]["arms"][0].keys()
    assert "\x1b" not in out.getvalue()


def test_run_tells_programs_everything_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("watched.yaml")
    file.write_text(EXPERIMENT, encoding="utf-8")
    assert invoke(["run", str(file), "--progress", "json", "--out", "run"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told[-1]["event"] == "progress"
    assert (told[-1]["done"], told[-1]["seconds_left"]) == (24, 0)
    assert {it["seconds_left"] for it in told if it["event"] == "progress"} == {None, 0}, "time is virtual"
    assert any("24 requests to measure, into" in it["text"] for it in told if it["event"] == "message")
    assert read_progress(Path("run")).document() == told[-1] | {"state": "complete"}


def test_an_interim_interval_that_says_nothing_is_left_out() -> None:
    wide = Estimate(point=2.03, low=0.04, high=110.68, n=2, unit="x", method="")
    assert so_far(wide) == "~2.03x"
    assert so_far(wide.model_copy(update={"low": 1.5, "high": 2.7})) == "~2.03x [1.50, 2.70]"
