"""Sources of llama.cpp: archives are unpacked within bounds and whole or not at all; what pip does is told."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from specmeter.errors import EngineError, UsageError
from specmeter.native_build import sources

FILES = ("CMakeLists.txt", "ggml/CMakeLists.txt", "include/llama.h")


def tar(path: Path, names: Sequence[str], *, links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"x"))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return path


def zipped(path: Path, names: Sequence[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return path


def tree(top: Path, below: str = "") -> Path:
    for name in FILES:
        file = top / below / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x", encoding="utf-8")
    return top


@pytest.mark.parametrize("below", ["", "llama.cpp-b9000/", "package-1/vendor/llama.cpp/"])
@pytest.mark.parametrize("kind", ["tar", "zip", "folder"])
def test_llama_cpp_is_found_wherever_it_lies(tmp_path: Path, kind: str, below: str) -> None:
    names = [below + name for name in FILES]
    given = {
        "tar": lambda: tar(tmp_path / "a.tar.gz", names),
        "zip": lambda: zipped(tmp_path / "a.zip", names),
        "folder": lambda: tree(tmp_path / "mine", below),
    }[kind]()
    found = sources.given(given, tmp_path / "cache")
    assert sources.is_llama_cpp(found)
    assert sources.given(given, tmp_path / "cache") == found, "unpacked once"


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_a_tar_that_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    archive = tar(tmp_path / "a.tar.gz", [*FILES, name])
    with pytest.raises(UsageError, match=r"cannot be unpacked|is not an archive"):
        sources.given(archive, tmp_path / "cache")
    assert not (tmp_path / "cache" / "source").exists(), "nothing half unpacked"
    assert not list(tmp_path.rglob("outside"))


def test_an_absolute_name_in_a_tar_stays_inside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    archive = tar(tmp_path / "a.tar.gz", [*FILES, str(outside)])
    assert sources.is_llama_cpp(sources.given(archive, tmp_path / "cache"))
    assert not outside.exists()


def test_a_tar_with_a_link_out_of_its_folder(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", FILES, links={"way": "/etc"})
    with pytest.raises(UsageError):
        sources.given(archive, tmp_path / "cache")
    assert not (tmp_path / "cache" / "source").exists()


@pytest.mark.parametrize("name", ["../outside", "/outside", "C:/outside", "a\\..\\..\\outside"])
def test_a_zip_that_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="leads out of it"):
        sources.given(zipped(tmp_path / "a.zip", [*FILES, name]), tmp_path / "cache")


@pytest.mark.parametrize("make", [tar, zipped])
def test_more_than_sources_ever_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: type[object]) -> None:
    monkeypatch.setattr(sources, "_MAX_FILES", 2)
    archive = tar(tmp_path / "a", FILES) if make is tar else zipped(tmp_path / "a", FILES)
    with pytest.raises(UsageError, match="holds more than 2 files"):
        sources.given(archive, tmp_path / "cache")


def test_a_bomb_is_refused_by_what_it_says_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MAX_BYTES", 2)
    with pytest.raises(UsageError, match="or 2 B"):
        sources.given(tar(tmp_path / "a.tar.gz", FILES), tmp_path / "cache")


def test_what_is_no_archive_and_what_holds_no_sources(tmp_path: Path) -> None:
    broken = tmp_path / "a.tar.gz"
    broken.write_bytes(b"\x1f\x8b not an archive")
    with pytest.raises(UsageError, match="is not an archive that can be unpacked"):
        sources.given(broken, tmp_path / "cache")
    cut = tar(tmp_path / "b.tar.gz", FILES)
    cut.write_bytes(cut.read_bytes()[:60])
    with pytest.raises(UsageError, match="is not an archive that can be unpacked"):
        sources.given(cut, tmp_path / "cache2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"does not contain llama\.cpp's sources"):
        sources.given(tmp_path / "empty", tmp_path / "cache3")


@pytest.mark.parametrize("make", [tar, zipped])
def test_an_archive_without_sources_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, Sequence[str]], Path]
) -> None:
    monkeypatch.setattr(sources, "_unpack_zip", lambda *_: pytest.fail("unpacked"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(sources, "_unpack_tar", lambda *_: pytest.fail("unpacked"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    archive = make(tmp_path / "a", ["zeros", *(f"{number}/{name}" for number, name in enumerate(FILES))])
    with pytest.raises(UsageError, match=r"does not contain llama\.cpp's sources"):
        sources.given(archive, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UsageError, match="is neither a folder nor a file"):
            sources.archive_sha256(path)


def test_the_package_is_asked_for_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pip(command: Sequence[str]) -> None:
        wanted = Path(command[command.index("-r") + 1]).read_text(encoding="ascii")
        asked.append(wanted)
        inside = [f"{sources.NAME}/vendor/llama.cpp/{name}" for name in FILES] + [f"{sources.NAME}/setup.py"]
        tar(Path(command[command.index("--dest") + 1]) / sources.ARCHIVE, inside)

    with pytest.raises(EngineError, match=r"has SHA-256 .*, not 832db069"):
        sources.packaged(tmp_path, pip)
    assert asked == [f"{sources.REQUIREMENT} --hash=sha256:{sources.SHA256}\n"]
    assert os.listdir(tmp_path) == [], "nothing of a package with another checksum stays"  # noqa: PTH208
    monkeypatch.setattr(sources, "_checked", lambda archive: archive)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    found = sources.packaged(tmp_path, pip)
    assert sources.is_llama_cpp(found)
    assert not list(tmp_path.rglob("setup.py")), "only llama.cpp is unpacked"
    assert sources.packaged(tmp_path, pip) == found
    assert len(asked) == 2, "downloaded once"


def test_without_a_network_it_is_said_what_to_do(tmp_path: Path) -> None:
    def pip(_: Sequence[str]) -> None:
        raise EngineError("pip failed (exit code 1)\n  | no route to host", fix="-")

    with pytest.raises(EngineError, match="could not be downloaded: pip failed") as error:
        sources.packaged(tmp_path, pip)
    assert "--source FOLDER or ARCHIVE" in error.value.fix


@pytest.mark.skipif("sys.platform == 'win32'")
def test_a_python_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sources, "_ASK_S", 0.1)
    monkeypatch.setattr(sources.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="neither pip nor uv"):
        sources._pip()
