"""Every claim of moe-306 can be supported and contradicted, by data that say so; wide intervals decide nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

import moe306_data as made
from claims_of import rulings, said, values
from moe306_data import Config
from said import codes
from specmeter.messages import Message
from specmeter_studies import find
from specmeter_studies.library.moe_306.lines import DENSE, SMALL, label
from specmeter_studies.study import PromptResult, RulingWord, StudyData

FLAT = made.study(1.2)
LOSING = made.study(0.6, lengths=((32, 0.7), (1024, 0.7)), kinds=(("fact", 0.7),))


def rising(config: Config) -> float:
    """As the paper says: dense 4B < MoE < dense 9B, larger gamma better, smaller draft better, Q8 better than Q4."""
    base = {"dense_4b": 1.0, "moe_q4": 1.2, "moe_q8": 1.3, "dense_9b": 1.6}[config.target]
    return base * (1 + config.gamma / 40) * (1.0 if config.draft == SMALL else 0.9)


def falling(config: Config) -> float:
    """The opposite in every respect."""
    base = {"dense_4b": 1.6, "moe_q4": 0.9, "moe_q8": 0.8, "dense_9b": 1.3}[config.target]
    return base * (1 - config.gamma / 40) * (1.0 if config.draft == SMALL else 1.1)


LOW, HIGH = 0.01, 0.7
"""Acceptance."""

PAPER = made.study(rising, acceptance=LOW)
OPPOSITE = made.study(falling, acceptance=HIGH, lengths=((32, 0.8), (1024, 0.7)), kinds=(("fact", 0.8), ("code", 0.7)))
WIDE = made.study(rising, acceptance=LOW, spread=0.9)


def test_data_that_follow_the_paper_support_it() -> None:
    """Steps cheaper than one plain token, as Eq. 2 has it, and everything that would follow."""
    expected = {
        "contribution-1", "contribution-2", "contribution-4",
        "finding-1", "finding-2", "finding-3", "finding-4",
        "practice-1", "practice-2", "practice-3", "section-5-3",
    }  # fmt: skip
    ruled = rulings(PAPER)
    assert {name for name, ruling in ruled.items() if ruling == "supported"} >= expected


def test_data_that_oppose_the_paper_contradict_it() -> None:
    expected = {
        "contribution-1", "contribution-2", "contribution-3", "contribution-4",
        "finding-1", "finding-2", "finding-3", "finding-4",
        "practice-1", "practice-2", "practice-3", "practice-4", "section-5-3", "equation-2",
    }  # fmt: skip
    ruled = rulings(OPPOSITE)
    assert {name for name, ruling in ruled.items() if ruling == "contradicted"} >= expected


def test_wide_intervals_decide_nothing() -> None:
    undecided = {name for name, ruling in rulings(WIDE).items() if ruling == "cannot tell"}
    assert undecided >= {
        "contribution-2",
        "finding-1",
        "finding-2",
        "finding-3",
        "practice-1",
        "practice-2",
        "practice-3",
    }


@pytest.mark.parametrize(
    "data", [PAPER, OPPOSITE, WIDE, FLAT, LOSING], ids=["paper", "opposite", "wide", "flat", "losing"]
)
def test_every_claim_is_ruled_once_and_says_why(data: StudyData) -> None:
    ruled = find("moe-306").claims(data)
    assert len({claim.id for claim in ruled}) == len(ruled) == 24
    for claim in ruled:
        assert claim.where, claim.id
        assert claim.claim, claim.id
        assert len(str(claim.found)) > 20, claim.id


def test_no_data_at_all_decides_nothing() -> None:
    empty = StudyData(study="moe-306", origin="measured", title="nothing")
    assert set(rulings(empty).values()) == {"cannot tell"}


def test_speedups_found_invalid_support_nothing() -> None:
    """The same numbers as in PAPER, but every arm invalid for a reason that has nothing to do with bounds."""
    arms = tuple(
        line.model_copy(
            update={
                "speedup": None,
                "claimed_speedup": line.speedup.point if line.speedup else None,
                "verdict": "invalid",
                "why": Message("study.because", name="output-degenerate", why="loops"),
            }
        )
        if line.speculates
        else line
        for line in made.study(0.3, acceptance=HIGH).arms
    )
    ruled = rulings(StudyData(study="moe-306", origin="measured", title="invalid", arms=arms, models=made.models()))
    assert "supported" not in {ruled[name] for name in ruled if name not in ("moe-tax", "moe-slower")}
    assert ruled["finding-2"] == ruled["practice-3"] == "cannot tell"


@pytest.mark.parametrize(("acceptance", "expected"), [(0.03, "supported"), (0.06, "contradicted")])
def test_acceptance_is_uniformly_low_or_not(acceptance: float, expected: RulingWord) -> None:
    data = made.study(0.5, acceptance=acceptance, lengths=(), kinds=())
    assert rulings(data)["contribution-1"] == expected


def test_one_configuration_above_contradicts_uniformly_low() -> None:
    def but_one(config: Config) -> float:
        return 0.5 if config == ("dense_9b", SMALL, 4) else 0.01

    data = made.study(0.5, acceptance=but_one, lengths=(), kinds=())
    assert rulings(data)["contribution-1"] == "contradicted"
    over = values(said(data, "contribution-1"), "moe-306.named")
    assert (over["target"], over["draft"], over["gamma"]) == (label("dense_9b"), label("draft_0.8b"), 4)


def test_amortization_is_measured_as_speedup_over_tau() -> None:
    """S = 0.9 at tau = 1 + 0.7 x 16 = 12.2: with nothing accepted, 0.074."""
    data = made.study(0.9, acceptance=HIGH)
    assert rulings(data)["contribution-2"] == "contradicted"
    assert said(data, "contribution-2").values["low"] == pytest.approx(0.074, abs=1e-3)


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ({"dense_4b": 1.0, "dense_9b": 1.2, "moe_q4": 1.4, "moe_q8": 1.4}, "supported"),
        ({"dense_4b": 1.0, "dense_9b": 1.2, "moe_q4": 1.1, "moe_q8": 1.1}, "contradicted"),
        ({"dense_4b": 1.0, "dense_9b": 1.005, "moe_q4": 1.4, "moe_q8": 1.4}, "cannot tell"),
    ],
)
def test_total_parameters_decide_or_not(speedups: dict[str, float], expected: RulingWord) -> None:
    data = made.study(lambda config: speedups[config.target])
    assert rulings(data)["contribution-3"] == expected


@pytest.mark.parametrize(("gain", "expected"), [(3.5, "supported"), (1.5, "contradicted"), (3.0, "cannot tell")])
def test_much_acceptance_makes_much_speed_or_not(gain: float, expected: RulingWord) -> None:
    data = made.study(gain, acceptance=HIGH)
    assert rulings(data)["practice-4"] == expected


def test_equation_2_is_right_only_where_everything_is_output() -> None:
    """tau = gamma where (gamma - 1) of gamma are accepted, and then only."""
    right = made.study(1.2, acceptance=lambda c: (c.gamma - 1) / c.gamma, spread=0.001)
    assert rulings(right)["equation-2"] == "supported"
    assert rulings(made.study(1.2, acceptance=HIGH))["equation-2"] == "contradicted"


@pytest.mark.parametrize(
    ("bandwidth", "moe_bytes", "expected"),
    [
        (800e9, 20e9, "contradicted"),  # 20 GB x 50 tok/s = 1000 GB/s on a machine of 800
        (None, 20e9, "contradicted"),  # no peak known, but dense models reach 500 GB/s at most
        (800e9, 9e9, "supported"),  # 450 GB/s, as dense models: all bytes would explain the rate
        (800e9, 6e9, "cannot tell"),
    ],
)
def test_inactive_experts_are_read_or_not(bandwidth: float | None, moe_bytes: float, expected: RulingWord) -> None:
    data = made.study(
        1.0,
        used=made.models(moe_bytes=moe_bytes),
        bandwidth=bandwidth,
        rates={
            "moe_q4": 50.0,
            "moe_q8": 50.0,
            "dense_9b": 55.0,
            "dense_0.8b": 500.0,
            "dense_2b": 200.0,
            "dense_4b": 100.0,
        },
    )
    assert rulings(data)["moe-tax"] == expected


@pytest.mark.parametrize(("of_16", "expected"), [(0.9, "supported"), (0.45, "contradicted")])
def test_verification_cost_is_the_step_without_its_drafts(of_16: float, expected: RulingWord) -> None:
    """tau is 3 at gamma 4 and 9 at 16; the rate at 16 decides how long a step takes."""

    def speedup(config: Config) -> float:
        return {4: 0.5, 8: 0.6, 16: of_16}[config.gamma]

    data = made.study(speedup, rates={"dense_0.8b": 5_000.0})
    assert rulings(data)["verification-cost"] == expected


def test_a_counter_that_only_says_all_is_no_evidence_of_robustness() -> None:
    results = tuple(
        PromptResult(config="moe_q4/lengths-g8", target="moe_q4", prompt="length-32", repeat=n, acceptance=1.0)
        for n in range(6)
    )
    data = made.study(rising, acceptance=LOW, results=results)
    ruled = rulings(data)
    assert ruled["finding-4"] == ruled["contribution-4"] == "cannot tell"
    assert "moe-306.lengths.all" in codes(said(data, "finding-4"))


@pytest.mark.parametrize("length", [32, 1024])
def test_one_length_that_loses_contradicts_robustness(length: int) -> None:
    lengths = tuple((n, 0.9 if n == length else 1.2) for n in (32, 1024))
    assert rulings(made.study(rising, acceptance=LOW, lengths=lengths))["finding-4"] == "contradicted"


def test_a_curve_that_falls_is_named() -> None:
    def but_one(config: Config) -> float:
        return 1.0 if (config.target, config.gamma) == (DENSE[0], 16) else rising(config)

    data = made.study(but_one, acceptance=LOW)
    assert rulings(data)["practice-3"] == "contradicted"
    assert rulings(data)["contribution-4"] == "supported"
    assert values(said(data, "practice-3"), "moe-306.curve")["target"] == label("dense_4b")


def test_claims_about_named_models_do_not_apply_to_bench_models() -> None:
    data = made.study(
        rising, acceptance=HIGH, used=tuple(it.model_copy(update={"stand_in": True}) for it in made.models())
    )
    elsewhere = {name for name, ruling in rulings(data).items() if ruling == "does not apply here"}
    assert elsewhere == {
        "contribution-1", "range", "draft-cost", "moe-slower", "compute-bound", "figure-5-cause", "experts",
        "section-5-2",
    }  # fmt: skip
    assert "moe-306.over" in codes(said(data, "contribution-1"))


@pytest.mark.parametrize(("apart", "expected"), [(0, "supported"), (2, "contradicted"), (None, "cannot tell")])
def test_texts_say_whether_quality_suffers(apart: int | None, expected: RulingWord) -> None:
    whole = made.study(1.2)
    arms = tuple(line.model_copy(update={"texts_apart": apart}) if line.speculates else line for line in whole.arms)
    assert rulings(replace(whole, arms=arms))["lossless"] == expected


@pytest.mark.parametrize(
    ("rate", "expected"), [(250.0 * 2.5, "cannot tell"), (250.0 * 1.5, "contradicted"), (250.0 * 4, "contradicted")]
)
def test_what_the_smaller_draft_costs(rate: float, expected: RulingWord) -> None:
    assert rulings(made.study(1.2, rates={"dense_0.8b": rate}))["draft-cost"] == expected


def test_a_draft_in_another_format_may_be_as_fast_as_its_bytes_permit() -> None:
    """138 against 110 tok/s, but in BF16: in Q8_0 it may be 1.88 times as fast, and 2.4 times is open."""
    formats = {"dense_0.8b": "BF16", "draft_0.8b": "Q8_0", "dense_2b": "Q8_0", "draft_2b": "Q8_0"}
    used = (
        *made.models(),
        *(made.models()[2].model_copy(update={"name": name}) for name in formats if "draft" in name),
    )
    used = tuple(it.model_copy(update={"quantization": formats.get(it.name, "")}) for it in used)
    data = made.study(1.2, rates={"dense_0.8b": 250.0 * 1.4}, used=used)
    assert rulings(data)["draft-cost"] == "cannot tell"
    other = values(said(data, "draft-cost"), "moe-306.format")
    assert (other["measured"], other["drafts_in"]) == ("BF16", "Q8_0")
    assert other["most"] == pytest.approx(1.88, abs=0.005)


def test_printed_values_rule_only_what_a_document_says_of_itself() -> None:
    """The same claimed speedups, which fall, as numbers of ours: found invalid, they say nothing of the claim."""
    arms = tuple(
        line.model_copy(update={"speedup": None, "claimed_speedup": 1.3 - (line.gamma or 0) / 40, "verdict": "invalid"})
        if line.speculates
        else line
        for line in made.study(1.2).arms
    )
    ours = StudyData(study="moe-306", origin="measured", title="t", arms=arms, models=made.models())
    assert rulings(ours)["practice-3"] == rulings(ours)["contribution-3"] == "cannot tell"
    assert rulings(replace(ours, origin="published"))["practice-3"] == "contradicted"


def test_the_best_configuration_is_named_where_it_is_another() -> None:
    data = made.study(lambda config: 1 - config.gamma / 40 - (0.1 if config.draft == SMALL else 0))
    assert rulings(data)["finding-3"] == "contradicted"
    best = values(values(said(data, "finding-3"), "moe-306.best")["best"], "moe-306.named")
    assert (best["draft"], best["gamma"]) == (label("draft_2b"), 4)
