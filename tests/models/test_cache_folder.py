from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import BinaryIO

import pytest

from specmeter.cache import cache_dir, create_once, file_sha256
from specmeter.errors import ModelError

_OLD = time.time() - 3600


pytestmark = pytest.mark.usefixtures("own_cache")


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, (_OLD, _OLD))
    return path


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "home/.cache/specmeter"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/specmeter"),
        ("darwin", {}, "home/Library/Caches/specmeter"),
        ("win32", {}, "home/AppData/Local/specmeter"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/specmeter"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    platform: str, environment: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPECMETER_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_dir() in (tmp_path / expected, Path(expected))


def test_xdg_and_the_own_variable_name_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SPECMETER_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "specmeter"


def test_without_a_home_the_variable_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("SPECMETER_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ModelError, match="SPECMETER_CACHE"):
        cache_dir()


def test_a_checksum_is_right_and_remembered(tmp_path: Path) -> None:
    path = _file(tmp_path / "model", b"one")
    assert file_sha256(path) == hashlib.sha256(b"one").hexdigest()
    # Same path, size and time: the remembered value is given, which is how we know that it was remembered.
    _file(path, b"two")
    assert file_sha256(path) == hashlib.sha256(b"one").hexdigest()
    os.utime(path, (_OLD + 1, _OLD + 1))
    assert file_sha256(path) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_may_still_change_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")
    status = path.stat()
    file_sha256(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_sha256(path) == hashlib.sha256(b"two").hexdigest()


def test_a_checksum_does_not_need_a_cache_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(_file(tmp_path / "a-file", b"") / "below"))
    path = _file(tmp_path / "model", b"one")
    assert file_sha256(path) == file_sha256(path) == hashlib.sha256(b"one").hexdigest()


def test_a_damaged_note_is_ignored(tmp_path: Path) -> None:
    path = _file(tmp_path / "model", b"one")
    right = file_sha256(path)
    (note,) = (cache_dir() / "sha256").iterdir()
    note.write_bytes(b"\xff")
    assert file_sha256(path) == right


def test_a_missing_file_has_no_checksum(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        file_sha256(tmp_path / "nowhere")


def _write(file: BinaryIO) -> None:
    file.write(b"model")


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_file_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "models" / "m.gguf"

    def never(_file: BinaryIO) -> None:
        raise AssertionError("it is there already")

    assert create_once(path, 5, _write) == path
    assert create_once(path, 5, never).read_bytes() == b"model"


def test_a_file_of_the_wrong_size_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"mod")
    assert create_once(path, 5, _write).read_bytes() == b"model"


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), RuntimeError("bug")])
def test_an_interruption_leaves_nothing(tmp_path: Path, trouble: BaseException) -> None:
    def interrupted(file: BinaryIO) -> None:
        file.write(b"mod")
        raise trouble

    with pytest.raises(type(trouble)):
        create_once(tmp_path / "m.gguf", 5, interrupted)
    assert _files(tmp_path) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "other.gguf.part").write_bytes(b"half")
    (tmp_path / "m.gguf.part").write_bytes(b"half")
    create_once(tmp_path / "m.gguf", 5, _write)
    assert _files(tmp_path) == ["m.gguf"]


def test_too_little_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 7_000_000, 7_000_000))
    with pytest.raises(ModelError, match=r"needs 2.0 GB .* 7.0 MB is free"):
        create_once(tmp_path / "m.gguf", 2 * 10**9, _write)
    assert _files(tmp_path) == []


def test_a_disk_that_fills_up_meanwhile_is_said(tmp_path: Path) -> None:
    def full(_file: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(ModelError, match="needs 5 B of disk"):
        create_once(tmp_path / "m.gguf", 5, full)
    assert _files(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    blocked = _file(tmp_path / "file", b"") / "models" / "m.gguf"
    with pytest.raises(ModelError, match="cannot be written"):
        create_once(blocked, 5, _write)


_BUILDER = """
import sys, time
from pathlib import Path
from specmeter.cache import create_once
def write(file):
    with open(sys.argv[2], "a") as log: log.write("made\\n")
    time.sleep(0.3)
    file.write(b"model")
print(create_once(Path(sys.argv[1]), 5, write).read_bytes().decode())
"""


def test_two_processes_make_a_file_once(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _BUILDER, str(tmp_path / "m.gguf"), str(tmp_path / "log")]
    builders = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [builder.communicate(timeout=60)[0].strip() for builder in builders] == ["model"] * 3
    assert (tmp_path / "log").read_text() == "made\n"
    assert _files(tmp_path) == ["log", "m.gguf"]


def test_a_part_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    def other(file: BinaryIO) -> None:
        create_once(tmp_path / "second.gguf", 5, _write)
        file.write(b"model")

    create_once(tmp_path / "first.gguf", 5, other)
    assert _files(tmp_path) == ["first.gguf", "second.gguf"]
