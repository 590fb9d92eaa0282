"""Experts that forwards read, for studies: measured where the run's texts were read, with the formula beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import specmeter_studies as studies
from specmeter.analysis.explain.experts import union_at
from specmeter.record import Estimate, ExpertUnion, UnionPoint
from specmeter.theory.roofline import expected_union
from specmeter_studies.study import ArmResult, ModelUsed, StudyData

UNION = ExpertUnion(
    experts=32,
    used=4,
    points=tuple(
        UnionPoint(tokens=n, union=Estimate(point=point, low=point - 1, high=point + 1, n=3, unit="experts", method=""))
        for n, point in ((1, 4.0), (5, 10.0), (9, 14.0))
    ),
)
MOE = ModelUsed(name="moe", reference="moe.gguf", experts=32, experts_used=4, union=UNION)


def test_measured_points_and_lines_between_them() -> None:
    assert union_at(UNION, 5) == UNION.points[1].union
    between = union_at(UNION, 7)
    assert between is not None
    assert (between.point, between.low, between.high) == (12, 11, 13)
    assert "on a line between 5 and 9 tokens" in between.method


def test_beyond_what_was_measured_nothing_is_said() -> None:
    assert union_at(UNION, 17) is None
    assert union_at(UNION, 0) is None


def test_studies_tabulate_what_their_verifications_read() -> None:
    arms = tuple(
        ArmResult(config=f"moe/sd/g{gamma}", target="moe", draft="d", method="draft-simple", gamma=gamma, requests=1)
        for gamma in (4, 8, 16)
    )
    data = StudyData(study="moe-sd", origin="measured", title="made up", arms=arms, models=(MOE,))
    table = studies.findings("moe-sd", data).tables[-1]
    assert table.key == "experts"
    assert [row[1].value for row in table.rows] == [1, 2, 5, 9], "17 tokens were not measured"
    five = table.rows[2]
    assert five[2].value == UNION.points[1].union
    assert five[3].value == pytest.approx(expected_union(5.0, 32, 4))
    assert five[4].value == 2.5
    dense = replace(data, models=(ModelUsed(name="moe", reference="d"),))
    assert all(table.key != "experts" for table in studies.findings("moe-sd", dense).tables)
    without = StudyData(study="moe-sd", origin="published", title="made up", arms=arms)
    assert all(table.key != "experts" for table in studies.findings("moe-sd", without).tables)
