"""Requests that are copies of one another."""

from __future__ import annotations

from dataclasses import replace

from specmeter.validity.checks.records import copied_requests
from specmeter.validity.checks.run_data import Arrivals, RequestData, RunData
from validity.factory import BASE, SD, found, run_data, simulated, with_requests

TIMES = ("wall_ms", "ttft_ms", "prompt_ms", "predicted_ms")


def copied(data: RunData, to_block: int, arm_id: str | None = None) -> RunData:
    """The times of block 0 stand in another block."""
    first = {(it.row.arm_id, it.row.prompt_id): it for it in data.requests if it.row.block == 0}

    def change(it: RequestData) -> dict[str, object]:
        row = first[it.row.arm_id, it.row.prompt_id].row
        return {name: getattr(row, name) for name in TIMES}

    return with_requests(data, lambda row: row.block == to_block and arm_id in (None, row.arm_id), change)


def test_a_block_that_was_copied() -> None:
    findings = found(copied_requests, copied(run_data(), 2))
    assert {(it.arm_id, it.severity, it.evidence["requests"]) for it in findings} == {
        (BASE, "invalid", 3),
        (SD, "invalid", 3),
    }


def test_one_arm_that_was_copied() -> None:
    assert [it.arm_id for it in found(copied_requests, copied(run_data(), 3, SD))] == [SD]


def test_a_copy_with_other_durations_and_the_same_arrivals() -> None:
    data = with_requests(
        run_data(),
        change=lambda it: {"arrivals": Arrivals(65, it.row.ttft_ms or 0.0, it.row.wall_ms or 0.0, 1.0, in_order=True)},
    )
    assert not found(copied_requests, data)
    same = Arrivals(65, 101.0, 999.0, 3e4, in_order=True)
    data = with_requests(data, lambda row: row.arm_id == SD and row.prompt_id == "text/fact-1", arrivals=same)
    assert [it.evidence["requests"] for it in found(copied_requests, data)] == [3]


def test_virtual_time_may_repeat_itself() -> None:
    assert not found(copied_requests, simulated(copied(run_data(), 2)))


def test_requests_that_decoded_nothing_may_be_alike() -> None:
    data = with_requests(copied(run_data(), 2), predicted_n=1, predicted_ms=0.0)
    assert not found(copied_requests, replace(data))
