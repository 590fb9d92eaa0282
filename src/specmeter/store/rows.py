"""Turns a `Request` into a row of the database and back: numbers in columns, the bulk in one compressed document."""

from __future__ import annotations

import math
import sqlite3
import zlib
from sys import intern
from typing import Any, Literal, NamedTuple, cast, get_type_hints

from pydantic_core import from_json

from specmeter.numbers.rates import target_forwards
from specmeter.record import Reply, Request, Sending, Timings
from specmeter.text import size

_TIMINGS = tuple(Timings.model_fields)
SENDING_COLUMNS = ("client", "due_at", "late_ms", "slot", "queued_ms")
"""Fields of a `Sending` that its request does not have already."""
_BULK = {"text", "reasoning", "token_ids", "raw_timings", "counters", "arrival_ms", "steps", "drafting"}

MAX_DOCUMENT = 128 * 2**20
"""Bytes that a compressed document may unpack to: a reply of a million steps stays below it, a bomb does not."""


class RequestKey(NamedTuple):
    """What makes a request of a run unique; equal to the plain tuple."""

    invocation: int
    block: int
    arm_id: str
    prompt_id: str


class RequestRow(NamedTuple):
    """A request without its bulk, for summaries of many: one row of the table `request`.

    Fields from `stop_reason` on are None when the request failed.
    """

    invocation: int
    block: int
    position: int
    item: int
    arm_id: str
    prompt_id: str
    prompt_sha256: str
    kind: str
    session_id: str
    started_at: float
    attempt: int
    """1 for the first try."""
    status: Literal["ok", "failed"]
    error: str | None
    stop_reason: str | None
    wall_ms: float | None
    ttft_ms: float | None
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None
    cache_n: int | None
    draft_n: int | None
    draft_n_accepted: int | None
    step_n: int | None
    """Number of recorded steps."""
    target_forwards: int | None
    """By the rule of `specmeter.numbers.rates`, steps included."""

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.invocation, self.block, self.arm_id, self.prompt_id)

    @property
    def timings(self) -> Timings | None:
        """Counts and times, for `specmeter.numbers.rates`; None when the request failed."""
        if self.predicted_n is None:
            return None
        return Timings.model_validate(dict(zip(_TIMINGS, self[_TIMINGS_AT], strict=True)))


REQUEST_COLUMNS = ", ".join(RequestRow._fields)
_TIMINGS_AT = slice(RequestRow._fields.index(_TIMINGS[0]), RequestRow._fields.index(_TIMINGS[-1]) + 1)
_IDENTITY = RequestRow._fields[: RequestRow._fields.index("attempt")]
_INSERT = f"INSERT INTO request ({REQUEST_COLUMNS}) VALUES ({', '.join('?' * len(RequestRow._fields))})"
_REPEATING = tuple(
    RequestRow._fields.index(name)
    for name in ("arm_id", "prompt_id", "prompt_sha256", "kind", "session_id", "status", "stop_reason")
)


def insert(db: sqlite3.Connection, request: Request, attempt: int, sending: Sending | None = None) -> None:
    """Write both halves of a request, and how it was sent under a load; the caller holds the transaction."""
    row_id = db.execute(_INSERT, _row(request, attempt)).lastrowid
    if request.reply is not None:
        bulk = request.reply.model_dump_json(include=_BULK, exclude_none=True)
        db.execute("INSERT INTO reply VALUES (?, ?)", (row_id, zlib.compress(bulk.encode())))
    if sending is not None:
        sent = (getattr(sending, name) for name in SENDING_COLUMNS)
        db.execute("INSERT INTO sending VALUES (?, ?, ?, ?, ?, ?)", (row_id, *sent))


_seen: set[tuple[type, ...]] = set()
"""Types that a row may have, of those that were met."""


def shared(values: list[Any]) -> RequestRow:
    """A row of these values; strings that repeat are kept once, or 100,000 rows fill the memory. Uses up the list.

    Raises `ValueError` for a value of another type, as a flipped bit makes one, and for an infinite one.
    """
    types = tuple(map(type, values))
    if types not in _seen:
        for (name, kind), value in zip(get_type_hints(RequestRow).items(), values, strict=True):
            if not isinstance(value, str if name == "status" else kind):
                raise ValueError(f"{name} is {value!r:.40}")  # noqa: TRY004
        _seen.add(types)
    if math.inf in values or -math.inf in values:
        raise ValueError("a time is infinite")
    for index in _REPEATING:
        if values[index] is not None:
            values[index] = intern(values[index])
    return RequestRow._make(values)


def unpacked(bulk: bytes) -> bytes:
    """A compressed document of the database: at most `MAX_DOCUMENT` bytes of it are ever made.

    Raises `zlib.error` or `ValueError` when it cannot be read.
    """
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(bulk, MAX_DOCUMENT + 1)
    except TypeError:  # a damaged row may hold anything
        raise ValueError("is gone") from None
    if len(content) > MAX_DOCUMENT:
        raise ValueError(f"unpacks to more than {size(MAX_DOCUMENT)}")
    if not stream.eof:
        raise ValueError("ends too early")
    return content


def reply_document(bulk: bytes) -> dict[str, Any]:
    """The bulk of a reply. Raises `zlib.error` or `ValueError` when it cannot be read."""
    document: object = from_json(unpacked(bulk))  # a quarter of the time of `json.loads`
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004
    return cast("dict[str, Any]", document)


def restore(row: RequestRow, bulk: bytes | None) -> Request:
    """The request as it was measured.

    Raises `zlib.error` or `ValueError` when the bulk cannot be read.
    """
    fields: dict[str, Any] = {name: getattr(row, name) for name in (*_IDENTITY, "status", "error")}
    if bulk is not None:
        reply = reply_document(bulk)
        reply |= {"stop_reason": row.stop_reason, "wall_ms": row.wall_ms, "ttft_ms": row.ttft_ms}
        reply["timings"] = row.timings
        fields["reply"] = Reply.model_validate(reply)
    return Request.model_validate(fields)


def _row(request: Request, attempt: int) -> tuple[Any, ...]:
    identity = tuple(getattr(request, name) for name in _IDENTITY)
    head = (*identity, attempt, request.status, request.error)
    reply = request.reply
    if reply is None:
        return head + (None,) * (len(RequestRow._fields) - len(head))
    return (
        *head,
        reply.stop_reason,
        reply.wall_ms,
        reply.ttft_ms,
        *(getattr(reply.timings, name) for name in _TIMINGS),
        len(reply.steps),
        target_forwards(reply.timings, reply.steps),
    )
