"""Which files an engine consists of, and their checksums."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

_SHARED = re.compile(r"\.(so(\.[\d.]+)?|dylib|dll|pyd)$")
_OURS = re.compile(r"^(lib)?(llama|ggml|mtmd|gguf)", re.IGNORECASE)
"""Names of llama.cpp's own libraries; the system's are not the engine's."""


def sha256_of(path: Path) -> str:
    """Checksum of one file, cached by size and time of change. Raises `ModelError` when it cannot be read."""
    from specmeter.cache import file_sha256

    return file_sha256(path)


def checksums(paths: list[Path]) -> dict[str, str]:
    """File name -> SHA-256, links followed and named once, in order of name."""
    files = {path.resolve() for path in paths}
    return {file.name: sha256_of(file) for file in sorted(files, key=lambda file: file.name)}


def wheel_libraries(package: Path) -> list[Path]:
    """Every shared object of an installed package, those that its wheel bundled beside it included."""
    folders = [package, package.with_name(package.name + ".libs"), package / ".dylibs"]
    return [file for folder in folders if folder.is_dir() for file in folder.rglob("*") if _SHARED.search(file.name)]


def binary_libraries(binary: Path) -> list[Path]:
    """llama.cpp's shared objects that a native binary uses: beside it, in `../lib`, and what the loader resolves."""
    folders = {binary.resolve().parent, binary.resolve().parent.parent / "lib"}
    found = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    return [file for file in (*found, *_linked(binary)) if _SHARED.search(file.name) and _OURS.search(file.name)]


def _linked(binary: Path) -> list[Path]:
    command = {"linux": ["ldd"], "darwin": ["otool", "-L"]}.get(sys.platform)
    if command is None:
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listing = subprocess.run(
            [*command, os.fspath(binary)], capture_output=True, text=True, timeout=20, check=False, errors="replace"
        ).stdout
        paths = (Path(path) for path in re.findall(r"(?:=> |^\s)(/[^\s(]+)", listing, re.MULTILINE))
        return [path for path in paths if path.is_file()]
    return []
