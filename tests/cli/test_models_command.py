from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from specmeter.cli import invoke


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


Capture = pytest.CaptureFixture[str]


def json_of(capsys: Capture, *arguments: str, code: int = 0) -> Any:
    assert invoke(["models", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_list(capsys: Capture, cache: Path) -> None:
    (cache / "hub" / "owner--repo").mkdir(parents=True)
    (cache / "hub" / "owner--repo" / "m.gguf").write_bytes(b"1234567")
    assert invoke(["models", "list"]) == 0
    out = capsys.readouterr().out
    assert "bench:moe-900m" in out
    assert "timing only" in out
    assert "m.gguf" in out
    listed = json_of(capsys, "list")
    moe = next(model for model in listed["bench"] if model["reference"] == "bench:moe")
    assert moe["present"]
    assert not moe["timing_only"]
    assert [file["size_bytes"] for file in listed["cached"]] == [7]


def test_build(capsys: Capture, cache: Path) -> None:
    assert invoke(["models", "build", "bench:draft-small", "bench:draft-small?quant=Q8_0"]) == 0
    captured = capsys.readouterr()
    paths = [Path(line) for line in captured.out.splitlines()]
    assert [path.is_file() for path in paths] == [True, True]
    assert "preparing model bench:draft-small?quant=Q8_0" in captured.err
    built = json_of(capsys, "build", "bench:draft-small?quant=Q8_0")
    assert Path(built[0]["path"]) == paths[1]
    assert paths[1].is_relative_to(cache)
    assert len(built[0]["sha256"]) == 64


def test_inspect(capsys: Capture) -> None:
    facts = json_of(capsys, "inspect", "bench:moe")
    assert facts["architecture"] == "qwen3moe"
    assert facts["weight_bytes_per_token"] < facts["weights"]["size_bytes"]
    assert facts["kv_bytes_per_token"] > 0
    halved = json_of(capsys, "inspect", "bench:moe", "--kv-type-k", "f32", "--kv-type-v", "f32")
    assert halved["kv_bytes_per_token"] == 2 * facts["kv_bytes_per_token"]
    assert invoke(["models", "inspect", "bench:moe"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["experts"].startswith(f"{facts['experts']}, {facts['experts_used']} used")
    assert facts["vocabulary"]["sha256"].startswith(lines["fingerprint"])


def test_compare(capsys: Capture) -> None:
    assert invoke(["models", "compare", "bench:dense", "bench:draft-small"]) == 0
    assert "llama.cpp accepts this draft model (draft-simple)" in capsys.readouterr().out
    assert invoke(["models", "compare", "bench:dense", "bench:draft-other-special"]) == 1
    assert "llama.cpp refuses this draft" in capsys.readouterr().out
    answer = json_of(capsys, "compare", "bench:dense", "bench:draft-other-vocab", code=1)
    assert not answer["accepted"]
    assert "refused" in {condition["status"] for condition in answer["conditions"]}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["inspect", "missing.gguf"], "no such file"),
        (["inspect", "."], "is a directory"),
        (["inspect", "bench:mo"], "unknown bench model"),
        (["inspect", "hf:owner"], "is not a GGUF file"),
        (["inspect", "hf:owner/repo/m.gguf", "--offline"], "not in the cache"),
        (["inspect", "bench:moe", "--kv-type-k", "q9"], "--kv-type-k q9: no such type"),
        (["build"], "REFERENCE... is missing"),
        (["compare", "bench:dense"], "DRAFT is missing"),
    ],
)
def test_bad_input(capsys: Capture, arguments: list[str], reason: str) -> None:
    assert invoke(["models", *arguments]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert not captured.out


def hostile_model(path: Path) -> Path:
    """A model whose name and template try to take over the terminal."""

    def text(key: bytes, value: bytes) -> bytes:
        return struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value

    evil = "\x1b]0;owned\x07\x1b[2J[bold red]x[/]‮\n\r".encode()
    keys = [text(key, evil) for key in (b"general.name", b"general.architecture", b"tokenizer.ggml.pre")]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))
    return path


def test_names_are_printed_inertly(capsys: Capture, tmp_path: Path) -> None:
    model = str(hostile_model(tmp_path / "evil.gguf"))
    assert invoke(["models", "inspect", model]) == 0
    invoke(["models", "compare", model, model])
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\r", "‮"} & set(out)
    assert "[bold red]x[/]" in out


def test_twin(capsys: Capture) -> None:
    made = json_of(capsys, "twin", "bench:dense", "--experts", "8", "--active", "2", "--out", "moe.gguf")
    points = {point["tokens"]: point["union"]["point"] for point in made["routing"]["union"]["points"]}
    assert points[1] == 2
    assert list(points) == [1, 2, 5, 9, 17]
    assert 2 < points[2] < points[5] < points[17] <= 8
    assert invoke(["models", "inspect", "moe.gguf"]) == 0
    assert "8x2 of dense.gguf, router random" in capsys.readouterr().out
    assert json_of(capsys, "twin", "bench:dense", "--dense", "2", "--out", "wide.gguf")["routing"] is None
    assert invoke(["models", "twin", "bench:dense", "--experts", "8", "--out", "moe.gguf"]) == 2
    assert "--out moe.gguf: exists" in capsys.readouterr().err


def test_run_with_a_twin(capsys: Capture) -> None:
    assert invoke(["run", "bench:dense", "--twin", "4x1", "--ngram", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {"bench:dense", "twin:4x1:bench:dense"} <= {model["reference"] for model in plan["models"]}
    assert invoke(["run", "demo", "--twin", "4x1"]) == 2
    assert "write twin:16x2:MODEL among its targets" in capsys.readouterr().err
