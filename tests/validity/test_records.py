"""What is stored twice, and is not the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specmeter.engines.llama_cpp.log_requests import Printed, PrintedRequests
from specmeter.validity.checks.records import log_differs, records_differ, steps_differ
from specmeter.validity.checks.request_data import Arrivals, RequestData, Steps
from specmeter.validity.checks.run_data import RunData
from validity.factory import BASE, SD, TOKENS, found, run_data, with_logs, with_prompts, with_requests, without_requests
from validity.mock_run import mock_run

WHOLE = Arrivals(tokens=TOKENS, first_ms=101.0, last_ms=1000.0, in_order=True)


def arrived(data: RunData, **changes: Any) -> RunData:
    """Whole records of requests, with `changes` of their arrivals."""

    def whole(it: RequestData) -> dict[str, Any]:
        return {
            "arrivals": WHOLE._replace(first_ms=it.row.ttft_ms or 0.0)._replace(**changes),
            "steps": Steps(it.row.step_n or 0, it.row.draft_n or 0, it.row.draft_n_accepted or 0, 0.0, 1.0),
        }

    return with_requests(data, SD, whole)


def test_a_clean_run_says_one_thing() -> None:
    data = arrived(run_data())
    assert not found(records_differ, data)
    assert not found(steps_differ, data)
    assert not found(log_differs, data)


@pytest.mark.parametrize(
    "change",
    [
        {"otherwise": "predicted_ms"},
        {"tokens": TOKENS - 3},
        {"prompt_sha256": "0" * 64},
        {"session_id": "unknown"},
        {"steps": Steps(number=3, drafted=1, accepted=1, first_ms=0.0, last_ms=1.0)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_that_is_changed_in_one_place(change: dict[str, Any]) -> None:
    data = with_requests(run_data(), lambda row: row.arm_id == SD and row.block == 1, **change)
    findings = found(records_differ, data)
    assert len(findings) == 3
    assert {(it.severity, it.arm_id, it.block) for it in findings} == {("invalid", SD, 1)}


@pytest.mark.parametrize("change", [{"tokens": 9}, {"in_order": False}, {"first_ms": 33.0}], ids=str)
def test_arrivals_that_are_not_those_of_the_request(change: dict[str, Any]) -> None:
    assert {it.arm_id for it in found(records_differ, arrived(run_data(), **change))} == {SD}


def test_a_prompt_whose_text_is_another() -> None:
    findings = found(records_differ, with_prompts(run_data(), text="another text"))
    assert {it.scope for it in findings} == {"run"}


def test_steps_that_do_not_add_up() -> None:
    def steps(drafted: int) -> RunData:
        return with_requests(
            run_data(),
            SD,
            lambda it: {
                "steps": Steps(
                    it.row.step_n or 0, (it.row.draft_n or 0) + drafted, it.row.draft_n_accepted or 0, 0.0, 1.0
                )
            },
        )

    assert not found(steps_differ, steps(0))
    assert [(it.severity, it.arm_id) for it in found(steps_differ, steps(1))] == [("suspect", SD)]


def test_the_same_tokens_in_other_words() -> None:
    data = with_requests(run_data(), lambda row: row.arm_id == BASE and row.block == 2, retold=True)
    assert [it.evidence["requests"] for it in found(steps_differ, data)] == [3]


def printed(data: RunData) -> dict[str, list[Printed]]:
    """What a server prints: a warm-up, then each request of the session."""
    lines: dict[str, list[Printed]] = {name: [Printed(90.0, 7.0, 8, 0, 0)] for name in data.sessions}
    for it in data.requests:
        row = it.row
        times = round(row.prompt_ms or 0.0, 2), round(row.predicted_ms or 0.0, 2)
        lines[row.session_id].append(Printed(*times, row.predicted_n or 0, row.draft_n_accepted or 0, row.draft_n or 0))
    return lines


def test_requests_that_the_log_does_not_know() -> None:
    data = run_data()
    data = replace(data, printed=printed(data))
    assert not found(log_differs, data)
    changes: tuple[dict[str, Any], ...] = ({"predicted_ms": 99.0}, {"draft_n_accepted": 1}, {"predicted_n": 60})
    for change in changes:
        edited = with_requests(data, lambda row: row.arm_id == SD and row.block == 0, **change)
        assert [(it.arm_id, it.evidence["requests"]) for it in found(log_differs, edited)] == [(SD, 3)]


def test_requests_that_failed_are_in_the_log_all_the_same() -> None:
    data = run_data()
    data = replace(data, printed=printed(data))
    assert not found(log_differs, without_requests(data, lambda row: row.item == 1))


def test_logs_that_are_empty_or_gone() -> None:
    data = run_data()
    gone = replace(data, logs={name: log for name, log in data.logs.items() if data.sessions[name].arm_id != SD})
    for changed in (gone, with_logs(data, SD, lines=0)):
        assert [(it.arm_id, it.evidence["sessions"]) for it in found(log_differs, changed)] == [(SD, 4)]


def test_lines_of_a_server() -> None:
    lines = [
        "slot print_timing: id  0 | task 14 | prompt eval time =     113.92 ms /   141 tokens (    0.81 ms per token)",
        "slot print_timing: id  0 | task 14 |        eval time =     237.48 ms /    96 tokens (    2.50 ms per token)",
        "slot print_timing: id  0 | task 14 |       total time =     351.40 ms /   237 tokens",
        "slot print_timing: id  0 | task 14 | draft acceptance = 0.90244 (   74 accepted /    82 generated)",
        "print_timings:        eval time =      10.00 ms /     4 runs",
    ]
    requests = PrintedRequests()
    assert list(requests.watched(lines)) == lines
    assert list(requests) == [Printed(113.92, 237.48, 96, 74, 82), Printed(-1.0, 10.0, 4, -1, -1)]


def test_a_simulated_run(tmp_path: object) -> None:
    data = mock_run(tmp_path)  # type: ignore[arg-type]
    for look in (records_differ, steps_differ, log_differs):
        assert not found(look, data)
