"""`specmeter` alone: what is on this machine, and one command that runs as it is printed."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.models import bench
from specmeter.models.reference import found_models

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models; bench models stay where they are."""
    from specmeter.cache import cache_dir

    monkeypatch.setenv("SPECMETER_CACHE", str(cache_dir()))
    for name in ("LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def put(name: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(bench.build(bench.parse(f"bench:{name}")), path)
    return path


def screen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", shown)
        patched.setenv("COLUMNS", "80")
        patched.setenv("NO_COLOR", "1")
        patched.setenv("TERM", "dumb")
        assert invoke([]) == 0
    return shown.getvalue().splitlines()


def test_without_models_the_demo_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    lines = screen(monkeypatch)
    assert len(lines) == 5
    assert "none found" in lines[1]
    assert "llama.cpp" in lines[2]
    assert lines[3].endswith("specmeter run demo")


def test_a_target_that_has_a_draft_is_named_and_can_be_asked_about(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = put("dense", home / ".lmstudio/models/some one/repo/Ziel Größe.gguf")
    put("draft-other-vocab", home / ".cache/llama.cpp/other.gguf")
    draft = put("draft-small", Path("klein.gguf"))
    (start,) = (line for line in screen(monkeypatch) if line.startswith("start"))
    command = shlex.split(start.removeprefix("start"))
    assert command == ["specmeter", "advise", str(target)]
    capsys.readouterr()
    assert invoke([*command[1:], "--dry-run", "--json"]) == 0
    outline = json.loads(capsys.readouterr().out)
    assert [it["reference"] for it in outline["drafts"]] == [str(draft.absolute())]
    (without,) = outline["left_out"]
    assert without["why"]["code"] == "left-out.vocabulary"


def test_every_program_keeps_models_in_its_own_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = home / ".cache/huggingface/hub/models--o--r"
    blob = put("dense", hub / "blobs/abc")
    snapshot = hub / "snapshots/1234/Qwen.gguf"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(blob)
    digest = "0" * 64
    put("moe", home / f".ollama/models/blobs/sha256-{digest}")
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/gemma/2b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}), encoding="utf-8")
    wrong = {"x": b"{", "y": b"[]", "z": json.dumps({"layers": [layer | {"digest": "sha256:../../x"}]}).encode()}
    for tag, content in wrong.items():
        manifest.with_name(tag).write_bytes(content)
    put("hybrid", home / "llama/model-00001-of-00002.gguf")
    put("hybrid", home / "llama/model-00002-of-00002.gguf")
    put("hybrid", home / "llama/mmproj-model.gguf")
    (home / "llama/text.gguf").write_text("x" * 200_000)
    (home / "llama/loop.gguf").symlink_to("loop.gguf")
    (home / "llama/up").symlink_to(home)
    monkeypatch.setenv("LLAMA_CACHE", str(home / "llama"))
    assert [(it.name, it.place) for it in found_models()] == [
        ("gemma:2b", "Ollama"),
        ("Qwen", "Hugging Face"),
        ("model-00001-of-00002", "llama.cpp"),
    ]


def test_a_pipe_among_the_manifests_is_passed_over(home: Path) -> None:
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/gemma/2b"
    manifest.parent.mkdir(parents=True)
    os.mkfifo(manifest)
    assert found_models() == []


def test_a_hostile_name_does_nothing_to_the_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put("dense", home / ".cache/llama.cpp" / "a\x1b[2Jb.gguf")
    assert "\x1b" not in "".join(screen(monkeypatch))


def test_off_a_terminal_it_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 0
    assert capsys.readouterr().out.startswith("Usage: specmeter")


def test_folders_without_end_are_left(home: Path) -> None:
    folder = home / ".cache/llama.cpp"
    folder.mkdir(parents=True)
    for number in range(300):
        os.close(os.open(folder / f"{number}.gguf", os.O_CREAT))
    assert found_models() == []
