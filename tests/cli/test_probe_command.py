"""`specmeter probe` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engines.llama_fixtures import core
from specmeter.cli import invoke
from specmeter.cli.probe import parse_numbers
from specmeter.errors import UsageError
from specmeter.host import machine
from specmeter.probe import make
from specmeter.probe.files import load_probe, probes_folder
from specmeter.probe.routing import load_routing

QUICK = ["--tokens", "1,2,5", "--depth", "16", "--repeats", "2", "--threads", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("The people of the valley built a bridge over the river. " * 200, encoding="utf-8")
    return str(path)


def test_a_probe_is_shown_and_kept_where_predictions_look(capsys: pytest.CaptureFixture[str], text: str) -> None:
    arguments = ["probe", core("dense").path, "--draft", core("draft-small").path, "--text", text, *QUICK]
    assert invoke(arguments) == 0
    shown = capsys.readouterr()
    assert "Verifying 5 tokens costs" in shown.out
    assert "measuring forwards" in shown.err
    (kept,) = probes_folder().glob("*.json")
    assert kept.name in shown.out.replace("\n", "")
    probe = load_probe(kept)
    assert [point.tokens for point in probe.target_ms.points] == [1, 2, 5]
    assert probe.draft_ms is not None
    assert probe.overhead_ms is not None
    assert probe.source == "libllama"
    assert probe.settings.threads == 1
    assert probe.target.header is not None
    assert probe.union is None


@pytest.mark.slow
def test_json_is_alone_on_stdout_and_one_token_is_always_measured(
    capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path
) -> None:
    out = tmp_path / "mine" / "probe.json"
    options = [
        "--tokens",
        "3",
        "--depth",
        "16",
        "--repeats",
        "1",
        "--text",
        text,
        "--out",
        str(out),
        "--json",
    ]
    assert invoke(["probe", core("moe").path, *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["file"] == str(out)
    assert [point["tokens"] for point in answer["probe"]["target_ms"]["points"]] == [1, 3]
    assert answer["probe"]["union"]["used"] == 4
    assert answer["verification"][0]["point"] == 1.0
    assert answer["probe"]["settings"]["threads"] is None  # as runs have it that leave threads to the engine
    assert load_probe(out).model_dump(mode="json") == answer["probe"]


def test_through_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [
        "--source",
        "server",
        "--tokens",
        "1,3",
        "--depth",
        "64",
        "--repeats",
        "1",
        "--threads",
        "1",
        "--out",
        "it.json",
    ]
    assert invoke(["probe", "bench:dense", *options]) == 0
    assert "estimated through a server" in capsys.readouterr().out
    assert load_probe(tmp_path / "it.json").source == "server"


def test_routing_is_read_and_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--routing", "--routing-tokens", "1024", "--threads", "1", "--out", "experts.npz"]
    assert invoke(["probe", "bench:moe", *options]) == 0
    shown = capsys.readouterr().out
    assert "32 experts, 4 per token" in shown
    assert "Single random tokens take" in shown
    assert load_routing(tmp_path / "experts.npz").tokens == 1024
    assert invoke(["probe", "bench:moe", *options, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["routing"]
    assert summary["union"]["points"][0]["union"]["point"] == 4.0
    assert len(summary["loads"]) == summary["layers"]
    assert summary["random"]["shared"] > 2 * summary["shared"]
    assert summary["random"]["faster"]["n"] == 10


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (machine, make):
        monkeypatch.setattr(where, "memory_available_bytes", lambda *_: 1_000_000)
    assert invoke(["probe", core("dense").path, *QUICK]) == 2
    assert "is free" in capsys.readouterr().err
    size = Path(core("dense").path).stat().st_size
    for where in (machine, make):  # the file alone would fit
        monkeypatch.setattr(where, "memory_available_bytes", lambda *_: size + 1000)
    assert invoke(["probe", core("dense").path, *QUICK]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench:dense", "--tokens", "0..4"], "--tokens 0..4"),
        (["bench:dense", "--tokens", "four"], "--tokens four"),
        (["bench:dense", "--tokens", "1..999999"], "not an ascending range within"),
        (["bench:dense", "--depth", "900000"], "tokens are needed|are needed"),
        (["bench:dense", "--draft", "bench:draft-other-vocab"], "llama.cpp rejects it"),
        (["bench:dense", "--routing"], "is a dense model"),
        (["bench:moe", "--routing", "--draft", "bench:draft-small"], "--draft: not with --routing"),
        (["bench:moe", "--routing", "--source", "server"], "does not report experts"),
        (["bench:dense", "--binary", "llama-server"], "--binary needs --source server"),
        (["bench:dense", "--text", "nowhere.txt"], "--text nowhere.txt"),
        (["nowhere.gguf"], "no such file"),
        (["bench:nothing"], "unknown bench model"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["probe", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "fix:" in error


@pytest.mark.parametrize(
    ("given", "tokens"),
    [("1..4", (1, 2, 3, 4)), ("5", (5,)), ("9, 1..3,2", (1, 2, 3, 9)), ("33,17", (17, 33)), ("256", (256,))],
)
def test_numbers_of_tokens(given: str, tokens: tuple[int, ...]) -> None:
    assert parse_numbers(given, "--tokens", 256) == tokens


def test_several_sequences_are_shown_and_kept(capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path) -> None:
    out = tmp_path / "probe.json"
    arguments = ["probe", core("moe").path, "--text", text, *QUICK, "--batch", "2,4", "--out", str(out)]
    assert invoke(arguments) == 0
    shown = capsys.readouterr().out
    assert "target efficiency" in shown.lower()
    probe = load_probe(out)
    assert [(it.sequences, it.tokens) for it in probe.batches] == [(b, n) for b in (1, 2, 4) for n in (1, 2, 5)]
    unions = [it.union for it in probe.batches]
    assert all(union is not None and union.point >= 4 for union in unions)
    assert probe.kv_unified is False
    assert invoke(["probe", core("moe").path, "--batch", "2", "--source", "server"]) == 2
    assert "--batch needs --source libllama" in capsys.readouterr().err


@pytest.mark.slow
def test_a_busy_machine_is_warned_of(
    capsys: pytest.CaptureFixture[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = machine.read_host(load_sample_s=0.01).model_copy(update={"busy_processes": ("\x1b[1mchess 93 %",)})
    monkeypatch.setattr("specmeter.cli.probe.read_host", lambda: busy)
    assert invoke(["probe", core("dense").path, "--text", text, "--out", "it.json", *QUICK]) == 0
    warning = capsys.readouterr().err
    assert "chess 93 %" in warning
    assert "\x1b" not in warning


@pytest.mark.parametrize("content", [b" \n", b"\xff\xfe\x00", None])
def test_texts_that_are_none_are_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    assert invoke(["probe", "bench:dense", "--text", "." if content is None else "text.txt"]) == 2


@pytest.mark.parametrize("given", ["", "1..", "..3", "4..2", "-1", "1.5", "257", "1,,2", "²", "9" * 5000, "1," * 600])
def test_other_words_are_no_numbers_of_tokens(given: str) -> None:
    with pytest.raises(UsageError, match="--tokens"):
        parse_numbers(given, "--tokens", 256)
