"""Safe file operations for paths of the user and for folders of strangers.

A path that the user names may be anything: a link stays a link, a pipe is written to. Inside a run folder nothing is
followed: `open_inside`, `write_inside` and their neighbours take the folder and a name in it, go from handle to handle
where the platform can (so that nothing that is swapped meanwhile is followed either), and refuse links, hard links,
pipes and devices. Whatever is written appears whole or not at all, and has reached the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from specmeter.text import size

_OPEN_ALREADY = re.compile(r"/dev/(std(out|err)|fd/\d+)|/proc/(self|\d+)/fd/\d+")
"""Other names of what a process has open."""
UNFINISHED = re.compile(r"\.specmeter-[0-9a-f]{16}\.part")
"""Names of files that are not whole yet."""
SILENCE_S = 60
"""Seconds of silence before a pipe times out."""
_HANDLES = os.open in os.supports_dir_fd
"""Whether a name can be looked up in an open folder; Windows cannot."""
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | os.O_RDONLY
_LOCK_POLL_S = 0.02
_LOCKED_BYTE = 1 << 30
"""Windows refuses reads of a locked range to others; a byte far beyond a text leaves the text readable."""
_REPARSE = 0x400
"""Windows: links, junctions and their like."""


# --- files that the user names ---------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Generator[IO[bytes]]:
    """A stream to write to. What is written becomes the file at the end; when anything is raised, nothing of it does.

    A link stays a link: what it points to is replaced. A device or a pipe (`/dev/null`, `/dev/stdout`) is written to
    as it is, since replacing it would take it away from everybody else; so is a file that such a name stands for
    (`--out /dev/stdout >> all.csv`), behind what it holds already. Raises `OSError`.
    """
    if (path.exists() and not path.is_file()) or _OPEN_ALREADY.fullmatch(path.absolute().as_posix()):
        with path.open("ab") as stream:
            yield stream
        return
    place = Path(os.path.realpath(path))
    with whole_inside(place.parent, place.name) as stream:
        yield stream


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of these bytes, as `whole_file` does. Raises `OSError`."""
    with whole_file(path) as stream:
        stream.write(data)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Holds the lock on a file; waits for its holder. The file stays: removing it would race with the next one.

    Raises `OSError`.
    """
    with _lock_file(path) as file:
        while True:
            try:
                lock(file)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_S)
        yield


@contextmanager
def locked_at_once(path: Path) -> Generator[None]:
    """The same, which does not wait: raises `BlockingIOError` where another has it."""
    with _lock_file(path) as file:
        lock(file)
        yield


@contextmanager
def _lock_file(path: Path) -> Generator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
    try:
        yield file
    finally:
        os.close(file)


def lock(file: int, *, shared: bool = False) -> None:
    """Lock an open file, by the operating system: until it is closed, or the process ends, however that ends.

    Raises `BlockingIOError` where another has it, `OSError` where the file system knows no locks.
    """
    try:
        _lock(file, shared=shared)
    except PermissionError as error:
        raise BlockingIOError(*error.args) from None


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, shared: bool) -> None:  # noqa: ARG001
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int, *, shared: bool) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


class NotPlainError(OSError):
    """What lies there is not a plain file, or not one of this folder; `strerror` says what it is."""


def fix_for(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "close other programs, or raise the limit on open files (`ulimit -n`)"
    return "check the path, its permissions and disk space"


def open_regular(path: Path) -> BufferedReader:
    """A file that a user names, to read: links are followed, but a pipe or a device is not waited for.

    Raises `OSError`, `NotPlainError` for what is not a regular file.
    """
    _refuse_irregular(path.stat(), path)
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _refuse_irregular(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def read_named(path: Path, most_bytes: int) -> bytes:
    """What a file or a pipe that a user names holds, up to `most_bytes` bytes; a device is not read.

    Raises `OSError`, `NotPlainError` for a device, `TimeoutError` for a pipe that nothing writes to.
    """
    if stat.S_ISFIFO(path.stat().st_mode):
        return read_pipe(path, most_bytes, SILENCE_S)
    with open_regular(path) as file:
        return file.read(most_bytes)


def read_pipe(path: Path, most_bytes: int, silence_s: float) -> bytes:
    """What a pipe brings until its end, up to `most_bytes` bytes. Raises `TimeoutError` when it is silent for long."""
    content = bytearray()
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:  # noqa: PTH123
        while len(content) < most_bytes:
            if not select.select([pipe], [], [], silence_s)[0]:
                raise TimeoutError(errno.ETIMEDOUT, f"this pipe delivered nothing for {silence_s} s", str(path))
            block = pipe.read(min(1 << 16, most_bytes - len(content)))
            if not block:
                break
            content += block
    return bytes(content)


def _refuse_irregular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        why = "is a folder" if stat.S_ISDIR(found.st_mode) else "is not a regular file"
        raise NotPlainError(errno.EINVAL, why, str(path))


# --- files inside a folder that others may have made -----------------------------------------------------------------


def open_inside(folder: Path, name: str) -> BufferedReader:
    """A plain file of a folder, to read; `name` may have folders in it (`logs/a.log`). Raises `OSError`."""
    with _within(folder, name) as (last, at):
        _refuse_odd(os.stat(last, dir_fd=at, follow_symlinks=False), folder / name)
        file = os.open(last, os.O_RDONLY | _FLAGS, dir_fd=at)
    return os.fdopen(_plain(file, folder / name), "rb")


def read_inside(folder: Path, name: str, most_bytes: int) -> bytes:
    """The content of a plain file of a folder. Raises `OSError`, also for one of more than `most_bytes` bytes."""
    with open_inside(folder, name) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {size(most_bytes)}", str(folder / name))
    return content


@contextmanager
def whole_inside(folder: Path, name: str) -> Generator[IO[bytes]]:
    """A stream to a file of a folder, which appears at the end; a link of that name is replaced, not followed.

    Raises `OSError`.
    """
    with _within(folder, name) as (last, at), _replacing(last, at) as stream:
        yield stream


def write_inside(folder: Path, name: str, data: bytes) -> None:
    """Write a file of these bytes, as `whole_inside` does. Raises `OSError`."""
    with whole_inside(folder, name) as stream:
        stream.write(data)


def open_to_change(folder: Path, name: str) -> int:
    """A plain file of a folder as a descriptor, to read and to change; made where there is none. Raises `OSError`."""
    with _within(folder, name) as (last, at):
        with contextlib.suppress(FileNotFoundError):
            _refuse_odd(os.stat(last, dir_fd=at, follow_symlinks=False), folder / name)
        file = os.open(last, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644, dir_fd=at)
    return _plain(file, folder / name)


def without_links(path: str, flags: int) -> int:
    """For `open(..., opener=without_links)`: the last name of a path is not followed. Raises `OSError`."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def make_folder_inside(folder: Path, name: str) -> None:
    """Make a folder in a folder, unless it is there. Raises `OSError`, also where a link or a file is in its place."""
    with _within(folder, name) as (last, at):
        with contextlib.suppress(FileExistsError):
            os.mkdir(last, dir_fd=at)
        _refuse_no_folder(os.stat(last, dir_fd=at, follow_symlinks=False), folder / name)


def remove_inside(folder: Path, name: str) -> None:
    """Remove a name from a folder, where it is there; what a link points to stays. Raises `OSError`."""
    with _within(folder, name) as (last, at), contextlib.suppress(FileNotFoundError):
        os.unlink(last, dir_fd=at)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes had started to write into a folder, as far as it can be; no other may be writing."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if UNFINISHED.fullmatch(path.name):
                remove_inside(folder, path.name)


def oddity(folder: Path, name: str) -> str | None:
    """What a name of a folder is instead of a plain file, for people; None for a plain file, or where there is none."""
    try:
        with _within(folder, name) as (last, at):
            _refuse_odd(os.stat(last, dir_fd=at, follow_symlinks=False), folder / name)
    except NotPlainError as error:
        return error.strerror
    except OSError:
        return None
    return None


def is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or a junction; what it leads through does not count."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or _is_reparse_point(found)


@contextmanager
def _within(folder: Path, name: str) -> Generator[tuple[str, int | None]]:
    """(what to ask the system for, the handle of the folder that it is looked up in)."""
    *above, last = _parts(name, folder)
    if not _HANDLES:
        for part in above:
            folder = folder / part
            _refuse_no_folder(folder.lstat(), folder)
        yield str(folder / last), None
        return
    at = os.open(folder, _FOLDER)
    try:
        for part in above:
            folder = folder / part
            _refuse_no_folder(os.stat(part, dir_fd=at, follow_symlinks=False), folder)
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        yield last, at
    finally:
        os.close(at)


def _parts(name: str, folder: Path) -> list[str]:
    """Names of a path that goes down and nowhere else; it may come from a stranger."""
    parts = name.split("/")
    odd = "\0:\\" if os.name == "nt" else "\0"
    if any(part in ("", ".", "..") or not set(odd).isdisjoint(part) for part in parts):
        raise NotPlainError(errno.EINVAL, "leads outside its folder", str(folder / name.replace("\0", "?")))
    return parts


@contextmanager
def _replacing(name: str, at: int | None) -> Generator[IO[bytes]]:
    """A stream into a new file of a random name, which takes the place of `name` at the end."""
    temporary = str(Path(name).with_name(f".specmeter-{secrets.token_hex(8)}.part"))
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666, dir_fd=at)
    try:
        with os.fdopen(file, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
    if at is not None:
        # Some network drives cannot; the file itself is safe.
        with contextlib.suppress(OSError):
            os.fsync(at)


def _plain(file: int, path: Path) -> int:
    """The same descriptor, of a plain file: what lay there may have been swapped since it was looked at."""
    try:
        _refuse_odd(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return file


def _refuse_odd(found: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFLNK or _is_reparse_point(found):
        why = "is a symbolic link, which is not followed"
    elif kind != stat.S_IFREG:
        why = "is a folder" if kind == stat.S_IFDIR else "is not a file but a pipe or a device"
    elif found.st_nlink > 1:
        why = "has other names too (hard links)"
    else:
        return
    raise NotPlainError(errno.ELOOP, why, str(path))


def _refuse_no_folder(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISDIR(found.st_mode) or _is_reparse_point(found):
        why = "is a symbolic link, which is not followed" if stat.S_ISLNK(found.st_mode) else "is not a folder"
        raise NotPlainError(errno.ENOTDIR, why, str(path))


def _is_reparse_point(found: os.stat_result) -> bool:
    return bool(getattr(found, "st_file_attributes", 0) & _REPARSE)
