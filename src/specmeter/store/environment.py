"""BENCHMARK_ENV.md: what a reader needs to know about the machine, the engine and the models behind a run.

Model names, build lines and command lines come from files and processes that anyone may have written, so everything
is escaped; keys and tokens are masked, and the home folder is written `~`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from specmeter.record import DeviceUse, EngineIdentity, Gpu, Host, ModelIdentity, PowerMeter, Session
from specmeter.text import markdown_code, markdown_escaped, markdown_fence, size, without_controls

if TYPE_CHECKING:
    from specmeter.store import RunReader

_Clean = Callable[[str], str]
_MASK = "***"
_LONGEST_VALUE = 300
_SECRET_NAME = r"(?:api[-_]?keys?|secret|passw(?:or)?d|(?:hf|access|auth|bearer)[-_]?token|-hft)"
_SECRET_FLAG = re.compile(rf"-{{0,2}}(?:[\w-]+[-_.])?{_SECRET_NAME}", re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"({_SECRET_NAME}[\"']?\s*[:=]\s*[\[\"']*)[^\s\"',}}\]]+", re.IGNORECASE)
_SECRET_SHAPES = re.compile(r"\bhf_\w{16,}|\bsk-[\w-]{16,}|\bgh[pousr]_\w{16,}|(?<=://)[^/\s@]+(?=@)|(?<=Bearer )\S+")


def render_environment(
    host: Host,
    engines: Sequence[EngineIdentity],
    models: Sequence[ModelIdentity],
    experiment_name: str,
    argvs: Mapping[str, Sequence[str]],
    started_at: float,
    finished_at: float | None,
    state: str,
    *,
    sessions: Sequence[Session] = (),
    home: str | None = None,
) -> str:
    """The text of BENCHMARK_ENV.md (Markdown, ends with a newline).

    `argvs` maps arm ids to the command lines that were started. Times are seconds since the epoch; `finished_at` is
    None while the run continues. With `sessions`, placement on devices and resolved values are told too. `home` is the
    folder that is written `~`: by default, the reader's own.
    """
    clean = cache(partial(private, home=home))  # most values are the same in all sessions
    took = None if finished_at is None else str(timedelta(seconds=round(finished_at - started_at)))
    parts = [
        f"# Benchmark environment: {markdown_escaped(experiment_name)}",
        _facts(
            {
                "state": state,
                "started": _time(started_at),
                "finished": "not yet" if finished_at is None else f"{_time(finished_at)} (after {took})",
                "specmeter": host.specmeter,
                "Python": host.python,
            },
            clean,
        ),
        "## Machine",
        _facts(_machine(host), clean),
        *(["## GPUs", _gpus(host.gpus)] if host.gpus else []),
        "## Engine",
        *([_facts(_engine(engine), clean) for engine in engines] or ["None was started."]),
        "## Models",
        _models(models, clean),
        "## Command lines",
        *(
            [f"{markdown_code(arm_id)}\n\n{_block(_masked(argv, clean))}" for arm_id, argv in argvs.items()]
            or ["None was started."]
        ),
    ]
    placements = list(_placements(sessions))
    if placements:
        parts += ["## Placement", _table(("arm", "model", "layers", "device", "weights", "KV", "compute"), placements)]
    resolved = list(_resolved(sessions, clean))
    if resolved:
        parts += [
            "## Resolved values",
            "Read back from the engine: what was really in force.",
            _table(("value of", "is", "in"), resolved),
        ]
    return "\n\n".join(parts) + "\n"


def environment_of(run: RunReader, *, home: str | None = None) -> str:
    """The text of BENCHMARK_ENV.md for what a run has stored. Raises `StoreError`."""
    state, sessions = run.state(), tuple(run.sessions())
    return render_environment(
        host=run.hosts()[-1],
        engines=tuple({session.engine.model_dump_json(): session.engine for session in sessions}.values()),
        models=run.models(),
        experiment_name=str(json.loads(run.experiment_json)["name"]),
        argvs={session.arm_id: session.argv for session in sessions},
        started_at=state.started_at or 0.0,
        finished_at=state.finished_at,
        state=state.state,
        sessions=sessions,
        home=home,
    )


def _machine(host: Host) -> dict[str, str | None]:
    cores = f"{host.physical_cores or '?'} physical, {host.logical_cores} logical"
    if host.usable_cores is not None and host.usable_cores != host.logical_cores:
        cores += f", {host.usable_cores:g} usable"
    load = " ".join(f"{value:.2f}" for value in host.load_average) if host.load_average else None
    return {
        "device": host.device,
        "CPU": host.cpu,
        "cores": cores,
        "instruction sets": " ".join(host.cpu_flags) or None,
        "clock policy": host.governor,
        "power": host.power_source,
        "energy read": _energy(host.power_meter),
        "memory": f"{size(host.memory_bytes)}, {size(host.memory_available_bytes)} available at the start",
        "swap in use": None if host.swap_used_bytes is None else size(host.swap_used_bytes),
        "operating system": f"{host.os} {host.os_version}",
        "kernel": f"{host.kernel} ({host.machine})",
        "container or VM": host.container,
        "load (1, 5, 15 min)": load,
        "busy processes": ", ".join(host.busy_processes) or "none",
        "machine id": host.hostname_sha256[:16],
    }


def _energy(meter: PowerMeter | None) -> str | None:
    if meter is None:
        return None
    rest = "" if meter.idle_w is None else f"; {meter.idle_w:.1f} W at rest"
    return "; ".join((f"{', '.join(meter.sources) or 'nothing'}{rest}", *meter.unread))


def _engine(engine: EngineIdentity) -> dict[str, str | None]:
    facts: dict[str, str | None] = {
        "kind": engine.kind,
        "version": engine.version,
        "build": engine.build,
        "binary": engine.binary,
        "SHA-256": engine.binary_sha256,
        "system": engine.system_info or None,
    }
    return facts | {f"SHA-256 of {name}": digest for name, digest in sorted(engine.libraries.items())}


def _gpus(gpus: Iterable[Gpu]) -> str:
    rows = [
        (
            str(gpu.index),
            markdown_escaped(gpu.name),
            size(gpu.memory_bytes),
            markdown_escaped(gpu.driver or "?"),
            markdown_escaped(gpu.runtime or "?"),
            "?" if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W",
        )
        for gpu in gpus
    ]
    return _table(("#", "GPU", "memory", "driver", "runtime", "power limit"), rows)


def _models(models: Iterable[ModelIdentity], clean: _Clean) -> str:
    rows = [
        (
            markdown_code(model.name),
            markdown_code(clean(model.reference)),
            size(model.size_bytes),
            markdown_code(model.sha256),
            "random weights: timing only" if model.timing_only else "",
        )
        for model in models
    ]
    return _table(("model", "reference", "size", "SHA-256", "note"), rows)


def _placements(sessions: Iterable[Session]) -> Iterable[tuple[str, ...]]:
    seen: set[tuple[str, ...]] = set()
    for session in sessions:
        for role, devices, layers in (
            ("target", session.devices, session.layers_offloaded),
            ("draft", session.draft_devices, session.draft_layers_offloaded),
        ):
            for use in devices:
                row = _placement(session.arm_id, role, use, layers)
                if row not in seen:
                    seen.add(row)
                    yield row


def _placement(arm_id: str, role: str, use: DeviceUse, layers: tuple[int, int] | None) -> tuple[str, ...]:
    return (
        markdown_code(arm_id),
        role,
        "?" if layers is None else f"{layers[0]} of {layers[1]}",
        markdown_code(use.device),
        size(use.model_buffer_bytes),
        size(use.kv_buffer_bytes),
        size(use.compute_buffer_bytes),
    )


def _resolved(sessions: Sequence[Session], clean: _Clean) -> Iterable[tuple[str, ...]]:
    """One row per value; a value that differs between arms has a row for each group of arms."""
    arms_by_value: dict[str, dict[str, list[str]]] = {}
    all_arms = dict.fromkeys(session.arm_id for session in sessions)
    for session in sessions:
        for name, value in _flat(session.resolved):
            shown = _MASK if _SECRET_FLAG.fullmatch(name) else clean(value)[:_LONGEST_VALUE]
            arms = arms_by_value.setdefault(name, {}).setdefault(shown, [])
            if session.arm_id not in arms:
                arms.append(session.arm_id)
    for name, values in sorted(arms_by_value.items()):
        for shown, arms in values.items():
            everywhere = len(values) == 1 and len(arms) == len(all_arms)
            yield (
                markdown_code(name),
                markdown_code(shown),
                "all arms" if everywhere else ", ".join(markdown_code(arm) for arm in arms),
            )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{name}.")
        else:
            yield name, str(value)


def _masked(argv: Sequence[str], clean: _Clean) -> str:
    shown: list[str] = []
    secret_follows = False
    for word in argv:
        shown.append(_MASK if secret_follows else clean(without_controls(word)))
        secret_follows = _SECRET_FLAG.fullmatch(word) is not None and not secret_follows
    return shlex.join(shown)


def private(text: str, *, home: str | None = None) -> str:
    """`text` without keys, tokens and the name of the home folder (the reader's own, unless another is given)."""
    masked = _SECRET_SHAPES.sub(_MASK, _SECRET_VALUE.sub(rf"\1{_MASK}", text))
    home = str(Path.home()) if home is None else home
    return re.sub(rf"{re.escape(home)}(?=[/\\]|$)", "~", masked) if len(home) > 1 else masked


def _facts(facts: Mapping[str, str | None], clean: _Clean) -> str:
    rows = [
        (markdown_escaped(name), markdown_escaped(clean(value))) for name, value in facts.items() if value is not None
    ]
    return _table(("", ""), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _block(text: str) -> str:
    fence = markdown_fence(text, 3)
    return f"{fence}\n{text}\n{fence}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
