"""Studies on small real models: which files they take, from where, and what a run on one of them is called."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest

from specmeter.cli import invoke
from specmeter.models.reference import made_of
from specmeter_studies import names
from specmeter_studies.loading import find
from specmeter_studies.order import ExperimentPart, StudyOrder, files_of, load_parts, references_of, variants_of

SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
CODER = "qwen2.5-coder-{}-instruct-q4_k_m.gguf"
REAL = [name for name in names() if any("real" in it for it in variants_of(find(name)).values())]


def test_five_studies_have_it() -> None:
    assert {"moe-306", "apple-sd", "self-speculation", "quant-acceptance", "rtx3090-19"} <= {*REAL}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("quick", [(), ("quick",)])
def test_it_has_the_studys_own_models_on_real_files(name: str, quick: tuple[str, ...]) -> None:
    parts = load_parts(StudyOrder(name, ("real", *quick)))
    assert {*files_of(parts)} <= {SMOL, CODER.format("0.5b"), CODER.format("1.5b")}
    known = {it for part in load_parts(StudyOrder(name)) for it in references_of(part)}
    for part in parts:
        references = references_of(part)
        assert references.keys() <= known, "rules know models by the document's names"
        assert all(made_of(it).startswith("hf:") for it in references.values())
        if isinstance(part, ExperimentPart):
            experiment = part.loaded.experiment
            assert experiment.expand()
            assert {it.source for it in experiment.workloads} <= {"studies", "length"}
            assert experiment.design.stopping == ("planned" if quick else "decided")


def test_files_of_a_folder_take_the_place_of_those_of_their_names(tmp_path: Path) -> None:
    (tmp_path / CODER.format("1.5b")).touch()
    order = StudyOrder("apple-sd", ("real",), models={"9B_Q8": "mine.gguf"}, models_from=tmp_path)
    (part,) = load_parts(order)
    assert references_of(part) == {
        "9B_Q8": "mine.gguf",
        "2B_Q8": str(tmp_path / CODER.format("1.5b")),
        "0.8B_Q8": f"quant:Q8_0:hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/{CODER.format('0.5b')}",
    }
    assert order.changes == ("9B_Q8=mine.gguf", f"--models {tmp_path}")


def test_what_is_missing_is_told_with_the_line_that_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert invoke(["study", "run", "self-speculation", "--variant", "real", "--offline"]) == 2
    error = capsys.readouterr().err
    fetched = f"specmeter models build hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/{CODER.format('1.5b')}"
    assert error.count(fetched) == 1
    assert f"--models DIR ({CODER.format('1.5b')})" in error
    (tmp_path / "empty").mkdir()
    assert invoke(["study", "run", "apple-sd", "--variant", "real", "--models", "empty", "--offline"]) == 2
    error = capsys.readouterr().err
    assert "--models" in error
    assert CODER.format("0.5b") in error
    assert not Path("specmeter-runs").exists()


@pytest.mark.slow
def test_a_study_runs_on_a_real_model(
    smol: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    order = ["study", "run", "self-speculation", "--variant", "real", "--variant", "quick", "--offline", "--json"]
    order += ["--set", "design.probe=off", "--set", "design.blocks=1", "--set", "generation.max_tokens=8"]
    assert invoke([*order, "--models", str(smol.parent)]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    rulings = {claim["id"]: claim["ruling"] for claim in found["claims"]}
    assert rulings["self-ratio"] == "does not apply here", "it is about a 4B model"
    assert found["parts"][0]["status"] == "measured"
    told = json.dumps(found, ensure_ascii=False)
    assert "stand-in 4B_Q2" in told
    assert "bench" not in told
