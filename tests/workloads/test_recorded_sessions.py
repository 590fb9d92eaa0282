"""Recorded sessions: each form is read as the calls that it holds, and what cannot be asked again is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage
from specmeter.workloads import load
from specmeter.workloads.sessions import read_sessions, session_path
from specmeter.workloads.spec import SessionsWorkload
from specmeter.workloads.turns import chosen, kind_of

SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": text}


AGENT = [
    SYSTEM,
    user("Fix it."),
    assistant("", CALL),
    result("x = 1"),
    assistant("Done."),
    user("Thanks"),
    assistant("!"),
]


def written(tmp_path: Path, *entries: object, name: str = "s.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{json.dumps(it)}\n" for it in entries), encoding="utf-8")
    return path


def test_each_answer_of_a_conversation_is_a_call(tmp_path: Path) -> None:
    found = read_sessions([written(tmp_path, {"messages": AGENT, "tools": TOOLS})])
    assert [len(it.messages) for it in found.calls] == [2, 4, 6]
    assert [it.known for it in found.calls] == [0, 3, 5]
    assert [kind_of(it.reply) for it in found.calls] == ["tool-call", "prose", "prose"]
    assert {it.session for it in found.calls} == {"s-1"}
    assert found.calls[0].tools == tuple(TOOLS)
    first = found.calls[0].reply
    assert first is not None
    assert json.loads(first.tool_calls[0].arguments) == {"path": "a.py"}


def test_requests_are_joined_to_sessions_by_what_they_begin_with(tmp_path: Path) -> None:
    bodies = [AGENT[:2], [SYSTEM, user("Other")], AGENT[:4], AGENT[:6]]
    found = read_sessions([written(tmp_path, *({"messages": it, "temperature": 0.7} for it in bodies))])
    assert [(it.session, it.known) for it in found.calls] == [("s-1", 0), ("s-1", 3), ("s-1", 5), ("s-2", 0)]
    assert [it.reply is not None for it in found.calls] == [True, True, False, False]
    assert found.calls[0].sampling == {"temperature": 0.7}


def test_batch_answers_find_their_requests(tmp_path: Path) -> None:
    asked = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": AGENT[:2]}}
    answer = {"choices": [{"message": assistant("Yes.")}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    told = {"custom_id": "r1", "response": {"status_code": 200, "body": answer}, "error": None}
    found = read_sessions([written(tmp_path, asked), written(tmp_path, told, name="out.jsonl")])
    assert found.calls[0].reply == ChatMessage(role="assistant", content="Yes.")
    assert (found.calls[0].reply_tokens, found.calls[0].prompt_tokens) == (2, 9)


def test_sharegpt_with_tools(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "Area 5x3?"},
        {"from": "function_call", "value": '{"name": "area", "arguments": {"dims": [5, 3]}}'},
        {"from": "observation", "value": "15"},
        {"from": "gpt", "value": "15."},
    ]
    found = read_sessions([written(tmp_path, {"conversations": turns, "tools": '[{"name": "area"}]', "system": "S"})])
    assert [[it.role for it in call.messages] for call in found.calls] == [
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
    ]
    reply = found.calls[0].reply
    assert reply is not None
    assert (reply.tool_calls[0].name, json.loads(reply.tool_calls[0].arguments)) == ("area", {"dims": [5, 3]})
    assert found.calls[0].tools[0] == {"type": "function", "function": {"name": "area"}}


def test_turns_of_users_alone_are_asked_first_only(tmp_path: Path) -> None:
    bench = {"question_id": "q" * 8, "category": "coding", "turns": ["One", "Two", "Three"]}
    found = read_sessions([written(tmp_path, bench)])
    assert [it.messages[-1].content for it in found.calls] == ["One"]
    assert found.left_out == 2


def test_a_recording_repeats_nothing_and_is_put_together(tmp_path: Path) -> None:
    head = {"specmeter-session": 1, "to": "http://127.0.0.1:8080"}
    lines = [
        {"recorded": "1", "status": 200, "messages": AGENT[:2], "tools": TOOLS, "reply": AGENT[2], "wall_ms": 5.0,
         "sampling": {"temperature": 1.0},
         "timings": {"predicted_n": 12, "cache_n": 0}, "usage": {"prompt_tokens": 40}},
        {"recorded": "2", "status": 500, "messages": AGENT[:1]},
        {"recorded": "3", "status": 200, "parent": "1", "shared": 3, "messages": AGENT[3:4], "reply": AGENT[4]},
    ]  # fmt: skip
    path = written(tmp_path, head, *lines)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"recorded": "4", "sta')  # a recorder that was killed
    found = read_sessions([path])
    assert [(len(it.messages), it.known, it.reply_tokens) for it in found.calls] == [(2, 0, 12), (4, 3, None)]
    assert found.calls[1].tools == tuple(TOOLS)
    assert found.failed == 1


def test_what_cannot_be_replayed_is_named(tmp_path: Path) -> None:
    for entry, told in (
        ({"input_length": 655, "output_length": 52, "hash_ids": [0]}, "without text"),
        ({"messages": [{"role": "user", "content": "FULL BENCHMARK DATA SHOULD BE FETCHED FROM"}]}, "placeholder"),
        ({"nothing": 1}, "no conversation"),
        ({"specmeter-session": 9}, "version"),
    ):
        with pytest.raises(ExperimentError, match=told):
            read_sessions([written(tmp_path, entry)])


def test_few_calls_stand_for_all(tmp_path: Path) -> None:
    long = [SYSTEM]
    for turn in range(40):
        long += [user(f"Step {turn} " + "word " * 300), assistant("", CALL), result("ok"), assistant("Done.")]
    path = written(tmp_path, {"messages": long, "tools": TOOLS})
    items = chosen(read_sessions([path]), 12, 1)
    assert len(items) == 12
    turns = [it.turn for it in items if it.turn is not None]
    assert sum(it.weight for it in turns) == pytest.approx(80)
    assert [it.number for it in turns] == sorted(it.number for it in turns)
    assert items == chosen(read_sessions([path]), 12, 1)
    prompts = load([SessionsWorkload(source="sessions", paths=(str(path),), turns=12)])
    assert [it.turn is not None and it.tools == tuple(TOOLS) for it in prompts] == [True] * 12
    assert len({it.sha256 for it in prompts}) == 12


def test_what_an_answer_was_held_to_is_asked_for_again(tmp_path: Path) -> None:
    held = {"tool_choice": "required", "logit_bias": [[7, 5]], "response_format": None}
    path = written(tmp_path, {"messages": [user("Hi")], "tools": TOOLS, **held})
    (prompt,) = load([SessionsWorkload(source="sessions", paths=(str(path),))])
    asked = prompt.template_arguments
    assert asked == {"tools": TOOLS, "tool_choice": "required", "logit_bias": [[7, 5]]}


def test_the_bundled_recordings_are_sessions_with_tools() -> None:
    bench, coder = (read_sessions([session_path(f"bundled:{it}", Path())]) for it in ("bench-agent", "coder-agent"))
    assert len(bench.calls) == 20
    assert len(coder.calls) == 18
    assert next(it.name for call in coder.calls[:2] if call.reply for it in call.reply.tool_calls) == "read_file"
    assert {kind_of(it.reply) for it in coder.calls} == {"tool-call", "prose"}
    assert all(it.reply_tokens and it.wall_ms for it in coder.calls)
    with pytest.raises(ExperimentError, match="use one of bench-agent, coder-agent"):
        session_path("bundled:../bench-agent", Path())
