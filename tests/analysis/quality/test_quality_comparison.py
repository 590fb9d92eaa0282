"""Models beside each other: changes, speedups, the front."""

from __future__ import annotations

import pytest

from analysis.quality.reports import paced, points, quality, report, scored
from specmeter.analysis.quality import SpeedTest, compare, generation


def test_change_and_speedup_are_against_the_first_model() -> None:
    rows = compare(
        report(
            quality("f16", 1000, points(6, 8, 7), [100, 102, 98]),
            quality("q8", 500, points(6.06, 8.08, 7.07), [50, 51, 49]),
        )
    )
    assert rows[0].change is None
    assert rows[0].speedup is None
    assert rows[1].change is not None
    assert rows[1].change.point == pytest.approx(1.01)
    assert rows[1].speedup is not None
    assert rows[1].speedup.point == pytest.approx(2.0)
    assert rows[1].speedup.unit == "x"


def test_whoever_is_beaten_in_everything_is_not_on_the_front() -> None:
    rows = compare(
        report(
            quality("best", 1000, points(6, 8), [100, 101]),
            quality("small", 400, points(6.5, 8.5), [60, 61]),
            quality("worse", 500, points(6.6, 8.6), [70, 71]),
            quality("fast", 450, points(6.7, 8.7), [50, 51]),
        )
    )
    assert [row.on_front for row in rows] == [True, True, False, True]


def test_equals_do_not_beat_each_other() -> None:
    rows = compare(report(quality("a", 500, points(6, 8)), quality("b", 500, points(6, 8))))
    assert [row.on_front for row in rows] == [True, True]


def test_the_front_needs_two_models_and_more_than_their_sizes() -> None:
    assert compare(report(quality("a", 500, points(6, 8))))[0].on_front is None
    assert compare(report(quality("a", 5), quality("b", 6)))[1].on_front is None


def test_other_tokens_are_not_compared() -> None:
    rows = compare(
        report(
            quality("a", 500, points(6, 8), [10, 11]),
            quality("b", 400, points(5, 7), [10, 12], tokens="u" * 64),
            quality("c", 300, points(6, 9), [10, 12]),
        )
    )
    assert rows[1].change is None
    assert rows[1].on_front is None
    assert "other tokens" in rows[1].incomparable
    assert rows[1].speedup is not None
    assert rows[2].change is not None
    assert [rows[0].on_front, rows[2].on_front] == [True, True]


def test_other_windows_are_not_compared() -> None:
    other = quality("b", 400).model_copy(update={"perplexity": scored(points(5, 7), window=1024)})
    assert compare(report(quality("a", 500, points(6, 8)), other))[1].incomparable == "other windows"


def test_without_windows_the_ratio_has_no_interval() -> None:
    whole = [
        quality(name, 400).model_copy(
            update={"perplexity": scored(points(value, value * 1.1)).model_copy(update={"window_surprise": ()})}
        )
        for name, value in (("a", 6.0), ("b", 6.6))
    ]
    change = compare(report(*whole))[1].change
    assert change is not None
    assert change.point == pytest.approx(1.1)
    assert change.low is None


def test_speed_is_that_of_generating_at_the_smallest_depth() -> None:
    deep = SpeedTest(kind="generate", tokens=10, depth=4096)
    prompt = SpeedTest(kind="prompt", tokens=512)
    shallow = paced([10, 11])
    assert generation([paced([1], prompt), paced([90, 91], deep), shallow]) is shallow
    assert generation([paced([1], prompt)]) is None


def test_a_model_that_was_not_measured_yet_has_no_comparison() -> None:
    rows = compare(report(quality("a", 500, points(6, 8), [5, 6]), quality("b", 400)))
    assert rows[1].change is None
    assert rows[1].speedup is None
    assert [row.on_front for row in rows] == [None, None]
