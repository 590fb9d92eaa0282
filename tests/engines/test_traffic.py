"""Bytes that the kernel counts on a connection, against what was really sent."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from specmeter.engines.traffic import RECEIVED, SENT, grown, remote_bytes

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts bytes per connection")


@linux
def test_bytes_of_our_own_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert remote_bytes([os.getpid()], [address]) is None
        with socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
            before = remote_bytes([os.getpid()], [address])
            near.sendall(b"x" * 100_000)
            left = 100_000
            while left:
                left -= len(far.recv(left))
            far.sendall(b"y" * 7)
            assert near.recv(7)
            assert grown(before, remote_bytes([os.getpid()], [address])) == {SENT: 100_000, RECEIVED: 7}


@linux
def test_what_the_other_end_has_not_read_is_counted() -> None:
    """Neither when it was sent nor when it was acknowledged matters, only what the program wrote."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.create_connection(server.getsockname()) as near, server.accept()[0]:
            near.setblocking(False)
            written = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    written += near.send(b"x" * 100_000)
            assert written > 0
            assert remote_bytes([os.getpid()], [address]) == {SENT: written, RECEIVED: 0}


@linux
def test_connections_of_others_are_not_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import socket, sys; s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'abc'); s.recv(1); "
            "sys.stdin.read()"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as other:
            with server.accept()[0] as far:
                assert far.recv(3) == b"abc"
                far.sendall(b"!")
                assert remote_bytes([os.getpid()], [f"127.0.0.1:{port}"]) is None
                counted = remote_bytes([other.pid], [f"127.0.0.1:{port}"])
            assert other.stdin
            other.stdin.close()
        assert counted is not None
        assert counted[SENT] == 3


def test_processes_that_are_gone_have_no_connections() -> None:
    assert remote_bytes([2**22 + 1], ["127.0.0.1:50052"]) is None
    assert remote_bytes([], ["127.0.0.1:50052"]) is None


def test_a_connection_made_anew_counts_from_zero() -> None:
    old, new = {SENT: 100.0, RECEIVED: 5.0}, {SENT: 20.0, RECEIVED: 9.0}
    assert grown(old, new) == {}
    assert grown(None, new) == {}
    assert grown(new, {SENT: 21.0, RECEIVED: 9.0}) == {SENT: 1.0, RECEIVED: 0.0}
