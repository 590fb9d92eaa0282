"""Where an arm and its baseline met: the same prompts on both sides, in every block.

A ratio of two rates says something about the arms only where both sides did the same work, and ratios of several
blocks repeat each other only where each block holds the same prompts. So:

- a prompt counts where both sides completed it in at least one block; one that a side never completed is left out on
  both sides;
- a prompt that one side, or both, lack in a block is completed there as the other blocks let expect (`stats.additive`):
  an arm that fails on its slow prompts would look faster otherwise, and a baseline that runs its prompts in turn would
  make blocks of other prompts;
- where prompts and blocks cannot be told apart, nothing is completed, and each block counts what both completed in it.

What a speedup is besides the geometric mean over blocks: with prompts, by total time, and over prompts.

Blocks repeat the same prompts. An interval over them says how repeatable *these prompts* are on this machine, and
nothing about other prompts: where log speedups spread by 0.2 from prompt to prompt, the interval over 4 blocks of 4
prompts holds the speedup of other such prompts in 14 of 100 simulated runs (`benchmarks/coverage.py`). So prompts are
units of their own. With x_pb the log speedup of prompt p in block b, P prompts and B blocks,

    v = v_P + v_B,    v_P = s_P^2 / P,    v_B = s_B^2 / B
    interval = mean x +- t(df) * sqrt(v),    df = v^2 / (v_P^2 / (P - 1) + v_B^2 / (B - 1))

s_P is the standard deviation of the prompts' means, s_B that of the blocks' means: two crossed samples, with
Satterthwaite's degrees of freedom. It is a little wide, since the noise of single requests is in both. It takes the
prompts for a sample of those that are meant; of a mixture of kinds, for a sample of that mixture. With fewer than
`LEAST_PROMPTS` there is the range alone.

Sources: Satterthwaite 1946, doi:10.2307/3002019; Clark 1973, "The language-as-fixed-effect fallacy",
doi:10.1016/S0022-5371(73)80014-3 (items are a sample, too); Cochran 1977, ch. 6 (ratio estimator).

Which arms compete, and on which prompts: those from which the best is picked.

A best arm is the best of those that ran the same prompts. On a kind of text these are all arms that were measured on
it, also those that ran nothing else; over the whole run they are the arms that were given all of its prompts. Arms
that were given different prompts of a kind are compared on those that they have in common. An arm that never completed
a prompt which another one completed does not compete: what it gained on the rest says nothing about that prompt. Where
that would leave no arm, the prompts that all of them completed count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.numbers.estimates import from_log
from specmeter.numbers.special import t_quantile
from specmeter.numbers.stats import (
    LEAST_PROMPTS,
    SAME,
    STUDENT,
    Doubt,
    Pair,
    Pool,
    additive,
    doubt,
    geometric_speedup,
    no_interval,
    simultaneous,
    speedup_over_invocations,
    t_critical,
    with_doubt,
)
from specmeter.record import Estimate, Record

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
    doubt: Doubt | None
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


def meet(table: RequestTable, rows: Ints, base: Ints, prompts: Ints | None = None) -> PairedBlocks | None:
    """Where these rows of an arm and of its baseline met, on `prompts` alone where they are given; None for nowhere."""
    rows, base = rows[table.decoded[rows]], base[table.decoded[base]]
    if prompts is not None:
        rows, base = rows[np.isin(table.prompt[rows], prompts)], base[np.isin(table.prompt[base], prompts)]
    shared = np.intersect1d(table.key[rows], table.key[base])
    if not len(shared):
        return None
    cell, prompt = np.divmod(shared, len(table.prompts))
    cells, names = np.unique(cell), np.unique(prompt)
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
        added = doubt(seen, expected, (_shares(arm) + _shares(baseline)) / 2, units)
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


class Gain(Record):
    """A speedup, told in every way that a reader may mean; all on the same prompts."""

    decoding: Estimate
    """Decode rate relative to the baseline: geometric mean over blocks. Of an arm under load what its speedup is made
    of (`analysis.load.summary`): total tokens per second with clients, time per output token with a rate."""
    with_prompt: Estimate
    """Generated tokens over the time of prompt and decoding together, relative to the baseline."""
    pooled: Estimate
    """All tokens over all decode time of the run (of the steady windows), relative to the baseline."""
    prompts: int
    """Prompts that both completed."""
    lowest: float | None
    """Speedup of the slowest prompt, over all blocks; None under load, where prompts share the machine."""
    highest: float | None
    over_prompts: Estimate | None
    """The geometric mean over prompts, with the interval for other prompts of this mixture; of a `Choice`, one that
    holds for all arms that compete."""
    completed: int
    """Prompts of a block that one side, or both, lack, completed as the other blocks let expect."""

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
    logs: Floats, *, level: float = 0.95, among: int = 1, doubt: Doubt | None = None
) -> Estimate | None:
    """The geometric mean over prompts, with the interval for other prompts like these: `logs` are units x prompts.

    `among` for intervals that hold for so many arms together (Bonferroni); `doubt` is that of completed values. None
    for fewer than `LEAST_PROMPTS`, for a single unit, where something is missing or most was completed, and where
    prompts do not differ at all.
    """
    units, prompts = logs.shape
    if prompts < LEAST_PROMPTS or units < 2 or not np.isfinite(logs).all():
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


class Family(NamedTuple):
    """Arms that compete with each other."""

    compared: int
    """How many they are."""
    prompts: Ints
    """Prompts that all of them completed, as did their baseline."""


class _Arm(NamedTuple):
    number: int
    given: Ints
    """Prompts that it was given, completed or not."""
    met: Ints
    """Those that it and its baseline completed in the same block."""


def families(table: RequestTable, choices: Sequence[tuple[int, int]]) -> dict[tuple[int, int | None], Family]:
    """(number of an arm, kind of text or None for the whole run) -> its family, for each arm that competes there.

    `choices` are the (arm, baseline) to choose from. Arms compete with those of their own baseline.
    """
    kinds = np.zeros(len(table.prompts), dtype=np.int64)
    kinds[table.prompt] = table.kind
    of_baseline: dict[int, list[_Arm]] = {}
    for number, baseline in choices:
        rows, base = table.of_arm(number), table.of_arm(baseline)
        shared = np.intersect1d(table.key[rows[table.decoded[rows]]], table.key[base[table.decoded[base]]])
        arm = _Arm(number, np.unique(table.prompt[rows]), np.unique(shared % max(1, len(table.prompts))))
        if len(arm.met):
            of_baseline.setdefault(baseline, []).append(arm)
    found: dict[tuple[int, int | None], Family] = {}
    for arms in of_baseline.values():
        everything = reduce(np.union1d, (arm.given for arm in arms))
        found |= _family(None, [arm for arm in arms if len(arm.given) == len(everything)])
        for kind in table.kinds.values():
            there = [_Arm(arm.number, *(part[kinds[part] == kind] for part in (arm.given, arm.met))) for arm in arms]
            found |= _family(kind, [arm for arm in there if len(arm.met)])
    return found


def _family(kind: int | None, arms: Sequence[_Arm]) -> Mapping[tuple[int, int | None], Family]:
    if not arms:
        return {}
    common = reduce(np.intersect1d, (arm.given for arm in arms))
    if not len(common):
        # Prompts of one kind from workloads that no two arms share: nothing can be compared but what most arms ran.
        return _family(kind, [max(arms, key=lambda arm: len(arm.met))])
    known = np.intersect1d(common, reduce(np.union1d, (arm.met for arm in arms)))
    able = [arm for arm in arms if len(known) and np.isin(known, arm.met).all()]
    if not able:
        able, known = list(arms), np.intersect1d(common, reduce(np.intersect1d, (arm.met for arm in arms)))
    if not len(known):
        return _family(kind, [max(arms, key=lambda arm: len(arm.met))]) if len(arms) > 1 else {}
    return {(arm.number, kind): Family(len(able), known) for arm in able}
