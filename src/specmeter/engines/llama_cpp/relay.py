"""A TCP relay that makes a slow network of a fast one: it adds latency, limits bandwidth, and counts bytes.

What arrives at time t is handed on at t + latency, or later if bytes before it are still on the line. The relay itself
costs some 0.1 ms per message (threads of Python), which belongs to every measurement through it.

Run as a script of its own it imports nothing of specmeter, listens until it is ended, and prints its port:

    python -I -S relay.py HOST PORT LATENCY_S BYTES_PER_S       the last one 0: unlimited
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from queue import SimpleQueue

COMMANDS = {6: "set", 8: "get", 10: "graph", 13: "size", 16: "graph-again"}
"""Number of a command of llama.cpp's RPC protocol -> what it does; others are made while loading."""
LISTENING = "listens on port"
"""Before the number, in what the script prints."""
_COMMAND = struct.Struct("<BQ")
_BLOCK = 262_144
_WAITING = 4 * 2**20
"""Bytes that may wait for a line beyond those under way on it."""
_QUIET_S = 0.2
_FASTEST = 4e9
"""Bytes per second, where bandwidth is not limited: no loopback is much faster."""


class _Line:
    """What is under way in one direction. While it is full the reader waits, and TCP lets the sender wait."""

    def __init__(self, most_bytes: float) -> None:
        self._most, self._held, self._broken = most_bytes, 0, False
        self._room = threading.Condition()
        self._queue: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def wait_for_room(self) -> None:
        """Return when more may be read."""
        with self._room:
            self._room.wait_for(lambda: self._held < self._most or self._broken)

    def put(self, due: float, block: bytes) -> None:
        """`block` is to be handed on at `due`; an empty one ends the line."""
        with self._room:
            if self._broken:
                return
            self._held += len(block)
        self._queue.put((due, block))

    def get(self) -> tuple[float, bytes]:
        """The next block and when it is due; blocks until there is one."""
        return self._queue.get()

    def given(self, size: int) -> None:
        """This many bytes have been handed on."""
        with self._room:
            self._held -= size
            self._room.notify()

    def give_up(self) -> None:
        """The other end is gone: what is still read is dropped."""
        with self._room:
            self._broken = True
            self._room.notify()


class Relay:
    """Listens on a loopback port and forwards every connection to `target`."""

    def __init__(self, target: tuple[str, int], *, latency_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        """`latency_s` is that of one direction; `bytes_per_s` holds for each direction."""
        self.target, self.latency_s, self.bytes_per_s = target, latency_s, bytes_per_s
        self.sent = self.received = 0
        """Bytes to the target and from it."""
        self.commands: Counter[str] = Counter()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        """One per connection, and the one that accepts them."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_quiet(self) -> None:
        """Return once nothing has passed for a moment: an engine does not wait for all that it sends to be read."""
        before = (-1, -1)
        while before != (now := (self.sent, self.received)):
            before = now
            time.sleep(_QUIET_S)

    def reset(self) -> None:
        """Count from 0 again, once the relay is quiet."""
        self.wait_until_quiet()
        self.sent = self.received = 0
        self.commands.clear()

    def close(self) -> None:
        """End every connection and wait for the threads."""
        for end in (self._server, *tuple(self._open)):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in tuple(self._threads):
            thread.join(5)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self.target, 5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open |= {near, far}
                self._start(self._forward, near, far)

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        """Both directions of a connection, until both have ended."""
        most = (self.bytes_per_s or _FASTEST) * self.latency_s + _WAITING
        there, back = _Line(most), _Line(most)
        work = (
            (self._take, (near, there, True)),
            (self._give, (far, there)),
            (self._take, (far, back, False)),
            (self._give, (near, back)),
        )
        threads = [threading.Thread(target=target, args=args, daemon=True) for target, args in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for end in (near, far):
            end.close()
        self._open -= {near, far}
        self._threads.discard(threading.current_thread())

    def _take(self, source: socket.socket, line: _Line, outward: bool) -> None:
        free_at = 0.0
        names = self._names()
        next(names)
        block = b"-"
        while block:
            line.wait_for_room()
            try:
                block = source.recv(_BLOCK)
            except OSError:
                block = b""
            if outward:
                self.sent += len(block)
                names.send(block)
            else:
                self.received += len(block)
            free_at = max(time.perf_counter(), free_at)
            if self.bytes_per_s:
                free_at += len(block) / self.bytes_per_s
            line.put(free_at + self.latency_s, block)

    def _give(self, sink: socket.socket, line: _Line) -> None:
        while True:
            due, block = line.get()
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            try:
                if not block:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(block)
            except OSError:
                line.give_up()
                return
            line.given(len(block))

    def _names(self) -> Generator[None, bytes]:
        """Reads the protocol as it passes: one byte of command, eight of length, that many bytes of content."""
        head, skip = b"", 0
        while True:
            block = yield
            while block:
                if skip:
                    block, skip = block[skip:], max(0, skip - len(block))
                    continue
                need = _COMMAND.size - len(head)
                head, block = head + block[:need], block[need:]
                if len(head) == _COMMAND.size:
                    command, skip = _COMMAND.unpack(head)
                    head = b""
                    self.commands[COMMANDS.get(command, "other")] += 1


@contextlib.contextmanager
def relayed(target: tuple[str, int], *, latency_s: float = 0.0, bytes_per_s: float | None = None) -> Generator[Relay]:
    """A relay that is closed again."""
    relay = Relay(target, latency_s=latency_s, bytes_per_s=bytes_per_s)
    try:
        yield relay
    finally:
        relay.close()


def main(argv: list[str]) -> int:
    """Relay until the process is ended."""
    host, port, latency_s, bytes_per_s = argv
    relay = Relay((host, int(port)), latency_s=float(latency_s), bytes_per_s=float(bytes_per_s) or None)
    print(f"{LISTENING} {relay.port}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
