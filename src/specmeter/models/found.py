"""Models that other programs left on this machine: where llama.cpp, LM Studio, Ollama, Hugging Face and specmeter keep
GGUF files.

Only their own folders are looked at, to the depth that they have, and no more than `MOST` entries of any: this is a
hint for the start, not an inventory. Links to folders are not followed. What is found is named, not read, but for its
first four bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from specmeter.cache import cache_dir, platform_cache
from specmeter.files import open_regular
from specmeter.models.split import first_part

MOST = 200
"""Entries of a folder that are looked at."""
_MANIFEST_BYTES = 100_000
_LEAST_BYTES = 100_000
"""Smaller files hold no model worth a measurement."""


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
        if real in found or size_bytes < _LEAST_BYTES or not real.is_file():
            return
        with real.open("rb") as file:
            if file.read(4) != b"GGUF":
                return
    except (OSError, RuntimeError):
        return
    found[real] = FoundModel(name, path, size_bytes, place)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """GGUF files in a folder and `depth` levels below it; of split models the first part."""
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
            return sorted(islice(entries, MOST), key=lambda it: it.name)
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
