"""The experiment of moe-306: 306 requests to the letter, in each arrangement and with each set of models."""

from __future__ import annotations

from collections import Counter

import pytest

from specmeter import workloads
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import load
from specmeter.experiments.schedule import Cell, plan
from specmeter.record import Arm, Prompt
from specmeter_studies.library.moe_306.lines import suite
from specmeter_studies.study import ArmResult

PAPER = {"A": 18, "B": 144, "C": 36, "D": 72, "F": 36}
COMPLETE = [(), ("faithful",), ("bench",), ("bench", "faithful"), ("faithful", "bench")]


def planned(variants: tuple[str, ...]) -> tuple[Experiment, list[tuple[Cell, Arm, tuple[Prompt, ...]]]]:
    """Every cell with its arm and its prompts; a token is a character."""
    experiment = load("moe-306", variants=variants).experiment
    prompts = workloads.load(
        experiment.workloads,
        tokenize=lambda text: tuple(map(ord, text)),
        detokenize=lambda ids: "".join(map(chr, ids)),
    )
    arms = {arm.id: arm for arm in experiment.expand()}
    design = experiment.design
    cells = plan(list(arms), design.blocks, design.invocations, design.order, design.seed)
    found: list[tuple[Cell, Arm, tuple[Prompt, ...]]] = []
    for cell in cells:
        arm = arms[cell.arm_id]
        own = [prompt for prompt in prompts if not arm.workloads or prompt.workload in arm.workloads]
        found.append((cell, arm, experiment.due(arm, own, cell.invocation, cell.block)))
    return experiment, found


def suite_of(arm: Arm) -> str:
    line = ArmResult(config=arm.id, target=arm.target, draft=arm.draft, method="+".join(arm.methods), requests=0)
    return suite(line)


def counts(variants: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, arm, prompts in planned(variants)[1]:
        found[suite_of(arm)] += len(prompts)
    return found


@pytest.mark.parametrize("variants", COMPLETE)
def test_counts_are_those_of_the_paper(variants: tuple[str, ...]) -> None:
    found = counts(variants)
    assert found == PAPER
    assert found.total() == 306


@pytest.mark.parametrize("variants", [(), ("bench",)])
def test_balanced_baselines_run_prompts_of_their_arms_in_every_block(variants: tuple[str, ...]) -> None:
    experiment, cells = planned(variants)
    assert experiment.design.order == "latin"
    ran = {(cell.block, arm.id): {prompt.id for prompt in prompts} for cell, arm, prompts in cells}
    compared = [(cell.block, arm) for cell, arm, _ in cells if arm.speculates]
    assert len(compared) == 3 * 19
    for block, arm in compared:
        assert arm.baseline_id is not None
        baseline = ran[block, arm.baseline_id]
        assert baseline <= ran[block, arm.id]
        assert len(baseline) == (6 if arm.id.startswith("moe_q4/lengths") else 3)


def test_each_prompt_is_left_out_by_turns() -> None:
    """Over three blocks of three of four prompts, no prompt lacks a baseline more than once."""
    _, cells = planned(())
    measured: Counter[str] = Counter()
    for _, arm, prompts in cells:
        if arm.id == "moe_q4/none":
            measured.update(prompt.id for prompt in prompts)
    assert sorted(measured.values()) == [2, 2, 2, 3]


def test_the_papers_own_arrangement_has_its_faults() -> None:
    """Baselines on other prompts, all blocks of an arm in a row, baselines of a suite before its arms."""
    experiment, cells = planned(("faithful",))
    assert experiment.design.order == "grouped"
    order = [arm.id for _, arm, _ in cells]
    assert order == sorted(order, key=order.index), "blocks of an arm do not follow each other"
    assert "".join(dict.fromkeys(suite_of(arm) for _, arm, _ in cells)) == "ABCDF"
    lengths = {prompt.token_count for _, arm, prompts in cells if suite_of(arm) in "AC" for prompt in prompts}
    assert lengths == {64, 256, 512}
    texts = {prompt.kind for _, arm, prompts in cells if suite_of(arm) in "BD" for prompt in prompts}
    assert texts == {"fact", "code", "reason", "zh"}


@pytest.mark.parametrize("variants", [(), ("faithful",)])
def test_originals_are_asked_for_as_in_the_paper(variants: tuple[str, ...]) -> None:
    experiment, cells = planned(variants)
    assert (experiment.generation.max_tokens, experiment.generation.temperature) == (256, 0)
    assert all(reference.startswith("hf:") for reference in (*experiment.targets.values(), *experiment.drafts.values()))
    lengths = {prompt.kind for _, arm, prompts in cells if suite_of(arm) == "F" for prompt in prompts}
    assert lengths == {f"length-{length}" for length in (32, 64, 128, 256, 512, 1024)}
    assert {arm.gamma for _, arm, _ in cells if suite_of(arm) in "BD"} == {4, 8, 16}


def test_the_papers_own_sweep_is_cut_from_a_text_of_156_words() -> None:
    """Its script joins as many words as asked for, of a text that has so many: 256, 512 and 1024 are one prompt."""
    _, cells = planned(("faithful",))
    texts = {prompt.kind: prompt.text for _, arm, prompts in cells if suite_of(arm) == "F" for prompt in prompts}
    words = {kind.removeprefix("length-"): len(text.split()) for kind, text in texts.items()}
    assert words == {"32": 32, "64": 64, "128": 128, "256": 156, "512": 156, "1024": 156}
    assert texts["length-256"] == texts["length-512"] == texts["length-1024"]
    assert texts["length-1024"].startswith(texts["length-128"])


def test_bench_models_are_sized_like_the_papers() -> None:
    """Dense 4B reads a little more per token than the MoE, dense 9B several times as much; the MoE is the largest."""
    from specmeter.models import bench

    experiment = load("moe-306", variants=("bench",)).experiment
    plans = {name: bench.describe(bench.parse(reference)) for name, reference in experiment.targets.items()}
    moe = plans["moe_q8"]
    active = moe.size_bytes * moe.experts_used / moe.experts
    assert 1 < plans["dense_4b"].size_bytes / active < 2 < plans["dense_9b"].size_bytes / active < 6
    assert plans["moe_q4"].parameters == moe.parameters > plans["dense_9b"].parameters
    assert experiment.targets["dense_0.8b"] == experiment.drafts["draft_0.8b"]
    assert experiment.targets["dense_2b"] == experiment.drafts["draft_2b"]


def test_quick_has_every_suite_and_few_requests() -> None:
    found = counts(("bench", "quick"))
    assert set(found) == set(PAPER)
    assert found.total() < 80


def test_suite_e_is_an_experiment_of_its_own() -> None:
    experiment, _ = planned(("suite-e",))
    assert set(counts(("suite-e",))) == {"E"}
    assert set(experiment.targets) == {"moe_other"}


def test_a_local_model_takes_the_place_of_an_original() -> None:
    experiment = load("moe-306", ["targets.moe_q4=/models/own.gguf"]).experiment
    assert experiment.targets["moe_q4"] == "/models/own.gguf"
