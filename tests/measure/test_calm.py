"""A block that others disturbed is excluded by telemetry alone, and measured again; what it said is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from advise.test_course import Heard
from specmeter.advise import screening
from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.advise import advise
from specmeter.advise.observer import Silent
from specmeter.advise.session import PATIENCE
from specmeter.analysis.load.figures import measured_cells
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import load as load_experiment
from specmeter.host.telemetry import (
    CpuTime,
    Gate,
    Seen,
    gpu_was_slowed,
    lowest_clock,
    others_were_busy,
    share,
    wait_for_calm,
)
from specmeter.laboratory.run import Prepared, choose_folder, prepare, run
from specmeter.measure import Work, loop
from specmeter.measure.calm import MAX_TIMES, by_session
from specmeter.record import Disturbance, Finding, Host, Request, Telemetry
from specmeter.record.measured import threads_beside
from specmeter.show.advice_words import would_decide
from specmeter.show.page.live import Pages
from specmeter.store import RequestKey, RunReader, RunState, RunStore
from specmeter.validity.checks.machine import excluded_block
from specmeter.validity.checks.run_data import RunData
from validity.factory import EPOCH, experiment, host, load, run_data

BLOCKS = 4


def test_the_rule_looks_at_shares_of_others_and_at_slowed_gpus_alone() -> None:
    calm, busy = Seen(0, 0.8), Seen(0, 51.0)
    assert not others_were_busy([])
    assert not others_were_busy([[calm] * 60])
    assert others_were_busy([[calm] * 45 + [busy] * 15])
    assert others_were_busy([[calm] * 300, [calm] * 2 + [busy] * 3]), "one session alone"
    assert not others_were_busy([[Seen(0, 6.4)], [calm] * 20]), "a session of one sample says little"
    assert others_were_busy([[Seen(0, 4.0)] * 20], gate=Gate(2.5)), "an engine that takes all of many cores"
    assert gpu_was_slowed([Seen(0, 0.5, slowed=True)] * 5 + [calm] * 50)
    assert not gpu_was_slowed([Seen(0, 0.5, slowed=True)] + [calm] * 5)


def test_a_session_of_two_samples_beside_a_program_that_takes_a_core_is_disturbed() -> None:
    """Half of a baseline's two seconds went unseen among the minute that its block took."""
    calm = [Seen(0, 0.8)] * 20
    assert others_were_busy([calm, [Seen(0, 50.0), Seen(0, 50.0)], calm, calm])
    assert others_were_busy([calm, [Seen(0, 50.0)], calm, calm])
    assert not others_were_busy([calm, [Seen(0, 15.0)], calm, calm]), "a fifth of a second holds few ticks"


def test_a_clock_that_falls_between_sessions_is_seen() -> None:
    fast, slow = [Seen(0, 0.8, mhz=4000)] * 5, [Seen(0, 0.8, mhz=2800)] * 5
    assert lowest_clock([fast, slow]) == 0.7
    assert lowest_clock([[*fast, slow[0]], [*fast, slow[0], slow[0]]]) == 1.0, "an idle moment"
    assert lowest_clock([fast, slow[:2]]) == 1.0, "two samples say little"
    assert lowest_clock([[Seen(0, 0.8)] * 5]) == 1.0


def test_stolen_time_is_of_others_though_the_engine_counts_it_as_its_own() -> None:
    """Without PARAVIRT_TIME_ACCOUNTING an engine's seconds hold what a hypervisor took from it."""
    before = CpuTime(busy=0, total=0, stolen=0, own=0, reaped=0, engine={7: 0.0})
    after = CpuTime(busy=20, total=20, stolen=4, own=0.2, reaped=0, engine={7: 19.8})
    assert share(before, after).other_percent == 20.0


def test_calm_is_waited_for_no_longer_than_told() -> None:
    slept: list[float] = []
    assert not wait_for_calm(0, sleep=slept.append)
    assert not wait_for_calm(-5, sleep=slept.append)
    assert slept == []


# --- a run -----------------------------------------------------------------------------------------------------------


def write(folder: Path, **design: Any) -> str:
    data = {
        "name": "mocked",
        "targets": {"dense": "mock:dense"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": 4}],
        "workloads": [{"source": "bench", "kinds": ["edit"], "per_kind": 2}],
        "engine": {"kind": "mock"},
        "generation": {"max_tokens": 32},
        "design": {"blocks": BLOCKS, "disturbed": "repeat", "wait_s": 0, "probe": "off", **design},
    }
    path = folder / "mocked.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(path)


class Disturbing:
    """Says of the mock's blocks, whose time is virtual, which time they were disturbed."""

    def __init__(self, *times: tuple[int, int]) -> None:
        self.times = times
        """(block, which time it was measured); of none every block is."""

    def __call__(self, store: RunReader, place: tuple[int, int], *_: object) -> Disturbance | None:
        every = store.disturbances()
        before = [it for it in every if (it.invocation, it.block) == place]
        again = len(every) < (MAX_TIMES - 1) * BLOCKS
        if self.times and (place[1], len(before) + 1) not in self.times:
            return None
        rows = [it for it in store.rows() if (it.invocation, it.block) == place]
        shares = {"samples": 9, "mean_percent": 51.0, "highest_percent": 80.0, "slowed": 0}
        return Disturbance(
            invocation=place[0],
            block=place[1],
            attempt=len(before) + 1,
            requests=len(rows),
            began_at=min(it.started_at for it in rows),
            ended_at=max(it.started_at for it in rows),
            programs=("blender (0.98 cores)",),
            again=again,
            **shares,
        )


@pytest.fixture
def disturbing(monkeypatch: pytest.MonkeyPatch) -> Disturbing:
    found = Disturbing((1, 1), (2, 1), (2, 2))
    monkeypatch.setattr(loop, "disturbance", found)
    monkeypatch.setattr(Work, "simulated", False)
    return found


def measured(file: str, folder: Path) -> RunState:
    return run(prepare(load_experiment(file)), folder, Silent())


@pytest.mark.usefixtures("disturbing")
def test_a_disturbed_block_is_kept_does_not_count_and_is_measured_again(tmp_path: Path) -> None:
    file, folder = write(tmp_path), tmp_path / "run"
    state = measured(file, folder)
    assert (state.state, state.ok, state.planned) == ("complete", 4 * BLOCKS, 4 * BLOCKS)
    with RunStore.open(folder, readonly=True) as store:
        assert [(it.block, it.attempt, it.requests, it.again) for it in store.disturbances()] == [
            (1, 1, 4, True),
            (2, 1, 4, True),
            (2, 2, 4, True),
        ]
        assert len(list(store.rows())) == 4 * BLOCKS
        assert len(list(store.rows(superseded=True))) == 4 * (BLOCKS + 3)
        assert {key.block: count for key, count in store.replaced().items()} == {1: 1, 2: 2}
        assert store.missing() == []
    report = read_run(folder)
    (arm,) = [it for it in report.summary.arms if it.role != "baseline"]
    assert arm.speedup is not None
    assert arm.speedup.n == BLOCKS
    assert report.over_all_blocks[arm.arm_id].n == BLOCKS + 3
    assert measured(file, folder).ok == 4 * BLOCKS, "and there is nothing left to measure"


class Sampled:
    """Telemetry of two cores, of which a program takes one from `begins` to `ends` of the virtual clock."""

    def __init__(self, clock: Callable[[], float], begins: float, ends: float) -> None:
        self.clock, self.begins, self.ends = clock, begins, ends

    def __call__(self, emit: Callable[[Telemetry], object], **_: object) -> Sampled:
        self.emit = emit
        return self

    def __enter__(self) -> Sampled:
        self.since = self.clock()
        return self

    def __exit__(self, *_: object) -> None:
        for second in range(1, round(self.clock() - self.since) + 1):
            at = self.since + second
            busy = self.begins <= at <= self.ends
            self.emit(
                Telemetry(
                    at=at,
                    cpu_percent=100,
                    other_cpu_percent=50 if busy else 0.8,
                    memory_available_bytes=2**30,
                    programs=("blender (1.00 cores)",) if busy else (),
                )
            )


def test_a_program_that_takes_a_core_for_half_a_minute_costs_a_block_or_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a run of minutes; the run waits for its end, and says what it would have said without it."""
    file = write(tmp_path, wait_s=300)
    calm = measured(file, tmp_path / "calm")
    prepared = prepare(load_experiment(file))
    clock = prepared.engine.clock
    began = clock()
    waits: list[float] = []

    def wait(limit_s: float, *_: object) -> bool:
        waits.append(limit_s)
        prepared.engine.now_ms += 1000 * max(0.0, began + 40 - clock())  # pyright: ignore[reportAttributeAccessIssue]
        return True

    monkeypatch.setattr(Work, "simulated", False)
    monkeypatch.setattr(loop, "TelemetrySampler", Sampled(clock, began + 10, began + 40))
    monkeypatch.setattr(loop, "wait_for_calm", wait)
    state = run(prepared, tmp_path / "run", Silent())
    assert (state.state, state.ok, state.planned) == ("complete", calm.planned, calm.planned)
    report, quiet = read_run(tmp_path / "run"), read_run(tmp_path / "calm")
    assert 1 <= len(report.disturbances) <= 2
    assert {it.programs for it in report.disturbances} == {("blender (1.00 cores)",)}
    assert len(waits) == len(report.disturbances)
    assert waits[0] == 300
    assert report.certificate is not None
    assert quiet.certificate is not None
    assert report.certificate.verdict == quiet.certificate.verdict
    speedups = [it.speedup for it in (*report.summary.arms, *quiet.summary.arms) if it.speedup is not None]
    assert [it.n for it in speedups] == [BLOCKS, BLOCKS]
    assert speedups[0].point == pytest.approx(speedups[1].point, rel=0.02)


class Listening(Silent):
    """Remembers the order of what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def request_done(self, request: Request) -> None:  # noqa: ARG002
        self.heard.append("request")

    def machine_sampled(self, sample: Telemetry, host: Host) -> None:  # noqa: ARG002
        self.heard.append("sample")


def test_a_slow_warm_up_is_watched_as_well_and_none_of_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, listening = prepare(load_experiment(write(tmp_path, disturbed="keep"))), Listening()
    monkeypatch.setattr(Work, "simulated", False)
    monkeypatch.setattr(loop, "TelemetrySampler", Sampled(prepared.engine.clock, 0, 0))
    run(prepared, tmp_path / "run", listening)
    assert listening.heard[0] == "sample", "before there is an answer"
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        first, *_ = store.sessions()
        assert min(it.at for it in store.telemetry()) > first.started_at + (first.warmup_ms or 0) / 1000


def test_three_times_as_many_blocks_are_enough(
    tmp_path: Path, disturbing: Disturbing, capsys: pytest.CaptureFixture[str]
) -> None:
    disturbing.times = ()
    file, folder = write(tmp_path), tmp_path / "run"
    state = measured(file, folder)
    assert (state.state, state.planned) == ("complete", 0)
    with RunStore.open(folder, readonly=True) as store:
        assert len(store.disturbances()) == 3 * BLOCKS
        assert sum(not it.again for it in store.disturbances()) == BLOCKS
    assert measured(file, folder).planned == 0, "what was given up stays so"
    assert read_run(folder).answers == ()
    invoke(["show", str(folder)])
    said = " ".join(capsys.readouterr().out.split())
    assert "12 blocks were excluded" in said
    assert "no result, because the machine was busy: blender used 51% of the machine" in said
    invoke(["report", str(folder), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "12 blocks were excluded" in page
    capsys.readouterr()
    invoke(["show", str(folder), "--json"])
    assert len(json.loads(capsys.readouterr().out)["disturbances"]) == 12


def test_where_every_block_is_set_aside_all_say_so_and_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this folder nothing can be measured any more: the same command resumes nothing."""
    file, folder = write(tmp_path, wait_s=0), tmp_path / "run"
    prepared = prepare(load_experiment(file))
    clock = prepared.engine.clock
    monkeypatch.setattr(Work, "simulated", False)
    monkeypatch.setattr(RunData, "simulated", False)
    monkeypatch.setattr(loop, "TelemetrySampler", Sampled(clock, clock(), clock() + 1e9))
    run(prepared, folder, Silent())
    fix = "wait until blender ends, or "
    new = "run again into a new folder (`--new`, with another --out or none)"

    def said(*command: str) -> str:
        capsys.readouterr()
        invoke([*command])
        told = capsys.readouterr()
        return " ".join((told.out + told.err).split())

    again = said("run", file, "--out", str(folder))
    assert "all 0 requests" not in again
    assert f"fix: {fix}" in again
    assert new in again
    explained = said("explain", str(folder))
    assert f"all blocks were excluded: blender used 50% of the machine fix: {fix}" in explained
    assert new in explained
    assert "resume" not in explained
    checked = said("check", str(folder))
    assert f"fix: {fix}" in checked
    assert "a skipped check" not in checked
    said("report", str(folder), "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>mocked · No result · specmeter</title>" in page
    assert "No result, because the machine was busy: blender used 50% of the machine" in re.sub(r"<[^>]+>", "", page)


@pytest.mark.usefixtures("disturbing")
def test_what_is_measured_now_says_so_and_what_was_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file, folder = write(tmp_path, wait_s=9), tmp_path / "specmeter-runs" / "mocked-1"
    seen: list[str] = []

    def wait(*_: object) -> bool:
        if not seen:
            pages = Pages(tmp_path / "specmeter-runs", ["en"])
            seen.append(pages.page("/mocked-1/").text)
            assert "1 block excluded" in pages.page("/").text
            capsys.readouterr()
            for command in (["show", str(folder)], ["list"]):
                invoke(command)
                seen.append(" ".join(capsys.readouterr().out.split()))
        return True

    monkeypatch.setattr(loop, "wait_for_calm", wait)
    run(prepare(load_experiment(file)), folder, Silent())
    page, show, listed = re.sub(r"<[^>]+>", "", seen[0]), *seen[1:]
    assert "1 block was excluded as disturbed; worst: blender used 51% of the machine" in page
    assert "waiting for a quiet machine" in page
    assert "Still measuring: 4 of 16 requests so far." in show
    assert "specmeter check" not in show
    assert "mocked-1 being measured 4/16" in listed
    capsys.readouterr()
    invoke(["list"])
    assert "mocked-1 complete 16/16" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("disturbing")
def test_cells_under_load_are_measured_again_as_well(tmp_path: Path) -> None:
    file = Path(write(tmp_path))
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump({**data, "load": {"clients": [1, 2]}}), encoding="utf-8")
    state = measured(str(file), tmp_path / "run")
    assert state.state == "complete"
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert [it.block for it in store.disturbances()] == [1, 2, 2]
        cells = list(measured_cells(store))
        assert len(cells) == 4 * BLOCKS
        assert len(list(store.load_cells())) == 4 * (BLOCKS + 3)
    assert measured(str(file), tmp_path / "run").ok == state.ok
    report = read_run(tmp_path / "run")
    whole = {arm_id: it.n for arm_id, it in report.over_all_blocks.items()}
    assert whole == {it.arm_id: BLOCKS + 3 for it in report.summary.arms if it.role != "baseline"}


@pytest.mark.usefixtures("disturbing")
def test_what_is_disturbed_may_count(tmp_path: Path) -> None:
    measured(write(tmp_path, disturbed="keep"), tmp_path / "run")
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert store.disturbances() == []


class Stopping(Silent):
    """Ctrl-C while a calm machine is waited for."""

    def block_excluded(self, found: Disturbance, wait_s: float) -> None:  # noqa: ARG002
        raise KeyboardInterrupt


@pytest.mark.usefixtures("disturbing")
@pytest.mark.parametrize("named", [True, False])
def test_who_does_not_wait_goes_on_by_the_same_command_and_counts_disturbed_blocks(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECMETER_DISTURBED", raising=False)
    file = write(tmp_path)
    Path(file).write_text(Path(file).read_text().replace("  disturbed: repeat\n", ""), encoding="utf-8")

    def begun() -> tuple[Prepared, Path]:
        whole = prepare(load_experiment(file))
        asked = whole.experiment.model_dump_json()
        return whole, choose_folder("mocked", asked, out=tmp_path / "run" if named else None)[0]

    whole, folder = begun()
    with pytest.raises(KeyboardInterrupt):
        run(whole, folder, Stopping())
    monkeypatch.setenv("SPECMETER_DISTURBED", "keep")
    whole, again = begun()
    assert again == folder
    assert run(whole, folder, Silent()).state == "complete"
    with RunStore.open(folder, readonly=True) as store:
        assert [(it.block, it.attempt) for it in store.disturbances()] == [(1, 1)], "and the others count"
        assert store.experiment().design.disturbed == "keep"
        assert {it.check for it in store.findings()}.isdisjoint({"experiment-differs", "data-changed"})
    measured(write(tmp_path), tmp_path / "written")
    with pytest.raises(StoreError, match=r"cannot be resumed(.|\n)*disturbed: repeat -> keep"):
        measured(write(tmp_path, disturbed="keep"), tmp_path / "written")


# --- advice ----------------------------------------------------------------------------------------------------------

ASKED = AdviceQuestion(target="mock:dense", budget_s=600)
GRID = {"blocks": 1, "probe": "off", "disturbed": "repeat", "wait_s": 0}


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "wait_for_calm", lambda *_: True)


@pytest.mark.usefixtures("no_wait")
def test_a_race_and_a_confirmation_measure_disturbed_blocks_again(tmp_path: Path, disturbing: Disturbing) -> None:
    disturbing.times = ((0, 1),)
    heard = Heard()
    advice = advise(ASKED, load_experiment(write(tmp_path, **GRID)), tmp_path / "a", heard)
    assert advice.why_undecided != "busy"
    assert [(it.folder, it.disturbed is not None) for it in advice.stages] == [
        ("screen", False),
        ("race", True),
        ("confirm", True),
    ]
    assert advice.disturbed is not None
    with RunStore.open(tmp_path / "a" / "race", readonly=True) as store:
        assert {it.block for it in store.rows()} >= {0, 1}


@pytest.mark.usefixtures("no_wait")
def test_a_machine_that_is_never_calm_gets_no_number_and_the_programs_name(
    tmp_path: Path, disturbing: Disturbing
) -> None:
    disturbing.times = ()
    advice = advise(ASKED, load_experiment(write(tmp_path, **GRID)), tmp_path / "a", Heard())
    assert (advice.decision, advice.why_undecided, advice.speedup, advice.finished) == ("undecided", "busy", None, True)
    machine = host()
    told = would_decide(advice.model_copy(update={"host": machine}), tmp_path)
    assert told is not None
    assert told.code == "advised.decide.busy.see"
    assert f"specmeter show {tmp_path / 'race'}" in str(told)
    assert str(told).startswith("To decide, wait until blender ends")


def test_advice_on_a_machine_that_does_not_become_calm_is_refused_with_the_programs_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Work, "simulated", False)
    monkeypatch.setattr(screening, "disturbance", lambda *_: of_block(0).model_copy(update={"programs": ("blender",)}))
    limits: list[float] = []
    monkeypatch.setattr(screening, "wait_for_calm", lambda limit_s, _: limits.append(limit_s))
    with pytest.raises(UsageError, match="busy machine: blender used 51% of the machine") as error:
        advise(ASKED, load_experiment(write(tmp_path, **GRID)), tmp_path / "a", Heard())
    assert "SPECMETER_DISTURBED=keep" in error.value.fix
    assert limits == [PATIENCE * ASKED.budget_s]


def test_who_disturbs_gets_its_cores() -> None:
    small = host().model_copy(update={"logical_cores": 2, "physical_cores": 2})
    assert threads_beside(51.0, small) == 1
    assert threads_beside(51.0, small, 2) == 1
    assert threads_beside(51.0, small, 1) == 0, "it has no more already"
    assert threads_beside(99.0, small) == 0
    assert "`-t 1`" in str(of_block(0).ways_out(small)["threads"])
    assert "-t" not in str(of_block(0).ways_out(small, 1)["threads"])
    larger = host().model_copy(update={"logical_cores": 16, "physical_cores": 8})
    assert threads_beside(6.0, larger) == 7


# --- the check -------------------------------------------------------------------------------------------------------


def found(data: Any) -> list[tuple[str, str]]:
    return [(it.severity, it.message.code) for it in excluded_block(data) if isinstance(it, Finding)]


CLEAN = run_data(experiment())
SECONDS = int(max(it.ended_at or 0 for it in CLEAN.sessions.values()) - EPOCH) + 1


def of_block(block: int, *, again: bool = True) -> Disturbance:
    sessions = [it for it in CLEAN.sessions.values() if it.block == block]
    return Disturbance(
        invocation=0,
        block=block,
        attempt=1,
        requests=1,
        began_at=sessions[0].started_at,
        ended_at=max(it.ended_at or 0 for it in sessions),
        samples=9,
        mean_percent=51.0,
        highest_percent=80.0,
        slowed=0,
        again=again,
    )


def busy(*blocks: int) -> Any:
    """Samples in which others take half of the machine while these blocks run."""
    aside = [of_block(block) for block in blocks]
    samples = [load(EPOCH + second) for second in range(SECONDS)]
    return tuple(
        it._replace(other_cpu_percent=51.0) if any(one.began_at <= it.at <= one.ended_at for one in aside) else it
        for it in samples
    )


def test_a_run_that_nothing_disturbed_is_clean() -> None:
    assert found(CLEAN) == []


def test_what_telemetry_shows_was_rightly_set_aside() -> None:
    data = replace(CLEAN, telemetry=busy(1), disturbances=[of_block(1)])
    assert found(data) == [("note", "excluded-block.done")]


def test_a_calm_block_may_not_be_set_aside() -> None:
    data = replace(CLEAN, disturbances=[of_block(1)])
    assert ("invalid", "excluded-block.calm") in found(data)


def test_an_answer_may_not_be_replaced_without_a_disturbance_on_record() -> None:
    key: RequestKey = CLEAN.requests[0].key
    assert found(replace(CLEAN, replaced={key: 1})) == [("invalid", "excluded-block.replaced")]
    kept = replace(CLEAN, telemetry=busy(key.block), disturbances=[of_block(key.block)], replaced={key: 1})
    assert found(kept) == [("note", "excluded-block.done")]


def test_too_few_calm_blocks_give_no_number() -> None:
    given_up = [of_block(1, again=False), of_block(2, again=False)]
    assert found(replace(CLEAN, telemetry=busy(1, 2), disturbances=given_up)) == [("invalid", "excluded-block.busy")]
    enough = replace(CLEAN, telemetry=busy(1), disturbances=given_up[:1])
    assert found(enough) == [("note", "excluded-block.done")]


def test_samples_belong_to_the_session_that_ran() -> None:
    first, second, *_ = CLEAN.sessions.values()
    samples = [Seen(first.started_at + 1, 1.0), Seen(second.started_at + 1, 2.0), Seen(EPOCH - 9, 3.0)]
    assert by_session(samples, [first, second]) == [samples[:1], samples[1:2]]
