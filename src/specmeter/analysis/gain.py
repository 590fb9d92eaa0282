"""What a speedup is besides the geometric mean over blocks: with prompts, by total time, and over prompts.

An interval over blocks says how repeatable *these prompts* are on this machine; for other prompts, prompts are units of
their own (docs/explanation/statistics.md has the formula and its sources). They are a sample of those that are meant.
With fewer than `MIN_PROMPTS` there is the range alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.pairing import PairedBlocks
from specmeter.numbers.estimates import from_log
from specmeter.numbers.special import t_quantile
from specmeter.numbers.stats import (
    MIN_PROMPTS,
    SAME,
    STUDENT,
    ImputationVariance,
    Pair,
    Pool,
    geometric_speedup,
    no_interval,
    simultaneous,
    speedup_over_invocations,
    t_critical,
)
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats

    Bools = NDArray[np.bool_]


class Gain(Record):
    """A speedup in every usual definition, all on the same prompts."""

    decoding: Estimate
    """Decode rate relative to the baseline: geometric mean over blocks. Of an arm under load what its speedup is made
    of (`analysis.load.summary`): total tokens per second with clients, time per output token with a rate."""
    with_prompt: Estimate
    """Generated tokens / time including prompts, relative to the baseline."""
    pooled: Estimate
    """All tokens / all decode time of the run (or steady windows), relative to the baseline."""
    prompts: int
    """Prompts completed by both."""
    lowest: float | None
    """Speedup of the slowest prompt, over all blocks; None under load, where prompts share the machine."""
    highest: float | None
    over_prompts: Estimate | None
    """Geometric mean over prompts, with the interval for similar prompts; in a `Choice`, simultaneous over all
    candidates."""
    completed: int
    """Prompts missing in a block, filled in from the other blocks."""

    @property
    def pooled_differs(self) -> float:
        """All tokens over all time / geometric mean over blocks - 1."""
        return self.pooled.point / self.decoding.point - 1


def gain_of(met: PairedBlocks, *, several: bool, level: float = 0.95, among: int = 1) -> Gain:
    """Everything about the speedup where an arm met its baseline; `several` invocations are the units, if there are.

    `among` is for all intervals but that of `decoding`, which is the arm's own.
    """
    pairs = met.pairs()
    units, of = units_of(pairs, several=several), "invocations" if several else "blocks"
    prompts = np.exp(np.nanmean(met.logs, axis=0))
    with_prompt = speedup_of(met.with_prompts(), several=several, level=level)
    return Gain(
        decoding=met.doubted(speedup_of(pairs, several=several, level=level)),
        with_prompt=simultaneous(met.doubted(with_prompt), among),
        pooled=simultaneous(met.doubted(pooled_speedup(units, of=of, level=level)), among),
        prompts=len(met.prompts),
        lowest=float(prompts.min()),
        highest=float(prompts.max()),
        over_prompts=speedup_over_prompts(_by_unit(met, several), level=level, among=among, doubt=met.doubt),
        completed=met.completed,
    )


def pooled_speedup(units: Sequence[Pair], *, of: str = "blocks", level: float = 0.95) -> Estimate:
    """All tokens over all time of the arm / those of its baseline.

    The interval is made of what each unit contributes to the logarithm of that ratio, by linearisation:
    e_u = tokens_u / tokens - ms_u / ms of the arm, less the same of the baseline; Student's t over n - 1.
    """
    values = np.array(units, dtype=np.float64)
    shares = values / values.sum(axis=0)
    parts = (shares[:, 0, 0] - shares[:, 0, 1]) - (shares[:, 1, 0] - shares[:, 1, 1])
    arm, baseline = values.sum(axis=0)
    log, n = math.log(arm[0] / arm[1]) - math.log(baseline[0] / baseline[1]), len(units)
    half, how = None, no_interval(n)
    if n > 1 and float(np.ptp(parts)) > SAME / n:
        half = t_critical(n - 1, level) * math.sqrt(n / (n - 1) * float(parts @ parts))
        how = f"{STUDENT}{of}, ratio estimator"
    return from_log(log, half, "x", f"all tokens over all time; {how}", n=n, of=of, level=level)


def speedup_over_prompts(
    logs: Floats, *, level: float = 0.95, among: int = 1, doubt: ImputationVariance | None = None
) -> Estimate | None:
    """The geometric mean over prompts, with the interval for other prompts like these: `logs` are units x prompts.

    `among` for intervals that hold for this many arms together (Bonferroni); `doubt` is that of completed values. None
    for fewer than `MIN_PROMPTS`, for a single unit, where something is missing or most was completed, and where
    prompts do not differ at all.
    """
    units, prompts = logs.shape
    if prompts < MIN_PROMPTS or units < 2 or not np.isfinite(logs).all():
        return None
    of_prompt, of_unit = logs.mean(axis=0), logs.mean(axis=1)
    parts = [float(means.var(ddof=1)) / len(means) for means in (of_prompt, of_unit)]
    if float(np.ptp(of_prompt)) <= SAME:
        return None
    freedom = [prompts - 1, units - 1]
    if doubt is not None:
        if math.isinf(doubt.variance):
            return None
        parts, freedom = [*parts, doubt.variance], [*freedom, doubt.df]
    v = sum(parts)
    df = v**2 / sum(part**2 / own for part, own in zip(parts, freedom, strict=True))
    t = t_quantile(df, 1 - (1 - level) / (2 * among))
    method = f"geometric mean of {prompts} prompts; t over prompts and {units} repetitions (Satterthwaite)"
    if among > 1:
        method += f"; together with {among - 1} more (Bonferroni)"
    return from_log(float(logs.mean()), t * math.sqrt(v), "x", method, n=prompts, of="prompts", level=level)


def speedup_of(pairs: Mapping[int, list[Pair]], *, several: bool, level: float) -> Estimate:
    """The geometric mean of ratios over blocks, or over `several` invocations."""
    if several:
        return speedup_over_invocations(list(pairs.values()), level=level).estimate
    return geometric_speedup([pair for blocks in pairs.values() for pair in blocks], level=level)


def units_of(pairs: Mapping[int, list[Pair]], *, several: bool) -> list[Pair]:
    """Blocks, or invocations as wholes."""
    if not several:
        return [pair for blocks in pairs.values() for pair in blocks]
    return [(_sum([arm for arm, _ in blocks]), _sum([baseline for _, baseline in blocks])) for blocks in pairs.values()]


def _sum(pools: Sequence[Pool]) -> Pool:
    return Pool(sum(pool.tokens for pool in pools), sum(pool.ms for pool in pools))


def _by_unit(met: PairedBlocks, several: bool) -> Floats:
    """Log speedups of blocks x prompts, or their means in each invocation."""
    if not several:
        return met.logs
    return np.array([met.logs[met.invocations == number].mean(axis=0) for number in np.unique(met.invocations)])
