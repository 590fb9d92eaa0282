"""What an incomplete table of prompts and blocks says of its gaps.

A baseline that runs its prompts in turn meets the arm on other prompts in every block. Speedups differ by prompt, so
the ratios of such blocks differ for a reason that has nothing to do with chance: each is of other prompts. The remedy
for experiments with missing plots is to fit what each prompt and each block adds, by least squares, to complete the
table by what the fit expects, and to go on as with a complete one (Yates 1933, "The analysis of replicated experiments
when the field results are incomplete"). Nothing is completed where the fit is not determined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_ROUNDS = 2000
_SETTLED = 1e-10


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
