"""Counts the bytes that an engine exchanged with its remote machines, by the kernel's counters of each connection.

Linux gives them by netlink (`sock_diag(7)`, structures of `linux/inet_diag.h` and `linux/tcp.h`; what `ss -ti` prints).
Nothing stands between engine and remote machine, so the measurement is not disturbed. Other systems have no such
interface: there nothing is known.

Counted is payload, without headers and without what was sent twice: out what the engine wrote, even while it waits to
be sent (before Linux 4.19: what the other end has acknowledged, which comes late on a busy machine), in what arrived.
What an engine writes after the end of a request, or is answered then, belongs to none.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

SENT, RECEIVED = "rpc_sent_bytes_total", "rpc_received_bytes_total"
"""Names of the two counters."""

_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
_DONE, _ERROR = 3, 2
_INFO = 2
_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence, port of a netlink message."""
_REQUEST = struct.Struct("=BBBBI2sH8I3I")
"""Family, protocol, extensions, pad, states; local port (2 bytes), remote port, addresses, interface, cookie."""
_INODE_AT, _ATTRIBUTES_AT = 68, 72
_ATTRIBUTE = struct.Struct("=HH")
_BYTES = struct.Struct("=QQ")
_ARRIVED_AT, _UNSENT_AT, _SENT_AT = 120, 144, 200
"""In `struct tcp_info`: `tcpi_bytes_acked` and `tcpi_bytes_received`; `tcpi_notsent_bytes` (four bytes);
`tcpi_bytes_sent` and `tcpi_bytes_retrans`."""
_TIMEOUT_S = 1.0
_BLOCK = 65_536
_MAX_MESSAGES = 100_000
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def remote_bytes(pids: Iterable[int], addresses: Iterable[str]) -> dict[str, float] | None:
    """Payload bytes so far on the connections of processes `pids` to the ports of `addresses` (`HOST:PORT`).

    None where the system does not say, or where these processes have no such connection.
    """
    if not hasattr(socket, "AF_NETLINK"):
        return None
    own = set(_sockets(pids))
    found: list[tuple[int, int]] = []
    try:
        for port in {int(address.rpartition(":")[2]) for address in addresses}:
            found += [counted for inode, counted in _connections(port) if inode in own]
    except (OSError, struct.error):
        return None
    if not found:
        return None
    return {SENT: float(sum(sent for sent, _ in found)), RECEIVED: float(sum(got for _, got in found))}


def grown(before: dict[str, float] | None, after: dict[str, float] | None) -> dict[str, float]:
    """What was exchanged in between; empty where it is not known, as after a connection was made again."""
    if before is None or after is None or any(after[name] < before[name] for name in before):
        return {}
    return {name: after[name] - before[name] for name in before}


def _sockets(pids: Iterable[int]) -> Iterator[int]:
    """Inodes of the sockets that processes hold."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if held := _SOCKET.fullmatch(os.readlink(entry)):  # noqa: PTH115
                        yield int(held.group(1))


def _connections(port: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(inode, (bytes sent, bytes received)) of this machine's TCP connections to a port."""
    with socket.socket(getattr(socket, "AF_NETLINK"), socket.SOCK_DGRAM, _SOCK_DIAG) as ask:  # noqa: B009
        ask.settimeout(_TIMEOUT_S)
        # All states; the kernel leaves out what has another remote port.
        body = _REQUEST.pack(
            socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 0xFFF, b"", socket.htons(port), *(0,) * 11
        )
        ask.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
        for _ in range(_MAX_MESSAGES):
            block = ask.recv(_BLOCK)
            if not block:
                return
            for kind, message in _messages(block):
                if kind in (_DONE, _ERROR):
                    return
                if (counted := _counters(message)) is not None:
                    yield struct.unpack_from("=I", message, _INODE_AT)[0], counted


def _messages(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(block):
        length, kind, *_ = _HEADER.unpack_from(block, at)
        if length < _HEADER.size:
            return
        yield kind, block[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _counters(message: bytes) -> tuple[int, int] | None:
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            return None
        value = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(value) >= _ARRIVED_AT + _BYTES.size:
            acknowledged, received = _BYTES.unpack_from(value, _ARRIVED_AT)
            if len(value) < _SENT_AT + _BYTES.size:
                return acknowledged, received
            (unsent,) = struct.unpack_from("=I", value, _UNSENT_AT)
            sent, again = _BYTES.unpack_from(value, _SENT_AT)
            return sent - again + unsent, received
        at += (length + 3) & ~3
    return None
