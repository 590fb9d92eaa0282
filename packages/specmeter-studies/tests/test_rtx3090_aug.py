"""rtx3090-aug: what the repetition of August says, recomputed from its blocks, and what it leaves of April's claims."""

from __future__ import annotations

import math

import pytest

from claims_of import ruled, rulings, said, values
from specmeter.audit import published as tables
from specmeter.record import Estimate
from specmeter_studies import findings
from specmeter_studies.library.rtx3090_aug.extra import gains, matrix, over_runs, published, timed
from specmeter_studies.study import ArmResult, ModelUsed, StudyData


def change(name: str, run: str) -> Estimate:
    found = next(it.change for it in matrix(published()) if (it.line.config, it.line.suite) == (name, run))
    assert found is not None
    return found


def test_what_the_published_numbers_say_of_each_claim() -> None:
    assert rulings(published()) == {
        "own-layers-gain": "supported",
        "dflash-figure": "contradicted",  # eight of twelve runs lie outside
        "ngram-map": "supported",
        "checkpoints": "supported",
        "april-no-gain": "supported",  # of April's methods
        "april-in-general": "contradicted",
        "april-full-acceptance": "contradicted",
        "april-kv-quantization": "supported",
        "april-draft-choice": "supported",
        "april-saturation-explains": "contradicted",
    }


def test_an_interval_made_from_blocks_is_the_one_that_the_source_prints() -> None:
    """Its formula is ours: the mean of logarithms over nine paired blocks, with Student's t."""
    printed = {it["label"]: it for it in tables.cells("rtx3090-aug/matrix.csv")}
    for run in ("O2", "O3"):
        ours, theirs = change("spec-dflash-n2", run), printed[f"spec-dflash-n2, {run}"]
        assert ours.n == len(gains()[run]) == 9
        for value, name in ((ours.point, "change_percent"), (ours.low, "ci_low"), (ours.high, "ci_high")):
            assert value == pytest.approx(float(theirs[name]), abs=0.006)


@pytest.mark.parametrize(
    ("name", "point", "low", "high"),
    [
        ("spec-dflash-n2", 26.3, 25.5, 27.1),
        ("spec-mtp-n2", 22.7, 22.1, 23.3),
        ("spec-dflash-n4", 19.2, 18.5, 19.9),
        ("ngram-map-k4v-m8", -0.3, -0.6, 0.0),
        ("ngram-mod-n24", -10.9, -11.4, -10.5),
        ("ngram-cache", -19.0, -19.4, -18.6),
        ("spec-draft-n8", -73.3, -73.5, -73.2),
        ("spec-draft-n1", -74.8, -74.9, -74.7),
    ],
)
def test_the_matrix_of_nine_blocks(name: str, point: float, low: float, high: float) -> None:
    found = change(name, "O2")
    assert (found.point, found.low, found.high) == pytest.approx((point, low, high), abs=0.06)


def test_runs_differ_by_more_than_the_interval_of_one_allows() -> None:
    ours = over_runs()
    means = {run: math.prod(ratios) ** (1 / len(ratios)) - 1 for run, ratios in gains().items()}
    assert len(means) == ours.n == 12
    assert 100 * min(means.values()) == pytest.approx(17.3, abs=0.05)
    assert (ours.point, ours.low, ours.high) == pytest.approx((1.234, 1.216, 1.253), abs=0.001)
    assert values(said(published(), "dflash-figure"), "rtx3090-aug.figure")["outside"] == 8


def test_checkpoints_take_more_than_half_of_what_drafts_add() -> None:
    """39.07 s of 71.4 s in run T: 3,000 tokens at 30.85 and at 116.34 tok/s."""
    passes = timed(published())
    assert [it.run for it in passes] == ["T"] * 4 + ["T3"] * 3
    assert passes[0].excess_s == pytest.approx(3000 / 30.85 - 3000 / 116.34)
    assert [round(100 * it.share, 1) for it in passes] == [54.7] * 4 + [54.6, 54.7, 54.4]
    told = values(said(published(), "checkpoints"), "rtx3090-aug.checkpoints")
    assert (told["spent"], told["excess"], told["create"]) == pytest.approx((39.1, 71.6, 22.1), abs=0.06)


def test_tables_and_figures() -> None:
    found = findings("rtx3090-aug", published())
    assert {it.key: len(it.rows) for it in found.tables} == {"matrix": 17, "runs": 12, "checkpoints": 7}
    assert {it.key: len(it.points) for it in found.figures} == {"gain": 16, "blocks": 43}


def line(config: str, method: str, speedup: float, width: float = 0.01) -> ArmResult:
    own = Estimate(point=speedup, low=speedup - width, high=speedup + width, n=9, unit="x", method="made up")
    return ArmResult(config=config, target="moe", method=method, gamma=2, requests=9, speedup=own, verdict="valid")


def measured(*lines: ArmResult) -> StudyData:
    used = ModelUsed(name="moe", reference="moe", experts=256, experts_used=8)
    return StudyData(study="rtx3090-aug", origin="measured", title="", arms=lines, models=(used,))


def test_a_run_of_our_own_is_ruled_by_the_same_rules() -> None:
    losing = measured(line("moe/spec-dflash-n2", "draft-dflash", 0.9), line("moe/ngram-cache", "ngram-cache", 1.2))
    found = {name: claim.ruling for name, claim in ruled(losing).items()}
    assert found["own-layers-gain"] == "contradicted"
    assert found["april-no-gain"] == found["april-saturation-explains"] == "contradicted"
    wide = measured(line("moe/spec-mtp-n2", "draft-mtp", 1.1, 0.2), line("moe/ngram-map", "ngram-map-k4v", 1.0, 0.1))
    found = {name: claim.ruling for name, claim in ruled(wide).items()}
    assert found["own-layers-gain"] == found["ngram-map"] == found["april-in-general"] == "cannot tell"
    assert {claim.ruling for claim in ruled(measured()).values()} <= {"cannot tell"}
