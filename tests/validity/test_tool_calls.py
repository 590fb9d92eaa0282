"""The check of tool calls: other calls, broken ones, and how many replies an absence of differences rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from factory import BASE, PROMPT_IDS, SD, experiment, found, run_data, with_requests

from specmeter.record import Margin
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.tool_calls import tool_calls_differ

TOOLS = ({"type": "function", "function": {"name": "read"}},)
CALL = (("read", '{"path": "a.py"}'),)
BROKEN = (("read", ""),)


def with_tools(data: RunData) -> RunData:
    """Every prompt has tools, and every reply calls one."""
    prompts = {own: it.model_copy(update={"tools": TOOLS}) for own, it in data.prompts.items()}
    return with_requests(replace(data, prompts=prompts), calls=CALL, stop_reason="eos")


CLEAN = with_tools(run_data())


def calling(data: RunData, calls: tuple[tuple[str, str], ...], **changes: Any) -> RunData:
    """The first prompt's replies of the speculating arm, in all blocks."""
    return with_requests(
        data, lambda row: (row.arm_id, row.prompt_id) == (SD, PROMPT_IDS[0]), calls=calls, output=b"x", **changes
    )


def surely_parted(data: RunData) -> RunData:
    """The target was sure of the other token in the first block."""
    (where,) = [it.key for it in data.requests if it.key == (0, 0, SD, PROMPT_IDS[0])]
    margin = Margin(
        arm_id=SD,
        prompt_id=where.prompt_id,
        invocation=0,
        block=0,
        position=3,
        baseline_token=1,
        arm_token=2,
        baseline_logprob=-0.001,
        arm_logprob=-9.0,
        best_logprob=-0.001,
    )
    return replace(data, left_at={where: 3}, margins=(margin,))


def test_equal_calls_are_counted_once_for_all_blocks() -> None:
    (said,) = found(tool_calls_differ, CLEAN)
    assert (said.severity, said.evidence["compared"]) == ("note", len(PROMPT_IDS))
    assert said.message.values["most"] == 1 - 0.05 ** (1 / 3)


def test_other_and_broken_calls() -> None:
    (other,) = found(tool_calls_differ, calling(CLEAN, (("write", "{}"),)))
    assert (other.severity, other.evidence["differ"], other.evidence["broken"]) == ("note", 1, 0)
    (broken,) = found(tool_calls_differ, calling(CLEAN, BROKEN))
    assert (broken.severity, broken.evidence["broken"]) == ("suspect", 1)
    (sure,) = found(tool_calls_differ, surely_parted(calling(CLEAN, BROKEN)))
    assert sure.severity == "invalid"
    both = with_requests(CLEAN, lambda row: row.prompt_id == PROMPT_IDS[0], calls=BROKEN)
    assert [it.evidence["broken"] for it in found(tool_calls_differ, both)] == [0]  # the model itself cannot


def test_a_reply_that_is_cut_is_not_broken() -> None:
    (cut,) = found(tool_calls_differ, calling(CLEAN, BROKEN, stop_reason="limit"))
    assert (cut.severity, cut.evidence["broken"]) == ("note", 0)


def test_sampled_replies_are_not_said_to_be_equal() -> None:
    sampled = experiment(generation={"max_tokens": 65, "temperature": 1.0})
    (said,) = found(tool_calls_differ, calling(with_tools(run_data(sampled)), (("write", "{}"),)))
    assert (said.severity, said.message.code) == ("note", "tool-calls-differ.whole")


def test_runs_without_tools_are_left_alone() -> None:
    assert found(tool_calls_differ, run_data()) == []
    assert BASE in {it.row.arm_id for it in CLEAN.requests}
