"""Probes as files: where they are kept, how they are read back, and which of them holds for a measurement."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from specmeter.errors import SpecmeterError, UsageError
from specmeter.probe import Probe
from specmeter.record import Host

FOLDER = Path("specmeter-probes")
"""Where probes go without `--out`, relative to the current folder."""
MAX_BYTES = 10 * 2**20
"""A larger file is no probe."""
_MAX_FILES = 10_000
_NAME_LENGTH = 80


def default_path(target: str, draft: str | None = None, folder: Path = FOLDER, *, at: float | None = None) -> Path:
    """A file that does not exist yet, named after the models' references and the time."""
    names = "+".join(plain_name(name) for name in (target, draft) if name is not None)
    stamp = datetime.fromtimestamp(time.time() if at is None else at, UTC).astimezone().strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        path = folder / (f"{names}-{stamp}" + (f"-{attempt}" if attempt else "") + ".json")
        if not path.exists():
            return path
    raise UsageError(f"{folder}: no free file name for {names}-{stamp}", fix="name one with --out")


def plain_name(reference: str) -> str:
    """A model reference as part of a file name: letters, digits, `.`, `_` and `-`, of what follows the last `/`."""
    last = re.split(r"[/\\]", reference.removeprefix("bench:").removeprefix("hf:"))[-1].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last[:_NAME_LENGTH]).strip(".-") or "model"


def write_probe(probe: Probe, path: Path) -> Path:
    """Write it whole or not at all; folders are made. Raises `UsageError` when that is not possible."""
    temporary = path.with_name(f".{path.name[:100]}.{time.time_ns()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(probe.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UsageError(f"{path}: cannot be written ({error.strerror})", fix="name another file with --out") from error


def read_probe(path: Path) -> Probe:
    """The probe in a file. Raises `UsageError` when it is missing, too large, or no probe of this version.

    A curve that is empty, does not ascend, or holds a time that is no positive number is none either.
    """
    fix = "make one with `specmeter probe TARGET`"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", fix=fix) from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: more than {MAX_BYTES // 2**20} MiB; this is no probe", fix=fix)
    try:
        return Probe.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: no probe of this version: {where}: {first['msg'][:200]}", fix=fix) from error
    except SpecmeterError as error:
        raise UsageError(f"{path}: {error.message}", fix=fix) from error


def find_probe(
    target_sha256: str,
    *,
    host: Host,
    draft_sha256: str | None = None,
    engine_sha256: str | None = None,
    threads: int | None = None,
    folder: Path = FOLDER,
) -> Probe | None:
    """The newest probe of this target on this machine; None where there is none.

    With `draft_sha256` one that knows this draft's cost, with `engine_sha256` (of the binary) one of this engine, with
    `threads` one that was made with so many. A probe that was measured directly is preferred to one that was estimated
    through a server. Files that are no probes are passed over.
    """
    fitting = [
        probe
        for probe in _probes(folder)
        if probe.target.sha256 == target_sha256
        and (probe.host.hostname_sha256, probe.host.cpu) == (host.hostname_sha256, host.cpu)
        and (draft_sha256 is None or (probe.draft and probe.draft_ms and probe.draft.sha256 == draft_sha256))
        and (engine_sha256 is None or probe.engine.binary_sha256 == engine_sha256)
        and (threads is None or probe.settings.threads == threads)
    ]
    return max(fitting, key=lambda probe: (probe.source == "libllama", probe.made_at), default=None)


def _probes(folder: Path) -> Iterator[Probe]:
    for path in islice(sorted(folder.glob("*.json")), _MAX_FILES):
        try:
            yield read_probe(path)
        except UsageError:
            continue
