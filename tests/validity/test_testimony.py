"""Times, machine and models that something else in the folder contradicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specmeter.record import Disturbance, EngineTraits, Finding, StepProbe, StepRound
from specmeter.validity.checks.records import records_differ, times_overlap
from specmeter.validity.checks.run_data import PrintedRequests, RequestData, RunData
from specmeter.validity.checks.testimony import _pauses, _Wait, folder_contradicts  # pyright: ignore[reportPrivateUsage]
from validity.factory import (
    BASE,
    EPOCH,
    SD,
    foretold,
    found,
    host,
    load,
    run_data,
    with_logs,
    with_models,
    with_requests,
    with_sessions,
)
from validity.mock_run import mock_run


def codes(data: RunData) -> list[tuple[str | None, str]]:
    """(arm, what is said) of each finding, all of them suspect."""
    told = found(folder_contradicts, data)
    assert {it.severity for it in told} <= {"suspect"}
    return [(it.arm_id, it.message.code.removeprefix("folder-contradicts.")) for it in told]


def scaled(data: RunData, factor: float, arm_id: str | None = None) -> RunData:
    """Every time of the requests, but not when they began."""
    names = ("wall_ms", "ttft_ms", "prompt_ms", "predicted_ms")

    def change(it: RequestData) -> dict[str, float]:
        return {name: factor * getattr(it.row, name) for name in names}

    return with_requests(data, lambda row: arm_id in (None, row.arm_id), change)


LOADED = [{"draft": "small", "gamma": 4}]


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_clean_runs(tmp_path: Path) -> None:
    assert codes(mock_run(made(tmp_path / "plain"))) == []
    assert codes(mock_run(made(tmp_path / "loaded"), load={"clients": [1, 4]}, arms=LOADED)) == []


@pytest.mark.parametrize(("factor", "arm_id"), [(0.7, SD), (0.5, None)])
def test_faster_times_leave_pauses(factor: float, arm_id: str | None) -> None:
    told = codes(scaled(run_data(), factor, arm_id))
    assert [arm for arm, code in told if code == "pauses"] == [SD] if arm_id else [BASE, SD]


def test_one_arm_waits_no_longer_than_another() -> None:
    """Times of short requests leave less than what any pause may have."""
    waits = {BASE: _Wait(7.0, 90.0, 8), SD: _Wait(8.0, 70.0, 8)}
    assert list(_pauses(waits)) == []
    (finding,) = _pauses(waits | {SD: _Wait(8.0 + 0.3 * 90.0, 0.7 * 90.0, 8)})
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.message.code) == ("suspect", "folder-contradicts.pauses")


def test_a_request_is_not_sent_before_the_one_before_it_has_ended() -> None:
    waits = {BASE: _Wait(7.0 - 0.4 * 90, 1.4 * 90.0, 8), SD: _Wait(7.0, 70.0, 8)}
    (finding,) = _pauses(waits)
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.message.code) == ("suspect", "folder-contradicts.overlap")


def test_slower_times_overlap() -> None:
    assert [it.severity for it in found(times_overlap, scaled(run_data(), 1.4, BASE))] == ["suspect"]


def log_of(wall_ms: float, factor: float, requests: int = 3) -> PrintedRequests:
    """The log of requests of `wall_ms` by the stamps of their lines, that print `factor` of it."""
    lines, printed = list[str](), PrintedRequests()
    for task in range(requests):
        begin, end = (1000 * (100 + task * 400 + it) for it in (0, wall_ms))
        for at, text in (
            (begin, f"launch_slot_: id  0 | task {task} | processing task, is_child = 0"),
            (end, f"print_timing: id  0 | task {task} | prompt eval time = {factor * 40:.2f} ms /   121 tokens"),
            (
                end,
                f"print_timing: id  0 | task {task} |        eval time = {factor * (wall_ms - 40):.2f} ms / 9 runs",
            ),
        ):
            seconds, us = divmod(int(at), 1_000_000)
            lines.append(f"0.{seconds:02d}.{us // 1000:03d}.{us % 1000:03d} I slot {text}")
    assert list(printed.watched(lines)) == lines
    return printed


@pytest.mark.parametrize(("factor", "told"), [(1.0, []), (0.99, []), (0.7, ["stamps"]), (1.4, ["stamps"])])
def test_log_lines_are_stamped(factor: float, told: list[str]) -> None:
    data = run_data()
    printed = {it.id: log_of(150, factor) for it in data.sessions.values() if it.arm_id == SD}
    assert codes(replace(data, printed=printed)) == [(SD, code) for code in told]


@pytest.mark.parametrize(("plain_ms", "told"), [(40.0, []), (55.0, []), (80.0, ["probed"]), (20.0, ["probed"])])
def test_the_runs_own_probe(plain_ms: float, told: list[str]) -> None:
    probe = StepProbe(
        baseline_id=BASE, target="dense", draft="small", engine=run_data().arms[BASE].engine, gamma=4,
        started_at=EPOCH, ended_at=EPOCH + 1, rounds=(StepRound(plain_ms=plain_ms, step_ms={0: 40.0}),),
    )  # fmt: skip
    assert [code for _, code in codes(replace(run_data(), step_probes=(probe,)))] == told


@pytest.mark.parametrize(("wall_ms", "told"), [(150.0, []), (250.0, ["samples"])])
def test_sessions_that_measure_for_less_than_a_second_are_sampled_at_their_end(wall_ms: float, told: list[str]) -> None:
    first = {it.row.session_id: it for it in reversed(run_data().requests)}
    short = tuple(replace(it, row=it.row._replace(wall_ms=wall_ms)) for it in first.values())
    assert [code for _, code in codes(replace(run_data(), requests=short, telemetry=()))] == told


def test_samples_of_one_session_that_are_gone() -> None:
    """As one would delete those in which others were busy; of all samples few are missing."""
    data = run_data()
    rows = [it.row for it in data.requests if it.row.session_id == data.requests[-1].row.session_id]
    began, ended = rows[0].started_at, rows[-1].started_at + (rows[-1].wall_ms or 0.0) / 1000
    assert ended - began > 4
    kept = tuple(it for it in data.telemetry if not began <= it.at <= ended + 1)
    assert len(kept) > 0.7 * len(data.telemetry)
    assert [code for _, code in codes(replace(data, telemetry=kept))] == ["samples"]


@pytest.mark.parametrize(("factor", "told"), [(0.97, []), (0.8, ["apart"])])
def test_the_sampler_keeps_to_the_second(factor: float, told: list[str]) -> None:
    """As samples of a session lie whose times were all made shorter, or those of a part of it."""
    data = run_data()
    nearer = tuple(it._replace(at=EPOCH + factor * (it.at - EPOCH)) for it in data.telemetry)
    assert [code for _, code in codes(replace(data, telemetry=nearer))] == told


def test_a_prediction_is_what_its_inputs_give() -> None:
    inputs = foretold(EPOCH).inputs
    shared = foretold(EPOCH, speedup=1 / (0.5 + 0.5 / 1.6), inputs=inputs | {"prompts": 0.5})
    first = foretold(EPOCH, speedup=2.0 / 1.45, inputs=inputs | {"first": 0.2})
    assert codes(replace(run_data(), predictions=(foretold(EPOCH), shared, first))) == []
    for wrong in (
        foretold(EPOCH, inputs=inputs | {"first": 0.2}),
        foretold(EPOCH, speedup=2.1),
        foretold(EPOCH, inputs={}),
    ):
        assert codes(replace(run_data(), predictions=(wrong,))) == [(SD, "prediction")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: with_logs(data, cpu=host().cpu.upper()), []),
        (lambda data: with_logs(data, cpu="CPU"), []),
        (lambda data: with_logs(data, cpu="Another Processor"), ["processor"]),
        (lambda data: with_logs(with_sessions(data, resolved={"total_slots": 1}), slots=1), []),
        (lambda data: with_logs(with_sessions(data, resolved={"total_slots": 4}), slots=1), ["slots", "slots"]),
        (lambda data: with_models(data, "small", reference="bench:draft-small", sha256="9" * 64), ["model"]),
        (
            lambda data: replace(
                with_models(data, "small", reference="bench:draft-small", sha256="9" * 64), stated=EngineTraits()
            ),
            [],  # an engine that reads no GGUF files has the model in another form
        ),
        (lambda data: replace(data, telemetry=data.telemetry[:9]), ["samples"]),
        (lambda data: replace(data, telemetry=()), ["samples"]),
        (
            lambda data: replace(
                data, telemetry=tuple(it._replace(other_cpu_percent=0.0, programs=8.0) for it in data.telemetry)
            ),
            ["programs"],
        ),
        (lambda data: replace(data, disturbances=(set_aside(2.5),)), ["disturbance"]),
        (lambda data: replace(data, disturbances=(set_aside(load(EPOCH).other_cpu_percent),)), []),
    ],
)
def test_machine_and_models(change: Callable[[RunData], RunData], told: list[str]) -> None:
    assert [code for _, code in codes(change(run_data()))] == told


def set_aside(mean_percent: float) -> Disturbance:
    """The block that the first ten samples belong to."""
    return Disturbance(
        invocation=0, block=0, attempt=1, requests=6, began_at=EPOCH, ended_at=EPOCH + 9.5, samples=10,
        mean_percent=mean_percent, highest_percent=mean_percent, slowed=0, again=True,
    )  # fmt: skip


def test_an_attempt_that_was_never_made() -> None:
    data = with_requests(run_data(), lambda row: row.block == 0 and row.item == 0 and row.arm_id == SD, attempt=3)
    assert [(it.severity, it.message.code) for it in found(records_differ, data)] == [
        ("invalid", "records-differ.attempt")
    ]
    key = next(it.key for it in data.requests if it.row.attempt == 3)
    assert not found(records_differ, replace(data, attempts={key: 3}))


def test_a_block_an_hour_before_its_session() -> None:
    data = with_requests(
        run_data(),
        lambda row: row.block == 2 and row.arm_id == SD,
        lambda it: {"started_at": it.row.started_at - 3600},
    )
    assert [it.severity for it in found(times_overlap, data)] == ["suspect"]
