"""This machine as the other machine: `ggml-rpc-server` behind a relay that makes a slow network of none.

Drafts really cross a connection, in llama.cpp's own protocol, and wait for the round trips and bytes that a network
would make them wait for. What is not as on two machines: both ends share processor and memory. Server and relay are
processes of their own under `engines.guard`, so that neither takes time from what measures, nor outlives it.
"""

from __future__ import annotations

import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from specmeter.engines.llama_cpp import relay
from specmeter.engines.llama_cpp.tools import BUILD_COMMAND, find_program
from specmeter.engines.process import LOOPBACK, EngineProcess, clean_environment, free_port
from specmeter.errors import EngineStartError
from specmeter.record import Network

_START_S = 20.0
_PORT = re.compile(rf"^{relay.LISTENING} (\d{{1,5}})$", re.MULTILINE)


class SimulatedRemote:
    """A running `ggml-rpc-server` behind a relay."""

    def __init__(self, network: Network, beside: Path, threads: int) -> None:
        """Start both and wait until they answer. `beside` is the llama-server in use, whose build the other end has to
        be of. Raises `EngineStartError`."""
        server = find_program("ggml-rpc-server", beside=beside)
        if server is None:
            raise EngineStartError(
                f"there is no ggml-rpc-server beside {beside} or elsewhere, so another machine cannot be simulated",
                fix=f"`{BUILD_COMMAND}` builds both",
            )
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specmeter-remote-")))
            port = free_port()
            command = (str(server), "-H", LOOPBACK, "-p", str(port), "-t", str(threads))
            far = EngineProcess(command, env=clean_environment(trace=False), log_path=folder / "rpc-server.txt")
            stack.callback(far.close)
            _wait(lambda: _answers(port), far, server.name)
            rate = 0.0 if network.mbit_per_s is None else network.mbit_per_s * 1e6 / 8
            order = (LOOPBACK, str(port), str(network.rtt_ms / 2e3), str(rate))
            between = EngineProcess(
                (sys.executable, "-I", "-S", relay.__file__, *order),
                env=clean_environment(trace=False),
                log_path=folder / "relay.txt",
            )
            stack.callback(between.close)
            _wait(lambda: _PORT.search(_text(between)), between, "the relay")
            found = _PORT.search(_text(between))
            assert found is not None
            self.address = f"{LOOPBACK}:{found[1]}"
            """Where a llama-server finds it."""
            self.pids = (*far.pids(), *between.pids())
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End both; safe to call twice."""
        self._stack.close()


def _answers(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
    except OSError:
        return False
    return True


def _wait(done: Callable[[], object], process: EngineProcess, name: str) -> None:
    deadline = time.monotonic() + _START_S
    while not done():
        if (code := process.exit_code()) is not None or time.monotonic() > deadline:
            said = "".join(f"\n  | {line[:300]}" for line in _text(process).splitlines()[-5:])
            how = "was not ready in time" if code is None else f"ended with exit code {code}"
            raise EngineStartError(f"{name} {how}{said}", fix="run it by hand to see why")
        process.wait(0.01)


def _text(process: EngineProcess) -> str:
    with process.log_path.open("rb") as log:
        return log.read(100_000).decode("utf-8", "replace")
