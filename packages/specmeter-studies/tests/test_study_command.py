"""`specmeter study` on the mock engine: parts, what is left out, resuming, exit codes, and what is printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from specmeter.cli import invoke
from specmeter.experiments.file import LoadedExperiment
from specmeter.messages import Message
from specmeter.record import Arm
from specmeter.store import RunStore
from specmeter_studies import names
from specmeter_studies.folder import StudyFolder
from stand_in_study import NAME, install

MOCK = ("--set", "engine.kind=mock", "--set", "generation.max_tokens=16", "--set", "demo.design.blocks=2")
MOE_SD = {
    "arms": "[{target: 35B_Q4, draft: 0.8B_Q8, gamma: 4}]",
    "targets.35B_Q4": "mock:moe",
    "targets.0.8B_Q8": "mock:small",
    "drafts.0.8B_Q8": "mock:small",
    "engine.context": "4096",
}
BOTH = (*MOCK, *(word for key, value in MOE_SD.items() for word in ("--set", f"moe-sd.{key}={value}")))
INTERRUPT = ("--set", "demo.engine.mock={faults: [{kind: interrupt, call: 30}]}")
DEMO_REQUESTS = 2 * 2 * (4 + 4 + 2)
"""Blocks x targets x (baseline and draft on four prompts, a lookup on two)."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def only_study_folder() -> Path:
    (found,) = Path("specmeter-runs").iterdir()
    return found


def test_a_study_is_measured_part_by_part(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, "demo", "moe-sd")
    assert invoke(["study", "run", NAME, "--variant", "bench", "--variant", "quick", *BOTH]) in (0, 1)
    printed = capsys.readouterr()
    assert "part 1 of 2: demo" in printed.err
    assert "part 2 of 2: moe-sd" in printed.err
    assert "Requests were measured." in printed.out
    assert "1 supported, 0 contradicted" in printed.out
    study = only_study_folder()
    assert RunStore.exists(study / "demo")
    assert RunStore.exists(study / "moe-sd")
    assert "Requests were measured." in (study / "report.html").read_text(encoding="utf-8")
    with RunStore.open(study / "moe-sd", readonly=True) as store:
        assert json.loads(store.experiment_json)["applied"] == ["bench", "quick"]
    with RunStore.open(study / "demo", readonly=True) as store:
        assert store.state().ok == DEMO_REQUESTS
        assert json.loads(store.experiment_json)["applied"] == []


def test_it_is_shown_and_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *MOCK, "--json"]) == 0
    run = answer(capsys)
    assert run["requests"] == DEMO_REQUESTS
    assert run["parts"] == [{"part": "demo", "status": "measured", "reason": None}]
    assert run["verdicts"]["demo"] in ("valid", "suspect")
    assert invoke(["study", "show", "--json"]) == 0
    assert answer(capsys) == run
    assert invoke(["study", "show", Path(run["folder"]).name]) == 0
    shown = capsys.readouterr().out
    assert "dense/draft-simple/small/g4" in shown
    assert "Simulated" in shown
    assert invoke(["study", "list", "--json"]) == 0
    listed = answer(capsys)
    assert [study["name"] for study in listed["studies"]] == [NAME]
    assert listed["measured"][0]["state"] == "complete"
    assert invoke(["study", "list"]) == 0
    assert run["folder"] in capsys.readouterr().out.replace("\n", "")


def test_studies_are_listed_below_their_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["study", "list", "--json"]) == 0
    sources = [study["source"] for study in answer(capsys)["studies"]]
    (shared, studies), *_ = Counter(sources).most_common()
    assert studies > 1
    assert invoke(["study", "list"]) == 0
    listed = "".join(capsys.readouterr().out.split())
    assert listed.count("".join(shared.split())) == 1


def test_ctrl_c_keeps_everything_and_the_same_command_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo", "moe-sd")
    order = ["study", "run", NAME, "--variant", "quick", *BOTH, *INTERRUPT]
    assert invoke(order) == 130
    said = capsys.readouterr().err
    study = only_study_folder()
    with RunStore.open(study / "demo", readonly=True) as store:
        before = store.state().ok
    assert said.count("stopped") == 1
    assert f"kept in {study}: demo: {before} of {DEMO_REQUESTS} requests; moe-sd: nothing yet\n" in said
    assert f"to continue: {shlex.join(['specmeter', *order, '--out', str(study)])}\n" in said
    assert 0 < before < DEMO_REQUESTS
    assert invoke(["study", "show", "--json"]) in (0, 1)
    parts = answer(capsys)["parts"]
    assert [part["status"] for part in parts] == ["incomplete", "incomplete"]
    assert parts[0]["reason"]["values"] | {"ok": before, "planned": DEMO_REQUESTS} == parts[0]["reason"]["values"]
    assert parts[1]["reason"]["code"] == "study.ran.not_begun"
    # Each start of the mock engine counts its calls anew, so that the same fault stops it again, further on.
    for _ in range(DEMO_REQUESTS):
        if (code := invoke(order)) != 130:
            break
    assert code in (0, 1)
    assert only_study_folder() == study
    with RunStore.open(study / "demo", readonly=True) as store:
        assert store.state().state == "complete"
    capsys.readouterr()
    assert invoke(order) == 130, "a complete study is measured anew"
    assert len(list(Path("specmeter-runs").iterdir())) == 2


def test_another_order_does_not_go_on_in_the_same_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *MOCK, *INTERRUPT, "--out", "here"]) == 130
    assert invoke(["study", "run", NAME, *MOCK, "--out", "here"]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err
    assert invoke(["study", "run", NAME, *MOCK, *INTERRUPT, "--out", "here", "--new"]) == 2


def no_moe(part: str, loaded: LoadedExperiment, arms: Sequence[Arm]) -> Mapping[str, Message]:  # noqa: ARG001
    return {arm.id: Message("this machine has no experts") for arm in arms if arm.id == "moe/none"}


def test_what_cannot_be_measured_here_is_left_out_with_all_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo", needs=no_moe)
    assert invoke(["study", "run", NAME, *MOCK, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["requests"] == DEMO_REQUESTS // 2
    skipped = {part["part"]: part["reason"]["text"] for part in found["parts"] if part["status"] == "skipped"}
    assert skipped["demo: moe/none"] == "this machine has no experts"
    assert skipped["demo: moe/draft-simple/small/g4"] == "its baseline moe/none is left out"


def test_a_part_without_its_models_is_skipped_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo", "moe-sd")
    mock = ("--set", "demo.engine.kind=mock", "--set", "generation.max_tokens=16")
    assert invoke(["study", "run", NAME, "--offline", *mock, "--json"]) == 0
    found = answer(capsys)
    states = {part["part"]: part for part in found["parts"]}
    assert states["demo"]["status"] == "measured"
    assert states["moe-sd"]["status"] == "skipped"
    assert "--offline forbids it" in states["moe-sd"]["reason"]["text"]


def test_one_error_lists_all_models_when_nothing_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, "--model", "dense=a.gguf", "--model", "moe=b.gguf", "--offline"]) == 2
    printed = capsys.readouterr().err
    assert "2 models are not on this machine" in printed
    assert "targets.dense = a.gguf" in printed
    assert "targets.moe = b.gguf" in printed
    assert not Path("specmeter-runs").exists()


def test_a_model_of_ones_own_takes_the_place_of_the_studys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *MOCK, "--model", "moe=mock:dense", "--json"]) == 0
    assert {model["name"]: model["reference"] for model in answer(capsys)["models"]}["moe"] == "mock:dense"


def test_failed_requests_and_invalid_numbers_have_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    dies = ("--set", "engine.mock={faults: [{kind: dies, arm: dense/none}]}")
    assert invoke(["study", "run", NAME, *MOCK, *dies]) == 3
    capsys.readouterr()
    fails = ("--set", "engine.mock={faults: [{kind: decode-failed}]}")
    assert invoke(["study", "run", NAME, *MOCK, *fails, "--json"]) == 1
    found = answer(capsys)
    assert found["verdicts"]["demo"] == "invalid"
    false = [line for line in found["arms"] if line["verdict"] == "invalid" and line["claimed_speedup"]]
    assert false
    assert all(line["speedup"] is None and line["why"] for line in false)
    assert invoke(["study", "show"]) == 1
    assert "is false)" in capsys.readouterr().out


def test_a_dry_run_counts_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo", "qat-vs-ptq", needs=no_moe)
    monkeypatch.setattr("specmeter_studies.quality.plan.missing", lambda: "not on this machine")
    assert invoke(["study", "run", NAME, *MOCK[:2], "--set", "qat-vs-ptq.repeats=1", "--dry-run", "--json"]) == 2
    assert "engine" in capsys.readouterr().err, "a quality plan has no engine.kind"
    assert invoke(["study", "run", NAME, "--set", "demo.engine.kind=mock", "--dry-run", "--json", "--offline"]) == 0
    told = answer(capsys)
    demo, plan = told["parts"]
    assert demo["requests"] == told["requests"] == 4 * (4 + 4 + 2)
    assert demo["quality"] is None
    assert len(demo["left_out"]) == 3
    assert plan["kind"] == "quality"
    assert plan["skipped"]
    assert plan["requests"] is plan["quality"] is None
    assert not Path("specmeter-runs").exists()


def test_a_dry_run_of_what_cannot_be_measured_ends_as_the_run_would(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    order = ["study", "run", NAME, "--model", "dense=a.gguf", "--model", "moe=b.gguf", "--offline", "--dry-run"]
    assert invoke(order) == 2
    assert "total: nothing" in capsys.readouterr().out
    assert invoke([*order, "--json"]) == 2
    assert answer(capsys)["requests"] == 0


def test_a_dry_run_tells_sizes_in_fitting_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *MOCK, "--dry-run"]) == 0
    assert re.search(r"disk:   [1-9][\d.]* [kM]B to be written", capsys.readouterr().out)


def test_a_dry_run_names_settings_with_which_nothing_is_drafted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "demo")
    arms = "arms=[{target: dense, method: ngram-simple, ngram_n: 6, gamma: 4}]"
    assert invoke(["study", "run", NAME, "--set", arms, "--dry-run"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "warning: dense/ngram-simple/g4/n6: ngram-simple never drafts" in told


def test_a_dry_run_counts_quality_in_its_own_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "apple-quant-ladder", "hardware-comparison")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("specmeter.engines.llama_cpp.tools.builds", list)
    monkeypatch.delenv("SPECMETER_LLAMA_SERVER", raising=False)
    order = ["study", "run", NAME, "--variant", "bench", "--variant", "quick", "--dry-run"]
    assert invoke([*order, "--set", "hardware-comparison.repeats=1", "--json"]) == 0
    told = answer(capsys)
    ladder, rates = (part["quality"] for part in told["parts"])
    # No program of llama.cpp is at hand, and all seven rungs are made.
    assert ladder["amount"] == {"models": 7, "perplexities": 7, "windows": 14, "timings": 7 * 2 * 2}
    assert not ladder["without"]
    models = rates["amount"]["models"]
    assert rates["amount"] == {"models": models, "perplexities": 0, "windows": 0, "timings": 2 * models}
    assert told["requests"] == 0
    assert told["quality"]["timings"] == 28 + 2 * models
    assert invoke(order) == 0
    shown = capsys.readouterr().out
    assert "7 models (7 perplexities of 14 windows in all, 28 timings)" in shown
    assert "scores: 2 windows of 512 tokens of each model" in shown
    assert "times:  pp32, tg16 of each model, in 2 blocks" in shown
    assert "left out: Q2_K" not in shown
    assert "requests" not in shown
    assert not Path("specmeter-runs").exists()


def test_help_tells_the_variants_of_each_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["study", "run", "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    told = {line.split()[0]: line.split(None, 1)[1] for line in shown[shown.index("Variants:") + 1 :] if line.strip()}
    assert list(told) == list(names())
    assert told["cross-device"] == "rpc, relay, faithful, bench, quick"
    assert told["moesd"] == "none"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--variant", "bench"], "stand-in has none of this name"),
        (["--faithful"], "stand-in has none of this name"),
        (["--model", "mo=x.gguf"], "did you mean moe?"),
        (["--model", "x.gguf"], "not NAME=REFERENCE"),
        (["--model", "moe=a", "--model", "moe=b"], "given twice"),
        (["--set", "demo.design.bloks=2"], "did you mean 'blocks'"),
    ],
)
def test_what_cannot_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *flags]) == 2
    assert message in capsys.readouterr().err


def test_folders_that_are_no_studies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["study", "show"]) == 2
    assert "contains no studies" in capsys.readouterr().err
    assert invoke(["study", "show", str(tmp_path)]) == 2
    (tmp_path / "study.json").write_text('{"study": "x", "made_at": 1, "parts": [{"name": "../x"}]}', encoding="utf-8")
    assert invoke(["study", "show", str(tmp_path)]) == 2
    assert invoke(["study", "run", "unknown"]) == 2


@pytest.mark.slow
def test_both_kinds_of_parts_are_measured_on_the_real_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "moe-sd", "hardware-comparison")
    order = ["study", "run", NAME, "--variant", "bench", "--variant", "quick", "--out", "here", "--json"]
    order += ["--set", "moe-sd.arms=[{target: 35B_Q4, draft: 0.8B_Q8, gamma: 4}]", "--set", "moe-sd.design.blocks=1"]
    order += ["--set", "moe-sd.generation.max_tokens=8", "--set", "hardware-comparison.repeats=1"]
    assert invoke(order) in (0, 1)
    found = answer(capsys)
    assert [(part["part"], part["status"]) for part in found["parts"]] == [
        ("moe-sd", "measured"),
        ("hardware-comparison", "measured"),
    ]
    assert found["requests"] == 6
    timed = found["quality"]
    assert timed["timings"] == 2 * timed["models"] > 0
    assert found["title"]["code"] == "study.measured.bench"
    assert invoke(["study", "show", "here"]) in (0, 1)
    assert f"6 requests, {timed['models']} models ({timed['timings']} timings), measured" in capsys.readouterr().out
    assert Path("here/hardware-comparison.json").is_file()
    modified = Path("here/hardware-comparison.json").stat().st_mtime_ns
    assert invoke(order) in (0, 1)
    assert "resuming" in capsys.readouterr().err
    assert Path("here/hardware-comparison.json").stat().st_mtime_ns == modified, "nothing was left to be measured"


def test_a_part_that_holds_another_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same measurement must not be shown as two parts."""
    install(monkeypatch, "demo", "moe-sd")
    assert invoke(["study", "run", NAME, *BOTH, "--out", "made"]) in (0, 1)
    shutil.rmtree("made/moe-sd")
    shutil.copytree("made/demo", "made/moe-sd")
    capsys.readouterr()
    assert invoke(["study", "show", "made"]) == 2
    assert "holds the experiment 'demo', not 'moe-sd'" in capsys.readouterr().err


def test_a_part_whose_data_was_changed_is_called_invalid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its certificate said when it was measured."""
    install(monkeypatch, "demo")
    assert invoke(["study", "run", NAME, *MOCK, "--out", "made"]) in (0, 1)
    assert StudyFolder(Path("made")).verdicts()["demo"] != "invalid"
    with sqlite3.connect("made/demo/run.sqlite") as database:
        database.execute("UPDATE request SET predicted_ms = predicted_ms / 2")
    database.close()
    capsys.readouterr()
    assert invoke(["study", "show", "made"]) == 1
    assert "demo: invalid" in capsys.readouterr().out
