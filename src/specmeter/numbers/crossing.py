"""Up to where a curve that was measured at several places stays above zero, with an interval.

Units (blocks) measure the whole curve: unit u has y_u(x) at places x_1 < x_2 < ..., and between two of them a straight
line. So their mean m(x) and its standard error s(x) are known everywhere. The curve reaches as far as m is above zero
from its beginning, and what a test does not exclude of that place,

    {x : |m(x)| <= t(n - 1) s(x)}

holds the true crossing with the level's probability: there, m deviates from 0 by chance alone (Fieller's way). Within a
segment the condition is a quadratic inequality of the place, so nothing is searched for. Where the beginning is not
shown to lie above zero, the interval has no lower end, and where the end is not shown to lie below it, no upper one.

A curve that bends crosses elsewhere than the straight line. So each end is moved outwards by `BENT` times what a
parabola through the segment of the crossing and the place before it, or behind it, moves the crossing; two places alone
say nothing of bends. Once is enough for curves of one smooth bend, twice for a kink within the segment
(`benchmarks/load_queue.py`). The curve is assumed to cross once.

Source: Fieller 1954, "Some problems in interval estimation", JRSS B 16 (2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.numbers.stats import SAME, t_critical

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats

Span = tuple[float, float]
BENT = 2.0
"""By how much of the difference between the straight line and a parabola an end is moved."""


class Reach(NamedTuple):
    """How far a curve stays above zero; -inf: nowhere, inf: beyond the last place."""

    point: float
    low: float
    """-inf where nothing shows that it begins above zero."""
    high: float
    """inf where nothing shows that it ends below zero."""


def reach(places: Sequence[float], values: Floats, *, level: float = 0.95) -> Reach:
    """How far the mean of the curves stays above zero, from the first place on.

    `values`: units x places, NaN where a unit lacks a place; `places` rise. A curve that rises from below to above zero
    counts as one that reaches beyond the last place, since nothing shows where it would end.
    """
    means: Floats = np.nanmean(values, axis=0)
    doubt = undecided(places, values, level=level)
    begins = means[0] > 0 and not any(low <= places[0] for low, _ in doubt)
    ends = means[-1] < 0 and not any(high >= places[-1] for _, high in doubt)
    low = -math.inf if not begins else min((low for low, _ in doubt), default=math.inf)
    high = math.inf if not ends else max((high for _, high in doubt), default=-math.inf)
    moved = [BENT * it for it in _bends(places, means)]
    return Reach(_point(places, values, means), low + min(0.0, *moved, 0.0), high + max(0.0, *moved, 0.0))


def _bends(places: Sequence[float], means: Floats) -> list[float]:
    """By how much parabolas through the segment in which the means cross and one place beside it move the crossing."""
    at = next((it for it, (left, right) in enumerate(pairwise(means)) if left > 0 >= right), None)
    found: list[float] = []
    for other in () if at is None else (at - 1, at + 2):
        if at is not None and 0 <= other < len(places):
            left, right, width = float(means[at]), float(means[at + 1]), places[at + 1] - places[at]
            share = (places[other] - places[at]) / width
            bend = (float(means[other]) - left - share * (right - left)) / (share * (share - 1))
            falls = left - right + bend  # left - falls w + bend w^2 is the parabola over the segment, w from 0 to 1
            crossed = 2 * left / (falls + math.sqrt(max(0.0, falls**2 - 4 * bend * left)))
            found.append(width * (crossed - left / (left - right)))
    return found


def undecided(places: Sequence[float], values: Floats, *, level: float = 0.95) -> list[Span]:
    """Where nothing shows on which side of zero the mean of the curves lies, as spans in order.

    Everywhere, of a single unit or of units that are copies of each other; `values` as in `reach`.
    """
    spread = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
    if len(values) < 2 or not float(spread.max()) > SAME:
        return [(places[0], places[-1])]
    found: list[Span] = []
    for at, (left, right) in enumerate(pairwise(places)):
        pair = values[:, at : at + 2]
        spans = _within(pair[np.isfinite(pair).all(axis=1)], level)
        found += [(left + low * (right - left), left + high * (right - left)) for low, high in spans]
    return found


def _point(places: Sequence[float], values: Floats, means: Floats) -> float:
    if means[-1] > 0:
        return math.inf
    for at in range(len(places) - 1):
        pair = values[:, at : at + 2]
        both = pair[np.isfinite(pair).all(axis=1)]
        left, right = (float(it) for it in (both if len(both) else means[None, at : at + 2]).mean(axis=0))
        if left > 0 >= right:
            return places[at] + left / (left - right) * (places[at + 1] - places[at])
    return -math.inf


def _within(pair: Floats, level: float) -> list[Span]:
    """The shares w in [0, 1] of a segment at which (mean)^2 <= t^2 (standard error)^2, of units that have both ends."""
    n = len(pair)
    if n < 2:
        return [(0.0, 1.0)]
    left, right = (float(it) for it in pair.mean(axis=0))
    covariance = np.cov(pair, rowvar=False) / n
    first, second, across = float(covariance[0, 0]), float(covariance[1, 1]), float(covariance[0, 1])
    t2, slope = t_critical(n - 1, level) ** 2, right - left
    a = slope**2 - t2 * (first - 2 * across + second)
    b = 2 * left * slope - 2 * t2 * (across - first)
    c = left**2 - t2 * first
    inner = b * b - 4 * a * c
    roots: list[float] = []
    if a and inner > 0:
        roots = sorted((-b + sign * math.sqrt(inner)) / (2 * a) for sign in (-1, 1))
    elif not a and b:
        roots = [-c / b]
    ends = [0.0, *(root for root in roots if 0 < root < 1), 1.0]
    return [(low, high) for low, high in pairwise(ends) if a * (middle := (low + high) / 2) ** 2 + b * middle + c <= 0]
