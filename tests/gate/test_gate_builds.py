"""Both sides of a gate: every configuration twice, and what is no build is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from programs import write_program
from specmeter.engines.llama_cpp.builds import SeveralBuilds, is_build
from specmeter.errors import UsageError
from specmeter.experiments.file import LoadedExperiment
from specmeter.gate import builds as gate_builds
from specmeter.gate.builds import GateSpec, crossed, pairs_of, same_build, two_sided
from specmeter.record import Arm

DESIGN: dict[str, Any] = {"blocks": 40, "stopping": "decided"}
MOCKS = {"base": "mock:1", "head": "mock:1.05"}


def sided(builds: dict[str, str], experiment: str | None = None, *changes: str) -> LoadedExperiment:
    return two_sided(GateSpec(builds, experiment, changes, 0.03, 60, noisy=False), DESIGN)


def arms_of(experiment: str | None = None, builds: dict[str, str] | None = None, *changes: str) -> tuple[Arm, ...]:
    return sided(builds or MOCKS, experiment, *changes).experiment.expand()


def test_each_configuration_is_measured_with_both_builds_and_has_its_own_baseline_there() -> None:
    pairs = pairs_of(arms_of("demo"))
    assert len(pairs) == 6
    for base, head in pairs:
        assert base.engine.options["build"] == "base"
        assert head.engine.options["build"] == "head"
        assert (base.target, base.methods, base.gamma) == (head.target, head.methods, head.gamma)
        for side in (base, head):
            assert side.baseline_id is None or side.baseline_id.endswith(side.engine.options["build"])


def test_texts_of_head_are_held_against_those_of_base_without_speculation() -> None:
    arms = arms_of()
    plain = next(arm.id for arm in arms if not arm.speculates and arm.engine.options["build"] == "base")
    held = crossed(arms)
    assert {arm.baseline_id for arm in held.values() if arm.id != plain} == {plain}


def test_named_configurations_and_their_baselines_stay_together(tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(
        "targets: {dense: 'mock:dense'}\ndrafts: {small: 'mock:small'}\n"
        "arms: [{name: plain, method: none}, {name: mine, draft: small, gamma: 4, baseline: plain}]\n",
        encoding="utf-8",
    )
    pairs = pairs_of(arms_of(str(tmp_path / "named.yaml")))
    assert [(base.id, head.id) for base, head in pairs] == [
        ("dense/plain-base", "dense/plain-head"),
        ("dense/mine-base", "dense/mine-head"),
    ]
    assert pairs[1][1].baseline_id == "dense/plain-head"


def test_configurations_that_are_alike_are_told_apart_by_their_order(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text(
        "targets: {dense: 'mock:dense'}\narms: [{name: a, method: none}, {name: b, method: none}]\n", encoding="utf-8"
    )
    pairs = pairs_of(arms_of(str(tmp_path / "twice.yaml")))
    assert [(base.id, head.id) for base, head in pairs] == [
        ("dense/a-base", "dense/a-head"),
        ("dense/b-base", "dense/b-head"),
    ]


def test_servers_are_one_configuration_with_the_prompts_of_the_experiment() -> None:
    servers = {"base": "http://127.0.0.1:8080", "head": "http://127.0.0.1:8081/v1"}
    loaded = sided(servers, "demo")
    assert [it.name for it in loaded.experiment.workloads] == ["text", "repetitive"]
    ((base, head),) = pairs_of(loaded.experiment.expand())
    assert base.engine.options["url"] == "http://127.0.0.1:8080"
    assert head.engine.options["url"] == "http://127.0.0.1:8081"
    assert crossed([base, head])[head.id].baseline_id == base.id


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("/nowhere", "mock:1", "--base: /nowhere: no such file or folder"),
        ("mock:1", "mock:much", "--head mock:much: not a simulated build"),
        ("mock:0", "mock:1", "--base mock:0: not a simulated build"),
        ("mock:1", "http://127.0.0.1:1", "not of one kind"),
        ("http://h:1/?key=1", "http://h:2", "followed by more than an address"),
        ("http://h:1", "HTTP://h:1/v1", "both are http://h:1"),
        ("", "mock:1", "an empty name: no such file"),
    ],
)
def test_what_is_no_build_is_refused_before_anything_is_made(base: str, head: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        sided({"base": base, "head": head})
    assert said in error.value.message
    assert error.value.fix


def test_a_folder_without_a_wheel_says_how_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        sided({"base": str(tmp_path), "head": str(tmp_path)})
    assert "no xllamacpp wheel" in error.value.message
    assert "pip install --upgrade --target" in error.value.fix


def test_a_file_that_is_no_server_says_what_is_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        sided({"base": str(tmp_path / "notes.txt"), "head": "mock:1"})
    assert "llama-server" in error.value.fix


def test_a_build_in_this_folder_is_not_looked_for_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "llama-server", "#!/bin/sh\necho version: 7\n")
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path / "llama-server")
    assert is_build(Path("llama-server"))
    assert SeveralBuilds({"base": "./llama-server"}).identify().binary == f"base: {here}"


def test_an_engine_whose_builds_it_cannot_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_builds, "_kind", lambda *_: "build")
    with pytest.raises(UsageError, match=r"engine\.kind is libllama"):
        sided({"base": "a", "head": "b"}, None, "engine.kind=libllama")


def test_same_bytes_are_the_same_build_wherever_they_are() -> None:
    assert same_build({"base: /a/server": "1", "base: /a/lib": "2", "head: /b/server": "1", "head: /b/lib": "2"})
    assert not same_build({"base: /a/server": "1", "head: /b/server": "3"})
    assert not same_build({})
