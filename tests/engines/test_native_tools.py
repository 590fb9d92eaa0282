"""Which of llama.cpp's programs is used: the environment's, the last build's, or the one on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from specmeter.engines.llama_cpp.tools import (
    BuildRecord,
    Program,
    begin_build,
    builds,
    builds_folder,
    find_program,
    finish_build,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are scripts here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECMETER_LLAMA_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def built(name: str, at: float, *names: str) -> Path:
    folder = builds_folder() / name
    programs(folder / "build" / "bin", *names)
    record = BuildRecord(
        source="llama-cpp-python", version="1 (a)", options=("-DX=ON",), built_at=at, folder="build/bin"
    )
    return finish_build(folder, record).path / "build" / "bin"


def test_nowhere() -> None:
    assert builds() == []
    assert find_program("llama-server") is None


def test_the_last_build_comes_first() -> None:
    built("new", 2.0, "llama-server")
    last = built("tuned", 3.0, "llama-server", "llama-bench")
    old = built("old", 1.0, "llama-server", "llama-quantize")
    assert [build.path.name for build in builds()] == ["tuned", "new", "old"]
    assert find_program("llama-server") == last / "llama-server"
    assert find_program("llama-quantize") == old / "llama-quantize", "the only one that has it"
    assert find_program("llama-perplexity") is None


def test_the_environment_overrides_and_builds_override_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = programs(tmp_path / "path", "llama-server", "llama-bench")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "nowhere"), str(on_path)]))
    assert find_program("llama-server") == on_path / "llama-server"
    made = built("one", 1.0, "llama-server", "llama-quantize")
    assert find_program("llama-server") == made / "llama-server"
    assert find_program("llama-bench") == on_path / "llama-bench", "the build has none"
    named = programs(tmp_path / "named", "llama-server", "llama-quantize")
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(named / "llama-server"))
    assert find_program("llama-server") == named / "llama-server"
    assert find_program("llama-quantize") == named / "llama-quantize"
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(tmp_path / "absent"))
    assert find_program("llama-server") is None, "a wrong name is not passed over"


def test_the_other_end_is_of_the_build_of_the_server_in_use(tmp_path: Path) -> None:
    built("one", 1.0, "llama-server", "ggml-rpc-server")
    own = programs(tmp_path / "own", "llama-server", "rpc-server")
    assert find_program("ggml-rpc-server", beside=own / "llama-server") == own / "rpc-server", "its older name"


@pytest.mark.parametrize(
    "damage",
    ["", "{", '{"format": 1}', '{"format":1,"source":"","version":"","options":[],"built_at":1,"folder":"../x"}'],
)
def test_a_damaged_record_is_no_build(damage: str) -> None:
    folder = built("one", 1.0, "llama-server").parent.parent
    (folder / "built.json").write_text(damage, encoding="utf-8")
    assert builds() == []


def test_an_interrupted_build_is_no_build() -> None:
    folder = built("one", 1.0, "llama-server").parent.parent
    begin_build(folder)
    assert find_program("llama-server") is None
    name: Program = "llama-server"
    assert (folder / "build" / "bin" / name).exists(), "what was compiled stays"
