"""Checks of counts and times: the law of counters, windows and clocks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import (
    BASE,
    SD,
    found,
    mocked,
    run_data,
    unchecked,
    with_arms,
    with_requests,
    with_sessions,
    without_requests,
)
from hypothesis import given
from hypothesis import strategies as st

from specmeter.messages import Message
from specmeter.record import Prompt
from specmeter.validity.checks import bounds, counters
from specmeter.validity.checks.counters import (
    clock_differs,
    conservation,
    counters_absurd,
    window_mismatch,
)
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

CLEAN = run_data()


# --- conservation ----------------------------------------------------------------------------------------------------


def more_forwards(data: RunData, count: float, which: Any = SD, **changes: Any) -> RunData:
    return with_requests(data, which, lambda it: {"decodes": (it.decodes or 0) + count}, **changes)


@pytest.mark.parametrize("arm_id", [BASE, SD])
@pytest.mark.parametrize("missing", [1, 20])
def test_tokens_that_no_forward_stands_behind(arm_id: str, missing: int) -> None:
    findings = found(conservation, more_forwards(CLEAN, -missing, arm_id))
    assert len(findings) == 12
    for finding in findings:
        assert (finding.severity, finding.scope, finding.arm_id) == ("invalid", "request", arm_id)
        assert finding.evidence["unexplained"] == missing


def test_accepted_tokens_that_are_not_counted() -> None:
    data = with_requests(CLEAN, SD, lambda it: {"draft_n_accepted": (it.row.draft_n_accepted or 0) // 2})
    assert len(found(conservation, data)) == 12


def test_forwards_that_emit_nothing() -> None:
    """A baseline has none; a draft's tail may be cut off at an unforeseen stop; a restore may cost one."""
    assert len(found(conservation, more_forwards(CLEAN, 1, BASE))) == 12
    assert len(found(conservation, more_forwards(CLEAN, 1))) == 12
    assert found(conservation, more_forwards(CLEAN, 3, restores=3)) == []
    ended = with_requests(CLEAN, stop_reason="eos")
    assert len(found(conservation, more_forwards(ended, 1, BASE))) == 12
    assert found(conservation, more_forwards(ended, 4)) == []
    assert len(found(conservation, more_forwards(ended, 5))) == 12
    assert found(conservation, more_forwards(ended, 7, restores=3)) == []
    assert len(found(conservation, more_forwards(ended, 8, restores=3))) == 12


def test_a_few_tokens_too_many_that_count_as_accepted() -> None:
    """Three in each request are less than one draft, and enough to turn 55 % into 60 %."""
    data = with_requests(CLEAN, SD, lambda it: {"draft_n_accepted": (it.row.draft_n_accepted or 0) + 3})
    assert [finding.severity for finding in found(conservation, data)] == ["invalid"] * 12


def test_one_request_is_enough() -> None:
    data = more_forwards(CLEAN, -3, lambda row: row.block == 2 and row.item == 1 and row.arm_id == SD)
    (finding,) = found(conservation, data)
    assert (finding.block, finding.arm_id) == (2, SD)
    assert judge(data, counters.CHECKS).arms == {BASE: "valid", SD: "invalid"}


def test_a_long_prompt_takes_one_forward_per_batch() -> None:
    """The session was calibrated with a short prompt; the long one is known from the batch that was read back."""

    def long(row: Any) -> bool:
        return row.item == 2

    data = more_forwards(with_requests(CLEAN, stop_reason="word"), 2, long, prompt_n=5000)
    assert found(conservation, data) == []
    # A baseline is exact to the forward; in an arm that drafts, a few may stand for a tail that was cut off.
    assert len(found(conservation, more_forwards(data, 1, long))) == 4
    assert len(found(conservation, more_forwards(data, 5, long))) == 8
    assert len(found(conservation, more_forwards(data, -1, long))) == 8


def test_an_engine_that_cuts_prompts_in_two_is_known_by_calibration() -> None:
    data = more_forwards(with_sessions(CLEAN, prompt_forwards=2), 1, lambda _: True)
    assert found(conservation, data) == []
    assert len(found(conservation, more_forwards(data, 1, BASE))) == 12


def test_where_the_batch_is_not_known_a_long_prompt_has_leeway() -> None:
    blind = with_sessions(CLEAN, resolved={"n_batch": None})
    assert found(conservation, blind) == []
    long = with_requests(blind, prompt_n=2000)
    for forwards in (0, 1, 3):
        assert found(conservation, more_forwards(long, forwards, BASE)) == []
    assert len(found(conservation, more_forwards(long, 4, BASE))) == 12
    assert len(found(conservation, more_forwards(long, -1, BASE))) == 12
    uncalibrated = with_sessions(blind, prompt_forwards=None)
    assert found(conservation, uncalibrated) == []


def test_an_engine_without_counters_is_not_seen() -> None:
    data = with_requests(CLEAN, lambda row: row.arm_id == SD and row.block == 0, decodes=None)
    (gap,) = unchecked(conservation, data, applies=True)
    assert gap.arm_id == SD
    assert gap.reason == Message("unchecked.no_forwards", uncounted=3, requests=12)
    assert judge(data, counters.CHECKS).arms == {BASE: "valid", SD: "suspect"}


def test_nothing_generated_breaks_no_law() -> None:
    data = with_requests(CLEAN, SD, predicted_n=1, draft_n=0, draft_n_accepted=0, decodes=1.0)
    assert found(conservation, data) == []


@given(
    tokens=st.integers(2, 300),
    rounds=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60),
    prompt_n=st.integers(1, 9000),
    off=st.integers(-3, 20),
    stop=st.sampled_from(["limit", "eos"]),
)
def test_the_law(tokens: int, rounds: list[tuple[int, int]], prompt_n: int, off: int, stop: str) -> None:
    """Any honest sequence of rounds keeps it; any missing forward breaks it."""
    decoded = accepted = drafted = 0
    forwards = 0
    for made, good in rounds:
        forwards += 1
        drafted += made
        accepted += min(made, good)
        decoded += min(made, good) + 1
    plain = tokens
    counts = {
        "predicted_n": 1 + decoded + plain,
        "draft_n": drafted,
        "draft_n_accepted": accepted,
        "prompt_n": prompt_n,
        "stop_reason": stop,
        "decodes": float(math.ceil(prompt_n / 2048) + forwards + plain + off),
    }
    data = with_sessions(with_arms(CLEAN, SD, gamma=8), prompt_forwards=math.ceil(prompt_n / 2048))
    data = with_requests(data, SD, **counts)
    # Some forwards may be those of a draft's tail that was cut off at a stop: no more than one draft.
    honest = 0 <= off <= (8 if drafted and stop == "eos" else 0)
    assert (found(conservation, data) == []) == honest


RECURRENT: dict[str, Any] = {"targets": {"dense": {"restore_ms": 5}}}


@pytest.mark.parametrize(
    ("mock", "expected"),
    [
        ({}, set()),
        (RECURRENT, set()),
        ({"faults": [{"kind": "decode-failed"}]}, {"conservation"}),
        ({"faults": [{"kind": "acceptance-stuck"}]}, {"conservation"}),
    ],
)
def test_the_mock_engine_keeps_the_law_unless_it_is_told_to_break_it(
    tmp_path: Path, mock: dict[str, Any], expected: set[str]
) -> None:
    judgement = judge(mocked(tmp_path, **mock), (*counters.CHECKS, *bounds.CHECKS))
    assert {finding.check for finding in judgement.findings if finding.severity == "invalid"} == expected
    assert bool(judgement.findings) == bool(expected)
    assert judgement.arms["dense/none"] == "valid"
    assert not [gap for it in judgement.outcomes for gap in it.unchecked if gap.applies]


# --- counters-absurd -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"draft_n_accepted": 500}, "accepted"),
        ({"draft_n": 100, "draft_n_accepted": 65}, "generated"),
        ({"predicted_n": 66}, "limit"),
        ({"prompt_ms": 9000.0}, "time"),
    ],
)
def test_counters_that_contradict_each_other(changes: dict[str, Any], what: str) -> None:
    findings = found(counters_absurd, with_requests(CLEAN, SD, **changes))
    assert len(findings) == 12
    assert findings[0].message.code == f"counters-absurd.{what}"


def test_a_baseline_that_drafts() -> None:
    assert len(found(counters_absurd, with_requests(CLEAN, BASE, draft_n=5))) == 12


def test_a_prompt_may_have_a_limit_of_its_own() -> None:
    prompts = {name: Prompt.model_validate(it.model_dump() | {"max_tokens": 66}) for name, it in CLEAN.prompts.items()}
    data = with_requests(replace(CLEAN, prompts=prompts), predicted_n=66)
    assert found(counters_absurd, data) == []


# --- window-mismatch -------------------------------------------------------------------------------------------------


def test_the_older_window_is_a_note() -> None:
    data = with_requests(CLEAN, SD, lambda it: {"printed_rate": 65000 / (it.row.predicted_ms or 1)})
    (finding,) = found(window_mismatch, data)
    assert (finding.severity, finding.arm_id, finding.evidence["requests"]) == ("note", SD, 12)


@pytest.mark.parametrize("factor", [0.9, 0.99, 1.03, 2.0, 0.0])
def test_any_other_window_is_false(factor: float) -> None:
    data = with_requests(CLEAN, BASE, lambda it: {"printed_rate": factor * (it.printed_rate or 0)})
    findings = found(window_mismatch, data)
    assert [finding.severity for finding in findings] == ["invalid"] * 12


@pytest.mark.parametrize("factor", [0.9, 1.5])
def test_an_engine_with_a_window_of_its_own_is_only_suspect(factor: float) -> None:
    """It never prints one of the two that are known: its counts and times may be right all the same."""
    data = with_requests(CLEAN, change=lambda it: {"printed_rate": factor * (it.printed_rate or 0)})
    assert {finding.severity for finding in found(window_mismatch, data)} == {"suspect"}


def test_rounded_rates_agree() -> None:
    data = with_requests(CLEAN, change=lambda it: {"printed_rate": round(it.printed_rate or 0, 2)})
    assert found(window_mismatch, data) == []


@given(tokens=st.integers(2, 5000), ms=st.floats(0.5, 1e6), older=st.booleans())
def test_both_windows_are_known_at_any_length(tokens: int, ms: float, older: bool) -> None:
    rate = 1000 * (tokens if older else tokens - 1) / ms
    data = with_requests(CLEAN, SD, predicted_n=tokens, predicted_ms=ms, printed_rate=rate)
    assert [finding.severity for finding in found(window_mismatch, data)] == (["note"] if older else [])


def test_no_rate_of_the_engines_own() -> None:
    gaps = unchecked(window_mismatch, with_requests(CLEAN, printed_rate=None))
    assert [gap.applies for gap in gaps] == [False, False]
    single = with_requests(CLEAN, predicted_n=1, printed_rate=0.0)
    assert found(window_mismatch, single) == []


# --- clock-differs ---------------------------------------------------------------------------------------------------


def short(it: Any, share: float) -> dict[str, float]:
    """The engine's clock sees only this share of the decode time."""
    return {"predicted_ms": share * (it.row.predicted_ms or 0.0)}


@pytest.mark.parametrize(
    ("share", "streamed", "expected"),
    [
        (0.9, True, ["suspect"]),
        (0.97, True, []),
        (0.9, False, ["suspect"]),
        (0.97, False, []),
        (1.0, False, []),
    ],
)
def test_time_that_the_engine_leaves_out(share: float, streamed: bool, expected: list[str]) -> None:
    data = CLEAN if streamed else with_requests(CLEAN, ttft_ms=None)
    findings = found(clock_differs, with_requests(data, SD, lambda it: short(it, share)))
    assert [finding.severity for finding in findings] == expected
    assert {finding.arm_id for finding in findings} <= {SD}


def test_single_hiccups_of_the_client_are_no_fault_of_the_clock() -> None:
    data = with_requests(CLEAN, lambda row: row.block == 1, lambda it: {"wall_ms": 2 * (it.row.wall_ms or 0.0)})
    assert found(clock_differs, data) == []


def few(number: int) -> RunData:
    """As many requests of the arm with the draft, one in each block."""
    prompt = next(iter(CLEAN.prompts))
    return without_requests(CLEAN, lambda row: (row.arm_id, row.prompt_id) != (SD, prompt) or row.block >= number)


@pytest.mark.parametrize(("hiccups", "expected"), [({0}, []), ({0, 1}, ["suspect"])])
def test_one_hiccup_of_two_requests_is_no_fault_of_the_clock(hiccups: set[int], expected: list[str]) -> None:
    data = with_requests(few(2), lambda row: row.block in hiccups, lambda it: short(it, 0.5))
    assert [finding.severity for finding in found(clock_differs, data)] == expected


def test_a_single_request_may_be_a_hiccup() -> None:
    findings = found(clock_differs, with_requests(few(1), SD, lambda it: short(it, 0.5)))
    assert [(finding.severity, finding.arm_id) for finding in findings] == [("suspect", SD)]
    assert findings[0].message.code == "clock-differs.once"


@pytest.mark.parametrize(("wait", "fix"), [(60.0, "clock-differs.fix_busy"), (160.0, "clock-differs.fix")])
def test_a_wait_for_a_processor_looks_like_a_clock_that_leaves_time_out(wait: float, fix: str) -> None:
    """A client that gets no processor for so long is rare; it does not make the number false."""
    data = with_requests(CLEAN, prompt_ms=2.0, predicted_ms=50.0, ttft_ms=4.0, wall_ms=54.0 + wait)
    findings = found(clock_differs, data)
    assert [finding.severity for finding in findings] == ["suspect", "suspect"]
    assert all(finding.remedy.code == fix for finding in findings)


def test_milliseconds_are_not_what_clocks_are_judged_by() -> None:
    """Requests of a few milliseconds, in which the client waits as long again for the machine."""
    data = with_requests(CLEAN, prompt_ms=2.0, predicted_ms=9.0, ttft_ms=4.0, wall_ms=28.0)
    assert found(clock_differs, data) == []


def test_a_clock_that_nobody_watched() -> None:
    gaps = unchecked(clock_differs, with_requests(CLEAN, SD, wall_ms=None))
    assert [(gap.arm_id, gap.applies) for gap in gaps] == [(SD, True)]
    nothing = with_requests(CLEAN, SD, predicted_n=1, predicted_ms=0.0)
    assert [gap.applies for gap in unchecked(clock_differs, nothing)] == [False]
