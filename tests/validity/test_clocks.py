"""Times that cannot have been those of one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specmeter.validity.checks.clocks import decode_time_differs, times_overlap
from specmeter.validity.checks.request_data import Arrivals, RequestData, Steps
from specmeter.validity.checks.run_data import RunData
from validity.factory import (
    BASE,
    EPOCH,
    SD,
    TOKENS,
    foretold,
    found,
    load,
    run_data,
    simulated,
    with_requests,
    with_sessions,
)
from validity.mock_run import mock_run


def streamed(data: RunData, stretch: float = 1.0, late_ms: float = 0.0, arm_id: str | None = None) -> RunData:
    """Tokens arrive over `stretch` times the decode time; the first one `late_ms` late."""

    def arrivals(it: RequestData) -> dict[str, object]:
        first, decode = it.row.ttft_ms or 0.0, it.row.predicted_ms or 0.0
        factor, late = (stretch, late_ms) if arm_id in (None, it.row.arm_id) else (1.0, 0.0)
        last = first + factor * decode
        return {"arrivals": Arrivals(TOKENS, first + late, last, in_order=True)}

    return with_requests(data, change=arrivals)


def test_a_clean_run() -> None:
    assert not found(decode_time_differs, streamed(run_data()))


def test_simulated_runs_interrupted_or_not(tmp_path: Path) -> None:
    for look in (decode_time_differs, times_overlap):
        assert not found(look, mock_run(tmp_path))


@pytest.mark.parametrize("stretch", [3.3, 0.5])
def test_arrivals_that_span_another_time(stretch: float) -> None:
    """An arm made 3.3 times faster than its tokens arrived: 0.82x became "speculate, 2.74x"."""
    findings = found(decode_time_differs, streamed(run_data(), stretch, arm_id=SD))
    assert [(it.arm_id, it.severity) for it in findings] == [(SD, "suspect")]


def test_a_few_late_arrivals_are_a_busy_client() -> None:
    data = streamed(run_data())
    few = with_requests(
        data, lambda row: row.block == 0, lambda it: {"arrivals": it.arrivals and it.arrivals._replace(first_ms=900.0)}
    )
    assert not found(decode_time_differs, few)
    assert not found(decode_time_differs, streamed(run_data(), late_ms=60.0))  # within 5 % of the time


def test_steps_that_go_on_after_the_end() -> None:
    def stepped(factor: float) -> RunData:
        return with_requests(
            streamed(run_data()),
            SD,
            lambda it: {
                "steps": Steps(
                    it.row.step_n or 0, 0, 0, 0.0, factor * ((it.row.prompt_ms or 0.0) + (it.row.predicted_ms or 0.0))
                )
            },
        )

    assert not found(decode_time_differs, stepped(1.0))
    assert not found(decode_time_differs, stepped(0.4))  # the last forwards drafted nothing
    assert [it.arm_id for it in found(decode_time_differs, stepped(2.0))] == [SD]


def test_arrivals_that_were_asked_for_and_are_not_there() -> None:
    data = streamed(run_data())
    assert [it.arm_id for it in found(decode_time_differs, with_requests(data, SD, arrivals=None))] == [SD]


# --- the time of day -------------------------------------------------------------------------------------------------


def test_requests_one_ms_apart() -> None:
    count = iter(range(10_000))
    data = with_requests(run_data(), change=lambda _: {"started_at": EPOCH + next(count) / 1000})
    assert [it.severity for it in found(times_overlap, data)] == ["suspect"]


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_requests_outside_of_their_sessions(seconds: float) -> None:
    data = with_requests(run_data(), SD, lambda it: {"started_at": it.row.started_at + seconds})
    assert "suspect" in {it.severity for it in found(times_overlap, data)}


def test_a_clock_that_was_set_back_once_or_twice() -> None:
    """All that comes later is earlier by as much: the chain is broken in one place."""
    data = run_data()
    moment = data.requests[9].row.started_at - 0.005

    def set_back(at: float) -> float:
        return at - 7200.0 if at > moment else at

    data = with_requests(data, change=lambda it: {"started_at": set_back(it.row.started_at)})
    sessions = {
        name: it.model_copy(
            update={"started_at": set_back(it.started_at), "ended_at": it.ended_at and set_back(it.ended_at)}
        )
        for name, it in data.sessions.items()
    }
    telemetry = [it._replace(at=set_back(it.at)) for it in data.telemetry]
    data = replace(data, sessions=sessions, telemetry=telemetry)
    assert {it.severity for it in found(times_overlap, data)} <= {"note"}


def test_a_clock_that_is_slowed_down() -> None:
    """Correcting a clock makes it run slower by up to a tenth, and durations are measured by another one."""
    data = run_data()

    def slow(at: float) -> float:
        return EPOCH + 0.9 * (at - EPOCH)

    data = with_requests(data, change=lambda it: {"started_at": slow(it.row.started_at)})
    sessions = {
        name: it.model_copy(update={"started_at": slow(it.started_at), "ended_at": it.ended_at and slow(it.ended_at)})
        for name, it in data.sessions.items()
    }
    telemetry = [it._replace(at=slow(it.at)) for it in data.telemetry]
    assert not found(times_overlap, replace(data, sessions=sessions, telemetry=telemetry))


def test_a_machine_that_slept() -> None:
    data = run_data()
    moment = data.requests[9].row.started_at - 0.005
    data = with_requests(data, lambda row: row.started_at > moment, lambda it: {"started_at": it.row.started_at + 9e4})
    sessions = {
        name: it.model_copy(
            update={
                "started_at": it.started_at + (9e4 if it.started_at > moment else 0.0),
                "ended_at": it.ended_at and it.ended_at + (9e4 if it.ended_at > moment else 0.0),
            }
        )
        for name, it in data.sessions.items()
    }
    assert not found(times_overlap, replace(data, sessions=sessions, telemetry=()))


def test_sessions_without_an_end() -> None:
    """A kill leaves sessions whose end was not written down."""
    assert not found(times_overlap, with_sessions(run_data(), BASE, ended_at=None))


def test_sessions_that_overlap() -> None:
    assert [it.severity for it in found(times_overlap, with_sessions(run_data(), ended_at=EPOCH + 1e6))] == ["suspect"]


def test_samples_from_when_nothing_ran() -> None:
    data = replace(run_data(), telemetry=tuple(load(EPOCH + 1e6 + second) for second in range(50)))
    assert [it.evidence["stray"] for it in found(times_overlap, data)] == [50]


def test_a_start_of_a_simulated_run_begins_at_the_same_virtual_time() -> None:
    data = simulated(run_data())
    again = with_requests(data, lambda row: row.block > 1, lambda it: {"started_at": it.row.started_at - 7200.0})
    sessions = {
        name: it
        if it.block < 2
        else it.model_copy(update={"started_at": it.started_at - 7200.0, "ended_at": (it.ended_at or 0.0) - 7200.0})
        for name, it in again.sessions.items()
    }
    assert not found(times_overlap, replace(again, sessions=sessions))


def test_a_prediction_that_was_made_afterwards() -> None:
    data = run_data()
    first = next(it.started_at for it in data.sessions.values() if it.arm_id == SD)
    assert not found(times_overlap, replace(data, predictions=(foretold(first - 0.001),)))
    assert [it.arm_id for it in found(times_overlap, replace(data, predictions=(foretold(first + 60.0),)))] == [SD]
