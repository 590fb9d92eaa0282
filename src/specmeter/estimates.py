"""Arithmetic of estimates: intervals of products, quotients and multiples, and on which side of a number they lie.

Intervals of products and quotients are taken at their worst: the lower end of one with the upper end of the other. They
are too wide rather than too narrow, so that whoever rules by them errs on the side of "cannot tell".
"""

from __future__ import annotations

from specmeter.record import Estimate


def above(estimate: Estimate | None, value: float) -> bool:
    """Whether the whole interval lies above; never without an interval."""
    return estimate is not None and estimate.low is not None and estimate.low > value


def below(estimate: Estimate | None, value: float) -> bool:
    """Whether the whole interval lies below; never without an interval."""
    return estimate is not None and estimate.high is not None and estimate.high < value


def exceeds(first: Estimate | None, second: Estimate | None) -> bool:
    """Whether the first interval lies wholly above the second."""
    return second is not None and second.high is not None and above(first, second.high)


def product(first: Estimate, second: Estimate, *, unit: str, method: str) -> Estimate:
    """first x second, both positive; without an interval where one of them has none."""
    return _combined(first, second, second.low, second.high, second.point, unit, method)


def quotient(first: Estimate, second: Estimate, *, unit: str, method: str) -> Estimate:
    """first / second, both positive; without an interval where one of them has none."""
    low = None if not second.high else 1 / second.high
    high = None if not second.low else 1 / second.low
    return _combined(first, second, low, high, 1 / second.point, unit, method)


def scaled(estimate: Estimate, factor: float, unit: str | None = None) -> Estimate:
    """The estimate times a number above 0, in another unit where one is named."""
    low, high = (None if value is None else value * factor for value in (estimate.low, estimate.high))
    changed = {"point": estimate.point * factor, "low": low, "high": high, "unit": unit or estimate.unit}
    return estimate.model_copy(update=changed)


def _combined(
    first: Estimate, second: Estimate, low: float | None, high: float | None, point: float, unit: str, method: str
) -> Estimate:
    return Estimate(
        point=first.point * point,
        low=None if first.low is None or low is None else first.low * low,
        high=None if first.high is None or high is None else first.high * high,
        level=min(first.level, second.level),
        n=min(first.n, second.n),
        unit=unit,
        method=method,
    )
