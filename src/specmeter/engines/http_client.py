"""HTTP with one server, on this machine or another: bounded, impatient, and cheap while tokens arrive.

Built on sockets and the standard library, because what runs beside the engine takes time from it: per streamed token
this costs 15-20 microseconds of CPU, an HTTP library 60 (measured; on a machine whose cores all decode, that is what
the engine loses). While a stream runs, bytes are only stamped and stored; they are parsed when it has ended.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import re
import socket
import ssl
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from pydantic_core import from_json

from specmeter.engines.process import LOOPBACK
from specmeter.engines.session import Stop
from specmeter.errors import EngineProtocolError
from specmeter.text import size

_MAX_ANSWER = 64 * 1024 * 1024
_MAX_HEADER = 64 * 1024
_TICK_S = 0.5
_LAST_CHUNK = b"0\r\n\r\n"
_DONE = b"[DONE]"
SEE_LOG = "read the server's log (in the run folder, if specmeter started the server)"
_EVENT_ENDS = re.compile(rb"\r?\n\r?\n")


def json_object(data: bytes | str, what: str) -> dict[str, Any]:
    """Parse an answer that must be a JSON object. Raises `EngineProtocolError`."""
    try:
        value = from_json(data)  # refuses what cannot be stored as text (half of a surrogate pair), and deep nesting
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise garbage(what, data)
    return cast("dict[str, Any]", value)


def garbage(what: str, data: bytes | str | object) -> EngineProtocolError:
    """The error for an answer that cannot be understood."""
    shown = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return EngineProtocolError(f"the engine's reply to {what} cannot be parsed: {shown[:200]!r}", fix=SEE_LOG)


class StreamHungError(Exception):
    """No event came for too long."""


class StreamClosedError(Exception):
    """The stream broke off, or its server is gone."""


class StreamEndlessError(Exception):
    """More came than was asked for."""


@dataclass(frozen=True)
class HttpLimits:
    """When a long answer is given up."""

    idle_s: float
    """Longest time without an event, or without progress."""
    events: int
    size_bytes: int


@dataclass(frozen=True)
class Watch:
    """How to see from outside whether a silent server still works."""

    is_alive: Callable[[], bool]
    """Asked twice a second while nothing comes."""
    progress: Callable[[], object] | None = None
    """A value that changes as long as there is progress; asked four times in the idle time. None: only events count."""


@dataclass(frozen=True)
class HttpResponse:
    """A complete answer to one request."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By their names in lower case."""


@dataclass
class Stream:
    """A streamed answer as it came in: bytes, and when each part of them came."""

    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list[int])
    """Length of `data` after each read."""
    times: list[float] = field(default_factory=list[float])
    """`time.perf_counter()` of each read."""

    def events(self, what: str) -> list[tuple[float, dict[str, Any]]]:
        """Arrival time and content of each server-sent event, without the closing `[DONE]`.

        Raises `EngineProtocolError` for anything but a complete stream of JSON objects.
        """
        found: list[tuple[float, dict[str, Any]]] = []
        payload, origin = self.payload(what)
        at = 0
        while (end := _EVENT_ENDS.search(payload, at)) is not None:
            raw_end = origin[bisect_left(origin, (end.end(), 0))][1] if origin else end.end()
            arrival = self.times[min(bisect_left(self.ends, raw_end), len(self.times) - 1)]
            event, at = bytes(payload[at : end.start()]).strip(), end.end()
            if event.startswith(b"data:"):
                if (content := event[5:].strip()) != _DONE:
                    found.append((arrival, json_object(content, what)))
            elif event.startswith(b"error:"):
                found.append((arrival, {"error": json_object(event[6:], what)}))
        return found

    @property
    def is_stream(self) -> bool:
        """Whether it is one, and not an answer in one piece."""
        status, headers, _ = _parts(self.data)
        streamed = headers.get("content-type", "").lower().startswith("text/event-stream")
        return status == 200 and (streamed or _is_chunked(headers))

    def response(self, what: str) -> HttpResponse:
        """The same in one piece. Raises `EngineProtocolError`."""
        status, headers, content = _parts(self.data)
        return HttpResponse(status, bytes(self.payload(what)[0]) if _is_chunked(headers) else content, headers)

    def payload(self, what: str) -> tuple[bytearray, list[tuple[int, int]]]:
        """Body without chunk framing, and for each chunk (without any: each read) its end in the body and in the raw
        bytes."""
        header_end = self.data.find(b"\r\n\r\n")
        if header_end < 0:
            raise garbage(what, bytes(self.data[:200]))
        if not _is_chunked(_parts(self.data[: header_end + 4])[1]):
            start = header_end + 4
            return self.data[start:], [(end - start, end) for end in self.ends if end > start]
        payload, origin, at = bytearray(), list[tuple[int, int]](), header_end + 4
        while True:
            line_end = self.data.find(b"\r\n", at)
            try:
                size = int(bytes(self.data[at:line_end]).split(b";")[0], 16)
            except ValueError:
                raise garbage(what, bytes(self.data[at : at + 80])) from None
            at = line_end + 2
            if size == 0:
                return payload, origin
            if size < 0 or at + size > len(self.data):
                raise garbage(what, b"the stream ends within a chunk")
            payload += self.data[at : at + size]
            at += size + 2
            origin.append((len(payload), at))


@dataclass(frozen=True)
class HttpClient:
    """Talks to one server, with an API key where there is one."""

    port: int
    api_key: str = field(repr=False)
    host: str = LOOPBACK
    tls: ssl.SSLContext | None = None
    """None: in the clear."""
    below: str = ""
    """What stands before each path."""

    def call(
        self, method: str, path: str, body: object = None, *, timeout_s: float = 30.0, with_key: bool = True
    ) -> HttpResponse:
        """One request, which takes `timeout_s` in all; a redirection is not followed. Raises `OSError` (timeouts and
        TLS too) when there is no whole answer, `EngineProtocolError` for one that is none."""
        ends, answer, whole = time.perf_counter() + timeout_s, Stream(), None
        with self._connected(timeout_s) as connection:
            connection.sendall(self._request(method, path, body, with_key=with_key))
            while whole is None or len(answer.data) < whole:
                connection.settimeout(max(ends - time.perf_counter(), 1e-6))
                part = connection.recv(65536)
                if not part:
                    break
                if time.perf_counter() > ends:
                    raise TimeoutError(errno.ETIMEDOUT, f"no complete reply within {timeout_s:g} s")
                answer.data += part
                if len(answer.data) > _MAX_ANSWER:
                    raise garbage(path, f"a reply of more than {size(_MAX_ANSWER)}".encode())
                if answer.data.endswith(_LAST_CHUNK) and _is_whole(answer.data):
                    break
                if whole is None and (head := answer.data.find(b"\r\n\r\n", 0, _MAX_HEADER) + 4) > 3:
                    length = _parts(answer.data[:head])[1].get("content-length")
                    whole = None if length is None else head + _number(length)
        if not _is_whole(answer.data, closed=True):
            raise ConnectionResetError(errno.ECONNRESET, "the reply was cut off")
        return answer.response(path)

    def stream(
        self, path: str, body: object, limits: HttpLimits, watch: Watch, stop: Stop | None = None
    ) -> Stream | HttpResponse:
        """POST and collect the answer: a stream of server-sent events, or else an `HttpResponse` in one piece.

        `stop` hangs up. Raises `StreamHungError`, `StreamClosedError` or `StreamEndlessError`.
        """
        stream = Stream()
        try:
            with self._connected(limits.idle_s) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(self._request("POST", path, body))
                connection.settimeout(min(_TICK_S, limits.idle_s))
                if stop is not None:
                    stop.by(partial(_break_off, connection))
                _receive(connection, stream, limits, watch)
        except OSError as error:
            raise StreamClosedError from error
        return stream if stream.is_stream else stream.response(path)

    def _request(self, method: str, path: str, body: object, *, with_key: bool = True) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Host": f"{self.host}:{self.port}", "Content-Type": "application/json", "Connection": "close"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if with_key and self.api_key else {}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = "" if body is None else f"Content-Length: {len(content)}\r\n"
        return f"{method} {self.below}{path} HTTP/1.1\r\n{head}{length}\r\n".encode() + content

    def _connected(self, timeout_s: float) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout=timeout_s)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _break_off(connection: socket.socket) -> None:
    """Hang up, and continue listening: the server closes its side when it has given the request up, not before."""
    with contextlib.suppress(OSError):  # the answer may have ended in the meantime
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket, stream: Stream, limits: HttpLimits, watch: Watch) -> None:
    data, ends, times = stream.data, stream.ends, stream.times
    last_event = last_asked = time.perf_counter()
    events, seen = 0, object()
    while True:
        try:
            part = connection.recv(65536)
        except TimeoutError:
            part = None
        now = time.perf_counter()
        if part == b"":
            if _is_whole(data, closed=data.rstrip().endswith(_DONE)):
                return
            raise StreamClosedError
        if part is None:
            if not watch.is_alive():
                raise StreamClosedError
            if watch.progress is not None and now - last_asked > limits.idle_s / 4:
                now = last_asked = time.perf_counter()
                if (value := watch.progress()) != seen:
                    last_event, seen = now, value
        else:
            data += part
            ends.append(len(data))
            times.append(now)
            if found := part.count(b"data:"):
                last_event, events = now, events + found
            if data.endswith(_LAST_CHUNK) and _is_whole(data):
                return
            if events > limits.events or len(data) > limits.size_bytes:
                raise StreamEndlessError
        # Keep-alive comments are no progress.
        if now - last_event > limits.idle_s:
            raise StreamHungError


def _is_whole(data: bytearray, *, closed: bool = False) -> bool:
    """Whether an answer has ended, as far as its own words tell; one without a length ends when it is `closed`.

    Headers may arrive by themselves and end like a last chunk (`Content-Length: 120`).
    """
    status, headers, content = _parts(data)
    if _is_chunked(headers):
        return content == _LAST_CHUNK or content.endswith(b"\r\n" + _LAST_CHUNK)
    length = headers.get("content-length")
    return status > 0 and (closed or status != 200 if length is None else len(content) >= _number(length))


def _is_chunked(headers: Mapping[str, str]) -> bool:
    return "chunked" in headers.get("transfer-encoding", "").lower()


def _number(text: str) -> float:
    """What a header counts; more than there can be where it counts nothing."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else math.inf


def _parts(data: bytes | bytearray) -> tuple[int, dict[str, str], bytes]:
    """Status (0: not HTTP), headers by their names in lower case, and what follows them."""
    head, _, content = bytes(data).partition(b"\r\n\r\n")
    first, _, headers = head[:_MAX_HEADER].decode("latin-1").partition("\r\n")
    status = re.match(r"HTTP/1\.[01] ([0-9]{3})(?![0-9])", first)
    found = re.findall(r"(?m)^([A-Za-z0-9-]+):[ \t]*(.*?)[ \t\r]*$", headers)
    return int(status[1]) if status else 0, {name.lower(): value for name, value in found}, content
