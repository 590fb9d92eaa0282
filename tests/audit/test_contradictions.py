"""Numbers of one row that contradict each other: tokens per step, times, and rates that their source defines."""

from __future__ import annotations

from typing import Any

import pytest

from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.messages import Message


def ruled(**fields: Any) -> Ruling:
    return rule_claim(Claim(source="test", row="row 1", **fields))


def test_tokens_per_step_are_those_of_the_counts_beside_them() -> None:
    counts = {"accepted": 150, "steps": 100, "gamma": 8, "rounding": {"tau": 0.005}}
    assert ruled(tau=2.5, runs=1, **counts).verdict != "impossible"
    wrong = ruled(tau=4.0, runs=1, **counts)
    assert (wrong.verdict, wrong.bound) == ("impossible", "conservation")
    assert wrong.arithmetic == Message("equation.tau-of-counts", left=4.0, accepted=150, steps=100, right=2.5)
    # 49 tokens of 40 steps, the last draft cut off: 1.225 is printed as 1.22, and lies on the bound itself.
    assert ruled(tau=1.22, rounding={"tau": 0.005}, accepted=10, steps=40, gamma=1, runs=1).verdict != "impossible"
    mean = ruled(tau=4.0, **counts)  # of several prompts, for all that is known
    assert mean.verdict == "implausible"
    assert [it.needs.code for it in mean.rests_on] == ["audit.needs_other_runs"]
    assert mean.contradictions == (wrong.arithmetic,)
    assert ruled(tau=4.0, averaged=("tau",), **counts).verdict == "implausible"
    said = ruled(tau=3.1, averaged=("tau",), **counts)
    assert (said.verdict, said.contradictions) == ("cannot tell", ())


def test_a_length_without_the_targets_own_token_is_not_a_contradiction() -> None:
    """Its counts tell which of the two it is."""
    fields = {"accepted": 150, "steps": 100, "gamma": 4, "runs": 1, "speedup": 2.2}
    included = Claim(source="test", row="row 1", tau=2.5, **fields)
    ruling = ruled(tau=1.5, rivals=(included,), **fields)
    assert (ruling.verdict, ruling.claim.tau) == ("possible", 2.5)
    assert ruled(tau=1.5, **fields).verdict == "impossible"


def test_forwards_without_drafts_may_be_among_the_steps() -> None:
    fields = {"accepted": 50, "steps": 25, "target_forwards": 100, "predicted_n": 151, "gamma": 4, "runs": 1}
    assert ruled(tau=3.0, **fields).verdict == "possible"
    assert ruled(tau=1.5, **fields).verdict == "possible"
    assert ruled(tau=4.5, **fields).verdict == "impossible"


def test_more_accepted_than_generated_needs_many_drafts_that_were_cut_off() -> None:
    counts = {"drafted": 400, "predicted_n": 256, "gamma": 4, "decode_rate": 70.0, "baseline_rate": 30.0}
    ruling = ruled(accepted=290, **counts)
    assert (ruling.verdict, ruling.bound) == ("implausible", "conservation")
    assert [it.needs for it in ruling.rests_on] == [Message("audit.needs_cut_drafts", least=9, gamma=4)]
    assert ruled(accepted=190, **counts).verdict == "possible"
    assert ruled(accepted=285, **counts).verdict == "possible", "eight of sixteen texts may end so"


def test_a_run_takes_no_less_than_its_decoding() -> None:
    ruling = ruled(predicted_ms=900.0, wall_ms=600.0, predicted_n=50, runs=1)
    assert ruling.verdict == "impossible"
    assert ruling.arithmetic == Message("audit.decoding_beyond", decoding_s=0.9, run_s=0.6)
    assert ruled(predicted_ms=600.4, wall_ms=600.0, predicted_n=50, runs=1).verdict != "impossible"
    assert ruled(predicted_ms=900.0, wall_ms=600.0, predicted_n=50, runs=8).verdict != "impossible"  # several at once


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"window": "all tokens", "runs": 1}, "impossible"),
        ({"window": "unknown", "runs": 1}, "cannot tell"),
        ({"window": "all tokens", "runs": 5}, "cannot tell"),
    ],
)
def test_a_rate_is_held_against_the_window_that_its_source_defines(fields: dict[str, Any], verdict: str) -> None:
    """70 tok/s lies between what decoding (100) and the whole run (50) give: only a defined window rules it out."""
    ruling = ruled(decode_rate=70.0, predicted_n=100, predicted_ms=1000.0, wall_ms=2000.0, **fields)
    assert ruling.verdict == verdict


def test_a_benchmark_divides_its_own_count_by_its_own_time() -> None:
    fields = {"predicted_n": 1000, "prompt_n": 4000, "wall_ms": 10_000.0, "runs": 10, "window": "with prompt"}
    assert ruled(decode_rate=100.0, **fields).verdict == "cannot tell"
    assert ruled(decode_rate=500.0, **fields).verdict == "cannot tell"
    assert ruled(decode_rate=140.0, **fields).verdict == "impossible"
    assert ruled(decode_rate=140.0, decode_rate_sd=20.0, **fields).verdict == "cannot tell"  # a mean of repeats


@pytest.mark.parametrize("printed", [1.37, 1.04])
def test_a_printed_gain_beside_rates_that_show_a_loss_is_refused(printed: float) -> None:
    ruling = ruled(speedup=printed, decode_rate=38.0, baseline_rate=40.0, rounding={"speedup": 0.005})
    assert ruling.verdict == ("impossible" if printed > 1.3 else "implausible")
    assert ruling.bound == "speedup-not-its-rates"
    assert ruling.contradictions
    beside = ruled(speedup=printed, decode_rate=38.0, baseline_rate=40.0, baseline_from="line 3")
    assert beside.verdict == "implausible"
    loss = ruled(speedup=0.65, decode_rate=38.0, baseline_rate=37.0, prompt_ms=1.0)
    assert loss.contradictions


def test_numbers_that_do_not_go_together_are_never_undecided() -> None:
    rates = ruled(speedup=1.7, decode_rate=60.0, baseline_rate=40.0)
    assert (rates.verdict, rates.bound) == ("implausible", "speedup-not-its-rates")
    share = ruled(acceptance=0.8, accepted=60, drafted=100)
    assert (share.verdict, share.bound) == ("implausible", "conservation")
    mean = ruled(speedup=1.7, decode_rate=60.0, baseline_rate=40.0, averaged=("speedup",))
    assert (mean.verdict, mean.contradictions) == ("cannot tell", ())


def test_a_share_that_its_counts_do_not_give_is_never_possible() -> None:
    """As the log of the same run says: there it is impossible, as that is one run for sure."""
    row = {"speedup": 1.63, "gamma": 4, "accepted": 771, "drafted": 1204, "acceptance": 0.84}
    assert ruled(**row, runs=1).verdict == "impossible"
    table = ruled(**row)
    assert (table.verdict, table.bound, len(table.contradictions)) == ("implausible", "conservation", 1)
    assert ruled(**row | {"acceptance": 0.64}).verdict == "possible"
    assert ruled(**row, averaged=("acceptance",)).verdict == "possible"
