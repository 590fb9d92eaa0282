"""What an incomplete table of prompts and blocks says of its gaps.

A baseline that runs its prompts in turn meets the arm on other prompts in every block. Speedups differ by prompt, so
the ratios of such blocks differ for a reason that has nothing to do with chance: each is of other prompts. The remedy
for experiments with missing plots is to fit what each prompt and each block adds, by least squares, to complete the
table by what the fit expects, and to go on as with a complete one (Yates 1933, "The analysis of replicated experiments
when the field results are incomplete"). Nothing is completed where the fit is not determined.

What is completed is not measured, and one fit fills the gaps of all blocks, so its error hardly shows in how blocks
differ. `doubt` says how much that adds: completing is linear in what was measured, so with noise of variance s_e^2 in
each log speedup (the residuals of the fit; degrees of freedom: measured - prompts - blocks + 1) the mean over blocks
has the variance s_e^2 * |w|^2, w being the weight of every measured value in it. The blocks' scatter shows a part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_ROUNDS = 2000
_SETTLED = 1e-10
LEAST_DF = 3
"""Residuals with fewer degrees of freedom do not tell how large the error of a completed value is."""
MOST_COMPLETED = 0.5
"""Where a larger share of a table is completed, it is a guess more than a measurement."""


class Doubt(NamedTuple):
    """What completed values add to the uncertainty of a mean."""

    variance: float
    """To be added to what the units' scatter shows, of the logarithm; infinite where too little was measured."""
    df: int
    """Degrees of freedom of the residuals."""


def doubt(values: Floats, expected: Floats, shares: Floats, units: Ints) -> Doubt:
    """What completing adds to the variance of the mean over units.

    `values` are blocks x prompts, NaN where `expected` takes their place; `shares` weigh the prompts of each block, and
    `units` numbers the unit of each block.
    """
    known = np.isfinite(values)
    df = int(known.sum()) - sum(known.shape) + 1
    if df < LEAST_DF or 1 - float(known.mean()) > MOST_COMPLETED:
        return Doubt(math.inf, max(0, df))
    noise = float(np.nansum((values - expected) ** 2)) / df
    weights = np.stack([_weights(known, shares, units == unit) for unit in np.unique(units)])
    if len(weights) < 2:
        return Doubt(0.0, df)
    mean = weights.mean(axis=0)
    seen = float(((weights - mean) ** 2).sum()) / (len(weights) - 1) / len(weights)
    return Doubt(noise * max(0.0, float((mean**2).sum()) - seen), df)


def _weights(known: Bools, shares: Floats, mine: Bools) -> Floats:
    """By how much each measured value moves the mean over the blocks of one unit, blocks x prompts.

    A gap holds a_p + c_b, where a_p is the mean of what is known of the prompt less its blocks' c, and the c solve the
    normal equations of the fit.
    """
    of_prompt = known / known.sum(axis=0)
    normal = np.diag(known.sum(axis=1)) - known @ of_prompt.T
    missing = np.where(known, 0.0, shares) * mine[:, None]
    of_block: Floats = (missing.sum(axis=1) - (missing @ of_prompt.T).sum(axis=0)) @ _inverse(normal)
    moved = np.where(known, shares * mine[:, None] + of_block[:, None] - of_block @ of_prompt, 0.0)
    return (moved + missing.sum(axis=0) * of_prompt) / mine.sum()


def additive(values: Floats, rows: Ints, columns: Ints) -> tuple[dict[int, float], dict[int, float]] | None:
    """Least squares of value = that of its row + that of its column, as (row -> value, column -> value).

    Sums of the two are determined for all pairs when rows and columns hang together: when one can go from any row to
    any other through columns that both have. None where they do not, and where the fit does not settle.
    """
    names, row = np.unique(rows, return_inverse=True)
    titles, column = np.unique(columns, return_inverse=True)
    if not len(values) or not _hang_together(row, column, len(names), len(titles)):
        return None
    in_row, in_column = np.bincount(row), np.bincount(column)
    of_row, of_column = np.zeros(len(names)), np.zeros(len(titles))
    for _ in range(_ROUNDS):
        of_row = np.bincount(row, values - of_column[column]) / in_row
        before, of_column = of_column, np.bincount(column, values - of_row[row]) / in_column
        if float(np.abs(of_column - before).max()) < _SETTLED:
            return (
                dict(zip(names.tolist(), of_row.tolist(), strict=True)),
                dict(zip(titles.tolist(), of_column.tolist(), strict=True)),
            )
    return None


def _inverse(normal: Floats) -> Floats:
    """The pseudoinverse of a symmetric matrix."""
    values, vectors = np.linalg.eigh(normal)
    usable = values > 1e-9 * values.max()
    return (vectors[:, usable] / values[usable]) @ vectors[:, usable].T


def _hang_together(row: Ints, column: Ints, rows: int, columns: int) -> bool:
    """Whether every row can be reached from the first one: the least label spreads along rows and columns."""
    labels = np.arange(rows)
    while True:
        of_column = np.full(columns, rows)
        np.minimum.at(of_column, column, labels[row])
        spread = labels.copy()
        np.minimum.at(spread, row, of_column[column])
        if (spread == labels).all():
            return bool((labels == 0).all())
        labels = spread
