"""Which arms of a race may be left out after each block, and when the race is over.

A race measures arms in blocks: x_bi is the logarithm of arm i's rate in block b, on the same prompts for all. Blocks
have a speed of their own (the machine drifts), which all arms of a block share, so with arm and block effects m and f

    x_bi = m_i + f_b + noise,    d_ij = m_i - m_j,    both fitted by least squares over all cells that were measured.

After every block from the second on, for each pair, an upper bound of d_ij:

    U_ij = d_ij + t(df, 1 - a_b / (K - 1)) * max(pooled error, own error)

where K is the number of arms at the start, the *pooled* error comes from the residuals of all arms and the *own* error
from the differences of the pair, so that an arm which is noisier than the others is not judged by their noise. The
error allowed is spent over the looks: a_b, that of look b, is proportional to 1 / (b - 1). An arm i is left out

- as *slower* than j if U_ij < 0: its rate is shown to be below that of j;
- as *equivalent* to a simpler j, or to one that is ahead, if U_ij < ln(1 + margin): it is shown not to be faster by
  more than the margin. If each could stand for the other, the simpler one stays.

To lose more than the margin by leaving out the best arm i, U_ij has to be below the true d_ij for some j at some look.
By Bonferroni's inequality that happens with probability `error` at most. For decoding without speculation (arm 0),
which is only ever out as slower, half of it is allowed: only then may a race say "speculate".

The pooled residuals of K arms have (b - 1)(K - 1) degrees of freedom, but that is worth as much only if all arms are
equally noisy; so no more are counted than three arms have, 2 (b - 1). A pair alone would have b - 1.

This rule was chosen by simulation against four others: the table is in `benchmarks/elimination.py`.

Sources: Jennison & Turnbull 2000, "Group Sequential Methods" (error spent over looks; t statistics at unequal looks);
Even-Dar, Mannor & Mansour 2006, JMLR 7, 1079 (successive elimination, and arms within a margin of the best); Dunn 1961,
doi:10.1080/01621459.1961.10482090 (Bonferroni's inequality for several means); Lai 1976, doi:10.1214/aos/1176343406
(martingales for Student's t); Howard, Ramdas, McAuliffe & Sekhon 2021, doi:10.1214/20-AOS1991 (bounds at all times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.estimates import from_log
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.special import t_above
from specmeter.numbers.stats import SAME, STUDENT, log_half, t_critical
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats

MIN_BLOCKS = 2
"""Blocks before anything is left out: one says nothing about noise."""
PLAIN_SHARE = 0.5
"""Part of the error that may be spent on leaving out decoding without speculation."""


ALIKE = 2
"""Degrees of freedom counted for each block after the first: as three arms that are alike have."""


class Eliminated(Record):
    """An arm that was left out."""

    block: int
    """Blocks that had been measured by then."""
    than: int
    """The arm that it was held against."""
    ratio: Estimate
    """Its rate over that of `than`, with an interval of 95 % of its own."""
    why: Literal["slower", "equivalent"]
    """`slower` than the other; `equivalent`: not faster than the other by more than the margin, and the other is
    simpler, or ahead."""


class RaceStanding(Record):
    """How a race stands after its last block."""

    leader: int
    """The fastest of the arms that are left; the only one where the race is decided."""
    survivors: tuple[int, ...]
    """Arms that are left, the fastest first."""
    eliminated: dict[int, Eliminated]
    state: Literal["open", "winner", "equivalent"]
    """`winner`: all others are slower. `equivalent`: all others are out, some of them as equivalent."""
    blocks: int
    """Blocks with at least two arms."""
    faster_than_plain: bool
    """Whether decoding without speculation is shown to be slower than the leader."""
    ratios: dict[int, Estimate]
    """Arm -> its rate over that of decoding without speculation."""
    at_stake: float | None
    """Share of the speed that is expected to be lost if the leader is taken now (0.005: half a percent); 0 where it is
    the only one left, None where too little was measured. Proves nothing: it says whether a further block is worth
    its time."""


def eliminate(
    log_rates: Floats,
    *,
    simplicity: Sequence[int],
    margin: float = MARGIN,
    error: float = 0.05,
    most_blocks: int,
) -> RaceStanding:
    """How a race stands: `log_rates` is blocks x arms, nan where an arm was not measured; arm 0 is decoding without
    speculation.

    `simplicity` ranks the arms, the simplest lowest; of equals the one that is ahead is preferred. `most_blocks` is how
    many blocks the race may have, fixed before it: the error is spent over this many looks, and blocks beyond them
    leave nothing out. All looks are taken again from the first, so the answer depends on the data alone.

    Raises `UsageError` for a wrong shape, infinite values, or a margin or error that are no shares.
    """
    rates = np.asarray(log_rates, dtype=np.float64)
    if rates.ndim != 2 or rates.shape[1] != len(simplicity) or not rates.shape[1] or np.isinf(rates).any():
        raise UsageError(
            f"elimination: {rates.shape} rates of {len(simplicity)} arms, or infinite values",
            fix="give logarithms of positive rates as blocks x arms, with nan for missing values",
        )
    if not (0 < margin < 1 and 0 < error < 1 and most_blocks >= 1):
        raise UsageError(
            f"elimination: margin {margin}, error {error}, {most_blocks} blocks", fix="give values between 0 and 1"
        )
    rates = rates[np.isfinite(rates).sum(axis=1) > 1]
    race = _Race(simplicity, math.log1p(margin), set(range(rates.shape[1])), {})
    for block in range(MIN_BLOCKS, min(len(rates), most_blocks) + 1):
        race.look(_Fit(rates[:block]), _spent(error, block, most_blocks) / max(1, rates.shape[1] - 1))
    fit = _Fit(rates)
    survivors = tuple(sorted(race.survivors, key=lambda arm: (-fit.means[arm], simplicity[arm], arm)))
    state: Literal["open", "winner", "equivalent"] = "open"
    if len(survivors) == 1:
        state = "equivalent" if any(it.why == "equivalent" for it in race.eliminated.values()) else "winner"
    return RaceStanding(
        leader=survivors[0],
        survivors=survivors,
        eliminated=race.eliminated,
        state=state,
        blocks=len(rates),
        faster_than_plain=0 in race.eliminated and race.eliminated[0].why == "slower",
        ratios={arm: fit.ratio(arm, 0) for arm in range(1, rates.shape[1]) if fit.known[arm, 0]},
        at_stake=fit.expected_loss(survivors[0], survivors[1:]),
    )


def blocks_to_confirm(ratio: Estimate, *, most: int = 10, among: int = 1) -> int:
    """Blocks with which Student's interval of one arm would probably lie on the side of 1 where the race saw it.

    The smallest n, 3 or more, with t(n - 1) * s / sqrt(n) at most half of the logarithm of `ratio`: half, since the
    ratio of an arm that was chosen for it is a little too good, and the next s may be larger. `most` where nothing is
    enough; `among` for one of this many intervals (Bonferroni).
    """
    return _enough(ratio, abs(math.log(ratio.point)) / 2, most, among=among)


def blocks_to_decide(ratio: Estimate, *, margin: float = MARGIN, most: int, among: int = 2) -> int:
    """Blocks with which the interval of a ratio that lies near 1 would probably say one of two things: that it is above
    1, or that it is below 1 + `margin`.

    As `blocks_to_confirm`, for an interval that is one of two or more (Bonferroni), whose half is the ratio's own
    distance from the nearer end of what it should say, or half the margin where that is more.
    """
    log, wide = math.log(ratio.point), math.log1p(margin)
    return _enough(ratio, max(log, wide - log, wide / 2) / 2, most, among=among)


def _enough(ratio: Estimate, wanted: float, most: int, *, among: int = 1) -> int:
    """The smallest n, 3 or more, with t(n - 1) * s / sqrt(n) at most `wanted`, s as behind `ratio`."""
    half = log_half(ratio)
    if half is None or half == 0:
        return most
    df = ratio.n - 1 if ratio.df is None else ratio.df
    spread = half / t_critical(df, ratio.level) * math.sqrt(ratio.n)
    level = 1 - (1 - ratio.level) / among
    enough = (n for n in range(3, most) if t_critical(n - 1, level) * spread / math.sqrt(n) <= wanted)
    return next(enough, most)


def _spent(error: float, block: int, most_blocks: int) -> float:
    """The share of the error that the look after this many blocks may spend: proportional to 1 / (block - 1)."""
    return error / (block - 1) / sum(1 / (b - 1) for b in range(MIN_BLOCKS, most_blocks + 1))


@dataclass
class _Race:
    """Arms that are left and those that are out, between looks."""

    simplicity: Sequence[int]
    margin: float
    """As a logarithm."""
    survivors: set[int]
    eliminated: dict[int, Eliminated]

    def look(self, fit: _Fit, share: float) -> None:
        """Leave out what the blocks so far show; `share` is the error of one pair at this look."""
        upper = fit.upper(share)
        rash = fit.upper(share * PLAIN_SHARE)[0]
        for arm in sorted(self.survivors, key=lambda it: fit.means[it]):
            bounds = rash if arm == 0 else upper[arm]
            slower = [it for it in self.survivors - {arm} if bounds[it] < 0 and not self._replaces(arm, it, fit, upper)]
            self._leave_out(arm, slower, fit, upper, "slower")
        for arm in sorted(self.survivors, key=lambda it: -self.simplicity[it]):
            preferred = [it for it in self.survivors - {arm} if self._replaces(it, arm, fit, upper)]
            self._leave_out(arm, preferred, fit, upper, "equivalent")

    def _leave_out(
        self, arm: int, rivals: Sequence[int], fit: _Fit, upper: Floats, why: Literal["slower", "equivalent"]
    ) -> None:
        if rivals:
            than = min(rivals, key=lambda it: (upper[arm, it], it))
            self.survivors.discard(arm)
            self.eliminated[arm] = Eliminated(block=fit.blocks, than=than, ratio=fit.ratio(arm, than), why=why)

    def _replaces(self, rival: int, arm: int, fit: _Fit, upper: Floats) -> bool:
        """Whether neither `arm`, nor any that is out for it, is faster than the rival by more than the margin, and the
        rival is to be preferred: it is simpler, or it is ahead and may be faster by more than that."""
        order = [(self.simplicity[it], -fit.means[it], it) for it in (rival, arm)]
        ahead = arm != 0 and fit.means[rival] > fit.means[arm] and upper[rival, arm] >= self.margin
        preferred = order[0] < order[1] or ahead
        return preferred and all(upper[it, rival] < self.margin for it in (arm, *self._stood_for(arm)))

    def _stood_for(self, arm: int) -> list[int]:
        """Arms that are out as equivalent to this one, or to one that is out for it."""
        found: list[int] = []
        for other, it in self.eliminated.items():
            if it.than == arm:
                found += ([other] if it.why == "equivalent" else []) + self._stood_for(other)
        return found


class _Fit:
    """Least squares of arm and block effects over the cells that were measured; matrices are arms x arms."""

    def __init__(self, rates: Floats) -> None:
        self.blocks, arms = rates.shape
        block, arm = np.nonzero(np.isfinite(rates))
        design = np.zeros((len(block), arms + self.blocks))
        design[np.arange(len(block)), arm] = 1.0
        design[np.arange(len(block)), arms + block] = 1.0
        values, vectors = np.linalg.eigh(design.T @ design)
        kept = values > 1e-9 * (1 + self.blocks + arms)
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        cells = rates[block, arm]
        cells = cells - (cells.mean() if len(cells) else 0.0)
        effects = inverse @ (design.T @ cells)
        residuals = cells - design @ effects
        df = len(cells) - int(kept.sum())
        variance = float(residuals @ residuals) / df if df else 0.0
        self.df = min(df, ALIKE * (self.blocks - 1))
        self.means: Floats = np.where(np.isfinite(rates).any(axis=0), effects[:arms], -np.inf)
        self._differences = effects[:arms, None] - effects[None, :arms]
        of_arm = np.diag(inverse)[:arms]
        self.pooled: Floats = variance * (of_arm[:, None] + of_arm[None, :] - 2 * inverse[:arms, :arms])
        """Variance of each difference, from the residuals of all arms."""
        self._pairs, self.own = _own(rates)
        """Variance of each difference, from those of the pair itself."""
        self.known = (self._pairs > 1) & (variance > SAME**2)
        """Whether two blocks or more hold both arms, and their cells are not copies of each other."""
        self._errors = np.sqrt(np.maximum(self.own, self.pooled))

    def upper(self, share: float) -> Floats:
        """Upper bounds of row - column, each wrong with probability `share`; infinite where too little was measured."""
        if not self.known.any():
            return np.full(self.known.shape, np.inf)
        return np.where(self.known, self._differences + t_critical(self.df, 1 - 2 * share) * self._errors, np.inf)

    def expected_loss(self, leader: int, others: Sequence[int]) -> float | None:
        """Sum over the others of the mean of max(0, d), where d = other - leader has Student's t as its posterior:

            s * ((df + z^2) / (df - 1) * f(z) + z * F(z)),    z = d / s,    s = error of d

        with f and F the density of t and its integral. None where a pair is unknown, or df = 1: the mean is infinite.
        """
        total, df = 0.0, self.df
        for other in others:
            if not self.known[other, leader] or df < 2:
                return None
            error = float(self._errors[other, leader])
            z = float(self._differences[other, leader]) / error
            ln_density = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - (df + 1) / 2 * math.log1p(z * z / df)
            density = math.exp(ln_density) / math.sqrt(df * math.pi)
            total += error * ((df + z * z) / (df - 1) * density + z * t_above(df, -z))
        return max(0.0, total)

    def ratio(self, arm: int, rival: int) -> Estimate:
        """Rate of an arm over that of a rival, with its own interval of 95 %."""
        half = t_critical(self.df, 0.95) * float(self._errors[arm, rival])
        n = int(self._pairs[arm, rival])
        method = f"least squares over {n} blocks; {STUDENT}blocks, noise pooled over arms"
        found = from_log(float(self._differences[arm, rival]), half, "x", method, n=n, of="blocks")
        return found.model_copy(update={"df": self.df})


def _own(rates: Floats) -> tuple[Floats, Floats]:
    """For each pair of arms: blocks that hold both, and the variance of the mean of their differences in these."""
    differences = rates[:, :, None] - rates[:, None, :]
    there = np.isfinite(differences)
    n = there.sum(axis=0)
    differences = np.where(there, differences, 0.0)
    squares = np.where(there, (differences - differences.sum(axis=0) / np.maximum(n, 1)) ** 2, 0.0).sum(axis=0)
    return n, squares / np.maximum(n - 1, 1) / np.maximum(n, 1)
