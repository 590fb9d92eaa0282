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
    ruling = ruled(tau=1.5, rivals=((included,),), **fields)
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


def laws(ruling: Ruling) -> list[str]:
    """The equations that a row breaks."""
    return [it.code.removeprefix("equation.") for it in ruling.contradictions]


# --- speedups --------------------------------------------------------------------------------------------------------


def test_a_speedup_of_runs_is_the_ratio_of_their_times() -> None:
    """61.2 s without, 41.0 s with drafts: 1.49, where decoding is 77.1 / 41.0 = 1.88 times as fast."""
    rates = {"decode_rate": 77.1, "baseline_rate": 41.0, "tau": 3.0, "rounding": {"speedup": 0.005}}
    times = {"wall_ms": 41_000.0, "baseline_wall_ms": 61_200.0}
    for speedup_of in ("run", "decoding"):
        true = ruled(speedup=1.49, speedup_of=speedup_of, **rates, **times)
        assert (true.verdict, true.contradictions) == ("possible", ())
    assert laws(ruled(speedup=1.7, speedup_of="run", **rates, **times)) == ["speedup-of-run"]
    alone = ruled(speedup=1.7, speedup_of="run", **times)
    assert str(alone.arithmetic) == (
        "the speedup is given as 1.7, but the times of the runs give 61,200 ms / 41,000 ms = 1.493"
    )
    # Without those times it is only known to lie between 1 and the ratio of the rates.
    assert ruled(speedup=1.49, speedup_of="run", **rates).verdict == "possible"
    assert laws(ruled(speedup=2.3, speedup_of="run", **rates)) == ["speedup-within-rates"]
    assert laws(ruled(speedup=0.8, speedup_of="run", **rates)) == ["speedup-within-rates"]


@pytest.mark.parametrize(
    ("gain", "baseline", "rate", "right"),
    [(1.74, 15.22, 20.46, 1.34), (1.1565, 8.18, 6.90, 0.84), (1.87, 63.0, 80.0, 1.27)],
)
def test_a_gain_is_that_of_the_rates_beside_it(gain: float, baseline: float, rate: float, right: float) -> None:
    fields = {"baseline_rate": baseline, "decode_rate": rate, "rounding": {"speedup": 0.005}}
    false = ruled(speedup=gain, **fields)
    assert laws(false) == ["speedup-of-rates"]
    assert false.contradictions[0].values["right"] == pytest.approx(right, abs=0.01)
    assert ruled(speedup=round(right, 2), **fields).contradictions == ()
    assert ruled(speedup=1.91, decode_rate=20.0).contradictions == ()


def test_forty_times_as_fast_with_two_tokens_per_step_is_not_believed() -> None:
    ruling = ruled(speedup=40.0, tau=2.1)
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-tau")


def test_simulated_acceptance_gives_no_speedup_and_leaves_the_baseline_alone() -> None:
    assert ruled(speedup=2.0, tau=3.0, synthetic=True).verdict == "impossible"
    assert ruled(method="none", decode_rate=40.0, synthetic=True).verdict != "impossible"


# --- tokens per step -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"engine": "vLLM"}, {"label": "eagle3, num_speculative_tokens=3"}])
def test_three_speculative_tokens_of_vllm_end_at_a_length_of_four(said: dict[str, str]) -> None:
    row = {"method": "eagle3", "gamma": 3, "decode_rate": 170.0, **said}
    false = ruled(tau=4.62, **row)
    assert (false.verdict, false.bound) == ("impossible", "conservation")
    assert ruled(tau=3.62, **row).verdict == "cannot tell"
    assert ruled(tau=4.62, **row | {"engine": "SGLang"}).verdict == "cannot tell"
    assert ruled(tau=4.62, method="Linear K=3", gamma=3).verdict == "impossible"


def test_positions_fall_and_add_up_to_the_length() -> None:
    row = {"gamma": 3, "rounding": {"tau": 0.005, "positions": 0.0005}}
    assert ruled(tau=2.5, positions=(0.7, 0.5, 0.3), **row).contradictions == ()
    assert laws(ruled(tau=2.5, positions=(0.668, 0.843, 0.0), **row)) == ["positions-fall"]
    assert laws(ruled(tau=3.2, positions=(0.7, 0.5, 0.3), **row)) == ["tau-of-positions"]
    assert laws(ruled(acceptance=0.6, positions=(0.7, 0.5, 0.3), **row)) == ["acceptance-of-positions"]
    more = {"tau": 3.2, "positions": (0.7, 0.5, 0.3), "rounding": {"tau": 0.005}}
    assert ruled(**more).contradictions == (), "further positions may be left out"
    assert ruled(**more, method="medusa").contradictions == ()


def test_an_accept_rate_above_one_is_a_length() -> None:
    """SGLang prints `accept rate: 1.49`."""
    length = Claim(source="test", row="row 1", tau=1.49, gamma=3, speedup=1.3)
    ruling = ruled(acceptance=1.49, gamma=3, speedup=1.3, rivals=((length,),))
    assert (ruling.verdict, ruling.claim.tau) == ("possible", 1.49)
    assert ruled(acceptance=1.49, gamma=3, speedup=1.3).verdict == "impossible"


@pytest.mark.parametrize(
    "counts",
    [
        {"steps": 4687, "drafted": 46_870, "accepted": 52_368},
        {"drafted": 93_000, "accepted": 94_982},
        {"drafted": 9, "accepted": 18},
    ],
)
def test_no_more_is_accepted_than_drafted(counts: dict[str, int]) -> None:
    ruling = ruled(**counts)
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")
    assert ruling.arithmetic.code == "audit.accepted_beyond"


def test_what_the_other_rows_keep_binds_this_one() -> None:
    """tau = 1 + acceptance x gamma need not hold: sources count drafts in many ways."""
    row = {"tau": 2.9, "acceptance": 0.8, "gamma": 4, "speedup": 1.5}
    assert ruled(**row).contradictions == ()
    kept = ruled(**row, kept=("tau-of-acceptance",))
    assert [str(it) for it in kept.contradictions] == ["tau = 2.9, but 1 + 0.8 x 4 = 4.2, as in the other rows"]
    for tau in (4.2, 3.8):  # drafts may end early in some rows
        assert ruled(**row | {"tau": tau}, kept=("tau-of-acceptance",)).contradictions == ()


def test_acceptance_and_length_show_a_whole_number_of_drafts() -> None:
    """1.0629 / 0.3543 = 3.00; the same with 1.6629 is 4.69."""
    row = {"acceptance": 0.3543, "rounding": {"acceptance": 0.00005, "tau": 0.00005}, "kept": ("length-is-whole",)}
    assert ruled(tau=2.0629, **row).contradictions == ()
    assert [str(it) for it in ruled(tau=2.6629, **row).contradictions] == [
        "tau = 2.663 with an acceptance of 0.3543 needs drafts of 4.693 tokens, where the other rows need a whole "
        "number"
    ]


def test_counters_over_the_time_of_the_run_are_the_rate() -> None:
    """356,839 accepted + 839,040 / 8 of the target's own in 215 s are 2,148 tok/s."""
    row = {"drafted": 839_040, "accepted": 356_839, "gamma": 8, "wall_ms": 214_950.0, "kept": ("rate-of-counts",)}
    assert ruled(decode_rate=2148.4, **row).contradictions == ()
    assert laws(ruled(decode_rate=2448.4, **row)) == ["rate-of-counts"]


def test_a_mean_is_no_excuse_where_the_other_rows_keep_the_law() -> None:
    row = {"speedup": 1.7, "decode_rate": 60.0, "baseline_rate": 40.0, "averaged": ("decode_rate",), "tau": 3.0}
    assert ruled(**row).contradictions == ()
    assert laws(ruled(**row, kept=("speedup-of-rates",))) == ["speedup-of-rates"]


# --- rates and times -------------------------------------------------------------------------------------------------


def test_tokens_over_time_are_the_rate() -> None:
    """500 tokens in 3.76 s are 133 tok/s, not 232.8."""
    decoding = ruled(decode_rate=232.8, predicted_n=500, predicted_ms=3760.0)
    assert [str(it) for it in decoding.contradictions] == ["232.8 tok/s, but 500 tokens in 3.76 s are 133 tok/s"]
    assert ruled(decode_rate=133.0, predicted_n=500, predicted_ms=3760.0).contradictions == ()
    # A rate of decoding is above that of the whole run, by the time of the prompt, unless the other rows say otherwise.
    run = {"decode_rate": 182.97, "predicted_n": 512, "wall_ms": 6171.0}
    assert ruled(**run).contradictions == ()
    assert laws(ruled(**run, kept=("rate-of-run",))) == ["rate-of-run"]
    assert ruled(**run | {"decode_rate": 82.97}, kept=("rate-of-run",)).contradictions == ()
    assert laws(ruled(**run | {"decode_rate": 60.0})) == ["rate-of-time"]
    prompt = {"prompt_n": 2000, "prompt_ms": 3000.0}
    assert ruled(**run | {"decode_rate": 161.0}, **prompt).contradictions == ()


def test_a_rate_is_the_inverse_of_its_time_per_token() -> None:
    assert laws(ruled(decode_rate=70.0, token_ms=20.0)) == ["rate-within-token-time"]
    slow = {"decode_rate": 40.0, "token_ms": 20.0}
    assert ruled(**slow).contradictions == (), "a rate of whole runs counts the time of the prompt"
    assert laws(ruled(**slow, kept=("rate-of-token-time",))) == ["rate-of-token-time"]
    assert ruled(decode_rate=50.0, token_ms=20.0).contradictions == ()
    assert ruled(decode_rate=400.0, token_ms=20.0).contradictions == (), "eight requests at once"
    assert ruled(decode_rate=400.0, token_ms=20.0, concurrency=8).contradictions == ()
    load = {"token_ms": 20.0, "concurrency": 8, "kept": ("rate-of-load",)}
    assert laws(ruled(decode_rate=600.0, **load)) == ["rate-of-load"]
    assert laws(ruled(decode_rate=150.0, tau=3.0, step_ms=30.0)) == ["rate-of-steps"]
    assert ruled(decode_rate=100.0, tau=3.0, step_ms=30.0).contradictions == ()
