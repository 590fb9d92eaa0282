"""Runs that are not what their experiment asks for, and sessions that ran something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specmeter.messages import Message
from specmeter.validity.checks.plan_fidelity import experiment_differs, model_differs
from specmeter.validity.checks.run_data import RunData
from validity.factory import BASE, SD, found, run_data, with_arms, with_sessions
from validity.mock_run import mock_run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return mock_run(tmp_path_factory.mktemp("asked"))


def test_a_run_is_what_its_experiment_asks_for(data: RunData) -> None:
    assert data.plan
    assert data.experiment_yaml
    assert not found(experiment_differs, data)


def test_what_becomes_of_disturbed_blocks_is_said_where_it_was_measured(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECMETER_DISTURBED", "repeat")  # tests measure with `keep`
    assert data.experiment.design.disturbed == "keep"
    assert not found(experiment_differs, data)


def test_an_interrupted_run_has_the_whole_plan(tmp_path: Path) -> None:
    stopped = mock_run(tmp_path, mock={"faults": [{"kind": "interrupt", "block": 1}]})
    assert len(stopped.requests) < sum(map(len, stopped.plan.values()))
    assert not found(experiment_differs, stopped)


def test_baselines_that_take_turns_and_arms_of_their_own_workloads(tmp_path: Path) -> None:
    changed = mock_run(
        tmp_path,
        workloads=[
            {"source": "bench", "name": "text", "kinds": ["fact"], "per_kind": 3, "baseline_per_block": 2},
            {"source": "bench", "name": "edit", "kinds": ["edit"], "per_kind": 2},
            {"source": "bench", "name": "unused", "kinds": ["zh"], "per_kind": 2},
        ],
        arms=[
            {"draft": "small", "gamma": 4, "workloads": ["text"]},
            {"method": "ngram-simple", "workloads": ["edit", "text"]},
        ],
        design={"blocks": 3, "invocations": 2, "controls": True},
    )
    assert not found(experiment_differs, changed)


def test_a_block_that_the_experiment_still_asks_for(data: RunData) -> None:
    less = replace(data, plan={cell: them for cell, them in data.plan.items() if cell[1] != 2})
    assert [(it.severity, it.evidence["blocks"]) for it in found(experiment_differs, less)] == [("invalid", 1)]


def test_a_block_that_the_experiment_does_not_ask_for(data: RunData) -> None:
    more = replace(data, plan={**data.plan, **{(1, block, arm): them for (_, block, arm), them in data.plan.items()}})
    assert [it.severity for it in found(experiment_differs, more)] == ["invalid"]


def test_an_arm_that_is_not_what_it_is_called(data: RunData) -> None:
    findings = found(experiment_differs, with_arms(data, SD, gamma=8))
    assert [(it.severity, it.arm_id) for it in findings] == [("invalid", SD)]
    assert findings[0].message == Message("experiment-differs.arm", name="gamma", seen=8, expected=4)


def test_another_version_may_have_read_it_otherwise(data: RunData) -> None:
    older = replace(data, written_by="0.0.1", experiment_yaml="name: other")
    assert not found(experiment_differs, older)
    assert [it.severity for it in found(experiment_differs, with_arms(older, SD, gamma=8))] == ["suspect"]


def test_an_experiment_that_was_read_otherwise_than_it_was_given(data: RunData) -> None:
    for text in (data.experiment_yaml.replace("gamma: 4", "gamma: 5"), "[[["):
        findings = found(experiment_differs, replace(data, experiment_yaml=text))
        assert [(it.severity, it.scope) for it in findings] == [("invalid", "run")]


def test_an_arm_that_was_left_out(data: RunData) -> None:
    """By a study, for want of its models: named. With its models at hand: a doubt."""
    fewer = replace(
        data,
        arms={name: arm for name, arm in data.arms.items() if name != SD},
        plan={cell: them for cell, them in data.plan.items() if cell[2] != SD},
    )
    assert [it.severity for it in found(experiment_differs, fewer)] == ["suspect"]
    drafted = [name for name, arm in data.arms.items() if arm.draft is not None]
    none = replace(
        data,
        arms={name: arm for name, arm in data.arms.items() if name not in drafted},
        plan={cell: them for cell, them in data.plan.items() if cell[2] not in drafted},
        models={name: model for name, model in data.models.items() if name != "small"},
    )
    assert [it.severity for it in found(experiment_differs, none)] == ["note"]


def test_a_prompt_that_is_nowhere(data: RunData) -> None:
    gone = next(iter(data.prompts))
    less = replace(
        data,
        prompts={name: it for name, it in data.prompts.items() if name != gone},
        plan={cell: them - {gone} for cell, them in data.plan.items()},
    )
    assert [it.severity for it in found(experiment_differs, less)] == ["suspect"]


# --- models ----------------------------------------------------------------------------------------------------------


def started(data: RunData, **paths: dict[str, str]) -> RunData:
    """As the embedded engine is started, each session with the paths of its models; `paths` by block replace them."""
    sessions = {
        name: it.model_copy(update={"argv": argv(data, it.arm_id, paths.get(f"block{it.block}", {}))})
        for name, it in data.sessions.items()
    }
    return replace(data, sessions=sessions)


def argv(data: RunData, arm_id: str, others: dict[str, str]) -> tuple[str, ...]:
    arm = data.arms[arm_id]
    paths = {name: others.get(name, data.models[name].path) for name in (arm.target, arm.draft) if name is not None}
    order: dict[str, object] = {"model.path": paths[arm.target]}
    if arm.draft is not None:
        order |= {"speculative.draft.mparams.path": paths[arm.draft], "speculative.draft.n_max": arm.gamma}
    return ("python", "-m", "child", json.dumps(order))


def flags(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same for a native server."""
    order = json.loads(words[-1])
    names = {
        "model.path": "--model",
        "speculative.draft.mparams.path": "--model-draft",
        "speculative.draft.n_max": "--draft-max",
    }
    return ("llama-server", *(str(word) for name, value in order.items() for word in (names[name], value)))


@pytest.mark.parametrize("native", [False, True])
def test_sessions_of_the_models_on_record(native: bool) -> None:
    data = started(run_data())
    if native:
        sessions = {name: it.model_copy(update={"argv": flags(it.argv)}) for name, it in data.sessions.items()}
        data = replace(data, sessions=sessions)
    assert not found(model_differs, data)
    assert [it.arm_id for it in found(model_differs, with_arms(data, SD, gamma=7))] == [SD]


@pytest.mark.parametrize("name", ["dense", "small"])
def test_sessions_that_name_another_model(name: str) -> None:
    one = started(run_data(), block2={name: "/models/other.gguf"})
    assert {it.severity for it in found(model_differs, one)} == {"suspect"}
    every = {f"block{block}": {name: "/elsewhere/other.gguf"} for block in range(4)}
    assert SD in {it.arm_id for it in found(model_differs, started(run_data(), **every))}


def test_another_engine_has_its_own_form_of_the_model_on_record() -> None:
    data = run_data()
    small = data.models["small"].model_copy(update={"sha256": "5a" * 32})
    data = replace(data, models={**data.models, "small": small})
    own = {f"block{block}": {"small": f"/cache/exported/small-hf-{'5a' * 8}"} for block in range(4)}
    assert not found(model_differs, started(data, **own))
    other = {f"block{block}": {"small": f"/cache/exported/small-hf-{'5b' * 8}"} for block in range(4)}
    assert [it.arm_id for it in found(model_differs, started(data, **other))] == [SD]


def test_a_baseline_that_was_started_with_a_draft() -> None:
    data = started(run_data())
    drafted = next(it.argv for it in data.sessions.values() if it.arm_id == SD)
    assert [it.arm_id for it in found(model_differs, with_sessions(data, BASE, argv=drafted))] == [BASE]


def test_a_cache_that_moved_while_the_run_was_interrupted() -> None:
    old = {"dense": "/old/dense.gguf", "small": "/old/small.gguf"}
    assert not found(model_differs, started(run_data(), block0=old, block1=old))
    assert found(model_differs, started(run_data(), block1=old))  # and back again
    other = {"dense": "/old/dense-q4.gguf"}
    assert found(model_differs, started(run_data(), block0=other))


def test_the_instrumented_engine_is_started_for_an_arm() -> None:
    data = run_data()

    def order(arm_id: str, **changes: object) -> tuple[str, ...]:
        arm = data.arms[arm_id]
        return (
            "child",
            json.dumps(
                {
                    "arm": json.loads(arm.model_dump_json()) | changes,
                    "target": data.models[arm.target].path,
                    "draft": data.models[arm.draft].path if arm.draft else None,
                }
            ),
        )

    right = with_sessions(with_sessions(data, SD, argv=order(SD)), BASE, argv=order(BASE))
    assert not found(model_differs, right)
    assert [it.arm_id for it in found(model_differs, with_sessions(right, SD, argv=order(SD, gamma=6)))] == [SD]


@pytest.mark.parametrize(("draft", "differs"), [("small", False), ("dense", True)])
def test_a_draft_is_named_within_a_flag(draft: str, differs: bool) -> None:
    """As vLLM is started."""
    data = run_data()
    config = json.dumps({"method": "draft_model", "model": data.models[draft].path})
    plain = ("python", "-m", "vllm", "--model", str(data.models["dense"].path))
    both = with_sessions(
        with_sessions(data, BASE, argv=plain), SD, argv=(*plain, "--speculative-config", config, "--x")
    )
    assert bool(found(model_differs, both)) == differs


def test_what_was_started_may_be_unknown() -> None:
    for words in ((), ("mock", "mock:dense"), ("x", "{"), ("x", "[1]"), ("x", '{"target": 3}')):
        assert not found(model_differs, with_sessions(run_data(), argv=words))
