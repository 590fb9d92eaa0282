"""Dry runs: what would be run, what it needs, and that nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specmeter.errors import ExperimentError, ModelError, UsageError
from specmeter.experiments.file import load
from specmeter.laboratory.plan import make_plan
from specmeter.laboratory.run import prepare
from specmeter.record import Arm, EngineSettings, ModelIdentity


def experiment(folder: Path, **changes: object) -> str:
    data: dict[str, object] = {
        "name": "planned",
        "targets": {"dense": "bench:dense", "moe": "bench:moe"},
        "drafts": {"small": "bench:draft-small"},
        "workloads": [
            {"source": "bench", "name": "text", "kinds": ["fact"], "per_kind": 3},
            {"source": "length", "name": "long", "lengths": [64, 128]},
        ],
        "arms": [{"draft": "small", "gamma": [2, 4]}, {"method": "ngram-simple", "workloads": "long"}],
        "design": {"blocks": 4, "invocations": 2},
        "generation": {"max_tokens": 100},
    }
    path = folder / "planned.yaml"
    path.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    return str(path)


def test_counts_are_those_of_the_run(tmp_path: Path) -> None:
    plan = make_plan(load(experiment(tmp_path)))
    per_arm = {item.arm.id: item.requests for item in plan.arms}
    assert per_arm["dense/none"] == 5 * 8
    assert per_arm["dense/ngram-simple"] == 2 * 8
    assert plan.requests == sum(per_arm.values()) == 2 * (5 + 5 + 5 + 2) * 8
    assert plan.sessions == 8 * 8
    assert plan.tokens == plan.requests * 100
    mock = load(experiment(tmp_path), ["engine.kind=mock"])
    assert make_plan(mock).requests == len(list(prepare(mock).work.keys()))
    few = load(experiment(tmp_path), ["engine.kind=mock", f"only.prompts={[next(iter(prepare(mock).work.keys()))[3]]}"])
    assert make_plan(few).requests == len(list(prepare(few).work.keys())) < make_plan(mock).requests
    assert make_plan(few).prompts == 1


def test_settings_with_which_nothing_is_drafted_are_named(tmp_path: Path) -> None:
    arms = [{"target": "dense", "method": "ngram-simple", "ngram_n": 6, "gamma": [4, 6]}]
    lookups = experiment(tmp_path, arms=arms)
    (warning,) = (it for it in make_plan(load(lookups)).warnings if "an answer needs" not in it)
    assert warning.startswith("dense/ngram-simple/g4/n6: ngram-simple never drafts")
    mock = make_plan(load(lookups, ["engine.kind=mock"]))
    assert [it for it in mock.warnings if "an answer needs" not in it] == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["arms.0.policy=utility"], "policy: llama.cpp's server does not have this setting"),
        (
            ["engine.kind=libllama", "engine.prompt_cache=true"],
            "engine.prompt_cache: the engine does not have this setting",
        ),
        (
            ["engine.context=200"],
            "engine.context: prompts of workload 'long' have 128 tokens plus 100 to",
        ),
        (["workloads.1.lengths=[100000]"], "has 100000 tokens"),
    ],
)
def test_what_a_run_would_refuse_is_refused_before(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        make_plan(load(experiment(tmp_path), overrides))


def test_lengths_beyond_the_context_are_refused_before_a_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_is_needed(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("specmeter.laboratory.run.resolve_models", none_is_needed)
    with pytest.raises(ExperimentError, match=r"engine\.context: prompts of workload 'long' have 128 tokens"):
        prepare(load(experiment(tmp_path), ["engine.context=200"]))


def test_only_arms_that_run_the_long_prompts_need_room_for_them(tmp_path: Path) -> None:
    short = [{"draft": "small", "gamma": 4, "workloads": "text"}]
    assert make_plan(load(experiment(tmp_path, arms=short), ["engine.context=225"])).arms


def test_workloads_with_limits_of_their_own_are_counted_by_those(tmp_path: Path) -> None:
    limits = ["workloads.0.max_tokens=7", "design.blocks=1", "design.invocations=1"]
    plan = make_plan(load(experiment(tmp_path), limits))
    assert {item.arm.id: item.tokens for item in plan.arms}["dense/none"] == 3 * 7 + 2 * 100
    assert plan.tokens == sum(item.tokens for item in plan.arms)


def test_memory_and_disk_follow_from_the_files(tmp_path: Path) -> None:
    plan = make_plan(load(experiment(tmp_path)))
    sizes = {need.name: need.size_bytes for need in plan.models}
    assert all(size and size > 100_000 for size in sizes.values())
    assert all(need.present for need in plan.models)
    assert plan.memory_bytes is not None
    assert plan.memory_bytes > max(size or 0 for size in sizes.values())
    assert plan.seconds is not None
    assert plan.seconds > 0


def test_a_model_that_is_not_there_yet_counts_as_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    file = experiment(tmp_path, targets={"dense": "bench:dense?size=1GiB"})
    plan = make_plan(load(file))
    assert not plan.models[0].present
    assert plan.disk_bytes > 0.98 * 2**30
    assert not (tmp_path / "cache" / "models").exists()


def test_a_model_beyond_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specmeter.models import preflight

    file = experiment(tmp_path, workloads=[{"source": "bench", "name": "text"}], arms=[{"draft": "small"}])
    models = prepare(load(file)).work.models
    monkeypatch.setattr(preflight, "memory_free_bytes", lambda: 10**6)
    arm = Arm(id="dense/none", target="dense", role="baseline", engine=EngineSettings(context=64))
    with pytest.raises(UsageError, match=r"dense/none: weights, KV cache and buffers need .* MB"):
        preflight.check([arm], models)


def test_a_draft_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    file = experiment(
        tmp_path,
        drafts={"small": "bench:draft-other-vocab"},
        workloads=[{"source": "bench", "name": "text"}],
        arms=[{"draft": "small"}],
    )
    with pytest.raises(ModelError, match=r"drafts\.small: llama\.cpp rejects it"):
        prepare(load(file))


def test_identities_are_those_of_the_files(tmp_path: Path) -> None:
    file = experiment(tmp_path, workloads=[{"source": "bench", "name": "text"}], arms=[{"draft": "small"}])
    model: ModelIdentity = prepare(load(file)).work.models["dense"]
    assert model.size_bytes == Path(model.path).stat().st_size
    assert len(model.sha256) == 64


@pytest.mark.parametrize(("gammas", "blocks", "least"), [([2, 4, 8], 3, 4), ([2, 4, 8], 4, None), ([2], 2, 3)])
def test_plans_that_cannot_be_answered_say_so(
    tmp_path: Path, gammas: list[int], blocks: int, least: int | None
) -> None:
    """Three arms over three blocks always ended in "too few blocks to tell"."""
    arms: dict[str, object] = {"targets": {"dense": "bench:dense"}, "arms": [{"draft": "small", "gamma": gammas}]}
    path = experiment(tmp_path, **arms, design={"blocks": blocks})
    few = [it for it in make_plan(load(path)).warnings if "an answer needs" in it]
    named = "one configuration" if len(gammas) == 1 else f"{len(gammas)} configurations"
    least_told = f"at least {least} blocks (--blocks {least}); planned: {blocks}"
    told = f"{named} for dense/none: an answer needs {least_told}"
    assert few == ([] if least is None else [told])
