"""Several engines in one run, and the experiment that compares those that are installed here."""

from __future__ import annotations

from pathlib import Path

import pytest

import specmeter
from specmeter.engines import Launch, load_engine
from specmeter.engines.registry import spec_of
from specmeter.errors import ExperimentError
from specmeter.experiments.file import bundled, load
from specmeter.record import Arm
from specmeter_engines.several.engine import model_of
from specmeter_engines.several.spec import SEVERAL, Options

ONLY = Options(engines=("embedded",))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with llama.cpp alone."""
    monkeypatch.setattr("specmeter_engines.several.demo._is_here", lambda name: name == "embedded")


@pytest.mark.usefixtures("here")
def test_the_demo_has_the_engines_that_are_here() -> None:
    experiment = load("engines-demo").experiment
    assert experiment.targets == {"embedded": "embedded:bench:dense"}
    assert [arm.id for arm in experiment.expand()] == [
        "embedded/none",
        "embedded/draft/small/g4",
        "embedded/lookup/g4/n3",
    ]
    assert bundled()["engines-demo"].variants == ("quick",)


def test_every_engine_that_could_be_here_fits_into_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter_engines.several.demo._is_here", lambda _: True)
    experiment = load("engines-demo").experiment
    baselines = [arm.target for arm in experiment.expand() if arm.role == "baseline"]
    assert baselines == ["embedded", "vllm", "transformers", "mlx", "openvino", "onnxruntime"]
    for engine in baselines:
        traits = spec_of(engine).traits
        assert set(SEVERAL.traits.tells) <= set(traits.tells), engine


@pytest.mark.usefixtures("here")
def test_each_engine_is_measured_beside_its_own_plain_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_DISTURBED", "keep")
    run = specmeter.run("engines-demo", out=tmp_path, variants=["quick"], overrides=["generation.max_tokens=16"])
    rows = run.table("requests")
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["arm_id"] for row in rows} == {"embedded/none", "embedded/draft/small/g4", "embedded/lookup/g4/n3"}
    drafted = [row for row in rows if "draft" in row["arm_id"]]
    assert all(row["reconciled_proposed"] >= row["reconciled_accepted"] for row in drafted)


def test_what_is_of_no_engine_of_the_run_is_refused(tmp_path: Path) -> None:
    engine = load_engine("several", engines=("embedded",))
    target = model_of(ONLY, "dense", "bench:dense")
    arm = Arm(id="dense/none", target="dense", role="baseline")
    with pytest.raises(ExperimentError, match="does not start with an engine of this run"):
        engine.start(Launch(arm, target, None, tmp_path / "log"))
