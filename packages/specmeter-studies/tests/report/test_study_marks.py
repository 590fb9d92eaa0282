"""Marks of studies' figures: what each kind looks like, and that none covers another."""

from __future__ import annotations

import pytest

from specmeter.messages import Message, words
from specmeter.show.figure import specification
from specmeter.show.palette import PAGE
from specmeter_studies.show.figures import drawn
from specmeter_studies.show.marks import APART_PX, MAX_PX, OVER, dodges, lanes, mark_of
from specmeter_studies.study import Axis, Point, StudyFigure


def figure(*points: Point, kind: str = "points") -> StudyFigure:
    return StudyFigure.model_validate(
        {
            "key": "k",
            "title": "t",
            "kind": kind,
            "x": Axis(title=Message("x")),
            "y": Axis(title=Message("y")),
            "points": points,
        }
    )


def test_marks_that_would_cover_each_other_stand_side_by_side() -> None:
    moved = dodges([(0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (0.5, 0.9, 0.9), (0.1, 0.5, 0.5)], near=0.02, room=0.02)
    assert moved == [-APART_PX / 2, APART_PX / 2, 0, 0]


def test_intervals_that_overlap_are_moved_apart_too() -> None:
    assert dodges([(0.5, 0.1, 0.6), (0.5, 0.5, 0.9)], near=0.02, room=0.02) == [-APART_PX / 2, APART_PX / 2]
    assert dodges([(0.5, 0.1, 0.3), (0.5, 0.5, 0.9)], near=0.02, room=0.02) == [0, 0]


def test_marks_that_meet_through_others_share_one_spread() -> None:
    chain = [(0.5, 0.1 * number, 0.1 * number + 0.1) for number in range(9)]
    moved = dodges(chain, near=0.02, room=0.02)
    assert moved == sorted(moved)
    assert max(moved) == -min(moved) == MAX_PX


def test_marks_in_a_row_take_the_first_free_line() -> None:
    assert lanes([(0, 0.5, 0.5), (0, 0.5, 0.5), (0, 0.9, 0.9)], room=0.01) == [0, 1, 0]


def test_two_requests_at_one_place_of_a_row_are_both_seen() -> None:
    shown = drawn(figure(*(Point(x="code", y=60.0 + n, series="a") for n in (0.0, 0.0, 40.0))), "published", "k")
    assert [datum["lane"] for datum in shown.panels[0].data] == ["0000.0000", "0000.0001", "0000.0000"]


@pytest.mark.parametrize(
    ("verdict", "mark"),
    [
        ("valid", "solid"),
        (None, "hollow"),
        ("suspect", "suspect"),
        ("implausible", "implausible"),
        ("invalid", "impossible"),
    ],
)
def test_every_verdict_has_its_mark_in_the_shape_of_its_series(verdict: str | None, mark: str) -> None:
    assert mark_of(verdict, judged=True) == mark  # pyright: ignore[reportArgumentType]
    points = (Point(x=1.0, y=1.0, series="a", verdict=verdict), Point(x=2.0, y=2.0, series="b", verdict="valid"))  # pyright: ignore[reportArgumentType]
    chart = drawn(figure(*points), "published", "k").panels[0]
    spec = specification(chart, words("en"), PAGE)
    layers = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    of_series = [layer for layer in layers if "shape" in layer["encoding"]]
    assert all(layer["encoding"]["shape"]["scale"]["range"] == ["circle", "square"] for layer in of_series)
    over = [layer for layer in layers if layer not in of_series]
    assert len(over) == (mark in OVER)
    for layer in over:
        legend = layer["encoding"][OVER[mark][0]]["legend"]  # pyright: ignore[reportArgumentType]
        word = "impossible" if verdict == "invalid" else verdict
        assert str(word) in legend["labelExpr"]


def test_rungs_have_names_and_axes_ticks() -> None:
    points = [Point(x=float(n), y=float(n), name=f"Q{n}") for n in range(1, 4)]
    chart = drawn(figure(*points), "published", "k").panels[0]
    assert [datum["named"] for datum in chart.data] == ["Q1", "Q2", "Q3"]
    assert [datum["lower"] for datum in chart.data] == [False, True, False]
    spec = specification(chart, words("en"), PAGE)
    texts = [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert [layer["encoding"]["text"]["field"] for layer in texts] == ["named"]
    (marks,) = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    assert marks["encoding"]["y"]["axis"]["ticks"] is True


def test_words_of_marks_are_in_both_languages() -> None:
    for language in ("en", "zh"):
        for mark in ("impossible", "implausible", "suspect", "invalid"):
            assert words(language)(f"mark.{mark}")
