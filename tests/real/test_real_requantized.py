"""A real model in two quantizations, the coarse one drafting for the fine one: expected first, then measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from real_models import in_f16
from specmeter.analysis.reading import RunReport, read_run
from specmeter.cli import invoke
from specmeter.models.requantize import make
from specmeter.record import Finding
from specmeter.store import RunStore
from specmeter.validity.checks.replay import replay_differs
from specmeter.validity.checks.run_data import read_run_data

pytestmark = pytest.mark.slow

ARM = "fine/draft-simple/coarse/g3"


@pytest.fixture(scope="module")
def made(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("real-requantized")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECMETER_CACHE", str(folder / "cache"))
        wide = in_f16(smol, folder / "F16.gguf")
        return {kind: make(wide, kind).path for kind in ("Q8_0", "Q2_K")}


@pytest.fixture(scope="module")
def run(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real-drafted")
    asked = {
        "name": "real-requantized",
        "targets": {"fine": str(made["Q8_0"])},
        "drafts": {"coarse": str(made["Q2_K"])},
        "workloads": [{"source": "studies", "kinds": ["code", "fact"], "per_kind": 1}],
        "arms": [{"draft": "coarse", "gamma": 3}],
        "design": {"blocks": 2, "warmup": "brief"},
        "engine": {"context": 1024, "threads": 1},
        "generation": {"max_tokens": 40, "ignore_eos": False},
    }
    file = folder / "drafted.yaml"
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) in (0, 1)
    return folder / "run"


@pytest.fixture(scope="module")
def report(run: Path) -> RunReport:
    return read_run(run)


def test_types_are_those_that_were_asked_for(made: dict[str, Path]) -> None:
    assert made["Q2_K"].stat().st_size < made["Q8_0"].stat().st_size


def test_an_expectation_was_on_record_before_its_first_request(run: Path, report: RunReport) -> None:
    (outcome,) = (it for it in report.predictions if it.prediction.arm_id == ARM)
    assert outcome.prediction.speedup is not None, outcome.prediction.reason
    with RunStore.open(run, readonly=True) as store:
        begun = [it.started_at for it in store.sessions() if it.arm_id == ARM]
    assert begun
    assert outcome.prediction.made_at <= min(begun)


def test_tokens_per_step_are_expected_to_the_unit(report: RunReport) -> None:
    """They follow from the two models alone; only a near tie may part the texts that are replayed and measured."""
    (outcome,) = (it for it in report.predictions if it.prediction.arm_id == ARM)
    (arm,) = (it for it in report.summary.arms if it.arm_id == ARM)
    assert arm.tau is not None
    assert arm.acceptance is not None
    assert arm.acceptance.point > 0.3, "a model agrees with itself in fewer bits"
    expected = outcome.prediction.inputs["tau"]
    assert isinstance(expected, float)
    assert math.isclose(expected, arm.tau.point, rel_tol=0.05)


def test_counters_are_what_the_draft_itself_says_of_the_texts(run: Path) -> None:
    with RunStore.open(run, readonly=True) as store:
        found = [it for it in replay_differs(read_run_data(store)) if isinstance(it, Finding)]
    assert found == []
