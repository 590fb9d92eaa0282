"""Decode rates of an arm over prompts and blocks, and how much they spread.

Rates are natural logarithms of tok/s, so that a difference of 0.05 is 5 %. What repeats is a prompt over blocks, and
everything is compared within prompts: rates of different prompts differ for good reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.numbers.special import f_above
from specmeter.validity.checks.requests import Requests

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats, Ints


class Speeds(NamedTuple):
    """Decode rates of one arm."""

    logs: Floats
    """Natural logarithm of tok/s, prompts x blocks; NaN where nothing was decoded."""
    prompts: tuple[str, ...]
    cells: tuple[BlockKey, ...]
    """The blocks, in their order."""

    def by_block(self) -> dict[BlockKey, float]:
        """How much faster than usual each block was, prompts held fixed."""
        if not self.cells:
            return {}
        effects = np.nanmean(self.logs - np.nanmean(self.logs, axis=1, keepdims=True), axis=0)
        return dict(zip(self.cells, effects.tolist(), strict=True))


def speeds_of(requests: Requests) -> Speeds:
    """Rates of requests that decoded anything, all of one arm."""
    decoded = requests.at((requests.whole("predicted_n") > 1) & (np.nan_to_num(requests.number("predicted_ms")) > 0))
    prompts, prompt = decoded.distinct("prompt_id")
    found, cell = decoded.distinct("invocation", "block")
    cells = {key: place for place, key in enumerate(sorted((invocation, block) for invocation, block in found))}
    column = np.array([cells[invocation, block] for invocation, block in found], dtype=np.int64)[cell]
    logs = np.full((len(prompts), len(cells)), np.nan)
    logs[prompt, column] = np.log(1000 * (decoded.number("predicted_n") - 1) / decoded.number("predicted_ms"))
    return Speeds(logs, tuple(name for (name,) in prompts), tuple(cells))


# --- how much --------------------------------------------------------------------------------------------------------


class Variation(NamedTuple):
    """Standard deviations of the logarithm of a rate, which are its coefficients of variation."""

    between: float
    """Of blocks, prompts held fixed; 0 where there is one block."""
    within: float
    """Of single requests, prompts and blocks held fixed; in a single block, of its prompts."""
    prompts: int
    blocks: int

    @property
    def of_a_block(self) -> float:
        """What a block's rate varies by: as seen, or at least what the variation of its requests leaves of it."""
        return max(self.between, self.within / math.sqrt(max(1, self.prompts)))


def variation(speeds: Speeds) -> Variation | None:
    """None where nothing was repeated."""
    prompts, blocks = speeds.logs.shape
    if speeds.logs.size < 2:
        return None
    if blocks == 1:
        return Variation(0.0, float(np.std(speeds.logs, ddof=1)), prompts, blocks)
    effects = np.array(list(speeds.by_block().values()))
    left = speeds.logs - np.nanmean(speeds.logs, axis=1, keepdims=True) - effects
    freedom = int(np.isfinite(speeds.logs).sum()) - prompts - blocks + 1
    within = math.sqrt(float(np.nansum(left**2)) / freedom) if freedom > 0 else 0.0
    return Variation(float(effects.std(ddof=1)), within, prompts, blocks)


# --- with the clock --------------------------------------------------------------------------------------------------

_FREEDOM = 8
"""Least degrees of freedom for a drift."""
_TURNS = 0.01
"""Least share of its place in the block that an arm's turns must move it by, for drift to be told from the arms."""


class BlockEffect(NamedTuple):
    """An arm in a block."""

    arm: int
    block: int
    at: float
    """When it was measured, in seconds."""
    effect: float
    """How much faster than usual it was."""


class Drift(NamedTuple):
    """Change of all rates within blocks."""

    per_s: float
    """Of the logarithm of a rate, per second."""
    ratio: float
    """To its standard error."""


def drift(points: Sequence[BlockEffect]) -> Drift | None:
    """Least squares: effect = that of the arm + that of the block + drift * time; None where they cannot be
    distinguished.

    Where every block has the same order, an arm's time is as much its own as its speed is.
    """
    if not points:
        return None
    arm, block, at, effects = np.array(points, dtype=np.float64).T
    groups = arm.astype(np.int64), block.astype(np.int64)
    freedom = len(points) - len(set(groups[0].tolist())) - len(set(groups[1].tolist()))
    in_block = _less_means(at - at.min(), groups[1])
    moved = _less_both(in_block, *groups)
    spread = float(moved @ moved)
    if freedom < _FREEDOM or spread <= _TURNS**2 * float(in_block @ in_block):
        return None
    effect = _less_both(effects, *groups)
    per_s = float(moved @ effect) / spread
    left = effect - per_s * moved
    error = math.sqrt(float(left @ left) / freedom / spread)
    return Drift(per_s, abs(per_s) / error if error > 0 else math.inf)


class CarryOver(NamedTuple):
    """What the arm that was measured just before leaves behind."""

    left: Mapping[int, float]
    """Arm -> how much faster than usual the next one is, in the logarithm of its rate; 0 on average."""
    met: Mapping[int, float]
    """Arm -> what those before it left to it, on average."""
    chance: float
    """That arms which leave nothing behind look as unlike (F test)."""


def carry_over(points: Sequence[BlockEffect]) -> CarryOver | None:
    """Least squares: effect = that of the arm + that of the block + that of the arm before it in the block; None where
    they cannot be distinguished. The first of a block has none before it, which is a predecessor of its own."""
    ordered = sorted(points, key=lambda it: (it.block, it.at))
    last = [-1, *(one.arm if one.block == other.block else -1 for one, other in pairwise(ordered))]
    # What blocks explain is taken off first, which leaves the same as a column for each of them would.
    distinct, blocks = np.unique([it.block for it in ordered], return_inverse=True)
    arms, before = (_indicated(it, blocks) for it in ([it.arm for it in ordered], last))
    effects = _less_means(np.array([it.effect for it in ordered]), blocks)
    _, without, rank = _fitted(arms, effects)
    fitted, unexplained, whole = _fitted(np.hstack([arms, before]), effects)
    added, freedom = whole - rank, len(ordered) - whole - len(distinct)
    if added < 1 or freedom < _FREEDOM or unexplained <= 0:
        return None
    ratio = max(0.0, without - unexplained) / added / (unexplained / freedom)
    names = sorted(set(last))
    found = fitted[-len(names) :] - float(np.mean(fitted[-len(names) :]))
    left: dict[int, float] = dict(zip(names, found.tolist(), strict=True))
    met: dict[int, list[float]] = {}
    for point, one in zip(ordered, last, strict=True):
        met.setdefault(point.arm, []).append(left[one])
    means = {arm: sum(values) / len(values) for arm, values in met.items()}
    return CarryOver(left, means, f_above(added, freedom, ratio))


def _fitted(design: Floats, values: Floats) -> tuple[Floats, float, int]:
    """(the smallest coefficients that fit best, squares that are left, rank)."""
    found, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return np.asarray(found, dtype=np.float64), float(np.sum((values - design @ found) ** 2)), int(rank)


def _indicated(groups: Sequence[int], blocks: Ints) -> Floats:
    """A column for each group, 1 where a value is of it, less the mean of its block."""
    columns = (np.array(groups) == np.unique(groups)[:, np.newaxis]).astype(np.float64)
    return np.column_stack([_less_means(it, blocks) for it in columns])


def _less_both(values: Floats, arm: Ints, block: Ints) -> Floats:
    """Values less what arms and blocks explain; right at once where every arm is in every block, soon otherwise."""
    for _ in range(20):
        values = _less_means(_less_means(values, arm), block)
    return values


def _less_means(values: Floats, group: Ints) -> Floats:
    return values - (np.bincount(group, values) / np.maximum(1, np.bincount(group)))[group]


# --- in two levels ---------------------------------------------------------------------------------------------------

MIN_REPEATS = 20
"""Repetitions below which two levels could not be told from one."""
_MAX_REPEATS = 1000
"""More are not needed, and the dip costs some 10 microseconds for each."""
_LEVELS_APART = math.log(1.05)
_MIN_SHARE = 0.1
_CLEFT = 3.5
"""How many standard deviations of the groups their means lie apart at least: 3.0 for the halves of a normal
distribution's absolute values, so the dip is asked only where there is a gap to speak of."""


class Levels(NamedTuple):
    """Two groups of values."""

    apart: float
    """Of their means."""
    upper_share: float


def repeats(speeds: Speeds) -> Floats:
    """|difference| of each prompt's rates in blocks 0 and 1, 2 and 3, ..., less the median over prompts."""
    even = len(speeds.cells) // 2 * 2
    pairs = speeds.logs[:, 1:even:2] - speeds.logs[:, 0:even:2]
    if len(pairs) > 1:
        seen = [column[np.isfinite(column)] for column in pairs.T]
        pairs = pairs - np.array([np.median(column) if len(column) else np.nan for column in seen])
    if len(pairs) == 2:
        # Two prompts lie equally far from their median: one of them says it all.
        pairs = pairs[:1]
    found = np.abs(pairs[np.isfinite(pairs)])
    return found[:: max(1, math.ceil(len(found) / _MAX_REPEATS))]


def two_levels(values: Floats) -> Levels | None:
    """The two levels of the values; None where there is one, or where the two hardly matter."""
    from specmeter.numbers.dip import DIP_LIMIT, dip

    x = np.sort(values)
    n = len(x)
    if n < 2:
        return None
    below = np.arange(1, n)
    sums = np.cumsum(x)[:-1]
    lower, upper = sums / below, (x.sum() - sums) / (n - below)
    # The cut that leaves the least variance within the groups (Otsu 1979, doi:10.1109/TSMC.1979.4310076).
    cut = int(np.argmax(below * (n - below) * (upper - lower) ** 2))
    apart, share = float(upper[cut] - lower[cut]), float((n - below[cut]) / n)
    width = math.sqrt(max(0.0, float(x.var()) - share * (1 - share) * apart**2))
    if apart < _LEVELS_APART or not _MIN_SHARE <= share <= 1 - _MIN_SHARE or apart < _CLEFT * width:
        return None
    return Levels(apart, share) if dip(x) * math.sqrt(n) > DIP_LIMIT else None
