"""Probes: what a target forward over n tokens costs on this machine, measured before anything is compared.

A probe is a cost curve T(n) of one target (and of one draft), with the machine, engine and settings that it holds for.
Predictions and explanations read it; they never measure. Who measures: `sweep` through the C interface of
llama.cpp, and `served` through a server's synthetic acceptance, with wider intervals.

Whether a probe can be believed: by the same standards that a run's requests are held to.

A probe that was taken beside other work looks like any other: its times are too long, and not all by the same factor.
So it records what else was running, and suspicions are drawn from that.

Probes are kept as files (JSON, one each) in a folder of this machine, where runs look for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from specmeter.errors import UsageError
from specmeter.files import cache_dir
from specmeter.host.telemetry import busy_percent, is_busy
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
from specmeter.text import percent
from specmeter.theory.curves import CostCurve


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


def suspicions(probe: Probe) -> tuple[str, ...]:
    """Reasons not to use a probe, in words; empty where there are none."""
    found: list[str] = []
    host = probe.host
    cores = host.physical_cores or host.logical_cores
    on_cpu = not host.gpus or not probe.settings.gpu_layers
    gate = busy_percent((probe.settings.threads or cores) if on_cpu else None, cores, host.logical_cores)
    if is_busy(probe.other_cpu_percent, gate):
        found.append(
            f"other programs used {percent(fmean(probe.other_cpu_percent) / 100)} of the machine during the "
            f"probe, and up to {percent(max(probe.other_cpu_percent) / 100)}"
        )
    first = probe.target_ms.points[0].ms
    if first.low is not None and first.high is not None and first.high > WIDEST * first.low:
        found.append(f"T(1) came out as {first.point:.3g} ms [{first.low:.3g}, {first.high:.3g}]: too uncertain to use")
    rounds = probe.plain_rounds_ms
    if len(rounds) >= _LEAST_ROUNDS:
        early, late = median(rounds[: len(rounds) // 2]), median(rounds[(len(rounds) + 1) // 2 :])
        if max(early, late) > DRIFT * min(early, late):
            found.append(f"T(1) moved from {early:.3g} to {late:.3g} ms during the probe")
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
