"""Whether a speedup shows a difference, or that there is none that matters; and how many units would show it.

Source: Schuirmann 1987, doi:10.1007/BF01068419 (two one-sided tests)."""

from __future__ import annotations

import math
from typing import Literal

from specmeter.errors import UsageError
from specmeter.numbers.stats import (
    SAME,
    at_level,
    degrees_of_freedom,
    log_half,
    simultaneous,
    t_critical,
)
from specmeter.record import Estimate, Record

MARGIN = 0.02
"""A negligible difference, and the half width that advice on the number of blocks aims at."""
MAX_UNITS = 200
"""Advice that asks for more blocks than this is none."""


class MarginTest(Record):
    """What a speedup says about a stated margin: by how much an arm may differ before anybody minds.

    Let a = 1 - level. `difference` is the two-sided interval at level 1 - a, `equivalence` the one at level 1 - 2a.
    The latter lies between 1 / (1 + margin) and 1 + margin exactly when two one-sided tests at level a reject that the
    arm is that much slower and that it is that much faster. Each conclusion is wrong with probability a at most.
    """

    conclusion: Literal["equivalent", "faster", "slower", "not worse", "undecided"]
    """The first that is shown: `equivalent`: between 1 / (1 + margin) and 1 + margin; `faster`, `slower`: than the
    baseline, by whatever amount; `not worse`: above 1 / (1 + margin). `undecided` is also what no interval says."""
    margin: float
    """Relative: 0.02 is 2 %. Its lower end 1 / (1 + margin) is a little stricter than 1 - margin."""
    among: int
    """Arms among which this one was chosen; both intervals hold for all of them together."""
    difference: Estimate
    equivalence: Estimate


def compare(estimate: Estimate, *, margin: float = MARGIN, among: int = 1) -> MarginTest:
    """Whether a speedup shows a difference, or that there is none beyond `margin`; see `MarginTest`.

    Raises `UsageError` like `simultaneous`, for a margin that is not positive, and for a level of 50 % or less.
    """
    if not 0 < margin < math.inf or estimate.level <= 0.5:
        raise UsageError(
            f"equivalence: margin {margin}, level {estimate.level}", fix="give a margin above 0 and a level above 0.5"
        )
    difference = simultaneous(estimate, among)
    equivalence = simultaneous(at_level(estimate, 2 * estimate.level - 1), among)
    return MarginTest(
        conclusion=_conclusion(difference, equivalence, margin),
        margin=margin,
        among=among,
        difference=difference,
        equivalence=equivalence,
    )


def units_for(estimate: Estimate, half_width: float = MARGIN, *, among: int = 1) -> int | None:
    """About how many units (blocks, or invocations) would give an interval from 1 / (1 + half_width) to 1 + half_width
    times the speedup: the smallest m, not below the present n, with

        t(m - 1, level) * s / sqrt(m) <= ln(1 + half_width),    s = standard deviation of the n log ratios at hand.

    s of few units is itself uncertain, and the m that it advises turns out enough in about half of all cases. None
    where there is no interval, and above `MAX_UNITS`. With `among` for `simultaneous` intervals. Raises `UsageError`
    like `simultaneous`, and for a half width that is not positive.
    """
    if not 0 < half_width < math.inf or among < 1:
        raise UsageError(f"half width {half_width} among {among} arms", fix="give a half width above 0")
    half = log_half(estimate)
    if half is None:
        return None
    spread = half * math.sqrt(estimate.n) / t_critical(degrees_of_freedom(estimate), estimate.level)
    level, wanted = 1 - (1 - estimate.level) / among, math.log1p(half_width)

    def enough(m: int) -> bool:
        return t_critical(m - 1, level) * spread / math.sqrt(m) <= wanted * (1 + SAME)

    if enough(estimate.n):
        return estimate.n
    few, many = estimate.n, MAX_UNITS
    if few >= many or not enough(many):
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def _conclusion(
    difference: Estimate, equivalence: Estimate, margin: float
) -> Literal["equivalent", "faster", "slower", "not worse", "undecided"]:
    if difference.low is None or difference.high is None or equivalence.low is None or equivalence.high is None:
        return "undecided"
    not_worse = equivalence.low > 1 / (1 + margin)
    if not_worse and equivalence.high < 1 + margin:
        return "equivalent"
    if difference.low > 1:
        return "faster"
    if difference.high < 1:
        return "slower"
    return "not worse" if not_worse else "undecided"
