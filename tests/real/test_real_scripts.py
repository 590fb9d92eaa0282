"""`scripts/try_real.py` and `benchmarks/real.py`, on simulated models: what is asked, kept, judged and said."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from specmeter.workloads.user_files import read_prompts

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "try_real.py"
MOCKS = ("--target", "mock:dense", "--draft", "mock:small", "--engine", "mock")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """(try_real, the benchmark)."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("try_real"), importlib.import_module("real")


def answer(**changes: Any) -> dict[str, Any]:
    """What `advise --json` says, as far as it is read."""
    arm = {"id": "t/draft", "methods": ["draft-simple"], "draft": "d", "gamma": 4, "gamma_min": None, "p_min": 0.75}
    arm |= {"ngram_n": None, "ngram_min_hits": None}
    return {"decision": "speculate", "arm": arm, "arms": [arm], "speedup_of": None} | changes


def test_prompts_can_be_read_and_differ() -> None:
    folder = ROOT / "benchmarks" / "real_prompts"
    mine, others = (list(read_prompts([folder / f"{name}.jsonl"], "user")) for name in ("mine", "others"))
    assert len(mine) == 8
    assert {it.kind for it in mine} == {"chat", "code", "edit"}
    assert {it.kind for it in others} == {"chat", "code", "edit", "zh"}
    assert not {it.text for it in mine} & {it.text for it in others}


def test_models_that_are_missing_are_told_in_one_line_and_nothing_is_asked(tmp_path: Path) -> None:
    absent = ("--target", "hf:absent/nothing/at-all.gguf", "--draft", "mock:small", "--engine", "mock")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path), *absent[:4]],
        capture_output=True,
        text=True,
        env={
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_CACHE": str(tmp_path),
            "SPECMETER_CACHE": str(tmp_path / "c"),
            "HOME": "/x",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("try_real: skipped, not on this machine: hf:absent/nothing/at-all.gguf")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
def test_advice_is_asked_for_and_held_against_whole_answers(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), *MOCKS, "--blocks", "2"]
    first = subprocess.run(command, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert "| no speculation |" in first.stdout
    assert "| ngram-simple-g16-n4 |" in first.stdout
    assert "nothing measured contradicts the advice" in first.stdout
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.stdout == first.stdout, "what is there is not measured again"


def test_an_advice_that_whole_answers_contradict_is_called_wrong(modules: tuple[ModuleType, ModuleType]) -> None:
    tried, _ = modules
    off, drafting = answer(decision="off"), answer()
    line = tried.chosen(drafting)
    assert line == {"method": "draft-simple", "draft": "draft", "gamma": 4, "p_min": 0.75}
    assert tried.named(line) == "draft-simple-g4-p0.75"
    assert tried.chosen(off) is None
    assert tried.in_question(off) == line
    plain = tried.Row(None, 10.0, 1.0)
    fast, slow = (tried.Row(line, 10 * it, it, it - 0.02, it + 0.02) for it in (1.5, 0.8))
    close = tried.Row(line, 10.1, 1.01, 0.99, 1.03)
    assert "is slower than no speculation" in tried.wrong(drafting, [plain, slow])
    assert "is faster" in tried.wrong(off, [fast, plain])
    for advice, table in ((drafting, [fast, plain]), (off, [plain, slow]), (off, [close, plain])):
        assert tried.wrong(advice, table) == ""


@pytest.mark.slow
def test_a_question_is_judged_by_a_grid_and_kept(
    tmp_path: Path,
    modules: tuple[ModuleType, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried, real = modules
    monkeypatch.setattr(real, "models", lambda *_: tried.Models("mock:dense", "mock:small", "mock"))
    monkeypatch.setattr(real, "GRID", (real.LOOKUPS[0], *real.DRAFTED[:2]))
    monkeypatch.setattr(real, "TOKENS", 64)
    asked = [it for it in real.QUESTIONS if it.name == "qwen-code"]
    real.questions(tmp_path, asked, 2, False)
    table = capsys.readouterr().out
    assert "| qwen-code |" in table
    assert "1 decided" in table
    real.duel(tmp_path, asked, False)
    assert "| qwen-code |" in capsys.readouterr().out
    kept = sorted(it.name for it in (tmp_path / "questions" / "qwen-code").glob("*.json"))
    assert kept == ["advice.json", "best.json", "duel.json", "grid.json"]
    monkeypatch.setattr(real, "measure", None)
    monkeypatch.setattr(real, "advise", tried.advise)
    real.questions(tmp_path, asked, 2, False)
    assert capsys.readouterr().out == table


@pytest.mark.slow
def test_every_prediction_has_its_line_and_is_kept(
    tmp_path: Path,
    modules: tuple[ModuleType, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried, real = modules
    monkeypatch.setattr(real, "models", lambda *_: tried.Models("mock:dense", "mock:small", "mock"))
    real.predictions(tmp_path, ["smol"], 2, 1, False)
    table = capsys.readouterr().out
    assert [line for line in table.splitlines() if "| smol | draft-simple-g4 | - | - |" in line], "simulated: no probe"
    assert table.count("| smol |") == real.OF_SMOL
    monkeypatch.setattr(real, "measure", None)
    real.predictions(tmp_path, ["smol"], 2, 1, False)
    assert capsys.readouterr().out == table


def test_there_are_ten_questions_and_thirty_predictions(modules: tuple[ModuleType, ModuleType]) -> None:
    tried, real = modules
    assert len({it.name for it in real.QUESTIONS}) == 10
    assert 2 * len(real.PREDICTED) + 2 * len(real.PREDICTED[: real.OF_SMOL]) == 30
    names = [tried.named(it) for it in real.GRID]
    assert len(set(names)) == len(names)


def test_other_prompts_are_of_the_kind_that_was_asked_about(
    tmp_path: Path, modules: tuple[ModuleType, ModuleType]
) -> None:
    _, real = modules
    for question in real.QUESTIONS:
        (path,) = question.others(tmp_path)["paths"]
        kinds = {json.loads(line)["kind"] for line in Path(path).read_text(encoding="utf-8").splitlines()}
        assert kinds == ({"chat", "code", "edit"} if question.kind == "mine" else {question.kind})
