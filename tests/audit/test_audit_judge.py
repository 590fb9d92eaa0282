"""The judge: verdicts for claims of every sort, the bound that decides, and its arithmetic."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from said import codes
from specmeter.audit.across import USUAL
from specmeter.audit.claim import Claim, Ruling, claim_of
from specmeter.audit.judge import ASSUMPTIONS, BOUNDS, NOTHING_DRAFTED, STRENGTH, rule_claim
from specmeter.messages import Message, words

EXACT_AT_TIMES = {"conservation", "speedup-not-its-rates", "window-mismatch"}
"""Bounds with assumptions that need none of them where the row is one run."""

STEADY = 0.01


def ruled(**fields: Any) -> Ruling:
    return rule_claim(Claim(source="test", row="row 1", **fields), noise=STEADY)


def rests_on(ruling: Ruling) -> list[str]:
    return [item.name for item in ruling.rests_on]


# --- speedup against acceptance --------------------------------------------------------------------------------------


def test_the_famous_row_is_implausible_even_with_rounding_in_its_favour() -> None:
    ruling = ruled(speedup=1.26, gamma=16, acceptance=0.002, rounding={"speedup": 0.005, "acceptance": 0.0005})
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-tau")
    forward, pooled, baseline = (item.needs for item in ruling.rests_on)
    assert forward.values["forward"] == Message("audit.forward", tokens=17, share="0.83")
    assert (pooled.code, pooled.values["printed"]) == ("audit.needs_acceptance", 0.002)
    assert pooled.values["acceptance"] == pytest.approx((1.255 - 1) / 16)
    assert (baseline.code, baseline.values["times"]) == ("audit.needs_faster_plain", pytest.approx(1.255 / 1.04))
    assert str(ruling.reason) == (
        "speedup 1.26 > tau = 1 + 0.0025 x 16 = 1.04; needs a forward pass over 17 tokens in 0.83 of the time for one, "
        "or an overall acceptance of 0.016 instead of 0.002, or a baseline 1.21 times as slow as the target without "
        "speculation"
    )


def test_rounding_may_save_a_row() -> None:
    exact = ruled(speedup=1.12, gamma=16, acceptance=0.006)
    rounded = ruled(speedup=1.12, gamma=16, acceptance=0.006, rounding={"speedup": 0.005, "acceptance": 0.0015})
    assert exact.verdict == "implausible"
    assert rounded.verdict == "possible"
    assert str(rounded.arithmetic) == "speedup 1.12 <= tau = 1 + 0.0075 x 16 = 1.12"


def test_an_excess_that_noise_explains_is_not_called_impossible() -> None:
    ruling = ruled(speedup=1.16, gamma=16, acceptance=0.0095)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "speedup-above-tau")
    assert ruling.arithmetic.code == "audit.above_by_noise"
    assert rule_claim(ruling.claim, noise=0.0).verdict == "implausible"
    assert rule_claim(ruling.claim.model_copy(update={"speedup": 1.2})).verdict == "cannot tell"
    assert USUAL > 1.2 / (1 + 0.0095 * 16) - 1


@pytest.mark.parametrize(
    "nothing",
    [{"method": "none"}, {"drafted": 0, "accepted": 0, "predicted_n": 300}, {"gamma": 0}, {"gamma": 4, "drafted": 0}],
)
def test_rows_that_drafted_nothing_compare_noise(nothing: dict[str, Any]) -> None:
    near = rule_claim(Claim(source="test", row="row 1", decode_rate=141.8, baseline_rate=135.7, **nothing))
    assert (near.verdict, near.bound) == ("possible", NOTHING_DRAFTED)
    assert (near.arithmetic.code, near.arithmetic.values["noise"]) == ("audit.plain_alike", USUAL)
    for rate in (20.0, 100.0, 170.0, 1357.0):
        far = ruled(decode_rate=rate, baseline_rate=135.7, acceptance=0.0, **nothing)
        assert (far.verdict, far.bound) == ("cannot tell", NOTHING_DRAFTED)
        assert far.arithmetic.code == "audit.plain_unlike"


def test_cheap_forwards_of_cpus_are_believed_and_measured_ones_counted() -> None:
    """Weights in Q8_0 on a CPU: T(2) was seen at 0.67 of T(1), so that S = 1.9 at tau = 1.7 is true."""
    row = {"speedup": 1.9, "gamma": 1, "accepted": 70, "steps": 100}
    ruling = ruled(**row)
    assert (ruling.verdict, rests_on(ruling)) == ("implausible", ["forward", "pooled", "baseline"])
    assert ruling.rests_on[0].needs.values["forward"] == Message("audit.forward", tokens=2, share="0.89")
    believed = ruled(**row, device="AMD EPYC 9654")
    assert (believed.verdict, believed.bound) == ("cannot tell", "speedup-above-tau")
    assert "audit.cheap_forward" in codes(believed.arithmetic)
    assert ruled(**row | {"speedup": 4.0}, device="AMD EPYC 9654").verdict == "implausible"
    measured = ruled(**row, cheapest_forward=0.67)
    assert measured.verdict == "possible"
    assert str(measured.arithmetic) == "speedup 1.9 <= tau / cheapest pass = 1.7 / 0.67 = 2.537"
    beyond = ruled(**row | {"speedup": 2.6}, cheapest_forward=0.67)
    assert beyond.verdict == "implausible"
    assert beyond.rests_on[0].needs == Message(
        "audit.needs_forward",
        forward=Message("audit.forward", tokens=2, share="0.65"),
        measured=Message("audit.measured", share=0.67),
    )


def test_means_of_other_things_are_believed_where_the_source_says_that_they_are_means() -> None:
    """25 prompts whose log tau spreads by 0.5: the mean of their speedups lies 18 % above the pooled one."""
    row = {"speedup": 2.3, "gamma": 4, "acceptance": 0.25}
    assert rests_on(ruled(**row)) == ["forward", "pooled", "baseline"]
    of_prompts = ruled(**row, averaged=("speedup",))
    assert (of_prompts.verdict, of_prompts.bound) == ("cannot tell", "speedup-above-tau")
    assert "audit.mean_of_speedups" in codes(of_prompts.arithmetic)
    assert ruled(**row | {"speedup": 2.8}, averaged=("speedup",)).verdict == "implausible"
    understated = ruled(**row | {"speedup": 3.5}, averaged=("acceptance",))
    assert (understated.verdict, understated.bound) == ("cannot tell", "speedup-above-tau")
    both = ruled(**row, averaged=("speedup", "acceptance"))
    assert (both.verdict, rests_on(both)) == ("implausible", ["forward", "baseline"])
    one = ruled(**row, runs=1)
    assert rests_on(one) == ["forward", "baseline"]
    in_the_row = ruled(**row, runs=1, decode_rate=92.0, baseline_rate=40.0)
    assert rests_on(in_the_row) == ["forward"]


@pytest.mark.parametrize("method", ["Medusa-1", "EAGLE-2", "eagle3", "Hydra", "tree attention", "Sequoia"])
def test_a_share_of_the_nodes_of_a_tree_is_no_acceptance_per_position(method: str) -> None:
    """EAGLE-2 drafts 60 nodes of which one path is accepted: 4 of 60 are 7 %, and S = 3 is true."""
    ruling = ruled(speedup=3.0, gamma=5, acceptance=0.07, method=method.lower())
    assert ruling.verdict == "cannot tell"
    assert "audit.no_tau_of_tree" in codes(ruling.arithmetic)
    assert ruled(speedup=3.0, gamma=5, acceptance=0.07, method=method.lower(), drafted=6000, steps=100).verdict == (
        "cannot tell"
    )
    assert ruled(speedup=3.0, gamma=5, acceptance=0.07, method=method.lower(), tau=4.2).verdict == "possible"
    assert ruled(speedup=4.4, gamma=5, acceptance=0.07, method=method.lower(), tau=3.1).verdict == "implausible"
    assert ruled(speedup=3.0, gamma=5, acceptance=0.07, method=method.lower(), tree=False).verdict == "implausible"


def test_acceptance_of_the_output_is_another_number() -> None:
    """89.55 % of 1024 tokens came from drafts: 107 cycles, 9.57 tokens each."""
    row = {"speedup": 6.0, "gamma": 5, "acceptance": 0.8955}
    unsaid = ruled(**row)
    assert unsaid.verdict == "implausible"
    assert "audit.needs_share_of_output" in codes(unsaid.reason)
    assert str(ruled(**row, acceptance_of="output").arithmetic) == "speedup 6 <= tau = 1 / (1 - 0.8955) = 9.569"
    assert "acceptance" not in rests_on(ruled(**row, acceptance_of="drafted"))


def test_without_a_draft_length_it_says_which_one_would_be_needed() -> None:
    ruling = ruled(speedup=1.9, acceptance=0.3)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "speedup-above-tau")
    assert ruling.arithmetic.values["missing"] == Message("audit.gamma_needed", acceptance=0.3, gamma=3)
    with_cost = ruled(speedup=1.9, acceptance=0.6, baseline_rate=40.0, draft_rate=400.0)
    assert with_cost.arithmetic.values["missing"] == Message("audit.gamma_needed", acceptance=0.6, gamma=3)
    assert (1 + 0.6 * 3) / (1 + 3 * 0.1) > 1.9 > (1 + 0.6 * 2) / (1 + 2 * 0.1)
    never = ruled(speedup=1.9, acceptance=0.3, baseline_rate=40.0, draft_rate=80.0)
    assert (never.verdict, never.bound) == ("implausible", "speedup-above-cost-bound")
    assert codes(never.arithmetic) == {"audit.above", "audit.speedup", "audit.cost.any_gamma"}
    needs = {item.name: item.needs for item in never.rests_on}
    assert needs["draft-rate"].values["times"] == pytest.approx(1.9 * 0.5 / 0.3)


def test_a_loss_is_always_possible() -> None:
    ruling = ruled(speedup=0.748)
    assert ruling.verdict == "possible"
    assert str(ruling.arithmetic) == "speedup 0.748 <= 1 <= tau"


def test_rates_give_a_speedup_where_none_is_printed() -> None:
    ruling = ruled(decode_rate=69.7, baseline_rate=55.3, gamma=16, acceptance=0.0025)
    assert ruling.verdict == "implausible"
    assert str(ruling.arithmetic).startswith("speedup 69.7 / 55.3 = 1.26 > tau")


def test_a_speedup_that_its_own_rates_do_not_give() -> None:
    row = {"speedup": 2.5, "decode_rate": 60, "baseline_rate": 40, "gamma": 4, "acceptance": 0.9}
    wrong = ruled(**row)
    assert (wrong.verdict, wrong.bound) == ("impossible", "speedup-not-its-rates")
    rates = {"decode_rate": 60, "baseline_rate": 40, "right": 1.5}
    assert wrong.arithmetic == Message("equation.speedup-of-rates", left=2.5, **rates, where="")
    unlikely = ruled(**row | {"speedup": 2.1})
    assert (unlikely.verdict, rests_on(unlikely)) == ("implausible", ["pooled"])
    assert unlikely.rests_on[0].needs.values["times"] == pytest.approx(1.79, abs=0.01)
    said = ruled(**row, averaged=("speedup",))
    assert (said.verdict, rests_on(said)) == ("implausible", ["pooled"])
    small = ruled(**row | {"speedup": 1.7})
    assert small.verdict == "possible"
    assert small.contradictions == (Message("equation.speedup-of-rates", left=1.7, **rates, where=""),)
    assert ruled(**row | {"speedup": 1.7}, runs=1).verdict == "impossible"
    elsewhere = ruled(**row, baseline_from="line 3")
    assert (elsewhere.verdict, rests_on(elsewhere)) == ("implausible", ["baseline", "pooled"])
    assert elsewhere.arithmetic.values["where"] == Message("audit.with_baseline", baseline="line 3")
    assert elsewhere.rests_on[0].needs == Message("audit.needs_baseline_rate", rate=24, baseline="line 3")
    nearer = ruled(**row | {"speedup": 1.7}, baseline_from="line 3", runs=1)
    assert nearer.verdict == "implausible"
    nearer = ruled(**row | {"speedup": 1.7}, baseline_from="line 3")
    assert nearer.verdict == "possible"
    assert "audit.with_baseline" in codes(nearer.contradictions[0])


def test_of_two_speedups_the_lower_one_is_judged() -> None:
    ruling = ruled(speedup=1.3, decode_rate=60, baseline_rate=55, gamma=4, acceptance=0.05)
    assert ruling.verdict == "possible"
    assert ruling.contradictions[0].values["right"] == 60 / 55


def test_draft_length_alone_permits_nearly_anything() -> None:
    ruling = ruled(speedup=1.3, gamma=16)
    assert ruling.verdict == "cannot tell"
    assert ruling.arithmetic.code == "audit.gamma_alone"
    assert ruled(speedup=6, gamma=4).verdict == "implausible"


def test_counts_bound_more_sharply_than_a_rate_of_acceptance() -> None:
    ruling = ruled(decode_rate=61.4, baseline_rate=42.4, gamma=4, drafted=708, accepted=23, predicted_n=201)
    assert ruling.verdict == "implausible"
    assert str(ruling.arithmetic).endswith("tau = 200 / 177 = 1.13")
    assert ruled(speedup=1.3, accepted=30, steps=100).bound == "speedup-above-tau"
    assert ruled(speedup=1.31, accepted=30, steps=100, rounding={"speedup": 0.05}).verdict == "possible"


def test_a_printed_tau_above_its_acceptance_speaks_of_something_else() -> None:
    """Trees accept along one path, so accepted / drafted says little there: only tau binds."""
    assert ruled(speedup=3.0, tau=3.9, gamma=5, acceptance=0.4).verdict == "possible"
    assert ruled(speedup=4.0, tau=3.9, gamma=5, acceptance=0.4).verdict == "implausible"


def test_tau_beside_the_acceptance_of_a_chain() -> None:
    """64.4 % printed as 0.6 %: with a draft model, 3.48 tokens per step need 62 % of 4 drafts."""
    row = {"speedup": 2.03, "tau": 3.48, "gamma": 4, "acceptance": 0.006}
    ruling = ruled(**row, method="draft-simple")
    assert (ruling.verdict, ruling.bound, rests_on(ruling)) == (
        "implausible",
        "tau-not-its-acceptance",
        ["pooled", "acceptance"],
    )
    assert ruling.rests_on[0].needs == Message("audit.needs_acceptance", acceptance=2.48 / 4, printed=0.006)
    assert ruled(**row, method="eagle").verdict == "possible"
    assert ruled(**row, method="ngram-mod", tree=False).verdict == "implausible"
    assert ruled(**row | {"acceptance": 0.62}, method="draft-simple").verdict == "possible"
    assert ruled(**row | {"acceptance": 0.4}, method="draft-simple", averaged=("acceptance",)).verdict == "cannot tell"


# --- cost of drafting ------------------------------------------------------------------------------------------------


def test_a_draft_that_costs_more_than_it_gives_leaves_no_gain() -> None:
    ruling = ruled(speedup=1.05, gamma=4, acceptance=0.03, baseline_rate=67.2, draft_rate=138)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-cost-bound")
    assert str(ruling.arithmetic) == "speedup 1.05 > tau / (1 + gamma x draft cost) = 1.12 / (1 + 4 x 0.487) = 0.3799"
    assert [it.values["bound"] for it in ruling.others if it.code == "audit.tried.holds"] == ["speedup-above-tau"]


def test_drafts_that_may_stop_early_cost_less() -> None:
    """At 3 % acceptance drafting does not pay; where it may stop, it may as well not begin, and S = 1 remains."""
    rows = {"gamma": 4, "acceptance": 0.03, "baseline_rate": 67.2, "draft_rate": 138}
    assert ruled(speedup=0.98, **rows).verdict == "implausible"
    assert ruled(speedup=0.98, p_min=0.75, **rows).verdict == "possible"
    ruling = ruled(speedup=1.05, p_min=0.75, **rows)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-cost-bound")
    assert str(ruling.arithmetic) == "speedup 1.05 > max(1, 1.12 / (1 + 4 x 0.487)) = 1"


@pytest.mark.parametrize("spared", [{"method": "ngram-mod"}, {"draft_elsewhere": True}, {"method": "draft-dflash"}])
def test_the_cost_bound_is_for_drafts_made_one_by_one_beside_the_target(spared: dict[str, Any]) -> None:
    ruling = ruled(speedup=1.05, gamma=4, acceptance=0.03, baseline_rate=67.2, draft_rate=138, **spared)
    assert (ruling.verdict, ruling.bound) == ("possible", "speedup-above-tau")


def test_a_ratio_of_speeds_is_enough_for_the_cost_bound() -> None:
    ruling = ruled(speedup=1.143, gamma=4, acceptance=0.04, speed_ratio=2.61)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-cost-bound")
    assert ruled(speedup=1.9, gamma=4, acceptance=0.8, speed_ratio=10).verdict == "possible"


@pytest.mark.parametrize("method", ["sps", "vanilla sd", "sd", "assisted generation", "some new name", "speculative"])
def test_an_unknown_method_with_a_draft_model_pays_for_its_drafts(method: str) -> None:
    row = {"speedup": 1.05, "gamma": 4, "acceptance": 0.03, "baseline_rate": 67.2, "draft_rate": 138, "method": method}
    assert ruled(**row, draft="Qwen3.5-0.8B").bound == "speedup-above-cost-bound"
    assert ruled(**row).bound == "speedup-above-cost-bound"
    assert ruled(**row, draft="EAGLE3-Qwen").verdict == "cannot tell"


def test_how_far_the_cost_of_drafts_would_have_to_be_wrong() -> None:
    """(1 + 4 x 0.1) / (1 + 4 x 0.5) = 0.467: S = 0.9 needs drafts of 0.139, or 0.286 of them per step."""
    ruling = ruled(speedup=0.9, gamma=4, acceptance=0.1, baseline_rate=50.0, draft_rate=100.0)
    assert rests_on(ruling) == ["draft-rate", "full-length", "pooled"]
    faster, shorter, pooled = (item.needs.values for item in ruling.rests_on)
    assert faster["times"] == pytest.approx(3.6)
    assert pytest.approx(0.9) == 1.4 / (1 + 4 * 0.5 / 3.6)
    assert (shorter["length"], shorter["gamma"]) == (pytest.approx(0.2857, abs=1e-4), 4)
    assert pytest.approx(0.9, abs=1e-4) == (1 + 0.1 * 0.2857) / (1 + 0.2857 * 0.5)
    assert (pooled["acceptance"], pooled["printed"]) == (pytest.approx(0.425), 0.1)
    assert pytest.approx(0.9) == (1 + 4 * 0.425) / (1 + 4 * 0.5)


def test_counts_tell_how_many_drafts_a_step_paid_for() -> None:
    fields = {"speedup": 1.6, "drafted": 400, "accepted": 100, "steps": 100, "draft_rate": 200.0, "baseline_rate": 50.0}
    ruling = ruled(**fields)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-cost-bound")
    assert str(ruling.arithmetic).endswith("2 / (1 + 4 x 0.25) = 1")


def test_drafting_alone_takes_longer_than_the_run() -> None:
    ruling = ruled(drafted=708, draft_rate=138.0, wall_ms=3276.0, decode_rate=61.4, predicted_n=201, gamma=4)
    assert (ruling.verdict, ruling.bound) == ("implausible", "draft-time-bound")
    assert str(ruling.arithmetic) == "708 drafts / 138 tok/s = 5.13 s > 3.276 s of the run"
    assert [item.needs.code for item in ruling.rests_on] == ["audit.needs_faster_draft"]


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
    counts = {"failed": 137, "attempts": 177, "done": 40, "share": 1 - 137 / 177}
    assert ruling.arithmetic == Message("audit.failed_of", **counts)
    broken = [it.values["bound"] for it in ruling.others if it.code == "audit.tried.broken"]
    assert "speedup-above-tau" in broken


def test_a_few_failed_verifications_leave_doubt() -> None:
    ruling = ruled(speedup=1.02, gamma=4, acceptance=0.1, steps=177, failed_forwards=1)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "target-decode-failed")
    assert ruled(failed_forwards=3).verdict == "cannot tell"


@pytest.mark.parametrize("method", ["pearl", "SuffixDecoding", "a new one"])
def test_gamma_bounds_only_what_is_known_to_be_a_chain(method: str) -> None:
    ruling = ruled(method=method, gamma=5, tau=9.1, speedup=3.5)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "conservation")
    drafts = ruled(method=method, gamma=5, drafted=600, steps=10, accepted=30)
    assert drafts.verdict == "cannot tell"
    assert ruled(method="EAGLE-2", gamma=2, tau=4.2, speedup=3.0).verdict == "possible"
    assert ruled(method="draft-simple", gamma=5, tau=9.1, speedup=3.5).verdict == "impossible"


def test_accepted_counts_may_hold_the_target_s_own_tokens() -> None:
    ruling = ruled(gamma=1, drafted=1071, accepted=2040, steps=1071, speedup=1.75)
    assert (ruling.verdict, ruling.claim.accepted) == ("possible", 969)
    assert str(ruling.claim.notes[0]) == "read as accepted 969; otherwise: 2040 accepted > 1071 drafted"
    assert ruled(gamma=1, drafted=900, accepted=2040, steps=1071, speedup=1.75).verdict == "impossible"


def test_a_speedup_of_whole_requests_beside_rates_of_decoding() -> None:
    rates = {"baseline_rate": 30.1, "decode_rate": 75.1}
    lower = ruled(**rates, speedup=1.32)
    assert (lower.verdict, lower.rests_on[0].name) == ("implausible", "one-window")
    assert ruled(**rates, speedup=4.5).verdict == "impossible", "no prompt makes a speedup larger"
    times = {"prompt_n": 32_000, "prompt_ms": 20_000.0, "predicted_n": 256, "predicted_ms": 3409.0, "wall_ms": 23_409.0}
    whole = ruled(**rates, **times, speedup=1.22, tau=3.0)
    assert (whole.verdict, whole.contradictions) == ("possible", ())


def test_of_drafts_whose_length_is_not_said_no_more_is_cut_off_than_one_can_hold() -> None:
    many = ruled(predicted_n=128, accepted=350, drafted=400, runs=1)
    assert (many.verdict, many.bound) == ("impossible", "conservation")
    short = ruled(predicted_n=128, accepted=120, drafted=130, steps=100, runs=1)
    assert (short.verdict, short.arithmetic.code) == ("impossible", "audit.least_with_steps")
    long = {"predicted_n": 128, "accepted": 80, "steps": 100, "runs": 1}
    assert rests_on(ruled(**long, drafted=200)) == ["last-draft"]
    assert not ruled(**long, drafted=200, method="ngram-mod").broken
    assert not ruled(predicted_n=128, accepted=80, drafted=200, steps=49, runs=1).broken


def test_the_conservation_law() -> None:
    closes = ruled(predicted_n=32, accepted=12, target_forwards=19, gamma=4, drafted=40)
    assert (closes.verdict, closes.bound) == ("possible", "conservation")
    missing = ruled(predicted_n=201, accepted=23, target_forwards=40)
    many = ruled(predicted_n=5000, accepted=3000, target_forwards=1975, gamma=4)
    assert (many.verdict, many.bound) == ("cannot tell", "conservation"), "25 generations have 25 first tokens"
    assert (missing.verdict, missing.bound) == ("implausible", "conservation")
    assert missing.rests_on[0].needs == Message("audit.needs_at_once", requests=177 / 40)
    alone = ruled(predicted_n=201, accepted=23, target_forwards=40, runs=1)
    assert (alone.verdict, alone.bound) == ("impossible", "conservation")
    assert (missing.arithmetic.code, missing.arithmetic.values["gap"]) == ("audit.law_gap", 137)
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
        {"drafted": 700, "steps": 100, "gamma": 4, "concurrency": 1},
        {"tau": 6.1, "gamma": 4},
        {"acceptance": 1.08, "gamma": 4, "speedup": 1.2},
        {"acceptance": 0.9, "drafted": 100, "accepted": 50, "runs": 1},
        {"accepted": 60, "predicted_n": 41, "gamma": 4},
    ],
)
def test_counters_that_contradict_each_other(fields: dict[str, Any]) -> None:
    ruling = ruled(**fields)
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")


def test_a_rate_that_is_not_its_own_count_over_its_own_time() -> None:
    assert ruled(decode_rate=62.44, predicted_n=201, predicted_ms=3219.0, runs=1).verdict == "cannot tell"
    wrong = ruled(decode_rate=80.0, predicted_n=201, predicted_ms=3219.0, runs=1)
    assert (wrong.verdict, wrong.bound) == ("impossible", "window-mismatch")
    unlikely = ruled(decode_rate=150.0, predicted_n=201, predicted_ms=3219.0)
    assert (unlikely.verdict, unlikely.bound, rests_on(unlikely)) == ("implausible", "window-mismatch", ["one-window"])
    assert unlikely.rests_on[0].needs.values["spread"] == pytest.approx(1.18, abs=0.005)
    summed = ruled(decode_rate=150.0, predicted_n=201, predicted_ms=3219.0, runs=25)
    assert summed.verdict == "cannot tell"
    # A mean of rates lies above the rate of the mean time, by about the square of their spread.
    mean = ruled(decode_rate=54.0, decode_rate_sd=19.5, predicted_n=128, predicted_ms=2660.1, speedup=0.9)
    assert mean.verdict == "possible"
    assert "audit.unsteady" in codes(mean.others)
    steady = ruled(decode_rate=54.0, decode_rate_sd=0.1, predicted_n=128, predicted_ms=2660.1, speedup=0.9)
    assert (steady.verdict, steady.bound) == ("implausible", "window-mismatch")
    # The time of a whole run holds the prompt and more: a decode rate above what it gives is right.
    assert ruled(decode_rate=61.4, predicted_n=201, wall_ms=5000.0, runs=1).verdict == "cannot tell"
    assert ruled(decode_rate=30.0, predicted_n=201, wall_ms=5000.0, runs=1).verdict == "impossible"


def test_a_counter_that_can_only_say_all() -> None:
    ruling = ruled(decode_rate=65.3, baseline_rate=135.7, drafted=51, accepted=51, predicted_n=300)
    assert ruling.verdict == "possible"
    counted = Message("audit.by_construction_counted", drafted=51)
    assert Message("audit.remark", check="acceptance-by-construction", line=counted) in ruling.others
    assert "audit.remark" not in codes(ruled(speedup=0.5, drafted=51, accepted=50).others)


def test_dice_are_no_speedup() -> None:
    ruling = ruled(speedup=1.9, gamma=4, acceptance=0.9, synthetic=True)
    assert (ruling.verdict, ruling.bound) == ("impossible", "synthetic-on")


# --- memory ----------------------------------------------------------------------------------------------------------


def test_plain_decoding_against_the_memory() -> None:
    possible = ruled(method="none", decode_rate=42.4, size_bytes=12.97e9, device="M2Ultra_192GB", experts=0)
    assert (possible.verdict, possible.bound) == ("possible", "bandwidth-bound")
    assert str(possible.arithmetic) == "12.97 GB x 42.4 tok/s = 549.9 GB/s <= 819.2 GB/s (M2 Ultra)"
    too_fast = ruled(method="none", decode_rate=55.3, size_bytes=20.6e9, bandwidth_bytes_per_s=800e9, experts=0)
    assert (too_fast.verdict, too_fast.bound) == ("implausible", "bandwidth-bound")
    assert str(too_fast.arithmetic) == "20.6 GB x 55.3 tok/s = 1,139 GB/s > 800 GB/s"
    memory, weights = (item.needs.values for item in too_fast.rests_on)
    assert (memory["gb_per_s"], memory["peak"]) == (pytest.approx(20.6 * 55.3), 800)
    assert (weights["needed_gb"], weights["size_gb"]) == (pytest.approx(800 / 55.3), 20.6)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"mixture": True}, "mixture_file"),
        ({"experts": 256}, "mixture_file"),
        ({}, "unless_mixture"),
        ({"experts": 0, "decode_rate": 42.0}, "near_peak"),
        ({"experts": 0, "size_bytes": 1e8}, "cached"),
        ({"experts": 0, "device": "abacus"}, "unknown_device"),
        ({"experts": 0, "device": None}, "no_device"),
        ({"experts": 0, "size_bytes": None}, "no_bytes"),
        ({"experts": 0, "device": "A100", "decode_rate": 90.0}, "near_one_of_peaks"),
    ],
)
def test_where_the_memory_says_nothing(fields: dict[str, Any], code: str) -> None:
    ruling = ruled(**{"method": "none", "decode_rate": 55.3, "size_bytes": 20.6e9, "device": "M2 Ultra"} | fields)
    assert (ruling.verdict, ruling.arithmetic.code) == ("cannot tell", f"audit.{code}")


def test_bytes_per_token_decide_for_a_mixture_of_experts() -> None:
    fields = {"method": "none", "decode_rate": 55.3, "size_bytes": 20.6e9, "device": "M2 Ultra", "mixture": True}
    assert ruled(**fields, bytes_per_token=1.77e9).verdict == "possible"
    assert ruled(**fields, bytes_per_token=20.6e9).verdict == "implausible"


def test_a_paper_whose_own_traffic_exceeds_its_own_machine() -> None:
    ruling = ruled(claimed_bandwidth_bytes_per_s=1138e9, bandwidth_bytes_per_s=800e9)
    assert (ruling.verdict, ruling.bound) == ("implausible", "bandwidth-bound")
    assert codes(ruling.arithmetic) == {"audit.above", "audit.claimed", "audit.peak"}
    assert [item.needs for item in ruling.rests_on] == [Message("audit.needs_memory", gb_per_s=1138, peak=800)]


def test_speculation_reads_the_weights_once_per_step() -> None:
    fields = {"decode_rate": 90.0, "size_bytes": 20.6e9, "experts": 0, "device": "M2 Ultra"}
    assert ruled(**fields, tau=3.0, gamma=4, speedup=2.5).verdict == "possible"
    assert ruled(**fields, tau=1.1, gamma=4).verdict == "implausible"
    batch = ruled(**fields, method="none", concurrency=16)
    assert batch.verdict == "cannot tell"
    assert ruled(**fields, method="none", concurrency=16, token_interval_ms=15.0).verdict == "implausible"


# --- what is missing, units, and anything at all ---------------------------------------------------------------------


def test_what_cannot_be_read_is_said_and_not_judged() -> None:
    problem = Message("unread.gt", name="tok/s", value="0", limit=0)
    ruling = ruled(problem=problem)
    assert (ruling.verdict, ruling.bound, ruling.arithmetic) == ("cannot tell", "unreadable", problem)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "no_decode_rate"),
        ({"decode_rate": 50.0}, "no_bytes"),
        ({"decode_rate": 50.0, "gamma": 4}, "no_speedup_no_acceptance"),
        ({"decode_rate": 50.0, "acceptance": 0.5}, "no_speedup_no_gamma"),
        ({"speedup": 1.5}, "no_tau"),
    ],
)
def test_cannot_tell_names_what_is_missing(fields: dict[str, Any], code: str) -> None:
    ruling = ruled(**fields)
    assert ruling.verdict == "cannot tell"
    assert f"audit.{code}" in codes(ruling.arithmetic)


def with_rivals(first: dict[str, Any], *rivals: dict[str, Any], **fields: Any) -> Ruling:
    """The ruling of a row that can be read in several ways."""
    read = [Claim(source="test", row="row 1", **fields, **it) for it in (first, *rivals)]
    return rule_claim(read[0].model_copy(update={"rivals": tuple((it,) for it in read[1:])}), noise=STEADY)


def test_a_row_is_refused_only_if_no_likely_reading_of_it_can_be_true() -> None:
    """`0.04` is 4 % or 0.04 %; `1.08` would be 108 %."""
    fields = {"gamma": 4, "rounding": {"acceptance": 0.00005}}
    share, percent = {"acceptance": 0.04}, {"acceptance": 0.0004}
    first = with_rivals(share, percent, speedup=1.03, **fields)
    assert (first.verdict, first.claim.acceptance, first.claim.notes) == ("possible", 0.04, ())
    other = with_rivals(percent, share, speedup=1.03, **fields)
    assert (other.verdict, other.claim.acceptance) == ("possible", 0.04)
    note = other.claim.notes[0]
    assert isinstance(note, Message)
    assert note.values["how"] == [Message("audit.read_as", how="acceptance", found=0.04)]
    assert str(note).startswith("read as acceptance 0.04; otherwise: speedup 1.03 > tau = 1 + ")
    assert with_rivals(share, percent, speedup=1.3, **fields).verdict == "implausible"
    assert with_rivals({"acceptance": 1.08}, {"acceptance": 0.0108}, speedup=0.9, **fields).verdict == "possible"
    assert with_rivals({"acceptance": 1.08}, {"acceptance": 1.09}, speedup=0.9, **fields).verdict == "impossible"
    assert with_rivals({"acceptance": 1.08}, {"acceptance": 0.0108}, speedup=1.3, **fields).verdict == "implausible"
    falsely: dict[str, Any] = {"speedup": 1.3, **fields, **share}
    groups = [Claim(source="test", row=f"row 1, {it}", **falsely) for it in "ab"]
    sound = [it.model_copy(update={"acceptance": 0.4}) for it in groups]
    for rival, verdict in (((sound[0], groups[1]), "implausible"), (tuple(sound), "possible")):
        ruling = rule_claim(groups[0].model_copy(update={"rivals": (rival,)}), noise=STEADY)
        assert ruling.verdict == verdict, "a reading holds in all groups of its row, or in none"
    assert "rivals" not in first.claim.model_dump()
    assert "rivals" not in repr(first)


def test_an_acceptance_length_is_read_with_and_without_the_bonus_token() -> None:
    """`acceptance_length` of 2.1 means 2.1 tokens per step in one tool, and 3.1 in another."""
    both = {"tau": 2.1}, {"tau": 3.1}
    assert with_rivals(*both, speedup=2.6, gamma=4).verdict == "possible"
    assert with_rivals(*both, speedup=1.9, gamma=4).verdict == "possible"
    assert with_rivals(*both, speedup=3.4, gamma=4).verdict == "implausible"
    # With gamma = 2 a step emits 3 tokens at most: then it can only mean that the target's own is among the 2.1.
    assert with_rivals(*both, speedup=2.6, gamma=2).verdict == "implausible"
    # Of 4 drafts 28 % are 1.1: again 2.1 holds the target's own.
    assert with_rivals(*both, speedup=2.6, gamma=4, acceptance=0.28, method="draft-simple").verdict == "implausible"


def test_values_that_cannot_be_are_refused() -> None:
    claim = claim_of(source="log", row="run 1", accepted=-3)
    assert claim.problem == Message("unread.ge", name="accepted", value="-3", limit=0)
    zero = claim_of(source="log", row="run 1", decode_rate=0.0)
    assert zero.problem == Message("unread.gt", name="decode_rate", value="0.0", limit=0)
    half = claim_of(source="log", row="run 1", predicted_n=1.5)
    assert half.problem == Message("unread.not_whole", name="predicted_n", value="1.5")
    assert claim_of(source="log", row="run 1", accepted=5, drafted=3).problem is None


@pytest.mark.parametrize("label", [None, 7, ["a"]])
def test_a_label_that_cannot_be_is_a_problem_of_its_row_too(label: Any) -> None:
    claim = claim_of(source="log", row="run 1", label=label, speedup=1.3)
    assert (claim.row, claim.speedup) == ("run 1", None)
    assert claim.problem is not None
    assert (claim.problem.code, claim.problem.values["name"]) == ("unread.value", "label")
    assert claim.model_dump_json()
    cut = Message("unread.cut_task")
    assert claim_of(source="log", row="run 1", label=label, problem=cut).problem == cut


def test_every_bound_names_its_assumptions() -> None:
    assert [bound for bound in STRENGTH if not BOUNDS[bound]] == list(STRENGTH[:2])
    assert all(f"assumption.{name}" in words() for name in ASSUMPTIONS)


_NUMBERS = st.floats(1e-9, 1e15)
_COUNTS = st.integers(0, 10**15)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{name: _NUMBERS for name, kind in get_type_hints(Claim).items() if kind == float | None},
    **{name: _COUNTS for name, kind in get_type_hints(Claim).items() if kind == int | None},
    "p_min": st.floats(0, 1),
    "acceptance": st.floats(0, 2),
    "baseline_rate_sd": st.floats(0, 1e15),
    "cheapest_forward": st.floats(0.01, 1),
    "acceptance_of": st.sampled_from(["drafted", "output"]),
    "averaged": st.sets(st.sampled_from(["speedup", "acceptance", "decode_rate"])).map(tuple),
    "pooled": st.sets(st.sampled_from(["speedup", "acceptance", "tau"])).map(tuple),
    "baseline_from": st.just("line 3"),
    "draft": st.sampled_from(["Qwen3-0.6B", "EAGLE3"]),
    "tree": st.booleans(),
    "tau": st.floats(1, 1e6),
    "runs": st.integers(1, 1000),
    "decode_rate_sd": st.floats(0, 1e15),
    "method": st.sampled_from(["none", "draft-simple", "ngram-mod", "medusa", "x"]),
    "device": st.sampled_from(["M2 Ultra", "A100", "Xeon", "?"]),
    "positions": st.lists(st.floats(0, 1), max_size=4).map(tuple),
    "speedup_of": st.sampled_from(["decoding", "run"]),
    "window": st.sampled_from(["all tokens", "all but the first", "with prompt", "unknown"]),
    "synthetic": st.booleans(),
    "draft_elsewhere": st.booleans(),
    "rounding": st.dictionaries(st.sampled_from(["speedup", "acceptance", "decode_rate", "tau"]), st.floats(0, 1e6)),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=_FIELDS))
def test_no_claim_is_too_strange_to_be_ruled(fields: dict[str, Any]) -> None:
    ruling = ruled(**fields)
    assert ruling.bound in {*STRENGTH, "unreadable", NOTHING_DRAFTED}
    assert str(ruling.arithmetic)
    assert "\n" not in str(ruling.reason)
    assert rule_claim(Claim.model_validate_json(ruling.claim.model_dump_json()), noise=STEADY) == ruling


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=_FIELDS))
def test_what_is_implausible_rests_on_something_and_nothing_else_does(fields: dict[str, Any]) -> None:
    ruling = ruled(**fields)
    assert bool(ruling.rests_on) == (ruling.verdict == "implausible")
    assert ruling.broken == (ruling.verdict in {"impossible", "implausible"})
    if ruling.bound in STRENGTH:
        assert set(rests_on(ruling)) <= set(BOUNDS[ruling.bound])
    if ruling.verdict == "impossible":
        assert not BOUNDS[ruling.bound] or ruling.bound in EXACT_AT_TIMES


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={key: _FIELDS[key] for key in ("speedup", "gamma", "acceptance", "tau")}),
    st.floats(0, 0.5),
)
def test_more_noise_breaks_nothing(fields: dict[str, Any], noise: float) -> None:
    claim = Claim(source="test", row="row 1", **fields)
    if rule_claim(claim, noise=noise).broken:
        assert rule_claim(claim, noise=0.0).broken


def test_the_token_of_the_prompts_own_forward_may_count_among_those_per_step() -> None:
    """80 tokens of 79 forwards are printed as 1.01 per forward where nothing is drafted."""
    claim = Claim(source="test", row="row 1", gamma=0, tau=1.01, rounding={"tau": 0.005})
    assert rule_claim(claim).verdict != "impossible"
    assert rule_claim(claim.model_copy(update={"tau": 1.1})).verdict == "impossible"
    counted = {"gamma": 1, "tau": 2.01, "pooled": ("tau",)}
    assert rule_claim(claim.model_copy(update=counted)).verdict == "impossible"
