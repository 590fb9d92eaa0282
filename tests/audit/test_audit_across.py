"""What rows show together: noise of a table, and notes that are never verdicts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from said import codes
from specmeter.audit.across import MAX_SPREAD, MIN_SPREAD, USUAL, noise_of, noise_of_row, notes_across
from specmeter.audit.claim import Claim
from specmeter.audit.reading import RowDefaults, rule
from specmeter.messages import Message


def row(number: int, **fields: Any) -> Claim:
    return Claim(source="table.md", row=f"line {number}", **fields)


# --- noise -----------------------------------------------------------------------------------------------------------


def test_a_table_that_measured_nothing_twice_has_the_usual_noise() -> None:
    noise = noise_of([row(1, method="none", decode_rate=40.0), row(2, method="draft-simple", decode_rate=50.0)])
    assert (noise.share, noise.unsteady) == (USUAL, {})
    assert noise.origin.code == "audit.noise_usual"


def test_repeats_of_one_configuration_are_its_noise() -> None:
    rates = (40.0, 40.4, 39.8, 40.2, 41.0, 40.1, 39.5)
    steady = noise_of([row(n, method="none", target="t", decode_rate=rate) for n, rate in enumerate(rates)])
    # s of the logarithms is 0.0117, and t(6, 0.995) = 3.707: 3.707 x 1.414 x 0.0117.
    assert steady.share == pytest.approx(0.0613, abs=0.001)
    assert steady.origin == Message("audit.noise_repeats", rates=7, configurations=1, unsteady="")
    quiet = noise_of([row(n, method="none", target="t", decode_rate=40 + 0.01 * n) for n in range(7)])
    assert quiet.share == MIN_SPREAD


def test_few_repeats_widen_what_is_usual_and_never_narrow_it() -> None:
    twice = [row(1, method="none", decode_rate=40.0), row(2, method="none", decode_rate=40.01)]
    assert noise_of(twice).share == USUAL
    apart = [row(1, method="none", decode_rate=40.0), row(2, method="none", decode_rate=44.0)]
    assert noise_of(apart).share == pytest.approx(0.1)
    plain_again = [row(1, method="ngram-mod", drafted=0, decode_rate=44.0, baseline_rate=40.0)]
    assert noise_of(plain_again).share == pytest.approx(0.1)


def test_a_rate_that_is_quoted_again_is_no_repeat() -> None:
    quoted = [row(n, method="none", target="t", decode_rate=1071.2940027174511) for n in range(7)]
    assert noise_of(quoted).share == USUAL


def test_rows_that_differ_in_anything_said_are_no_repeats() -> None:
    prompts = [row(n, method="none", decode_rate=40.0 + 4 * n, conditions={"prompt": str(n)}) for n in range(4)]
    targets = [row(n, method="none", decode_rate=40.0 + 4 * n, target=str(n)) for n in range(4)]
    drafts = [row(n, method="sd", decode_rate=40.0 + 4 * n, acceptance=0.2 * n, gamma=4) for n in range(4)]
    assert {noise_of(rows).share for rows in (prompts, targets, drafts)} == {USUAL}


def test_deviations_and_samples_count_as_repeats() -> None:
    samples = (50.1, 52.0, 49.0, 51.0, 50.5, 48.8, 51.9)
    assert 0.05 < noise_of([row(1, method="none", decode_rate=50.5, samples=samples)]).share < 0.15
    printed = row(1, decode_rate=50.0, decode_rate_sd=5.0, baseline_rate=40.0, baseline_rate_sd=3.0, runs=4)
    assert noise_of_row(printed, 0.02) == pytest.approx(2 * (0.05**2 + 0.0375**2) ** 0.5)
    assert noise_of_row(printed, 0.2) == 0.2
    assert noise_of_row(printed.model_copy(update={"decode_rate_sd": 500.0}), 0.02) == MAX_SPREAD


def test_noise_that_is_given_goes_first() -> None:
    rows = [row(1, speedup=1.16, gamma=16, acceptance=0.009)]
    assert rule(rows, "t", "table").rulings[0].verdict == "cannot tell"
    assert rule(rows, "t", "table", RowDefaults(), noise=0.0).noise.origin.code == "audit.noise_given"
    assert rule(rows, "t", "table", RowDefaults(), noise=0.0).rulings[0].verdict == "implausible"


# --- notes -----------------------------------------------------------------------------------------------------------


def test_ordinary_rows_have_no_notes() -> None:
    rates = (41.3, 42.7, 39.9, 44.4, 43.2, 41.3, 40.1, 42.2, 43.8, 42.0, 41.6, 40.9)
    rows = [
        row(n, decode_rate=rate, decode_rate_sd=0.4, rounding={"decode_rate": 0.05}) for n, rate in enumerate(rates)
    ]
    assert notes_across(rows) == ()


def test_runs_identical_to_the_microsecond() -> None:
    rows = [row(n, predicted_ms=ms, predicted_n=200) for n, ms in enumerate((3219.482, 3301.113, 3219.482))]
    assert notes_across(rows) == (Message("audit.copies", examples=[["line 0", "line 2"]], more=""),)
    assert rule(rows, "t", "table").notes == notes_across(rows)
    assert {ruling.verdict for ruling in rule(rows, "t", "table").rulings} == {"cannot tell"}


def test_repeats_identical_to_the_last_digit() -> None:
    rows = [row(n, method="sd", gamma=4, decode_rate=61.437, rounding={"decode_rate": 0.0005}) for n in range(3)]
    assert notes_across(rows) == (Message("audit.copies", examples=[["line 0", "line 1", "line 2"]], more=""),)
    assert notes_across(rows[:2]) == ()
    other = [claim.model_copy(update={"gamma": n + 1}) for n, claim in enumerate(rows)]
    assert notes_across(other) == ()
    quoted = [row(n, method="none", decode_rate=1071.2940027174511, runs=n + 1) for n in range(4)]
    assert notes_across(quoted) == (), "one baseline beside several rows"


def test_samples_without_deviation() -> None:
    rows = [row(1, decode_rate=52.318273, decode_rate_sd=0.0, runs=5), row(2, decode_rate=9.0, samples=(9.0,) * 3)]
    assert notes_across(rows) == (Message("audit.still", rows=["line 1", "line 2"]),)
    rounded = row(1, decode_rate=52.3, decode_rate_sd=0.0, runs=5, rounding={"decode_rate": 0.05})
    assert notes_across([rounded]) == ()


def test_digits_that_are_too_regular() -> None:
    half = {"decode_rate": 0.05}
    made_up = [row(n, decode_rate=30 + 2.5 * n, rounding=half) for n in range(14)]
    assert notes_across(made_up) == (Message("audit.round_digits", count=14),)
    assert notes_across(made_up[:6]) == ()
    with_zeros = [row(n, decode_rate=300.0 + 25 * n, rounding=half) for n in range(14)]
    assert notes_across(with_zeros) == (Message("audit.round_digits", count=14),)
    whole = [row(n, decode_rate=300.0 + 7 * n, rounding=half) for n in range(14)]
    assert notes_across(whole) == (), "whole numbers, written with a zero behind the point"


def test_rates_that_are_one_multiple_of_their_baselines() -> None:
    half = {"decode_rate": 0.005, "baseline_rate": 0.005}
    plain = (41.37, 22.18, 87.02, 12.94, 63.16)
    rows = [row(n, decode_rate=1.5 * rate, baseline_rate=rate, rounding=half) for n, rate in enumerate(plain)]
    (note,) = notes_across(rows)
    assert (note.code, note.values["count"], note.values["ratio"]) == ("audit.one_ratio", 5, pytest.approx(1.5))
    assert note.values["rows"] == Message("audit.more_rows", rows=["line 0", "line 1", "line 2", "line 3"], count=1)


def test_a_baseline_of_another_machine() -> None:
    said = row(1, decode_rate=60.0, baseline_rate=40.0, device="M2 Ultra", baseline_device="M1 Max")
    devices = {"baseline_device": "M1 Max", "device": "M2 Ultra"}
    assert notes_across([said]) == (Message("audit.baseline_elsewhere", row="line 1", **devices),)
    plain = [
        row(1, method="none", target="9B", device="M1 Max", decode_rate=24.0),
        row(2, method="none", target="9B", device="M2 Ultra", decode_rate=42.4),
    ]
    drafted = row(3, method="draft-simple", target="9B", device="M2 Ultra", decode_rate=55.2, speedup=2.3)
    fits = Message("audit.speedup_elsewhere", row="line 3", plain="line 1", on="M1 Max", device="M2 Ultra")
    assert notes_across([*plain, drafted]) == (fits,)
    assert notes_across([*plain, drafted.model_copy(update={"speedup": 1.3})]) == ()


def test_a_large_table_takes_no_longer_than_its_rows() -> None:
    half = {"decode_rate": 0.0005, "baseline_rate": 0.0005}
    rows = [
        row(n, decode_rate=50 + n / 100, baseline_rate=40.0, speedup=1.5, device="a", rounding=half)
        for n in range(5_000)
    ]
    plain = [row(n, method="none", decode_rate=30 + n / 100, device="ab"[n % 2]) for n in range(5_000)]
    begun = time.process_time()
    notes_across([*rows, *plain])
    noise_of(rows)
    assert time.process_time() - begun < 10


def test_rows_of_the_same_name_in_other_files_are_not_mixed() -> None:
    half = {"decode_rate": 0.005, "baseline_rate": 0.005}
    same = [row(n, decode_rate=61.5, baseline_rate=41.0, rounding=half) for n in range(5)]
    other = [row(n, decode_rate=20.11 + n, rounding=half).model_copy(update={"source": "b.md"}) for n in range(5)]
    assert "audit.one_ratio" not in codes(notes_across([*same, *other]))


# --- tokens per step over draft length -------------------------------------------------------------------------------


def curve(*values: float, half: float = 0.005, **fields: Any) -> list[Claim]:
    rows = enumerate(values, start=1)
    return [row(n, gamma=n, tau=tau, rounding={"tau": half}, label=f"chain, gamma {n}", **fields) for n, tau in rows]


def test_a_curve_over_draft_length_that_no_chain_gives_is_told_with_the_error_it_needs() -> None:
    (falls,) = notes_across(curve(1.92, 2.61, 2.97, 3.16, 3.00))
    assert falls.code == "audit.curve_falls"
    assert falls.values["error"] == pytest.approx(0.075)
    assert (falls.values["before"], falls.values["at"]) == (4, 5)
    (bends,) = notes_across(curve(1.84, 2.45, 2.55, 2.95))
    assert bends.code == "audit.curve_bends"
    assert bends.values["error"] == pytest.approx(0.07)
    for told in (falls, bends):
        assert "chain, gamma" in str(told)


def test_a_fall_that_rounding_or_a_printed_error_explains_is_not_told() -> None:
    assert notes_across(curve(1.79, 2.27, 2.55, 2.54)) == ()
    assert notes_across(curve(1.92, 2.61, 2.97, 3.16, 3.00, half=0.09)) == ()


def test_rows_of_something_else_make_no_curve() -> None:
    steps = (1.9, 2.6, 3.2, 2.4)
    targets = [claim.model_copy(update={"target": str(n)}) for n, claim in enumerate(curve(*steps))]
    trees, dice = curve(*steps, tree=True), curve(*steps, synthetic=True)
    twice = [*curve(*steps), *curve(2.0, 2.8)]
    for rows in (targets, trees, dice, twice, curve(*steps, method="eagle")):
        assert not [note for note in notes_across(rows) if note.code.startswith("audit.curve")]
