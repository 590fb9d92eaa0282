"""Checks of arrangement: baselines of one's own, order by the clock, completeness, and what means hide."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import (
    BASE,
    SD,
    engine,
    experiment,
    found,
    run_data,
    simulated,
    unchecked,
    with_requests,
    with_sessions,
    without_requests,
)
from mock_run import mock_run

from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, Severity
from specmeter.validity.checks.arrangement import (
    bimodal,
    incomplete_matrix,
    order_confounded,
    pooled_vs_mean,
    within_run_only,
)
from specmeter.validity.checks.baseline import baseline_elsewhere, baseline_unstable
from specmeter.validity.checks.registry import CHECKS
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

CLEAN = run_data()
PROMPTS = tuple(f"text/fact-{number}" for number in range(30))


def severities(look: Any, data: RunData, arm_id: str | None = None) -> list[Severity]:
    return [finding.severity for finding in found(look, data) if arm_id in (None, finding.arm_id)]


# --- baseline-elsewhere ----------------------------------------------------------------------------------------------

GPU = DeviceUse(device="CUDA0", model_buffer_bytes=400_000_000)
DRAFT_GPU = DeviceUse(device="CUDA0", model_buffer_bytes=20_000_000)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"engine": engine(binary_sha256="zz")}, "engine"),
        ({"engine": engine(libraries={"libggml.so": "zz"})}, "engine"),
        ({"engine": engine(build="11550 (aaaaaaaaa)")}, "engine"),
        ({"engine": engine(kind="native")}, "engine"),
        ({"resolved": {"kv_type_k": "q8_0"}}, "kv_type_k"),
        ({"resolved": {"kv_type_v": "q4_0"}}, "kv_type_v"),
        ({"resolved": {"n_ctx": 8192}}, "n_ctx"),
        ({"resolved": {"threads": 4}}, "threads"),
        ({"resolved": {"flash_attention": "disabled"}}, "flash_attention"),
        ({"devices": (GPU,), "draft_devices": (DRAFT_GPU,)}, "target_devices"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("block", [None, 2])
def test_a_baseline_that_is_not_alike(changes: dict[str, Any], name: str, block: int | None) -> None:
    """Also where a single block is not."""
    (finding,) = found(baseline_elsewhere, with_sessions(CLEAN, SD, block, **changes))
    assert (finding.severity, finding.arm_id) == ("invalid", SD)
    assert name in finding.evidence


def test_other_sessions_of_the_baseline() -> None:
    (finding,) = found(baseline_elsewhere, with_sessions(CLEAN, BASE, resolved={"kv_type_k": "q8_0"}))
    assert finding.arm_id == SD, "the arm is compared with it; the baseline itself is compared with nothing"


def test_what_one_side_does_not_say_is_not_compared() -> None:
    data = with_sessions(CLEAN, SD, resolved={"threads": None, "n_ctx": None})
    assert found(baseline_elsewhere, with_sessions(data, SD, devices=())) == []


def test_old_logs_count_the_draft_among_the_target() -> None:
    """Without a line between the two, devices of the draft are no devices of the target."""
    data = with_sessions(CLEAN, SD, devices=(GPU, *CLEAN.sessions["s0"].devices), draft_devices=())
    assert found(baseline_elsewhere, data) == []


def test_a_block_without_baseline_does_not_count() -> None:
    data = without_requests(CLEAN, lambda row: row.arm_id == BASE and row.block == 1)
    (finding,) = found(baseline_elsewhere, data)
    assert (finding.severity, finding.evidence["blocks_without_baseline"]) == ("note", 1)


def test_a_baseline_of_other_prompts_is_none() -> None:
    data = without_requests(CLEAN, lambda row: (row.arm_id == BASE) == (row.prompt_id == "text/fact-1"))
    (finding,) = found(baseline_elsewhere, data)
    assert (finding.severity, finding.evidence["blocks"]) == ("suspect", 4)


@pytest.mark.parametrize("data", [CLEAN, simulated(CLEAN)])
def test_no_baseline_in_any_block(data: RunData) -> None:
    """An interrupted run has no speedup yet, and so none that is false."""
    alone = without_requests(data, lambda row: row.arm_id == BASE)
    (finding,) = found(baseline_elsewhere, alone)
    assert finding.severity == "suspect"
    assert SD not in alone.speedups
    failed = with_requests(data, BASE, status="failed")
    assert severities(baseline_elsewhere, failed) == ["suspect"]


def test_what_baseline_elsewhere_cannot_see() -> None:
    (gap,) = unchecked(baseline_elsewhere, replace(CLEAN, sessions={}), applies=True)
    assert gap.arm_id == SD
    (gap,) = unchecked(baseline_elsewhere, without_requests(CLEAN, lambda row: row.arm_id == SD), applies=True)
    assert gap.arm_id == SD
    alone = run_data(arms=[CLEAN.arms[BASE]])
    assert not found(baseline_elsewhere, alone)
    assert unchecked(baseline_elsewhere, alone, applies=False)


def test_a_fresh_server_for_every_request() -> None:
    """Sessions without an answer do not matter, and one of several is enough to compare with."""
    sessions = dict(CLEAN.sessions)
    broken = next(it for it in sessions.values() if it.arm_id == SD)
    sessions["broken"] = broken.model_copy(update={"id": "broken", "engine": engine(binary_sha256="zz")})
    assert found(baseline_elsewhere, replace(CLEAN, sessions=sessions)) == []


# --- baseline-unstable -----------------------------------------------------------------------------------------------


def natural(data: RunData = CLEAN) -> float:
    speedup = next(arm.speedup for arm in data.summary.arms if arm.arm_id == SD)
    assert speedup is not None
    return speedup.point


def unsteady(effect: float, blocks: list[float], own: list[float] | None = None, **changes: Any) -> RunData:
    """Blocks that take so many times as long as usual, for both arms alike, and a speedup of `effect`."""

    def pace(arm: Arm, block: int, _: str) -> float:
        slower = blocks[block]
        if arm.speculates:
            slower *= natural() / effect * (own[block] if own else 1.0)
        return slower

    return run_data(pace=pace, **changes)


@pytest.mark.parametrize("effect", [1.03, 0.97, 1.5])
@pytest.mark.parametrize(("blocks", "varies"), [([1.0, 0.9, 1.06, 1.1], 8.5), ([1.0, 1.0, 11.0, 1.0], 120)])
def test_what_arm_and_baseline_share_is_a_note_whatever_the_effect(
    effect: float, blocks: list[float], varies: float
) -> None:
    (finding,) = found(baseline_unstable, unsteady(effect, blocks))
    assert (finding.severity, finding.arm_id) == ("note", BASE)
    assert float(str(finding.evidence["varies_percent"])) == pytest.approx(varies, rel=0.1)


@pytest.mark.parametrize("own", [[1.0, 1.0, 1 / 1.6, 1.0], [1.0, 1.0, 1.6, 1.0]])
def test_a_speedup_that_goes_with_its_baseline(own: list[float]) -> None:
    """The baseline alone was slower in a block, or the arm was slowed down there by far more than the baseline."""
    notes_too = found(baseline_unstable, unsteady(1.5, [1.0, 1.0, 1.6, 1.0], own))
    assert [(it.severity, it.arm_id) for it in notes_too] == [("note", BASE), ("suspect", SD)]
    assert notes_too[1].message.code == "baseline-unstable.alone"


def test_blocks_that_grow_slower_leave_a_run_valid(tmp_path: Path) -> None:
    """By the mock engine: each block takes 20 % longer than the one before."""
    data = mock_run(tmp_path, mock={"block_drift": 0.2}, design={"blocks": 4})
    judgement = judge(data, CHECKS)
    assert judgement.verdict == "valid", [it for it in judgement.findings if it.severity != "note"]
    assert "baseline-unstable.shared" in {it.message.code for it in judgement.findings}


def test_a_speedup_that_varies_whatever_its_baseline_does() -> None:
    """As sampled texts do: that is what its interval is for."""
    assert found(baseline_unstable, unsteady(1.5, [1.0, 1.01, 0.99, 1.0], own=[1.0, 1.2, 1.2, 0.8])) == []


def test_a_small_effect_on_a_steady_machine() -> None:
    assert found(baseline_unstable, unsteady(1.03, [1.0, 1.005, 0.995, 1.0])) == []


def test_a_small_effect_that_all_pairs_show_on_a_machine_that_moves_as_quiet_ones_do() -> None:
    """Such as 2.8 % in each of four blocks, beside a baseline that varies by 3 % over them."""
    assert found(baseline_unstable, unsteady(1.028, [1.0, 0.96, 1.02, 1.03])) == []


def test_no_claim_no_doubt() -> None:
    """An interval that contains 1 claims nothing."""
    data = unsteady(1.01, [1.0, 0.9, 1.06, 1.1], own=[1.0, 1.06, 0.95, 1.0])
    assert severities(baseline_unstable, data) == ["note"]


def test_one_block_is_judged_by_its_requests() -> None:
    asked = experiment(design={"blocks": 1})
    assert found(baseline_unstable, run_data(asked)) == []
    slower = {"text/fact-1": 1.0, "text/code-1": 1.12, "text/edit-1": 0.9}
    data = run_data(asked, pace=lambda arm, _, prompt: slower[prompt] * (natural() / 1.02 if arm.speculates else 1))
    assert severities(baseline_unstable, data, SD) == ["suspect"]


def test_a_baseline_that_was_measured_once() -> None:
    data = run_data(experiment(design={"blocks": 1}), prompt_ids=("text/fact-1",))
    (gap,) = unchecked(baseline_unstable, data)
    assert (gap.arm_id, gap.applies) == (SD, True)


def test_times_that_are_copies_are_not_noise() -> None:
    assert found(baseline_unstable, with_requests(CLEAN, predicted_ms=1000.0)) == []


def test_quiet_machines_raise_no_alarm() -> None:
    """As measured: 4 % between blocks, 2 % between requests, and effects like those of the demo."""
    rng = np.random.default_rng(5)
    alarms = 0
    for effect in [2.2, 1.14, 0.72, 0.87] * 10:
        blocks = np.exp(rng.normal(0, 0.04, 4)).tolist()
        own = np.exp(rng.normal(0, 0.03, 4)).tolist()
        alarms += "suspect" in severities(baseline_unstable, unsteady(effect, blocks, own))
    assert alarms == 0


# --- order-confounded ------------------------------------------------------------------------------------------------

MANY = [{"draft": "small", "gamma": gamma} for gamma in (2, 4, 6, 8)]


@pytest.mark.parametrize("order", ["latin", "williams"])
@pytest.mark.parametrize("arms", [1, 2, 3, 4])
@pytest.mark.parametrize("blocks", [2, 3, 4, 5, 6])
def test_complete_balanced_orders_are_balanced(order: str, arms: int, blocks: int) -> None:
    data = run_data(experiment(design={"blocks": blocks, "order": order}, arms=MANY[:arms]))
    assert found(order_confounded, data) == []


@pytest.mark.parametrize("arms", [1, 4])
@pytest.mark.parametrize("mock", [False, True])
def test_the_same_order_in_every_block(arms: int, mock: bool) -> None:
    data = run_data(experiment(design={"blocks": 3, "order": "as-written"}, arms=MANY[:arms]))
    findings = found(order_confounded, simulated(data) if mock else data)
    assert {it.arm_id for it in findings} == set(data.arms) - {BASE}
    assert {it.severity for it in findings} == {"suspect"}
    assert findings[0].evidence["balance"] == 0
    assert findings[0].evidence["blocks_after_baseline"] == 3


def test_the_clock_counts_and_not_the_plan() -> None:
    """Baselines that failed at first and were measured again after everything else of their block."""
    data = with_requests(CLEAN, BASE, lambda it: {"started_at": it.row.started_at + 600})
    (finding,) = found(order_confounded, data)
    assert (finding.severity, finding.evidence["blocks_after_baseline"]) == ("suspect", 0)


def test_failed_requests_have_no_place() -> None:
    late = with_requests(CLEAN, BASE, lambda it: {"started_at": it.row.started_at + 100_000, "status": "failed"})
    both = replace(
        CLEAN, requests=in_columns((*CLEAN.requests, *(it for it in late.requests if it.row.status == "failed")))
    )
    assert found(order_confounded, both) == []


def test_one_block_cannot_be_balanced() -> None:
    (finding,) = found(order_confounded, run_data(experiment(design={"blocks": 1})))
    assert (finding.severity, finding.scope) == ("note", "run")


def test_invocations_are_blocks_too() -> None:
    data = run_data(experiment(design={"blocks": 1, "invocations": 4, "order": "as-written"}))
    assert severities(order_confounded, data) == ["suspect"]


def test_arms_that_never_met() -> None:
    data = without_requests(CLEAN, lambda row: (row.arm_id == BASE) == (row.block % 2 == 0))
    assert found(order_confounded, data) == []
    assert unchecked(order_confounded, data, applies=True)


def slowing(data: RunData, per_minute: float) -> RunData:
    """Everything gets slower within each block, by so much a minute."""
    begins: dict[int, float] = {}
    for request in data.requests:
        begins[request.row.block] = min(request.row.started_at, begins.get(request.row.block, math.inf))

    def later(it: Any) -> dict[str, Any]:
        minutes = (it.row.started_at - begins[it.row.block]) / 60
        return {"predicted_ms": it.row.predicted_ms * math.exp(per_minute * minutes)}

    return with_requests(data, change=later)


def test_drift_within_blocks_biases_an_unlucky_order() -> None:
    order = {"blocks": 6, "order": "random", "seed": 3}
    data = run_data(experiment(design=order, arms=MANY))
    assert found(order_confounded, data) == []
    findings = found(order_confounded, slowing(data, 0.3))
    assert findings
    for finding in findings:
        assert finding.severity == "suspect"
        assert float(str(finding.evidence["drift_percent_per_minute"])) == pytest.approx(-26, abs=2)
        assert abs(float(str(finding.evidence["bias_percent"]))) >= 2


def test_drift_within_blocks_cancels_in_a_balanced_order() -> None:
    data = run_data(experiment(design={"blocks": 6}, arms=MANY[:1]))
    assert found(order_confounded, slowing(data, 0.05)) == []


@pytest.mark.parametrize("order", ["random", "williams"])
def test_what_ran_before_shifts_what_follows(order: str) -> None:
    """Where all precede alike, only the arm that never follows itself is shifted."""
    data = run_data(experiment(design={"blocks": 10, "order": order, "seed": 3}, arms=MANY))
    assert found(order_confounded, data) == []
    longest = f"{SD.rpartition('/')[0]}/g8"
    hot = {(it.row.block, it.row.position + 1) for it in data.requests if it.row.arm_id == longest}

    def slower(it: Any) -> dict[str, Any]:
        return {"predicted_ms": it.row.predicted_ms * (1.25 if (it.row.block, it.row.position) in hot else 1.0)}

    findings = found(order_confounded, with_requests(data, change=slower))
    shifted = {it.arm_id for it in findings}
    assert shifted == {longest} if order == "williams" else shifted
    for finding in findings:
        assert finding.message.values["before"] == longest
        assert finding.message.values["left_percent"] == pytest.approx(-20, abs=5)


def test_a_pause_within_a_block() -> None:
    def later(it: Any) -> dict[str, Any]:
        return {"started_at": it.row.started_at + 50_000}

    paused = with_requests(CLEAN, lambda row: row.block > 1 or (row.block == 1 and row.position == 1), later)
    (finding,) = found(order_confounded, paused)
    assert (finding.severity, finding.evidence["blocks_interrupted"]) == ("note", 1)
    assert float(str(finding.evidence["longest_pause_s"])) == pytest.approx(50_000, abs=60)
    between = with_requests(CLEAN, lambda row: row.block > 1, later)
    assert found(order_confounded, between) == []
    loading = with_sessions(paused, None, 1, ready_ms=50_000_000)
    assert found(order_confounded, loading) == []


def test_an_order_that_is_as_written_on_the_mock(tmp_path: Path) -> None:
    data = mock_run(tmp_path, design={"blocks": 3, "order": "as-written"})
    assert {it.arm_id for it in found(order_confounded, data)} == {it.id for it in data.arms.values() if it.speculates}


# --- within-run-only -------------------------------------------------------------------------------------------------


def test_one_invocation_is_an_afternoon() -> None:
    (finding,) = found(within_run_only, CLEAN)
    assert (finding.severity, finding.scope) == ("note", "run")
    assert found(within_run_only, run_data(experiment(design={"blocks": 2, "invocations": 2}))) == []


# --- incomplete-matrix -----------------------------------------------------------------------------------------------


def test_requests_that_are_missing() -> None:
    data = without_requests(CLEAN, lambda row: row.arm_id == SD and row.block == 3 and row.prompt_id == "text/code-1")
    (finding,) = found(incomplete_matrix, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert (finding.evidence["planned"], finding.evidence["answered"], finding.evidence["missing"]) == (12, 11, 1)
    place = Message("incomplete-matrix.place", prompt="text/code-1", block=3, invocation=0)
    assert finding.evidence["first_missing"] == place


def test_requests_that_failed() -> None:
    data = with_requests(
        CLEAN, lambda row: row.arm_id == BASE and row.block == 0, status="failed", error="no\nroom\n  fix: make some"
    )
    (finding,) = found(incomplete_matrix, data)
    assert finding.message.values["why"] == Message("incomplete-matrix.why", error="no room")
    assert (finding.arm_id, finding.evidence["failed"], finding.evidence["missing"]) == (BASE, 3, 3)


def test_one_result_in_place_of_another() -> None:
    """As many as planned, but one of them twice: logs with one name overwrote each other."""
    data = with_requests(
        CLEAN, lambda row: row.arm_id == SD and row.prompt_id == "text/code-1", prompt_id="text/fact-1"
    )
    (finding,) = found(incomplete_matrix, data)
    assert finding.evidence["answered"] == 8
    assert finding.message.values["twice"] == Message("incomplete-matrix.twice", requests=4)


def test_more_than_was_planned() -> None:
    assert severities(incomplete_matrix, replace(CLEAN, planned={BASE: 12, SD: 6})) == ["suspect"]
    assert severities(incomplete_matrix, replace(CLEAN, planned={BASE: 12})) == ["suspect"]


def test_a_run_that_was_interrupted(tmp_path: Path) -> None:
    data = mock_run(tmp_path, mock={"faults": [{"kind": "interrupt", "call": 20}]})
    assert {it.severity for it in found(incomplete_matrix, data)} == {"suspect"}
    assert sum(int(str(it.evidence["missing"])) for it in found(incomplete_matrix, data)) > 0


def test_an_arm_that_never_starts(tmp_path: Path) -> None:
    data = mock_run(tmp_path, mock={"faults": [{"kind": "start-fails", "arm": "moe/draft*"}]})
    (finding,) = found(incomplete_matrix, data)
    assert finding.evidence["answered"] == 0


def test_no_plan() -> None:
    assert unchecked(incomplete_matrix, replace(CLEAN, planned={}), applies=True)


# --- bimodal ---------------------------------------------------------------------------------------------------------


def test_two_speeds_of_requests() -> None:
    rng = np.random.default_rng(1)
    slow = {(block, prompt): rng.random() < 0.4 for block in range(4) for prompt in PROMPTS}
    data = run_data(prompt_ids=PROMPTS, pace=lambda arm, b, p: 1.4 if arm.speculates and slow[b, p] else 1.0)
    (finding,) = (it for it in found(bimodal, data) if it.severity != "note")
    assert (finding.severity, finding.arm_id, finding.evidence["of"]) == ("suspect", SD, "requests")
    assert float(str(finding.evidence["levels_apart_percent"])) == pytest.approx(40, abs=4)
    assert float(str(finding.evidence["share_percent"])) == pytest.approx(40, abs=10)


def test_two_speeds_of_sessions() -> None:
    asked = experiment(design={"blocks": 20})
    data = run_data(asked, pace=lambda arm, block, _: 1.3 if arm.speculates and block % 3 == 0 else 1.0)
    (finding,) = (it for it in found(bimodal, data) if it.severity != "note")
    assert (finding.arm_id, finding.evidence["of"]) == (SD, "blocks")
    both = run_data(asked, pace=lambda _, block, __: 1.3 if block % 3 == 0 else 1.0)
    assert [it.arm_id for it in found(bimodal, both) if it.severity != "note"] == [BASE], "what both share cancels"


def test_blocks_at_other_levels_are_noise_while_they_are_few() -> None:
    data = run_data(prompt_ids=PROMPTS, pace=lambda _, block, __: [1.0, 1.3, 1.0, 1.3][block])
    assert "suspect" not in severities(bimodal, data)


def test_prompts_of_other_speeds_are_a_note() -> None:
    data = run_data(prompt_ids=PROMPTS, pace=lambda _, __, prompt: 2.0 if prompt.endswith(("1", "2", "3")) else 1.0)
    findings = found(bimodal, data)
    assert {it.severity for it in findings} == {"note"}
    assert findings[0].message.code == "bimodal.prompts"
    assert str(findings[0].evidence["slowest"]).endswith(("1", "2", "3"))


def test_too_few_repetitions_to_tell() -> None:
    gaps = unchecked(bimodal, CLEAN, applies=True)
    assert {gap.arm_id for gap in gaps} == {BASE, SD}
    assert {gap.reason.code for gap in gaps} == {"unchecked.few_repetitions"}
    assert unchecked(bimodal, run_data(prompt_ids=PROMPTS)) == []


# --- pooled-vs-mean --------------------------------------------------------------------------------------------------


def test_two_means_that_differ() -> None:
    data = run_data(pace=lambda _, __, prompt: 3.0 if prompt == "text/code-1" else 1.0)
    (base, _) = found(pooled_vs_mean, data)
    assert base.severity == "note"
    pooled, mean = (float(str(base.evidence[f"{name}_tok_per_s"])) for name in ("pooled", "mean_of_requests"))
    assert pooled == pytest.approx(15, abs=0.3), "3 * 64 tokens in (1 + 1 + 3) * 64 * 40 ms"
    assert mean == pytest.approx(25 * 7 / 9, abs=0.4)


def test_two_means_that_agree() -> None:
    assert found(pooled_vs_mean, CLEAN) == []
    nothing = with_requests(CLEAN, predicted_ms=0.0)
    assert {gap.arm_id for gap in unchecked(pooled_vs_mean, nothing)} == {BASE, SD}
