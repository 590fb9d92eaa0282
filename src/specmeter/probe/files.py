"""Keeps probes as files (JSON, one each) in a folder of this machine, and finds those that fit a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specmeter.cache import cache_dir
from specmeter.errors import UsageError
from specmeter.probe.doubts import suspicions
from specmeter.probe.record import Probe
from specmeter.record import EngineIdentity, Host, ModelIdentity
from specmeter.record.base import read_record, write_record

MAX_BYTES = 8 * 1024 * 1024
"""A probe takes some ten kilobytes; a file larger than this is none."""
_NAME_LENGTH = 80
_MAX_FILES = 1_000
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
        files = sorted(kept, key=lambda path: path.stat().st_mtime_ns)[-_MAX_FILES:]
    except OSError:
        return
    for path in files:
        try:
            yield path, load_probe(path)
        except UsageError:
            continue
