"""What a model reference means: a path, `bench:NAME[?...]` or `hf:OWNER/REPO/FILE.gguf[@REVISION]`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from specmeter.cache import file_sha256
from specmeter.errors import ModelError
from specmeter.models.split import part_paths, read_parts
from specmeter.record import ModelIdentity

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a model is built or downloaded."""
Origin = Literal["path", "bench", "hf"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""Two letters at least: `C:` is a drive."""
_MAX_LISTED = 10_000


def resolve(
    name: str,
    reference: str,
    *,
    base_dir: Path,
    offline: bool = False,
    progress: Progress | None = None,
) -> ModelIdentity:
    """The model file behind `reference`, built or downloaded if need be, checked and hashed.

    `name` is the model's name in the experiment; a relative path is taken from `base_dir`, the experiment's folder.
    With `offline` nothing is downloaded. The SHA-256 of a model that is split over several files is that of the
    parts' SHA-256, one per line. Raises `ModelError` when the reference is malformed, or the file is missing, no
    GGUF file, damaged, or truncated.
    """
    path = locate(reference, base_dir=base_dir, offline=offline, progress=progress).absolute()
    parts = [header.path for header in read_parts(path)]
    origin = origin_of(reference)
    return ModelIdentity(
        name=name,
        reference=reference,
        path=str(path),
        sha256=_sha256(parts),
        size_bytes=sum(part.stat().st_size for part in parts),
        origin=origin,
        timing_only=origin == "bench" and _is_timing_only(reference),
    )


def refuse_changes(model: ModelIdentity) -> None:
    """Raise `ModelError` when what lies at the model's path is not what it was identified by (or no model at all); what
    is not a file here, the engine itself answers for."""
    if (
        model.origin not in ("mock", "engine")
        and _sha256([header.path for header in read_parts(Path(model.path))]) != model.sha256
    ):
        raise ModelError(
            f"{model.path}: the file changed since the run began",
            fix="restore the old file and run the same command again, or start a new run (--new)",
        )


def _sha256(parts: Sequence[Path]) -> str:
    sums = [file_sha256(part) for part in parts]
    return sums[0] if len(sums) == 1 else hashlib.sha256("\n".join(sums).encode()).hexdigest()


def peek(reference: str, *, base_dir: Path = Path(), offline: bool = False) -> tuple[int | None, bool]:
    """Size in bytes (None: not known) and whether it is on this machine; nothing is built or downloaded.

    Raises `ModelError` when the reference is malformed or names nothing that exists.
    """
    origin = origin_of(reference)
    if origin == "hf":
        from specmeter.models import hub

        return hub.peek(hub.parse(reference), offline=offline)
    if origin == "bench":
        from specmeter.models import bench

        plan = bench.describe(bench.parse(reference))
        return plan.size_bytes, plan.path.is_file()
    path = _existing(_path(reference, base_dir))
    return sum(part.stat().st_size for part in part_paths(path) if part.is_file()), True


def check_path(reference: str, base_dir: Path) -> None:
    """Raise `ModelError`, with the names of models beside it, when a reference by path leads to no file."""
    _existing(_path(reference, base_dir))


def locate(reference: str, *, base_dir: Path, offline: bool = False, progress: Progress | None = None) -> Path:
    """Path of the (first) file behind `reference`, built or downloaded if need be; its content is not looked at.

    Raises `ModelError` as `resolve` does.
    """
    origin = origin_of(reference)
    if origin == "hf":
        from specmeter.models import hub

        return hub.fetch(hub.parse(reference), offline=offline, progress=progress)
    if origin == "bench":
        from specmeter.models import bench

        return bench.build(bench.parse(reference), progress=progress)
    return _existing(_path(reference, base_dir))


def origin_of(reference: str) -> Origin:
    """Where a reference points. Raises `ModelError` for an unknown scheme or an empty reference."""
    if reference.startswith(("hf:", "bench:")):
        return "hf" if reference.startswith("hf:") else "bench"
    if not reference.strip() or "\0" in reference:
        raise ModelError(f"{reference!r} is not a model reference", fix=_KINDS)
    scheme = _SCHEME.match(reference)
    if scheme and not Path(reference).exists():
        raise ModelError(f"{reference!r}: unknown kind of model reference {scheme[0]!r}", fix=_KINDS)
    return "path"


def absolute(reference: str) -> str:
    """A reference that means the same wherever it is read: a path from the root, any other as it is.

    Raises `ModelError` for an unknown scheme, an empty reference, or the home of a user who is not there.
    """
    if reference.startswith("mock:") or origin_of(reference) != "path":
        return reference
    try:
        return str(Path(reference).expanduser().absolute())
    except RuntimeError as error:
        raise ModelError(f"{reference}: {error}", fix="write the path without ~") from None


def means_a_model(reference: str) -> bool:
    """Whether a model is meant, and not an experiment: by its scheme, its ending, or what the file begins with."""
    if reference.startswith(("hf:", "bench:", "mock:")) or reference.lower().endswith(".gguf"):
        return True
    try:
        path = Path(reference).expanduser()
        if not path.is_file():  # a pipe is read once
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError, RuntimeError):
        return False


_KINDS = "use a path, bench:NAME (see `specmeter models list`) or hf:OWNER/REPO/FILE.gguf"


def _is_timing_only(reference: str) -> bool:
    from specmeter.models import bench

    return bench.parse(reference).timing_only


def _path(reference: str, base_dir: Path) -> Path:
    try:
        return base_dir / Path(reference).expanduser()
    except RuntimeError as error:
        raise ModelError(f"{reference!r}: {error}", fix="write the path without ~") from error


def _existing(path: Path) -> Path:
    """`path`, if it is a file; otherwise an error that names the models beside it."""
    try:
        if path.is_file():
            return path
        folder = path if path.is_dir() else path.parent
        names = sorted(entry.name for entry, _ in zip(folder.iterdir(), range(_MAX_LISTED), strict=False))
    except OSError:
        names, folder = [], path
    models = [name for name in names if name.lower().endswith(".gguf")]
    if path == folder and path.is_dir():
        shown = ", ".join(models[:5]) or "it contains none"
        raise ModelError(f"{path} is a directory", fix=f"name a .gguf file in it: {shown}")
    if path.name in names:
        raise ModelError(f"{path}: is not a regular file", fix="name a .gguf file")
    near = get_close_matches(path.name, names, n=3, cutoff=0.6) or models[:5]
    raise ModelError(
        f"{path}: no such file",
        fix=f"did you mean {', '.join(near)}?" if near else "check the path",
    )
