"""Another machine, as far as a network can tell: `ggml-rpc-server` in a network namespace of its own.

Linux and root only. A pair of virtual network devices joins the namespace to this one, and its addresses are reachable
from nowhere else. Everything (server, namespace, devices) ends with one process, which ends when the test does, even
if the test is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from engines.llama_fixtures import NO_NATIVE, native
from specmeter.engines.process import EngineProcess

PORT = 50_052
_START_S = 10.0
_INSIDE = """\
set -e
ip link add far type veth peer name {near} netns {pid}
ip addr add {far_address}/30 dev far
ip link set far up
ip link set lo up
exec "{server}" -H {far_address} -p {port} -t {threads}
"""


def rpc_server() -> Path | None:
    """`ggml-rpc-server` of the native llama-server that tests use."""
    return native("ggml-rpc-server")


def missing() -> str | None:
    """Why there can be no second machine here; None where there can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if rpc_server() is None:
        return NO_NATIVE
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "sh"))):
        return "a network namespace needs root, ip and unshare"
    alone = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if alone.returncode == 0 else "this system makes no network namespace"


@contextlib.contextmanager
def far_machine(folder: Path, *, threads: int = 1) -> Iterator[tuple[str, int]]:
    """Address of a running `ggml-rpc-server` on the other machine."""
    pid = os.getpid()
    near = f"sm{pid}"
    subnet = f"10.213.{pid % 256}"
    block = 4 * (pid // 256 % 64)
    near_address, far_address = f"{subnet}.{block + 1}", f"{subnet}.{block + 2}"
    script = _INSIDE.format(
        near=near, pid=pid, far_address=far_address, server=rpc_server(), port=PORT, threads=threads
    )
    log = folder / "rpc-server.log"
    process = EngineProcess(("unshare", "--net", "sh", "-c", script), env=dict(os.environ), log_path=log)
    try:
        deadline = time.monotonic() + _START_S
        _wait(lambda: Path(f"/sys/class/net/{near}").exists(), process, deadline)
        for command in (("addr", "add", f"{near_address}/30", "dev", near), ("link", "set", near, "up")):
            subprocess.run(["ip", *command], check=True, capture_output=True)
        _wait(lambda: _answers(far_address), process, deadline)
        yield far_address, PORT
    finally:
        process.close()


def _answers(host: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((host, PORT), 1).close()
        return True
    return False


def _wait(done: object, process: EngineProcess, deadline: float) -> None:
    while not done():  # pyright: ignore[reportCallIssue]
        if process.exit_code() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the other machine did not start: {process.log_path.read_text()[-500:]}")
        time.sleep(0.02)
