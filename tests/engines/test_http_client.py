"""The loopback client on answers that arrive in unlucky pieces."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from specmeter.engines.http_client import (
    HttpClient,
    HttpLimits,
    HttpResponse,
    Stream,
    StreamClosedError,
    Watch,
    json_object,
)
from specmeter.errors import EngineProtocolError


def answer_with(pieces: Sequence[bytes]) -> HttpResponse | Stream:
    """What the client makes of an answer that is sent piece by piece."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.05)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            client = HttpClient(server.getsockname()[1], "key")
            return client.stream(
                "/completion", {}, HttpLimits(idle_s=5, events=10, size_bytes=10_000), Watch(lambda: True)
            )
        finally:
            thread.join()


@pytest.mark.parametrize(
    "last_header", [b"Content-Length: 10", b"Content-Length: 10\r\nKeep-Alive: timeout=5, max=100"]
)
def test_headers_that_end_like_a_last_chunk_are_not_the_end(last_header: bytes) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\n" + last_header + b"\r\n\r\n"
    answer = answer_with([head, b'{"a": "b"}'])
    assert isinstance(answer, HttpResponse)
    assert (answer.status, answer.body) == (400, b'{"a": "b"}')


def test_a_stream_ends_with_its_last_chunk_only() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
    event = b'data: {"content": "x"}\n\n'
    chunk = f"{len(event):x}\r\n".encode() + event + b"\r\n"
    stream = answer_with([head, chunk, chunk, b"0\r\n\r\n"])
    assert isinstance(stream, Stream)
    assert bytes(stream.data) == head + chunk + chunk + b"0\r\n\r\n"


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


def test_a_stream_may_end_by_closing_the_connection() -> None:
    stream = answer_with([EVENTS, b'data: {"a": 1}\n\n', b'data: {"a": 2}\n\ndata: [DONE]\n\n'])
    assert isinstance(stream, Stream)
    (first, one), (second, two) = stream.events("/completion")
    assert (one, two) == ({"a": 1}, {"a": 2})
    assert (first, second) == tuple(stream.times[1:])


def test_a_stream_that_is_closed_before_it_is_done_broke_off() -> None:
    with pytest.raises(StreamClosedError):
        answer_with([EVENTS, b'data: {"a": 1}\n\n'])


def call(pieces: Sequence[bytes], between_s: float = 0.0) -> HttpResponse:
    """What one call makes of an answer that is sent piece by piece, until it hangs up or all is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(between_s)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return HttpClient(server.getsockname()[1], "key").call("GET", "/slots", timeout_s=0.4)
        finally:
            thread.join()


def test_an_answer_of_each_form_is_read() -> None:
    body = b'{"a": 1}'
    sized = call([b"HTTP/1.1 200 OK\r\nContent-", b"Length: 8\r\nRetry-After: Mon\r\n\r\n", body])
    assert sized == HttpResponse(200, body, {"content-length": "8", "retry-after": "Mon"})
    chunked = call([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"8\r\n" + body + b"\r\n", b"0\r\n\r\n"])
    assert chunked.body == body
    assert call([b"HTTP/1.0 200 OK\r\n\r\n", body[:3], body[3:]]).body == body


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"x"] * 50],
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 50,
        [b"H", *[b"T"] * 50],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n"] * 50],
    ],
)
def test_an_answer_that_drips_ends_in_its_time(pieces: Sequence[bytes]) -> None:
    with pytest.raises(TimeoutError):
        call(pieces, between_s=0.05)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\nContent-Length: 2",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\nContent-Length: 2",
        b"SSH-2.0-OpenSSH_9.2",
        b"",
    ],
)
def test_what_is_no_answer_is_told(head: bytes) -> None:
    with pytest.raises(OSError, match="cut off"):
        call([head + b"\r\n\r\n", b"{}"])


def test_a_chunk_that_is_none_is_told() -> None:
    with pytest.raises(EngineProtocolError):
        call([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"-5\r\n", b"\r\n0\r\n\r\n"])


def test_json_of_any_depth_is_read_or_told() -> None:
    with pytest.raises(EngineProtocolError):
        json_object(b"[" * 100_000, "/slots")


def test_what_cannot_be_parsed_supposes_nothing_of_its_server() -> None:
    """It may be another's, without a log in the run folder."""
    with pytest.raises(EngineProtocolError) as caught:
        json_object(b"<html>", "/v1/completions")
    assert caught.value.fix == "read the server's log (in the run folder, if specmeter started the server)"
