"""Checks of decoding: each sees its fault, says what it could not see, and leaves honest runs alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import (
    BASE,
    SD,
    before,
    experiment,
    found,
    mocked,
    run_data,
    simulated,
    unchecked,
    with_arms,
    with_logs,
    with_models,
    with_prompts,
    with_requests,
    with_sessions,
)

from specmeter.engines.llama_cpp.log_signs import Checkpoints, Sign
from specmeter.validity.checks import controls, decoding
from specmeter.validity.checks.controls import synthetic_on, timing_only
from specmeter.validity.checks.decoding import (
    checkpoint_cost,
    draft_decode_failed,
    drafter_idle,
    replay_livelock,
    speculation_not_active,
    target_decode_failed,
)
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

FAILED = Sign(7, ("failed to decode, ret = -1",))
CHECKS = (*decoding.CHECKS, *controls.COST_PROBE_CHECKS)
CLEAN = run_data()


def severities(look: Any, data: RunData) -> list[tuple[str, str | None]]:
    return [(finding.severity, finding.arm_id) for finding in found(look, data)]


def no_logs(data: RunData) -> RunData:
    return replace(data, logs={})


# --- target-decode-failed --------------------------------------------------------------------------------------------


def test_failed_forwards_of_the_target_in_the_log() -> None:
    (finding,) = found(target_decode_failed, with_logs(CLEAN, SD, block=1, failed_decodes=FAILED))
    assert (finding.severity, finding.arm_id, finding.evidence["failed"]) == ("invalid", SD, 7)
    assert finding.evidence["log"] == "failed to decode, ret = -1"
    assert severities(target_decode_failed, with_logs(CLEAN, BASE, failed_decodes=FAILED)) == [("invalid", BASE)]


def test_failures_of_the_draft_are_not_the_targets() -> None:
    data = with_logs(CLEAN, SD, failed_decodes=FAILED, failed_decodes_of_draft=7)
    assert found(target_decode_failed, data) == []
    assert severities(draft_decode_failed, data) == [("invalid", SD)]


def test_positions_refused() -> None:
    data = with_logs(CLEAN, SD, position_refused=Sign(3, ("for M-RoPE, it is required that",)))
    assert severities(target_decode_failed, data) == [("invalid", SD)]


def test_without_a_log_the_counters_tell_of_failures() -> None:
    blind = no_logs(CLEAN)
    assert list(target_decode_failed(blind)) == []
    data = with_requests(blind, SD, lambda it: {"decodes": (it.decodes or 0) - 5})
    (finding,) = found(target_decode_failed, data)
    assert finding.evidence == {"tokens": 5 * 12, "requests": 12}


def test_without_log_and_counters_nothing_is_seen() -> None:
    data = with_requests(no_logs(CLEAN), SD, decodes=None)
    (gap,) = unchecked(target_decode_failed, data)
    assert (gap.arm_id, gap.applies) == (SD, True)
    (gap,) = unchecked(target_decode_failed, simulated(data), applies=False)
    assert gap.arm_id == SD


def test_a_log_of_a_session_that_a_retry_replaced_does_not_count() -> None:
    spare = next(iter(CLEAN.sessions.values())).model_copy(update={"id": "died"})
    signs = replace(next(iter(CLEAN.logs.values())), failed_decodes=FAILED)
    data = replace(CLEAN, sessions={**CLEAN.sessions, "died": spare}, logs={**CLEAN.logs, "died": signs})
    assert found(target_decode_failed, data) == []


# --- draft-decode-failed ---------------------------------------------------------------------------------------------


def test_failed_forwards_of_the_draft() -> None:
    data = with_logs(CLEAN, block=0, draft_failures=Sign(4, ("llama_decode returned -1",)))
    (finding,) = found(draft_decode_failed, data)
    assert (finding.arm_id, finding.evidence["failed"]) == (SD, 4)


def test_draft_failures_need_a_log_and_a_draft() -> None:
    assert [gap.arm_id for gap in unchecked(draft_decode_failed, no_logs(CLEAN), applies=True)] == [SD]
    assert unchecked(draft_decode_failed, no_logs(simulated(CLEAN)), applies=True) == []
    ngram = run_data(experiment(arms=[{"method": "ngram-simple"}]))
    assert unchecked(draft_decode_failed, no_logs(ngram), applies=True) == []
    heads = run_data(experiment(arms=[{"method": "draft-mtp"}]))
    assert len(unchecked(draft_decode_failed, no_logs(heads), applies=True)) == 1


# --- speculation-not-active ------------------------------------------------------------------------------------------


def test_a_session_that_does_not_speculate() -> None:
    data = with_requests(with_sessions(CLEAN, SD, block=2, speculating=False), SD, draft_n=0, draft_n_accepted=0)
    (finding,) = found(speculation_not_active, data)
    assert (finding.severity, finding.evidence["sessions_off"], finding.evidence["sessions"]) == ("invalid", 1, 4)


def test_speculation_that_could_not_be_initialised() -> None:
    refused = Sign(1, ("failed to initialize speculative decoding context",))
    data = with_sessions(with_logs(CLEAN, SD, speculation_refused=refused), SD, speculating=None)
    assert severities(speculation_not_active, data) == [("suspect", SD)]
    data = with_requests(data, SD, draft_n=0, draft_n_accepted=0)
    (finding,) = found(speculation_not_active, data)
    assert finding.severity == "invalid"
    assert finding.evidence["log"] == refused.samples[0]


def test_an_engine_that_does_not_tell() -> None:
    untold = with_sessions(CLEAN, SD, speculating=None)
    assert list(speculation_not_active(untold)) == unchecked(speculation_not_active, CLEAN)
    idle = with_requests(untold, SD, draft_n=0, draft_n_accepted=0)
    assert severities(speculation_not_active, idle) == [("suspect", SD)], "a model may be unsure throughout"
    ngram = run_data(experiment(arms=[{"method": "ngram-simple"}]))
    ngram = with_requests(with_sessions(ngram, speculating=None), draft_n=0, draft_n_accepted=0)
    assert found(speculation_not_active, ngram) == []
    assert len(unchecked(speculation_not_active, ngram, applies=True)) == 1


def test_speculating_without_a_draft_is_idle_and_not_inactive() -> None:
    data = with_requests(CLEAN, SD, draft_n=0, draft_n_accepted=0)
    assert found(speculation_not_active, data) == []
    assert severities(drafter_idle, data) == [("suspect", SD)]


# --- drafter-idle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drafted", "expected"), [(0, ["suspect"]), (3, ["suspect"]), (4, ["note"]), (5, []), (100, [])]
)
def test_a_method_that_hardly_drafts(drafted: int, expected: list[str]) -> None:
    # 12 requests of 65 tokens: 5 % are 39 tokens, and 50 suffice for a rate.
    data = with_requests(CLEAN, SD, draft_n=drafted, draft_n_accepted=0)
    assert [severity for severity, _ in severities(drafter_idle, data)] == expected


def test_settings_that_let_nothing_be_drafted() -> None:
    """Beforehand and afterwards, and instead of the bare fact; unless the engine drafted after all."""
    never = run_data(experiment(arms=[{"method": "ngram-simple", "ngram_n": 6, "gamma": 5}]))
    (finding,) = found(drafter_idle, before(never))
    assert (finding.severity, finding.evidence["never_drafts"]) == ("suspect", True)
    idle = with_requests(never, draft_n=0, draft_n_accepted=0)
    assert [it.message for it in found(drafter_idle, idle)] == [finding.message]
    assert found(drafter_idle, never) == [], "another engine may have other rules"
    assert found(drafter_idle, before(simulated(never))) == []


def test_room_is_that_of_an_arms_own_prompts() -> None:
    asked = experiment(arms=[{"draft": "small", "gamma": 16}], generation={"max_tokens": 300})
    short = with_prompts(before(run_data(asked)), max_tokens=10)
    (finding,) = found(drafter_idle, short)
    assert finding.message.values["longest"] == 8
    assert found(drafter_idle, before(run_data(asked))) == []
    lookup = experiment(arms=[{"method": "ngram-simple"}], generation={"max_tokens": 30})
    texts = before(run_data(lookup))
    (finding,) = found(drafter_idle, texts)
    assert finding.message.values["needed"] == 63, "prompts of a few words"
    assert found(drafter_idle, with_prompts(texts, token_count=40)) == []
    assert found(drafter_idle, with_prompts(texts, format="chat")) == []


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_one_restore_after_the_other() -> None:
    data = with_requests(CLEAN, lambda row: row.arm_id == SD and row.block == 0, restores=9, restores_at_one_place=5)
    findings = found(replay_livelock, data)
    assert [(finding.severity, finding.block) for finding in findings] == [("invalid", 0)] * 3
    fewer = with_requests(CLEAN, SD, restores=9, restores_at_one_place=4)
    assert {finding.severity for finding in found(replay_livelock, fewer)} == {"suspect"}, "a draft has four tokens"
    assert found(replay_livelock, with_requests(CLEAN, SD, restores=9, restores_at_one_place=1)) == []


def test_a_livelock_in_the_log() -> None:
    data = with_logs(CLEAN, SD, block=3, longest_replay=40, longest_replay_at="slot 0, task 1, position 17")
    (finding,) = found(replay_livelock, data)
    assert finding.evidence == {"restores_in_a_row": 40, "at": "slot 0, task 1, position 17"}
    assert found(replay_livelock, with_logs(CLEAN, SD, longest_replay=1)) == []


def test_a_recurrent_target_needs_steps_or_a_log_with_checkpoints() -> None:
    hybrid = with_models(CLEAN, "dense", recurrent=True)
    assert unchecked(replay_livelock, hybrid, applies=True) == []
    blind = with_requests(hybrid, SD, step_n=0)
    assert [gap.arm_id for gap in unchecked(replay_livelock, blind, applies=True)] == [SD]
    seen = with_logs(blind, SD, checkpoints_restored=Checkpoints(count=3), longest_replay=1)
    assert unchecked(replay_livelock, seen, applies=True) == []


def test_what_checkpoints_cost() -> None:
    data = with_requests(CLEAN, SD, restores=5)
    saved = Checkpoints(count=200, size_bytes=100 * 82 * 2**20, sized=100)
    data = with_logs(data, SD, block=0, checkpoints_created=saved)
    (finding,) = found(checkpoint_cost, data)
    assert finding.severity == "note"
    assert finding.evidence["size_mib"] == 82
    assert finding.evidence["created"] == 200
    assert finding.evidence["restored"] == 60
    share = finding.evidence["replayed_share"]
    assert isinstance(share, float)
    assert 0.1 < share < 0.3


def test_checkpoints_in_the_log_alone() -> None:
    data = with_logs(CLEAN, SD, checkpoints_restored=Checkpoints(count=3))
    (finding,) = found(checkpoint_cost, data)
    assert finding.evidence["restored_in_log"] == 12
    assert finding.evidence["replayed_share"] is None


def test_a_recurrent_target_without_logs_is_not_seen() -> None:
    hybrid = no_logs(with_models(CLEAN, "dense", recurrent=True))
    assert [gap.arm_id for gap in unchecked(checkpoint_cost, hybrid, applies=True)] == [SD]


# --- experts-recorded ------------------------------------------------------------------------------------------------


def test_times_of_an_engine_that_was_looked_into_are_none() -> None:
    looked = run_data(experiment(engine={"kind": "libllama", "record_experts": True}))
    assert [it.arm_id for it in found(controls.experts_recorded, looked)] == [BASE, SD]
    assert not found(controls.experts_recorded, CLEAN)


# --- synthetic-on, timing-only ---------------------------------------------------------------------------------------


def test_dice_in_an_arm_that_is_no_control() -> None:
    rolled = with_arms(CLEAN, SD, synthetic_rates=(0.9, 0.8, 0.7, 0.6))
    (finding,) = found(synthetic_on, rolled)
    assert finding.evidence["synthetic_rates"] == "0.9, 0.8, 0.7, 0.6"
    assert found(synthetic_on, before(rolled)) != []
    assert found(synthetic_on, with_arms(rolled, SD, role="control")) == []


def test_dice_that_only_the_log_or_a_flag_tells_of() -> None:
    line = "synthetic speculative acceptance is enabled"
    (finding,) = found(synthetic_on, with_logs(CLEAN, SD, synthetic=Sign(1, (line,))))
    assert finding.evidence["log"] == line
    flagged = with_arms(CLEAN, SD, engine={"extra_flags": ("--spec-synth-len", "3")})
    assert severities(synthetic_on, before(flagged)) == [("invalid", SD)]


@pytest.mark.parametrize("name", ["dense", "small"])
def test_random_weights(name: str) -> None:
    data = with_models(CLEAN, name, timing_only=True)
    (finding,) = found(timing_only, data)
    assert (finding.severity, finding.arm_id, finding.evidence["models"]) == ("invalid", SD, name)
    assert found(timing_only, before(data)) != []
    assert judge(data, CHECKS).arms == {BASE: "valid", SD: "invalid"}
    assert found(timing_only, with_arms(data, SD, role="control")) == []


# --- the mock engine -------------------------------------------------------------------------------------------------


def fault(kind: str) -> dict[str, Any]:
    return {"faults": [{"kind": kind}]}


@pytest.mark.parametrize(
    ("mock", "expected"),
    [
        ({}, set()),
        ({"targets": {"dense": {"restore_ms": 5}}}, {"checkpoint-cost"}),
        (fault("inactive"), {"speculation-not-active", "drafter-idle"}),
        (fault("decode-failed"), {"target-decode-failed"}),
        (fault("acceptance-stuck"), {"acceptance-by-construction"}),
        (
            {"targets": {"dense": {"restore_ms": 5}}, **fault("acceptance-stuck")},
            {"acceptance-by-construction", "checkpoint-cost"},
        ),
    ],
)
def test_faults_planted_in_the_mock_engine(tmp_path: Path, mock: dict[str, Any], expected: set[str]) -> None:
    data = mocked(tmp_path, **mock)
    judgement = judge(data, CHECKS)
    assert {finding.check for finding in judgement.findings} == expected
    blind = [gap for outcome in judgement.outcomes for gap in outcome.unchecked if gap.applies]
    assert blind == []
    assert judgement.arms["dense/none"] == "valid"
