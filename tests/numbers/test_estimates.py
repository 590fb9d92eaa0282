"""Arithmetic of estimates: intervals at their worst, and none where an end is missing."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import specmeter
from specmeter.numbers import estimates
from specmeter.numbers.estimates import above, below, exceeds, product, quotient, scaled, share_at_most
from specmeter.record import Estimate


def made(point: float, low: float | None, high: float | None, *, n: int = 5, level: float = 0.95) -> Estimate:
    return Estimate(point=point, low=low, high=high, n=n, level=level, unit="tok/s", method="made up")


WHOLE = made(10.0, 8.0, 12.0)


def test_a_quotient_is_taken_at_its_worst() -> None:
    found = quotient(WHOLE, made(4.0, 2.0, 5.0, n=3, level=0.9), unit="x", method="ratio of two rates")
    assert (found.point, found.low, found.high) == (2.5, 8.0 / 5.0, 12.0 / 2.0)
    assert (found.n, found.level, found.unit) == (3, 0.9, "x")


def test_a_product_is_taken_at_its_worst() -> None:
    found = product(WHOLE, made(4.0, 2.0, 5.0, n=3), unit="tokens", method="rate x time")
    assert (found.point, found.low, found.high, found.n) == (40.0, 16.0, 60.0, 3)


@pytest.mark.parametrize("half", [made(4.0, None, 5.0), made(4.0, 2.0, None), made(4.0, None, None)])
def test_where_an_end_is_missing_there_is_no_half_of_an_interval(half: Estimate) -> None:
    """One known end would rule claims by an interval that tables show as none."""
    for first, second in ((WHOLE, half), (half, WHOLE)):
        for found in (
            quotient(first, second, unit="x", method="ratio"),
            product(first, second, unit="x", method="product"),
        ):
            assert (found.low, found.high) == (None, None)
            assert found.method.endswith("; no interval")
            assert not above(found, 0.0)
            assert not below(found, 1e9)


def test_nothing_is_known_of_a_quotient_whose_divisor_may_be_nothing() -> None:
    found = quotient(WHOLE, made(4.0, 0.0, 5.0), unit="x", method="ratio")
    assert (found.point, found.low, found.high) == (2.5, None, None)


def test_a_multiple_keeps_the_end_that_is_known() -> None:
    found = scaled(made(4.0, None, 5.0), 10.0, "ms")
    assert (found.point, found.low, found.high, found.unit) == (40.0, None, 50.0, "ms")
    assert scaled(WHOLE, 2.0).unit == WHOLE.unit


def test_sides_are_told_by_whole_intervals() -> None:
    assert above(WHOLE, 7.9)
    assert not above(WHOLE, 8.0)
    assert below(WHOLE, 12.1)
    assert not below(WHOLE, 12.0)
    assert exceeds(WHOLE, made(6.0, 5.0, 7.0))
    assert not exceeds(WHOLE, made(6.0, 5.0, 8.0))
    assert not exceeds(WHOLE, made(6.0, 5.0, None))


# --- how they are made -----------------------------------------------------------------------------------------------


def test_estimates_are_made_in_one_room() -> None:
    """Whatever is shown with an interval was computed where statistics are."""
    source = Path(specmeter.__file__).parent
    made = [
        f"{path.relative_to(source).as_posix()}:{node.lineno}"
        for path in source.rglob("*.py")
        if path.relative_to(source).parts[0] != "numbers"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Estimate"
    ]
    assert made == []


def test_a_mean_of_values_that_are_all_alike_has_no_interval() -> None:
    for values in ([3.0], [0.1 + 0.2, 0.3]):
        alone = estimates.student_mean(values, "x", "with", alone="without", of="blocks")
        assert (alone.low, alone.high, alone.method, alone.n) == (None, None, "without", len(values))
    mean = estimates.student_mean([1.0, 2.0, 3.0], "x", "with", alone="without", least=0.0)
    assert (mean.point, mean.low, mean.method) == (2.0, 0.0, "with")
    assert mean.high == pytest.approx(2 + 4.303 / math.sqrt(3), rel=1e-3)


def test_a_geometric_mean_is_the_mean_of_logarithms() -> None:
    logs = np.log([1.5, 2.0, 2.5])
    mean = estimates.student_geometric(logs, "x", "with", alone="without")
    half = 4.302653 * float(logs.std(ddof=1)) / math.sqrt(3)
    assert mean.point == pytest.approx(math.exp(logs.mean()))
    assert (mean.low, mean.high) == pytest.approx((mean.point * math.exp(-half), mean.point * math.exp(half)))
    assert estimates.student_geometric([0.5], "x", "with", alone="without").low is None


def test_printed_numbers_have_the_interval_that_was_printed_with_them_or_none() -> None:
    assert estimates.printed_mean(50.0, None, 4, unit="tok/s").low is None
    assert estimates.printed_mean(50.0, 2.0, 1, unit="tok/s").low is None
    mean = estimates.printed_mean(1.0, 2.0, 4, unit="tok/s")
    assert (mean.low, mean.high) == (0.0, pytest.approx(1 + 3.182446, rel=1e-5))


@pytest.mark.parametrize(
    ("seen", "n", "most"), [(0, 16, 1 - 0.05 ** (1 / 16)), (0, 1, 0.95), (1, 16, 0.2640), (16, 16, 1.0)]
)
def test_the_bound_is_exact(seen: int, n: int, most: float) -> None:
    found = share_at_most(seen, n, "requests")
    assert (found.point, found.low, found.n) == (seen / n, 0.0, n)
    assert found.high == pytest.approx(most, abs=5e-5)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_the_bound_holds_as_often_as_it_says(share: float) -> None:
    n = 24
    holds = sum(
        math.comb(n, seen) * share**seen * (1 - share) ** (n - seen)
        for seen in range(n + 1)
        if (share_at_most(seen, n, "requests").high or 0) >= share
    )
    assert holds >= 0.95
