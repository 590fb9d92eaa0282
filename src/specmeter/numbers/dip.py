"""The dip test of unimodality: do values have one peak or two?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specmeter.numbers.stats import SAME

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats


DIP_LIMIT = 0.65
"""A sample of n values from one hump has a dip above this / sqrt(n) at most once in a hundred times. The 99 % point of
sqrt(n) * dip is 0.50 for 8 uniform values, 0.57 for 50, 0.61 for 200 and 0.62 for 1000 (6,000 samples each)."""


def dip(values: Floats) -> float:
    """Hartigans' dip: how far the values' distribution function lies from the nearest one with a single hump.

    0.5 / n for values that might have one hump, at most 0.25: two piles of equal size, far apart. Judge it by
    `DIP_LIMIT`, which holds whatever the shape of the hump: no unimodal distribution has larger dips than the uniform
    one when n is large, and rounder ones have much smaller dips.

    Left of its mode a unimodal distribution function is convex, right of it concave. The convex minorant and the
    concave majorant of the steps are furthest apart over the mode; between the corners that enclose that place the same
    is done again, until nothing is gained. The dip is half of the largest distance met on the way.

    Source: Hartigan & Hartigan 1985, "The dip test of unimodality", doi:10.1214/aos/1176346577; Hartigan 1985,
    algorithm AS 217. Needs at least one value.
    """
    x = _spread_ties(np.sort(values))
    n = len(x)
    after = np.arange(1.0, n + 1)
    before = after - 1
    worst, low, high = 1.0, 0, n - 1
    while True:
        part = slice(low, high + 1)
        floor, ceiling = _hull(x, before, low, high, 1), _hull(x, after, low, high, -1)
        minorant = np.interp(x[part], x[floor], before[floor])
        majorant = np.interp(x[part], x[ceiling], after[ceiling])
        # Where the two are parallel, rounding would choose a place between corners: the largest gap lies at one.
        corners = np.array(sorted({*floor, *ceiling}))
        mode = int(corners[np.argmax((majorant - minorant)[corners - low])])
        left = max(corner for corner in floor if corner <= mode)
        right = min(corner for corner in ceiling if corner >= mode)
        if majorant[mode - low] - minorant[mode - low] <= worst or (left, right) == (low, high):
            return worst / (2 * n)
        worst = max(
            worst,
            float((after[low : left + 1] - minorant[: left - low + 1]).max()),
            float((majorant[right - low :] - before[right : high + 1]).max()),
        )
        low, high = left, right


def _spread_ties(x: Floats) -> Floats:
    """Sorted values from 0 to 1 that all differ: a pile at one place becomes a steep hump, which is allowed."""
    extent = float(x[-1] - x[0]) or 1.0
    return (x - x[0]) / extent + np.arange(len(x)) * (SAME / len(x))


def _hull(x: Floats, y: Floats, low: int, high: int, sign: int) -> list[int]:
    """Corners of the convex minorant (sign 1) or concave majorant (sign -1) of the points from `low` to `high`."""
    xs, ys = x[low : high + 1].tolist(), y[low : high + 1].tolist()
    corners: list[int] = []
    for place, (right, top) in enumerate(zip(xs, ys, strict=True)):
        while len(corners) > 1:
            first, second = corners[-2], corners[-1]
            rise = (ys[second] - ys[first]) * (right - xs[first]) - (top - ys[first]) * (xs[second] - xs[first])
            if sign * rise < 0:
                break
            corners.pop()
        corners.append(place)
    return [low + corner for corner in corners]
