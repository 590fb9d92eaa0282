"""Studies of drafts on Apple silicon: the document's own numbers, and data that say either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import specmeter_studies as studies
from claims_of import ruled, values
from ratio_data import Made, data, estimate
from said import all_said, codes
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter.theory.cost import break_even_rate
from specmeter.workloads.spec import BenchWorkload, StudiesWorkload
from specmeter_studies.pairings import pairings
from specmeter_studies.rungs import faster, named, rungs
from specmeter_studies.show.tables import configurations, rulings
from specmeter_studies.study import ModelUsed, StudyData

RATES = {"9B_Q8": 40.0, "0.8B_Q8": 132.0, "2B_Q8": 104.0}
FAST, LESS = "0.8B_Q8", "2B_Q8"
SELF = {"4B_Q8": 50.0, "4B_Q2": 67.0, "4B_Q6": 57.0}
MOE = {"35B_Q4": 55.0, "9B_Q8": 40.0, "0.8B_Q8": 140.0, "4B_Q4": 58.0}
MIXTURE = ModelUsed(name="35B_Q4", reference="m", size_bytes=20e9, bytes_per_token=2e9, experts=256, experts_used=8)
DENSE = ModelUsed(name="9B_Q8", reference="d", size_bytes=13e9, bytes_per_token=13e9, experts=0)


def sd(*arms: Made, spread: float = 1.001) -> StudyData:
    return data("apple-sd", RATES, arms, spread=spread)


def alone(*arms: Made, **rates: float) -> StudyData:
    return data("self-speculation", SELF | rates, arms)


def moe(*arms: Made, bandwidth: float | None = 800e9) -> StudyData:
    return data("moe-sd", MOE, arms, models=(MIXTURE, DENSE), bandwidth=bandwidth)


def published(name: str) -> StudyData:
    found = studies.find(name).published()
    assert found is not None
    return found


def _needs(found: Message) -> object:
    """Acceptance in percent that the first draft needs for break-even, were verification free."""
    asked = next(it for it in all_said(found) if it.code.startswith("apple-sd.needs"))
    return values(asked.values["least"], "study.share")["percent"]


# --- the document's numbers ------------------------------------------------------------------------------------------


def test_published_gain_at_low_acceptance_is_above_what_acceptance_permits() -> None:
    claims = ruled(published("apple-sd"))
    gain = claims["gain-at-low-acceptance"]
    assert gain.ruling == "contradicted"
    permitted = values(gain.found, "apple-sd.permitted")
    assert (permitted["claimed"], permitted["tau"]) == pytest.approx((1.257, 1.133), abs=5e-4)
    assert values(permitted["with_drafts"], "apple-sd.with_drafts")["least"] == pytest.approx(0.51, abs=5e-3)
    assert {claims[name].ruling for name in ("speed-ratio-governs", "rule-2.5", "best-arm")} == {"cannot tell"}
    rule = claims["rule-2.5"].found
    assert (values(rule, "study.some_of")["number"], values(rule, "study.some_of")["of"]) == (4, 4)
    assert gain.found.code == "apple-sd.failed"
    assert gain.rests_on == "counts"
    assert _needs(rule) == pytest.approx(30.3, abs=0.05)


def test_a_bound_that_rests_on_an_assumption_contradicts_no_claim_by_itself() -> None:
    """Above tau, but no log: a verification that is cheaper than one plain token is not ruled out by counting."""
    claimed = Made("9B_Q8", FAST, 4, None, 0.03, verdict="implausible", claimed=1.5)
    alone = ruled(sd(claimed))["gain-at-low-acceptance"]
    assert alone.ruling == "cannot tell"
    assert alone.found.code == "apple-sd.needs_cheaper"


def test_no_published_speedup_of_these_studies_is_left() -> None:
    for name, runs in (("apple-sd", 12), ("self-speculation", 12), ("moe-sd", 9)):
        made = published(name)
        assert len(made.results) == runs
        assert {row.verdict for row in made.results} == {"invalid", "implausible"}
        lines = [line for line in made.arms if line.speculates]
        assert all(line.speedup is None and line.claimed_speedup is not None for line in lines)
        assert all(
            point.verdict in ("invalid", "implausible")
            for f in studies.findings(name, made).figures
            for point in f.points
        )


def test_published_self_speculation_rests_on_a_baseline_that_is_hardly_known() -> None:
    claims = ruled(published("self-speculation"))
    assert {claim.ruling for claim in claims.values()} == {"cannot tell"}
    rate = values(claims["self-ratio"].found.values["target_rate"], "study.interval")
    assert (rate["point"], rate["low"], rate["high"]) == pytest.approx((54.0, 23.0, 85.1), abs=0.05)


def test_a_printed_ratio_has_the_interval_that_the_ladder_gives_it() -> None:
    ladder, pairs = rungs(published("apple-quant-ladder")), pairings(published("self-speculation"))
    two, eight = named(ladder, "Q2_K"), named(ladder, "Q8_0")
    assert two is not None
    assert eight is not None
    expected, found = faster(two, eight), next(pair.ratio for pair in pairs if pair.line.draft == "4B_Q2")
    assert expected is not None
    assert found is not None
    assert (found.point, found.low, found.high) == pytest.approx(
        (expected.point, expected.low, expected.high), rel=1e-3
    )


def test_published_mixture_reads_fewer_weights_than_it_has() -> None:
    claims = ruled(published("moe-sd"))
    assert claims["few-active"].ruling == "supported"
    decodes = values(claims["few-active"].found, "moe-sd.decodes")
    assert (decodes["whole"], decodes["peak"]) == pytest.approx((1137, 800), abs=0.5)
    assert claims["moe-no-benefit"].ruling == "cannot tell"
    assert claims["routing-unreliable"].ruling == "cannot tell"
    counted = values(claims["routing-unreliable"].found, "moe-sd.counted", at=-1)
    assert (counted["name"], counted["target"]) == ("0.8B_Q8 k=4", "9B_Q8")


# --- data that say either --------------------------------------------------------------------------------------------


def test_a_ratio_that_decides_is_supported() -> None:
    made = sd(Made("9B_Q8", FAST, 4, 1.5, 0.8), Made("9B_Q8", LESS, 4, 1.2, 0.8))
    assert ruled(made)["speed-ratio-governs"].ruling == "supported"
    assert ruled(made)["best-arm"].ruling == "supported"


def test_a_slower_draft_that_gains_more_contradicts_the_ratio() -> None:
    made = sd(Made("9B_Q8", FAST, 4, 1.2, 0.6), Made("9B_Q8", LESS, 4, 1.5, 0.9))
    assert ruled(made)["speed-ratio-governs"].ruling == "contradicted"
    assert ruled(made)["best-arm"].ruling == "contradicted"


def test_one_draft_with_two_speedups_contradicts_the_ratio() -> None:
    by_length = sd(Made("9B_Q8", FAST, 4, 1.5, 0.8), Made("9B_Q8", FAST, 8, 1.2, 0.6))
    assert ruled(by_length)["speed-ratio-governs"].ruling == "contradicted"
    by_text = sd(
        Made("9B_Q8", FAST, 4, 1.2, 0.6),
        Made("9B_Q8", FAST, 4, 1.6, 0.9, prompt="code"),
        Made("9B_Q8", FAST, 4, 0.8, 0.3, prompt="fact"),
    )
    assert ruled(by_text)["speed-ratio-governs"].ruling == "contradicted"
    assert values(ruled(by_text)["speed-ratio-governs"].found, "study.pair.on")["prompt"] in ("code", "fact")


def test_wide_intervals_decide_nothing() -> None:
    made = sd(Made("9B_Q8", FAST, 4, 1.2, 0.6, spread=3.0), Made("9B_Q8", LESS, 4, 1.5, 0.9, spread=3.0))
    claims = ruled(made)
    assert {claims[name].ruling for name in ("speed-ratio-governs", "rule-2.5", "best-arm")} == {"cannot tell"}


def test_the_rule_is_supported_where_every_arm_is_on_its_side() -> None:
    slow = {"4B_Q8": 90.0}
    made = data("apple-sd", RATES | slow, [Made("9B_Q8", FAST, 4, 1.3, 0.8), Made("9B_Q8", "4B_Q8", 4, 0.8, 0.8)])
    assert ruled(made)["rule-2.5"].ruling == "supported"


def test_the_rule_is_contradicted_from_both_sides() -> None:
    losing = ruled(sd(Made("9B_Q8", FAST, 4, 0.8, 0.2)))["rule-2.5"]
    assert losing.ruling == "contradicted"
    assert _needs(losing.found) == pytest.approx(30.3, abs=0.05)
    gaining = alone(Made("4B_Q8", "4B_Q2", 4, 1.1, 0.95))
    assert ruled(gaining)["self-needs-2.5"].ruling == "contradicted"


def test_a_ratio_that_is_hardly_known_decides_nothing_about_the_rule() -> None:
    made = sd(Made("9B_Q8", LESS, 4, 0.8, 0.2), spread=1.2)
    (pair,) = pairings(made)
    assert pair.side == "across"
    assert ruled(made)["rule-2.5"].ruling == "cannot tell"


def test_invalid_speedups_support_nothing() -> None:
    made = sd(Made("9B_Q8", FAST, 4, None, 0.8, verdict="invalid", claimed=1.5))
    assert {claim.ruling for claim in ruled(made).values()} == {"cannot tell"}


def test_gain_at_low_acceptance_is_supported_by_a_gain_there() -> None:
    made = sd(Made("9B_Q8", FAST, 4, 1.26, 0.03))
    assert ruled(made)["gain-at-low-acceptance"].ruling == "supported"


def test_gain_at_low_acceptance_is_contradicted_by_a_loss_there_or_by_the_cost_of_steps() -> None:
    assert ruled(sd(Made("9B_Q8", FAST, 4, 0.5, 0.03)))["gain-at-low-acceptance"].ruling == "contradicted"
    projected = ruled(sd(Made("9B_Q8", FAST, 4, 1.4, 0.8)))["gain-at-low-acceptance"]
    assert projected.ruling == "contradicted"
    assert projected.found.values["cost"] == pytest.approx(3)
    cheap = ruled(sd(Made("9B_Q8", FAST, 4, 4.2, 0.8)))["gain-at-low-acceptance"]
    assert cheap.ruling == "cannot tell"


def test_self_speculation_in_both_directions() -> None:
    losing = ruled(alone(Made("4B_Q8", "4B_Q2", 4, 0.75, 0.9), Made("4B_Q8", "4B_Q6", 4, 0.7, 0.95)))
    # Losers below 2.5 place no threshold: that needs an arm above it that gains.
    assert losing.pop("self-needs-2.5").ruling == "cannot tell"
    assert {claim.ruling for claim in losing.values()} == {"supported"}
    both = ruled(alone(Made("4B_Q8", "4B_Q2", 4, 1.2, 0.9), Made("4B_Q8", "4B_Q6", 4, 0.7, 0.95), **{"4B_Q2": 150.0}))
    assert both["self-needs-2.5"].ruling == "supported"
    gaining = ruled(alone(Made("4B_Q8", "4B_Q2", 4, 1.2, 0.9), **{"4B_Q2": 150.0}))
    assert gaining["self-loses"].ruling == "contradicted"
    assert gaining["self-ratio"].ruling == "contradicted"
    assert gaining["self-needs-2.5"].ruling == "cannot tell"


def test_moe_in_both_directions() -> None:
    on_dense = Made("9B_Q8", FAST, 4, 1.5, 0.9)
    losing = ruled(moe(Made("35B_Q4", FAST, 4, 0.9, 0.1), Made("35B_Q4", "4B_Q4", 4, 0.6, 0.1), on_dense))
    assert losing["moe-no-benefit"].ruling == "supported"
    assert losing["routing-unreliable"].ruling == "supported"
    gaining = ruled(moe(Made("35B_Q4", FAST, 4, 1.1, 0.88), on_dense))
    assert gaining["moe-no-benefit"].ruling == "contradicted"
    assert gaining["routing-unreliable"].ruling == "contradicted"
    assert "moe-sd.dearer" in codes(gaining["routing-unreliable"].found)


def test_whether_fewer_weights_are_read_needs_a_memory_that_all_would_exceed() -> None:
    made = Made("35B_Q4", FAST, 4, 0.9, 0.5)
    assert ruled(moe(made))["few-active"].ruling == "supported"
    assert ruled(moe(made, bandwidth=2000e9))["few-active"].ruling == "cannot tell"
    assert ruled(moe(made, bandwidth=None))["few-active"].ruling == "cannot tell"


def test_what_break_even_asks_for() -> None:
    (pair,) = pairings(sd(Made("9B_Q8", FAST, 4, 1.4, 0.8)))
    assert pair.ratio is not None
    assert pair.ratio.point == pytest.approx(3.3)
    assert pair.least_acceptance == pytest.approx(1 / 3.3)
    assert pair.needed_acceptance == pytest.approx(break_even_rate(4, (1 + 0.8 * 4) / 1.4))
    assert pair.needed_acceptance == pytest.approx(0.5)


# --- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "drafted", "plain", "once"),
    [("apple-sd", 60, 45, 12), ("self-speculation", 60, 75, 12), ("moe-sd", 45, 60, 6)],
)
def test_counts(name: str, drafted: int, plain: int, once: int) -> None:
    """The bench variant has the counts of the experiment itself; `faithful` those of the document."""

    def counts(*variants: str) -> tuple[int, int, int]:
        experiment = load(name, variants=variants).experiment
        (workload,) = experiment.workloads
        assert isinstance(workload, BenchWorkload | StudiesWorkload)
        each = len(workload.kinds) * workload.per_kind * experiment.design.blocks
        arms = experiment.expand()
        speculative = sum(arm.speculates for arm in arms)
        return speculative * each, (len(arms) - speculative) * each, experiment.generation.max_tokens

    assert counts() == counts("bench") == (drafted, plain, 201)
    assert counts("faithful", "bench")[0] == once
    assert load(name, variants=["faithful"]).experiment.design.order == "grouped"


def test_a_quick_run_becomes_findings(tmp_path: Path) -> None:
    """One of the three: what is stored becomes pairs, a table with a row for each arm, and rulings."""
    from specmeter.cli import invoke
    from specmeter_studies.measured import from_run

    folder = tmp_path / "run"
    command = ["run", "apple-sd", "--variant", "bench", "--variant", "quick", "--out", str(folder)]
    small = "targets: {dense: {}, small: {base_ms: 9.0}}, drafts: {small: {token_ms: 9.0, other_acceptance: [0.8]}}"
    changes = ["engine.kind=mock", f"engine.mock={{{small}}}", "engine.context=1024", "targets.9B_Q8=mock:dense"]
    changes += [f"{kind}.{name}=mock:small" for kind in ("targets", "drafts") for name in ("0.8B_Q8", "2B_Q8")]
    assert invoke([*command, *(word for change in changes for word in ("--set", change))]) in (0, 1)
    found = studies.findings("apple-sd", from_run("apple-sd", folder))
    assert len(found.data.results) == 2 * 7 * 3
    pairs = pairings(found.data)
    assert [(pair.line.draft, pair.line.gamma) for pair in pairs] == [
        ("0.8B_Q8", 4), ("0.8B_Q8", 8), ("2B_Q8", 4), ("2B_Q8", 8),
    ]  # fmt: skip
    assert all(pair.ratio is not None and pair.ratio.point > 0 for pair in pairs)
    assert all(pair.line.tau is not None and pair.line.tau.point > 1.5 for pair in pairs)
    assert [len(table.rows) for table in found.tables] == [4, 12]
    assert len(found.claims) == 4


def test_tables_and_figures_cite_what_the_run_itself_shows() -> None:
    made = sd(Made("9B_Q8", "0.8B_Q8", 4, 1.4, 0.6), Made("9B_Q8", "2B_Q8", 4, 1.2, 0.6))
    wide = estimate(1.4, 1.2)
    lines = [it.model_copy(update={"looks": 3, "cited": wide if it.speedup else None}) for it in made.arms]
    found = studies.findings("apple-sd", replace(made, arms=tuple(lines)))
    place = [str(it) for it in found.tables[0].columns].index("speedup")
    assert [row[place].value for row in found.tables[0].rows] == [wide, wide]
    assert all(it.low == wide.low for figure in found.figures[:1] for it in figure.points)
    shown = configurations(found.data)
    place = [it.key for it in shown.columns].index("speedup")
    assert [row.cells[place].estimate for row in shown.rows if row.cells[place].estimate] == [wide, wide]
    assert "3 looks" in str(rulings(found.claims, found.data).about)
    assert "1.40 [1.17, 1.68]" not in str(found.claims[0].found), "rulings widen the arm's own"
