"""Any `llama-server` binary as an engine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from specmeter.engines import Launch
from specmeter.engines.http_client import LOOPBACK
from specmeter.engines.identity import binary_libraries, checksums, sha256_of
from specmeter.engines.llama_cpp.methods import remote_machines, server_options
from specmeter.engines.llama_cpp.options import known_flags, to_flags
from specmeter.engines.llama_cpp.rpc_loopback import SimulatedRemote
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.engines.llama_cpp.start import Command, clean_environment, default_threads, start_session
from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, BUILD_COMMAND, executable, find_program
from specmeter.engines.llama_cpp.traits import NATIVE, any_remote, is_gpu
from specmeter.engines.registry import Device
from specmeter.errors import EngineStartError
from specmeter.record import EngineIdentity, network_of

_PROBE_TIMEOUT_S = 60.0
_MEET_TIMEOUT_S = 5.0
"""How long a remote machine may take to accept a connection."""
_ESSENTIAL = frozenset({"--model", "--port", "--host", "--metrics", "--ctx-size"})


class NativeEngine:
    """Starts sessions on a native server.

    The binary is the one given, or else the one that `SPECMETER_LLAMA_SERVER` names, or else what `specmeter engines
    build` made last, or else `llama-server` on `PATH`. Raises `EngineStartError` when there is none.
    """

    def __init__(self, binary: str | Path | None = None) -> None:
        found = executable(binary) if binary is not None else find_program("llama-server")
        if found is None:
            named = str(binary) if binary is not None else os.environ.get(BINARY_VARIABLE)
            raise EngineStartError(
                f"{named}: not an executable file" if named else "llama-server is neither built nor on PATH",
                fix=f"build one (`{BUILD_COMMAND}`), give its path, set {BINARY_VARIABLE}, or use the embedded engine",
            )
        self.binary = found
        self._versions: dict[str, str] = {}
        """SHA-256 of the binary -> what it prints for `--version`."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte. Raises `EngineStartError` when it cannot be run."""
        sha256 = sha256_of(self.binary)
        if sha256 not in self._versions:  # each session is identified, and the same bytes say the same
            self._versions[sha256] = self._probe("--version")
        lines = [line.strip() for line in self._versions[sha256].splitlines()]
        version = next((line for line in lines if line.startswith("version:")), "")
        built = next((line for line in lines if line.startswith("built with")), "")
        if not version:
            raise self._no_server(lines[0] if lines else "it prints no version")
        return EngineIdentity(
            kind="native",
            version=version.removeprefix("version:").strip()[:200],
            build=f"{version} {built}".strip()[:400],
            binary=str(self.binary),
            binary_sha256=sha256,
            libraries=checksums(binary_libraries(self.binary)),
            traits=NATIVE.traits,
        )

    def start(self, launch: Launch) -> LlamaSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`, or `ExperimentError` for an arm that
        llama.cpp cannot honour."""
        settings = launch.arm.engine
        with ExitStack() as stack:
            remote, pids = self._opened(remote_machines(launch), stack, settings.threads or default_threads())
            if remote:
                settings = settings.model_copy(update={"rpc": remote})
                launch = replace(launch, arm=launch.arm.model_copy(update={"engine": settings}))
                self._meet(remote)
            options = server_options(launch, default_threads())
            if remote:
                # Left to itself, llama.cpp would spread the target over the remote devices too.
                here = [device.name for device in self.devices if is_gpu(device.name)]
                options.setdefault("devices", here or ["none"])
            flags = to_flags(options, self._flags)

            def command(port: int, api_key: str) -> Command:
                argv = (str(self.binary), *flags, "--host", LOOPBACK, "--port", str(port), *settings.extra_flags)
                # Through the environment, because command lines are readable by everybody.
                env = clean_environment(trace=settings.trace_steps) | {"LLAMA_API_KEY": api_key}
                return Command(argv=argv, shown=argv, env=env)

            session = start_session(launch, command)
            session.take_along(stack.pop_all(), pids)
        return session

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """What it lists, which leaves the processor out; nothing where it is too old to say."""
        return parse_devices(self._probe("--list-devices"))

    @cached_property
    def _flags(self) -> frozenset[str]:
        flags = known_flags(self._probe("--help"))
        if missing := _ESSENTIAL - flags:
            raise self._no_server(f"it has no option {sorted(missing)[0]}")
        return flags

    def meet(self, machines: tuple[str, ...]) -> None:
        """Raise `EngineStartError` when the binary was built without RPC, or a remote machine does not answer or offers
        no device; one behind a relay is started for it.

        llama.cpp would abort in its own words, and older builds would go on without the machine.
        """
        with ExitStack() as stack:
            self._meet(self._opened(machines, stack, default_threads())[0])

    def _opened(
        self, machines: tuple[str, ...], stack: ExitStack, threads: int
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """(addresses to connect to, processes that play other machines); `stack` ends these."""
        found: list[str] = []
        pids: list[int] = []
        for machine in machines:
            if (network := network_of(machine)) is None:
                found.append(machine)
                continue
            remote = SimulatedRemote(network, self.binary, threads)
            stack.callback(remote.close)
            found.append(remote.address)
            pids += remote.pids
        return tuple(found), tuple(pids)

    def _meet(self, machines: tuple[str, ...]) -> None:
        if "--rpc" not in self._flags:
            raise EngineStartError(
                f"{self.binary} was built without RPC, so it cannot use another machine",
                fix=f"build one with `{BUILD_COMMAND}`, or your own with -DGGML_RPC=ON",
            )
        for address in machines:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), _MEET_TIMEOUT_S).close()
            except OSError as error:
                raise EngineStartError(
                    f"no ggml-rpc-server answers at {address} ({error.strerror or error})",
                    fix="start it there (ggml-rpc-server -H ADDRESS -p PORT), check its firewall, or fix the address",
                ) from None
            offered = self._probe("--rpc", address, "--list-devices")
            if not any_remote(device.name for device in parse_devices(offered)):
                raise EngineStartError(
                    f"the server at {address} offers no device, or is not a ggml-rpc-server of this version",
                    fix="start ggml-rpc-server of the same build there, and check which devices it prints",
                )

    def _probe(self, *flags: str) -> str:
        """What the binary prints for `flags`, 4 MB at most."""
        try:
            done = subprocess.run(
                [self.binary, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
                env=clean_environment(trace=False),
            )
        except subprocess.TimeoutExpired:
            raise self._no_server(f"it does not answer {flags[-1]} within {_PROBE_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise self._no_server(error.strerror or str(error)) from None
        text = done.stdout[:4_000_000].decode("utf-8", "replace")
        if found := re.search(r"error while loading shared libraries: .*|Library not loaded: .*", text):
            raise self._no_server(found.group()[:200])
        return text

    def _no_server(self, why: str) -> EngineStartError:
        return EngineStartError(
            f"{self.binary} is not a usable llama-server: {why[:200]}",
            fix=f"give the path of a llama-server binary, set {BINARY_VARIABLE}, or use the embedded engine",
        )


def parse_devices(text: str) -> tuple[Device, ...]:
    """Devices from `llama-server --list-devices`."""
    _, _, listed = text.partition("Available devices:")
    entry = r"^\s+(\w+(?:\[[^\]]*\])?): (.* \(\d+ MiB, \d+ MiB free\))\s*$"
    return tuple(Device(name, description) for name, description in re.findall(entry, listed, re.MULTILINE))
