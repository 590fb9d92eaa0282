"""True rows that a careful reader has to let pass, and false ones that print their own contradiction."""

from __future__ import annotations

from typing import Any

import pytest

from specmeter.audit.across import noise_of
from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.audit.reading import rule


def ruled(**fields: Any) -> Ruling:
    return rule_claim(Claim(source="test", row="row 1", **fields))


def rests_on(ruling: Ruling) -> list[str]:
    return [item.name for item in ruling.rests_on]


# --- draft lengths ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "gamma", "tau"),
    [
        ("a method of 2031", 3, 4.9),
        ("pearl", 5, 9.1),  # drafts on while it verifies
        ("draft model (adaptive)", 5, 9.1),
        ("svip", 4, 5.9),
        ("suffixdecoding", 8, 11.2),
    ],
)
def test_gamma_does_not_bound_drafts_of_open_length(method: str, gamma: int, tau: float) -> None:
    ruling = ruled(method=method, gamma=gamma, tau=tau, speedup=2.5)
    assert (ruling.verdict, ruling.bound) == ("cannot tell", "conservation")
    assert ruling.arithmetic.code == "audit.unless_trees"
    above = ruled(method=method, gamma=gamma, tau=tau, speedup=12.0)
    assert above.verdict == "implausible"


@pytest.mark.parametrize(("method", "gamma", "tau"), [("eagle", 1, 3.39), ("eagle-2", 2, 4.2), ("adaeagle", 5, 6.4)])
def test_what_is_called_k_may_be_the_width_of_a_tree(method: str, gamma: int, tau: float) -> None:
    assert ruled(method=method, gamma=gamma, tau=tau, speedup=2.5).verdict == "possible"
    assert ruled(method=method, gamma=gamma, tau=tau, speedup=8.0).verdict == "implausible"


@pytest.mark.parametrize("method", ["draft-simple", "draft-mtp", "ngram-simple", "draft-small", None])
def test_the_length_of_a_chain_bounds_its_steps(method: str | None) -> None:
    assert ruled(method=method, gamma=3, tau=4.9).verdict == "impossible"
    assert ruled(method="eagle", tree=True, gamma=3, tau=4.9).verdict == "impossible", "an engine says how deep it is"


@pytest.mark.parametrize("method", ["hass", "redrafter", "kangaroo", "coral", "griffin", "spectr", "traversal", "odd"])
def test_methods_that_are_not_chains_for_sure_may_draft_trees(method: str) -> None:
    counted = ruled(method=method, gamma=6, steps=619, drafted=37140, accepted=1421, tau=3.296, speedup=2.51)
    assert counted.verdict == "possible"
    shared = ruled(method=method, gamma=6, acceptance=0.039, speedup=2.59)
    assert shared.verdict == "cannot tell"


# --- requests and counts ---------------------------------------------------------------------------------------------


def test_forwards_may_serve_several_requests_where_nothing_is_said() -> None:
    row = {"predicted_n": 2048, "gamma": 4, "target_forwards": 103, "accepted": 1338, "drafted": 2808, "speedup": 1.94}
    unsaid = ruled(**row)
    assert (unsaid.verdict, unsaid.bound) == ("implausible", "conservation")
    assert unsaid.rests_on[0].needs.values["requests"] == pytest.approx(6.88, abs=0.005)
    assert ruled(**row, runs=1).verdict == "impossible"
    assert ruled(**row, concurrency=1).verdict == "impossible"
    assert ruled(**row, concurrency=8).verdict == "possible"
    one_token = ruled(predicted_n=256, accepted=169, target_forwards=84, runs=2)
    assert one_token.verdict == "impossible", "1.01 requests cannot be served at once"


def test_the_rate_of_one_user_is_not_that_of_all() -> None:
    row = {"predicted_n": 2048, "wall_ms": 5330.0, "decode_rate": 50.4}
    ruling = ruled(**row)
    assert (ruling.verdict, ruling.bound) == ("implausible", "window-mismatch")
    assert rests_on(ruling) == ["one-request", "one-window"]
    assert ruled(**row, runs=1).verdict == "impossible"


def test_accepted_tokens_may_include_the_targets_own() -> None:
    row = {"gamma": 2, "drafted": 1516, "steps": 758, "accepted": 2040, "acceptance": 2040 / 1516, "speedup": 2.2}
    ruling = ruled(**row)
    assert ruling.verdict == "possible"
    assert str(ruling.arithmetic) == "speedup 2.2 <= tau = 1 + 1282 / 758 = 2.691"
    assert ruled(**row | {"accepted": 2400}).verdict == "impossible"
    assert ruled(**row, predicted_n=2800).verdict == "impossible", "of 2799 tokens, so that 2040 are drafts"


def test_more_cannot_be_accepted_than_was_generated_though_no_length_is_said() -> None:
    row = {"predicted_n": 256, "tree": False, "runs": 1}
    assert ruled(**row, accepted=5000, drafted=5100).verdict == "impossible"
    assert ruled(**row, accepted=260, drafted=300).verdict == "cannot tell", "the last draft may be cut off"


def test_tokens_per_step_may_leave_out_a_draft_that_was_cut_off() -> None:
    row = {"predicted_n": 45, "accepted": 29, "steps": 17, "gamma": 5, "runs": 1, "rounding": {"tau": 0.05}}
    assert ruled(**row, tau=2.6).verdict != "impossible"
    assert ruled(**row, tau=2.2).verdict == "impossible"


# --- speedups end to end ---------------------------------------------------------------------------------------------


def test_a_speedup_end_to_end_is_not_that_of_decode_rates() -> None:
    row = {"baseline_rate": 38.0, "decode_rate": 88.0, "tau": 2.8}
    ruling = ruled(**row, speedup=1.31)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-not-its-rates")
    assert rests_on(ruling) == ["one-window"]
    assert ruling.rests_on[0].needs.code == "audit.needs_prompts"
    assert ruling.rests_on[0].needs.values["times"] == pytest.approx(1.401, abs=5e-4)
    assert ruled(**row, speedup=4.0).verdict == "impossible", "no prompt makes a speedup larger"
    assert ruled(**row, speedup=0.9).verdict == "impossible", "or turns a gain into a loss"


def test_times_of_the_row_may_give_a_speedup_end_to_end() -> None:
    rates = {"baseline_rate": 30.1, "decode_rate": 75.1}
    row = rates | {"prompt_ms": 20_000.0, "predicted_n": 256, "predicted_ms": 3409.0, "wall_ms": 23_409.0}
    ruling = ruled(**row, speedup=1.22, tau=2.9)
    assert ruling.verdict == "possible"
    assert str(ruling.arithmetic) == "speedup 1.22 <= tau = 2.9"
    assert ruling.contradictions == ()
    assert ruled(**row, speedup=1.6, tau=2.9).verdict == "impossible"
    mild = ruled(baseline_rate=48.88, decode_rate=155.83, tau=3.7, speedup=2.849)
    assert str(mild.arithmetic) == "speedup 2.849 <= tau = 3.7"
    whole = {"baseline_rate": 40.5, "decode_rate": 142.9, "baseline_wall_ms": 10_300.0, "wall_ms": 5800.0, "tau": 3.9}
    assert ruled(**whole, speedup=1.78).verdict == "possible"


def test_a_benchmark_that_prints_the_ratio_of_its_rates_is_held_to_it() -> None:
    """Spec-Bench prints rates with the prompt's time, and their ratio."""
    row = {"tau": 2.46, "decode_rate": 61.87, "baseline_rate": 39.6, "window": "with prompt",
           "averaged": ("speedup", "decode_rate", "baseline_rate")}  # fmt: skip
    cut = ruled(**row, speedup=1.5624, rounding={"speedup": 0.00005})
    assert str(cut.arithmetic) == "speedup 1.562 <= tau = 2.46"
    assert ruled(**row, speedup=2.9).verdict == "impossible"
    near = ruled(**row, speedup=2.1)
    assert (near.verdict, near.bound) == ("implausible", "speedup-not-its-rates")


# --- what would have to be wrong -------------------------------------------------------------------------------------


def test_a_baseline_that_does_not_stand_in_the_row_is_an_assumption() -> None:
    row = {"gamma": 4, "acceptance": 0.1, "speedup": 1.9, "method": "draft-simple"}
    assert "baseline" in rests_on(ruled(**row))
    assert "baseline" in rests_on(ruled(**row, decode_rate=190.0, baseline_rate=100.0, baseline_from="line 3"))
    assert "baseline" not in rests_on(ruled(**row, decode_rate=190.0, baseline_rate=100.0))


def test_the_share_of_the_output_helps_no_further_than_the_draft_length() -> None:
    assert "acceptance" in rests_on(ruled(gamma=1, acceptance=0.71, speedup=1.9))
    assert rests_on(ruled(gamma=1, acceptance=0.91, speedup=2.6)) == ["forward", "baseline"]


def test_rows_that_are_alike_and_differ_twofold_say_nothing() -> None:
    row = {"source": "test", "target": "A", "gamma": 4, "baseline_rate": 40.0, "acceptance": 0.1}
    claims = [Claim(row="line 3", decode_rate=70.0, **row), Claim(row="line 4", decode_rate=140.0, **row)]
    assert noise_of(claims).of(claims[0]) == pytest.approx(1.0)
    first = rule(claims, "test", "table").rulings[0]
    assert first.verdict == "cannot tell"
    assert first.arithmetic.code == "audit.above_by_noise"
    assert first.arithmetic.values["noise"] == pytest.approx(1.0)
