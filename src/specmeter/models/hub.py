"""Model files from a hub: `hf:OWNER/REPO/PATH/FILE.gguf[@REVISION]`.

Requests, tokens (`HF_TOKEN`) and the endpoint (`HF_ENDPOINT`) are huggingface_hub's. Its own download throws away what
a killed process had fetched, so the file is streamed here with its `http_get`, which can resume, into specmeter's
cache; it gets its name only when size and checksum are those that the hub names. Files that lie in huggingface_hub's
cache already are used from there. A revision that is not a commit is looked up again each time the hub can be reached.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from specmeter.cache import cache_dir, file_sha256
from specmeter.errors import ModelError
from specmeter.files import locked
from specmeter.models.gguf import is_part, part_paths
from specmeter.text import size

PREFIX = "hf:"
Progress = Callable[[int, int], None]
"""Called with (bytes there, bytes in all) while a file arrives."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REFERENCE = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})/(?P<path>[^@\\:*?\"<>|\x00-\x1f]+\.gguf)(?:@(?P<revision>[A-Za-z0-9._/-]{{1,200}}))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file in a repository of the hub."""

    repo: str
    """`owner/name`."""
    path: str
    """Path in the repository, with slashes."""
    revision: str = "main"
    """Branch, tag or commit."""

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}/{self.path}@{self.revision}"

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, whose content never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def parts(self) -> tuple[HubFile, ...]:
        """All files of a split model that begins with this one."""
        return tuple(
            HubFile(self.repo, path.as_posix(), self.revision) for path in part_paths(Path(PurePosixPath(self.path)))
        )


@dataclass(frozen=True, slots=True)
class _Remote:
    """What the hub says about a file."""

    commit: str
    etag: str
    """SHA-256 of a large file; git's blob hash of a small one."""
    size_bytes: int


class _UnreachableError(ModelError):
    """The hub did not answer; a copy in the cache will do."""


def parse(reference: str) -> HubFile:
    """The file that `reference` names. Raises `ModelError` when it is malformed."""
    match = _REFERENCE.fullmatch(reference.removeprefix(PREFIX))
    pieces = [] if match is None else match["path"].split("/") + (match["revision"] or "main").split("/")
    if not reference.startswith(PREFIX) or match is None or not {"", ".", ".."}.isdisjoint(pieces):
        raise ModelError(
            f"{reference!r} is not a GGUF file on a hub",
            fix="write hf:OWNER/REPO/FILE.gguf, or hf:OWNER/REPO/FILE.gguf@REVISION to pin a branch, tag or commit",
        )
    return HubFile(match["repo"], match["path"], match["revision"] or "main")


def fetch(file: HubFile, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Path of the file on this machine, downloaded first if need be (all parts of a split model).

    With `offline` only what is there already is used. Raises `ModelError` when the hub cannot be reached, refuses
    access or does not have the file, when the disk is full, and when the bytes are not those that the hub names.
    """
    first, *others = file.parts
    path = _fetch(first, offline, progress)
    for part in others:  # of the same commit, whatever happens to the branch meanwhile
        _fetch(replace(part, revision=_commit(file) or file.revision), offline, progress)
    return path


def peek(file: HubFile, *, offline: bool = False) -> tuple[int | None, bool]:
    """Size in bytes (None: not known) of the file with all its parts, and whether they are on this machine."""
    cached = [_cached(part) for part in file.parts]
    found = [path for path in cached if path is not None]
    if len(found) == len(cached):
        return sum(path.stat().st_size for path in found), True
    if offline:
        return None, False
    try:
        return sum(_ask(part).size_bytes for part in file.parts), False
    except _UnreachableError:
        return None, False


def _fetch(file: HubFile, offline: bool, progress: Progress | None) -> Path:
    cached = _cached(file)
    if cached is not None and (offline or file.is_pinned):
        return cached
    if offline:
        raise ModelError(f"{file} is not in the cache", fix="run once without --offline, or download the file yourself")
    try:
        remote = _ask(file)
    except _UnreachableError:
        if cached is None:
            raise
        return cached
    destination = _folder(file) / remote.commit / Path(PurePosixPath(file.path))
    elsewhere = _in_hub_cache(file, remote.commit)
    if elsewhere is not None and _matches(elsewhere, remote):
        return elsewhere
    try:
        _download(file, remote, destination, progress)
        if not file.is_pinned:
            _ref(file).parent.mkdir(parents=True, exist_ok=True)
            _ref(file).write_text(remote.commit, encoding="ascii")
    except OSError as error:
        raise _explain(error, file) from error
    return destination


def _folder(file: HubFile) -> Path:
    return cache_dir() / "hub" / file.repo.replace("/", "--")


def _ref(file: HubFile) -> Path:
    return _folder(file) / "refs" / urllib.parse.quote(file.revision, safe="")


def _commit(file: HubFile) -> str | None:
    """The commit that the file's revision stood for when it was last fetched."""
    if file.is_pinned:
        return file.revision
    try:
        commit = _ref(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _cached(file: HubFile) -> Path | None:
    """The file as it was last fetched by this revision, here or by huggingface_hub."""
    commit = _commit(file)
    if commit is not None:
        ours = _folder(file) / commit / Path(PurePosixPath(file.path))
        if ours.is_file():
            return ours
    return _in_hub_cache(file, file.revision)


def _in_hub_cache(file: HubFile, revision: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    if is_part(file.path):
        return None  # the parts of a split model must lie side by side
    found = try_to_load_from_cache(file.repo, file.path, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _ask(file: HubFile) -> _Remote:
    """What the hub says about a file; one request."""
    from huggingface_hub import get_hf_file_metadata  # pyright: ignore[reportUnknownVariableType]

    try:
        answer = get_hf_file_metadata(_url(file, file.revision), endpoint=_endpoint())
    except Exception as error:  # huggingface_hub lets the exceptions of whichever HTTP library it uses pass
        raise _explain(error, file) from error
    if not _COMMIT.fullmatch(answer.commit_hash or "") or not answer.etag or answer.size is None or answer.size < 0:
        raise ModelError(
            f"{file}: {_endpoint() or 'the hub'} does not respond like a model hub", fix="check HF_ENDPOINT and proxies"
        )
    return _Remote(str(answer.commit_hash), answer.etag, answer.size)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def _url(file: HubFile, revision: str) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(file.repo, file.path, revision=revision, endpoint=_endpoint())


class _CountingFile(io.BufferedWriter):
    """Appends to a file and says how long it has become."""

    def __init__(self, path: Path, size_bytes: int, progress: Progress | None) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._size_bytes, self._progress = size_bytes, progress

    def write(self, buffer: bytes, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        written = super().write(buffer)
        if self._progress is not None:
            self._progress(self.tell(), self._size_bytes)
        return written


def _download(file: HubFile, remote: _Remote, destination: Path, progress: Progress | None) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(destination.name + ".part")
    with locked(part.with_name(part.name + ".lock")):
        if destination.is_file():
            return
        have = part.stat().st_size if part.is_file() else 0
        if have > remote.size_bytes:
            part.unlink()
            have = 0
        free = shutil.disk_usage(destination.parent).free
        if free < remote.size_bytes - have:
            raise OSError(errno.ENOSPC, f"{size(remote.size_bytes - have)} needed, but {size(free)} free")
        _stream(file, remote, part, progress)
        if not _matches(part, remote):
            part.unlink()
            raise ModelError(
                f"{file}: the download does not match the hub's checksum {remote.etag}",
                fix="try again; if it happens again, check the proxy and the repository",
            )
        part.replace(destination)


def _stream(file: HubFile, remote: _Remote, part: Path, progress: Progress | None) -> None:
    from huggingface_hub.file_download import http_get  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.utils import (
        build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
        disable_progress_bars,
    )

    disable_progress_bars()
    try:
        with _CountingFile(part, remote.size_bytes, progress) as out:
            http_get(
                _url(file, remote.commit),
                out,
                resume_size=out.tell(),
                headers=build_hf_headers(),
                expected_size=remote.size_bytes,
            )
    except Exception as error:  # as above: the exceptions of the HTTP library
        raise _explain(error, file) from error


def _matches(path: Path, remote: _Remote) -> bool:
    """Whether a file has the checksum that the hub names."""
    if path.stat().st_size != remote.size_bytes:
        return False
    if _SHA256.fullmatch(remote.etag):
        return file_sha256(path) == remote.etag
    if not _COMMIT.fullmatch(remote.etag):
        return True  # some mirrors name no checksum at all
    digest = hashlib.sha1(b"blob %d\0" % remote.size_bytes, usedforsecurity=False)  # how git names its files
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == remote.etag


def _explain(error: Exception, file: HubFile) -> ModelError:
    """A message for whatever went wrong between this machine and the hub."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"{file}: no space left on the disk ({error.strerror})",
            fix="free some space, or set SPECMETER_CACHE to a folder on another disk",
        )
    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"{file}: the repository is gated",
            fix="accept its terms on the hub, then set HF_TOKEN to your access token",
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return ModelError(
            f"{file}: the repository does not exist, or it is private",
            fix="check owner and name; for a private repository set HF_TOKEN to a token with read access",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelError(
            f"{file}: the repository has no revision {file.revision!r}", fix="use a branch, tag or commit that exists"
        )
    if isinstance(error, errors.EntryNotFoundError) or status == 404:
        near = _near_files(file)
        return ModelError(
            f"{file}: the repository has no such file",
            fix=f"use one of: {', '.join(near)}" if near else "check the path in the repository",
        )
    if status is not None:
        return ModelError(f"{file}: the hub returned status {status}", fix="try again later")
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return ModelError(
            f"{file}: cannot be written to the cache ({error.strerror})",
            fix="set SPECMETER_CACHE to a writable folder",
        )
    return _UnreachableError(
        f"{file}: the hub could not be reached, or the connection was lost ({type(error).__name__}: {error})",
        fix="check the network, HF_ENDPOINT and HF_HUB_OFFLINE, then run the same command again (downloaded data is "
        "kept)",
    )


def _near_files(file: HubFile) -> list[str]:
    from huggingface_hub import HfApi

    try:
        names = HfApi(endpoint=_endpoint()).list_repo_files(file.repo, revision=file.revision)
    except Exception:  # only a hint: the error itself is reported in any case
        return []
    models = [name for name in names if name.endswith(".gguf")]
    return get_close_matches(file.path, models, n=3, cutoff=0.5) or models[:5]
