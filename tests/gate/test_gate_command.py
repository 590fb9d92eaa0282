"""`specmeter gate`: exit codes, what is written, and what interrupts it; with the mock engine, and once with real
builds."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from specmeter.cli import invoke
from specmeter.engines.llama_cpp.builds import SeveralBuilds
from specmeter.gate.builds import same_build
from specmeter.gate.ruling import LOOKS
from specmeter.store import RunStore


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gate(*options: str, base: str = "mock:1", head: str = "mock:1") -> int:
    return invoke(["gate", "--base", base, "--head", head, "--quiet", *options])


def fault(kind: str, **where: Any) -> tuple[str, str]:
    return "--set", "engine.mock.faults=" + json.dumps([{"kind": kind, "arm": "*build=head", **where}])


def found(capsys: pytest.CaptureFixture[str], code: int, *options: str, head: str = "mock:1") -> dict[str, Any]:
    assert gate("--json", *options, head=head) == code
    return json.loads(capsys.readouterr().out)


def test_equal_builds_pass_at_the_first_look(capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 0)
    assert (told["ruling"], told["blocks"]) == ("pass", LOOKS[0])
    assert [row["ruling"] for row in told["rows"]] == ["pass", "pass"]
    assert all(len(row["ratios"]) == row["texts"] / 4 == LOOKS[0] for row in told["rows"])
    plain, drafted = told["rows"]
    assert plain["lengths"] == [None, None]
    base, head = drafted["lengths"]
    assert base == head
    assert 1 < base["low"] < base["point"] < base["high"] < 5


def test_a_slower_build_fails_and_a_loss_within_the_tolerance_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 1, head="mock:1.05")
    assert (told["ruling"], told["because"]) == ("fail", "rate")
    assert found(capsys, 0, "--tolerance", "10", head="mock:1.05")["ruling"] == "pass"


def test_noise_is_measured_until_it_is_decided_or_the_budget_is_spent(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = ("--set", "engine.mock.noise=0.05")
    told = found(capsys, 0, *noisy, "--budget", "1h")
    assert told["blocks"] in LOOKS[1:]
    told = found(capsys, 4, *noisy, "--budget", "3m")
    assert (told["ruling"], told["because"]) == ("cannot tell", "time")
    assert 1 < told["blocks"] < LOOKS[1]
    assert told["seconds"] <= 180
    folder = found(capsys, 4, "--budget", "1s")["folder"]
    assert found(capsys, 0, "--budget", "1h", "--out", folder)["blocks"] == LOOKS[0]  # a longer one continues


@pytest.mark.parametrize("kind", ["text-differs", "decode-failed", "truncated"])
def test_other_text_fails_however_fast_it_is(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 1, *fault(kind))
    assert (told["ruling"], told["because"]) == ("fail", "text")
    assert told["rows"][1]["other_texts"] == told["rows"][1]["texts"]


def test_speculation_that_head_leaves_off_is_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 1, *fault("inactive"))
    assert "speculation-not-active" in told["findings"]
    assert told["because"] == "rate"
    base, head = told["rows"][1]["lengths"]
    assert head["point"] == 1 < base["low"]


def test_a_run_that_a_check_doubts_cannot_pass(capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 4, *fault("acceptance-stuck"))
    assert (told["ruling"], told["because"]) == ("cannot tell", "checks")
    assert {row["ruling"] for row in told["rows"]} == {"pass"}


def test_a_build_that_does_not_start_is_an_error_that_quotes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(*fault("start-fails")) == 3
    said = capsys.readouterr().err
    assert "8 of 16 requests failed" in said
    assert "did not start (planted fault)" in said


def test_after_ctrl_c_the_same_command_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    options = (*fault("interrupt", block=2), "--json")  # at the third start of a server in each process
    assert gate(*options) == 130
    assert gate(*options) == 130
    told = found(capsys, 0, *options)
    assert told["blocks"] == LOOKS[0]
    (folder,) = Path("specmeter-runs").iterdir()
    with RunStore.open(folder, readonly=True) as store:
        assert len(list(store.rows())) == 16 * LOOKS[0]


def test_the_same_command_measures_again_once_it_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (found(capsys, 0)["folder"] for _ in range(2))
    assert first != second
    assert found(capsys, 0, "--out", first)["folder"] == first


def test_it_writes_a_comment_and_a_test_report() -> None:
    assert gate("--markdown", "gate.md", "--junit", "gate.xml", head="mock:1.05") == 1
    comment = Path("gate.md").read_text("utf-8")
    assert comment.startswith("**fail: mock:1.05 is slower than mock:1: no speculation 0.9")
    assert "| no speculation | tok/s |" in comment
    suite = ElementTree.fromstring(Path("gate.xml").read_text("utf-8"))
    assert suite.attrib["tests"] == "5"
    assert suite.attrib["failures"] == str(len(suite.findall("testcase/failure"))) == "3"
    assert gate("--junit", "gate.xml", "--budget", "1s") == 4
    suite = ElementTree.fromstring(Path("gate.xml").read_text("utf-8"))
    assert suite.attrib["errors"] == "3"


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate("--markdown", "nowhere/gate.md") == 2
    assert "no such folder" in capsys.readouterr().err
    assert not Path("specmeter-runs").exists()


def test_a_server_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(base="http://127.0.0.1:9", head="http://127.0.0.1:10") == 3
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_clients_are_gated_by_their_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    told = found(capsys, 1, "--set", "load.clients=2", "--budget", "1h", head="mock:1.1")
    assert [row["ruling"] for row in told["rows"]] == ["fail", "fail"]
    assert all(0.85 < row["ratio"]["point"] < 0.95 for row in told["rows"])


def test_a_simulated_gate_that_is_continued_does_not_repeat_its_noise(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = ("--set", "engine.mock.noise=0.1")
    folder = found(capsys, 4, *noisy, "--budget", "1s")["folder"]
    told = found(capsys, 4, *noisy, "--budget", "3m", "--out", folder)
    assert all(len(set(row["ratios"])) == len(row["ratios"]) > 3 for row in told["rows"])


def test_a_file_is_not_written_over_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate("--markdown", "gate.txt", "--junit", "./gate.txt") == 2
    assert "two of them are one file" in capsys.readouterr().err
    assert not (folder / "gate.txt").exists()


@pytest.mark.slow
def test_two_folders_with_the_same_wheel_are_told_to_be_the_same_and_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    for name in ("old", "new"):
        shutil.copytree(Path(spec.origin).parent, folder / name / "xllamacpp")
    small = ("targets.dense=bench:dense", "engine.threads=1", "generation.max_tokens=8")
    options = [it for change in small for it in ("--set", change)]
    assert gate("--json", "--noisy", *options, "--budget", "40s", "--tolerance", "50", base="old", head="new") in (0, 4)
    told = json.loads(capsys.readouterr().out)
    assert told["same_build"]
    with (folder / "new" / "xllamacpp" / "__init__.py").open("a", encoding="utf-8") as code:
        code.write("\n")
    engines = SeveralBuilds({"base": "old", "head": "new"}).identify()
    assert not same_build({engines.binary: engines.binary_sha256, **engines.libraries})
    assert told["engine"].count("xllamacpp 20") == 2
    assert all(row["texts"] and not row["other_texts"] for row in told["rows"])
    base, head = told["rows"][1]["lengths"]
    assert base == head
    with RunStore.open(Path(told["folder"]), readonly=True) as store:
        (engine,) = {session.engine.version for session in store.sessions()}
        assert engine == told["engine"]
