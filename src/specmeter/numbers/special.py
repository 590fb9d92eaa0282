"""The few special functions and fits that statistics and costs need; tests hold each against scipy.

scipy has them all, in 140 MB that a tenth of a second goes by to import. All of them here are of single numbers:

    I_x(a, b)    regularized incomplete beta function, by its continued fraction (DLMF 8.17.22) and modified Lentz
    Student's t  P(T > t) = I_x(df / 2, 1 / 2) / 2 with x = df / (df + t^2)
    F            P(F > f) = I_x(d2 / 2, d1 / 2) with x = d2 / (d2 + d1 f)
    binomial     P(B <= k) = I_(1 - p)(n - k, k + 1)
    chi squared  Q(s + 1, y) = Q(s, y) + y^s e^-y / s!, from Q(1/2, y) = erfc(sqrt y) or Q(1, y) = e^-y

Quantiles are roots of these by Chandrupatla's method (1997, doi:10.1016/S0965-9978(96)00051-8), to the last digits of a
double where the function has them. Non-negative least squares is that of Lawson and Hanson (1974, ch. 23).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_EPS = 2.0**-52
_TERMS = 100_000
"""Of the continued fraction: some sqrt(max(a, b)) of them are needed."""
_GOLDEN = (math.sqrt(5) - 1) / 2


def incomplete_beta(a: float, b: float, x: float, rest: float | None = None) -> float:
    """I_x(a, b) for a, b > 0 and 0 <= x <= 1; `rest` is 1 - x where that is known better than by subtraction."""
    rest = 1 - x if rest is None else rest
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, rest, x)
    fraction, above, below = 1.0, 1.0, 0.0
    for term in range(1, _TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / ((1 + d * below) or _EPS**2)
        above = (1 + d / above) or _EPS**2
        fraction *= above * below
        if abs(above * below - 1) < _EPS:
            break
    ln_x, ln_rest = (math.log(one) if one < 0.5 else math.log1p(-other) for one, other in ((x, rest), (rest, x)))
    ln_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * ln_x + b * ln_rest
    return math.exp(ln_front) / (a * fraction)


def t_above(df: float, t: float) -> float:
    """P(T > t) of Student's t."""
    if t < 0:
        return 1 - t_above(df, -t)
    return incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t)) / 2


@lru_cache(maxsize=4096)
def t_quantile(df: float, p: float) -> float:
    """t with P(T <= t) = p, for 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(df, 1 - p)
    high = 1.0
    while t_above(df, high) > 1 - p and high < 1e300:
        high *= 2
    return _root(lambda t: t_above(df, t) - (1 - p), high / 2 if high > 1 else 0.0, high)


def f_above(d1: float, d2: float, f: float) -> float:
    """P(F > f) of the F distribution."""
    return incomplete_beta(d2 / 2, d1 / 2, d2 / (d2 + d1 * f), d1 * f / (d2 + d1 * f))


def normal_below(z: float) -> float:
    """P(Z <= z) of the standard normal distribution."""
    return math.erfc(-z / math.sqrt(2)) / 2


def binomial_below(k: int, n: int, p: float) -> float:
    """P(B <= k) of n tosses, for 0 <= k < n."""
    return incomplete_beta(n - k, k + 1, 1 - p, p)


def beta_quantile(a: float, b: float, p: float) -> float:
    """x with I_x(a, b) = p."""
    return _root(lambda x: incomplete_beta(a, b, x) - p, 0.0, 1.0)


def chi2_above(df: int, x: float) -> float:
    """P(X > x) of chi squared with whole degrees of freedom."""
    y, order = x / 2, 0.5 if df % 2 else 1.0
    if y <= 0:
        return 1.0
    found = math.erfc(math.sqrt(y)) if df % 2 else math.exp(-y)
    while order < df / 2:
        found += math.exp(order * math.log(y) - y - math.lgamma(order + 1))
        order += 1
    return min(1.0, found)


def chi2_quantile_above(df: int, p: float) -> float:
    """x with P(X > x) = p."""
    high = float(df)
    while chi2_above(df, high) > p:
        high *= 2
    return _root(lambda x: chi2_above(df, x) - p, 0.0, high)


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that grows or falls is zero; at the end that is nearer to it where it has one sign only."""
    newer, older = low, high
    at_newer, at_older = of(low), of(high)
    if at_newer * at_older >= 0:
        return low if abs(at_newer) < abs(at_older) else high
    share = 0.5
    for _ in range(2000):
        place = newer + share * (older - newer)
        value = of(place)
        if (value < 0) == (at_newer < 0):
            oldest, at_oldest = newer, at_newer
        else:
            oldest, at_oldest = older, at_older
            older, at_older = newer, at_newer
        newer, at_newer = place, value
        best, at_best = (newer, at_newer) if abs(at_newer) < abs(at_older) else (older, at_older)
        least = 2 * _EPS * abs(best) / abs(older - newer) + 5e-324
        if at_best == 0 or least > 0.5:
            return best
        xi, phi = (newer - older) / (oldest - older), (at_newer - at_older) / (at_oldest - at_older)
        share = 0.5
        if phi * phi < xi and (1 - phi) ** 2 < 1 - xi:
            share = at_newer / (at_older - at_newer) * at_oldest / (at_older - at_oldest)
            ratio = (oldest - newer) / (older - newer)
            share += ratio * at_newer / (at_oldest - at_newer) * at_older / (at_oldest - at_older)
        share = min(1 - least, max(least, share))
    return newer


def lowest(of: Callable[[float], float], low: float, high: float, *, within: float = 1e-9) -> tuple[float, float]:
    """(place, value) of a function's minimum between two places, by golden sections; of several minima, one."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = of(left), of(right)
    while high - low > within and low < left < right < high:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = of(right)
    return (left, at_left) if at_left <= at_right else (right, at_right)


def non_negative_fit(design: Floats, values: Floats) -> Floats:
    """x >= 0 with the least sum of squares of `design @ x - values`."""
    rows, columns = design.shape
    found, free = np.zeros(columns), np.zeros(columns, dtype=bool)
    least = 10 * max(rows, columns) * _EPS * float(np.abs(design).sum(axis=0).max(initial=0.0))
    for _ in range(3 * columns):
        pull = np.where(free, -np.inf, design.T @ (values - design @ found))
        if not columns or pull.max() <= least:
            break
        free[int(np.argmax(pull))] = True
        while True:
            wanted = np.zeros(columns)
            wanted[free] = np.linalg.lstsq(design[:, free], values, rcond=None)[0]
            below = np.flatnonzero(free & (wanted <= 0))
            if not len(below):
                found = wanted
                break
            steps = found[below] / (found[below] - wanted[below])
            found = np.maximum(0.0, found + float(steps.min()) * (wanted - found))
            found[below[np.argmin(steps)]] = 0.0
            free &= found > 0
            if not free.any():
                break
    return found
