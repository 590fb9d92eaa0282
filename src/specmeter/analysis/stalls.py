"""Requests that took far longer than the same request in other blocks.

Greedy text is the same in every block, and so should its time be. A request that takes half again as long as the same
prompt of the same arm elsewhere was held up by something that is neither the arm nor the text: another program, a
clock, a page fault. An interval over a few blocks cannot know how often that happens: with one request in ten three
times as slow, on one side only, intervals that claim 95 % hold in 70 to 94 % of simulated runs of 4 or 8 prompts and 3
to 9 blocks, since many runs of that size meet too few of them.

With x_pb the logarithm of ms per token of prompt p in block b, a request's excess is x_pb less the median of x_p in the
other blocks (the lower one of the middle two, so that of two others one may have stalled), less the median of that over
the prompts of its block (the lower one again), which is what slowed the block as a whole. A block of a single prompt
cannot tell one from the other, and nothing is seen in it. It stalled where the excess
is above ln 1.5 and above 6 robust standard deviations (1.4826 times the median absolute excess), so that an arm whose
times vary anyway is not said to stall. How often that sees such stalls, and how seldom it says so of clean runs:
`benchmarks/coverage.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from specmeter.record import Record

if TYPE_CHECKING:
    from specmeter.analysis.request_table import RequestTable
    from specmeter.numbers.stats import Floats, Ints


LEAST_EXCESS = math.log(1.5)
_DEVIATIONS = 6.0
_LEAST_PROMPTS = 2
"""Prompts of a block that can tell a request that was held up from a block that was slow as a whole."""


class Stalls(Record):
    """Requests of an arm that were held up."""

    requests: int
    """How many there were."""
    of: int
    """Requests that were looked at: those of prompts that ran in several blocks, two or more to a block."""
    slowest: float
    """How many times its usual time the slowest took."""
    share: float
    """Share of the arm's decode time that was lost by them."""


def find_stalls(table: RequestTable, rows: Ints) -> Stalls | None:
    """The stalls among an arm's rows; None where there are none, or where nothing was repeated."""
    rows = rows[table.decoded[rows]]
    if not len(rows):
        return None
    prompts, row = np.unique(table.prompt[rows], return_inverse=True)
    cells, column = np.unique(table.cell[rows], return_inverse=True)
    times = np.full((len(prompts), len(cells)), np.nan)
    times[row, column] = np.log(table.ms[rows] / table.tokens[rows])
    ms = np.zeros(times.shape)
    ms[row, column] = table.ms[rows]
    excess = excesses(times)
    known = np.isfinite(excess)
    stalled = known & (np.where(known, excess, 0.0) > limit(excess))
    if not stalled.any():
        return None
    lost = float((ms[stalled] * -np.expm1(-excess[stalled])).sum())
    return Stalls(
        requests=int(stalled.sum()),
        of=int(known.sum()),
        slowest=math.exp(float(excess[stalled].max())),
        share=lost / float(ms.sum()),
    )


def excesses(times: Floats) -> Floats:
    """How much longer each request took than the same elsewhere, in logarithms: prompts x blocks, NaN for unknown."""
    blocks = times.shape[1]
    excess = np.full(times.shape, np.nan)
    for block in range(blocks):
        others = np.delete(times, block, axis=1)
        some = np.isfinite(others).any(axis=1) & np.isfinite(times[:, block])
        if int(some.sum()) >= _LEAST_PROMPTS:
            ratios = times[some, block] - _lower_median(others[some])
            excess[some, block] = ratios - _lower_median(ratios[None, :])
    return excess


def _lower_median(values: Floats) -> Floats:
    """The median of each row, the lower of the middle two where their number is even; NaN is not counted."""
    middle = (np.isfinite(values).sum(axis=1) - 1) // 2
    return np.sort(values, axis=1)[np.arange(len(values)), middle]


def limit(excess: Floats) -> float:
    """The excess above which a request stalled."""
    known = excess[np.isfinite(excess)]
    if not len(known):
        return math.inf
    return max(LEAST_EXCESS, _DEVIATIONS * 1.4826 * float(np.median(np.abs(known))))
