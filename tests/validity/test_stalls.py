"""Single requests that were held up."""

from __future__ import annotations

import pytest
from factory import BASE, SD, experiment, found, run_data, unchecked

from specmeter.validity.checks.arrangement import pooled_vs_mean, stalls


def test_requests_of_one_arm_three_times_as_slow_are_suspect() -> None:
    data = run_data(pace=lambda arm, block, prompt: 3.0 if (arm.id, block, prompt) == (SD, 2, "text/code-1") else 1.0)
    (finding,) = found(stalls, data)
    assert (finding.arm_id, finding.severity) == (SD, "suspect")
    assert finding.message.values["slowest_times_usual"] == pytest.approx(3.0, abs=0.1)
    assert finding.evidence["stalled"] == 1


def test_a_stall_that_hardly_counts_is_a_note() -> None:
    prompts = [f"text/p-{number}" for number in range(20)]
    data = run_data(
        prompt_ids=prompts,
        pace=lambda arm, block, prompt: 1.7 if (arm.id, block, prompt) == (BASE, 1, prompts[3]) else 1.0,
    )
    (finding,) = found(stalls, data)
    assert (finding.arm_id, finding.severity) == (BASE, "note")


def test_a_slow_block_is_not_a_stall() -> None:
    assert found(stalls, run_data(pace=lambda _arm, block, _prompt: 3.0 if block == 1 else 1.0)) == []


def test_one_block_repeats_nothing() -> None:
    data = run_data(experiment(design={"blocks": 1}))
    assert {it.arm_id for it in unchecked(stalls, data)} == {BASE, SD}


def test_one_prompt_cannot_tell_a_stall_from_a_slow_block() -> None:
    data = run_data(
        prompt_ids=["text/code-1"], pace=lambda arm, block, _prompt: 3.0 if (arm.id, block) == (SD, 2) else 1.0
    )
    assert found(stalls, data) == []
    assert {it.arm_id for it in unchecked(stalls, data)} == {BASE, SD}


def test_total_time_far_from_the_mean_over_blocks_is_a_note() -> None:
    """Both sides slow in one block, the arm more so: the geometric mean hides by how much."""
    slow = {BASE: 2.0, SD: 6.0}
    data = run_data(pace=lambda arm, block, _prompt: slow[arm.id] if block == 3 else 1.0)
    notes = [it for it in found(pooled_vs_mean, data) if it.message.code == "pooled-vs-mean.speedup"]
    assert [(it.arm_id, it.severity) for it in notes] == [(SD, "note")]
    assert abs(float(str(notes[0].evidence["difference_percent"]))) > 1
    assert [it for it in found(pooled_vs_mean, run_data()) if it.message.code == "pooled-vs-mean.speedup"] == []
