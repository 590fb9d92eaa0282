"""Runs of single invocations become one run, which is checked device by device."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from specmeter.errors import ExperimentError, StoreError
from specmeter.experiments.file import LoadedExperiment, load_text
from specmeter.laboratory.run import prepare, run
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.progress import RunProgress
from specmeter.store import RunStore
from specmeter.store.environment import environment_of
from specmeter.validity.checks.run_data import read_run_data
from specmeter.validity.inspection import certify_run, inspect
from specmeter_fleet.merge import Part, merge

TEXT = """
name: parts
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
arms: [{method: draft-simple, draft: small, gamma: [2, 4]}]
workloads: [{source: bench, kinds: [code], per_kind: 2}]
design: {blocks: 3, invocations: 3}
engine: {kind: mock, mock: {noise: 0.02}}
generation: {max_tokens: 16}
"""


def loaded(folder: Path, *changes: str) -> LoadedExperiment:
    return load_text(TEXT, "parts.yaml", folder, changes)


def measured(folder: Path, name: str, *changes: str) -> Path:
    place = folder / name
    run(prepare(loaded(folder, *changes)), place, RunProgress(place, errors(quiet=True)))
    return place


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Part]:
    folder = tmp_path_factory.mktemp("parts")
    return [Part(measured(folder, f"part-{it}", f"only.invocations=[{it}]"), f"device-{it % 2}", it) for it in range(3)]


def merged(parts: list[Part], to: Path, *changes: str) -> Path:
    whole = loaded(to.parent, *changes)
    merge(parts, to, experiment_yaml=whole.text, experiment_json=whole.experiment.model_dump_json())
    with RunStore.open(to) as store:
        store.write_environment(environment_of(store))
        certify_run(store, measured_now=True)
    return to


def test_a_part_measures_what_the_whole_would(parts: list[Part], tmp_path: Path) -> None:
    """The same requests in the same order, and nothing of the others."""
    whole = measured(tmp_path, "whole")
    with RunStore.open(whole, readonly=True) as store, RunStore.open(parts[1].folder, readonly=True) as part:
        assert [it for it in store.cells() if it.invocation == 1] == list(part.cells())
        keys = [it.key for it in store.rows() if it.invocation == 1]
        assert [it.key for it in part.rows()] == keys
        found = part.certificate()
    assert found is not None
    assert (found.state, found.verdict) == ("complete", "valid")


def test_the_merged_run_has_every_request_once(parts: list[Part], tmp_path: Path) -> None:
    with RunStore.open(merged(parts, tmp_path / "merged"), readonly=True) as store:
        rows = list(store.rows())
        assert (store.state().state, len(rows), len(store.done_keys())) == ("complete", 3 * 3 * 3 * 2, 3 * 3 * 3 * 2)
        assert len(list(store.requests())) == len(rows)
        store.check()
        assert [(it.device, it.invocations) for it in store.hosts()] == [
            ("device-0", (0,)),
            ("device-1", (1,)),
            ("device-0", (2,)),
        ]
        again = inspect(store)
    assert again.certificate.verdict == "valid", again.findings
    assert not again.refuted


def test_each_device_is_looked_at_by_itself(parts: list[Part], tmp_path: Path) -> None:
    with RunStore.open(merged(parts, tmp_path / "merged"), readonly=True) as store:
        data = read_run_data(store)
    (first, one), (second, other) = data.devices()
    assert (first, second) == ("device-0", "device-1")
    assert {it.row.invocation for it in one.requests} == {0, 2}
    assert {it.invocation for it in other.sessions.values()} == {1}
    assert len(one.plan) == 2 * len(other.plan)
    assert other.predictions == ()
    assert list(one.devices()) == [("", one)]


def test_a_part_that_is_missing_is_said_by_the_experiment(parts: list[Part], tmp_path: Path) -> None:
    folder = merged([parts[0], parts[2]], tmp_path / "merged", "only.invocations=[0, 2]")
    with RunStore.open(folder, readonly=True) as store:
        found = inspect(store)
        assert found.certificate.state == "complete"
    assert found.certificate.verdict == "valid", found.findings


def test_parts_that_did_not_measure_the_same_are_refused(parts: list[Part], tmp_path: Path) -> None:
    other = measured(tmp_path, "other", "only.invocations=[1]", "generation.max_tokens=17")
    with pytest.raises(StoreError, match=r"device-9 measured something else: experiment\.generation\.max_tokens"):
        merged([parts[0], Part(other, "device-9", 1)], tmp_path / "merged")
    assert not RunStore.exists(tmp_path / "merged")
    with pytest.raises(StoreError, match="contains invocation 1, not only 0"):
        merged([Part(parts[1].folder, "device-1", 0)], tmp_path / "again")


def test_parts_may_follow_other_rules_for_disturbed_blocks(parts: list[Part], tmp_path: Path) -> None:
    other = measured(tmp_path, "other", "only.invocations=[1]", "design.disturbed=repeat")
    both = [parts[0], Part(other, "device-1", 1)]
    assert RunStore.exists(merged(both, tmp_path / "merged", "only.invocations=[0, 1]"))


def test_an_invocation_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"only\.invocations: 3 is not one of the 3"):
        loaded(tmp_path, "only.invocations=[3]")


def test_samples_say_whose_they_are(parts: list[Part], tmp_path: Path) -> None:
    """Two machines at one time: a sample belongs to the requests of its own."""
    made: list[Part] = []
    for part in parts[:2]:
        place = tmp_path / part.folder.name
        place.mkdir()
        (place / "run.sqlite").write_bytes((part.folder / "run.sqlite").read_bytes())
        with closing(sqlite3.connect(place / "run.sqlite")) as db:
            sample = {"at": 5.0, "cpu_percent": 50, "other_cpu_percent": 1, "memory_available_bytes": 1}
            db.execute("INSERT INTO telemetry (at, json) VALUES (5.0, ?)", (json.dumps(sample),))
            db.commit()
        made.append(part._replace(folder=place))
    with RunStore.open(merged(made, tmp_path / "merged", "only.invocations=[0, 1]"), readonly=True) as store:
        assert [it.invocation for it in store.telemetry()] == [0, 1]
        (_, one), (_, other) = read_run_data(store).devices()
    assert [len(it.telemetry) for it in (one, other)] == [1, 1]
