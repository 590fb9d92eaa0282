"""The judge: verdicts for claims of every sort, the bound that decides, and its arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import STRENGTH, judge


def ruled(**fields: Any) -> Ruling:
    return judge(Claim(source="test", row="row 1", **fields))


# --- speedup against acceptance --------------------------------------------------------------------------------------


def test_the_famous_row_is_impossible_even_with_rounding_in_its_favour() -> None:
    ruling = ruled(speedup=1.26, gamma=16, acceptance=0.002, rounding={"speedup": 0.005, "acceptance": 0.0005})
    assert (ruling.verdict, ruling.bound) == ("impossible", "speedup-above-tau")
    assert ruling.arithmetic == "S = 1.26 > tau = 1 + 0.0025 x 16 = 1.04"


def test_rounding_may_save_a_row() -> None:
    exact = ruled(speedup=1.12, gamma=16, acceptance=0.006)
    rounded = ruled(speedup=1.12, gamma=16, acceptance=0.006, rounding={"speedup": 0.005, "acceptance": 0.0015})
    assert exact.verdict == "impossible"
    assert rounded.verdict == "possible"
    assert rounded.arithmetic == "S = 1.12 <= tau = 1 + 0.0075 x 16 = 1.12"


def test_an_excess_that_noise_explains_is_not_called_impossible() -> None:
    ruling = ruled(speedup=1.16, gamma=16, acceptance=0.0095)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "speedup-above-tau")
    assert "timing noise" in ruling.arithmetic
    assert judge(ruling.claim, noise=0.0).verdict == "impossible"


def test_a_rate_that_equals_its_baseline_needs_no_acceptance() -> None:
    ruling = ruled(decode_rate=136.1, baseline_rate=135.7, drafted=0, accepted=0, predicted_n=300)
    assert (ruling.verdict, ruling.bound) == ("possible", "speedup-above-tau")


def test_a_loss_is_always_possible() -> None:
    ruling = ruled(speedup=0.748)
    assert ruling.verdict == "possible"
    assert ruling.arithmetic == "S = 0.748 <= 1 <= tau"


def test_rates_give_a_speedup_where_none_is_printed() -> None:
    ruling = ruled(decode_rate=69.7, baseline_rate=55.3, gamma=16, acceptance=0.0025)
    assert ruling.verdict == "impossible"
    assert ruling.arithmetic.startswith("S = 69.7 / 55.3 = 1.26 > tau")


def test_a_speedup_that_its_rates_do_not_give_is_said_and_the_lower_one_judged() -> None:
    ruling = ruled(speedup=2.0, decode_rate=60, baseline_rate=55, gamma=4, acceptance=0.1)
    assert ruling.verdict == "possible"
    assert any("its rates give 1.09" in line for line in ruling.others)


def test_draft_length_alone_permits_nearly_anything() -> None:
    ruling = ruled(speedup=1.3, gamma=16)
    assert ruling.verdict == "cannot tell"
    assert "acceptance is missing" in ruling.arithmetic
    assert ruled(speedup=6, gamma=4).verdict == "impossible"


def test_counts_bound_more_sharply_than_a_rate_of_acceptance() -> None:
    ruling = ruled(decode_rate=61.4, baseline_rate=42.4, gamma=4, drafted=708, accepted=23, predicted_n=201)
    assert ruling.verdict == "impossible"
    assert ruling.arithmetic.endswith("tau = 200 / 177 = 1.13")
    assert ruled(speedup=1.3, accepted=30, steps=100).bound == "speedup-above-tau"
    assert ruled(speedup=1.31, accepted=30, steps=100, rounding={"speedup": 0.05}).verdict == "possible"


def test_a_printed_tau_above_its_acceptance_speaks_of_something_else() -> None:
    """Trees accept along one path, so accepted / drafted says little there: only tau binds."""
    assert ruled(speedup=3.0, tau=3.9, gamma=5, acceptance=0.4).verdict == "possible"
    assert ruled(speedup=4.0, tau=3.9, gamma=5, acceptance=0.4).verdict == "impossible"


# --- cost of drafting ------------------------------------------------------------------------------------------------


def test_a_draft_that_costs_more_than_it_gives_leaves_no_gain() -> None:
    ruling = ruled(speedup=1.05, gamma=4, acceptance=0.03, baseline_rate=67.2, draft_rate=138)
    assert (ruling.verdict, ruling.bound) == ("impossible", "speedup-above-cost-bound")
    assert ruling.arithmetic == "S = 1.05 > tau / (1 + gamma c) = 1.12 / (1 + 4 x 0.487) = 0.3799"
    assert any(line.startswith("speedup-above-tau: S = 1.05 <=") for line in ruling.others)


def test_drafts_that_may_stop_early_cost_less() -> None:
    """At 3 % acceptance drafting does not pay; where it may stop, it may as well not begin, and S = 1 remains."""
    rows = {"gamma": 4, "acceptance": 0.03, "baseline_rate": 67.2, "draft_rate": 138}
    assert ruled(speedup=0.98, **rows).verdict == "impossible"
    assert ruled(speedup=0.98, p_min=0.75, **rows).verdict == "possible"
    ruling = ruled(speedup=1.05, p_min=0.75, **rows)
    assert (ruling.verdict, ruling.bound) == ("impossible", "speedup-above-cost-bound")
    assert ruling.arithmetic == "S = 1.05 > max(1, 1.12 / (1 + 4 x 0.487)) = 1"


@pytest.mark.parametrize("spared", [{"method": "ngram-mod"}, {"draft_elsewhere": True}, {"method": "draft-dflash"}])
def test_the_cost_bound_is_for_drafts_made_one_by_one_beside_the_target(spared: dict[str, Any]) -> None:
    ruling = ruled(speedup=1.05, gamma=4, acceptance=0.03, baseline_rate=67.2, draft_rate=138, **spared)
    assert (ruling.verdict, ruling.bound) == ("possible", "speedup-above-tau")


def test_a_ratio_of_speeds_is_enough_for_the_cost_bound() -> None:
    ruling = ruled(speedup=1.143, gamma=4, acceptance=0.04, speed_ratio=2.61)
    assert (ruling.verdict, ruling.bound) == ("impossible", "speedup-above-cost-bound")
    assert ruled(speedup=1.9, gamma=4, acceptance=0.8, speed_ratio=10).verdict == "possible"


def test_counts_tell_how_many_drafts_a_step_paid_for() -> None:
    fields = {"speedup": 1.6, "drafted": 400, "accepted": 100, "steps": 100, "draft_rate": 200.0, "baseline_rate": 50.0}
    ruling = ruled(**fields)
    assert (ruling.verdict, ruling.bound) == ("impossible", "speedup-above-cost-bound")
    assert ruling.arithmetic.endswith("2 / (1 + 4 x 0.25) = 1")


def test_drafting_alone_takes_longer_than_the_run() -> None:
    ruling = ruled(drafted=708, draft_rate=138.0, wall_ms=3276.0, decode_rate=61.4, predicted_n=201, gamma=4)
    assert (ruling.verdict, ruling.bound) == ("impossible", "draft-time-bound")
    assert ruling.arithmetic == "708 drafts / 138 tok/s = 5.13 s > 3.276 s of the run"


# --- counters --------------------------------------------------------------------------------------------------------


def test_most_verifications_failed() -> None:
    ruling = ruled(
        decode_rate=61.4,
        baseline_rate=42.4,
        gamma=4,
        drafted=708,
        accepted=23,
        predicted_n=201,
        steps=177,
        failed_forwards=137,
    )
    assert (ruling.verdict, ruling.bound) == ("impossible", "target-decode-failed")
    assert ruling.arithmetic == "137 of 177 target forwards failed, 40 succeeded (22.6%)"
    assert any(line.startswith("speedup-above-tau: broken") for line in ruling.others)


def test_a_few_failed_verifications_leave_doubt() -> None:
    ruling = ruled(speedup=1.02, gamma=4, acceptance=0.1, steps=177, failed_forwards=1)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "target-decode-failed")
    assert ruled(failed_forwards=3).verdict == "cannot tell"


def test_the_conservation_law() -> None:
    closes = ruled(predicted_n=32, accepted=12, target_forwards=19, gamma=4, drafted=40)
    assert (closes.verdict, closes.bound) == ("possible", "conservation")
    missing = ruled(predicted_n=201, accepted=23, target_forwards=40)
    assert (missing.verdict, missing.bound) == ("impossible", "conservation")
    assert "137 tokens without a successful forward" in missing.arithmetic
    cut = ruled(predicted_n=32, accepted=14, target_forwards=19, gamma=4)
    assert cut.verdict == "possible"
    too_many = ruled(predicted_n=32, accepted=30, target_forwards=19, gamma=4)
    assert (too_many.verdict, too_many.bound) == ("impossible", "conservation")
    replayed = ruled(predicted_n=32, accepted=12, target_forwards=29, gamma=4, restores=10)
    assert replayed.verdict == "possible"
    shared = ruled(predicted_n=320, accepted=120, target_forwards=40, runs=10, concurrency=10)
    assert shared.verdict == "cannot tell"


@pytest.mark.parametrize(
    "fields",
    [
        {"accepted": 60, "drafted": 50},
        {"drafted": 700, "steps": 100, "gamma": 4},
        {"tau": 6.1, "gamma": 4},
        {"accepted": 60, "predicted_n": 41, "gamma": 4},
    ],
)
def test_counters_that_contradict_each_other(fields: dict[str, Any]) -> None:
    ruling = ruled(**fields)
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")


def test_a_rate_of_another_window() -> None:
    assert ruled(decode_rate=62.44, predicted_n=201, predicted_ms=3219.0, runs=1).verdict == "cannot tell"
    wrong = ruled(decode_rate=80.0, predicted_n=201, predicted_ms=3219.0, runs=1)
    assert (wrong.verdict, wrong.bound) == ("impossible", "window-mismatch")
    unsure = ruled(decode_rate=150.0, predicted_n=201, predicted_ms=3219.0)
    assert (unsure.verdict, unsure.bound) == ("cannot tell", "window-mismatch")
    # A mean of rates lies above the rate of the mean time, by about the square of their spread.
    mean = ruled(decode_rate=54.0, decode_rate_sd=19.5, predicted_n=128, predicted_ms=2660.1, speedup=0.9)
    assert mean.verdict == "possible"
    assert any(line.startswith("baseline-unstable") for line in mean.others)
    steady = ruled(decode_rate=54.0, decode_rate_sd=0.1, predicted_n=128, predicted_ms=2660.1, speedup=0.9)
    assert (steady.verdict, steady.bound) == ("cannot tell", "window-mismatch")


def test_a_counter_that_can_only_say_all() -> None:
    ruling = ruled(decode_rate=65.3, baseline_rate=135.7, drafted=51, accepted=51, predicted_n=300)
    assert ruling.verdict == "possible"
    assert any(line.startswith("acceptance-by-construction") for line in ruling.others)
    assert not any("construction" in line for line in ruled(speedup=0.5, drafted=51, accepted=50).others)


def test_dice_are_no_speedup() -> None:
    ruling = ruled(speedup=1.9, gamma=4, acceptance=0.9, synthetic=True)
    assert (ruling.verdict, ruling.bound) == ("impossible", "synthetic-on")


# --- memory ----------------------------------------------------------------------------------------------------------


def test_plain_decoding_against_the_memory() -> None:
    possible = ruled(method="none", decode_rate=42.4, size_bytes=12.97e9, device="M2Ultra_192GB", experts=0)
    assert (possible.verdict, possible.bound) == ("possible", "bandwidth-bound")
    assert possible.arithmetic == "12.97 GB x 42.4 tok/s = 549.9 GB/s <= 819.2 GB/s (M2 Ultra)"
    too_fast = ruled(method="none", decode_rate=55.3, size_bytes=20.6e9, bandwidth_bytes_per_s=800e9, experts=0)
    assert (too_fast.verdict, too_fast.bound) == ("impossible", "bandwidth-bound")
    assert too_fast.arithmetic == "20.6 GB x 55.3 tok/s = 1,139 GB/s > 800 GB/s"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mixture": True}, "mixture of experts"),
        ({"experts": 256}, "mixture of experts"),
        ({}, "unless the model is a mixture"),
        ({"experts": 0, "decode_rate": 42.0}, "near or above"),
        ({"experts": 0, "size_bytes": 1e8}, "cache"),
        ({"experts": 0, "device": "abacus"}, "unknown device 'abacus'"),
        ({"experts": 0, "device": None}, "no device"),
        ({"experts": 0, "size_bytes": None}, "no bytes per token"),
        ({"experts": 0, "device": "A100", "decode_rate": 90.0}, "which of these devices"),
    ],
)
def test_where_the_memory_says_nothing(fields: dict[str, Any], words: str) -> None:
    ruling = ruled(**{"method": "none", "decode_rate": 55.3, "size_bytes": 20.6e9, "device": "M2 Ultra"} | fields)
    assert ruling.verdict == "cannot tell"
    assert words in ruling.arithmetic


def test_bytes_per_token_decide_for_a_mixture_of_experts() -> None:
    fields = {"method": "none", "decode_rate": 55.3, "size_bytes": 20.6e9, "device": "M2 Ultra", "mixture": True}
    assert ruled(**fields, bytes_per_token=1.77e9).verdict == "possible"
    assert ruled(**fields, bytes_per_token=20.6e9).verdict == "impossible"


def test_a_paper_whose_own_traffic_exceeds_its_own_machine() -> None:
    ruling = ruled(claimed_bandwidth_bytes_per_s=1138e9, bandwidth_bytes_per_s=800e9)
    assert (ruling.verdict, ruling.bound) == ("impossible", "bandwidth-bound")
    assert ruling.arithmetic == "1,138 GB/s claimed > 800 GB/s"


def test_speculation_reads_the_weights_once_per_step() -> None:
    fields = {"decode_rate": 90.0, "size_bytes": 20.6e9, "experts": 0, "device": "M2 Ultra"}
    assert ruled(**fields, tau=3.0, gamma=4, speedup=2.5).verdict == "possible"
    assert ruled(**fields, tau=1.1, gamma=4).verdict == "impossible"
    batch = ruled(**fields, method="none", concurrency=16)
    assert batch.verdict == "cannot tell"
    assert ruled(**fields, method="none", concurrency=16, token_interval_ms=15.0).verdict == "impossible"


# --- what is missing, units, and anything at all ---------------------------------------------------------------------


def test_what_cannot_be_read_is_said_and_not_judged() -> None:
    ruling = ruled(problem="tok/s is 0: it must be above 0")
    assert (ruling.verdict, ruling.bound, ruling.arithmetic) == (
        "cannot tell",
        "unreadable",
        "tok/s is 0: it must be above 0",
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no decode rate"),
        ({"decode_rate": 50.0}, "no bytes per token"),
        ({"decode_rate": 50.0, "gamma": 4}, "no speedup or baseline rate; no acceptance"),
        ({"decode_rate": 50.0, "acceptance": 0.5}, "no speedup or baseline rate; no draft length"),
        ({"speedup": 1.5}, "no acceptance and draft length, tau or counts"),
    ],
)
def test_cannot_tell_names_what_is_missing(fields: dict[str, Any], words: str) -> None:
    ruling = ruled(**fields)
    assert ruling.verdict == "cannot tell"
    assert words in ruling.arithmetic


def test_a_share_without_unit_decides_nothing_where_the_unit_decides() -> None:
    fields = {"gamma": 4, "unit_unsaid": ("acceptance",), "rounding": {"acceptance": 0.00005}}
    ruling = ruled(speedup=1.03, acceptance=0.04, **fields)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "unit")
    assert "4 % (possible) or 0.04 % (impossible)" in ruling.arithmetic
    assert ruled(speedup=1.3, acceptance=0.04, **fields).verdict == "impossible"
    assert ruled(speedup=0.9, acceptance=0.04, **fields).verdict == "possible"


_NUMBERS = st.floats(1e-9, 1e15)
_COUNTS = st.integers(0, 10**15)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        (
            "speedup",
            "decode_rate",
            "baseline_rate",
            "draft_rate",
            "speed_ratio",
            "token_interval_ms",
            "predicted_ms",
            "prompt_ms",
            "wall_ms",
            "bytes_per_token",
            "size_bytes",
            "bandwidth_bytes_per_s",
            "concurrency",
        ),
        _NUMBERS,
    ),
    **dict.fromkeys(
        (
            "gamma",
            "drafted",
            "accepted",
            "steps",
            "target_forwards",
            "failed_forwards",
            "failed_draft_forwards",
            "restores",
            "predicted_n",
            "prompt_n",
            "experts",
        ),
        _COUNTS,
    ),
    "acceptance": st.floats(0, 1),
    "tau": st.floats(1, 1e6),
    "runs": st.integers(1, 1000),
    "decode_rate_sd": st.floats(0, 1e15),
    "method": st.sampled_from(["none", "draft-simple", "ngram-mod", "x"]),
    "device": st.sampled_from(["M2 Ultra", "A100", "?"]),
    "unit_unsaid": st.just(("acceptance",)),
    "synthetic": st.booleans(),
    "draft_elsewhere": st.booleans(),
    "rounding": st.dictionaries(st.sampled_from(["speedup", "acceptance", "decode_rate", "tau"]), st.floats(0, 1e6)),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=_FIELDS))
def test_no_claim_is_too_strange_to_be_ruled(fields: dict[str, Any]) -> None:
    ruling = ruled(**fields)
    assert ruling.bound in {*STRENGTH, "unit", "unreadable"}
    assert ruling.arithmetic
    assert "\n" not in ruling.arithmetic
    assert judge(Claim.model_validate_json(ruling.claim.model_dump_json())) == ruling


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={key: _FIELDS[key] for key in ("speedup", "gamma", "acceptance", "tau")}),
    st.floats(0, 0.5),
)
def test_more_noise_never_makes_a_claim_impossible(fields: dict[str, Any], noise: float) -> None:
    claim = Claim(source="test", row="row 1", **fields)
    if judge(claim, noise=noise).verdict == "impossible":
        assert judge(claim, noise=0.0).verdict == "impossible"
