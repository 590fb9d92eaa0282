"""How much devices differ that measured the same."""

from __future__ import annotations

import math

import pytest

from specmeter_fleet.variance import spread_between, unlike


def test_the_odd_one_is_named_and_chance_is_not() -> None:
    alike = {"a": 0.00, "b": 0.01, "c": -0.01, "d": 0.005, "e": -0.005}
    assert unlike(alike, 0.01, 5) == {}
    assert list(unlike({**alike, "f": -0.3}, 0.01, 6)) == ["f"]
    assert unlike({"a": 0.0, "b": 0.0, "c": 1.0}, 0.01, 3) == {}


@pytest.mark.parametrize(
    ("repeats", "differ", "noise"),
    [
        ({"a": [0.0, 0.02], "b": [0.3, 0.32]}, True, 1.0),
        ({"a": [-0.3, 0.3], "b": [0.2, 0.7]}, False, 27.6),  # a spread of 32%, and noise that allows for it
        ({"a": [-0.02, 0.02], "b": [-0.019, 0.021]}, False, 2.0),  # closer than noise: by luck
        ({"a": [0.0], "b": [0.3]}, False, None),
    ],
)
def test_a_difference_is_shown_beyond_noise(repeats: dict[str, list[float]], differ: bool, noise: float | None) -> None:
    found = spread_between(repeats, "x", 3)
    assert found.differ is differ
    assert found.mean.n == 2
    assert found.noise == (None if noise is None else pytest.approx(noise, rel=0.01))
    assert found.mean.high is not None
    larger = max(found.spread.point, found.noise or 0) / 100
    assert math.log(found.mean.high / found.mean.point) == pytest.approx(12.706 * larger / math.sqrt(2), rel=1e-3)
    assert found.spread.low is not None
    assert found.spread.low < found.spread.point < (found.spread.high or 0)


def test_devices_that_say_the_same_have_no_interval() -> None:
    found = spread_between({"a": [0.5, 0.5], "b": [0.5, 0.5]}, "x", 3)
    assert (found.mean.low, found.spread.low, found.differ) == (None, None, False)


def test_the_spread_is_a_number_with_an_interval() -> None:
    blocks = {"a": [0.0, 0.02], "b": [0.1, 0.12], "c": [-0.1, -0.08]}
    found = spread_between(blocks, "x", 3)
    assert found.spread.point == pytest.approx(10.0)
    assert found.spread.low is not None
    assert found.spread.low < 10 < (found.spread.high or 0)
    assert found.noise == pytest.approx(1.0)
