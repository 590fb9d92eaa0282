"""Sources of llama.cpp: those of the pinned source package, or the user's own, as a folder or an archive.

The package is downloaded by pip, which knows the user's index, proxy and mirror, and which is told its checksum:
nothing of a package with another one is unpacked or run. Archives are untrusted: they are unpacked into a folder of
their own, with bounds on names, number and bytes, and appear there whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from specmeter.errors import EngineError, UsageError
from specmeter.text import size

NAME = "llama_cpp_python-0.3.36"
TOLD = "llama-cpp-python 0.3.36"
REQUIREMENT = "llama-cpp-python==0.3.36"
"""The source package whose llama.cpp is nearest to that of the installed wheel."""
ARCHIVE = f"{NAME}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
_INSIDE = f"{NAME}/vendor/llama.cpp"

_MAX_FILES = 100_000
_MAX_BYTES = 4 * 2**30
_MAX_DEPTH = 3
"""How far below the top of an archive or a folder llama.cpp is looked for."""
_MAX_FOLDERS = 1000
_SIGNS = ("CMakeLists.txt", "ggml/CMakeLists.txt", "include/llama.h")
_CHUNK = 1 << 20
_ASK_S = 30.0

Run = Callable[[Sequence[str]], None]
"""Runs a command and shows how far it is; raises `EngineError` with what it printed when it fails."""


def packaged(folder: Path, run: Run) -> Path:
    """llama.cpp of the pinned source package, unpacked below `folder`; downloaded unless it is there already.

    Raises `UsageError` without pip, `EngineError` when the package cannot be downloaded.
    """
    source = folder / _INSIDE
    if is_llama_cpp(source):
        return source
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        wanted = Path(name) / "requirements.txt"
        wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="ascii")
        only = ["--no-deps", "--no-binary", REQUIREMENT.partition("==")[0], "--require-hashes"]
        try:
            run([*_pip(), "download", *only, "--retries", "2", "--dest", name, "-r", str(wanted)])
        except EngineError as error:
            raise EngineError(
                f"the source package {REQUIREMENT} could not be downloaded: {error.message}",
                fix="connect to a package index (pip's settings apply), or give sources: --source FOLDER or ARCHIVE; "
                f"on another machine: pip download --no-deps --no-binary :all: {REQUIREMENT}",
            ) from None
        unpack(_checked(Path(name) / ARCHIVE), folder / NAME, below=NAME, only=_INSIDE)
    return _found(folder / NAME, REQUIREMENT)


def given(source: Path, folder: Path) -> Path:
    """llama.cpp in the user's folder, or in an archive that is unpacked below `folder` unless it is there already.

    Raises `UsageError` where there is none, and for an archive that cannot be used.
    """
    if source.is_dir():
        return _found(source.absolute(), str(source))
    place = folder / "source"
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        unpack(source, place, sought=True)
    return _found(place, str(source))


def is_llama_cpp(folder: Path) -> bool:
    """Whether a folder holds sources of llama.cpp."""
    return all((folder / sign).is_file() for sign in _SIGNS)


def archive_sha256(path: Path) -> str:
    """Checksum of a file. Raises `UsageError` when it cannot be read, or is a device or pipe, which may never end."""
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--source {path}: is neither a folder nor a file",
            fix="name a folder with llama.cpp's sources, or an archive of them (.tar.gz, .zip)",
        )
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"--source {path}: cannot be read ({error.strerror or error})",
            fix="name a folder with llama.cpp's sources, or an archive of them (.tar.gz, .zip)",
        ) from None


def unpack(archive: Path, into: Path, *, below: str = "", only: str = "", sought: bool = False) -> None:
    """Unpack a tar or zip archive; `into` appears whole or not at all.

    `only` is the folder of the archive that is unpacked, `below` the part of its path that becomes `into`;
    `sought` looks for llama.cpp in the archive's list first, and unpacks nothing where there is none. Raises
    `UsageError` for what is neither, is damaged, has names that lead elsewhere, or is larger than any sources are.
    """
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=into.parent) as name:
        try:
            is_zip = zipfile.is_zipfile(archive)
            if sought and not _lists_llama_cpp(_names_in_zip(archive) if is_zip else _names_in_tar(archive)):
                raise _without_sources(str(archive))
            (_unpack_zip if is_zip else _unpack_tar)(archive, Path(name), only)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
            why = (str(error).splitlines() or ["it is cut off"])[0].rstrip(":")[:200]
            raise UsageError(
                f"{archive}: is not an archive that can be unpacked ({why})",
                fix="name a .tar.gz or .zip of llama.cpp's sources; download it again if it was cut off",
            ) from None
        except OSError as error:
            raise UsageError(
                f"{archive}: cannot be unpacked below {into.parent} ({error.strerror or str(error)[:200]})",
                fix="make the file readable, and the cache folder writable with enough room",
            ) from None
        made = Path(name) / below
        if not made.is_dir():
            raise UsageError(f"{archive}: has no folder {only}", fix="download it again")
        made.rename(into)


def _names_in_tar(archive: Path) -> Iterator[str]:
    with tarfile.open(archive) as content:
        for member in _bounded(content, archive, ""):
            yield member.name


def _names_in_zip(archive: Path) -> Iterator[str]:
    with zipfile.ZipFile(archive) as content:
        yield from content.namelist()


def _lists_llama_cpp(names: Iterator[str]) -> bool:
    """Whether a folder of the archive, at most `_MAX_DEPTH` deep, has every sign of llama.cpp."""
    seen = {sign: set[str]() for sign in _SIGNS}
    for name in names:
        whole = "/" + name.replace("\\", "/").removeprefix("./").lstrip("/")
        for sign, folders in seen.items():
            if whole.endswith("/" + sign):
                folders.add(whole.removesuffix(sign))
    first, *others = seen.values()
    return any(folder.count("/") <= _MAX_DEPTH + 1 for folder in first.intersection(*others))


def _unpack_tar(archive: Path, into: Path, only: str) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UsageError("this Python unpacks archives without a filter", fix="use Python 3.11.4 or later")
    with tarfile.open(archive) as content:
        content.extractall(into, members=_bounded(content, archive, only), filter="data")


def _bounded(content: tarfile.TarFile, archive: Path, only: str) -> Iterator[tarfile.TarInfo]:
    files = size = 0
    for member in content:
        files, size = files + 1, size + member.size
        _refuse_too_large(archive, files, size)
        if _within(member.name, only):
            yield member


def _unpack_zip(archive: Path, into: Path, only: str) -> None:
    with zipfile.ZipFile(archive) as content:
        members = content.infolist()
        _refuse_too_large(archive, len(members), sum(member.file_size for member in members))
        for member in members:
            parts = PurePosixPath(member.filename.replace("\\", "/")).parts
            if not parts or parts[0] == "/" or ".." in parts or ":" in member.filename:
                raise UsageError(
                    f"{archive}: has a name that leads out of it ({member.filename[:100]!r})",
                    fix="do not use this archive",
                )
            # A link would be written as a file with its target as text: nothing in sources needs one.
            if not stat.S_ISLNK(member.external_attr >> 16) and _within(member.filename, only):
                content.extract(member, into)


def _within(name: str, only: str) -> bool:
    return not only or name == only or name.startswith(only + "/")


def _refuse_too_large(archive: Path, files: int, size_bytes: int) -> None:
    if files > _MAX_FILES or size_bytes > _MAX_BYTES:
        raise UsageError(
            f"{archive}: holds more than {_MAX_FILES:,} files or {size(_MAX_BYTES)}",
            fix="name an archive of llama.cpp's sources alone",
        )


def _found(top: Path, told: str) -> Path:
    """The folder nearest to `top` that holds llama.cpp."""
    level, seen = [top], 0
    for _ in range(_MAX_DEPTH + 1):
        for folder in level:
            if is_llama_cpp(folder):
                return folder
        seen += len(level)
        level = [child for folder in level for child in _folders(folder)] if seen < _MAX_FOLDERS else []
    raise _without_sources(told)


def _without_sources(told: str) -> UsageError:
    return UsageError(
        f"{told}: it does not contain llama.cpp's sources (no folder with {', '.join(_SIGNS)})",
        fix="name the folder that a clone of llama.cpp made, or an archive of one",
    )


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _checked(archive: Path) -> Path:
    """pip looked at the checksum already; here it is once more what is unpacked."""
    if not archive.is_file():
        raise EngineError(f"pip did not leave {ARCHIVE} behind", fix="give sources with --source")
    found = archive_sha256(archive)
    if found != SHA256:
        raise EngineError(
            f"{ARCHIVE} has SHA-256 {found}, not {SHA256}", fix="download it again; do not build this one"
        )
    return archive


def _pip() -> list[str]:
    """pip of this environment, or else through uv, whose environments have none."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = [sys.executable, "-m", "pip", "--version"]
        if subprocess.run(asked, capture_output=True, check=False, timeout=_ASK_S).returncode == 0:
            return asked[:-1]
    if uvx := shutil.which("uvx"):
        return [uvx, "pip"]
    raise UsageError(
        "neither pip nor uv is here to download the sources",
        fix="run `python -m ensurepip`, then this command again; or give sources: --source FOLDER or ARCHIVE",
    )
