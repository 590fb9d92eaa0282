"""apple-quant-ladder: rulings on the published numbers, both rulings of every claim, and the quick variant for real."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claims_of import rulings, said, values
from quant_data import SIZES, ladder
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter_studies import find, findings
from specmeter_studies.library.apple_quant_ladder.published import ladder as published
from specmeter_studies.measured import from_quality
from specmeter_studies.quality.plan import load_plan
from specmeter_studies.quality.planned import measure_plan
from specmeter_studies.rungs import Rung, faster, named, percent_change, rungs, worse
from specmeter_studies.study import StudyData

STUDY = find("apple-quant-ladder")

BOUND = {name: 36.8 * 8.4 / size for name, size in SIZES.items()}
"""Rates of a machine whose memory decides alone."""
GOOD = {"F16": 1.0, "Q8_0": 1.002, "Q6_K": 1.005, "Q5_K_M": 1.02, "Q4_K_M": 1.04, "Q3_K_M": 2.5, "Q2_K": 3.67}
BAD = {"F16": 1.0, "Q8_0": 1.05, "Q6_K": 1.2, "Q5_K_M": 1.1, "Q4_K_M": 1.3, "Q3_K_M": 1.2, "Q2_K": 1.5}
SLOW = {"F16": 60.0, "Q8_0": 55.0, "Q6_K": 40.0, "Q5_K_M": 45.0, "Q4_K_M": 42.0, "Q3_K_M": 41.0, "Q2_K": 40.0}
FALSE_BY_BAD = {
    "memory-bound", "smaller-is-faster", "q8-near-lossless", "q6-dominates-q5", "q6-numbers", "q4-suits",
    "sub-4-bit-unusable", "q2-perplexity",
}  # fmt: skip


def test_what_the_published_numbers_show() -> None:
    data = published()
    assert rulings(data) == {
        "memory-bound": "contradicted",
        "smaller-is-faster": "cannot tell",
        "q8-near-lossless": "supported",
        "q6-dominates-q5": "cannot tell",  # its half about quality is supported
        "q6-numbers": "cannot tell",
        "q4-suits": "supported",
        "sub-4-bit-unusable": "cannot tell",  # one file of one model
        "q2-perplexity": "cannot tell",  # 267 % [215, 328]
    }
    assert said(data, "q6-dominates-q5").values["half"] == Message("apple-quant-ladder.half.quality")
    # 8.424 GB x 36.79 tok/s and 1.798 GB x 72.77 tok/s, of 800 GB/s
    bound = said(data, "memory-bound")
    rates = [values(bound, "study.interval", at=at) for at in (0, 1)]
    assert [it["point"] for it in rates] == pytest.approx([310, 131], abs=0.5)
    assert (rates[0]["low"], rates[0]["high"]) == pytest.approx((170, 450), abs=0.5)
    assert values(bound, "apple-quant-ladder.of_peak")["share"] == pytest.approx(0.39, abs=0.005)
    assert said(data, "q6-numbers").values["less"] == pytest.approx(0.589, abs=5e-4)
    assert values(said(data, "q6-numbers"), "apple-quant-ladder.beside_q5")["size"] == pytest.approx(1.11, abs=0.005)
    step = values(said(data, "smaller-is-faster"), "apple-quant-ladder.step", at=2)
    assert (step["small"], step["large"]) == ("Q5_K_M", "Q6_K")
    assert values(step["ratio"], "study.interval")["point"] == pytest.approx(0.91, abs=0.005)
    below, by_name = (
        values(said(data, "sub-4-bit-unusable"), f"apple-quant-ladder.{it}") for it in ("loss_by_bits", "bits")
    )
    assert (below["name"], by_name["name"]) == ("Q2_K", "Q3_K_M")
    assert (below["bits"], by_name["bits"]) == pytest.approx((3.42, 4.29), abs=0.005)
    assert values(below["loss"], "study.interval")["point"] == pytest.approx(3.67, abs=0.005)


def test_the_spread_of_the_published_rates_is_what_widens_their_ratios() -> None:
    found = rungs(published())
    five, six, two, three = (named(found, name) for name in ("Q5_K_M", "Q6_K", "Q2_K", "Q3_K_M"))
    assert five is not None
    assert six is not None
    assert two is not None
    assert three is not None
    # Welch: ln(61.98 / 56.60) +- 2.47 sqrt((13.69 / 61.98)^2 / 4 + (10.81 / 56.60)^2 / 4)
    assert faster(six, five) == _near(1.0951, 0.764, 1.570)
    assert faster(two, three) == _near(1.0585, 1.054, 1.063)


def test_published_perplexities_are_paired_window_by_window() -> None:
    """From the running values after each of ten windows: the last one is the perplexity that the document prints."""
    ladder = {rung.name: rung for rung in rungs(published())}
    changes = {
        (ours, theirs): percent_change(worse(ladder[ours], ladder[theirs]))
        for ours, theirs in (("Q8_0", "F16"), ("Q4_K_M", "F16"), ("Q6_K", "Q5_K_M"), ("Q2_K", "F16"))
    }
    found = {pair: (it.point, it.low, it.high) for pair, it in changes.items() if it is not None}
    assert found["Q8_0", "F16"] == pytest.approx((0.18, 0.01, 0.34), abs=0.006)
    assert found["Q4_K_M", "F16"] == pytest.approx((4.06, 1.39, 6.79), abs=0.006)
    assert found["Q6_K", "Q5_K_M"] == pytest.approx((-1.19, -2.26, -0.11), abs=0.006)
    assert found["Q2_K", "F16"] == pytest.approx((267.3, 214.9, 328.3), abs=0.06)
    for rung in ladder.values():
        assert rung.perplexity is not None
        assert len(rung.perplexity.window_surprise) == 10


def test_perplexities_without_windows_are_compared_by_their_printed_errors() -> None:
    def bare(name: str) -> Rung:
        rung = named(rungs(published()), name)
        assert rung is not None
        assert rung.perplexity is not None
        score = rung.perplexity.model_copy(update={"window_surprise": ()})
        return replace(rung, quality=rung.quality.model_copy(update={"perplexity": score}))

    # ln(40.6023 / 12.6678) +- 1.96 sqrt((2.6316 / 40.6023)^2 + (0.7126 / 12.6678)^2)
    assert worse(bare("Q2_K"), bare("Q3_K_M")) == _near(3.2052, 2.709, 3.793)


class _Near:
    def __init__(self, point: float, low: float, high: float) -> None:
        self.values = (point, low, high)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Estimate)
        return (other.point, other.low, other.high) == pytest.approx(self.values, rel=0.004)

    def __repr__(self) -> str:
        return f"about {self.values}"

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _near(point: float, low: float, high: float) -> _Near:
    return _Near(point, low, high)


def test_a_ladder_as_the_document_has_it_supports_everything() -> None:
    good = rulings(ladder(BOUND, GOOD))
    # Memory-bound rates rise with every byte less, so Q6_K cannot be faster than Q5_K_M; and one file is not all.
    others = {name: ruling for name, ruling in good.items() if ruling != "supported"}
    assert others == {"q6-dominates-q5": "contradicted", "sub-4-bit-unusable": "cannot tell"}
    dominating = {**BOUND, "Q5_K_M": BOUND["Q6_K"] * 0.9}
    assert rulings(ladder(dominating, GOOD))["q6-dominates-q5"] == "supported"


def test_a_ladder_of_the_opposite_contradicts_everything() -> None:
    found = rulings(ladder(SLOW, BAD))
    assert {name for name, ruling in found.items() if ruling == "contradicted"} == FALSE_BY_BAD


def test_wide_spreads_decide_nothing_about_speed() -> None:
    found = rulings(ladder(BOUND, GOOD, noise=0.6))
    assert found["smaller-is-faster"] == "cannot tell"
    assert found["q6-dominates-q5"] == "cannot tell"


def test_rungs_that_are_missing_are_said_to_be() -> None:
    few = {name: BOUND[name] for name in ("F16", "Q8_0")}
    data = ladder(few, GOOD)
    assert rulings(data)["q6-dominates-q5"] == rulings(data)["sub-4-bit-unusable"] == "cannot tell"
    assert said(data, "q6-dominates-q5").code == "apple-quant-ladder.needs.both"
    assert set(rulings(StudyData(study="apple-quant-ladder", origin="measured", title="")).values()) == {"cannot tell"}


def test_the_document_s_table_and_figures() -> None:
    data = published()
    table = STUDY.tables(data)[0]
    assert [row[0].text for row in table.rows] == list(SIZES)
    assert len(table.columns) == len(table.rows[0])
    assert table.verdicts == (None,) * 7  # no bound refutes any of the rates
    change = table.rows[6][[column.code for column in table.columns].index("change [%]")].value
    assert isinstance(change, Estimate)
    assert change.point == pytest.approx(267.3, abs=0.05)
    assert [figure.key for figure in STUDY.figures(data)] == ["rate-by-size", "perplexity-by-size", "bytes-per-second"]
    assert all(len(figure.points) == 7 for figure in STUDY.figures(data))
    front = {point.x: point.series for point in STUDY.figures(data)[1].points}
    assert front[3.464055584] == "on the front"


def test_nothing_is_drawn_of_nothing() -> None:
    empty = StudyData(study="apple-quant-ladder", origin="measured", title="")
    assert STUDY.tables(empty) == STUDY.figures(empty) == ()


@pytest.mark.slow
def test_the_quick_variant_for_real() -> None:
    loaded = load_plan("apple-quant-ladder", ["threads=1"], variants=["bench", "quick"])
    kept: list[bool] = []
    report = measure_plan(loaded, progress=lambda *_: None, keep=lambda it: kept.append(it.complete))
    assert kept[-1]
    assert len(kept) == 7 + 2 + 1  # a score of each model, two blocks, the whole
    assert [model.model.name for model in report.models] == list(GOOD)
    assert not report.skipped
    assert report.applied == ("bench", "quick")
    found = findings("apple-quant-ladder", from_quality("apple-quant-ladder", report, part="apple-quant-ladder"))
    assert found.data.title == Message("study.measured.bench")
    assert {claim.id for claim in found.claims} == FALSE_BY_BAD
    assert [len(table.rows) for table in found.tables] == [7, 7]
    files = {row[0].text: row[2].text for row in found.tables[1].rows}
    assert files["bench Q4_K_M"] == "43 Q4_K, 7 Q6_K, 29 F32"
