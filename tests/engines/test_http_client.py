"""The loopback client on answers that arrive in unlucky pieces."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

import pytest

from specmeter.engines.http_client import HttpClient, HttpLimits, HttpResponse, Stream, Watch


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
