"""What a server answered to a chat request: whole, or put together from its stream.

Source of the chunks' form: OpenAI's Python package, its chat completion chunks; `timings` are llama.cpp's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from specmeter.workloads.conversations import first_of, keys_of

MAX_REPLY_BYTES = 64 * 2**20
"""Of a reply beyond that, nothing is recorded."""

Json = Mapping[str, Any]


@dataclass
class ChatReply:
    """An answer."""

    message: dict[str, Any] = field(default_factory=dict[str, Any])
    """As a conversation has it."""
    finish_reason: str = ""
    usage: Json = field(default_factory=dict[str, Any])
    timings: Json = field(default_factory=dict[str, Any])


def read_reply(body: bytes, content_type: str, encoding: str) -> ChatReply | None:
    """The answer in a response of status 200; None if it cannot be read."""
    try:
        if encoding in ("gzip", "deflate"):
            unpack = zlib.decompressobj(wbits=47)  # either form, by its first bytes
            body = unpack.decompress(body, MAX_REPLY_BYTES)
        elif encoding not in ("", "identity"):
            return None
        text = body.decode("utf-8-sig", "replace")
        if "event-stream" in content_type:
            return _streamed(text)
        parsed: object = json.loads(text)
    except (zlib.error, ValueError, RecursionError):
        return None
    return _whole(cast("Json", parsed)) if isinstance(parsed, dict) else None


def _whole(given: Json) -> ChatReply | None:
    choice = first_of(given.get("choices"))
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    return ChatReply(
        cast("dict[str, Any]", message),
        str(choice.get("finish_reason") or ""),
        keys_of(given.get("usage")),
        keys_of(given.get("timings")),
    )


def _streamed(text: str) -> ChatReply | None:
    """The deltas of a stream, added up; None if it ended with an error, or before its end."""
    found = ChatReply({"role": "assistant", "content": ""})
    calls = _Calls()
    for line in text.split("\n"):  # `splitlines` would also split at characters of a text
        if not line.startswith("data:") or line[5:].strip() == "[DONE]":
            continue
        parsed: object = json.loads(line[5:])
        if not isinstance(parsed, dict) or "error" in parsed:
            return None
        event = cast("Json", parsed)
        choice = first_of(event.get("choices"))
        delta = keys_of(choice.get("delta"))
        for key in ("content", "reasoning_content", "reasoning"):
            if isinstance(piece := delta.get(key), str):
                found.message[key] = found.message.get(key, "") + piece
        for piece in cast("list[object]", delta.get("tool_calls") or []):
            calls.add(keys_of(piece))
        found.finish_reason = str(choice.get("finish_reason") or found.finish_reason)
        found.usage = keys_of(event.get("usage")) or found.usage
        found.timings = keys_of(event.get("timings")) or found.timings
    if not found.finish_reason:
        return None
    if calls.all:
        found.message["tool_calls"] = calls.all
    return found


class _Calls:
    """Tool calls from their pieces: id and name come once, arguments in parts."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._latest: dict[str, dict[str, Any]] = {}
        """Of each index; some servers give several calls the same one, or none."""

    def add(self, piece: Json) -> None:
        own, place = piece.get("id"), str(piece.get("index"))
        call = self._latest.get(place)
        if call is None or (isinstance(own, str) and own and call["id"] not in ("", own)):
            empty: dict[str, Any] = {"name": "", "arguments": ""}
            call = self._latest[place] = {"id": "", "type": "function", "function": empty}
            self.all.append(call)
        if isinstance(own, str) and own:
            call["id"] = own
        function = keys_of(piece.get("function"))
        if isinstance(name := function.get("name"), str) and name:
            call["function"]["name"] = name
        part: object = function.get("arguments")
        if part is not None:
            call["function"]["arguments"] += part if isinstance(part, str) else json.dumps(part)
