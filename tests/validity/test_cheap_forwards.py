"""The real engine on a target whose forwards over two tokens cost less than one over one: faster than tau is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.store import RunStore
from specmeter.validity.checks.run_data import read_run_data

ARM = "dense/draft-simple/small/g1"


@pytest.mark.slow
def test_a_speedup_above_tau_is_not_a_false_number(tmp_path: Path) -> None:
    """At gamma 1 this model was 2.7x as fast at tau 1.85, in every block, with counters that add up to the token."""
    experiment = {
        "name": "cheap-forwards",
        "targets": {"dense": "bench:dense-100m"},
        "drafts": {"small": "bench:draft-small"},
        "arms": [{"draft": "small", "gamma": 1}],
        "workloads": [{"source": "bench", "kinds": ["code"], "per_kind": 1}],
        "generation": {"max_tokens": 24},
        "design": {"blocks": 3, "warmup": "short"},
        "engine": {"context": 512},
    }
    file = tmp_path / "cheap.yaml"
    file.write_text(json.dumps(experiment), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    report = read_run(tmp_path / "run")
    assert not [finding for finding in report.findings if finding.severity == "invalid"]
    (arm,) = (it for it in report.summary.arms if it.arm_id == ARM)
    assert arm.speedup is not None, "it keeps its answer"
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        requests = read_run_data(store).by_arm[ARM]
    for request in requests:
        assert request.steps is not None
        assert request.steps.span_ms is not None
        assert request.row.predicted_ms is not None
        assert 0 < request.steps.span_ms <= request.row.predicted_ms, "the engine's steps lie within its decode time"
