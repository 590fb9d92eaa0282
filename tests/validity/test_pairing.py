"""Checks of what belongs together: models, prompts and machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factory import (
    BASE,
    SD,
    before,
    condition,
    experiment,
    found,
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

from specmeter.engines.llama_cpp.log_signs import RpcBuffer, Sign
from specmeter.messages import Message
from specmeter.record import DeviceUse, DraftPair
from specmeter.validity.checks import pairing
from specmeter.validity.checks.pairing import (
    draft_not_smaller,
    draft_special_tokens,
    prompt_differs,
    random_prompts,
    rpc_fallback,
    vocab_mismatch,
)
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

CLEAN = run_data()


def with_condition(data: RunData, **changes: Any) -> RunData:
    """Target and draft differ in one thing more."""
    pairs = {
        key: DraftPair(target=it.target, draft=it.draft, conditions=(*it.conditions, condition(**changes)))
        for key, it in data.pairs.items()
    }
    return replace(data, pairs=pairs)


# --- vocab-mismatch --------------------------------------------------------------------------------------------------


def test_a_vocabulary_that_the_engine_refuses() -> None:
    data = with_condition(CLEAN, name="add-bos", status="refused", target="yes", draft="no")
    for moment in (data, before(data)):
        (finding,) = found(vocab_mismatch, moment)
        # An engine that drafts all the same, and says nothing, has other conditions than those that we know.
        assert (finding.severity, finding.arm_id) == ("suspect" if moment is data else "invalid", SD)
        assert finding.message.values["why"] == Message(
            "vocab-mismatch.condition", name="add-bos", draft="no", target="yes"
        )
        assert finding.evidence["conditions"] == "add-bos"
    refused = with_requests(data, SD, draft_n=0, draft_n_accepted=0)
    assert [finding.severity for finding in found(vocab_mismatch, refused)] == ["invalid"]


@pytest.mark.parametrize("sign", ["tokens_translated", "vocabulary_mismatch"])
def test_a_vocabulary_that_the_log_complains_of(sign: str) -> None:
    line = "the target and draft vocabs are not compatible - tokens will be translated between the two"
    (finding,) = found(vocab_mismatch, with_logs(CLEAN, SD, block=0, **{sign: Sign(1, (line,))}))
    assert finding.evidence["log"] == line
    assert finding.message.values["why"] == line
    assert finding.evidence["translated"] == (sign == "tokens_translated")


def test_models_that_were_never_compared() -> None:
    data = replace(CLEAN, pairs={})
    assert unchecked(vocab_mismatch, data, applies=True) == []  # the engine took the draft, and its log is clean
    (gap,) = unchecked(vocab_mismatch, replace(data, logs={}), applies=True)
    assert gap.arm_id == SD
    assert len(unchecked(vocab_mismatch, before(data), applies=True)) == 1
    assert len(unchecked(draft_special_tokens, data, applies=True)) == 1


# --- draft-special-tokens --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bos-token", "eos-token", "eot-token", "first-token-texts", "pre-tokenizer"])
def test_tokens_that_no_engine_compares(name: str) -> None:
    data = with_condition(CLEAN, name=name, status="warning", target="2", draft="3")
    (finding,) = found(draft_special_tokens, data)
    assert (finding.severity, finding.evidence["conditions"]) == ("note", name)
    assert found(vocab_mismatch, data) == []
    assert judge(data, pairing.CHECKS).verdict == "valid"


def test_chat_templates_matter_to_chats_only() -> None:
    data = with_condition(CLEAN, name="chat-template", status="warning")
    assert found(draft_special_tokens, data) == []
    assert len(found(draft_special_tokens, with_prompts(data, format="chat"))) == 1
    assert found(draft_special_tokens, with_condition(CLEAN, name="forgetting", status="warning")) == []


# --- draft-not-smaller -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "expected"),
    [(200_000_000, []), (201_000_000, ["note"]), (320_000_000, ["note"]), (321_000_000, ["suspect"])],
)
def test_a_draft_as_large_as_its_target(read: int, expected: list[str]) -> None:
    data = with_models(CLEAN, "small", bytes_per_token=read)
    for moment in (data, before(data)):
        assert [finding.severity for finding in found(draft_not_smaller, moment)] == expected


def test_of_an_moe_only_the_active_experts_count() -> None:
    data = with_models(CLEAN, "dense", experts=64, experts_used=4, bytes_per_token=22_000_000)
    (finding,) = found(draft_not_smaller, data)
    assert finding.remedy == Message("draft-not-smaller.fix_moe")


def test_without_headers_sizes_are_not_known() -> None:
    data = with_models(CLEAN, "small", header=None)
    assert [gap.arm_id for gap in unchecked(draft_not_smaller, data, applies=True)] == [SD]


# --- random-prompts --------------------------------------------------------------------------------------------------


def test_acceptance_after_random_tokens_is_suspect() -> None:
    data = with_prompts(CLEAN, random_tokens=True)
    (finding,) = found(random_prompts, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert finding.evidence["random"] == 3


def test_random_tokens_alone_are_a_note() -> None:
    data = with_prompts(CLEAN, random_tokens=True)
    idle = with_requests(data, SD, draft_n=0)
    dice = with_arms(data, SD, synthetic_rates=(0.5,) * 4)
    control = with_arms(data, SD, role="control")
    for other in (before(data), idle, dice, control):
        (finding,) = found(random_prompts, other)
        assert (finding.severity, finding.scope) == ("note", "run")


def test_random_tokens_on_a_mixture_of_experts_say_nothing_of_its_speed_on_text() -> None:
    data = with_models(with_prompts(CLEAN, random_tokens=True), "dense", experts=32, experts_used=4)
    for moment in (data, before(data), with_requests(data, SD, draft_n=0)):
        notes = [finding for finding in found(random_prompts, moment) if finding.severity == "note"]
        assert [note.scope for note in notes] == ["run"]
        assert notes[0].evidence["experts"] == "dense"
        assert notes[0].message.code == "random-prompts.experts"
        assert notes[0].remedy == Message("random-prompts.fix_experts")
    assert [finding.arm_id for finding in found(random_prompts, data) if finding.severity == "suspect"] == [SD]
    assert not found(random_prompts, with_models(CLEAN, "dense", experts=32))


# --- prompt-differs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"prompt_n": 99}, {"cache_n": 1}, {"prompt_sha256": "0" * 64}])
def test_other_prompts_than_the_baseline(changes: dict[str, Any]) -> None:
    data = with_requests(CLEAN, lambda row: row.arm_id == SD and row.block == 2, **changes)
    (finding,) = found(prompt_differs, data)
    assert (finding.severity, finding.arm_id, finding.evidence["differ"]) == ("invalid", SD, 3)
    assert judge(data, pairing.CHECKS).arms == {BASE: "valid", SD: "invalid"}


def test_tokens_from_a_cache_are_tokens_of_the_prompt() -> None:
    assert found(prompt_differs, with_requests(CLEAN, SD, prompt_n=10, cache_n=90)) == []


def test_a_prompt_without_its_baseline_is_compared_with_nothing() -> None:
    data = with_requests(CLEAN, BASE, status="failed")
    assert [gap.applies for gap in unchecked(prompt_differs, data)] == [False]


# --- rpc-fallback ----------------------------------------------------------------------------------------------------

RPC = DeviceUse(device="RPC0[10.0.0.2:50052]", model_buffer_bytes=20_000_000)
CPU = DeviceUse(device="CPU", model_buffer_bytes=400_000_000)


def remote_draft(**engine: Any) -> RunData:
    """Only the draft lies on the other machine."""
    settings = {"devices": ["CUDA0"], "draft_devices": ["RPC0"], **engine}
    data = run_data(experiment(engine={"kind": "native", **settings}))
    (arm_id,) = (name for name, arm in data.arms.items() if arm.speculates)
    return with_sessions(data, arm_id, draft_devices=(RPC,))


def sd(data: RunData) -> str:
    return next(name for name, arm in data.arms.items() if arm.speculates)


def test_a_draft_on_the_machine_that_was_asked_for() -> None:
    data = remote_draft()
    assert found(rpc_fallback, data) == []
    assert [gap.arm_id for gap in unchecked(rpc_fallback, data)] == [BASE]
    in_log = with_sessions(data, sd(data), draft_devices=(CPU,))
    in_log = with_logs(in_log, sd(data), rpc_buffers=(RpcBuffer("RPC0[10.0.0.2:50052]", 20_000_000, 1),))
    assert found(rpc_fallback, in_log) == []


def test_a_draft_that_stayed_here() -> None:
    data = remote_draft()
    data = with_sessions(data, sd(data), block=1, draft_devices=(CPU,))
    (finding,) = found(rpc_fallback, data)
    assert (finding.severity, finding.evidence["sessions"]) == ("invalid", 1)
    assert finding.evidence["held_by"] == "CPU, RPC0[10.0.0.2:50052]"


def test_a_target_that_stayed_here() -> None:
    data = run_data(experiment(engine={"kind": "native", "devices": ["RPC0"]}))
    assert {finding.arm_id for finding in found(rpc_fallback, data)} == set(data.arms)
    assert found(rpc_fallback, with_sessions(data, devices=(RPC, CPU))) == []


def test_a_target_that_went_too() -> None:
    data = remote_draft()
    went = with_sessions(data, sd(data), devices=(RPC,))
    assert [finding.severity for finding in found(rpc_fallback, went)] == ["invalid"]
    unasked = remote_draft(devices=[])
    went = with_sessions(unasked, sd(unasked), devices=(RPC,))
    assert [finding.severity for finding in found(rpc_fallback, went)] == ["suspect"]


def test_a_machine_that_cannot_be_reached() -> None:
    data = remote_draft()
    data = with_logs(data, sd(data), block=0, connect_failed=Sign(1, ("Failed to connect to 10.0.0.2:50052",)))
    (finding,) = found(rpc_fallback, data)
    assert finding.severity == "suspect", "weights and bytes say that it was reached after all"
    assert finding.message.code == "rpc-fallback.unreachable"
    here = with_sessions(data, sd(data), draft_devices=(CPU,))
    assert {finding.severity for finding in found(rpc_fallback, here)} == {"suspect", "invalid"}
    flagged = with_arms(CLEAN, engine={"extra_flags": ("--rpc=10.0.0.2:50052",)})
    assert found(rpc_fallback, flagged) == []
    assert len(found(rpc_fallback, with_logs(flagged, connect_failed=Sign(1, ("Failed to connect",))))) == 2


@pytest.mark.parametrize(("bytes_over", "caught"), [(0.0, True), (8.9 * 100, True), (9.0 * 400, False)])
def test_a_connection_over_which_too_little_went(bytes_over: float, caught: bool) -> None:
    data = remote_draft()
    data = with_requests(data, sd(data), remote_bytes=bytes_over, draft_n=100 if caught else 400)
    findings = found(rpc_fallback, data)
    assert len(findings) == caught
    if caught:
        assert (findings[0].severity, findings[0].arm_id) == ("invalid", sd(data))
        assert findings[0].evidence["silent"] == len(data.by_arm[sd(data)])


def test_bytes_that_nobody_counted_decide_nothing() -> None:
    data = remote_draft()
    assert found(rpc_fallback, with_requests(data, remote_bytes=None)) == []
    idle = with_requests(data, sd(data), remote_bytes=0.0, draft_n=0, draft_n_accepted=0)
    assert found(rpc_fallback, idle) == []


def test_where_nothing_says_where_the_draft_lay() -> None:
    data = remote_draft()
    data = with_sessions(data, sd(data), draft_devices=())
    assert found(rpc_fallback, data) == []
    (gap,) = unchecked(rpc_fallback, data, applies=True)
    assert gap.arm_id == sd(data)


def test_a_simulated_engine_has_no_remote_machine() -> None:
    assert unchecked(rpc_fallback, simulated(remote_draft()), applies=True) == []
