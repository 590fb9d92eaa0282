"""Starts the server that a line to paste says, and asks it something."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from specmeter.engines.llama_cpp import child
from specmeter.engines.llama_cpp.options import OPTIONS, to_fields
from specmeter.engines.llama_cpp.spec import PROGRAM, SHORT
from specmeter.engines.process import free_port

TEXT = "The people of the valley built a bridge. The people of the valley built"
TOKENS = 24


def timings_of(line: str, folder: Path, *, native: Path | None = None) -> dict[str, Any]:
    """`timings` of a reply from the server that the line starts, taken through a shell's own reading of it; a port is
    all that is added. Without a native server it is the embedded one, told the same."""
    program, *rest = shlex.split(line)
    assert program == PROGRAM
    port = free_port()
    if native is not None:
        order, stdin = [str(native), *rest, "--host", "127.0.0.1", "--port", str(port)], ""
    else:
        order = [sys.executable, "-P", str(child.__file__)]
        stdin = json.dumps(_fields(rest) | {"hostnames": ["127.0.0.1"], "port": port})
    log = folder / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(order, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)
    try:
        assert server.stdin is not None
        server.stdin.write(stdin)
        server.stdin.close()
        return _asked(port, server, log)["timings"]
    finally:
        server.kill()
        server.wait()


def _fields(command: list[str]) -> dict[str, Any]:
    """What the embedded server, which has no command line, is told by one."""
    flags = {flag: name for name, option in OPTIONS.items() for flag in option.flags[:1]}
    flags |= {short: flags[long] for long, short in SHORT.items() if long in flags}
    named = {flags[flag]: value for flag, value in zip(command[::2], command[1::2], strict=True)}
    return to_fields(
        {
            name: value.split(",") if name == "methods" else int(value) if value.isdigit() else value
            for name, value in named.items()
        }
    )


def _asked(port: int, server: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """The reply of the server to a request, once it is up."""
    data = {"prompt": TEXT, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True}
    query = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps(data).encode(),
        {"Content-Type": "application/json"},
    )
    until = time.monotonic() + 60
    while True:
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        try:
            with urllib.request.urlopen(query, timeout=60) as reply:
                return json.load(reply)
        except OSError:  # not listening yet, or still loading
            time.sleep(0.1)
