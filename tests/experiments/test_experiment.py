"""Expansion of experiment files into arms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.engines import check_arm
from specmeter.errors import ExperimentError
from specmeter.experiments.described import Described
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.spec import DRAFTING_AXES, ArmSpec, Exclusion, split_methods
from specmeter.record import Arm, Generation


def experiment(**changes: Any) -> Experiment:
    data: dict[str, Any] = {
        "name": "test",
        "targets": {"dense": "mock:dense", "moe": "mock:moe"},
        "drafts": {"small": "mock:small", "large": "mock:large"},
        "arms": [{"draft": "small", "gamma": 4}],
        "workloads": [{"source": "bench", "name": "text"}, {"source": "bench", "name": "edit", "kinds": ["edit"]}],
    }
    return Experiment.model_validate(data | changes)


def ids(exp: Experiment) -> list[str]:
    return [arm.id for arm in exp.expand()]


def test_lists_become_a_matrix_with_one_baseline_per_target() -> None:
    exp = experiment(arms=[{"draft": ["small", "large"], "gamma": [2, 4]}])
    assert ids(exp) == [
        "dense/none",
        "dense/draft-simple/small/g2",
        "dense/draft-simple/small/g4",
        "dense/draft-simple/large/g2",
        "dense/draft-simple/large/g4",
        "moe/none",
        "moe/draft-simple/small/g2",
        "moe/draft-simple/small/g4",
        "moe/draft-simple/large/g2",
        "moe/draft-simple/large/g4",
    ]


def test_every_speculative_arm_names_a_baseline_that_exists() -> None:
    arms = experiment(arms=[{"draft": "small", "gamma": [1, 2]}, {"method": "ngram-mod"}]).expand()
    known = {arm.id for arm in arms}
    for arm in arms:
        assert (arm.baseline_id is None) == (arm.role == "baseline")
        assert arm.baseline_id is None or arm.baseline_id in known


def test_an_arm_with_other_engine_settings_gets_a_baseline_with_the_same_settings() -> None:
    exp = experiment(
        targets={"dense": "mock:dense"},
        arms=[{"draft": "small"}, {"draft": "small", "engine": {"kv_type_k": "q8_0", "draft_kv_type_k": "q8_0"}}],
    )
    by_id = {arm.id: arm for arm in exp.expand()}
    assert set(by_id) == {
        "dense/none",
        "dense/draft-simple/small",
        "dense/none/kv_type_k=q8_0",
        "dense/draft-simple/small/kv_type_k=q8_0/draft_kv_type_k=q8_0",
    }
    quantized = by_id["dense/draft-simple/small/kv_type_k=q8_0/draft_kv_type_k=q8_0"]
    assert quantized.baseline_id == "dense/none/kv_type_k=q8_0"
    assert by_id["dense/none/kv_type_k=q8_0"].engine.draft_kv_type_k is None


def test_what_an_arm_changes_survives_json() -> None:
    exp = experiment(arms=[{"draft": "small", "engine": {"slots": 1, "kv_type_k": "q8_0"}}], engine={"slots": 2})
    again = Experiment.model_validate_json(exp.model_dump_json())
    assert again.expand() == exp.expand()
    assert exp.expand()[1].engine.slots == 1


def test_a_bare_on_is_not_a_boolean() -> None:
    """YAML 1.1 reads `flash_attention: on` as true, and `probe: off` as false."""
    assert experiment(engine={"flash_attention": True}).engine.flash_attention == "on"
    assert experiment(design={"blocks": 2, "probe": False}).design.probe == "off"
    with pytest.raises(ValueError, match="probe"):
        experiment(design={"blocks": 2, "probe": True})


def test_explicit_baselines_are_merged_with_the_automatic_ones() -> None:
    exp = experiment(arms=[{"method": "none"}, {"target": "dense", "draft": "small"}])
    assert ids(exp) == ["dense/none", "dense/draft-simple/small", "moe/none"]


def test_a_baseline_runs_the_workloads_of_all_its_arms() -> None:
    only_edit = experiment(targets={"dense": "mock:d"}, arms=[{"method": "ngram-simple", "workloads": "edit"}])
    assert only_edit.expand()[0].workloads == ("edit",)
    both = experiment(
        targets={"dense": "mock:d"},
        arms=[{"method": "ngram-simple", "workloads": "edit"}, {"draft": "small", "workloads": "text"}],
    )
    assert set(both.expand()[0].workloads) == {"edit", "text"}
    everything = experiment(
        targets={"dense": "mock:d"}, arms=[{"method": "ngram-simple", "workloads": "edit"}, {"draft": "small"}]
    )
    assert everything.expand()[0].workloads == ()


def test_exclusions_and_constraints() -> None:
    exp = experiment(
        arms=[{"draft": ["small", "large"], "gamma": [2, 4]}],
        exclude=[{"target": "moe", "gamma": 4}],
        constraints=[{"when": {"draft": "large"}, "require": {"gamma": [2]}}],
    )
    assert [i for i in ids(exp) if "none" not in i] == [
        "dense/draft-simple/small/g2",
        "dense/draft-simple/small/g4",
        "dense/draft-simple/large/g2",
        "moe/draft-simple/small/g2",
        "moe/draft-simple/large/g2",
    ]


def test_methods_combine_and_drop_a_draft_that_none_of_them_uses() -> None:
    exp = experiment(
        targets={"dense": "mock:d"},
        arms=[{"method": ["ngram-mod+draft-simple", "ngram-cache"], "draft": "small", "gamma": 8}],
    )
    combined, alone = exp.expand()[1:]
    assert (combined.methods, combined.draft) == (("ngram-mod", "draft-simple"), "small")
    assert (alone.methods, alone.draft) == (("ngram-cache",), None)


def test_controls_are_marked_and_compared_with_their_baseline() -> None:
    exp = experiment(targets={"dense": "mock:d"}, design={"controls": True})
    controls = {arm.id: arm for arm in exp.expand() if arm.role == "control"}
    assert set(controls) == {"dense/none/again", "dense/none/accept-all", "dense/none/accept-none"}
    assert controls["dense/none/accept-all"].synthetic_rates == (1.0,) * 4
    assert controls["dense/none/again"].methods == ("none",)
    assert {arm.baseline_id for arm in controls.values()} == {"dense/none"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": [{"target": "dnse", "draft": "small"}]}, "'dnse' is not defined"),
        ({"arms": [{"draft": "tiny"}]}, "'tiny' is not defined"),
        ({"arms": [{"draft": "small", "workloads": "nope"}]}, "'nope' is not defined"),
        ({"arms": [{"method": "draft-simpel", "draft": "small"}]}, "did you mean draft-simple"),
        ({"arms": [{"method": "none+ngram-mod"}]}, "only alone"),
        ({"engine": {"kind": "embedded", "binary": "/bin/true"}}, "engine.binary: the engine embedded has no options"),
        ({"workloads": [{"source": "bench"}, {"source": "bench"}]}, "used twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiment(**changes)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([{"method": "draft-simple+ngram-mod"}], "needs a draft model"),
        ([{"draft": "small", "gamma": 0}], r"arms\.0\.gamma"),
        ([{"draft": "small", "gamma": 2, "gamma_min": 3}], "above gamma"),
        ([{"draft": "small", "gamma": list(range(1, 1001)), "ngram_n": [1, 2]}], "more than"),
    ],
)
def test_arms_that_cannot_be_run_are_refused(arms: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        experiment(arms=arms, drafts={"small": "mock:small"} if "draft" in arms[0] else {}).expand()


def test_arms_that_name_no_draft_have_all_of_them() -> None:
    assert ids(experiment(arms=[{"method": ["draft-simple", "ngram-simple"], "target": "moe", "gamma": 4}])) == [
        "moe/none",
        "moe/draft-simple/small/g4",
        "moe/draft-simple/large/g4",
        "moe/ngram-simple/g4",
    ]


def test_drafts_on_remote_machines_share_the_baseline_of_local_ones() -> None:
    exp = experiment(
        targets={"dense": "mock:dense"},
        remotes={"near": "10.0.0.2:50052", "far": None},
        arms=[
            {"name": "here", "draft": "small"},
            {"name": "near", "draft": "small", "remote": "near"},
            {"name": "far", "draft": "small", "remote": "far"},
        ],
    )
    by_id = {arm.id: arm for arm in exp.expand()}
    assert set(by_id) == {"dense/none", "dense/here", "dense/near", "dense/far"}
    assert {arm.baseline_id for arm in by_id.values() if arm.speculates} == {"dense/none"}
    near, far = by_id["dense/near"].engine, by_id["dense/far"].engine
    assert (near.rpc, near.draft_devices) == (("10.0.0.2:50052",), ("RPC0",))
    assert (far.rpc, far.draft_devices) == ((), ("RPC0",))
    assert by_id["dense/none"].engine == by_id["dense/here"].engine


def test_a_target_on_a_remote_machine_has_its_baseline_there() -> None:
    there = {"rpc": ["10.0.0.2:50052"], "devices": ["RPC0"]}
    arms = experiment(targets={"dense": "mock:dense"}, arms=[{"draft": "small", "engine": there}]).expand()
    assert {arm.engine.rpc for arm in arms} == {("10.0.0.2:50052",)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": [{"draft": "small", "remote": "near"}]}, "remote: 'near' is not defined"),
        ({"remotes": {"near": "10.0.0.2"}}, "is neither HOST:PORT"),
        ({"arms": [{"draft": "small", "engine": {"rpc": ["here"]}}]}, "is neither HOST:PORT"),
    ],
)
def test_remote_machines_that_nobody_can_reach(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiment(**changes)


@pytest.mark.parametrize(
    ("kind", "engine", "message"),
    [
        ("embedded", {"rpc": ("10.0.0.2:1",), "draft_devices": ("RPC0",)}, "built without RPC"),
        ("libllama", {"rpc": ("10.0.0.2:1",), "draft_devices": ("RPC0",)}, "does not have this setting"),
        ("native", {"draft_devices": ("RPC0",)}, "its draft is placed on a remote machine, but no machine is given"),
        ("native", {"devices": ("RPC0",)}, "its target is placed on a remote machine, but no machine is given"),
        ("native", {"rpc": ("10.0.0.2:1",)}, "no model is placed on them"),
    ],
)
def test_engines_refuse_remote_machines_that_they_cannot_use(kind: str, engine: dict[str, Any], message: str) -> None:
    (_, arm) = experiment(targets={"dense": "mock:dense"}, arms=[{"draft": "small", "engine": engine}]).expand()
    with pytest.raises(ExperimentError, match=message):
        check_arm(kind, arm, has_draft=True)


def test_excluding_everything_is_an_error() -> None:
    with pytest.raises(ExperimentError, match="remove every arm"):
        experiment(exclude=[{"draft": "small"}]).expand()


@given(st.text(max_size=30))
def test_any_method_text_is_understood_or_refused(text: str) -> None:
    try:
        methods = split_methods(text)
    except ValueError:
        return
    assert "+".join(methods).replace(" ", "") == text.replace(" ", "") or text.strip() in methods or "+" in text


def test_what_an_arm_is_drafted_with_stands_in_one_list() -> None:
    for record in (Arm, ArmSpec, Exclusion):
        assert set(DRAFTING_AXES) <= set(record.model_fields)


REAL = {"targets": {"mine": "mine.gguf"}, "drafts": {}, "arms": [{"method": "ngram-simple"}]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (REAL, (1024, False)),
        (REAL | {"generation": {"max_tokens": 9}}, (9, False)),
        (REAL | {"workloads": [{"source": "length"}, {"source": "random"}]}, (256, True)),
        (REAL | {"workloads": [{"source": "length"}, {"source": "studies"}]}, (1024, False)),
        (REAL | {"targets": {"mine": "mine.gguf", "bench": "bench:dense"}}, (1024, False)),
        (REAL | {"targets": {"bench": "bench:dense"}}, (256, True)),
        ({}, (256, True)),
        ({"generation": {"max_tokens": 9, "ignore_eos": False}}, (9, False)),
        ({"generation": Generation(max_tokens=9)}, (9, True)),
        (REAL | {"engine": {"kind": "mock"}}, (256, True)),
        (REAL | {"engine": {"kind": "mock"}, "workloads": [{"source": "studies"}]}, (256, True)),
    ],
)
def test_the_end_of_an_answer_is_respected_where_it_has_one(
    changes: dict[str, Any], expected: tuple[int, bool]
) -> None:
    found = experiment(**changes)
    assert (found.generation.max_tokens, found.generation.ignore_eos) == expected
    assert Experiment.model_validate_json(found.model_dump_json()).generation == found.generation


@pytest.mark.parametrize(
    ("kind", "field", "value", "refused"),
    [
        ("embedded", "repeat_penalty", 1.1, False),
        ("libllama", "min_p", 0.1, False),
        ("libllama", "repeat_penalty", 1.1, True),
        ("libllama", "stop", ["x"], True),
        ("mock", "top_k", 40, True),
    ],
)
def test_an_engine_refuses_how_it_cannot_choose_tokens(kind: str, field: str, value: object, refused: bool) -> None:
    changes = REAL | {"engine": {"kind": kind}, "generation": {field: value}}
    if refused:
        with pytest.raises(ValueError, match=f"generation.{field}: the engine {kind} does not have this setting"):
            experiment(**changes)
    else:
        assert experiment(**changes).generation.sampling


def test_the_length_of_n_grams_does_not_follow_that_of_drafts() -> None:
    found = [
        Described(["m.gguf"], ["d.gguf"], gamma=gamma, ngram=True).keys()["arms"][-1] for gamma in ((4,), (), (2, 16))
    ]
    assert [(it["gamma"], it["ngram_n"]) for it in found] == [(6, 6), (8, 6), (16, 6)]
