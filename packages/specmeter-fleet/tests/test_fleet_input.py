"""What a fleet is asked for wrongly, and what its numbers say; without Ray."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import advices
from specmeter.advise.advice import write_advice
from specmeter.cli import invoke
from specmeter.errors import SpecmeterError, UsageError
from specmeter.experiments.file import load
from specmeter.show.terminal.console import errors
from specmeter_fleet import cli, worker
from specmeter_fleet.cluster import INSTALL, Cluster, refuse_no_ray
from specmeter_fleet.head import FleetRecord, Head, begun, shipped
from specmeter_fleet.spec import Device, Fleet, of_cluster, read_fleet
from specmeter_fleet.worker import environment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices: [{name: a}, {name: a}]", "the name 'a' is listed twice"),
        ("devices: [{name: a, resource: gpu}, {name: b, resource: gpu}]", "the resource 'gpu' is listed twice"),
        ("devices: [{name: a, gpus: 1}]", "gpus"),
        ("adress: auto\ndevices: [{name: a}]", "adress"),
        ("devices: []", "devices"),
        ("devices: [{name: a, cores: '0; rm'}]", "cores"),
        ("address: http://x\ndevices: [{name: a}]", "address"),
        ("- a", "mapping"),
    ],
)
def test_a_wrong_file_is_refused_by_its_key(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecmeterError, match=said):
        read_fleet(str(tmp_path / "fleet.yaml"))


@pytest.mark.parametrize("on", ["nowhere", "local:0", "local:9999", "missing.yaml"])
def test_what_is_not_a_fleet_is_refused(on: str) -> None:
    with pytest.raises(SpecmeterError):
        read_fleet(on)


def test_devices_of_a_cluster_are_its_resources() -> None:
    fleet = of_cluster("ray://h:1", {"CPU": 8, "specmeter-b": 1, "specmeter-a": 1, "node:10.0.0.1": 1})
    assert [it.name for it in fleet.devices] == ["a", "b"]
    with pytest.raises(UsageError, match="no node of this cluster offers a device"):
        of_cluster("ray://h:1", {"CPU": 8})


def test_without_ray_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught:
        refuse_no_ray()
    assert caught.value.fix == INSTALL


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("--set design.blocks=5", "--out fleet-result --set design.blocks=5"),
        ("--out o --html p.html --lang zh --json", "--out o --html p.html --lang zh --json"),
    ],
)
def test_a_batch_script_is_printed(capsys: pytest.CaptureFixture[str], asked: str, written: str) -> None:
    assert invoke(["fleet", "run", "demo", "--on", "slurm", *asked.split()]) == 0
    said = capsys.readouterr().out
    assert said.startswith("#!/bin/bash")
    assert said.endswith(f"specmeter fleet run demo --on auto --design replicate {written}\n")


def test_no_batch_script_for_an_experiment_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["fleet", "run", "nothing.yaml", "--on", "slurm"]) == 2
    assert capsys.readouterr().out == ""


def test_an_advice_stands_for_its_confirmation(tmp_path: Path) -> None:
    write_advice(advices.confirmed(confirmation="confirm"), tmp_path)
    (tmp_path / "confirm").mkdir()
    (tmp_path / "confirm" / "experiment.yaml").write_text(
        "{target: mock:dense, arms: [{method: ngram-simple}]}", encoding="utf-8"
    )
    asked, name = cli._confirmed(str(tmp_path))  # pyright: ignore[reportPrivateUsage]
    assert load(asked, name).experiment.name == tmp_path.name
    write_advice(advices.predicted(confirmation=""), tmp_path)
    assert invoke(["fleet", "run", str(tmp_path), "--on", "local:1"]) == 2


def test_the_rule_for_disturbed_blocks_is_that_of_each_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def order(rule: str, *changes: str) -> tuple[FleetRecord, str]:
        monkeypatch.setenv("SPECMETER_DISTURBED", rule)
        sent, _ = shipped(load("demo", changes), 2)
        fleet = Fleet(devices=(Device(name="a"),))
        record = begun(tmp_path / rule, "replicate", sent, fleet)
        head = Head(None, fleet, sent, {}, tmp_path, record, print)  # type: ignore[arg-type]
        told = head._order(fleet.devices[0], "part")  # pyright: ignore[reportPrivateUsage]
        return record, told["env"]["SPECMETER_DISTURBED"]

    (first, repeat), (again, keep) = order("repeat"), order("keep")
    assert (repeat, keep) == ("repeat", "keep")
    assert first.experiment == again.experiment
    assert order("repeat", "design.disturbed=keep")[0].experiment != first.experiment


@pytest.mark.parametrize(("address", "fix"), [("local", "close other programs"), ("auto", "ray start --head")])
def test_a_cluster_that_does_not_start_says_what_to_do(monkeypatch: pytest.MonkeyPatch, address: str, fix: str) -> None:
    monkeypatch.setattr("specmeter_fleet.cluster._ray_module", lambda **_: SimpleNamespace(shutdown=lambda: None))
    with pytest.raises(SpecmeterError, match="no Ray cluster answers") as caught:
        Cluster(address, Fleet(address="local", devices=(Device(name="a"),)))
    assert fix in caught.value.fix


def test_unlike_answers_are_refused_by_name() -> None:
    head = Head(None, Fleet(devices=(Device(name="a"),)), None, {}, Path(), None, print)  # type: ignore[arg-type]
    refuse = head._refuse_unlike  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UsageError, match=r"b has 0\.0\.9"):
        refuse({"a": {"same": {}}, "b": {"specmeter": "0.0.9"}})
    with pytest.raises(UsageError, match="engine differs between devices: x 1 on a, x 2 on b"):
        refuse({"a": {"same": {"engine": "x 1"}}, "b": {"same": {"engine": "x 2"}}})
    refuse({"a": {"same": {"engine": "x 1"}}, "b": {"same": {"engine": "x 1"}}})


def test_a_worker_that_waits_for_calm_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    lines = (
        {"event": "progress", "done": 6, "planned": 12, "seconds_left": 90.0},
        {"event": "message", "text": "waits"},
    )
    log.write_text("\n".join(["begins", *map(json.dumps, lines), '{"event"']), encoding="utf-8")
    found = worker._progress(log)  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    assert found == {"done": 6, "planned": 12, "left": 90.0, "said": "waits"}
    tell = cli._progress(errors())  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        tell({"0000-a": found})
    said = capsys.readouterr().err.splitlines()
    assert said == ["0000-a: 6 of 12 requests, about 1 min 30 s left", "0000-a: waits"]


def test_what_ray_sets_for_its_tasks_does_not_reach_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OMP_NUM_THREADS", "1"), ("CUDA_VISIBLE_DEVICES", ""), ("HIP_VISIBLE_DEVICES", "3")):
        monkeypatch.setenv(name, value)
    found = environment({"LABEL": "a"})
    assert "OMP_NUM_THREADS" not in found
    assert "CUDA_VISIBLE_DEVICES" not in found
    assert (found["HIP_VISIBLE_DEVICES"], found["LABEL"]) == ("3", "a")
    assert environment({"CUDA_VISIBLE_DEVICES": "1"})["CUDA_VISIBLE_DEVICES"] == "1"
