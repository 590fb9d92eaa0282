"""The two engines with llama.cpp's server: from the xllamacpp wheel (embedded), and any `llama-server` binary (native).

Both are processes of their own, started on a free port with a secret key. Before a session begins, each has to prove
that it is ours and has loaded the right model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from specmeter.cache import file_sha256
from specmeter.engines import Launch, SessionFacts
from specmeter.engines.http_client import HttpClient, json_object
from specmeter.engines.llama_cpp import child
from specmeter.engines.llama_cpp.log import LoadLog, parse_load
from specmeter.engines.llama_cpp.options import known_flags, to_fields, to_flags
from specmeter.engines.llama_cpp.server import LlamaSession, died_while_starting, quoted_log
from specmeter.engines.llama_cpp.spec import (
    EMBEDDED,
    NATIVE,
    PRINTED_NAMES,
    any_remote,
    is_gpu,
    remote_machines,
    server_options,
)
from specmeter.engines.llama_cpp.tools import (
    BINARY_VARIABLE,
    BUILD_COMMAND,
    SimulatedRemote,
    binary_libraries,
    checksums,
    executable,
    find_program,
    wheel_libraries,
)
from specmeter.engines.process import LOOPBACK, EngineProcess, clean_environment, default_threads, on_free_port
from specmeter.engines.registry import Device, check_arm
from specmeter.errors import EngineProtocolError, EngineStartError
from specmeter.extensions import REINSTALL
from specmeter.record import SAMPLING, EngineIdentity, network_of

_PORT_ATTEMPTS = 5
_MAX_LOAD_LOG = 64 * 1024 * 1024
_LOG_PATIENCE_S = 1.0
_MAX_SLOTS = 1024


@dataclass(frozen=True)
class ServerCommand:
    """What to run for one attempt."""

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    """The same for the record, secrets masked."""
    env: Mapping[str, str]
    stdin: str = ""


def start_session(launch: Launch, command: Callable[[int, str], ServerCommand]) -> LlamaSession:
    """Start the server that `command(port, api_key)` describes and wait until it is ready.

    Tries another port when another program took the first one meanwhile. Raises `EngineStartError`.
    """

    def on(port: int) -> LlamaSession:
        client = HttpClient(port, secrets.token_urlsafe(24))
        order = command(port, client.api_key)
        started = time.perf_counter()
        process = EngineProcess(order.argv, env=order.env, log_path=launch.log_path, stdin=order.stdin)
        try:
            props = _wait_until_ready(launch, process, client, started + launch.start_timeout_s)
            ready_ms = (time.perf_counter() - started) * 1e3
            return LlamaSession(launch, process, client, _facts(process, client, order.shown, props, ready_ms))
        except BaseException:
            process.close()
            raise

    return on_free_port(on, _PORT_ATTEMPTS)


def _wait_until_ready(launch: Launch, process: EngineProcess, client: HttpClient, deadline: float) -> dict[str, Any]:
    """`/props` of our server with our model, once it answers. Raises `EngineStartError`."""
    arm = launch.arm.id
    while time.perf_counter() < deadline:
        if (code := process.exit_code()) is not None:
            raise died_while_starting(launch, code)
        try:
            if client.call("GET", "/health", timeout_s=5.0).status == 200:
                return _proven_props(launch, client)
        except OSError:
            pass  # not listening yet, or gone: the next round tells
        except EngineProtocolError as error:
            raise EngineStartError(error.message, fix=error.fix) from None
        process.wait(0.02)
    raise EngineStartError(
        f"the engine of arm {arm} was not ready within {launch.start_timeout_s:g} s{quoted_log(launch.log_path)}",
        fix=f"raise engine.start_timeout_s if the model is large; otherwise read the full log in {launch.log_path}",
    )


def _proven_props(launch: Launch, client: HttpClient) -> dict[str, Any]:
    if client.call("GET", "/props", with_key=False).status not in (401, 403):
        raise EngineStartError(
            f"the server on port {client.port} does not require our key, so it is not the engine of arm "
            f"{launch.arm.id}",
            fix="try again; if it happens again, use a newer llama-server (this one ignores LLAMA_API_KEY)",
        )
    answer = client.call("GET", "/props")
    if answer.status != 200:
        raise EngineStartError(
            f"the server on port {client.port} rejects our key (status {answer.status}), so it is not the engine of "
            f"arm {launch.arm.id}",
            fix="try again; if it happens again, use a newer llama-server (this one ignores LLAMA_API_KEY)",
        )
    props = json_object(answer.body, "/props")
    loaded = props.get("model_path")
    if not isinstance(loaded, str) or not _same_file(loaded, launch.target.path):
        raise EngineStartError(
            f"the engine of arm {launch.arm.id} has loaded {str(loaded)[:300]!r}, not {launch.target.path}",
            fix="use an unmodified llama-server",
        )
    return props


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return one == other


def _facts(
    process: EngineProcess, client: HttpClient, shown: tuple[str, ...], props: dict[str, Any], ready_ms: float
) -> SessionFacts:
    speculating = _speculating(client)
    load = _load_log(process.log_path)
    settings: Any = props.get("default_generation_settings")
    slots: Any = props.get("total_slots")
    resolved: dict[str, Any] = load.resolved | {
        "methods": sorted(load.resolved["method_parameters"]) if speculating is not False else [],
        "total_slots": slots,
        "slot_context": cast("dict[str, Any]", settings).get("n_ctx") if isinstance(settings, dict) else None,
        "build": load.build or props.get("build_info"),
        "system_info": load.system_info,
        "chat_template_sha256": hashlib.sha256(str(props.get("chat_template", "")).encode()).hexdigest(),
        "warnings": list(load.warnings),
        "sampling": sampling_of(props),
    }
    return SessionFacts(
        argv=shown,
        ready_ms=ready_ms,
        resolved=resolved | _flat_parameters(resolved),
        speculating=speculating,
        devices=load.devices,
        draft_devices=load.draft_devices,
        layers_offloaded=load.layers_offloaded,
        draft_layers_offloaded=load.draft_layers_offloaded,
        pids=process.pids(),
        in_flight=slots if isinstance(slots, int) and 1 <= slots <= _MAX_SLOTS else 1,
    )


def sampling_of(props: Mapping[str, Any]) -> dict[str, float]:
    """How a server samples where a request says nothing, by `/props`: its defaults, its flags, or what the model file
    asks for."""
    settings: Any = props.get("default_generation_settings")
    said: Any = cast("dict[str, Any]", settings).get("params") if isinstance(settings, dict) else None
    values = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    numbers = {name: value for name in SAMPLING if isinstance(value := values.get(name), int | float)}
    return {name: round(value, 6) for name, value in numbers.items()}


def _load_log(path: Path) -> LoadLog:
    """What the log says about loading, waited for a little: the server may answer before it has written that down."""
    deadline = time.perf_counter() + _LOG_PATIENCE_S
    while True:
        with path.open("rb") as log:
            load = parse_load(log.read(_MAX_LOAD_LOG).decode("utf-8", "replace"))
        if load.complete or time.perf_counter() > deadline:
            return load
        time.sleep(0.01)


def _speculating(client: HttpClient) -> bool | None:
    """What the slot says about activation; None for a server too old to say."""
    answer = client.call("GET", "/slots")
    try:
        slots: Any = json.loads(answer.body) if answer.status == 200 else None
        value: object = slots[0]["speculative"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return value if isinstance(value, bool) else None


def _flat_parameters(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's own field names with the values in force, where one method alone is active."""
    parameters: dict[str, dict[str, Any]] = resolved["method_parameters"]
    if len(parameters) != 1:
        return {}
    (values,) = parameters.values()
    return {field: values[name] for field, names in PRINTED_NAMES.items() for name in names if name in values}


# --- the embedded engine ---------------------------------------------------------------------------------------------

_CHILD = (sys.executable, "-P", child.__file__)
"""By its path: as a module of this package it would first load all that the package does, six times what it needs."""


class EmbeddedEngine:
    """Starts sessions on the embedded server, the default: with the installed wheel, or with the one that was installed
    into a folder of its own (`pip install --target`). Raises `EngineStartError` when there is none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._fix = folder, REINSTALL
        if folder is None:
            spec = importlib.util.find_spec("xllamacpp")
            if spec is None or spec.origin is None:
                raise EngineStartError("the embedded engine (package xllamacpp) is not installed", fix=REINSTALL)
            self._package = Path(spec.origin).parent
            return
        self._package = folder.absolute() / "xllamacpp"
        quoted = shlex.quote(str(folder))
        self._fix = f"install it there: `pip install --upgrade --target {quoted} --no-deps xllamacpp==VERSION`"
        if not self._package.is_dir():
            raise EngineStartError(f"{folder}: no xllamacpp wheel is installed in this folder", fix=self._fix)

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte. Raises `EngineStartError` when the wheel cannot be loaded."""
        libraries = wheel_libraries(self._package)
        extension = next((file for file in libraries if file.stem.startswith("xllamacpp")), None)
        if extension is None:
            raise EngineStartError(f"{self._package}: xllamacpp's extension module is missing", fix=self._fix)
        about = self._about
        return EngineIdentity(
            kind="embedded",
            version=f"xllamacpp {about['version']}",
            build=about["build"],
            binary=str(extension),
            binary_sha256=file_sha256(extension),
            libraries=checksums(libraries),
            system_info=about["system_info"],
            traits=EMBEDDED.traits,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every device the wheel can compute on."""
        return tuple(Device(device["name"], device["description"]) for device in self._about["devices"])

    def start(self, launch: Launch) -> LlamaSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`, or `ExperimentError` for an arm that
        the embedded server cannot honour."""
        check_arm("embedded", launch.arm, has_draft=launch.draft is not None)
        fields = to_fields(server_options(launch, default_threads()))

        def command(port: int, api_key: str) -> ServerCommand:
            private = {"hostnames": [LOOPBACK], "port": port}
            shown = json.dumps(fields | private | {"api_keys": ["***"]})
            return ServerCommand(
                argv=_CHILD,
                shown=(*_CHILD, shown),
                env=self._environment(trace=launch.arm.engine.trace_steps),
                stdin=json.dumps(fields | private | {"api_keys": [api_key]}),
            )

        return start_session(launch, command)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    @cached_property
    def _about(self) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [*_CHILD, "--identify"],
                capture_output=True,
                timeout=120,
                check=True,
                env=self._environment(trace=False),
            )
            return json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            stderr = getattr(error, "stderr", None) or b""
            code = getattr(error, "returncode", 0)
            told = (
                f"its library ended the program with signal {-code}; it may be incomplete" if code < 0 else str(error)
            )
            last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [told]
            where = "" if self._folder is None else f" from {self._folder}"
            raise EngineStartError(
                f"the embedded engine cannot be loaded{where}: {last[0][:300]}", fix=self._fix
            ) from None

    def _environment(self, *, trace: bool) -> dict[str, str]:
        """A wheel in a folder of its own comes before the installed one."""
        env = clean_environment(trace=trace)
        return env if self._folder is None else env | {"PYTHONPATH": str(self._package.parent)}


# --- a native server -------------------------------------------------------------------------------------------------

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
                f"{named}: not an executable file" if named else "no llama-server has been built, and none is on PATH",
                fix=f"build one (`{BUILD_COMMAND}`), give its path, set {BINARY_VARIABLE}, or use the embedded engine",
            )
        self.binary = found
        self._versions: dict[str, str] = {}
        """SHA-256 of the binary -> what it prints for `--version`."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte. Raises `EngineStartError` when it cannot be run."""
        sha256 = file_sha256(self.binary)
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
        check_arm("native", launch.arm, has_draft=launch.draft is not None)
        settings = launch.arm.engine
        with ExitStack() as stack:
            remote, pids = self._opened(remote_machines(launch), stack, settings.threads or default_threads())
            if remote:
                settings = settings.model_copy(update={"rpc": remote})
                launch = replace(launch, arm=launch.arm.model_copy(update={"engine": settings}))
                self._check_machines(remote)
            options = server_options(launch, default_threads())
            if remote:
                # Left to itself, llama.cpp would spread the target over the remote devices too.
                here = [device.name for device in self.devices if is_gpu(device.name)]
                options.setdefault("devices", here or ["none"])
            flags = to_flags(options, self._flags)

            def command(port: int, api_key: str) -> ServerCommand:
                argv = (str(self.binary), *flags, "--host", LOOPBACK, "--port", str(port), *settings.extra_flags)
                # Through the environment, because command lines are readable by everybody.
                env = clean_environment(trace=settings.trace_steps) | {"LLAMA_API_KEY": api_key}
                return ServerCommand(argv=argv, shown=argv, env=env)

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
            raise self._no_server(f"it lacks the option {sorted(missing)[0]}")
        return flags

    def check_machines(self, machines: tuple[str, ...]) -> None:
        """Raise `EngineStartError` when the binary was built without RPC, or a remote machine does not answer or offers
        no device; one behind a relay is started for it.

        llama.cpp would abort in its own words, and older builds would continue without the machine.
        """
        with ExitStack() as stack:
            self._check_machines(self._opened(machines, stack, default_threads())[0])

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

    def _check_machines(self, machines: tuple[str, ...]) -> None:
        if "--rpc" not in self._flags:
            raise EngineStartError(
                f"{self.binary} was built without RPC, so it cannot use other machines",
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
                    fix="start the ggml-rpc-server of the same build there, and check the devices it lists",
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
