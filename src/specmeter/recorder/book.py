"""The file that a recording is written into: one line per call, on disk before the next one is written.

Messages that a call has in common with an earlier one are not repeated: `parent` names that call, and `shared` says how
many of its messages, with its answer, come first. `workloads/sessions.py` reads these files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, cast

from specmeter.errors import UsageError
from specmeter.recorder.replies import ChatReply
from specmeter.workloads.conversations import HELD, joined_halves, keys_of
from specmeter.workloads.sessions import FORMAT, MAX_LINE_BYTES, SAMPLED, VERSION

REDACTED = "[redacted]"
LEFT_OUT = ("headers", "keys")
_KEPT = ("model", "max_tokens", "max_completion_tokens", "stream", *HELD)
"""Of a request, besides its messages, tools and sampling parameters."""
_WIRE = frozenset(
    (
        *("messages", "role", "content", "reasoning", "reasoning_content", "name", "type", "text", "id", "index"),
        *("tools", "tool_calls", "tool_call_id", "function", "functions", "arguments", "parameters", "properties"),
        *("required", "description", "enum", "items", "schema", "json_schema", *SAMPLED, *_KEPT),
    )
)
"""Keys that are never redacted: the form of requests."""


@dataclass(frozen=True)
class _Known:
    own: str
    digests: tuple[str, ...]
    """Of each of its messages, its answer last."""
    tools: str


class Book:
    """A recording that is being written. Not for several threads at once."""

    def __init__(self, path: Path, to: str, redact: Sequence[str] = ()) -> None:
        """Start the file, or continue an existing one. Raises `UsageError`."""
        self.path = path
        self.calls = 0
        self.added = 0
        """Calls of this recording; `calls` are all of the file."""
        self.redacted = 0
        self.unread = 0
        """Of these, calls whose reply cannot be read."""
        self._patterns = [_pattern(it) for it in redact]
        self._by_prefix: dict[str, _Known] = {}
        """Digest of all messages of a call -> the latest of these."""
        if path.exists() and path.stat().st_size > 0:
            self._go_on()
        try:
            self._file: IO[bytes] = path.open("ab")
        except OSError as error:
            raise UsageError(f"--out {path}: {error.strerror}", fix="give a file that can be written") from None
        self._told = {FORMAT: VERSION, "to": to, "left_out": LEFT_OUT, "redacted_patterns": len(redact)}
        """The first line of the file, repeated when a recording continues. Patterns are left out: they name secrets."""

    def add(self, request: Mapping[str, Any], reply: ChatReply | None, status: int, took: Mapping[str, float]) -> None:
        """Write down a call; `took` are its times (`at` in s, `ttft_ms`, `wall_ms`)."""
        asked = cast("dict[str, Any]", self._redact(dict(request)))
        messages = cast("list[Any]", asked["messages"]) if isinstance(asked.get("messages"), list) else []
        digests = [_digest(it) for it in messages]
        parent, shared = self._parent(digests)
        self.calls += 1
        self.added += 1
        own, tools = str(self.calls), json.dumps(asked.get("tools"), sort_keys=True)
        line: dict[str, Any] = {"recorded": own, "status": status, **{key: round(it, 3) for key, it in took.items()}}
        if parent is not None:
            line |= {"parent": parent.own, "shared": shared}
        line["messages"] = messages[shared:]
        if asked.get("tools") and (parent is None or parent.tools != tools):
            line["tools"] = asked["tools"]
        line["sampling"] = {key: asked[key] for key in SAMPLED if key in asked}
        line |= {key: asked[key] for key in _KEPT if key in asked}
        if reply is not None:
            message = self._redact(reply.message)
            digests.append(_digest(message))
            line |= {"reply": message, "finish_reason": reply.finish_reason}
            line |= {"usage": self._redact(reply.usage), "timings": self._redact(reply.timings)}
        elif status == 200:
            self.unread += 1
        if self._told:
            self._write({**self._told, "at": round(time.time(), 3)})
            self._told = {}
        self._write(line)
        if status == 200:
            known = _Known(own, tuple(digests), tools)
            self._by_prefix[_joined(digests[: len(messages)])] = known

    def close(self) -> None:
        with suppress(OSError):  # of a full disk; each line is on disk, or its call was reported as lost
            self._file.close()

    def _parent(self, digests: Sequence[str]) -> tuple[_Known | None, int]:
        """The call whose messages this one begins with, and how many of them and of its answer are the same."""
        for count in range(len(digests), 0, -1):
            if (known := self._by_prefix.get(_joined(digests[:count]))) is not None:
                return known, _same(digests, known.digests)
        return None, 0

    def _go_on(self) -> None:
        """Read the calls of an existing file, so that calls that continue them find their parent."""
        with self.path.open("rb") as file:
            begins = file.readline(MAX_LINE_BYTES)
        try:
            read: object = json.loads(begins)
        except (ValueError, RecursionError):
            read = None
        if FORMAT not in keys_of(read):
            raise UsageError(f"--out {self.path}: exists and is no recording", fix="give another name")
        messages: dict[str, list[Any]] = {}
        tools: dict[str, str] = {}
        whole = b""
        for raw in self.path.read_bytes().splitlines(keepends=True):
            if not raw.endswith(b"\n"):
                break  # of a recorder that was killed
            try:
                line = cast("dict[str, Any]", json.loads(raw))
            except (ValueError, RecursionError):
                number = len(whole.splitlines()) + 1
                raise UsageError(f"--out {self.path}: line {number} is damaged", fix="give another name") from None
            whole += raw
            if "recorded" not in line:
                continue
            own, parent = str(line["recorded"]), str(line.get("parent", ""))
            new: list[Any] = line.get("messages") or []
            said = [*messages.get(parent, [])[: line.get("shared", 0)], *new]
            tools[own] = json.dumps(line["tools"], sort_keys=True) if "tools" in line else tools.get(parent, "null")
            digests = [_digest(it) for it in said]
            answer = [line["reply"]] if "reply" in line else []
            messages[own] = [*said, *answer]
            if line.get("status") == 200:
                known = _Known(own, tuple(_digest(it) for it in messages[own]), tools[own])
                self._by_prefix[_joined(digests)] = known
            self.calls = max(self.calls, int(own) if own.isdecimal() else 0)
        if len(whole) < self.path.stat().st_size:
            os.truncate(self.path, len(whole))

    def _redact(self, given: object) -> Any:
        """The same, with every text that matches replaced."""
        if not self._patterns:
            return given
        if isinstance(given, str):
            if "\\u" in given:
                given = _unescaped(given)
            for pattern in self._patterns:
                given, count = pattern.subn(REDACTED, given)
                self.redacted += count
            return given
        if isinstance(given, dict):
            return {
                key if key in _WIRE else cast("str", self._redact(key)): self._redact(it)
                for key, it in cast("dict[str, object]", given).items()
            }
        return [self._redact(it) for it in cast("list[object]", given)] if isinstance(given, list) else given

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self._file.write(joined_halves(text).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _unescaped(text: str) -> str:
    """JSON text without escapes, so that a pattern finds what they stand for; other text as it is."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _same(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many are the same from the beginning on."""
    return sum(1 for _ in takewhile(lambda it: it[0] == it[1], zip(ours, theirs, strict=False)))


def _digest(message: object) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()


def _joined(digests: Sequence[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--redact {text[:80]!r}: {error}", fix="give a regular expression of Python") from None
