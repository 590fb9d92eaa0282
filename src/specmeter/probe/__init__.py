"""Probes: what a target forward over n tokens costs on this machine, measured before anything is compared.

A probe is a cost curve T(n) of one target (and of one draft), with the machine, engine and settings that it holds for.
Predictions and explanations read it; they never measure. Who measures: `sweep` through the C interface of
llama.cpp, and `served` through a server's synthetic acceptance, with wider intervals.

Whether a probe can be believed: by the same standards that a run's requests are held to.

A probe that was taken beside other work looks like any other: its times are too long, and not all by the same factor.
So it records what else was running, and suspicions are drawn from that.

Probes are kept as files (JSON, one each) in a folder of this machine, where runs look for them.

What a probe says: v(n), the models that fit its curve, and what verification asks of a draft; measures nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

from specmeter.cache import cache_dir
from specmeter.errors import UsageError
from specmeter.host.telemetry import gate_for, is_busy
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import exceeds
from specmeter.record import (
    BatchPoint,
    EngineIdentity,
    EngineSettings,
    Estimate,
    ExpertUnion,
    Host,
    ModelIdentity,
    Record,
)
from specmeter.record.base import read_record, write_record
from specmeter.record.measured import names_of
from specmeter.text import estimated
from specmeter.theory.cost import break_even_alpha, step_cost
from specmeter.theory.curves import CostCurve, CostFit, CostSurface, SurfaceFit, compare_fits, fit_surface
from specmeter.theory.roofline import fit_union

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats


class Probe(Record):
    """Costs of one target, and of one draft, on one machine with one engine."""

    format: Literal[1] = 1
    made_at: float
    """Seconds since the epoch."""
    source: Literal["libllama", "server"]
    """Measured directly, or estimated through a server."""
    host: Host
    engine: EngineIdentity
    settings: EngineSettings
    target: ModelIdentity
    draft: ModelIdentity | None = None
    depth: int
    """Tokens in the context before each forward that was timed."""
    target_ms: CostCurve
    """T(n): a target forward over n tokens, logits of all of them read."""
    draft_ms: CostCurve | None = None
    """The same of the draft model; its T(1) is what a drafted token costs."""
    overhead_ms: Estimate | None = None
    """What a step costs beside its forwards (choosing tokens, cutting caches); None where it was not measured."""
    plain_rounds_ms: tuple[float, ...]
    """T(1) of each round, in their order."""
    other_cpu_percent: tuple[float, ...]
    """Share of the machine that other programs took while it was measured, sampled about once a second."""
    programs: tuple[str, ...] = ()
    """Those that took the most, where they were seen: `python3 (0.98 cores)`."""
    disturbed_percent: tuple[float, ...] = ()
    """Mean share that they took of each attempt before, which was set aside for it."""
    union: ExpertUnion | None = None
    """None for dense targets, and where routing could not be read."""
    batches: tuple[BatchPoint, ...] = ()
    """T(b, n), ascending in b and then in n; empty where it was not asked for."""
    kv_unified: bool | None = None
    """Whether the sequences of `batches` lay in one memory, or in a stream each; None without `batches`."""


# --- whether a probe is to be used -----------------------------------------------------------------------------------

WIDEST = 1.5
"""High over low end of the interval of T(1) that is still a measurement. Of the probe for which this gate was made
(125 ms [42, 358], beside other work) it was 8.5."""
DRIFT = 1.25
"""T(1) of the slower half of the rounds over the faster half, in medians, beyond which the machine was not the same."""
_LEAST_ROUNDS = 6


def suspicions(probe: Probe) -> tuple[Message, ...]:
    """Reasons not to use a probe; empty where there are none."""
    found: list[Message] = []
    if is_busy(probe.other_cpu_percent, gate_for(probe.settings, probe.host)):
        mean, most = fmean(probe.other_cpu_percent) / 100, max(probe.other_cpu_percent) / 100
        found.append(Message("probe-doubt.busy", programs=names_of(probe.programs), mean=mean, most=most))
    first = probe.target_ms.points[0].ms
    if first.low is not None and first.high is not None and first.high > WIDEST * first.low:
        found.append(Message("probe-doubt.uncertain", ms=first.point, low=first.low, high=first.high))
    rounds = probe.plain_rounds_ms
    if len(rounds) >= _LEAST_ROUNDS:
        early, late = median(rounds[: len(rounds) // 2]), median(rounds[(len(rounds) + 1) // 2 :])
        if max(early, late) > DRIFT * min(early, late):
            found.append(Message("probe-doubt.drift", early=early, late=late))
    return tuple(found)


# --- probes as files of this machine ---------------------------------------------------------------------------------

MAX_BYTES = 8 * 1024 * 1024
"""A probe takes some ten kilobytes; a file larger than this is none."""
_NAME_LENGTH = 80
_MOST_FILES = 1_000
"""The newest files of the probes folder; a larger number is not to be expected."""


def probes_folder() -> Path:
    """Where probes are kept unless a file is named; it may not exist yet. Raises `ModelError` without a home folder."""
    return cache_dir() / "probes"


def load_probe(path: Path) -> Probe:
    """Read a probe. Raises `UsageError` that names the file and what is wrong in it."""
    return read_record(Probe, path, what="probe", made_by="specmeter probe", max_bytes=MAX_BYTES)


def save_probe(probe: Probe, path: Path | None = None) -> Path:
    """Write a probe, whole or not at all, and return its place: `path`, or a name of its own in the probes folder."""
    if path is None:
        path = probes_folder() / f"{file_name(probe)}.json"
    write_record(probe, path, what="probe")
    return path


def file_name(probe: Probe) -> str:
    """A name for its file, without an ending: names of the models in harmless characters, their hashes, the time."""
    models = (model for model in (probe.target, probe.draft) if model is not None)
    names = "+".join(f"{plain_name(model.reference)}-{model.sha256[:8]}" for model in models)
    return f"{names}-{probe.made_at * 1000:.0f}"


def plain_name(reference: str) -> str:
    """What follows the last `/` of a model reference, in letters, digits, `.`, `_` and `-`."""
    last = re.split(r"[/\\]", reference.removeprefix("bench:").removeprefix("hf:"))[-1].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last[:_NAME_LENGTH]).strip(".-") or "model"


def find_probe(
    target: ModelIdentity,
    draft: ModelIdentity | None,
    engine: EngineIdentity,
    folder: Path | None = None,
    *,
    host: Host | None = None,
) -> tuple[Path, Probe] | None:
    """The newest probe of these very models by this engine, and where it lies; None where there is none.

    Models are compared by their bytes. The engine must have the same version or the same binary: a probe through the
    C interface and a server of one package have different binaries. A probe with a draft serves an arm without one;
    files that are no probes are passed over, and so are suspicious probes. With `host` it
    must have been made on that machine.
    """
    fitting = (
        (probe.made_at, str(path), path, probe)
        for path, probe in _probes(folder or probes_folder())
        if probe.target.sha256 == target.sha256
        and (draft is None or (probe.draft is not None and probe.draft.sha256 == draft.sha256))
        and (probe.engine.version == engine.version or probe.engine.binary_sha256 == engine.binary_sha256)
        and not suspicions(probe)
        and (host is None or (probe.host.hostname_sha256, probe.host.cpu) == (host.hostname_sha256, host.cpu))
    )
    newest = max(fitting, key=lambda found: found[:2], default=None)
    return None if newest is None else (newest[2], newest[3])


def _probes(folder: Path) -> Iterator[tuple[Path, Probe]]:
    try:
        kept = (path for path in folder.glob("*.json") if path.is_file())
        files = sorted(kept, key=lambda path: path.stat().st_mtime_ns)[-_MOST_FILES:]
    except OSError:
        return
    for path in files:
        try:
            yield path, load_probe(path)
        except UsageError:
            continue


TYPICAL_GAMMA = 4
"""Draft tokens that the sentence speaks of, where the curve reaches so far."""
_NO_DIFFERENCE = 2.0
"""Difference of AICc below which a curve does not tell two models apart."""


@dataclass(frozen=True)
class BreakEven:
    """What drafts of `gamma` tokens must bring so that nothing is lost."""

    gamma: int
    verification: Estimate
    """v(gamma) = T(gamma + 1) / T(1)."""
    tokens: float
    """Tokens that a step must yield: its cost in forwards of one token, drafting and overhead included."""
    alpha: float | None
    """Acceptance per token that yields them, the same for every token; None where even full acceptance does not."""
    with_draft: bool
    """Whether the cost of drafting is in it."""


def fits(probe: Probe) -> tuple[CostFit, ...]:
    """Models of T(n), best first; empty where there are too few points to compare any."""
    union = None
    if probe.union is not None and len(probe.union.points) > 1 and probe.union.used < probe.union.experts:
        union = union_model(probe.union)
    try:
        return compare_fits(probe.target_ms, union)
    except UsageError:
        return ()


def surface_of(probe: Probe) -> CostSurface | None:
    """T(b, n); None where it was not measured."""
    return CostSurface.of(probe.batches) if probe.batches else None


def surface_fits(probe: Probe) -> tuple[SurfaceFit, ...]:
    """Models of T(b, n), best first; empty where there are too few points to compare any."""
    header = probe.target.header
    experts, used = (header.experts, header.experts_used) if header is not None else (0, 0)
    return fit_surface(probe.batches, experts, used)


def union_model(union: ExpertUnion) -> Callable[[Floats], float | Floats]:
    """U(n) as a function: the overlap model `draws`, fitted to the measured unions."""
    n = [float(point.tokens) for point in union.points]
    return fit_union(n, [point.union.point for point in union.points], union.experts, union.used).union


def told_apart(models: Sequence[CostFit | SurfaceFit]) -> bool:
    """Whether the best model is better than the next by more than noise."""
    return len(models) < 2 or models[1].aicc - models[0].aicc > _NO_DIFFERENCE


def break_even(probe: Probe, gamma: int | None = None) -> BreakEven | None:
    """For `gamma`, else for `TYPICAL_GAMMA` or the longest draft below it; None where only T(1) was measured."""
    measured = [point.tokens - 1 for point in probe.target_ms.points if point.tokens > 1]
    able = [each for each in measured if each <= (gamma or TYPICAL_GAMMA)] or measured[:1]
    if not able or (gamma is not None and gamma not in able):
        return None
    chosen = max(able)
    verification = probe.target_ms.verification_estimate(chosen)
    rest = probe.overhead_ms.point if probe.overhead_ms else 0.0
    plain = probe.target_ms.ms_at(1.0) + rest  # a plain token pays the overhead too
    draft = probe.draft_ms.ms_at(1.0) if probe.draft_ms else 0.0
    relative = probe.target_ms.ms_at(chosen + 1.0) / plain
    tokens = step_cost(chosen, relative, draft_cost=draft / plain, rest=rest / plain)
    alpha = break_even_alpha(chosen, relative, draft_cost=draft / plain, rest=rest / plain)
    return BreakEven(chosen, verification, tokens, alpha if alpha <= 1 else None, probe.draft_ms is not None)


def batch_sentence(found: CostSurface) -> Message:
    """What sharing the machine does to verification."""
    ends = [(b, curve) for b, curve in found.curves if len(curve.points) > 1]
    if len(ends) < 2:
        return Message("sharing.too_few")
    (few, first), (many, last) = ends[0], ends[-1]
    both = sorted({point.tokens for point in first.points} & {point.tokens for point in last.points} - {1})
    if not both:
        return Message("sharing.too_few")
    n = max([each for each in both if each <= TYPICAL_GAMMA + 1] or both[:1])
    alone, shared = (found.verification(b, n - 1) for b in (few, many))
    code = "more" if exceeds(shared, alone) else "less" if exceeds(alone, shared) else "alike"
    costs: dict[str, Value] = {"alone": estimated(alone, 2), "shared": estimated(shared, 2)}
    return Message(f"sharing.{code}", n=n, few=few, many=many, **costs)


def sentence(probe: Probe) -> Message:
    """What the probe means."""
    found = break_even(probe)
    if found is None:
        return Message("break-even.only_plain")
    v = found.verification
    interval = f" [{v.low:.2f}, {v.high:.2f}]" if v.low is not None and v.high is not None else ""
    recurrent = probe.target.header is not None and probe.target.header.recurrent
    counted = "with_drafting" if found.with_draft else "without_drafting"
    said: dict[str, Value] = {
        "n": found.gamma + 1,
        "cost": f"{v.point:.2f}{interval}",
        "drafts": found.gamma,
        "step": found.tokens,
        "counted": Message(f"break-even.{counted}{'_only' if recurrent else ''}"),
    }
    if found.alpha is None:
        return Message("break-even.never", **said)
    said["replays"] = Message("break-even.replays") if recurrent else ""
    if found.tokens <= 1:
        return Message("break-even.always", **said)
    return Message("break-even.pays", **said, alpha=found.alpha)
