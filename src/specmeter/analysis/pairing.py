"""Where an arm and its baseline met: the same prompts on both sides, in every block.

A ratio of two rates says something about the arms only where both sides did the same work, and ratios of several
blocks repeat each other only where each block holds the same prompts. So:

- a prompt counts where both sides completed it in at least one block; one that a side never completed is left out on
  both sides;
- a prompt that one side, or both, lack in a block is completed there as the other blocks let expect
  (`numbers.stats.additive`): an arm that fails on its slow prompts would look faster otherwise;
- where prompts and blocks cannot be distinguished, nothing is completed, and each block counts what both completed in
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.requests import common, distinct
from specmeter.numbers.stats import ImputationVariance, Pair, Pool, additive, imputation_error, with_doubt
from specmeter.record import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.analysis.requests import RequestTable
    from specmeter.numbers.stats import Floats, Ints

    Bools = NDArray[np.bool_]


Grid = tuple["Floats", "Floats", "Floats", "Floats"]
"""Requests, tokens after the first, decode ms and prompt ms of one side, blocks x prompts."""


@dataclass(frozen=True)
class PairedBlocks:
    """An arm and its baseline, blocks x prompts, completed where that could be done."""

    arm: Grid
    baseline: Grid
    logs: Floats
    """Logarithm of the speedup of each prompt in each block; NaN where nothing is known of it."""
    seen: Floats
    """The same of what was measured; NaN where something was completed."""
    invocations: Ints
    """Invocation of each block."""
    prompts: Ints
    """Numbers of the prompts in the table."""
    completed: int
    """Prompts of a block that one side, or both, lack and that were completed."""
    doubt: ImputationVariance | None
    """What completing adds to the variance of the speedup; None where nothing was completed."""

    def doubted(self, speedup: Estimate) -> Estimate:
        """The estimate, less certain by what was completed."""
        return speedup if self.doubt is None else with_doubt(speedup, *self.doubt)

    def pairs(self) -> dict[int, list[Pair]]:
        """Invocation -> (arm, baseline) of each block, decoding alone."""
        return self._pairs(*((tokens.sum(axis=1), ms.sum(axis=1)) for _, tokens, ms, _ in (self.arm, self.baseline)))

    def with_prompts(self) -> dict[int, list[Pair]]:
        """The same with prompts: all generated tokens, over the time of prompts and of decoding."""
        return self._pairs(
            *(
                ((count + tokens).sum(axis=1), (ms + prompt_ms).sum(axis=1))
                for count, tokens, ms, prompt_ms in (self.arm, self.baseline)
            )
        )

    def _pairs(self, arm: tuple[Floats, Floats], baseline: tuple[Floats, Floats]) -> dict[int, list[Pair]]:
        found: dict[int, list[Pair]] = {}
        columns = (values.tolist() for values in (self.invocations, *arm, *baseline))
        for invocation, tokens, ms, plain_tokens, plain_ms in zip(*columns, strict=True):
            found.setdefault(invocation, []).append((Pool(tokens, ms), Pool(plain_tokens, plain_ms)))
        return found


def pair_blocks(table: RequestTable, rows: Ints, base: Ints, prompts: Ints | None = None) -> PairedBlocks | None:
    """Where these rows of an arm and of its baseline met, on `prompts` alone where they are given; None for nowhere."""
    rows, base = rows[table.decoded[rows]], base[table.decoded[base]]
    if prompts is not None:
        rows, base = rows[np.isin(table.prompt[rows], prompts)], base[np.isin(table.prompt[base], prompts)]
    shared = common(table.key[rows], table.key[base])
    if not len(shared):
        return None
    cell, prompt = np.divmod(shared, len(table.prompts))
    cells, names = distinct(cell), distinct(prompt)
    arm, baseline = _grid(table, rows, cells, names), _grid(table, base, cells, names)
    both = (arm[0] > 0) & (baseline[0] > 0)
    logs = np.full(both.shape, np.nan)
    logs[both] = _log_rates(arm)[both] - _log_rates(baseline)[both]
    completed, expected = 0, None
    if not both.all():
        expected = _expected(logs)
        plain = _expected(np.where(baseline[0] > 0, -_log_rates(baseline), np.nan))
        if expected is None or plain is None:
            for side in (*arm, *baseline):
                side[~both] = 0.0
        else:
            completed = int((~both).sum())
            _complete(arm, baseline, expected, plain)
    seen, added = logs, None
    invocations = np.array([table.cells[number][0] for number in cells.tolist()], dtype=np.int64)
    if completed and expected is not None:
        units = invocations if len(table.invocations) > 1 else np.arange(len(cells))
        added = imputation_error(seen, expected, (_shares(arm) + _shares(baseline)) / 2, units)
        logs = np.where(both, logs, expected)
    return PairedBlocks(arm, baseline, logs, seen, invocations, names, completed, added)


def _grid(table: RequestTable, rows: Ints, cells: Ints, prompts: Ints) -> Grid:
    rows = rows[np.isin(table.cell[rows], cells) & np.isin(table.prompt[rows], prompts)]
    place = np.searchsorted(cells, table.cell[rows]) * len(prompts) + np.searchsorted(prompts, table.prompt[rows])

    def summed(values: Ints | Floats | None) -> Floats:
        weights = None if values is None else values[rows].astype(np.float64)
        return np.bincount(place, weights, len(cells) * len(prompts)).astype(np.float64).reshape(len(cells), -1)

    return summed(None), summed(table.tokens), summed(table.ms), summed(table.prompt_ms)


def _log_rates(side: Grid) -> Floats:
    """Logarithm of tokens per ms; NaN where there is nothing."""
    _, tokens, ms, _ = side
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(tokens) - np.log(ms)


def _shares(side: Grid) -> Floats:
    """Each prompt's share of a block's time: by how much its logarithm moves that of the block."""
    _, _, ms, _ = side
    return ms / ms.sum(axis=1, keepdims=True)


def _expected(values: Floats) -> Floats | None:
    """What the known values let expect everywhere; None where that cannot be told."""
    cell, prompt = np.nonzero(np.isfinite(values))
    fitted = additive(values[cell, prompt], prompt, cell)
    if fitted is None or len(fitted[0]) < values.shape[1] or len(fitted[1]) < values.shape[0]:
        return None
    of_prompt, of_cell = fitted
    across = np.array([of_prompt[number] for number in range(values.shape[1])])
    return across + np.array([of_cell[number] for number in range(values.shape[0])])[:, None]


def _complete(arm: Grid, baseline: Grid, speedups: Floats, plain: Floats) -> None:
    """Fill what either side lacks, in place; `speedups` and `plain` (ms per token of the baseline) are logarithms."""
    mine, theirs = arm[0] > 0, baseline[0] > 0
    usual = [_usual(side[1], known) for side, known in ((baseline, theirs), (arm, mine))]
    tokens = np.where(theirs, baseline[1], np.where(mine, arm[1], np.where(usual[0] > 0, usual[0], usual[1])))
    plain_ms = np.where(theirs, baseline[2], np.where(mine, arm[2] * np.exp(speedups), tokens * np.exp(plain)))
    ms = np.where(mine, arm[2], plain_ms / np.exp(speedups))
    for side, known, time in ((arm, mine, ms), (baseline, theirs, plain_ms)):
        count, produced, decode_ms, prompt_ms = side
        prompt_ms[...] = np.where(known, prompt_ms, _usual(prompt_ms, known))
        produced[...] = np.where(known, produced, tokens)
        decode_ms[...] = time
        count[...] = np.where(known, count, 1.0)


def _usual(values: Floats, known: Bools) -> Floats:
    """The mean of each prompt over the blocks that know it, in every block; 0 for what none knows."""
    return np.broadcast_to(np.where(known, values, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0)), values.shape)
