"""Checks of bounds: what no speedup, rate or draft can exceed, unless a machine is otherwise than assumed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from factory import (
    BASE,
    SD,
    experiment,
    found,
    host,
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

from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, Gpu, StepProbe, StepRound
from specmeter.validity.checks import bounds
from specmeter.validity.checks.bounds import (
    bandwidth_bound,
    draft_time_bound,
    speedup_above_cost_bound,
    speedup_above_tau,
)
from specmeter.validity.checks.request_data import Steps
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

CLEAN = run_data()
GB = 1_000_000_000


# --- speedup-above-tau -----------------------------------------------------------------------------------------------


def paced(factor: float, noise: float = 0.01, seed: int = 1, blocks: int = 4, **design: Any) -> RunData:
    """Steps take `factor` of a plain token, and each arm in each block something more or less."""
    dice = random.Random(seed)
    luck: dict[tuple[str, int], float] = {}

    def pace(arm: Arm, block: int, _: str) -> float:
        shift = luck.setdefault((arm.id, block), math.exp(dice.gauss(0, noise)))
        return shift * (factor * 40 / 60 if arm.speculates else 1.0)

    return run_data(experiment(design={"blocks": blocks, **design}), pace=pace)


def stepped(data: RunData, share: float = 0.98) -> RunData:
    """With the times of steps: from the first end to the last, `share` of the decode time."""
    return with_requests(
        data, SD, lambda it: {"steps": _lasting(share * (it.row.predicted_ms or 0.0), it.row.step_n or 0)}
    )


def _lasting(span_ms: float, number: int = 9) -> Steps:
    return Steps(number, drafted=36, accepted=20, first_ms=5.0, last_ms=5.0 + span_ms)


@pytest.mark.parametrize("told", [True, False], ids=["steps timed", "steps not timed"])
def test_forwards_over_two_tokens_that_cost_less_than_one_are_no_false_number(told: bool) -> None:
    """CPUs have such: what it takes is said, and nothing is withheld."""
    data = stepped(paced(0.7)) if told else paced(0.7)
    (finding,) = found(speedup_above_tau, data)
    assert (finding.severity, finding.arm_id) == ("note", SD)
    speedup, tau = finding.evidence["speedup"], finding.evidence["tau"]
    assert isinstance(speedup, float)
    assert isinstance(tau, float)
    assert speedup / tau == pytest.approx(1 / 0.7, rel=0.05)
    assert finding.evidence["forward_needed"] == pytest.approx(0.7, rel=0.03)
    assert finding.message.values["longest"] == 5
    assert (finding.evidence["step_ms"] is not None) == (finding.message.values["steps"] != "") == told
    assert judge(data, bounds.CHECKS).arms[SD] == "valid"


def test_forwards_cheaper_than_was_ever_seen_are_doubtful() -> None:
    (finding,) = found(speedup_above_tau, stepped(paced(0.4)))
    assert finding.severity == "suspect"


def test_on_a_gpu_cheap_forwards_are_doubtful_unless_steps_were_timed() -> None:
    assert [it.severity for it in found(speedup_above_tau, on_gpu(paced(0.7)))] == ["suspect"]
    assert [it.severity for it in found(speedup_above_tau, stepped(on_gpu(paced(0.7))))] == ["note"]


def probed(data: RunData, step_ms: float, drafting_ms: float | None = 2.0) -> RunData:
    """With a probe of its steps: a plain token takes 40 ms, one that drafts 4 tokens and keeps none `step_ms`."""
    arm = data.arms[SD]
    probe = StepProbe(
        baseline_id=BASE,
        target=arm.target,
        draft=arm.draft,
        engine=arm.engine,
        gamma=4,
        started_at=0.0,
        ended_at=1.0,
        rounds=(StepRound(plain_ms=40.0, step_ms={1: step_ms, 4: step_ms + 20}, drafting_ms=drafting_ms),),
    )
    return replace(data, step_probes=(probe,))


def test_what_forwards_may_cost_is_read_from_the_steps_that_the_run_probed() -> None:
    """0.4 of a plain token is less than was ever seen, and on this machine it is what forwards take."""
    assert [it.severity for it in found(speedup_above_tau, paced(0.4))] == ["suspect"]
    (finding,) = found(speedup_above_tau, probed(paced(0.4), step_ms=2 + 16))
    assert finding.severity == "note"
    assert finding.evidence["forward_probed"] == pytest.approx(0.4)
    assert finding.message.values["probed"] != ""
    (finding,) = found(speedup_above_tau, probed(paced(0.7), step_ms=2 + 38))
    assert finding.severity == "suspect"
    (finding,) = found(speedup_above_tau, probed(paced(0.7), step_ms=2 + 38, drafting_ms=None))
    assert finding.severity == "note"  # of a draft model whose part is not known nothing follows


def test_steps_that_took_longer_than_decoding_make_a_speedup_false() -> None:
    """Arithmetic on the engine's own times: whatever forwards cost, these did not fit into that time."""
    (finding,) = found(speedup_above_tau, stepped(paced(0.7), share=1.2))
    assert (finding.severity, finding.arm_id) == ("invalid", SD)
    assert finding.evidence["steps_beyond_decode_ms"]
    one = with_requests(stepped(paced(0.7)), lambda row: row.block == 2 and row.item == 1, steps=_lasting(5000.0))
    assert [it.severity for it in found(speedup_above_tau, one)] == ["invalid"]


def test_a_step_as_fast_as_a_plain_token_is_possible() -> None:
    assert found(speedup_above_tau, paced(1.0)) == []
    assert found(speedup_above_tau, paced(0.97)) == []


def test_a_point_above_tau_that_noise_may_explain() -> None:
    noisy = paced(0.85, noise=0.15, seed=3)
    (finding,) = found(speedup_above_tau, on_gpu(noisy))
    assert finding.severity == "suspect"
    assert finding.remedy == Message("speedup-above-tau.fix_noise")
    assert [finding.severity for finding in found(speedup_above_tau, noisy)] == ["note"]
    single = paced(0.4, blocks=1)
    assert [finding.severity for finding in found(speedup_above_tau, single)] == ["suspect"]


def test_a_clock_without_noise_leaves_no_doubt() -> None:
    data = with_requests(CLEAN, BASE, predicted_ms=64 * 40.0)
    data = with_requests(data, SD, predicted_ms=500.0)
    (finding,) = found(speedup_above_tau, data)
    assert finding.severity == "suspect"
    assert finding.remedy == Message("speedup-above-tau.fix")
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


@pytest.mark.parametrize("factor", [0.6, 0.84])
def test_honest_runs_with_cheap_forwards_are_not_accused(factor: float) -> None:
    assert not any(_invalid(stepped(paced(factor, noise=0.05, seed=seed, blocks=3), share=1.0)) for seed in range(50))


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
    ("data", "why"),
    [
        (CLEAN, "no_peak"),
        (on_gpu(CLEAN, name="Unheard-of GPU"), "no_peak"),
        (on_gpu(CLEAN, layers=(10, 17)), "layers_split"),
        (with_sessions(CLEAN, devices=()), "weights_unknown"),
        (with_sessions(CLEAN, devices=(DeviceUse(device="RPC0[a:1]", model_buffer_bytes=1),)), "weights_remote"),
        (replace(on_gpu(CLEAN), hosts=()), "no_host"),
        (with_models(CLEAN, header=None), "no_header"),
    ],
)
def test_where_no_peak_is_known_nothing_is_seen(data: RunData, why: str) -> None:
    gaps = unchecked(bandwidth_bound, data, applies=True)
    assert {gap.arm_id for gap in gaps} == {BASE, SD}
    assert all(gap.reason.code == f"unchecked.{why}" for gap in gaps)


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
    assert [finding.severity for finding in findings] == ["suspect"] * 12, "the catalogue is not arithmetic"
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
