"""Makes one probe from beginning to end: checks what is asked for, measures, and writes the record."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from specmeter.engines import load_engine
from specmeter.engines.process import Heard, default_threads, read_result, run_in_subprocess, serve
from specmeter.errors import EngineProtocolError, UsageError
from specmeter.experiments.spec import disturbed_by_default
from specmeter.files import read_named
from specmeter.host.gpus import read_gpus
from specmeter.host.limits import memory_available_bytes
from specmeter.host.telemetry import TelemetrySampler, gate_for, is_busy, wait_for_calm
from specmeter.measure.calm import busiest
from specmeter.models import preflight
from specmeter.models.reference import peek
from specmeter.numbers.stats import median_estimate
from specmeter.probe.record import Probe
from specmeter.probe.routing import (
    SEGMENT,
    ContinuationsOrder,
    RoutingOrder,
    load_routing,
    read_continuations,
    read_routing,
    save_routing,
    summarize,
)
from specmeter.probe.served import measure_served, sessions_per_round, wanted_tokens
from specmeter.probe.sweep import TOKENS as FEW
from specmeter.probe.sweep import (
    BatchSamples,
    BatchSweep,
    Samples,
    Sweep,
    batch_points,
    longest_chain,
    sweep,
    sweep_batches,
)
from specmeter.record import Arm, EngineSettings, ModelIdentity, Record, Telemetry
from specmeter.text import size
from specmeter.theory.curves import CostCurve, CostPoint
from specmeter.workloads.texts import held_out_text, natural_text

if TYPE_CHECKING:
    from specmeter.probe.routing import Routing
    from specmeter.record import BatchPoint, EngineIdentity, Estimate, ExpertUnion, Host


Progress = Callable[[str, int, int], None]
"""Called with (what is measured, parts done, parts in all)."""

ATTEMPTS = 3
"""How often a probe is measured at most, on a machine that other programs use."""
TOKENS: dict[str, tuple[int, ...]] = {"libllama": tuple(range(1, 34)), "server": (1, 2, 3, 5, 8, 9, 17)}
"""n that are measured unless others are asked for; 8 and 9 are on both sides of a limit of llama.cpp's CUDA kernels."""
DEPTH: dict[str, int] = {"libllama": 128, "server": 256}
ROUNDS: dict[str, int] = {"libllama": 9, "server": 6}
SEED = 1
UNION_TOKENS = 2048
"""Tokens of text that the experts of an MoE target are read over, beside its times."""
MAX_TEXT = 8_000_000
"""Characters of a text."""
_CELLS = 256
"""llama.cpp rounds contexts up to a multiple of this."""


@dataclass(frozen=True)
class ProbeSpec:
    """What is to be measured."""

    target: ModelIdentity
    """With its header."""
    draft: ModelIdentity | None = None
    source: Literal["libllama", "server"] = "libllama"
    tokens: Sequence[int] = ()
    """n; empty for those of the source."""
    depth: int | None = None
    rounds: int | None = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    """Its context is chosen here."""
    text: str | None = None
    """None: text that comes with specmeter, of the kind that the target was made for."""
    binary: str | None = None
    """A native `llama-server` for the source `server`; None: the embedded one."""
    batches: Sequence[int] = ()
    """b of T(b, n), which is measured beside T(n); empty: not at all. With `tokens`, or `batches.TOKENS`."""


def make_probe(spec: ProbeSpec, host: Host, progress: Progress, *, patience_s: float = 300) -> Probe:
    """Measure, after refusing what cannot be; again after waiting for calm, where other programs were busy, `ATTEMPTS`
    times in all (once where SPECMETER_DISTURBED says `keep`).

    Raises `UsageError` for models that do not fit into memory, a text that is too short or settings that the source
    does not have, `ModelError` for a draft that is none of the target, `EngineError` when the engine fails.
    """
    tokens = tuple(sorted({1, *(spec.tokens or TOKENS[spec.source])}))
    depth = spec.depth or DEPTH[spec.source]
    rounds = spec.rounds or ROUNDS[spec.source]
    settings = spec.settings.model_copy(update={"context": _context(spec.source, tokens, depth)})
    refuse(spec, settings)
    measure = _direct if spec.source == "libllama" else _through_server
    gate, disturbed, until = gate_for(settings, host), list[float](), time.monotonic() + patience_s
    attempts = 1 if disturbed_by_default() == "keep" else ATTEMPTS
    while True:
        found = measure(spec, settings, tokens, depth, rounds, progress)
        if len(disturbed) == attempts - 1 or not is_busy(found.other_cpu_percent, gate):
            break
        disturbed.append(fmean(found.other_cpu_percent))
        progress("again when other programs let it", len(disturbed), attempts - 1)
        wait_for_calm(until - time.monotonic(), gate)
    return Probe(
        made_at=time.time(),
        source=spec.source,
        host=host,
        engine=found.engine,
        settings=settings,
        target=spec.target,
        draft=spec.draft,
        depth=found.depth,
        target_ms=_curve(found.target_ms, found.unit),
        draft_ms=_curve(found.draft_ms, found.unit) if found.draft_ms else None,
        overhead_ms=found.overhead_ms,
        plain_rounds_ms=tuple(found.target_ms.get(1, ())),
        other_cpu_percent=tuple(found.other_cpu_percent),
        programs=found.programs,
        disturbed_percent=tuple(disturbed),
        union=found.union,
        batches=found.batches,
        kv_unified=found.kv_unified,
    )


def refuse_size(reference: str, *, offline: bool = False) -> None:
    """Raise `UsageError` for a model that is larger than the memory here, before it is built, downloaded or loaded."""
    size_bytes, _ = peek(reference, offline=offline)
    free = memory_available_bytes() + sum(gpu.memory_bytes or 0 for gpu in read_gpus())
    if size_bytes is not None and size_bytes > free:
        raise UsageError(
            f"{reference}: needs {size(size_bytes)} of memory, but {size(free)} is free",
            fix="probe a smaller model or quantization, or close other programs",
        )


def refuse(spec: ProbeSpec, settings: EngineSettings) -> None:
    """Raise what a run with these models would raise: a draft that is none, models beyond this machine's memory."""
    models = {"target": spec.target} | ({"draft": spec.draft} if spec.draft else {})
    arm = Arm(
        id=f"probe of {spec.target.reference}",
        target="target",
        draft="draft" if spec.draft else None,
        methods=("draft-simple",) if spec.draft else ("none",),
        engine=settings,
    )
    preflight.check([arm], models)


def read_experts(
    target: ModelIdentity,
    settings: EngineSettings,
    text: str,
    most_tokens: int,
    progress: Progress,
    *,
    random: bool = False,
) -> Routing:
    """The experts that a text chooses; with `random` also those of random tokens, and times of both.

    Raises `UsageError` for a dense target, `EngineError` when llama.cpp fails.
    """
    experts = target.header.experts if target.header else 0
    if not experts:
        raise UsageError(f"{target.reference}: is a dense model without experts", fix="use an MoE model")
    order = RoutingOrder(
        target=target.path,
        settings=_resolved(settings),
        experts=experts,
        text=text,
        most_tokens=most_tokens,
        random=random,
    )
    parts = -(-most_tokens // SEGMENT) * (2 if random else 1)
    with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
        return load_routing(read_apart(order, Path(folder), lambda done: progress("experts", min(done, parts), parts)))


def text_for(target: ModelIdentity) -> str:
    """Text that comes with specmeter: bench models know the bench's own, others natural prompts of all kinds."""
    return held_out_text() if target.origin == "bench" else natural_text()


def read_text(path: Path) -> str:
    """A text of the user's. Raises `UsageError` when it is missing, no UTF-8, empty or too large."""
    try:
        text = read_named(path, 4 * MAX_TEXT + 1).decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--text {path}: cannot be read ({reason})", fix="pass a text file") from None
    if not text.strip() or len(text) > MAX_TEXT:
        size = "empty" if not text.strip() else f"longer than {MAX_TEXT:,} characters"
        raise UsageError(f"--text {path}: is {size}", fix="give a few pages of typical text")
    return text


# --- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    engine: EngineIdentity
    target_ms: Mapping[int, Sequence[float]]
    draft_ms: Mapping[int, Sequence[float]]
    depth: int
    unit: str
    other_cpu_percent: Sequence[float]
    programs: tuple[str, ...] = ()
    overhead_ms: Estimate | None = None
    union: ExpertUnion | None = None
    batches: tuple[BatchPoint, ...] = ()
    kv_unified: bool | None = None


def _direct(
    spec: ProbeSpec, settings: EngineSettings, tokens: Sequence[int], depth: int, rounds: int, progress: Progress
) -> _Found:
    if spec.binary is not None:
        raise UsageError("--binary needs --source server", fix="leave it out, or add --source server")
    engine = load_engine(spec.source).identify()
    text = spec.text if spec.text is not None else text_for(spec.target)
    order = Sweep(
        target=spec.target.path,
        draft=spec.draft.path if spec.draft else None,
        settings=_resolved(settings),
        tokens=tuple(tokens),
        depth=depth,
        rounds=rounds,
        seed=SEED,
        text=text,
    )
    loads: SimpleQueue[Telemetry] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder, TelemetrySampler(loads.put) as sampler:

        def done(parts: int) -> None:
            progress("forwards", parts, rounds + 1)

        samples = measure_sweep(order, Path(folder), done, sampler.watch)
        together = _together(spec, order, progress, sampler) if spec.batches else None
    machine = [loads.get() for _ in range(loads.qsize())]
    routing = None
    if spec.target.header and spec.target.header.experts:
        routing = read_experts(spec.target, settings, text, UNION_TOKENS, progress)
    return _Found(
        engine,
        samples.target_ms,
        samples.draft_ms,
        depth,
        "rounds",
        [it.other_cpu_percent for it in machine],
        busiest(machine),
        overhead_ms=median_estimate(samples.overhead_ms, unit="ms", of="rounds"),
        union=summarize(routing).union if routing else None,
        batches=batch_points(together, depth, routing) if together else (),
        kv_unified=together.unified if together else None,
    )


def _together(spec: ProbeSpec, order: Sweep, progress: Progress, sampler: TelemetrySampler) -> BatchSamples:
    """T(b, n) of the same text, with the settings of `order`."""
    batches = BatchSweep(
        target=order.target,
        settings=order.settings,
        sequences=tuple(sorted({1, *spec.batches})),
        tokens=tuple(sorted({1, *(spec.tokens or FEW)})),
        depth=order.depth,
        rounds=order.rounds,
        seed=order.seed,
        text=order.text,
    )
    with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
        return measure_batches(
            batches, Path(folder), lambda parts: progress("batches", parts, order.rounds + 1), sampler.watch
        )


def _through_server(
    spec: ProbeSpec, settings: EngineSettings, tokens: Sequence[int], depth: int, rounds: int, progress: Progress
) -> _Found:
    if spec.batches:
        raise UsageError("--batch needs --source libllama", fix="leave --source server out")
    engine = load_engine("embedded" if spec.binary is None else "native", binary=spec.binary)
    text = spec.text if spec.text is not None else text_for(spec.target)
    settings = settings.model_copy(update={"stream_tokens": False})  # its work would count as that of forwards
    sessions = rounds * sessions_per_round(tokens, draft=spec.draft is not None)
    served = measure_served(
        engine,
        spec.target,
        spec.draft,
        settings,
        tokens=tokens,
        depth=depth,
        rounds=rounds,
        seed=SEED,
        text=text,
        done=lambda done: progress("sessions", done, sessions),
    )
    machine, others = served.machine, [it.other_cpu_percent for it in served.machine]
    found = served.target_ms, served.draft_ms, served.depth
    return _Found(engine.identify(), *found, "sessions", others, busiest(machine))


def _resolved(settings: EngineSettings) -> EngineSettings:
    return settings.model_copy(update={"threads": settings.threads or default_threads()})


def _context(source: str, tokens: Sequence[int], depth: int) -> int:
    # A passage that is cut in the middle of a word may take a few tokens more.
    behind = longest_chain(tokens) if source == "libllama" else depth // 4 + wanted_tokens(max(tokens)) + 16
    return -(-(depth + behind) // _CELLS) * _CELLS


def _curve(samples: Mapping[int, Sequence[float]], of: str) -> CostCurve:
    if 1 not in samples:
        raise EngineProtocolError("T(1) could not be measured", fix="check the engine's output above and try again")
    return CostCurve(
        points=tuple(
            CostPoint(tokens=n, ms=median_estimate(times, unit="ms", of=of)) for n, times in sorted(samples.items())
        )
    )


# --- in a process of its own -----------------------------------------------------------------------------------------

SAMPLES, ROUTING = "samples.json", "routing.npz"


class _ProbeJob(Record):
    job: Literal["sweep", "batches", "routing"]
    order: Sweep | BatchSweep | RoutingOrder | ContinuationsOrder


def measure_sweep(
    order: Sweep,
    folder: Path,
    done: Callable[[int], None],
    started: Callable[[Sequence[int]], None] | None = None,
) -> Samples:
    """`sweep` in a child; `done` is called with the number of complete rounds, `started` with the child's processes.

    Raises what `sweep` raises.
    """
    run_in_subprocess(
        __name__, _ProbeJob(job="sweep", order=order), folder, lambda parts, _: done(parts), started=started
    )
    return Samples.model_validate_json(read_result(folder / SAMPLES))


def measure_batches(
    order: BatchSweep,
    folder: Path,
    done: Callable[[int], None],
    started: Callable[[Sequence[int]], None] | None = None,
) -> BatchSamples:
    """`sweep_batches` in a child, as `measure_sweep`. Raises what `sweep_batches` raises."""
    run_in_subprocess(
        __name__, _ProbeJob(job="batches", order=order), folder, lambda parts, _: done(parts), started=started
    )
    return BatchSamples.model_validate_json(read_result(folder / SAMPLES))


def read_apart(
    order: RoutingOrder | ContinuationsOrder,
    folder: Path,
    done: Callable[[int], None] = lambda _: None,
    *,
    limit_s: float | None = None,
) -> Path:
    """`read_routing` or `read_continuations` in a child: the file of what it saw. Raises what they raise, and
    `EngineHungError` after `limit_s`."""
    run_in_subprocess(
        __name__, _ProbeJob(job="routing", order=order), folder, lambda parts, _: done(parts), limit_s=limit_s
    )
    return folder / ROUTING


def _carry_out(given: str, folder: Path, heard: Heard) -> None:
    order = _ProbeJob.model_validate_json(given).order
    parts = 0

    def done(_: int) -> None:
        nonlocal parts
        parts += 1
        heard(parts, 0)

    if isinstance(order, Sweep):
        (folder / SAMPLES).write_text(sweep(order, done).model_dump_json(), encoding="utf-8")
    elif isinstance(order, BatchSweep):
        (folder / SAMPLES).write_text(sweep_batches(order, done).model_dump_json(), encoding="utf-8")
    else:
        read = read_routing(order, done) if isinstance(order, RoutingOrder) else read_continuations(order, done)
        save_routing(read, folder / ROUTING)


if __name__ == "__main__":
    sys.exit(serve(_carry_out))
