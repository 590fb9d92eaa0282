"""Resolves model references: a path, `bench:NAME[?...]`, `hf:OWNER/REPO/FILE.gguf[@REVISION]`, or what is made of one
of these: another type of `llama-quantize`, `quant:TYPE:REFERENCE`, or an MoE, `twin:16x2:REFERENCE`.

It also lists which models of an experiment are not on this machine, with sizes and how to get each; and which ones
other programs left here (llama.cpp, LM Studio, Ollama, Hugging Face). For these only their own folders are looked at,
to the depth that they have, and no more than `MAX_ENTRIES` entries of any. Links to folders are not followed. Of what
is found only the first four bytes are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from specmeter.cache import cache_dir, file_sha256, platform_cache
from specmeter.errors import ModelError
from specmeter.files import open_regular
from specmeter.record import ModelIdentity, Record
from specmeter.text import size

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a model is built or downloaded."""
ModelProgress = Callable[[str, int, int], None]
"""The same for several models: called with (name of the model, bytes done, bytes in all)."""
_Plain = Literal["path", "bench", "hf"]
Origin = Literal[_Plain, "quant", "twin"]


@dataclass(frozen=True)
class Fetching:
    """How models come to this machine: said once, by the command line or in Python, and handed on as a whole."""

    offline: bool = False
    """Whether only models are used that are here already (or made here)."""
    progress: ModelProgress | None = None

    def progress_of(self, name: str) -> Progress | None:
        return None if self.progress is None else partial(self.progress, name)


ONLINE = Fetching()
"""What is missing is downloaded, without a progress display."""
OFFLINE = Fetching(offline=True)

_MADE = re.compile(r"(?:(?:quant|twin):[^:]*:)+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""Two letters at least: `C:` is a drive."""
_MAX_LISTED = 10_000

_SHOWN = 300
"""Characters of a reference: it comes from a file that anybody may have written."""
_YOURS = "/path/to/model.gguf"

MAX_ENTRIES = 200
"""Entries of a folder that are looked at."""
_MANIFEST_BYTES = 100_000
_MIN_BYTES = 100_000
"""Smaller files hold no model worth a measurement."""


def resolve(
    name: str,
    reference: str,
    *,
    base_dir: Path,
    fetching: Fetching = ONLINE,
) -> ModelIdentity:
    """The model file behind `reference`, built or downloaded if need be, checked and hashed.

    `name` is the model's name in the experiment; a relative path is taken from `base_dir`, the experiment's folder.
    The SHA-256 of a model that is split over several files is that of the
    parts' SHA-256, one per line. Raises `ModelError` when the reference is malformed, or the file is missing, no
    GGUF file, damaged, or truncated.
    """
    from specmeter.models import bench
    from specmeter.models.gguf import read_parts

    path = locate(reference, base_dir=base_dir, name=name, fetching=fetching).absolute()
    parts = [header.path for header in read_parts(path)]
    dense = made_of(reference)
    origin = _plain_origin(dense)
    return ModelIdentity(
        name=name,
        reference=reference,
        path=str(path),
        sha256=_sha256(parts),
        size_bytes=sum(part.stat().st_size for part in parts),
        # One that is made of the hub's is a file of this machine.
        origin="path" if dense != reference and origin == "hf" else origin,
        timing_only=origin == "bench" and bench.parse(dense).timing_only,
    )


def made_of(reference: str) -> str:
    """The reference of the file that a model is made of; any other reference as it is."""
    match = _MADE.match(reference)
    return reference[match.end() :] if match else reference


def with_dense(reference: str, dense: str) -> str:
    """The same reference with another one for the model that it is made of."""
    match = _MADE.match(reference)
    return f"{match[0]}{dense}" if match else dense


def file_of(reference: str) -> str | None:
    """Name of the file behind a reference; None of a bench model, a mock, and of none."""
    source = made_of(reference)
    if not source or source.startswith(("bench:", "mock:")):
        return None
    return re.split(r"[/\\]", source.rpartition("@")[0] if source.startswith("hf:") and "@" in source else source)[-1]


def refuse_changes(model: ModelIdentity) -> None:
    """Raise `ModelError` when what lies at the model's path is not what it was identified by (or no model at all); what
    is not a file here, the engine itself answers for."""
    if model.origin in ("mock", "engine"):
        return
    from specmeter.models.gguf import read_parts

    if _sha256([header.path for header in read_parts(Path(model.path))]) != model.sha256:
        raise ModelError(
            f"{model.path}: the file has changed since the run started",
            fix="restore the old file and run the same command again, or start a new run (--new)",
        )


def _sha256(parts: Sequence[Path]) -> str:
    sums = [file_sha256(part) for part in parts]
    return sums[0] if len(sums) == 1 else hashlib.sha256("\n".join(sums).encode()).hexdigest()


def peek(reference: str, *, base_dir: Path = Path(), offline: bool = False) -> tuple[int | None, bool]:
    """Size in bytes (None: not known) and whether it is on this machine; nothing is built or downloaded.

    Raises `ModelError` when the reference is malformed or names nothing that exists.
    """
    from specmeter.models import bench, hub
    from specmeter.models.gguf import part_paths

    origin = origin_of(reference)
    if origin == "twin":
        from specmeter.models import twin

        wanted = twin.parse(reference)
        if not peek(wanted.parent, base_dir=base_dir, offline=offline)[1]:
            return None, False
        return twin.peek(wanted, locate(wanted.parent, base_dir=base_dir, fetching=OFFLINE))
    if origin == "quant":
        from specmeter.models import requantize

        spec = requantize.parse(reference)
        if not peek(spec.parent, base_dir=base_dir, offline=offline)[1]:
            return None, False
        found = requantize.plan(locate(spec.parent, base_dir=base_dir, fetching=OFFLINE), spec.kind, again=True)
        return found.size_bytes, found.path.is_file()
    if origin == "hf":
        return hub.peek(hub.parse(reference), offline=offline)
    if origin == "bench":
        plan = bench.describe(bench.parse(reference))
        return plan.size_bytes, plan.path.is_file()
    path = _existing(_path(reference, base_dir))
    return sum(part.stat().st_size for part in part_paths(path) if part.is_file()), True


def check_path(reference: str, base_dir: Path) -> None:
    """Raise `ModelError`, with the names of models beside it, when a reference by path leads to no file."""
    _existing(_path(reference, base_dir))


def locate(reference: str, *, base_dir: Path, name: str = "", fetching: Fetching = ONLINE) -> Path:
    """Path of the (first) file behind `reference`, built or downloaded if need be; its content is not looked at.

    Its progress is told by `name`, or else by the reference. Raises `ModelError` as `resolve` does.
    """
    from specmeter.models import bench, hub

    origin, progress = origin_of(reference), fetching.progress_of(name or reference)
    if origin == "twin":
        from specmeter.models import twin

        wanted = twin.parse(reference)
        parent = locate(wanted.parent, base_dir=base_dir, name=name, fetching=fetching)
        return twin.build(wanted, parent, progress=progress)
    if origin == "quant":
        from specmeter.models import requantize

        spec = requantize.parse(reference)
        parent = locate(spec.parent, base_dir=base_dir, name=name, fetching=fetching)
        return requantize.make(parent, spec.kind, progress, again=True).path
    if origin == "hf":
        return hub.fetch(hub.parse(reference), offline=fetching.offline, progress=progress)
    if origin == "bench":
        return bench.build(bench.parse(reference), progress=progress)
    return _existing(_path(reference, base_dir))


def origin_of(reference: str) -> Origin:
    """Where a reference points. Raises `ModelError` for an unknown scheme or an empty reference."""
    for made in ("quant", "twin"):
        if reference.startswith(f"{made}:"):
            return made
    return _plain_origin(reference)


def _plain_origin(reference: str) -> _Plain:
    if reference.startswith(("hf:", "bench:")):
        return "hf" if reference.startswith("hf:") else "bench"
    if not reference.strip() or "\0" in reference:
        raise ModelError(f"{reference!r} is not a model reference", fix=_KINDS)
    scheme = _SCHEME.match(reference)
    if scheme and not Path(reference).exists():
        raise ModelError(f"{reference!r}: unknown prefix {scheme[0]!r}", fix=_KINDS)
    return "path"


def absolute(reference: str) -> str:
    """A reference that means the same wherever it is read: a path from the root, any other as it is.

    Raises `ModelError` for an unknown scheme, an empty reference, or the home of a user who is not there.
    """
    dense = made_of(reference)
    if reference.startswith("mock:") or origin_of(dense) != "path":
        return reference
    try:
        return with_dense(reference, str(Path(dense).expanduser().absolute()))
    except RuntimeError as error:
        raise ModelError(f"{reference}: {error}", fix="write the path without ~") from None


def means_a_model(reference: str) -> bool:
    """Whether a model is meant, and not an experiment: by its scheme, its ending, or what the file begins with."""
    if reference.startswith(("hf:", "bench:", "mock:", "quant:", "twin:")) or reference.lower().endswith(".gguf"):
        return True
    try:
        path = Path(reference).expanduser()
        if not path.is_file():  # a pipe is read once
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError, RuntimeError):
        return False


_KINDS = (
    "use a path, bench:NAME (see `specmeter models list`), hf:OWNER/REPO/FILE.gguf, quant:TYPE:MODEL or twin:16x2:MODEL"
)


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
        raise ModelError(f"{path} is a directory", fix=f"pass a .gguf file in it: {shown}")
    if path.name in names:
        raise ModelError(f"{path}: not a regular file", fix="pass a .gguf file")
    near = get_close_matches(path.name, names, n=3, cutoff=0.6) or models[:5]
    raise ModelError(
        f"{path}: no such file",
        fix=f"did you mean {', '.join(near)}?" if near else "check the path",
    )


class AbsentModel(Record):
    """A model that is not here."""

    key: str
    """`targets.NAME` or `drafts.NAME`."""
    reference: str
    """Of the file: of a model that is made from another, of that one."""
    made_from: bool = False
    """Whether the model is made from it."""
    size_bytes: int | None
    """None where it is unknown."""
    about: bool = False
    """Whether the size is the experiment's own statement, because the hub could not be asked."""
    why: str | None
    """Why it is unavailable; None where a run would download it."""

    @property
    def commands(self) -> tuple[str, ...]:
        """What brings it here, or makes a run use another file."""
        own = () if self.made_from else (f"--set {shlex.quote(f'{self.key}={_YOURS}')}",)
        if origin_of(self.reference) != "hf":
            return own
        return f"specmeter models build {shlex.quote(self.reference)}", *own


def absent_models(
    references: Mapping[str, str],
    *,
    base_dir: Path,
    offline: bool = False,
    ask: bool = True,
    sizes: Mapping[str, float] | None = None,
) -> tuple[AbsentModel, ...]:
    """Those of the models (by their keys) that are not here; bench models are made when they are needed.

    `sizes` (bytes, by the same keys) are used for models on a hub that cannot be asked.
    With `offline` a model on a hub is unavailable unless it is here. A hub is asked for sizes, unless `offline` or not
    to `ask`; then models on it are not looked at. Raises `ModelError` for a reference that is malformed.
    """
    found: list[AbsentModel] = []
    for key, given in references.items():
        reference = made_of(given)
        origin = origin_of(reference)
        more: Iterable[AbsentModel] = ()
        if origin == "path":
            more = _file(key, reference, base_dir)
        elif origin == "hf" and (offline or ask):
            more = _on_hub(key, reference, offline=offline)
        found += (it.model_copy(update={"made_from": given != reference}) for it in more)
    return tuple(_sized(model, (sizes or {}).get(model.key)) for model in found)


def refuse_absent(models: Sequence[AbsentModel], own: str = "name files of your own with --set") -> None:
    """Raise one `ModelError` about all of them when one of them is unavailable; `own` is another way to give them."""
    lacking = [model for model in models if model.why is not None]
    if not lacking:
        return
    there = [model for model in models if model.why is None]
    count = f"{len(lacking)} models are" if len(lacking) > 1 else "a model is"
    lines = [f"{count} not on this machine:"]
    told: set[str] = set()
    for model in lacking:
        new = [command for command in model.commands if command not in told]
        lines += [f"  {_named(model)}: {model.why}", *(f"      {command}" for command in new)]
        told |= {*new}
    if there:
        lines += ["a run would also download:", *(f"  {_named(model)}" for model in there)]
    files = {model.reference: model for model in models}.values()
    sizes = [model.size_bytes for model in files if model.size_bytes is not None]
    if len(sizes) > 1:
        about = "about " * any(model.about for model in files)
        lines.append(f"together {about}{size(sum(sizes))}" + ("" if len(sizes) == len(files) else ", as far as known"))
    on_hub = any(origin_of(model.reference) == "hf" for model in lacking)
    raise ModelError("\n".join(lines), fix=f"download them with these commands, or {own}" if on_hub else own)


def _sized(model: AbsentModel, size: float | None) -> AbsentModel:
    if model.size_bytes is not None or size is None or origin_of(model.reference) != "hf":
        return model
    return model.model_copy(update={"size_bytes": int(size), "about": True})


def _file(key: str, reference: str, base_dir: Path) -> Iterator[AbsentModel]:
    try:
        check_path(reference, base_dir)
    except ModelError as error:
        why = f"{error.message}; {error.fix}"
        yield AbsentModel(key=key, reference=reference, size_bytes=None, why=why)


def _on_hub(key: str, reference: str, *, offline: bool) -> Iterator[AbsentModel]:
    from specmeter.models import hub

    file = hub.parse(reference)
    try:
        size, present = hub.peek(file, offline=offline)
    except ModelError as error:
        why = f"{error.message.removeprefix(f'{file}: ')}; {error.fix}"
        yield AbsentModel(key=key, reference=reference, size_bytes=None, why=why)
        return
    if present:
        return
    why = None
    if offline:
        why = "not downloaded yet, and --offline forbids it"
    elif size is None:
        why = "not downloaded yet, and the hub cannot be reached"
    yield AbsentModel(key=key, reference=reference, size_bytes=size, why=why)


def _named(model: AbsentModel) -> str:
    told = "size unknown" if model.size_bytes is None else "about " * model.about + size(model.size_bytes)
    shown = model.reference if len(model.reference) <= _SHOWN else model.reference[:_SHOWN] + "..."
    return f"{model.key} = {shown} ({told})"


class FoundModel(NamedTuple):
    """A GGUF file that lies on this machine."""

    name: str
    path: Path
    size_bytes: int
    """Of this file alone."""
    place: str
    """Whose folder it lies in."""


def found_models() -> list[FoundModel]:
    """The models, each file once, the largest first."""
    try:
        home, cache = Path.home(), platform_cache()
    except RuntimeError:  # there is none
        return []
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or home / ".cache" / "huggingface") / "hub"
    folders = [
        ("this folder", Path(), 0),
        ("models", Path("models"), 1),
        ("llama.cpp", Path(os.environ.get("LLAMA_CACHE") or cache / "llama.cpp"), 0),
        ("LM Studio", home / ".lmstudio" / "models", 2),
        ("LM Studio", home / ".cache" / "lm-studio" / "models", 2),
        ("Hugging Face", Path(hub), 3),
        ("specmeter", cache_dir() / "hub", 4),
    ]
    found: dict[Path, FoundModel] = {}
    for place, folder, depth in folders:
        for path in _files(folder, depth):
            _keep(found, path.stem, path, place)
    ollama = [Path(named)] if (named := os.environ.get("OLLAMA_MODELS")) else [home / ".ollama" / "models"]
    if sys.platform == "linux":
        ollama.append(Path("/usr/share/ollama/.ollama/models"))
    for folder in ollama:
        for name, path in _of_ollama(folder):
            _keep(found, name, path, "Ollama")
    return sorted(found.values(), key=lambda it: (-it.size_bytes, it.name))


def _keep(found: dict[Path, FoundModel], name: str, path: Path, place: str) -> None:
    try:
        real = path.resolve()
        size_bytes = real.stat().st_size
        if real in found or size_bytes < _MIN_BYTES or not real.is_file():
            return
        with real.open("rb") as file:
            if file.read(4) != b"GGUF":
                return
    except (OSError, RuntimeError):
        return
    found[real] = FoundModel(name, path, size_bytes, place)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """GGUF files in a folder and `depth` levels below it; of split models the first part."""
    from specmeter.models.gguf import first_part

    for entry in _entries(folder):
        name = entry.name
        if name.lower().endswith(".gguf"):
            if first_part(name) and "mmproj" not in name.lower():
                yield Path(entry.path)
        elif depth and not name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), depth - 1)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, MAX_ENTRIES), key=lambda it: it.name)
    except OSError:
        return []


def _of_ollama(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file): manifests name the files, which are called after their hashes."""
    for host in _folders(folder / "manifests"):
        for owner in _folders(host):
            for model in _folders(owner):
                for tag in _entries(model):
                    if (digest := _digest(Path(tag.path))) is not None:
                        yield f"{model.name}:{tag.name}", folder / "blobs" / digest.replace(":", "-")


def _folders(folder: Path) -> list[Path]:
    return [Path(it.path) for it in _entries(folder) if it.is_dir(follow_symlinks=False)]


def _digest(manifest: Path) -> str | None:
    """The hash of the model in a manifest of Ollama."""
    try:
        with open_regular(manifest) as file:
            document: Any = json.loads(file.read(_MANIFEST_BYTES))
        layers = cast("list[dict[str, Any]]", document["layers"])
        digest = next(it["digest"] for it in layers if it["mediaType"] == "application/vnd.ollama.image.model")
    except (OSError, ValueError, RecursionError, KeyError, TypeError, StopIteration):
        return None
    algorithm, _, number = str(digest).partition(":")
    return digest if algorithm == "sha256" and len(number) == 64 and number.isalnum() else None
