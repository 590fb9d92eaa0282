"""What a controller is, and what is measured beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specmeter.advise.controllers import fixed_lengths, is_controller, with_fixed_lengths
from specmeter.errors import ExperimentError
from specmeter.experiments.file import LoadedExperiment, load


def loaded(*arms: dict[str, Any], **changes: Any) -> LoadedExperiment:
    keys = {"target": "mock:dense", "draft": "mock:small", "engine": {"kind": "mock"}, "arms": list(arms)}
    return load(keys | changes)


def ids(experiment: LoadedExperiment) -> list[str]:
    return [arm.id.partition("/")[2].removeprefix("draft-simple/small/") for arm in experiment.experiment.expand()]


def test_plain_decoding_and_fixed_lengths_stand_beside_each_controller() -> None:
    grown = with_fixed_lengths(loaded({"gamma": 6, "policy": "utility"}, {"gamma": 2, "p_min": 0.5}, {"gamma": 3}))
    assert grown.experiment.name == "certify-dense"
    assert ids(grown) == ["none", "g6/utility", "g2/p0.5", "g3", "g1", "g2", "g4", "g6"]
    arms = {arm.id: arm for arm in grown.experiment.expand()}
    controllers = [arm for arm in arms.values() if is_controller(arm, arms)]
    assert [arm.gamma for arm in controllers] == [6, 2]
    assert [[it.gamma for it in fixed_lengths(arm, arms)] for arm in controllers] == [
        [1, 2, 3, 4, 6],
        [1, 2, 3, 4, 6],
    ]
    again = load(yaml.safe_load(grown.text))
    assert again.experiment == grown.experiment


def test_lengths_that_are_named_end_with_the_controllers_own() -> None:
    assert ids(with_fixed_lengths(loaded({"gamma": 10, "p_min": 0.5}), (2, 8, 32))) == [
        "none",
        "g10/p0.5",
        "g2",
        "g8",
        "g10",
    ]
    unsaid = {"engine": {"kind": "libllama"}, "target": "bench:dense", "draft": "bench:draft-small"}
    assert ids(with_fixed_lengths(loaded({"policy": "entropy"}, **unsaid)))[1:] == [
        "draft-simple/draft-small/entropy",
        *(f"draft-simple/draft-small/g{gamma}" for gamma in (1, 2, 3)),
    ]


def test_other_drafts_and_settings_have_fixed_lengths_of_their_own() -> None:
    lines = (
        {"gamma": 2, "policy": "utility"},
        {"method": "ngram-simple", "ngram_n": 4, "gamma": 2, "policy": "utility"},
        {"gamma": 2, "policy": "utility", "engine": {"threads": 3}},
    )
    grown = with_fixed_lengths(loaded(*lines)).experiment
    arms = {arm.id: arm for arm in grown.expand()}
    for arm in (it for it in arms.values() if it.policy):
        fixed = fixed_lengths(arm, arms)
        assert [it.gamma for it in fixed] == [1, 2]
        assert all((it.methods, it.engine) == (arm.methods, arm.engine) for it in fixed)
        assert {it.baseline_id for it in fixed} == {arm.baseline_id}


def test_an_engines_flags_are_the_controller_and_nothing_else_has_them() -> None:
    flags = {"gamma": 2, "engine": {"extra_flags": ["--spec-autotune"]}}
    grown = with_fixed_lengths(loaded(flags, {"gamma": 2, "p_min": 0.5})).experiment
    arms = {arm.id: arm for arm in grown.expand()}
    assert [arm.id for arm in arms.values() if arm.engine.extra_flags] == [
        "dense/draft-simple/small/g2/extra_flags=--spec-autotune"
    ]
    assert {arm.baseline_id for arm in arms.values() if arm.speculates} == {"dense/off"}
    assert [len(fixed_lengths(arm, arms)) for arm in arms.values() if is_controller(arm, arms)] == [2, 2]


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(ExperimentError, match="no arm is a controller"):
        with_fixed_lengths(loaded({"gamma": 4}, {"gamma": 4, "p_min": 0}))
    with pytest.raises(ExperimentError, match=r"arms.0: the longest draft"):
        with_fixed_lengths(loaded({"policy": "utility"}))
    with pytest.raises(ExperimentError, match=r"arms.0: it has flags .* changes threads"):
        with_fixed_lengths(loaded({"gamma": 2, "engine": {"extra_flags": ["--x"], "threads": 2}}))


def test_files_named_beside_the_experiment_are_still_found_there(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\n", encoding="utf-8")
    keys = {
        "target": "mock:dense",
        "draft": "mock:small",
        "engine": {"kind": "mock"},
        "arms": [{"gamma": 2, "policy": "utility"}],
        "workloads": [{"source": "file", "paths": ["lines.txt"]}],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    grown = with_fixed_lengths(load(str(tmp_path / "mine.yaml")))
    assert grown.base_dir == tmp_path.resolve()
