"""Reads conversations as others keep them: OpenAI's messages with tools, ShareGPT.

Sources: the types of OpenAI's Python package (`types/chat/*_message_param.py`); LLaMA-Factory's `data/README.md` for
ShareGPT with tools. A result of several parallel calls, which ShareGPT merges into one, stays one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage, ToolCall

MAX_MESSAGES = 10_000
"""Of one conversation."""

_ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_SHAREGPT = ("conversations", "conversation")
_CALLS = ("function_call", "tool_call")
"""Roles whose text is a call, or a list of them."""

FORMS = (
    'write {"messages": [{"role": "user", "content": "..."}]} or {"conversations": [{"from": "human", "value": "..."}]}'
)


def joined_halves(text: str) -> str:
    """The same with halves of characters (lone surrogates) joined, or replaced where the other half is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def keys_of(given: object) -> Mapping[str, Any]:
    """A JSON object; empty for everything else."""
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def first_of(given: object) -> Mapping[str, Any]:
    """The first item of a JSON list, as `keys_of` has it."""
    return keys_of(cast("list[object]", given)[0]) if isinstance(given, list) and given else keys_of(None)


def turns_of(entry: Mapping[str, Any]) -> object:
    """The turns of an entry that is a conversation (or a request with one, as in OpenAI's batches); None of others."""
    if "messages" in (body := keys_of(entry.get("body"))):
        return body["messages"]
    return next((entry[key] for key in ("messages", *_SHAREGPT) if key in entry), None)


def messages_of(turns: object, place: str) -> tuple[ChatMessage, ...]:
    """All messages of a conversation. Raises `ExperimentError`, which names the place, for what is none."""
    if not isinstance(turns, list):
        raise ExperimentError(f"{place}: the conversation is not a list of turns", fix=FORMS)
    listed = cast("list[object]", turns)
    if len(listed) > MAX_MESSAGES:
        raise ExperimentError(f"{place}: more than {MAX_MESSAGES} turns", fix="use a shorter conversation")
    return tuple(message_of(turn, f"{place}, turn {number}") for number, turn in enumerate(listed, start=1))


def message_of(turn: object, place: str) -> ChatMessage:
    """A message in one of these forms. Raises `ExperimentError`."""
    given = keys_of(turn)
    role, content = given.get("role", given.get("from")), given.get("content", given.get("value"))
    calls = given.get("tool_calls") or ([given["function_call"]] if given.get("function_call") else None)
    if not isinstance(role, str) or (content is None and not calls):
        raise ExperimentError(f"{place}: has no role or no content", fix=FORMS)
    if role not in _ROLES:
        raise ExperimentError(
            f"{place}: the role {role[:40]!r} is unknown", fix=f"known roles: {', '.join(_ROLES)}; remove other turns"
        )
    text = "" if content is None else _text(content, place)
    if role in _CALLS:
        return _called(text, place)
    reasoning, answers = given.get("reasoning_content", given.get("reasoning")), given.get("tool_call_id")
    return ChatMessage(
        role=_ROLES[role],
        content=text,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        tool_calls=() if calls is None else _tool_calls(calls, place),
        tool_call_id=answers if isinstance(answers, str) else "",
    )


def tools_of(entry: Mapping[str, Any], place: str) -> tuple[dict[str, Any], ...]:
    """The functions that a model may call, as OpenAI-compatible servers take them; empty where there are none."""
    given: object = entry.get("tools", keys_of(entry.get("body")).get("tools"))
    if given is None:
        given = entry.get("functions")
    if isinstance(given, str):
        given = _json(given, place, "tools") if given.strip() else None
    if not given:
        return ()
    listed = cast("list[object]", given) if isinstance(given, list) else [None]
    found: list[dict[str, Any]] = []
    for number, it in enumerate(listed, start=1):
        tool = dict(keys_of(it))
        wrapped = tool if keys_of(tool.get("function")) else {"type": "function", "function": tool}
        if not isinstance(keys_of(wrapped["function"]).get("name"), str):
            raise ExperimentError(
                f"{place}: tool {number} has no name", fix='write {"type": "function", "function": {"name": "..."}}'
            )
        found.append(wrapped)
    return tuple(found)


HELD = ("tool_choice", "parallel_tool_calls", "response_format", "json_schema", "grammar", "logit_bias")
"""Parameters of a request that its answer is held to."""


def held_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Of `HELD`, what an entry has."""
    body = {**keys_of(entry.get("body")), **entry}
    return {key: body[key] for key in HELD if body.get(key) is not None}


def _tool_calls(calls: object, place: str) -> tuple[ToolCall, ...]:
    """Calls in OpenAI's form, also the older one of a single function."""
    found: list[ToolCall] = []
    for call in cast("list[object]", calls) if isinstance(calls, list) else [calls]:
        given = keys_of(call)
        function = keys_of(given.get("function") or given.get("custom") or given)
        name = function.get("name")
        if not isinstance(name, str):
            raise ExperimentError(f"{place}: a tool call has no function name", fix=FORMS)
        arguments: object = function.get("arguments", function.get("input", "{}"))
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        found.append(ToolCall(name=name, arguments=written, id=str(given.get("id") or "")))
    return tuple(found)


def _called(text: str, place: str) -> ChatMessage:
    """What ShareGPT has as the text of a call: JSON of one or several, perhaps after a thought."""
    thought, closing, rest = text.rpartition("</think>")
    calls = _json(rest, place, "call")
    return ChatMessage(
        role="assistant",
        reasoning=(thought.strip().removeprefix("<think>").strip()) if closing else "",
        tool_calls=_tool_calls(calls, place),
    )


def _json(text: str, place: str, what: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ExperimentError(f"{place}: its {what} is not JSON", fix="write it as JSON") from None


def _text(content: object, place: str) -> str:
    """Text, or a list of parts that are text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        given = keys_of(part)
        text = given.get("text") if given.get("type", "text") == "text" else None
        if not isinstance(text, str):
            raise ExperimentError(f"{place}: its content is not text", fix="remove turns with images or audio")
        texts.append(text)
    return "".join(texts)
