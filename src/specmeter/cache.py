"""The user's cache folder: built and fetched models with their checksums; a file is built once and appears whole."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from specmeter.errors import ModelError
from specmeter.files import locked, locked_at_once, write_whole
from specmeter.text import size

_SETTLED_S = 2.0
"""A file younger than this may change again within one tick of a coarse clock: its checksum is not remembered."""


def cache_dir() -> Path:
    """The folder for everything that can be made or fetched again; it may not exist yet.

    `SPECMETER_CACHE` names it outright; otherwise it is `specmeter` in the platform's cache folder. Raises `ModelError`
    when there is neither the variable nor a home folder.
    """
    if named := os.environ.get("SPECMETER_CACHE"):
        return Path(named).expanduser().absolute()
    return platform_cache() / "specmeter"


def platform_cache() -> Path:
    try:
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            return Path(local) if local else Path.home() / "AppData" / "Local"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches"
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        # The XDG specification tells programs to ignore a relative path.
        return Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise ModelError(
            f"no home folder for the model cache ({error})", fix="set SPECMETER_CACHE to a folder"
        ) from error


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file in hexadecimal, remembered by its resolved path, size and time of change.

    Raises `ModelError` when the file cannot be read. A cache that cannot be written to costs time, not correctness.
    """
    file = Path(path)
    try:
        file = file.resolve(strict=True)
        before = file.stat()
        identity = f"{file}\0{before.st_size}\0{before.st_mtime_ns}"
        note = cache_dir() / "sha256" / hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
        if remembered := _read_note(note):
            return remembered
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        after = file.stat()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror})", fix="check the path and its permissions"
        ) from error
    unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if unchanged and time.time() - after.st_mtime > _SETTLED_S:
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, digest.encode())
    return digest


def _read_note(note: Path) -> str | None:
    try:
        text = note.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return text if len(text) == 64 else None


def create_once(path: Path, size_bytes: int, write: Callable[[BinaryIO], None]) -> Path:
    """Makes `path` by `write(file)` unless it is there already with `size_bytes` bytes; returns `path`.

    The file appears complete or not at all, whatever ends the process. A second process waits for the first. What
    killed processes left unfinished in the folder is removed. Raises `ModelError` when the disk cannot hold the file.
    """
    if _is_complete(path, size_bytes):
        return path
    part = path.with_name(f"{path.name}.part")
    with _told(
        path, size_bytes, "set SPECMETER_CACHE to a folder on another disk", "set SPECMETER_CACHE to a writable folder"
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        _locks(path).mkdir(exist_ok=True)
        with locked(_cache_lock(path)):
            if not _is_complete(path, size_bytes):
                _remove_unfinished(path.parent)
                _write_whole(part, size_bytes, write, lambda: part.replace(path))
    return path


def write_new(path: Path, size_bytes: int, write: Callable[[BinaryIO], None]) -> Path:
    """Makes `path`, a file of the user's, by `write(file)`; returns `path`.

    The file appears complete or not at all, and takes the place of no other. Raises `ModelError` when it exists, or
    cannot be written.
    """
    part = path.with_name(f".specmeter-{secrets.token_hex(8)}.part")
    with _told(path, size_bytes, "write to another disk", "give a file in a folder that you can write to"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(part, size_bytes, write, lambda: _take_place(part, path))
    return path


@contextmanager
def _told(path: Path, size_bytes: int, if_full: str, if_refused: str) -> Generator[None]:
    """Raise `ModelError` for what keeps a file from being written; what to do `if_full` and `if_refused`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(path.parent).free
            raise ModelError(
                f"{path.parent}: the model needs {size(size_bytes)} of disk space, but {size(free)} is free",
                fix=f"free some space, {if_full}, or use a smaller model",
            ) from error
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})", fix=if_refused) from error


def _take_place(part: Path, path: Path) -> None:
    """Rename, but never over another file. Some drives have no links; there a moment is left for one to appear."""
    try:
        os.link(part, path)
    except OSError:
        if os.path.lexists(path):
            raise ModelError(f"{path}: exists", fix="give another file, or remove it") from None
        part.rename(path)


def _is_complete(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except OSError:
        return False


def _locks(path: Path) -> Path:
    return path.parent / "locks"


def _cache_lock(path: Path) -> Path:
    return _locks(path) / f"{path.name}.lock"


def _remove_unfinished(folder: Path) -> None:
    """Removes parts that are not being written: their locks are free, or the caller holds them."""
    for part in folder.glob("*.part"):
        try:
            with locked_at_once(_cache_lock(part.with_suffix(""))):
                part.unlink(missing_ok=True)
        except BlockingIOError:
            continue


def _write_whole(
    part: Path, size_bytes: int, write: Callable[[BinaryIO], None], take_place: Callable[[], object]
) -> None:
    """Write `part`, then let it `take_place`. Raises `OSError` at once where the disk cannot hold it."""
    if shutil.disk_usage(part.parent).free < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            # Not only for safety: unwritten pages would be flushed while the first measurement runs.
            os.fsync(file.fileno())
        take_place()
    except BaseException:
        _remove(part)
        raise
    _remove(part)


def _remove(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except KeyboardInterrupt:  # a second Ctrl-C, before it was removed
        part.unlink(missing_ok=True)
