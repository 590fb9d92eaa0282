"""rtx3090-38: what the second study's numbers say, with intervals as wide as its authors' own simulation asks for."""

from __future__ import annotations

import numpy as np
import pytest

from claims_of import ruled, rulings, said, values
from specmeter.record import Estimate
from specmeter_studies import findings
from specmeter_studies.library.rtx3090_38.extra import arms, fact, published, steps, widening
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, StudyData


def test_what_the_published_numbers_say_of_each_claim() -> None:
    assert rulings(published()) == {
        "mtp-gains": "supported",
        "mtp-figure": "supported",
        "best-n-max": "cannot tell",  # 58.8 [55.9, 61.9] and 52.4 [48.5, 56.6] overlap
        "predecessor-loses": "supported",
        "cost-per-position": "supported",
        "cost-concave": "contradicted",
        "past-width-8": "supported",
        "ngram-mod-idle": "supported",
        "divergence": "supported",
        "architecture": "cannot tell",  # withdrawn by its authors
        "april-no-gain": "supported",
        "april-in-general": "contradicted",
        "april-saturation-explains": "contradicted",
        "august-own-layers": "supported",
        "august-lengths": "cannot tell",
        "august-checkpoints": "supported",
    }


def test_intervals_are_widened_to_the_coverage_that_was_simulated() -> None:
    """Half a nominal interval is 1.96 deviations of a normal; one that holds in 86.3 % of cases is 1.487."""
    assert widening() == pytest.approx(1.95996 / 1.48702, rel=1e-4)
    shown = {it.name: it for it in arms(published())}
    one = shown["mtp-n7 n-max"]
    assert one.change is not None
    assert one.sure_change is not None
    assert (one.change.point, one.change.low, one.change.high) == (9.14, 3.74, 14.55)
    assert one.sure_change.low == pytest.approx(9.14 - 1.31805 * 5.40, abs=0.001)
    only_just = shown["ngram-map-k C"].sure  # -0.19 [-0.29, -0.09], which its authors tell not to lean on
    assert only_just is not None
    assert only_just.high == pytest.approx(1 - 0.0019 + 1.31805 * 0.0010, abs=1e-5)


def test_an_interval_that_only_just_excludes_a_value_decides_nothing() -> None:
    """Phase M's MTP with n-max 7 on the mixture: 4.39 [-0.30, 9.37]; with +0.8 it would exclude zero by a little."""
    shown = {it.name: it for it in arms(published())}
    moe, own = shown["moe-mtp-n7 M"], shown["dense-mtp-n7 M"]
    assert moe.sure is not None
    assert own.sure is not None
    assert moe.sure.low is not None
    assert own.sure.low is not None
    assert moe.sure.low < 1 < own.sure.low  # 8.95 [3.58, 14.38]
    told = values(said(published(), "april-in-general"), "rtx3090-38.gaining")
    assert told["n"] == 4


def test_changes_read_as_they_were_printed() -> None:
    found = next(it.change for it in arms(published()) if it.name == "moe-mtp-n2 M")
    assert found is not None
    assert (found.point, found.low, found.high) == (29.16, 26.58, 31.75)


def test_later_positions_cost_more_and_a_kernel_ends_the_curve() -> None:
    mtp = {it.width: it.k for it in steps() if it.method == "draft-mtp"}
    each = np.diff([1.0, *(mtp[width] for width in range(2, 9))])  # a step of one token costs at least 1
    assert each[0] == pytest.approx(0.2302)
    assert each[:3].mean() < each[4:].mean()
    slope, start = np.polyfit(range(2, 9), [mtp[width] for width in range(2, 9)], 1)
    assert slope == pytest.approx(float(fact("c-mtp")["value"]), abs=5e-5)  # their fit, from the k that they print
    told = values(said(published(), "past-width-8"), "rtx3090-38.past")
    assert told["below"] == pytest.approx(1 - 2.3788 / (start + 9 * slope))
    assert round(100 * float(str(told["below"]))) == 26


def test_tables_and_figures() -> None:
    found = findings("rtx3090-38", published())
    assert {it.key: len(it.rows) for it in found.tables} == {"arms": 46, "steps": 12}
    assert {it.key: len(it.points) for it in found.figures} == {"gain": 12, "steps": 12}


def line(config: str, method: str, speedup: float, gamma: int = 2) -> ArmResult:
    own = Estimate(point=speedup, low=speedup - 0.01, high=speedup + 0.01, n=9, unit="x", method="made up")
    return ArmResult(config=config, target="it", method=method, gamma=gamma, requests=9, speedup=own, verdict="valid")


def measured(*lines: ArmResult, experts: int | None = None, results: tuple[PromptResult, ...] = ()) -> StudyData:
    used = ModelUsed(name="it", reference="it", experts=experts, experts_used=experts and 8)
    return StudyData(study="rtx3090-38", origin="measured", title="", arms=lines, models=(used,), results=results)


def test_a_run_of_our_own_is_ruled_by_the_same_rules() -> None:
    dense = rulings(measured(line("mtp-n2", "draft-mtp", 0.9), line("draft-n8", "draft-simple", 1.2, 8)))
    assert dense["mtp-gains"] == dense["predecessor-loses"] == dense["april-no-gain"] == "contradicted"
    assert dense["august-own-layers"] == dense["april-in-general"] == "cannot tell"  # of mixtures
    moe = rulings(measured(line("mtp-n2", "draft-mtp", 1.2), line("draft-n8", "draft-simple", 0.8, 8), experts=256))
    assert moe["april-in-general"] == moe["april-saturation-explains"] == "contradicted"
    assert moe["august-own-layers"] == moe["april-no-gain"] == "supported"
    assert moe["mtp-gains"] == "cannot tell"
    assert {claim.ruling for claim in ruled(measured()).values()} <= {"cannot tell"}


@pytest.mark.parametrize(("drafted", "ruling"), [(0, "supported"), (3, "contradicted")])
def test_ngram_mod_is_ruled_by_what_it_drafted(drafted: int, ruling: str) -> None:
    request = PromptResult(config="ngram-mod", target="it", method="ngram-mod", prompt="chat", drafted=drafted)
    own = measured(line("ngram-mod", "ngram-mod", 1.0, 64), results=(request,))
    assert rulings(own)["ngram-mod-idle"] == ruling
    assert ruled(own)["ngram-mod-idle"].rests_on == "counts"
