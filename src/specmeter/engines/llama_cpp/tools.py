"""Finds llama.cpp's own programs on this machine, and starts `ggml-rpc-server` behind a relay.

They are looked for in this order: what the user names, beside the server that `SPECMETER_LLAMA_SERVER` names, the build
that was finished last, beside the first `llama-server` on `PATH`, `PATH`. So programs that are used together come from
one build. A build is a folder under `native/` in the cache. Its record is written when everything is built and removed
before anything is built again, so that the remains of an interrupted build are never taken for a program.

With the relay this machine plays the other machine: drafts cross a connection, in llama.cpp's own protocol, and wait
for the round trips and bytes of a network. Unlike on two machines, both ends share processor and memory. Server and
relay are processes of their own under `engines.guard`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from specmeter.cache import cache_dir, file_sha256
from specmeter.engines.llama_cpp import relay
from specmeter.engines.process import LOOPBACK, EngineProcess, clean_environment, free_port
from specmeter.errors import EngineStartError, SpecmeterError, UsageError
from specmeter.record import Network, Record
from specmeter.record.base import read_record, write_record

Program = Literal[
    "llama-server", "llama-quantize", "llama-perplexity", "llama-bench", "llama-batched-bench", "ggml-rpc-server"
]
PROGRAMS: tuple[Program, ...] = get_args(Program)
OTHER_NAMES: dict[Program, str] = {"ggml-rpc-server": "rpc-server"}
"""As older versions of llama.cpp call them."""

BINARY_VARIABLE = "SPECMETER_LLAMA_SERVER"
BUILD_COMMAND = "specmeter engines build"

_RECORD_NAME = "built.json"
_MAX_BYTES = 2**20


class BuildRecord(Record):
    """What `built.json` holds."""

    format: Literal[1] = 1
    source: Annotated[str, Field(max_length=4096)]
    """What it was built from: `llama-cpp-python 0.3.36`, or the path of the user's own sources."""
    version: Annotated[str, Field(max_length=400)]
    """As its llama-server prints it."""
    options: Annotated[tuple[str, ...], Field(max_length=1000)]
    """Of cmake, those that are always given included."""
    built_at: float
    """Seconds since the epoch."""
    folder: Annotated[str, Field(pattern=r"^build(/[A-Za-z0-9]+)*$")]
    """Where the programs lie, relative to the build."""


@dataclass(frozen=True)
class Build:
    """A finished build."""

    path: Path
    record: BuildRecord

    @property
    def programs(self) -> dict[Program, Path]:
        """Those that are there."""
        folder = self.path / self.record.folder
        return {name: found for name in PROGRAMS if (found := _in(folder, name)) is not None}


def builds_folder() -> Path:
    """Where builds lie; it may not exist yet."""
    return cache_dir() / "native"


def builds() -> list[Build]:
    """Finished builds, the last one first; records that cannot be read are passed over."""
    try:
        folders = sorted(path for path in builds_folder().iterdir() if (path / _RECORD_NAME).is_file())
    except (OSError, SpecmeterError):
        return []
    found = [build for folder in folders if (build := read_build(folder)) is not None]
    return sorted(found, key=lambda build: build.record.built_at, reverse=True)


def read_build(folder: Path) -> Build | None:
    """The finished build in a folder; None where there is none."""
    try:
        record = read_record(
            BuildRecord, folder / _RECORD_NAME, what="build", made_by=BUILD_COMMAND, max_bytes=_MAX_BYTES
        )
    except UsageError:
        return None
    return Build(folder, record)


def finish_build(folder: Path, record: BuildRecord) -> Build:
    """Say that a build is finished. Raises `UsageError` when the folder cannot be written to."""
    write_record(record, folder / _RECORD_NAME, what="build")
    return Build(folder, record)


def begin_build(folder: Path) -> None:
    """What is in the folder is about to change: it is finished no longer."""
    (folder / _RECORD_NAME).unlink(missing_ok=True)


def find_program(name: Program, *, beside: Path | None = None) -> Path | None:
    """The program, in the order above; `beside` is a server in use, whose own folder comes before all. None: nowhere.

    A `llama-server` that the environment names and that is not there is not replaced by another one.
    """
    if beside is not None and (found := _in(beside.parent, name)) is not None:
        return found
    if named := os.environ.get(BINARY_VARIABLE):
        server = executable(named)
        if name == "llama-server":
            return server
        if server is not None and (found := _in(server.parent, name)) is not None:
            return found
    for build in builds():
        if (found := build.programs.get(name)) is not None:
            return found
    on_path = shutil.which("llama-server")
    near = _in(Path(on_path).absolute().parent, name) if on_path else None
    return near or next((Path(found).absolute() for it in _names(name) if (found := shutil.which(it))), None)


def executable(named: str | os.PathLike[str]) -> Path | None:
    """An executable file by its path or its name on `PATH`; None where there is none."""
    found = shutil.which(os.path.expanduser(named))  # noqa: PTH111
    return Path(found).absolute() if found else None


def _in(folder: Path, name: Program) -> Path | None:
    return next((Path(found) for it in _names(name) if (found := shutil.which(it, path=str(folder)))), None)


def _names(name: Program) -> tuple[str, ...]:
    return (name, OTHER_NAMES[name]) if name in OTHER_NAMES else (name,)


# --- files and checksums of an engine --------------------------------------------------------------------------------

_SHARED = re.compile(r"\.(so(\.[\d.]+)?|dylib|dll|pyd)$")
_PROGRAM = re.compile(_SHARED.pattern + r"|\.py$")
_OURS = re.compile(r"^(lib)?(llama|ggml|mtmd|gguf)", re.IGNORECASE)
"""Names of llama.cpp's own libraries; the system's are not the engine's."""


def checksums(paths: list[Path]) -> dict[str, str]:
    """File name -> SHA-256, links followed and named once, in order of name."""
    files = {path.resolve() for path in paths}
    return {file.name: file_sha256(file) for file in sorted(files, key=lambda file: file.name)}


def wheel_libraries(package: Path) -> list[Path]:
    """Every shared object and Python file of an installed package, and what its wheel bundled beside it."""
    folders = [package, package.with_name(package.name + ".libs"), package / ".dylibs"]
    return [file for folder in folders if folder.is_dir() for file in folder.rglob("*") if _PROGRAM.search(file.name)]


def binary_libraries(binary: Path) -> list[Path]:
    """llama.cpp's shared objects that a native binary uses: beside it, in `../lib`, and what the loader resolves."""
    folders = {binary.resolve().parent, binary.resolve().parent.parent / "lib"}
    found = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    return [file for file in (*found, *_linked(binary)) if _SHARED.search(file.name) and _OURS.search(file.name)]


def _linked(binary: Path) -> list[Path]:
    command = {"linux": ["ldd"], "darwin": ["otool", "-L"]}.get(sys.platform)
    if command is None:
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listing = subprocess.run(
            [*command, os.fspath(binary)], capture_output=True, text=True, timeout=20, check=False, errors="replace"
        ).stdout
        paths = (Path(path) for path in re.findall(r"(?:=> |^\s)(/[^\s(]+)", listing, re.MULTILINE))
        return [path for path in paths if path.is_file()]
    return []


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
                f"no ggml-rpc-server next to {beside} or elsewhere, so another machine cannot be simulated",
                fix=f"build both with `{BUILD_COMMAND}`",
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
