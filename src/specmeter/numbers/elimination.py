"""Which arms of a race may be left out after each block, and when it is over. Pure.

A race measures arms in blocks: x_bi is the logarithm of arm i's rate in block b, on the same prompts for all. Blocks have
a speed of their own (the machine drifts), which all arms of a block share, so with arm effects m and block effects f

    x_bi = m_i + f_b + noise,    d_ij = m_i - m_j,    both fitted by least squares over all cells that were measured.

After every block from the second on, for each pair, an upper bound of d_ij:

    U_ij = d_ij + t(df, 1 - a_b / (K - 1)) * max(pooled error, own error)

where K is the number of arms at the start, the *pooled* error comes from the residuals of all arms (df = cells - effects
fitted: 5 after two blocks of six arms, where a pair alone has 1), and the *own* error from the differences of this
pair, so that an arm which is noisier than the others is not judged by their noise. The error allowed is spent over the
looks: a_b is the share of look b. An arm i is left out

- as *slower* than j when U_ij < 0: its rate is shown to be below that of j;
- as *equivalent* to a simpler j when U_ij < ln(1 + margin): it is shown not to be faster by more than the margin. That
  is one of two one-sided tests: whether it is slower does not matter, since j is preferred either way.

Leaving out the best arm as slower, or as equivalent to one that is worse by more than the margin, takes U_ij below the
true d_ij for the best i, some j and some look. By Bonferroni's inequality that happens with probability `error` at
most. For plain decoding (arm 0) half of it is allowed: only where it is shown to be slower may a race say "speculate".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.estimates import from_log
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import SAME, STUDENT, log_half, t_critical
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats

LEAST_BLOCKS = 2
"""Blocks before anything is left out: one says nothing about noise."""
PLAIN_SHARE = 0.5
"""Part of the error that may be spent on leaving out plain decoding."""


class Out(Record):
    """An arm that was left out."""

    block: int
    """Blocks that had been measured by then."""
    than: int
    """The arm that it was held against."""
    ratio: Estimate
    """Its rate over that of `than`, with an interval of 95 % of its own."""
    why: Literal["slower", "equivalent"]
    """`slower` than the other; `equivalent`: not faster than the other, which is simpler, by more than the margin."""


class Standing(Record):
    """How a race stands after its last block."""

    leader: int
    """The fastest of the arms that are left; the only one where the race is decided."""
    alive: tuple[int, ...]
    """Arms that are left, the fastest first."""
    out: dict[int, Out]
    state: Literal["open", "winner", "equivalent"]
    """`winner`: all others are slower. `equivalent`: all others are out, some of them as equivalent."""
    blocks: int
    """Blocks with at least two arms."""
    faster_than_plain: bool
    """Whether plain decoding is shown to be slower than the leader."""
    ratios: dict[int, Estimate]
    """Arm -> its rate over that of plain decoding."""


def judge(
    log_rates: Floats,
    *,
    simplicity: Sequence[int],
    margin: float = MARGIN,
    error: float = 0.05,
    most_blocks: int,
) -> Standing:
    """How a race stands: `log_rates` is blocks x arms, nan where an arm was not measured; arm 0 is plain decoding.

    `simplicity` ranks the arms, the simplest lowest; of equals the one that is ahead is preferred. `most_blocks` is how
    many blocks the race may have, fixed before it: the error is spent over so many looks, and blocks beyond them leave
    nothing out. All looks are taken again from the first, so the answer depends on the data alone.

    Raises `UsageError` for a wrong shape, infinite values, or a margin or error that are no shares.
    """
    rates = np.asarray(log_rates, dtype=np.float64)
    if rates.ndim != 2 or rates.shape[1] != len(simplicity) or not rates.shape[1] or np.isinf(rates).any():
        raise UsageError(
            f"race: {rates.shape} rates of {len(simplicity)} arms, infinite ones among them or not",
            fix="give logarithms of positive rates, blocks x arms, nan where nothing was measured",
        )
    if not (0 < margin < 1 and 0 < error < 1 and most_blocks >= 1):
        raise UsageError(
            f"race: margin {margin}, error {error}, at most {most_blocks} blocks", fix="state shares between 0 and 1"
        )
    rates = rates[np.isfinite(rates).sum(axis=1) > 1]
    race = _Race(tuple(simplicity), math.log1p(margin), set(range(rates.shape[1])), {})
    fit = _Fit(rates)
    for block in range(LEAST_BLOCKS, min(len(rates), most_blocks) + 1):
        fit = _Fit(rates[:block])
        race.look(fit, _spent(error, block, most_blocks) / max(1, rates.shape[1] - 1))
    if len(fit.rates) < len(rates):
        fit = _Fit(rates)
    alive = tuple(sorted(race.alive, key=lambda arm: (-fit.means[arm], simplicity[arm], arm)))
    state: Literal["open", "winner", "equivalent"] = "open"
    if len(alive) == 1:
        state = "equivalent" if any(it.why == "equivalent" for it in race.out.values()) else "winner"
    return Standing(
        leader=alive[0],
        alive=alive,
        out=race.out,
        state=state,
        blocks=len(rates),
        faster_than_plain=0 in race.out and race.out[0].why == "slower",
        ratios={arm: fit.ratio(arm, 0) for arm in range(1, rates.shape[1]) if fit.knows(arm, 0)},
    )


def blocks_to_confirm(ratio: Estimate, *, most: int = 10) -> int:
    """Blocks with which Student's interval of 95 % of one arm would probably lie on the side of 1 where the race saw it.

    The smallest n, 3 or more, with t(n - 1) * s / sqrt(n) at most half of the logarithm of `ratio`: half, since the
    ratio of an arm that was chosen for it is a little too good, and the next s may be larger. `most` where nothing is
    enough.
    """
    half = log_half(ratio)
    if half is None or half == 0:
        return most
    df = ratio.n - 1 if ratio.df is None else ratio.df
    spread = half / t_critical(df, ratio.level) * math.sqrt(ratio.n)
    wanted = abs(math.log(ratio.point)) / 2
    enough = (n for n in range(3, most) if t_critical(n - 1, ratio.level) * spread / math.sqrt(n) <= wanted)
    return next(enough, most)


def _spent(error: float, block: int, most_blocks: int) -> float:
    """The share of the error that the look after so many blocks may spend: proportional to 1 / (block - 1)."""
    return error / (block - 1) / sum(1 / (b - 1) for b in range(LEAST_BLOCKS, most_blocks + 1))


@dataclass
class _Race:
    """Arms that are left and those that are out, between looks."""

    simplicity: tuple[int, ...]
    margin: float
    """As a logarithm."""
    alive: set[int]
    out: dict[int, Out]

    def look(self, fit: _Fit, share: float) -> None:
        """Leave out what the blocks so far show; `share` is the error of one pair at this look."""
        for arm in sorted(self.alive, key=lambda it: fit.means[it]):
            rivals = [it for it in self.alive - {arm} if self._slower(fit, arm, it, share)]
            self._leave_out(arm, rivals, fit, share, "slower")
        for arm in sorted(self.alive, key=lambda it: -self.simplicity[it]):
            rivals = [it for it in self.alive - {arm} if self._equivalent(fit, arm, it, share)]
            self._leave_out(arm, rivals, fit, share, "equivalent")

    def _leave_out(
        self, arm: int, rivals: Sequence[int], fit: _Fit, share: float, why: Literal["slower", "equivalent"]
    ) -> None:
        if rivals:
            than = min(rivals, key=lambda it: (fit.upper(arm, it, share), it))
            self.alive.discard(arm)
            self.out[arm] = Out(block=len(fit.rates), than=than, ratio=fit.ratio(arm, than), why=why)

    def _slower(self, fit: _Fit, arm: int, rival: int, share: float) -> bool:
        """Shown slower, and not by so little that it is preferred as the simpler one."""
        mine = share * PLAIN_SHARE if arm == 0 else share
        return fit.upper(arm, rival, mine) < 0 and not self._equivalent(fit, rival, arm, share)

    def _equivalent(self, fit: _Fit, arm: int, rival: int, share: float) -> bool:
        """Not faster than a simpler rival by more than the margin, and none that was left out for `arm` either."""
        order = ((self.simplicity[it], -fit.means[it], it) for it in (rival, arm))
        return next(order) < next(order) and all(
            fit.upper(it, rival, share) < self.margin for it in (arm, *self._stood_for(arm))
        )

    def _stood_for(self, arm: int) -> list[int]:
        """Arms that are out as equivalent to this one, or to one that is out for it."""
        found: list[int] = []
        for other, it in self.out.items():
            if it.than == arm:
                found += ([other] if it.why == "equivalent" else []) + self._stood_for(other)
        return found


class _Fit:
    """Least squares of arm and block effects over the cells that were measured."""

    def __init__(self, rates: Floats) -> None:
        self.rates = rates
        blocks, arms = rates.shape
        block, arm = np.nonzero(np.isfinite(rates))
        design = np.zeros((len(block), arms + blocks))
        design[np.arange(len(block)), arm] = 1.0
        design[np.arange(len(block)), arms + block] = 1.0
        inverse = np.linalg.pinv(design.T @ design, hermitian=True)
        cells = rates[block, arm]
        # Against the mean of all cells, so that the fit is as exact for large logarithms as for small ones.
        centred = cells - (cells.mean() if len(cells) else 0.0)
        effects = inverse @ design.T @ centred
        self.means: Mapping[int, float] = {it: float(effects[it]) if it in arm else -math.inf for it in range(arms)}
        self.df = len(cells) - int(np.linalg.matrix_rank(design)) if len(cells) else 0
        residuals = centred - design @ effects
        self._variance = float(residuals @ residuals) / self.df if self.df else 0.0
        self._inverse = inverse[:arms, :arms]

    def knows(self, arm: int, rival: int) -> bool:
        """Whether two blocks or more hold both, and their cells are not copies of each other."""
        return len(self._pairs(arm, rival)) > 1 and math.sqrt(self._variance) > SAME

    def error(self, arm: int, rival: int) -> float:
        """Standard error of the difference of two arms: the larger of the pooled one and the pair's own."""
        pairs = self._pairs(arm, rival)
        own = float(pairs.var(ddof=1)) / len(pairs)
        inverse = self._inverse
        pooled = self._variance * float(inverse[arm, arm] + inverse[rival, rival] - 2 * inverse[arm, rival])
        return math.sqrt(max(own, pooled))

    def upper(self, arm: int, rival: int, share: float) -> float:
        """Upper bound of arm - rival, wrong with probability `share`; infinite where too little was measured."""
        if not self.knows(arm, rival):
            return math.inf
        return self.means[arm] - self.means[rival] + t_critical(self.df, 1 - 2 * share) * self.error(arm, rival)

    def ratio(self, arm: int, rival: int) -> Estimate:
        """Rate of an arm over that of a rival, with its own interval of 95 %."""
        half = t_critical(self.df, 0.95) * self.error(arm, rival)
        n = len(self._pairs(arm, rival))
        method = f"least squares over {n} blocks; {STUDENT}blocks, noise pooled over arms"
        found = from_log(self.means[arm] - self.means[rival], half, "x", method, n=n, of="blocks")
        return found.model_copy(update={"df": self.df})

    def _pairs(self, arm: int, rival: int) -> Floats:
        differences = self.rates[:, arm] - self.rates[:, rival]
        return differences[np.isfinite(differences)]
