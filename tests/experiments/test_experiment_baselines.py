"""Named arms and baselines, the order of grouped designs, and baselines that take their prompts in turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.errors import ExperimentError
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import load
from specmeter.experiments.schedule import in_turn
from specmeter.laboratory.plan import make_plan
from specmeter.laboratory.run import prepare
from specmeter.messages import Message
from specmeter.numbers.stats import additive
from specmeter.record import Finding, Prompt
from specmeter.store import RunStore
from specmeter.validity.checks.arrangement import incomplete_matrix, order_confounded
from specmeter.validity.checks.run_data import RunData, read_run_data


def data(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": "test",
        "targets": {"dense": "mock:dense", "moe": "mock:moe"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": 4}],
        "workloads": [{"source": "bench", "name": "text"}, {"source": "bench", "name": "edit", "kinds": ["edit"]}],
        "generation": {"max_tokens": 16},
        "engine": {"kind": "mock"},
    }
    return given | changes


def experiment(*arms: dict[str, Any], **changes: Any) -> Experiment:
    return Experiment.model_validate(data(arms=list(arms), **changes))


def compared(exp: Experiment) -> dict[str, tuple[str, str | None]]:
    return {arm.id: (arm.role, arm.baseline_id) for arm in exp.expand()}


PLAIN: dict[str, Any] = {"name": "plain", "method": "none"}

# --- names and baselines ---------------------------------------------------------------------------------------------


def test_a_name_is_the_id_on_every_target() -> None:
    exp = experiment({"name": "g4", "draft": "small", "gamma": 4}, {"name": "half", "draft": "small", "gamma": [2]})
    assert list(compared(exp)) == ["dense/none", "dense/g4", "dense/half", "moe/none", "moe/g4", "moe/half"]


def test_named_baselines_stand_instead_of_automatic_ones() -> None:
    exp = experiment(
        PLAIN,
        {"name": "again", "method": "none", "baseline": "plain"},
        {"draft": "small", "gamma": [2, 4], "baseline": "plain"},
        {"target": "moe", "method": "ngram-mod"},
    )
    assert compared(exp) == {
        "dense/plain": ("baseline", None),
        "dense/again": ("control", "dense/plain"),
        "dense/draft-simple/small/g2": ("speculative", "dense/plain"),
        "dense/draft-simple/small/g4": ("speculative", "dense/plain"),
        "moe/plain": ("baseline", None),
        "moe/none": ("baseline", None),
        "moe/again": ("control", "moe/plain"),
        "moe/draft-simple/small/g2": ("speculative", "moe/plain"),
        "moe/draft-simple/small/g4": ("speculative", "moe/plain"),
        "moe/ngram-mod": ("speculative", "moe/none"),
    }


def test_a_name_may_stand_for_another_arm_on_another_target() -> None:
    exp = experiment(
        {**PLAIN, "target": "dense", "workloads": "edit"},
        {**PLAIN, "target": "moe"},
        {"name": "sd", "draft": "small", "baseline": "plain"},
    )
    assert {arm.id: arm.workloads for arm in exp.expand() if arm.role == "baseline"} == {
        "dense/plain": ("edit",),
        "moe/plain": (),
    }


def test_controls_of_a_named_baseline() -> None:
    exp = experiment(
        PLAIN, {"draft": "small", "baseline": "plain"}, targets={"dense": "mock:dense"}, design={"controls": True}
    )
    assert [it for it, (role, _) in compared(exp).items() if role == "control"] == [
        "dense/plain/again",
        "dense/plain/accept-all",
        "dense/plain/accept-none",
    ]


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"name": "x", "draft": "small", "gamma": [2, 4]}, "gamma is a list"),
        ({"name": "x", "draft": ["small", "small"]}, "draft is a list"),
        ({"name": "x", "method": ["none", "ngram-mod"]}, "method is a list"),
        ({"name": "a/b", "draft": "small"}, "name"),
        ({"method": "none", "baseline": "plain"}, "needs a `name`"),
        ({"method": ["none", "ngram-mod"], "baseline": "plain"}, "needs a `name`"),
    ],
)
def test_names_that_cannot_be_meant(arm: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiment(PLAIN, arm)


@pytest.mark.parametrize(
    ("arms", "message", "fix"),
    [
        (
            [PLAIN, {"draft": "small", "baseline": "plian"}],
            "no arm 'plian'",
            "dense/plain, moe/plain",
        ),
        ([{"draft": "small", "baseline": "plain"}], "no arm 'plain'", "add an arm"),
        ([{**PLAIN, "target": "dense"}, {"draft": "small", "baseline": "plain"}], "target moe", "only dense/plain"),
        (
            [{"name": "sd", "draft": "small"}, {"method": "ngram-mod", "baseline": "sd"}],
            "drafts itself",
            "`method: none`",
        ),
        (
            [PLAIN, {**PLAIN, "name": "b", "baseline": "plain"}, {"draft": "small", "baseline": "b"}],
            "is a control",
            "`method: none`",
        ),
        ([{**PLAIN, "baseline": "plain"}], "dense/plain is a control", "`method: none`"),
        ([{"method": "none"}, {"draft": "small", "baseline": "none"}], "no arm 'none'", "add an arm"),
        ([PLAIN, PLAIN], "already used by another arm", "name"),
        ([PLAIN, {"name": "plain", "draft": "small"}], "already used by another arm", "name"),
        ([{"name": "none", "method": "none"}, {"draft": "small"}], "used by an automatic baseline", "another name"),
        (
            [{"draft": "small", "workloads": "text"}, {"draft": "small", "workloads": "edit"}],
            "already used by another arm",
            "name",
        ),
    ],
)
def test_baselines_that_are_none(arms: list[dict[str, Any]], message: str, fix: str) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        experiment(*arms).expand()
    assert fix in caught.value.fix


def test_a_baseline_that_was_excluded() -> None:
    exp = experiment(
        PLAIN, {"target": "moe", "draft": "small", "baseline": "plain"}, exclude=[{"target": "moe", "method": "none"}]
    )
    with pytest.raises(ExperimentError, match="the target moe has no arm 'plain'"):
        exp.expand()


def test_plain_arms_of_several_workloads_are_one_baseline() -> None:
    exp = experiment({"method": "none", "workloads": "text"}, {"method": "none", "workloads": "edit"})
    assert [arm.workloads for arm in exp.expand()] == [("text", "edit")] * 2


# --- grouped ---------------------------------------------------------------------------------------------------------

GROUPED: list[dict[str, Any]] = [
    {"name": "sd", "draft": "small", "target": "moe"},
    {"method": "ngram-mod", "target": ["dense", "moe"]},
    {"method": "none", "target": "dense"},
    {"name": "last", "method": "none", "target": "moe"},
]


def test_grouped_arms_stand_as_written() -> None:
    exp = experiment(*GROUPED, design={"order": "grouped"})
    assert [arm.id for arm in exp.expand()] == [
        "moe/none",
        "moe/sd",
        "dense/ngram-mod",
        "moe/ngram-mod",
        "dense/none",
        "moe/last",
    ]
    others = experiment(*GROUPED).expand()
    assert {arm.id: arm for arm in others} == {arm.id: arm for arm in exp.expand()}
    assert [arm.id for arm in others][:2] == ["dense/none", "dense/ngram-mod"]


def test_grouped_runs_are_measured_arm_by_arm_and_called_confounded(tmp_path: Path) -> None:
    run = measured(tmp_path, arms=GROUPED, design={"order": "grouped", "blocks": 4}, targets=data()["targets"])
    seen = list(dict.fromkeys(it.row.arm_id for it in run.requests))
    assert seen == ["moe/none", "moe/sd", "dense/ngram-mod", "moe/ngram-mod", "dense/none", "moe/last"]
    turns = [it.row.arm_id for before, it in zip(run.requests, run.requests[1:], strict=False)
             if before.row.arm_id != it.row.arm_id]  # fmt: skip
    assert len(turns) == len(seen) - 1
    findings = [it for it in order_confounded(run) if isinstance(it, Finding)]
    assert {(it.arm_id, it.severity) for it in findings} == {
        ("moe/sd", "suspect"),
        ("moe/ngram-mod", "suspect"),
        ("dense/ngram-mod", "suspect"),
    }
    before = next(it for it in findings if it.arm_id == "dense/ngram-mod")
    assert before.evidence["blocks_after_baseline"] == 0


# --- in turn ---------------------------------------------------------------------------------------------------------

ids = st.lists(st.text(min_size=1, max_size=4), unique=True, min_size=1, max_size=9)


@given(ids, st.integers(1, 12), st.integers(0, 60), st.integers(0, 2**63 - 1))
def test_every_prompt_is_left_out_equally_often(names: list[str], count: int, turns: int, seed: int) -> None:
    """After any number of turns, as far as counts allow: one more or less."""
    left: Counter[str] = Counter(dict.fromkeys(names, 0))
    for turn in range(turns):
        due = in_turn(names, count, turn, seed)
        assert len(due) == min(count, len(names))
        assert list(due) == [name for name in names if name in set(due)]
        left.update(set(names).difference(due))
    assert max(left.values()) - min(left.values()) <= 1


@given(ids, st.integers(2, 12), st.integers(0, 2**63 - 1))
def test_prompts_do_not_keep_to_the_same_company(names: list[str], count: int, seed: int) -> None:
    """Two rounds are enough to tell prompts from blocks."""
    turns = 2 * len(names)
    meetings = [(names.index(name), turn) for turn in range(turns) for name in in_turn(names, count, turn, seed)]
    prompts, blocks = np.array(meetings).T
    assert additive(np.zeros(len(meetings)), prompts, blocks) is not None


def test_turns_do_not_depend_on_the_order_of_the_file() -> None:
    names = list("abcdef")
    for turn in range(6):
        assert set(in_turn(names, 2, turn, 1)) == set(in_turn(names[::-1], 2, turn, 1))


def test_only_baselines_take_turns_and_only_in_their_workload() -> None:
    exp = experiment(
        PLAIN,
        {"name": "control", "method": "none", "baseline": "plain"},
        {"draft": "small", "baseline": "plain"},
        workloads=[
            {"source": "bench", "name": "text", "baseline_per_block": 1},
            {"source": "bench", "name": "edit", "kinds": ["edit"]},
        ],
    )
    prompts = [
        Prompt(id=f"{workload}/{number}", workload=workload, kind="fact", text="", sha256="")
        for workload in ("text", "edit")
        for number in range(3)
    ]
    arms = {arm.id: arm for arm in exp.expand()}
    due = {name: [prompt.id for prompt in exp.due(arm, prompts, 0, 1)] for name, arm in arms.items()}
    everything = [prompt.id for prompt in prompts]
    assert due["dense/draft-simple/small"] == due["dense/control"] == everything
    assert due["dense/plain"] == due["moe/plain"]
    assert len(due["dense/plain"]) == 4
    assert due["dense/plain"][1:] == everything[3:]


def measured(folder: Path, **changes: Any) -> RunData:
    turns: dict[str, Any] = {
        "targets": {"dense": "mock:dense"},
        "arms": [PLAIN, {"draft": "small", "gamma": 4, "baseline": "plain"}],
        "workloads": [
            {
                "source": "bench",
                "name": "text",
                "kinds": ["fact", "code", "reason", "zh"],
                "per_kind": 1,
                "baseline_per_block": 3,
            }
        ],
        "design": {"blocks": 4},
    }
    file = folder / "turns.yaml"
    file.write_text(yaml.safe_dump(data(**(turns | changes))), encoding="utf-8")
    invoke(["run", str(file), "--out", str(folder / "run")])
    with RunStore.open(folder / "run", readonly=True) as store:
        return read_run_data(store)


def test_a_run_in_turns_agrees_with_itself(tmp_path: Path) -> None:
    """The plan, what was measured, the speedup's pairs, and the check of completeness."""
    run = measured(tmp_path)
    loaded = load(str(tmp_path / "turns.yaml"))
    assert {item.arm.id: item.requests for item in make_plan(loaded).arms} == {
        "dense/plain": 12,
        "dense/draft-simple/small/g4": 16,
    }
    keys = set(prepare(loaded).work.keys())
    assert keys == {tuple(it.key) for it in run.requests}
    assert Counter(it.row.prompt_id for it in run.by_arm["dense/plain"]) == Counter(dict.fromkeys(run.prompts, 3))
    assert len(run.beside_baseline["dense/draft-simple/small/g4"]) == 12
    assert not [it for it in incomplete_matrix(run) if isinstance(it, Finding)]
    report = read_run(tmp_path / "run")
    assert report.summary.complete
    assert report.certificate is not None
    assert report.certificate.verdict == "valid"
    assert invoke(["run", str(tmp_path / "turns.yaml"), "--out", str(tmp_path / "run")]) == 0, "nothing is missing"


def test_a_gap_that_nobody_planned_is_still_found(tmp_path: Path) -> None:
    mock = {"faults": [{"kind": "dies", "arm": "dense/plain", "block": 2, "prompt": "*"}]}
    run = measured(tmp_path, engine={"kind": "mock", "mock": mock})
    (finding,) = [it for it in incomplete_matrix(run) if isinstance(it, Finding)]
    assert (finding.arm_id, finding.severity) == ("dense/plain", "suspect")
    assert (finding.evidence["planned"], finding.evidence["missing"]) == (12, 3)
    first = finding.evidence["first_missing"]
    assert isinstance(first, Message)
    assert (first.values["block"], first.values["invocation"]) == (2, 0)
    due = prepare(load(str(tmp_path / "turns.yaml"))).work.keys()
    assert (0, 2, "dense/plain", str(first.values["prompt"])) in set(due)


@pytest.mark.parametrize("per_block", [0, 5])
def test_turns_that_are_refused(tmp_path: Path, per_block: int, capsys: pytest.CaptureFixture[str]) -> None:
    workload = {"source": "bench", "name": "text", "kinds": ["fact"], "per_kind": 4, "baseline_per_block": per_block}
    file = tmp_path / "turns.yaml"
    file.write_text(yaml.safe_dump(data(workloads=[workload])), encoding="utf-8")
    for more in ([], ["--dry-run"]):
        assert invoke(["run", str(file), "--out", str(tmp_path / "run"), *more]) == 2
        assert "baseline_per_block" in capsys.readouterr().err
