"""Comparisons of runs from Python: `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.comparison import compare_runs, read_side, refuse_threshold
from specmeter.api.arguments import need, need_type
from specmeter.api.runs import Run, folder_of
from specmeter.errors import UsageError
from specmeter.show.notebook import (
    ShownComparison,
)

if TYPE_CHECKING:
    from specmeter.analysis.comparison import Measure, RunComparison


def compare(
    reference: Run | str | Path, *others: Run | str | Path, by: Measure = "rate", threshold: float = 0.02
) -> tuple[RunComparison, ...]:
    """Compare each of the `others` with the reference, arm by arm, over the prompts that both completed.

    `by` is `rate` or `speedup` (for different machines); a loss of more than the share `threshold` is a regression.
    Numbers of invalid arms are not compared. Raises `UsageError` for runs without a common arm, and `StoreError`.
    """
    need(by in ("rate", "speedup"), "by", by, '"rate" or "speedup"')
    need_type("threshold", threshold, (int, float), "a share from 0 to 0.9")
    refuse_threshold(threshold)
    if not others:
        raise UsageError("comparing needs at least two runs", fix="give two or more: compare(a, b)")
    sides = [read_side(folder_of(run)) for run in (reference, *others)]
    found = (compare_runs(sides[0], side, measure=by, threshold=threshold) for side in sides[1:])
    return tuple(ShownComparison.model_construct(**dict(one)) for one in found)
