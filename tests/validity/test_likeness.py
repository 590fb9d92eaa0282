"""The check of likeness: what an arm and its baseline were asked for, before and after anything is measured."""

from __future__ import annotations

from typing import Any

import pytest
from factory import BASE, SD, before, experiment, found, run_data, unchecked, with_arms
from mock_run import mock_run

from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.record import EngineSettings
from specmeter.validity.checks.baseline import baseline_unlike
from specmeter.validity.checks.run_data import RunData

CLEAN = run_data()
OTHERS: dict[str, Any] = {
    "threads": 4,
    "context": 512,
    "kv_type_k": "q8_0",
    "kv_type_v": "q8_0",
    "flash_attention": "on",
    "gpu_layers": 7,
    "cpu_moe_layers": 2,
    "override_tensors": ("exps=CPU",),
    "devices": ("RPC0",),
    "batch": 64,
    "ubatch": 32,
    "kv_unified": True,
    "mmap": False,
    "slots": 2,
    "prompt_cache": True,
    "trace_steps": False,
    "stream_tokens": False,
    "record_experts": True,
}


def test_every_setting_is_known() -> None:
    assert {*OTHERS, *DRAFT_ONLY, "extra_flags", "options"} == set(EngineSettings.model_fields)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("measured", [True, False])
def test_other_settings_than_the_baseline(name: str, measured: bool) -> None:
    asked = CLEAN.arms[SD].engine.model_dump() | {name: OTHERS[name]}
    data = with_arms(CLEAN if measured else before(CLEAN), SD, engine=asked)
    (finding,) = found(baseline_unlike, data)
    assert (finding.severity, finding.arm_id) == ("invalid", SD)
    assert list(finding.evidence) == ["baseline", f"engine.{name}"]


def test_another_target() -> None:
    (finding,) = found(baseline_unlike, with_arms(CLEAN, SD, target="moe"))
    assert (finding.severity, list(finding.evidence)) == ("invalid", ["baseline", "target"])


def test_settings_of_the_draft_are_its_own() -> None:
    asked = CLEAN.arms[SD].engine.model_dump() | {"draft_kv_type_k": "q8_0", "draft_gpu_layers": 3}
    assert found(baseline_unlike, with_arms(CLEAN, SD, engine=asked)) == []


def test_flags_that_nobody_knows_are_suspect() -> None:
    asked = CLEAN.arms[SD].engine.model_dump() | {"extra_flags": ["--no-host"]}
    (finding,) = found(baseline_unlike, with_arms(CLEAN, SD, engine=asked))
    assert (finding.severity, finding.evidence["extra_flags"]) == ("suspect", "--no-host")


@pytest.mark.parametrize(("workloads", "severity"), [(("edit",), "suspect"), (("other",), "invalid")])
def test_prompts_that_the_baseline_never_runs(workloads: tuple[str, ...], severity: str) -> None:
    data = before(
        run_data(
            experiment(
                workloads=[
                    {"source": "bench", "name": "text"},
                    {"source": "bench", "name": "edit"},
                    {"source": "bench", "name": "other"},
                ]
            ),
            prompt_ids=("text/fact-1", "edit/edit-1"),
        )
    )
    prompts = {name: it.model_copy(update={"workload": name.partition("/")[0]}) for name, it in data.prompts.items()}
    data = with_arms(RunData(**{**vars(data), "prompts": prompts}), BASE, workloads=workloads)
    (finding,) = found(baseline_unlike, data)
    assert (finding.severity, finding.arm_id) == (severity, SD)
    assert finding.evidence["prompts"] == 2


@pytest.mark.parametrize(("per_block", "blocks", "left"), [(3, 1, 1), (3, 2, 0), (1, 3, 1), (1, 4, 0)])
def test_turns_that_never_reach_a_prompt(per_block: int, blocks: int, left: int) -> None:
    workloads = [{"source": "bench", "name": "text", "baseline_per_block": per_block}]
    asked = experiment(workloads=workloads, design={"blocks": blocks})
    data = before(run_data(asked, prompt_ids=("text/fact-1", "text/code-1", "text/reason-1", "text/edit-1")))
    findings = found(baseline_unlike, data)
    assert [(it.severity, it.evidence["without_baseline"]) for it in findings] == [("suspect", left)] * bool(left)


def test_a_named_baseline_of_other_settings_is_found_in_a_run(tmp_path: Any) -> None:
    data = mock_run(
        tmp_path,
        arms=[
            {"name": "plain", "method": "none"},
            {"draft": "small", "gamma": 4, "baseline": "plain"},
            {"draft": "small", "gamma": 2, "baseline": "plain", "engine": {"kv_type_k": "q8_0"}},
        ],
    )
    assert {(it.arm_id, it.severity) for it in found(baseline_unlike, data)} == {
        ("dense/draft-simple/small/g2/kv_type_k=q8_0", "invalid"),
        ("moe/draft-simple/small/g2/kv_type_k=q8_0", "invalid"),
    }


def test_without_baselines_there_is_nothing_to_compare() -> None:
    (gap,) = unchecked(baseline_unlike, run_data(arms=[CLEAN.arms[BASE]]))
    assert not gap.applies
