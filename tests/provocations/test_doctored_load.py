"""Finished runs under load that were doctored: what a reader is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from provocations.doctored import copied, sql
from specmeter.cli import invoke

EXPERIMENT: dict[str, Any] = {
    "name": "loaded",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": 4}],
    "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 2}],
    "engine": {"kind": "mock"},
    "load": {"clients": [1, 4], "slo": {"ttft_ms": 20_000}},
    "generation": {"max_tokens": 32},
    "design": {"blocks": 2},
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    file = folder / "loaded.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return copied(clean, tmp_path / "run")


@pytest.mark.parametrize("load", ["x", [1], {"slo": "x"}, {"slo": [1]}, {"slo": {"tpot_ms": -1}}, {"slo": {"p99": 1}}])
def test_a_load_that_cannot_be_one(load: object, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patched = json.dumps({"load": load})
    if not isinstance(load, dict):
        sql(copy, "UPDATE run SET experiment_json = json_remove(experiment_json, '$.load')")
    sql(copy, "UPDATE run SET experiment_json = json_patch(experiment_json, ?)", patched)
    for command in ("show", "check", "report"):
        assert invoke([command, str(copy)]) == 2
        assert "the stored experiment cannot be one: load" in capsys.readouterr().err
