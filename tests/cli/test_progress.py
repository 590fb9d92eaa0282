"""The live view: what runs, what is done, interim numbers that say they are, and no more than fits."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.laboratory.run import Prepared, prepare
from specmeter.messages import words
from specmeter.record import Estimate, Request
from specmeter.show.names import Names
from specmeter.show.terminal.console import Screen
from specmeter.show.terminal.progress import Interim, RunProgress, _so_far  # pyright: ignore[reportPrivateUsage]
from specmeter.store import RequestKey, RunStore

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Prepared, list[Request], Path]:
    folder = tmp_path_factory.mktemp("watched")
    file = folder / "watched.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    with RunStore.open(folder / "run", readonly=True) as store:
        return prepare(load(str(file), ())), list(store.requests()), folder / "run"


def called(prepared: Prepared, request: Request) -> str:
    return Names(prepared.work.arms.values()).render(request.arm_id, words("en"))


def watch(prepared: Prepared, requests: list[Request], console: Screen) -> RunProgress:
    """Let a view see these requests as a run would show them."""
    keys = [RequestKey(*key) for key in prepared.work.keys()]  # noqa: SIM118
    view = RunProgress(prepared.work, keys, len(keys), console)
    cells = {(cell.invocation, cell.block, cell.arm_id): cell for cell in prepared.work.cells}
    last = None
    for request in requests:
        cell = cells[request.invocation, request.block, request.arm_id]
        if cell != last:
            view.session_starting(cell, 2)
            last = cell
        view.request_done(request)
    return view


def test_on_a_terminal_it_shows_what_runs_and_interim_numbers(run: tuple[Prepared, list[Request], Path]) -> None:
    prepared, requests, _ = run
    console = Screen(force_terminal=True, width=100, height=20, file=io.StringIO(), color_system=None)
    view = watch(prepared, requests[:-3], console)
    with console.capture() as capture:
        console.print(view._display())
    shown = capture.get()
    assert "21/24" in shown
    assert "left" in shown
    assert "interim: unfinished, not checked" in shown
    lines = shown.splitlines()
    (now,) = [line for line in lines if line.startswith("> ")]
    assert called(prepared, requests[-4]) in now
    assert all("~" in line for line in lines if "small draft" in line and "block" not in line)
    assert sum("baseline" in line for line in lines) == 1


def test_a_low_terminal_shows_the_running_arm_and_says_how_many_are_hidden(
    run: tuple[Prepared, list[Request], Path],
) -> None:
    prepared, requests, _ = run
    console = Screen(force_terminal=True, width=80, height=7, file=io.StringIO(), color_system=None)
    view = watch(prepared, requests[:-1], console)
    with console.capture() as capture:
        console.print(view._display())
    shown = capture.get()
    assert len(shown.splitlines()) <= 7
    assert "2 more arms" in shown
    assert f"> {called(prepared, requests[-2])}" in shown


def test_off_a_terminal_each_block_begins_with_interim_speedups(run: tuple[Prepared, list[Request], Path]) -> None:
    prepared, requests, _ = run
    out = io.StringIO()
    watch(prepared, requests, Screen(file=out, width=200))
    told = [
        line for line in out.getvalue().splitlines() if line.startswith("interim speedups (unfinished, not checked)")
    ]
    assert len(told) == 2  # before the second and the third block
    assert told[0].count("~") == 3


def test_an_interim_interval_that_says_nothing_is_left_out() -> None:
    wide = Estimate(point=2.03, low=0.04, high=110.68, n=2, unit="x", method="")
    assert _so_far(wide) == "~2.03x"
    assert _so_far(wide.model_copy(update={"low": 1.5, "high": 2.7})) == "~2.03x [1.50, 2.70]"


def test_interim_numbers_are_those_of_the_summary(run: tuple[Prepared, list[Request], Path]) -> None:
    prepared, requests, folder = run
    interim = Interim(prepared.work.arms, [], [], len(requests))
    for request in requests:
        interim.add(request)
    interim.update()
    final = {arm.arm_id: arm for arm in read_run(folder).summary.arms}
    assert {arm_id: speedup.point for arm_id, speedup in interim.speedups()} == {
        arm_id: arm.speedup.point for arm_id, arm in final.items() if arm.speedup is not None
    }


def test_a_resumed_run_counts_what_was_there(run: tuple[Prepared, list[Request], Path]) -> None:
    prepared, _, folder = run
    with RunStore.open(folder, readonly=True) as store:
        before = list(store.rows())[:16]
    done = {row.key for row in before}
    missing = [key for key in (RequestKey(*key) for key in prepared.work.keys()) if key not in done]  # noqa: SIM118
    console = Screen(force_terminal=True, width=100, height=20, file=io.StringIO(), color_system=None)
    view = RunProgress(prepared.work, missing, 24, console, before)
    with view.shown(), console.capture() as capture:
        console.print(view._display())
    shown = capture.get()
    assert "16/24" in shown
    assert (
        sum(("no speculation" in line or "small draft" in line) and " 4/6 " in line for line in shown.splitlines()) >= 4
    )


def test_long_runs_are_not_summarised_on_the_way(run: tuple[Prepared, list[Request], Path]) -> None:
    prepared, requests, _ = run
    interim = Interim(prepared.work.arms, [], [], 100_000)
    interim.add(requests[0])
    interim.update()
    assert interim.speedups() == []


def test_cells_under_load_have_interim_speedups(tmp_path: Path) -> None:
    file = tmp_path / "loaded.yaml"
    text = EXPERIMENT.replace("[2, 4, 8]", "4").replace("blocks: 3", "blocks: 2")
    file.write_text(text + "load: {clients: [1, 2], rate: 0.3, requests: 8}\n", encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        requests = list(store.requests())
    prepared = prepare(load(str(file), ()))
    interim = Interim(prepared.work.arms, [], [], len(requests))
    for request in requests:
        interim.add(request)
    assert interim.speedups() == []  # a cell counts when it is finished, which is between sessions
    interim.update()
    final = {arm.arm_id: arm.speedup for arm in read_run(tmp_path / "run").summary.arms}
    assert {arm_id.rpartition("/")[2] for arm_id, _ in interim.speedups()} == {"c1", "c2", "r0.3"}
    for arm_id, speedup in interim.speedups():
        # With ramp and drain, which the summary leaves out.
        assert speedup.n == 2
        assert speedup.point == pytest.approx(getattr(final[arm_id], "point", None), rel=0.35)
        assert interim.rate(arm_id)
