"""What of a study cannot be measured here: engines, models, memory, and what hangs on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter_studies.availability import engine_problem, plan_problem, unavailable
from specmeter_studies.quality.plan import load_plan
from stand_in_study import NAME, install

PLENTY = 10**12


def test_nothing_is_missing_where_models_are_made_and_memory_is_plenty() -> None:
    assert unavailable("demo", load("demo"), available_bytes=PLENTY) == {}
    assert engine_problem(load("demo")) is None


def test_arms_that_do_not_fit_into_memory_are_left_out() -> None:
    loaded = load("demo", ["targets.dense=bench:dense-100m"])
    found = unavailable("demo", loaded, available_bytes=300_000_000)
    assert set(found) == {"moe/none", "moe/draft-simple/small/g4", "moe/ngram-simple/g8/n6"}
    assert found["moe/none"].code == "study.lacks.memory"
    assert found["moe/none"].values["free"] == 300_000_000


def test_arms_whose_baseline_does_not_fit_go_with_it() -> None:
    # The baseline has as little room as the arm; without its own reason the arm names the baseline.
    def refuse(part: str, loaded: object, arms: object) -> dict[str, Message]:  # noqa: ARG001
        return {"dense/none": Message("no")}

    found = unavailable("demo", load("demo"), available_bytes=PLENTY, more=refuse)
    assert found == {
        "dense/none": Message("no"),
        "dense/draft-simple/small/g4": Message("study.lacks.baseline", baseline="dense/none"),
        "dense/ngram-simple/g8/n6": Message("study.lacks.baseline", baseline="dense/none"),
    }


def test_a_missing_draft_costs_only_the_arms_that_use_it() -> None:
    found = unavailable("demo", load("demo", ["drafts.small=nowhere.gguf"]), available_bytes=PLENTY)
    assert set(found) == {"dense/draft-simple/small/g4", "moe/draft-simple/small/g4"}
    assert "nowhere.gguf" in str(found["moe/draft-simple/small/g4"])


def test_a_quality_plan_needs_one_of_its_models_and_its_text(tmp_path: Path) -> None:
    assert plan_problem(load_plan("hardware-comparison", variants=["bench"]), offline=True) is None
    assert "--offline forbids it" in str(plan_problem(load_plan("hardware-comparison"), offline=True))
    one = load_plan("hardware-comparison", ["models.9B_Q8=bench:dense"])
    assert plan_problem(one, offline=True) is None
    text = str(tmp_path / "nowhere.txt")
    scored = load_plan("hardware-comparison", ["score=true", f"text={text}"], variants=["bench"])
    assert "nowhere.txt" in str(plan_problem(scored))


def test_a_part_whose_engine_is_missing_is_skipped_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, "demo", "moe-sd")
    order = ["study", "run", NAME, "--variant", "bench", "--variant", "quick", "--json"]
    order += [
        "--set",
        "demo.engine.kind=mock",
        "--set",
        "demo.design.blocks=1",
        "--set",
        "demo.generation.max_tokens=8",
    ]
    order += ["--set", "moe-sd.engine.kind=native", "--set", "moe-sd.engine.binary=/nowhere/llama-server"]
    assert invoke(order) in (0, 1)
    states = {part["part"]: part for part in json.loads(capsys.readouterr().out)["parts"]}
    assert states["demo"]["status"] == "measured"
    assert states["moe-sd"]["status"] == "skipped"
    assert "/nowhere/llama-server" in states["moe-sd"]["reason"]["text"]
