"""Experts that forwards read, for studies: measured where the run's texts were read, with the formula beside it."""

from __future__ import annotations

import pytest

from specmeter import studies
from specmeter.record import Estimate, ExpertUnion, UnionPoint
from specmeter.studies.experts import touched
from specmeter.studies.study import ArmResult, ModelUsed, StudyData
from specmeter.theory.experts import expected_union

UNION = ExpertUnion(
    experts=32,
    used=4,
    points=tuple(
        UnionPoint(tokens=n, union=Estimate(point=point, low=point - 1, high=point + 1, n=3, unit="experts", method=""))
        for n, point in ((1, 4.0), (5, 10.0), (9, 14.0))
    ),
)
MOE = ModelUsed(name="moe", reference="moe.gguf", experts=32, experts_used=4, union=UNION)


def test_measured_first_and_the_formula_beside_it() -> None:
    found = touched(MOE, 5)
    assert found is not None
    assert found.best == 10
    assert found.uniform == pytest.approx(expected_union(5.0, 32, 4))
    assert found.told == (
        "5 tokens read 10.0 [9.0, 11.0] of 32 experts of a layer on the run's texts (uniform routing: 15.6)"
    )
    between = touched(MOE, 7)
    assert between is not None
    assert between.measured is not None
    assert (between.measured.point, between.measured.low) == (12, 11)


def test_beyond_what_was_measured_only_the_formula_speaks() -> None:
    for model, n in ((MOE, 17), (MOE.model_copy(update={"union": None}), 5)):
        found = touched(model, n)
        assert found is not None
        assert found.measured is None
        assert found.best == found.uniform
        assert "not measured" in found.told
    assert touched(ModelUsed(name="dense", reference="d"), 5) is None


def test_studies_tabulate_what_their_verifications_read() -> None:
    arms = tuple(
        ArmResult(config=f"moe/sd/g{gamma}", target="moe", draft="d", method="draft-simple", gamma=gamma, requests=1)
        for gamma in (4, 8, 16)
    )
    data = StudyData(study="moe-sd", origin="measured", title="made up", arms=arms, models=(MOE,))
    table = studies.findings("moe-sd", data).tables[-1]
    assert table.key == "experts"
    assert [row[1].value for row in table.rows] == [1, 2, 5, 9], "17 tokens were not measured"
    without = StudyData(study="moe-sd", origin="published", title="made up", arms=arms)
    assert all(table.key != "experts" for table in studies.findings("moe-sd", without).tables)
