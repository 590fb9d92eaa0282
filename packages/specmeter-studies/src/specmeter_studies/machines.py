"""The same measurement on several machines, beside each other: rates, what they ask of memory, ratios.

What stands in one table has to be one thing measured in several places. Runs are merged where experiment, models (by
hash), prompts (by hash) and settings agree; quality reports where models, tests, text and engine do. Whatever belongs
to the machine (threads, devices, layers offloaded, order and number of blocks) may differ, and what else does is
listed; anything unlike is refused by name. A machine may lack a model that did not fit into it.

    utilisation = rate x bytes of weights that decoding one token reads / bandwidth

of decoding without speculation alone: of a mixture the chosen experts, not all of them. KV cache and activations come
on top and are not counted, so the share is a lower bound. Ratios are between independent machines: Welch's interval
over blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.analysis.comparison import read_side
from specmeter.analysis.quality import QualityReport
from specmeter.analysis.requests import BlockKey
from specmeter.errors import UsageError
from specmeter.numbers.estimates import quotient, scaled
from specmeter.numbers.stats import ratio_of_groups
from specmeter.record import EngineSettings, Estimate, Host, ModelIdentity, Record, Standing, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.record import EngineIdentity

OF_THE_MACHINE = frozenset(
    {"threads", "gpu_layers", "draft_gpu_layers", "devices", "draft_devices", "mmap", "trace_steps", "stream_tokens"}
)
"""Settings that may differ between machines."""
_MAX_NAMED = 8


class Machine(Record):
    """A machine as it stands in the table."""

    name: str
    """Of its run or report."""
    device: str
    """What held the weights: the processor, or GPUs."""
    hostname_sha256: str
    bandwidth_bytes_per_s: float | None
    """None where nothing is known of it."""
    bandwidth_source: str
    """`given`, `measured by specmeter doctor`, `peak of NAME, by the catalogue`; or why there is none."""


class MachineLine(Record):
    """One thing on one machine."""

    machine: str
    subject: str
    """Arm, or model."""
    test: str
    """`decode`, `prompt`, `tg128`, `pp512`."""
    decodes: bool
    """Tokens are generated one after the other, so that memory may set the pace."""
    speculates: bool = False
    rate: Estimate | None
    """tok/s; None where it was not measured there, or is false."""
    ratio: Estimate | None = None
    """Rate / that of the first machine; None for the first one itself."""
    speedup: Estimate | None = None
    """Of speculative arms, over no speculation on the same machine."""
    bytes_per_token: float | None = None
    """Weights that decoding without speculation reads for one token; None otherwise."""
    moved_bytes_per_s: Estimate | None = None
    """rate x bytes per token."""
    utilisation: Estimate | None = None
    """moved / bandwidth."""
    verdict: Standing | None = None


class MachineTable(Record):
    """Everything that was merged."""

    what: str
    """Experiment or plan."""
    machines: tuple[Machine, ...]
    lines: tuple[MachineLine, ...]
    """By subject and test, then by machine in their order."""
    differences: tuple[str, ...] = ()
    """What else is not the same, and may explain a ratio."""

    def of(self, subject: str, test: str) -> tuple[MachineLine, ...]:
        """One thing on all machines."""
        return tuple(line for line in self.lines if line.subject == subject and line.test == test)

    def machine(self, name: str) -> Machine:
        """A machine by name."""
        return next(machine for machine in self.machines if machine.name == name)


@dataclass(frozen=True)
class Measured:
    """What one machine says about one thing."""

    rate: Estimate | None
    decodes: bool
    blocks: Mapping[BlockKey, Mapping[str, tuple[float, float]]] = field(
        default_factory=dict[BlockKey, "dict[str, tuple[float, float]]"]
    )
    """Block -> prompt (or test) -> (tokens, ms); empty where only the estimate is known."""
    speculates: bool = False
    speedup: Estimate | None = None
    bytes_per_token: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class MachineSide:
    """A machine's run or report, as far as merging needs it."""

    name: str
    kind: str
    """`run` or `quality report`: only one of both goes into a table."""
    what: str
    host: Host
    on_gpu: bool
    measured: Mapping[tuple[str, str], Measured]
    """By (subject, test)."""
    same: Mapping[str, str]
    """What has to be the same on all machines that have it: name -> value."""
    everywhere: Mapping[str, str]
    """What has to be there on every machine as well."""
    noted: Mapping[str, str]
    """What may differ, and is told."""


# --- one table -------------------------------------------------------------------------------------------------------


def merge(
    sides: Sequence[MachineSide], given: Mapping[str, float | str] | None = None, *, level: float = 0.95
) -> MachineTable:
    """Put machines into one table; the first one is what the others are compared with.

    `given` are bandwidths by name of the machine: bytes per second, or the name of a device in the catalogue. Raises
    `UsageError` for unlike measurements (naming what differs), a name that no machine has, and a device that the
    catalogue does not know.
    """
    refuse_unlike(sides)
    bandwidths = dict(given or {})
    for name in bandwidths:
        if name not in {side.name for side in sides}:
            raise UsageError(
                f"--bandwidth {name}: no such machine",
                fix=f"use one of {', '.join(side.name for side in sides)}",
            )
    machines = tuple(_machine(side, bandwidths.get(side.name)) for side in sides)
    keys = dict.fromkeys(key for side in sides for key in side.measured)
    ratios = max(1, (len(sides) - 1) * len(keys))
    lines = [
        _line(side, machine, key, sides[0].measured.get(key) if place else None, level, ratios)
        for key in keys
        for place, (side, machine) in enumerate(zip(sides, machines, strict=True))
    ]
    return MachineTable(
        what=sides[0].what, machines=machines, lines=tuple(lines), differences=tuple(_differences(sides))
    )


def refuse_unlike(sides: Sequence[MachineSide]) -> None:
    """Raise `UsageError` that names everything in which a side is unlike the first one."""
    first = sides[0]
    for other in sides[1:]:
        found = list(_unlike(first, other))
        if not found:
            continue
        more = f"; and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        raise UsageError(
            f"{first.name} and {other.name} cannot share a table: {'; '.join(found[:_MAX_NAMED])}{more}",
            fix="measure the same experiment with the same models on every machine, or leave --machines out to "
            "compare different runs",
        )


def _unlike(first: MachineSide, other: MachineSide) -> Iterator[str]:
    if first.kind != other.kind:
        yield f"one is a {first.kind}, the other a {other.kind}"
        return
    if first.what != other.what:
        yield f"{'experiment' if first.kind == 'run' else 'plan'} {first.what} and {other.what}"
    for name in dict.fromkeys((*first.everywhere, *other.everywhere)):
        ours, theirs = first.everywhere.get(name, "not there"), other.everywhere.get(name, "not there")
        if ours != theirs:
            yield f"{name}: {ours} and {theirs}"
    for name, ours in first.same.items():
        theirs = other.same.get(name, ours)
        if ours != theirs:
            yield f"{name}: {ours} and {theirs}"
    if not set(first.measured) & set(other.measured):
        yield "they have nothing in common that was measured"


def _line(
    side: MachineSide,
    machine: Machine,
    key: tuple[str, str],
    reference: Measured | None,
    level: float,
    among: int,
) -> MachineLine:
    subject, test = key
    found = side.measured.get(key)
    if found is None:
        return MachineLine(machine=side.name, subject=subject, test=test, decodes=test != "prompt", rate=None)
    believed = found.rate if found.verdict != "invalid" else None
    moved = None
    if believed is not None and found.bytes_per_token is not None and found.decodes and not found.speculates:
        moved = scaled(believed, found.bytes_per_token, "B/s")
    peak = machine.bandwidth_bytes_per_s
    return MachineLine(
        machine=side.name,
        subject=subject,
        test=test,
        decodes=found.decodes,
        speculates=found.speculates,
        rate=believed,
        ratio=_ratio(found, reference, level, among) if believed is not None else None,
        speedup=found.speedup,
        bytes_per_token=found.bytes_per_token if moved is not None else None,
        moved_bytes_per_s=moved,
        utilisation=scaled(moved, 1 / peak, "1") if moved is not None and peak else None,
        verdict=found.verdict,
    )


def _ratio(ours: Measured, theirs: Measured | None, level: float, among: int) -> Estimate | None:
    if theirs is None or theirs.rate is None or theirs.verdict == "invalid" or ours.rate is None:
        return None
    shared = _in_every_block((*ours.blocks.values(), *theirs.blocks.values()))
    if ours.blocks and theirs.blocks and shared:
        return ratio_of_groups(_logs(ours, shared), _logs(theirs, shared), level=level, among=among)
    return quotient(ours.rate, theirs.rate, unit="x", method="ratio of two rates")


def _in_every_block(blocks: Sequence[Mapping[str, object]]) -> frozenset[str]:
    found = frozenset(blocks[0]) if blocks else frozenset[str]()
    for block in blocks[1:]:
        found &= frozenset(block)
    return found


def _logs(measured: Measured, names: frozenset[str]) -> NDArray[np.float64]:
    """Logarithm of the rate of each block over these prompts."""
    found: list[float] = []
    for block in measured.blocks.values():
        tokens, ms = sum(block[name][0] for name in names), sum(block[name][1] for name in names)
        found.append(math.log(1000 * tokens / ms))
    return np.array(found, dtype=np.float64)


def _differences(sides: Sequence[MachineSide]) -> Iterator[str]:
    seen: dict[str, list[str]] = {}
    for side in sides:
        seen.setdefault(side.host.hostname_sha256, []).append(side.name)
    for names in seen.values():
        if len(names) > 1:
            yield f"{' and '.join(names)} were made on one and the same machine"
    for name in dict.fromkeys(name for side in sides for name in side.noted):
        values = [side.noted.get(name, "-") for side in sides]
        if len(set(values)) > 1:
            yield f"{name}: {', '.join(f'{side.name} {value}' for side, value in zip(sides, values, strict=True))}"


# --- memory ----------------------------------------------------------------------------------------------------------


def _machine(side: MachineSide, given: float | str | None) -> Machine:
    bandwidth, source = bandwidth_of(side.host, on_gpu=side.on_gpu) if given is None else _given(given)
    return Machine(
        name=side.name,
        device=device_of(side.host, on_gpu=side.on_gpu),
        hostname_sha256=side.host.hostname_sha256,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=source,
    )


def device_of(host: Host, *, on_gpu: bool) -> str:
    """What held the weights, by name."""
    return ", ".join(gpu.name for gpu in host.gpus) if on_gpu else host.cpu


def bandwidth_of(host: Host, *, on_gpu: bool) -> tuple[float | None, str]:
    """(bytes per second, where from) of the memory that weights were read from; (None, why not).

    Of processors, what was measured on that machine (`specmeter doctor --bandwidth`, kept in its cache
    folder), else the peak that the maker states; of GPUs the peak.
    """
    from specmeter.host.bandwidth import remembered
    from specmeter.theory.catalogue import devices as catalogue

    if not on_gpu and (measured := remembered(host)) is not None:
        return measured.read.point * 1e9, "measured by specmeter doctor"
    name = device_of(host, on_gpu=on_gpu)
    peak = catalogue.peak(name) if name else None
    if peak is None:
        return None, "not in the catalogue of devices; give it with --bandwidth"
    if peak.low != peak.high:
        return None, f"the catalogue has several that it may be: {', '.join(peak.names)}; give it with --bandwidth"
    return peak.low, f"peak of {', '.join(peak.names)}, by the catalogue"


def _given(value: float | str) -> tuple[float, str]:
    from specmeter.theory.catalogue import devices as catalogue

    if not isinstance(value, str):
        return value, "given"
    device, *others = catalogue.named(value)
    if others:
        names = ", ".join(it.name for it in (device, *others))
        raise UsageError(f"--bandwidth: {value!r} is ambiguous: {names}", fix="use one of these names, or give GB/s")
    return device.peak_bytes_per_s, f"peak of {device.name}, by the catalogue"


def is_on_gpu(host: Host, settings: EngineSettings, engine: EngineIdentity | None) -> bool:
    """Whether weights were on a GPU, as far as a quality report tells: one is there, and the engine can use it."""
    if not host.gpus or settings.gpu_layers == 0 or engine is None:
        return False
    told = " ".join((engine.system_info, *engine.libraries)).lower()
    return any(backend in told for backend in ("cuda", "metal", "mtl", "vulkan", "hip", "rocm", "sycl"))


# --- from runs -------------------------------------------------------------------------------------------------------


def from_run(folder: Path, name: str) -> MachineSide:
    """A run as one machine's side. Raises `StoreError`, and `UsageError` for a run without a machine."""
    import json

    from specmeter.store import RunStore

    side = read_side(folder)
    with RunStore.open(folder, readonly=True) as store:
        experiment: dict[str, Any] = json.loads(store.experiment_json)
        prompts = {prompt.id: prompt.sha256 for prompt in store.prompts()}
        on_gpu = any((session.layers_offloaded or (0, 0))[0] > 0 for session in store.sessions())
    if side.host is None:
        raise UsageError(f"{name}: this run does not describe its machine", fix="measure it again with this version")
    report = side.report
    arms = {arm.id: arm for arm in report.arms if arm.role != "control"}
    models = {model.name: model for model in report.models}
    measured: dict[tuple[str, str], Measured] = {}
    for summary in report.summary.arms:
        if summary.load is not None:  # one forward serves several requests: no rate of a machine's memory follows
            continue
        arm, verdict = arms[summary.arm_id], _verdict(report.certificate, summary.arm_id)
        target = models.get(arm.target)
        common: dict[str, Any] = {"speculates": arm.speculates, "verdict": verdict}
        if summary.decode_rate is not None:
            measured[arm.id, "decode"] = Measured(
                rate=summary.decode_rate,
                decodes=True,
                blocks=side.rates.get(arm.id, {}),
                speedup=summary.speedup,
                bytes_per_token=_bytes_per_token(target),
                **common,
            )
        if summary.prompt_rate is not None and not arm.speculates:
            measured[arm.id, "prompt"] = Measured(rate=summary.prompt_rate, decodes=False, **common)
    settings = {
        f"{key} of {arm.id}": str(value)
        for arm in arms.values()
        for key, value in arm.engine.model_dump(mode="json").items()
        if key not in OF_THE_MACHINE
    }
    return MachineSide(
        name=name,
        kind="run",
        what=report.name,
        host=side.host,
        on_gpu=on_gpu,
        measured=measured,
        same={f"model {model.name}": _told(model) for model in models.values()} | settings,
        everywhere={f"prompt {prompt}": sha[:16] for prompt, sha in prompts.items()}
        | {f"generation.{key}": str(value) for key, value in experiment.get("generation", {}).items()}
        | {"variants": ", ".join(experiment.get("applied", ())) or "none"},
        noted=_noted(side.host, side.engine, on_gpu),
    )


def _verdict(certificate: Any, arm_id: str) -> Verdict | None:
    return certificate.arms.get(arm_id) if certificate is not None else None


# --- from quality reports --------------------------------------------------------------------------------------------


def from_quality(report: QualityReport, name: str) -> MachineSide:
    """A quality report as one machine's side. Raises `UsageError` for a report without rates."""
    measured: dict[tuple[str, str], Measured] = {}
    engine: EngineIdentity | None = None
    for item in report.models:
        engine = engine or item.rates_engine
        subject = item.role.label if item.role is not None and item.role.label else item.model.name
        for rate in item.rates:
            decodes, test = rate.test.kind == "generate", rate.test
            measured[subject, test.name] = Measured(
                rate=rate.rate,
                decodes=decodes,
                blocks={(0, block): {test.name: (test.tokens, ms)} for block, ms in enumerate(rate.ms)},
                bytes_per_token=_bytes_per_token(item.model) if decodes else None,
            )
    if not measured:
        raise UsageError(
            f"{name}: this report contains no rates", fix="measure them: `specmeter quality MODEL... --rates`"
        )
    on_gpu = is_on_gpu(report.host, report.settings, engine)
    return MachineSide(
        name=name,
        kind="quality report",
        what=report.plan or "models named one by one",
        host=report.host,
        on_gpu=on_gpu,
        measured=measured,
        same={f"model {item.model.name}": _told(item.model) for item in report.models},
        everywhere={
            "text": report.text.sha256[:16],
            "tests": ", ".join(sorted({test for _, test in measured})),
            "timed by": engine.kind if engine is not None else "unknown",
        },
        noted=_noted(report.host, engine, on_gpu),
    )


# --- both ------------------------------------------------------------------------------------------------------------


def _bytes_per_token(model: ModelIdentity | None) -> float | None:
    return float(model.header.bytes_per_token) if model is not None and model.header is not None else None


def _told(model: ModelIdentity) -> str:
    """By content alone: a file may lie elsewhere on every machine."""
    return f"{model.size_bytes} bytes, SHA-256 {model.sha256[:16]}"


def _noted(host: Host, engine: EngineIdentity | None, on_gpu: bool) -> dict[str, str]:
    return {
        "device": device_of(host, on_gpu=on_gpu),
        "engine": f"{engine.kind} {engine.version}" if engine is not None else "unknown",
        "operating system": f"{host.os} {host.os_version}",
        "power": host.power_source,
        "specmeter": host.specmeter,
    }
