"""Checks of arithmetic: the law of counters, and what no speedup, rate or draft can exceed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import (
    BASE,
    SD,
    before,
    experiment,
    found,
    host,
    mocked,
    run_data,
    simulated,
    unchecked,
    with_arms,
    with_logs,
    with_models,
    with_requests,
    with_sessions,
    without_requests,
)
from hypothesis import given
from hypothesis import strategies as st

from specmeter.checks import bounds
from specmeter.checks.bounds import (
    bandwidth_bound,
    clock_differs,
    conservation,
    counters_absurd,
    draft_time_bound,
    speedup_above_cost_bound,
    speedup_above_tau,
    window_mismatch,
)
from specmeter.checks.hashes import PARTS
from specmeter.checks.judge import judge
from specmeter.checks.run_data import RunData
from specmeter.record import Arm, DeviceUse, Gpu, Prompt

CLEAN = run_data()
GB = 1_000_000_000


@pytest.mark.parametrize("check", bounds.CHECKS, ids=lambda check: check.id)
def test_a_clean_run_is_left_alone(check: Any) -> None:
    for data in (CLEAN, simulated(CLEAN), before(CLEAN)):
        assert found(check.look, data) == []
        gaps = unchecked(check.look, data, applies=True)
        assert gaps == [] or check.severity != "invalid"


@pytest.mark.parametrize("check", bounds.CHECKS, ids=lambda check: check.id)
def test_what_a_check_saw_is_a_part_of_the_run(check: Any) -> None:
    assert set(check.saw) <= set(PARTS)


def test_a_clean_run_is_valid() -> None:
    assert judge(CLEAN, bounds.CHECKS).verdict == "valid"


# --- conservation ----------------------------------------------------------------------------------------------------


def more_forwards(data: RunData, count: float, which: Any = SD, **changes: Any) -> RunData:
    return with_requests(data, which, lambda it: {"decodes": (it.decodes or 0) + count}, **changes)


@pytest.mark.parametrize("arm_id", [BASE, SD])
@pytest.mark.parametrize("missing", [1, 20])
def test_tokens_that_no_forward_stands_behind(arm_id: str, missing: int) -> None:
    findings = found(conservation, more_forwards(CLEAN, -missing, arm_id))
    assert len(findings) == 12
    for finding in findings:
        assert (finding.severity, finding.scope, finding.arm_id) == ("invalid", "request", arm_id)
        assert finding.evidence["unexplained"] == missing


def test_accepted_tokens_that_are_not_counted() -> None:
    data = with_requests(CLEAN, SD, lambda it: {"draft_n_accepted": (it.row.draft_n_accepted or 0) // 2})
    assert len(found(conservation, data)) == 12


def test_forwards_that_emit_nothing() -> None:
    """A baseline has none; a draft's tail may be cut off at a stop that nobody foresaw; a restore may cost one."""
    assert len(found(conservation, more_forwards(CLEAN, 1, BASE))) == 12
    assert len(found(conservation, more_forwards(CLEAN, 1))) == 12
    assert found(conservation, more_forwards(CLEAN, 3, restores=3)) == []
    ended = with_requests(CLEAN, stop_reason="eos")
    assert len(found(conservation, more_forwards(ended, 1, BASE))) == 12
    assert found(conservation, more_forwards(ended, 4)) == []
    assert len(found(conservation, more_forwards(ended, 5))) == 12
    assert found(conservation, more_forwards(ended, 7, restores=3)) == []
    assert len(found(conservation, more_forwards(ended, 8, restores=3))) == 12


def test_a_few_tokens_too_many_that_count_as_accepted() -> None:
    """Three in each request are less than one draft, and enough to turn 55 % into 60 %."""
    data = with_requests(CLEAN, SD, lambda it: {"draft_n_accepted": (it.row.draft_n_accepted or 0) + 3})
    assert [finding.severity for finding in found(conservation, data)] == ["invalid"] * 12


def test_one_request_is_enough() -> None:
    data = more_forwards(CLEAN, -3, lambda row: row.block == 2 and row.item == 1 and row.arm_id == SD)
    (finding,) = found(conservation, data)
    assert (finding.block, finding.arm_id) == (2, SD)
    assert judge(data, bounds.CHECKS).arms == {BASE: "valid", SD: "invalid"}


def test_a_long_prompt_takes_one_forward_per_batch() -> None:
    """The session was calibrated with a short prompt; the long one is known from the batch that was read back."""

    def long(row: Any) -> bool:
        return row.item == 2

    data = more_forwards(with_requests(CLEAN, stop_reason="word"), 2, long, prompt_n=5000)
    assert found(conservation, data) == []
    # A baseline is exact to the forward; in an arm that drafts, a few may stand for a tail that was cut off.
    assert len(found(conservation, more_forwards(data, 1, long))) == 4
    assert len(found(conservation, more_forwards(data, 5, long))) == 8
    assert len(found(conservation, more_forwards(data, -1, long))) == 8


def test_an_engine_that_cuts_prompts_in_two_is_known_by_calibration() -> None:
    data = more_forwards(with_sessions(CLEAN, prompt_forwards=2), 1, lambda _: True)
    assert found(conservation, data) == []
    assert len(found(conservation, more_forwards(data, 1, BASE))) == 12


def test_where_the_batch_is_not_known_a_long_prompt_has_leeway() -> None:
    blind = with_sessions(CLEAN, resolved={"n_batch": None})
    assert found(conservation, blind) == []
    long = with_requests(blind, prompt_n=2000)
    for forwards in (0, 1, 3):
        assert found(conservation, more_forwards(long, forwards, BASE)) == []
    assert len(found(conservation, more_forwards(long, 4, BASE))) == 12
    assert len(found(conservation, more_forwards(long, -1, BASE))) == 12
    uncalibrated = with_sessions(blind, prompt_forwards=None)
    assert found(conservation, uncalibrated) == []


def test_an_engine_without_counters_is_not_seen() -> None:
    data = with_requests(CLEAN, lambda row: row.arm_id == SD and row.block == 0, decodes=None)
    (gap,) = unchecked(conservation, data, applies=True)
    assert gap.arm_id == SD
    assert "3 of 12" in gap.reason
    assert judge(data, bounds.CHECKS).arms == {BASE: "valid", SD: "suspect"}


def test_nothing_generated_breaks_no_law() -> None:
    data = with_requests(CLEAN, SD, predicted_n=1, draft_n=0, draft_n_accepted=0, decodes=1.0)
    assert found(conservation, data) == []


@given(
    tokens=st.integers(2, 300),
    rounds=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60),
    prompt_n=st.integers(1, 9000),
    off=st.integers(-3, 20),
    stop=st.sampled_from(["limit", "eos"]),
)
def test_the_law(tokens: int, rounds: list[tuple[int, int]], prompt_n: int, off: int, stop: str) -> None:
    """Any honest sequence of rounds keeps it; any missing forward breaks it."""
    decoded = accepted = drafted = 0
    forwards = 0
    for made, good in rounds:
        forwards += 1
        drafted += made
        accepted += min(made, good)
        decoded += min(made, good) + 1
    plain = tokens
    counts = {
        "predicted_n": 1 + decoded + plain,
        "draft_n": drafted,
        "draft_n_accepted": accepted,
        "prompt_n": prompt_n,
        "stop_reason": stop,
        "decodes": float(math.ceil(prompt_n / 2048) + forwards + plain + off),
    }
    data = with_sessions(with_arms(CLEAN, SD, gamma=8), prompt_forwards=math.ceil(prompt_n / 2048))
    data = with_requests(data, SD, **counts)
    # Some forwards may be those of a draft's tail that was cut off at a stop: no more than one draft.
    honest = 0 <= off <= (8 if drafted and stop == "eos" else 0)
    assert (found(conservation, data) == []) == honest


RECURRENT: dict[str, Any] = {"targets": {"dense": {"restore_ms": 5}}}


@pytest.mark.parametrize(
    ("mock", "expected"),
    [
        ({}, set()),
        (RECURRENT, set()),
        ({"faults": [{"kind": "decode-failed"}]}, {"conservation", "speedup-above-tau"}),
        ({"faults": [{"kind": "acceptance-stuck"}]}, {"conservation"}),
    ],
)
def test_the_mock_engine_keeps_the_law_unless_it_is_told_to_break_it(
    tmp_path: Path, mock: dict[str, Any], expected: set[str]
) -> None:
    judgement = judge(mocked(tmp_path, **mock), bounds.CHECKS)
    assert {finding.check for finding in judgement.findings if finding.severity == "invalid"} >= expected
    assert bool(judgement.findings) == bool(expected)
    assert judgement.arms["dense/none"] == "valid"
    assert not [gap for it in judgement.outcomes for gap in it.unchecked if gap.applies]


# --- counters-absurd -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"draft_n_accepted": 500}, "only"),
        ({"draft_n": 100, "draft_n_accepted": 65}, "only 65 were generated"),
        ({"predicted_n": 66}, "no more than 65"),
        ({"prompt_ms": 9000.0}, "the request took"),
    ],
)
def test_counters_that_contradict_each_other(changes: dict[str, Any], words: str) -> None:
    findings = found(counters_absurd, with_requests(CLEAN, SD, **changes))
    assert len(findings) == 12
    assert words in findings[0].message


def test_a_baseline_that_drafts() -> None:
    assert len(found(counters_absurd, with_requests(CLEAN, BASE, draft_n=5))) == 12


def test_a_prompt_may_have_a_limit_of_its_own() -> None:
    prompts = {name: Prompt.model_validate(it.model_dump() | {"max_tokens": 66}) for name, it in CLEAN.prompts.items()}
    data = with_requests(replace(CLEAN, prompts=prompts), predicted_n=66)
    assert found(counters_absurd, data) == []


# --- window-mismatch -------------------------------------------------------------------------------------------------


def test_the_older_window_is_a_note() -> None:
    data = with_requests(CLEAN, SD, lambda it: {"printed_rate": 65000 / (it.row.predicted_ms or 1)})
    (finding,) = found(window_mismatch, data)
    assert (finding.severity, finding.arm_id, finding.evidence["requests"]) == ("note", SD, 12)


@pytest.mark.parametrize("factor", [0.9, 0.99, 1.03, 2.0, 0.0])
def test_any_other_window_is_false(factor: float) -> None:
    data = with_requests(CLEAN, BASE, lambda it: {"printed_rate": factor * (it.printed_rate or 0)})
    findings = found(window_mismatch, data)
    assert [finding.severity for finding in findings] == ["invalid"] * 12


def test_rounded_rates_agree() -> None:
    data = with_requests(CLEAN, change=lambda it: {"printed_rate": round(it.printed_rate or 0, 2)})
    assert found(window_mismatch, data) == []


@given(tokens=st.integers(2, 5000), ms=st.floats(0.5, 1e6), older=st.booleans())
def test_both_windows_are_known_at_any_length(tokens: int, ms: float, older: bool) -> None:
    rate = 1000 * (tokens if older else tokens - 1) / ms
    data = with_requests(CLEAN, SD, predicted_n=tokens, predicted_ms=ms, printed_rate=rate)
    assert [finding.severity for finding in found(window_mismatch, data)] == (["note"] if older else [])


def test_no_rate_of_the_engines_own() -> None:
    gaps = unchecked(window_mismatch, with_requests(CLEAN, printed_rate=None))
    assert [gap.applies for gap in gaps] == [False, False]
    single = with_requests(CLEAN, predicted_n=1, printed_rate=0.0)
    assert found(window_mismatch, single) == []


# --- clock-differs ---------------------------------------------------------------------------------------------------


def short(it: Any, share: float) -> dict[str, float]:
    """The engine's clock sees only this share of the decode time."""
    return {"predicted_ms": share * (it.row.predicted_ms or 0.0)}


@pytest.mark.parametrize(
    ("share", "streamed", "expected"),
    [
        (0.9, True, ["invalid"]),
        (0.97, True, []),
        (0.9, False, ["suspect"]),
        (0.97, False, []),
        (1.0, False, []),
    ],
)
def test_time_that_the_engine_leaves_out(share: float, streamed: bool, expected: list[str]) -> None:
    data = CLEAN if streamed else with_requests(CLEAN, ttft_ms=None)
    findings = found(clock_differs, with_requests(data, SD, lambda it: short(it, share)))
    assert [finding.severity for finding in findings] == expected
    assert {finding.arm_id for finding in findings} <= {SD}


def test_single_hiccups_of_the_client_are_no_fault_of_the_clock() -> None:
    data = with_requests(CLEAN, lambda row: row.block == 1, lambda it: {"wall_ms": 2 * (it.row.wall_ms or 0.0)})
    assert found(clock_differs, data) == []


def few(number: int) -> RunData:
    """As many requests of the arm with the draft, one in each block."""
    prompt = next(iter(CLEAN.prompts))
    return without_requests(CLEAN, lambda row: (row.arm_id, row.prompt_id) != (SD, prompt) or row.block >= number)


@pytest.mark.parametrize(("hiccups", "expected"), [({0}, []), ({0, 1}, ["invalid"])])
def test_one_hiccup_of_two_requests_is_no_fault_of_the_clock(hiccups: set[int], expected: list[str]) -> None:
    data = with_requests(few(2), lambda row: row.block in hiccups, lambda it: short(it, 0.5))
    assert [finding.severity for finding in found(clock_differs, data)] == expected


def test_a_single_request_may_be_a_hiccup() -> None:
    findings = found(clock_differs, with_requests(few(1), SD, lambda it: short(it, 0.5)))
    assert [(finding.severity, finding.arm_id) for finding in findings] == [("suspect", SD)]
    assert "in the only request" in findings[0].message


@pytest.mark.parametrize(("wait", "expected"), [(60.0, ["suspect", "suspect"]), (160.0, ["invalid", "invalid"])])
def test_a_wait_for_a_processor_looks_like_a_short_one(wait: float, expected: list[str]) -> None:
    data = with_requests(CLEAN, prompt_ms=2.0, predicted_ms=50.0, ttft_ms=4.0, wall_ms=54.0 + wait)
    findings = found(clock_differs, data)
    assert [finding.severity for finding in findings] == expected


def test_milliseconds_are_not_what_clocks_are_judged_by() -> None:
    """Requests of a few milliseconds, in which the client waits as long again for the machine."""
    data = with_requests(CLEAN, prompt_ms=2.0, predicted_ms=9.0, ttft_ms=4.0, wall_ms=28.0)
    assert found(clock_differs, data) == []


def test_a_clock_that_nobody_watched() -> None:
    gaps = unchecked(clock_differs, with_requests(CLEAN, SD, wall_ms=None))
    assert [(gap.arm_id, gap.applies) for gap in gaps] == [(SD, True)]
    nothing = with_requests(CLEAN, SD, predicted_n=1, predicted_ms=0.0)
    assert [gap.applies for gap in unchecked(clock_differs, nothing)] == [False]


# --- speedup-above-tau -----------------------------------------------------------------------------------------------


def paced(factor: float, noise: float = 0.01, seed: int = 1, blocks: int = 4, **design: Any) -> RunData:
    """Steps take `factor` of a plain token, and each arm in each block something more or less."""
    dice = random.Random(seed)
    luck: dict[tuple[str, int], float] = {}

    def pace(arm: Arm, block: int, _: str) -> float:
        shift = luck.setdefault((arm.id, block), math.exp(dice.gauss(0, noise)))
        return shift * (factor * 40 / 60 if arm.speculates else 1.0)

    return run_data(experiment(design={"blocks": blocks, **design}), pace=pace)


def test_steps_faster_than_plain_tokens_are_false() -> None:
    (finding,) = found(speedup_above_tau, paced(0.7))
    assert (finding.severity, finding.arm_id) == ("invalid", SD)
    speedup, tau = finding.evidence["speedup"], finding.evidence["tau"]
    assert isinstance(speedup, float)
    assert isinstance(tau, float)
    assert speedup / tau == pytest.approx(1 / 0.7, rel=0.05)
    assert "30 % less" in finding.message or "29 % less" in finding.message or "31 % less" in finding.message


def test_a_step_as_fast_as_a_plain_token_is_possible() -> None:
    assert found(speedup_above_tau, paced(1.0)) == []
    assert found(speedup_above_tau, paced(0.97)) == []


def test_a_point_above_tau_that_noise_may_explain_is_suspect() -> None:
    findings = found(speedup_above_tau, paced(0.85, noise=0.15, seed=3))
    assert [finding.severity for finding in findings] == ["suspect"]
    single = paced(0.5, blocks=1)
    assert [finding.severity for finding in found(speedup_above_tau, single)] == ["suspect"]


def test_a_clock_without_noise_leaves_no_doubt() -> None:
    data = with_requests(CLEAN, BASE, predicted_ms=64 * 40.0)
    data = with_requests(data, SD, predicted_ms=500.0)
    (finding,) = found(speedup_above_tau, data)
    assert finding.severity == "invalid"
    assert finding.evidence["excess_low"] is None


def test_invocations_are_the_units_where_there_are_several() -> None:
    (finding,) = found(speedup_above_tau, paced(0.6, invocations=4, noise=0.002))
    assert finding.evidence["units"] == 4


def test_prompts_of_unlike_speed_do_not_deceive_it() -> None:
    """What is accepted most where plain tokens are slowest: S is above the pooled tau, and nothing is wrong."""

    def slow(row: Any) -> bool:
        return row.item == 0

    data = with_requests(CLEAN, lambda row: row.arm_id == SD, draft_n_accepted=4, draft_n=240, decodes=61.0)
    data = with_requests(data, lambda row: row.arm_id == SD and slow(row), draft_n_accepted=51, decodes=14.0)

    def honest(it: Any) -> dict[str, Any]:
        plain = (400.0 if slow(it.row) else 40.0) * (1 + 0.001 * it.row.block * (it.row.arm_id == SD))
        forwards = 64 - (it.row.draft_n_accepted or 0)
        return {"predicted_ms": plain * forwards, "target_forwards": forwards}

    data = with_requests(data, change=honest)
    arm = data.summary.arms[1]
    assert arm.speedup is not None
    assert arm.tau is not None
    assert arm.speedup.point > 1.5 * arm.tau.point
    assert found(speedup_above_tau, data) == []


def test_without_a_baseline_there_is_no_speedup() -> None:
    data = without_requests(CLEAN, lambda row: row.arm_id == BASE)
    assert [gap.applies for gap in unchecked(speedup_above_tau, data)] == [False]


def test_lengths_that_differ_are_compared_per_token() -> None:
    data = with_requests(CLEAN, BASE, lambda it: {"predicted_n": 33, "predicted_ms": (it.row.predicted_ms or 0) / 2})
    assert found(speedup_above_tau, data) == []


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
def test_honest_runs_are_not_accused_by_chance(noise: float) -> None:
    """The hardest honest case: verification for nothing, drafts for nothing, so that S = tau but for noise."""
    accused = [seed for seed in range(150) if _invalid(paced(1.0, noise=noise, seed=seed, blocks=3))]
    assert accused == []


def _invalid(data: RunData) -> bool:
    return any(finding.severity == "invalid" for finding in found(speedup_above_tau, data))


# --- what memory permits ---------------------------------------------------------------------------------------------


def on_gpu(data: RunData, name: str = "NVIDIA GeForce RTX 4090", layers: tuple[int, int] = (17, 17)) -> RunData:
    """Everything lies on one GPU of 1008 GB/s."""
    gpu = Gpu(index=0, name=name, vendor="NVIDIA", memory_bytes=24 * 2**30)
    uses = (
        DeviceUse(device="CUDA0", model_buffer_bytes=1),
        DeviceUse(device="CPU", compute_buffer_bytes=1),
    )
    data = replace(data, hosts=(host(gpus=(gpu,)),))
    data = with_sessions(data, layers_offloaded=layers, devices=uses)
    return with_sessions(data, SD, draft_layers_offloaded=layers, draft_devices=uses)


def test_a_rate_that_memory_cannot_feed() -> None:
    # 25 tok/s of 40 GB are 1000 GB/s, of 44 GB more than the card has.
    assert found(bandwidth_bound, with_models(on_gpu(CLEAN), "dense", bytes_per_token=38 * GB)) == []
    (finding,) = found(bandwidth_bound, with_models(on_gpu(CLEAN), "dense", bytes_per_token=44 * GB))
    assert (finding.severity, finding.arm_id) == ("suspect", BASE)
    assert finding.evidence["peak_bytes_per_s"] == 1008e9


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (CLEAN, "A processor is not in the catalogue"),
        (on_gpu(CLEAN, name="Nobody's GPU"), "not in the catalogue"),
        (on_gpu(CLEAN, layers=(10, 17)), "some layers are computed by the CPU"),
        (with_sessions(CLEAN, devices=()), "does not say where"),
        (with_sessions(CLEAN, devices=(DeviceUse(device="RPC0[a:1]", model_buffer_bytes=1),)), "another machine"),
        (replace(on_gpu(CLEAN), hosts=()), "the machine is not on record"),
        (with_models(CLEAN, header=None), "header of dense"),
    ],
)
def test_where_no_peak_is_known_nothing_is_seen(data: RunData, words: str) -> None:
    gaps = unchecked(bandwidth_bound, data, applies=True)
    assert {gap.arm_id for gap in gaps} == {BASE, SD}
    assert all(words in gap.reason for gap in gaps)


def test_a_processor_with_memory_of_its_own_is_known() -> None:
    data = replace(CLEAN, hosts=(host(cpu="Apple M2 Ultra"),))
    assert list(bandwidth_bound(data)) == []
    assert found(bandwidth_bound, with_models(data, "dense", bytes_per_token=44 * GB)) != []


def test_weights_that_a_cache_holds_are_not_bounded() -> None:
    gaps = unchecked(bandwidth_bound, with_models(on_gpu(CLEAN), "dense", bytes_per_token=200_000_000))
    assert [gap.applies for gap in gaps] == [False, False]


def test_drafts_that_take_longer_than_the_request() -> None:
    # Some 100 drafted tokens in 1.5 s: 15 ms each, which is 15 GB at 1008 GB/s.
    data = with_models(on_gpu(CLEAN), "small", bytes_per_token=30 * GB)
    findings = found(draft_time_bound, data)
    assert [finding.severity for finding in findings] == ["invalid"] * 12
    assert found(draft_time_bound, with_models(on_gpu(CLEAN), "small", bytes_per_token=5 * GB)) == []


def test_a_draft_of_unknown_rate_bounds_nothing() -> None:
    for data in (CLEAN, on_gpu(CLEAN), simulated(CLEAN)):
        assert found(draft_time_bound, data) == []
        assert unchecked(draft_time_bound, data, applies=True) == []
    (gap,) = unchecked(speedup_above_cost_bound, CLEAN, applies=True)
    assert gap.arm_id == SD
    assert unchecked(speedup_above_cost_bound, simulated(CLEAN), applies=True) == []


def test_other_methods_do_not_draft_token_by_token() -> None:
    for methods in (("draft-eagle3",), ("ngram-mod", "draft-simple")):
        data = with_arms(with_models(on_gpu(CLEAN), "small", bytes_per_token=30 * GB), SD, methods=methods)
        assert found(draft_time_bound, data) == []
        assert unchecked(speedup_above_cost_bound, data, applies=True) == []


def test_a_speedup_that_leaves_no_time_for_drafting() -> None:
    """Steps of 60 ms hold a plain token of 40 ms and 20 ms of drafting: 5 ms for each of four tokens."""
    assert found(speedup_above_tau, on_gpu(CLEAN)) == []
    assert found(speedup_above_cost_bound, with_models(on_gpu(CLEAN), "small", bytes_per_token=4 * GB)) == []
    (finding,) = found(speedup_above_cost_bound, with_models(on_gpu(CLEAN), "small", bytes_per_token=8 * GB))
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    speedup, bound = finding.evidence["speedup"], finding.evidence["bound"]
    assert isinstance(speedup, float)
    assert isinstance(bound, float)
    assert speedup > 1.05 * bound


def test_logs_are_not_needed() -> None:
    data = with_logs(CLEAN)
    assert judge(replace(data, logs={}), bounds.CHECKS).verdict == "valid"
