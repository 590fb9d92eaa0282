"""Quantiles of many requests, with an interval over the units that repeat.

Requests of one server share its luck, so the unit is the block and not the request: the point is the quantile of all
requests, and what the blocks' own quantiles q_b deviate from it says how sure it is (sectioning),

    s^2 = sum (ln q_b - ln q)^2 / (n - 1),    interval = q exp(+- t(n - 1) s / sqrt(n))

Around the quantile of all, and not around the mean of the blocks' own, since a quantile of few values is biased. A p99
of fewer than 100 requests would be their maximum: there is none.

Source: Asmussen & Glynn 2007, "Stochastic Simulation", ch. III.5 (sectioning); Nakayama 2014,
doi:10.1145/2558328 (confidence intervals for quantiles by sectioning)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.numbers.estimates import from_log
from specmeter.numbers.stats import (
    SAME,
    STUDENT,
    no_interval,
    t_critical,
)
from specmeter.record import Estimate

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats


def least_values(share: float) -> int:
    """How many values a quantile needs to be one of their inside: 2 for the median, 20 for 0.95, 100 for 0.99."""
    return max(1, math.ceil(round(1 / min(share, 1 - share), 6)))


def quantile_over(
    sections: Sequence[Floats], share: float, *, unit: str, of: str = "blocks", level: float = 0.95
) -> Estimate | None:
    """The quantile of positive values, with an interval over the sections that have any; None for too few values."""
    used = [values for values in sections if len(values)]
    if sum(map(len, used)) < least_values(share):
        return None
    point, n = float(np.quantile(np.concatenate(used), share)), len(used)
    if point <= 0:
        return None
    logs = np.log(np.maximum([float(np.quantile(values, share)) for values in used], point * 1e-9)) - math.log(point)
    half, how = None, no_interval(n)
    if n > 1 and float(np.ptp(logs)) > SAME:
        half = t_critical(n - 1, level) * math.sqrt(float(logs @ logs) / (n - 1) / n)
        how = f"{STUDENT}{of}, sectioning, on logarithms"
    return from_log(math.log(point), half, unit, f"{share:.0%} of all requests; {how}", n=n, of=of, level=level)
