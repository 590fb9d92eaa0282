"""Starting a llama.cpp server: a free port, a secret key, and proof that it is ours with the right model."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from specmeter.engines import Launch, SessionFacts
from specmeter.engines.http_client import LOOPBACK, LoopbackClient, json_object
from specmeter.engines.llama_cpp.log import LoadLog, parse_load
from specmeter.engines.llama_cpp.server import LlamaSession, quoted_log
from specmeter.engines.llama_cpp.traits import PRINTED_NAMES
from specmeter.engines.process import EngineProcess
from specmeter.errors import EngineProtocolError, EngineStartError

_PORT_ATTEMPTS = 5
_MAX_LOAD_LOG = 64 * 1024 * 1024
_LOG_PATIENCE_S = 1.0
_MOST_SLOTS = 1024


@dataclass(frozen=True)
class Command:
    """What to run for one attempt."""

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    """The same for the record, secrets masked."""
    env: Mapping[str, str]
    stdin: str = ""


def start_session(launch: Launch, command: Callable[[int, str], Command]) -> LlamaSession:
    """Start the server that `command(port, api_key)` describes and wait until it is ready.

    Tries another port when another program took the first one meanwhile. Raises `EngineStartError`.
    """
    for attempt in range(_PORT_ATTEMPTS):
        port = free_port()
        client = LoopbackClient(port, secrets.token_urlsafe(24))
        order = command(port, client.api_key)
        started = time.perf_counter()
        process = EngineProcess(order.argv, env=order.env, log_path=launch.log_path, stdin=order.stdin)
        try:
            props = _wait_until_ready(launch, process, client, started + launch.start_timeout_s)
            ready_ms = (time.perf_counter() - started) * 1e3
            return LlamaSession(launch, process, client, _facts(process, client, order.shown, props, ready_ms))
        except EngineStartError:
            process.close()
            if _is_free(port) or attempt == _PORT_ATTEMPTS - 1:
                raise
        except BaseException:
            process.close()
            raise
    raise AssertionError("unreachable")


def clean_environment(*, trace: bool) -> dict[str, str]:
    """This process's environment without what would configure llama.cpp behind the experiment's back."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    return env | {"LLAMA_TRACE": "1"} if trace else env


def default_threads() -> int:
    """Physical cores, as far as this process may use them."""
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(psutil.cpu_count(logical=False) or usable, usable))


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def died_while_starting(launch: Launch, code: int) -> EngineStartError:
    """The error for an engine that ended before it was ready."""
    return EngineStartError(
        f"the engine of arm {launch.arm.id} died while it was starting (exit code {code}){quoted_log(launch.log_path)}",
        fix=f"see the whole log in {launch.log_path}",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return True
    return False


def _wait_until_ready(
    launch: Launch, process: EngineProcess, client: LoopbackClient, deadline: float
) -> dict[str, Any]:
    """`/props` of our server with our model, once it answers. Raises `EngineStartError`."""
    arm = launch.arm.id
    while time.perf_counter() < deadline:
        if (code := process.exit_code()) is not None:
            raise died_while_starting(launch, code)
        try:
            if client.call("GET", "/health", timeout_s=5.0).status == 200:
                return _proven_props(launch, client)
        except (OSError, http.client.HTTPException):
            pass  # not listening yet, or gone: the next round tells
        except EngineProtocolError as error:
            raise EngineStartError(error.message, fix=error.fix) from None
        process.wait(0.02)
    raise EngineStartError(
        f"the engine of arm {arm} was not ready within {launch.start_timeout_s:g} s{quoted_log(launch.log_path)}",
        fix=f"raise engine.start_timeout_s if the model is large; otherwise see the whole log in {launch.log_path}",
    )


def _proven_props(launch: Launch, client: LoopbackClient) -> dict[str, Any]:
    if client.call("GET", "/props", with_key=False).status not in (401, 403):
        raise EngineStartError(
            f"what answers on port {client.port} does not ask for the key that was set: it is not the engine of arm "
            f"{launch.arm.id}",
            fix="try again; if it stays so, this llama-server ignores LLAMA_API_KEY and is too old",
        )
    answer = client.call("GET", "/props")
    if answer.status != 200:
        raise EngineStartError(
            f"what answers on port {client.port} refuses the key that was set (status {answer.status}): it is not the "
            f"engine of arm {launch.arm.id}",
            fix="try again; if it stays so, this llama-server ignores LLAMA_API_KEY and is too old",
        )
    props = json_object(answer.body, "/props")
    loaded = props.get("model_path")
    if not isinstance(loaded, str) or not _same_file(loaded, launch.target.path):
        raise EngineStartError(
            f"the engine of arm {launch.arm.id} has loaded {str(loaded)[:300]!r}, not {launch.target.path}",
            fix="check that the engine is an unmodified llama-server",
        )
    return props


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return one == other


def _facts(
    process: EngineProcess, client: LoopbackClient, shown: tuple[str, ...], props: dict[str, Any], ready_ms: float
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
        in_flight=slots if isinstance(slots, int) and 1 <= slots <= _MOST_SLOTS else 1,
    )


def _load_log(path: Path) -> LoadLog:
    """What the log says about loading, waited for a little: the server may answer before it has written that down."""
    deadline = time.perf_counter() + _LOG_PATIENCE_S
    while True:
        with path.open("rb") as log:
            load = parse_load(log.read(_MAX_LOAD_LOG).decode("utf-8", "replace"))
        if load.complete or time.perf_counter() > deadline:
            return load
        time.sleep(0.01)


def _speculating(client: LoopbackClient) -> bool | None:
    """What the slot says about activation; None for a server too old to say."""
    answer = client.call("GET", "/slots")
    try:
        slots: Any = json.loads(answer.body) if answer.status == 200 else None
        value: object = slots[0]["speculative"]
    except (ValueError, TypeError, LookupError):
        return None
    return value if isinstance(value, bool) else None


def _flat_parameters(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's own field names with the values in force, where one method alone is active."""
    parameters: dict[str, dict[str, Any]] = resolved["method_parameters"]
    if len(parameters) != 1:
        return {}
    (values,) = parameters.values()
    return {field: values[name] for field, names in PRINTED_NAMES.items() for name in names if name in values}
