"""qat-vs-ptq: rulings on the published numbers, both rulings of every claim, and the quick variant."""

from __future__ import annotations

import pytest

import stand_in_quality
from claims_of import rulings, said, values
from quant_data import model, study
from said import all_said
from specmeter.analysis.quality import ModelQuality, ModelRole
from specmeter_studies import find, findings
from specmeter_studies.library.qat_vs_ptq.extra import CAVEAT, published
from specmeter_studies.measured import from_quality
from specmeter_studies.quality.plan import load_plan
from specmeter_studies.quality.planned import measure_plan
from specmeter_studies.study import StudyData

STUDY = find("qat-vs-ptq")


def family(training: str, rates: dict[int, float], *, noise: float, architecture: str) -> list[ModelQuality]:
    return [
        model(
            f"{training}-{bits}",
            bits / 2,
            rate,
            noise=noise,
            role=ModelRole(family=f"family {training}", training="qat" if training == "qat" else "ptq", bits=bits),
            architecture=architecture,
        )
        for bits, rate in rates.items()
    ]


def both(
    qat: dict[int, float], ptq: dict[int, float], *, noise: tuple[float, float] = (1e-4, 0.4), other: str = "qwen3"
) -> StudyData:
    models = family("qat", qat, noise=noise[0], architecture="gemma3")
    models += family("ptq", ptq, noise=noise[1], architecture=other)
    return study("qat-vs-ptq", models)


FAST = {3: 137.0, 4: 119.0, 6: 107.0, 8: 96.0}
SLOW = {3: 74.0, 4: 73.0, 6: 54.0, 8: 40.0}
BACKWARDS = {3: 60.0, 4: 70.0, 6: 80.0, 8: 90.0}


def test_what_the_published_numbers_show() -> None:
    data = published()
    assert rulings(data) == {
        "qat-span": "supported",
        "qat-narrow": "cannot tell",
        "ptq-wide": "cannot tell",  # 19.8 [11.2, 73.9]
        "qat-against-ptq": "cannot tell",
    }
    # 0.308 is 0.3 to the last digit that the claim prints, and the spread of four runs is hardly known.
    narrow = said(data, "qat-narrow")
    spread = values(narrow, "study.interval", at=3)
    assert (spread["point"], spread["low"], spread["high"]) == pytest.approx((0.308, 0.174, 1.148), abs=1e-3)
    assert [narrow.values[name] for name in ("over", "of", "limit")] == [0, 4, 0.3]
    assert narrow.values["highest"] == pytest.approx(0.308, abs=1e-3)
    rates = [it.values["point"] for it in all_said(said(data, "qat-span").values["rates"]) if "point" in it.values]
    assert rates == pytest.approx([96.4, 107.2, 119.0, 137.3], abs=0.1)
    assert values(said(data, "ptq-wide"), "study.interval")["point"] == pytest.approx(19.6, abs=0.3)
    assert CAVEAT in all_said(said(data, "qat-against-ptq"))


def test_the_caveat_stands_with_every_table_and_figure() -> None:
    data = published()
    shown = (*STUDY.tables(data), *STUDY.figures(data))
    assert len(shown) == 3
    assert all(CAVEAT in all_said(item.about) for item in shown)
    assert len(STUDY.tables(data)[0].rows) == 7


def test_families_as_the_document_has_them() -> None:
    found = rulings(both(FAST, SLOW))
    assert found == {
        "qat-span": "supported",
        "qat-narrow": "supported",
        "ptq-wide": "cannot tell",  # of eight runs no spread is known to a tenth
        "qat-against-ptq": "cannot tell",
    }


def test_the_opposite() -> None:
    found = rulings(both(BACKWARDS, SLOW, noise=(0.2, 1e-4)))
    assert found["qat-narrow"] == "contradicted"
    assert found["ptq-wide"] == "contradicted"
    assert rulings(both(BACKWARDS, SLOW))["qat-span"] == "contradicted"


def test_only_one_architecture_lets_the_training_decide() -> None:
    alike = both(FAST, SLOW, noise=(1e-4, 1e-4), other="gemma3")
    assert rulings(alike)["qat-against-ptq"] == "supported"
    assert CAVEAT not in all_said(said(alike, "qat-against-ptq"))
    reverse = both(SLOW, FAST, noise=(1e-4, 1e-4), other="gemma3")
    assert rulings(reverse)["qat-against-ptq"] == "contradicted"


def test_the_quick_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_quality.install(monkeypatch)
    loaded = load_plan("qat-vs-ptq", ["threads=1"], variants=["bench", "quick"])
    report = measure_plan(loaded, progress=lambda *_: None, keep=lambda _: None)
    assert [it.model.name for it in report.models] == [
        f"{family}-{bits}bit" for family in ("dense", "moe") for bits in (3, 4, 6, 8)
    ]
    assert not report.skipped
    assert all(it.perplexity is None and len(it.rates) == 1 for it in report.models)
    found = findings("qat-vs-ptq", from_quality("qat-vs-ptq", report, part="qat-vs-ptq"))
    rulings = {claim.id: claim for claim in found.claims}
    named = {name for name, claim in rulings.items() if claim.ruling == "does not apply here"}
    assert named == {"qat-span", "qat-narrow", "ptq-wide"}
    others = values(rulings["qat-span"].found, "qat-vs-ptq.no_qat")["others"]
    assert values(others, "qat-vs-ptq.family")["name"] == "bench dense"
    assert all(CAVEAT in all_said(item.about) for item in (*found.tables, *found.figures))
