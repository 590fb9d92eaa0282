"""This machine as the other machine: the relay as a process, and a real draft behind one."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from llama_fixtures import NO_NATIVE, arm, gone_within, greedy, launch, native, prompt

from specmeter.engines.llama_cpp import relay
from specmeter.engines.llama_cpp.engine import NativeEngine
from specmeter.engines.llama_cpp.tools import SimulatedRemote
from specmeter.engines.process import EngineProcess
from specmeter.engines.traffic import RECEIVED
from specmeter.errors import EngineStartError
from specmeter.record import EngineSettings, Network, network_of

RTT_MS = 20.0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("relay:0.5ms@1000Mbit", Network(0.5, 1000.0)),
        ("relay:2ms", Network(2.0, None)),
        ("relay:0ms@0.5Mbit", Network(0.0, 0.5)),
        ("relay:50052", None),
        ("10.0.0.2:50052", None),
    ],
)
def test_addresses(address: str, network: Network | None) -> None:
    assert network_of(address) == network
    assert EngineSettings(rpc=(address,)).rpc == (address,)


@pytest.mark.parametrize("address", ["relay:2s", "relay:2ms@0Mbit", "relay:-1ms", "relay:2ms@1Gbit", "elsewhere"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match=r"relay:0\.5ms@1000Mbit"):
        EngineSettings(rpc=(address,))


def test_the_relay_as_a_process_of_its_own(tmp_path: Path) -> None:
    """It says its port, delays both ways, and ends with its parent."""
    with socket.create_server(("127.0.0.1", 0)) as far:
        threading.Thread(target=_echo, args=(far,), daemon=True).start()
        order = ("127.0.0.1", str(far.getsockname()[1]), str(RTT_MS / 2e3), "0")
        command = (sys.executable, "-I", "-S", relay.__file__, *order)
        process = EngineProcess(command, env={}, log_path=tmp_path / "relay.txt")
        try:
            deadline = time.monotonic() + 60
            while relay.LISTENING not in (said := process.log_path.read_text()) and time.monotonic() < deadline:
                time.sleep(0.01)
            with socket.create_connection(("127.0.0.1", int(said.split()[-1])), 5) as near:
                near.settimeout(60)
                started = time.perf_counter()
                near.sendall(b"there and back")
                assert near.recv(100) == b"there and back"
                assert (time.perf_counter() - started) * 1e3 >= RTT_MS
            pids = process.pids()
        finally:
            process.close()
        assert gone_within(pids, 60)


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while block := connection.recv(1000):
            connection.sendall(block)


@pytest.mark.alone
def test_a_slow_line_makes_the_sender_wait() -> None:
    """What does not fit the line stays with the sender, and all of it arrives in the end."""
    size = 16 * 2**20
    message, got = relay._COMMAND.pack(6, size) + bytes(size), bytearray()
    with socket.create_server(("127.0.0.1", 0)) as far, relay.relayed(far.getsockname(), bytes_per_s=8e6) as slow:
        with socket.create_connection(("127.0.0.1", slow.port), 5) as near:
            near.settimeout(None)
            far_end, _ = far.accept()
            sender = threading.Thread(target=near.sendall, args=(message,), daemon=True)
            began = time.perf_counter()
            sender.start()
            sender.join(0.4)
            still, sent, took = sender.is_alive(), slow.sent, time.perf_counter() - began
            assert still or took > 1  # the line alone needs two seconds
            assert sent < 4 * 2**20 + 8e6 * (took + 0.4) + 2**20
            slow.bytes_per_s = None
            reader = threading.Thread(target=_take_all, args=(far_end, got), daemon=True)
            reader.start()
            sender.join(60)
            near.shutdown(socket.SHUT_WR)
            reader.join(60)
        assert got == message
        deadline = time.monotonic() + 60
        while slow._open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not slow._open  # of a connection that has ended nothing is kept
        assert len(slow._threads) == 1


def _take_all(connection: socket.socket, got: bytearray) -> None:
    with connection:
        while block := connection.recv(2**20):
            got += block


def test_without_the_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.engines.llama_cpp.tools.find_program", lambda *_, **__: None)
    with pytest.raises(EngineStartError, match="no ggml-rpc-server next to") as error:
        SimulatedRemote(Network(1.0, None), tmp_path / "llama-server", 1)
    assert "specmeter engines build" in error.value.fix


@pytest.mark.skipif(native("ggml-rpc-server") is None, reason=NO_NATIVE)
def test_a_draft_behind_a_relay(tmp_path: Path) -> None:
    """It crosses the relay for every token, and everything that was started ends with the session."""
    there = {"rpc": (f"relay:{RTT_MS:g}ms",), "draft_devices": ("RPC0",)}
    drafted = arm(methods=("draft-simple",), draft="d", gamma=4, engine=there)
    with NativeEngine().start(launch(tmp_path, drafted, draft="draft-small")) as session:
        reply = session.generate(prompt(), greedy(12))
        pids = session.facts.pids
    (drafting,) = reply.drafting
    assert (reply.timings.draft_n or 0) > 0
    assert drafting.generate_ms >= (reply.timings.draft_n or 0) * RTT_MS
    assert any(use.device.startswith("RPC0[127.0.0.1:") for use in session.facts.draft_devices)
    if sys.platform == "linux":
        assert reply.counters[RECEIVED] >= ((reply.timings.draft_n or 0) - 1) * 4 * 2048
    assert len(pids) >= 3, "the server, the other end, the relay"
    assert gone_within(pids, 60)
