"""Requests that took far longer than the same request in other blocks.

With x_pb the logarithm of ms per token of prompt p in block b, a request's excess is x_pb less the lower quartile of
x_p in the other blocks, less the lower quartile of that over the prompts of its block, less the median of all of these.
So a quarter of the requests may stall before stalls pass for usual. It stalled if the excess is above ln 1.5 and above
6 robust standard deviations of the faster half (1.4826 times its median distance from 0). What stalled stays in: a rule
by what came out biases. How often stalls are seen is in docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.requests import RequestTable, distinct
from specmeter.numbers.estimates import share_at_most
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints

    Bools = NDArray[np.bool_]


MIN_EXCESS = math.log(1.5)
_DEVIATIONS = 6.0
_MIN_PROMPTS = 2
"""Prompts of a block that can tell a request that was held up from a block that was slow as a whole."""


class Stalls(Record):
    """Requests of an arm that were held up, if any were."""

    requests: int
    """How many there were; 0: none."""
    of: int
    """Requests that were looked at: those of prompts that ran in several blocks, two or more to a block."""
    rate: Estimate
    """Share of the arm's requests that stall: up to an exact bound."""
    slowest: float
    """How many times its usual time the slowest took; 1 where none stalled."""
    share: float
    """Share of the arm's decode time that was lost by them."""


def find_stalls(table: RequestTable, rows: Ints) -> Stalls | None:
    """The stalls among an arm's rows; None where none could be seen, because nothing was repeated."""
    rows = rows[table.decoded[rows]]
    if not len(rows):
        return None
    prompts, cells = distinct(table.prompt[rows]), distinct(table.cell[rows])
    row, column = np.searchsorted(prompts, table.prompt[rows]), np.searchsorted(cells, table.cell[rows])
    times = np.full((len(prompts), len(cells)), np.nan)
    times[row, column] = np.log(table.ms[rows] / table.tokens[rows])
    ms = np.zeros(times.shape)
    ms[row, column] = table.ms[rows]
    excess = excesses(times)
    known = np.isfinite(excess)
    stalled = known & (np.where(known, excess, 0.0) > limit(excess))
    if not known.any():
        return None
    lost = float((ms[stalled] * -np.expm1(-excess[stalled])).sum())
    count, seen = int(known.sum()), int(stalled.sum())
    return Stalls(
        requests=seen,
        of=count,
        rate=share_at_most(seen, count, "requests"),
        slowest=math.exp(float(excess[stalled].max(initial=0.0))),
        share=lost / float(ms.sum()),
    )


def excesses(times: Floats) -> Floats:
    """How much longer each request took than the same elsewhere, in logarithms: prompts x blocks, NaN for unknown.

    Elsewhere: in the faster quarter of the other blocks, and the block's faster quarter of prompts, so that stalls do
    not become the usual time as long as not more than about a quarter of the requests stall.
    """
    excess = np.full(times.shape, np.nan)
    counted = np.isfinite(times)
    others = counted.sum(axis=1, keepdims=True) - 1
    place = (np.maximum(others - 1, 0) * 0.25).astype(int)
    # Of sorted times without one of them, those from its rank on move up by one.
    rank = times.argsort(axis=1).argsort(axis=1)
    at = np.minimum(place + (rank <= place), times.shape[1] - 1)
    ratios = np.where(counted & (others > 0), times - np.take_along_axis(np.sort(times, axis=1), at, axis=1), np.nan)
    enough = np.isfinite(ratios).sum(axis=0) >= _MIN_PROMPTS
    excess[:, enough] = ratios[:, enough] - _lower(ratios[:, enough].T, 0.25)
    known = np.isfinite(excess)
    return excess - _lower(excess[known][None, :], 0.5) if known.any() else excess


def _lower(values: Floats, share: float) -> Floats:
    """The value of each row that such a share lies below, the lower of two neighbours; NaN is not counted."""
    place = ((np.isfinite(values).sum(axis=1) - 1) * share).astype(int)
    return np.sort(values, axis=1)[np.arange(len(values)), place]


def limit(excess: Floats) -> float:
    """The excess above which a request stalled: by the spread of the faster half, which holds no stalls."""
    known = excess[np.isfinite(excess)]
    if not len(known):
        return math.inf
    return max(MIN_EXCESS, _DEVIATIONS * 1.4826 * float(np.median(np.abs(known[known <= 0]))))
