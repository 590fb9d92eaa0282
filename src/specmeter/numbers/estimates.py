"""Arithmetic of estimates: intervals of products, quotients and multiples, and on which side of a number they lie.

Intervals of products and quotients are taken at their worst: the lower end of one with the upper end of the other. They
are too wide rather than too narrow, so that whoever rules by them errs on the side of "cannot tell".
"""

from __future__ import annotations

import math

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
    """first x second, both positive; without an interval where an end of one of them is missing.

    `method` says what is multiplied; how the interval came is added.
    """
    ours, theirs = _ends(first), _ends(second)
    ends = None if ours is None or theirs is None else (ours[0] * theirs[0], ours[1] * theirs[1])
    how = f"{method}; from both lower to both upper ends of their intervals"
    return _of_two(first, second, first.point * second.point, ends, unit, how if ends else f"{method}; no interval")


def quotient(first: Estimate, second: Estimate, *, unit: str, method: str) -> Estimate:
    """first / second, both positive; without an interval where an end of one of them is missing, or the second's is 0.

    A half of an interval that could be had is left out as well: nothing is ruled by what would be shown as none.
    `method` says what is divided; how the interval came is added.
    """
    ours, theirs = _ends(first), _ends(second)
    ends = None if ours is None or theirs is None or theirs[0] <= 0 else (ours[0] / theirs[1], ours[1] / theirs[0])
    how = f"{method}; from the lowest over the highest to the highest over the lowest of their intervals"
    return _of_two(first, second, first.point / second.point, ends, unit, how if ends else f"{method}; no interval")


def ratio_of_means(first: Estimate, second: Estimate, deviations: tuple[float, float], *, among: int = 1) -> Estimate:
    """first / second, two independent means of runs with these standard deviations: Welch's t on logarithms.

    With `among`, one of so many intervals that hold together (Bonferroni). Without an interval of single runs, or where
    nothing varies.
    """
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    pairs = list(zip((first, second), deviations, strict=True))
    point, n, level = first.point / second.point, first.n + second.n, 0.95
    parts = [(deviation / mean.point) ** 2 / mean.n for mean, deviation in pairs]
    if min(first.n, second.n) < 2 or not sum(parts):
        return Estimate(point=point, n=n, unit="x", method="ratio of printed rates; no interval")
    freedom = sum(parts) ** 2 / sum(part**2 / (mean.n - 1) for part, (mean, _) in zip(parts, pairs, strict=True))
    half = math.exp(float(stdtrit(freedom, 1 - (1 - level) / (2 * among))) * math.sqrt(sum(parts)))
    method = "ratio of printed means; from their standard deviations, Welch on logarithms"
    return Estimate(point=point, low=point / half, high=point * half, level=level, n=n, unit="x", method=method)


def scaled(estimate: Estimate, factor: float, unit: str | None = None) -> Estimate:
    """The estimate times a number above 0, in another unit where one is named."""
    low, high = (None if value is None else value * factor for value in (estimate.low, estimate.high))
    changed = {"point": estimate.point * factor, "low": low, "high": high, "unit": unit or estimate.unit}
    return estimate.model_copy(update=changed)


def _ends(estimate: Estimate) -> tuple[float, float] | None:
    return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _of_two(
    first: Estimate, second: Estimate, point: float, ends: tuple[float, float] | None, unit: str, method: str
) -> Estimate:
    """As sure as the less sure of both, and of as many units as the one with fewer."""
    low, high = ends or (None, None)
    level, n = min(first.level, second.level), min(first.n, second.n)
    return Estimate(point=point, low=low, high=high, level=level, n=n, unit=unit, method=method)
