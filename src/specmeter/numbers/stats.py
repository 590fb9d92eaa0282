"""Estimates from measurements: speedups and rates over blocks, shares over prompts, and tables with gaps.

*The speedup of an arm.* In each block b both the arm and its baseline measured the same prompts. Their pooled decode
rates are r = 1000 * (sum of tokens after the first) / (sum of decode ms), and

    x_b = ln(r_arm,b / r_base,b),    speedup = exp(mean x) = geometric mean of the block ratios,
    interval = exp(mean x +- t(n - 1, (1 + level)/2) * s / sqrt(n)),    s = standard deviation of the n values x_b.

Ratios to the baseline of the same block cancel whatever slows both; logarithms make "twice as fast" and "half as fast"
mirror images. The unit that repeats is the block (or the invocation), never the request: requests of one server
process share its memory layout and its luck. Student's critical values are the exact ones: 4.30 for three blocks, not
1.96.

No interval is better than an optimistic one. With one unit there is none. Neither is there when units agree to nine
digits: real clocks tick in microseconds and real machines are noisier than that, so no variance means that the units
are copies (a virtual clock, greedy text repeated), and says nothing about the next one.

Such an interval is known by its point, its half width in logarithms and its n, so what is asked of it next needs no
measurement again: another level (`at_level`), one that holds for several arms together (`simultaneous`), whether arm
and baseline are practically the same, how many blocks would make it narrow (both in `numbers.estimates`).

Sources: Kalibera & Jones 2013, "Rigorous Benchmarking in Reasonable Time" (invocations as units); Cochran 1977,
"Sampling Techniques", ch. 6 (ratio estimator); Efron & Tibshirani 1993, ch. 13, and Hesterberg 2015,
doi:10.1080/00031305.2015.1089789 (bootstrap of small samples); Dunn 1961, doi:10.1080/01621459.1961.10482090
(Bonferroni's inequality for several means).

*Shares and yields* have intervals that cannot leave their bounds: acceptance in [0, 1], tau in [1, gamma + 1]. Both are
ratios of sums, R = (sum a) / (sum b), over prompts: greedy decoding writes the same text in every block, so another
block says nothing new, and only another prompt is another draw. The ratio estimator's standard error,

    se = sqrt(n / (n - 1) * sum (a - R b)^2) / sum b,

is symmetric and knows nothing of bounds: 71 % accepted on two prompts becomes -40 to 180 %. So the interval is made on
a scale without ends, where Student's t runs over n - 1 degrees of freedom, and is carried back:

    q = (R - floor) / (ceiling - floor),    logit q +- t * se_q / (q (1 - q)),    se_q = se / (ceiling - floor)

and where no ceiling is known, ln(R - floor) +- t * se / (R - floor). At 95 %, of simulated acceptance that differs by
prompt (Beta distributed, mean 0.05 to 0.95), 91 to 97 % of these intervals hold with 2 to 32 prompts, where those cut
at 0 and 1 fall to 82 % (`benchmarks/coverage.py`). Those of 2 or 3 prompts hold because they span nearly everything, so
runs show none: the rule for speedups over prompts is the rule here (`over_prompts`).

Sources: Cochran 1977, "Sampling Techniques", ch. 6 (ratio estimator); `svyciprop(method = "xlogit")` of R's package
`survey` (the logit interval for clustered samples); Franco, Little, Louis & Slud 2019, PMC6690503 (why the symmetric
interval fails there, and alternatives).

*Gaps.* A baseline that runs its prompts in turn meets the arm on other prompts in every block. Speedups differ by
prompt, so the ratios of such blocks differ for a reason that has nothing to do with chance: each is of other prompts.
The remedy for experiments with missing plots is to fit what each prompt and each block adds, by least squares, to
complete the table by what the fit expects, and to continue as with a complete one (Yates 1933, "The analysis of
replicated experiments when the field results are incomplete"). Nothing is completed where the fit is not determined.

What is completed is not measured, and one fit fills the gaps of all blocks, so its error hardly shows in how blocks
differ. `doubt` says how much that adds: completing is linear in what was measured, so with noise of variance s_e^2 in
each log speedup (the residuals of the fit; degrees of freedom: measured - prompts - blocks + 1) the mean over blocks
has the variance s_e^2 * |w|^2, w being the weight of every measured value in it. The blocks' scatter shows a part.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.special import binomial_below, normal_below, t_quantile
from specmeter.record import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

    Ints = NDArray[np.int64]

    Bools = NDArray[np.bool_]


MIN_PROMPTS = 4
"""Fewer prompts have no interval over prompts: Student's t of 3 would span a factor of 3 where they differ by 20 %."""
SAME = 1e-9
"""Values whose relative spread is below this are copies of each other, not repetitions."""

UNBOUNDED = 700.0
"""The largest logarithm that a bound may have: exp(700) is within a double's range and beyond any speedup."""

STUDENT = "Student t over "
"""How the method of an interval begins that comes from Student's t on logarithms."""


class Pool(NamedTuple):
    """What one arm did in one unit, summed over its requests."""

    tokens: float
    """Tokens after the first of each request."""
    ms: float
    """Decode time in ms."""

    @property
    def rate(self) -> float:
        """Pooled decode rate in tok/s."""
        return 1000 * self.tokens / self.ms


Pair = tuple[Pool, Pool]
"""An arm and its baseline in one block, over the same prompts."""


class InvocationSpeedup(NamedTuple):
    """A speedup over several invocations."""

    estimate: Estimate
    lowest: float
    highest: float
    """The plain range of the invocations' own speedups: what a reader who runs it once may see."""


def t_critical(df: int, level: float) -> float:
    """Two-sided critical value of Student's t with `df` degrees of freedom: t_critical(2, 0.95) = 4.303."""
    if df < 1:
        raise UsageError("an interval needs at least two units", fix="measure more blocks")
    return t_quantile(df, (1 + level) / 2)


def t_interval(values: Floats, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """(mean, low, high) of the last axis, by Student's t; many experiments at once when there are more axes.

    Raises `UsageError` for fewer than two values along that axis.
    """
    n = values.shape[-1]
    mean = values.mean(axis=-1)
    half = t_critical(n - 1, level) * values.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def geometric_speedup(pairs: Sequence[Pair], *, level: float = 0.95) -> Estimate:
    """Geometric mean over blocks of arm rate / baseline rate, with Student's t over the log ratios.

    Raises `UsageError` when there is no block, or when a rate is not positive: a block that measured nothing is to be
    left out by the caller, in the open.
    """
    logs = _log_ratios(pairs, level)
    return _over_units(logs, level, "block ratio", "blocks")


def speedup_over_invocations(invocations: Sequence[Sequence[Pair]], *, level: float = 0.95) -> InvocationSpeedup:
    """Speedup where the whole experiment was run several times: invocations are the units, blocks lie within them.

    x_i is the mean log ratio of invocation i, and Student's t runs over the x_i. That interval carries the variance
    between invocations plus the share of the blocks' variance that reaches a mean, without having to tell them apart.
    Pooling all blocks instead would take blocks that share an invocation's luck for independent.

    Raises `UsageError` like `geometric_speedup`.
    """
    if not invocations:
        raise UsageError(
            "speedup: no invocation contains both the arm and its baseline", fix="measure both in the same blocks"
        )
    logs = np.array([_log_ratios(pairs, level).mean() for pairs in invocations])
    estimate = _over_units(logs, level, "invocation", "invocations")
    return InvocationSpeedup(estimate, math.exp(logs.min()), math.exp(logs.max()))


def speedups_by_group(
    logs: Floats, groups: Ints, *, of: str = "block ratio", over: str = "blocks", level: float = 0.95
) -> dict[int, Estimate]:
    """One speedup per group (such as a prompt): `logs` are log ratios, `groups` says where each belongs.

    The same as `geometric_speedup` of each group, for thousands of groups at once. Each interval is that of its own
    group: among twenty of 95 %, one is expected to miss. Raises `UsageError` for a logarithm that is not finite.
    """
    _check_level(level)
    if not np.isfinite(logs).all():
        raise UsageError("speedup: a rate is not positive", fix="remove missing values")
    if not len(logs):
        return {}
    order = np.argsort(groups, kind="stable")
    names, starts, n = np.unique(groups[order], return_index=True, return_counts=True)
    x = logs[order]
    mean = np.add.reduceat(x, starts) / n
    squares = np.add.reduceat((x - np.repeat(mean, n)) ** 2, starts)
    varies = np.maximum.reduceat(x, starts) - np.minimum.reduceat(x, starts) > SAME
    critical = {int(count): t_critical(int(count) - 1, level) for count in np.unique(n[varies])}
    return {
        int(name): _student(
            float(mean[g]),
            critical[int(n[g])] * math.sqrt(squares[g] / (n[g] - 1) / n[g]) if varies[g] else None,
            int(n[g]),
            level,
            of,
            over,
        )
        for g, name in enumerate(names)
    }


def ratio_of_groups(
    ours: Floats, theirs: Floats, *, of: str = "blocks", level: float = 0.95, among: int = 1
) -> Estimate:
    """exp(mean of `ours` - mean of `theirs`), both logarithms of units that are not paired: two runs, two builds.

    Welch's interval: the two variances need not be equal, and the degrees of freedom are Satterthwaite's,

        e = s1^2 / n1 + s2^2 / n2,    df = e^2 / ((s1^2 / n1)^2 / (n1 - 1) + (s2^2 / n2)^2 / (n2 - 1))

    with `among` for intervals that hold for this many ratios together (Bonferroni, as in `simultaneous`). `n` counts
    the units of both. There is no interval with a single unit on either side, nor where the units of both are copies.
    Measured by simulation, at 95 %: it covers 96.7 % with 3 and 3 units that spread alike, 94.9 % where one side
    spreads three times as much, and 93.6 % where the wide side has 3 and the narrow one 5.

    Source: Welch 1947, doi:10.1093/biomet/34.1-2.28. Raises `UsageError` for an empty group or a value that is not
    finite.
    """
    _check_level(level)
    groups = (np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64))
    if among < 1 or any(not len(group) or not np.isfinite(group).all() for group in groups):
        raise UsageError("ratio of two groups: one is empty or has no rates", fix="measure both")
    n1, n2 = len(groups[0]), len(groups[1])
    difference = float(groups[0].mean() - groups[1].mean())
    name = f"ratio of geometric means of {n1} and {n2} {of}"
    if min(n1, n2) < 2 or all(_copies(group) for group in groups):
        why = no_interval(min(n1, n2))
        return Estimate(point=math.exp(difference), level=level, n=n1 + n2, unit="x", method=f"{name}; {why}")
    errors = [float(group.var(ddof=1)) / len(group) for group in groups]
    df = sum(errors) ** 2 / sum(error**2 / (len(group) - 1) for error, group in zip(errors, groups, strict=True))
    tail = 1 - (1 - level) / (2 * among)
    low, high = log_bounds(difference, t_quantile(df, tail) * math.sqrt(sum(errors)))
    method = f"{name}; Welch t" + (f"; together with {among - 1} more (Bonferroni)" if among > 1 else "")
    return Estimate(point=math.exp(difference), low=low, high=high, level=level, n=n1 + n2, unit="x", method=method)


def speedup_over_halves(halves: Sequence[Floats], *, level: float = 0.95) -> Estimate | None:
    """exp of the mean of several means, each of the log ratios of its own blocks, and each counting alike: blocks of
    one half of the prompts, and of the other. Welch and Satterthwaite's t; None where a half has a block or none, or
    where nothing varies."""
    _check_level(level)
    if not halves or any(len(logs) < 2 for logs in halves) or all(map(_copies, halves)):
        return None
    parts = [float(logs.var(ddof=1)) / len(logs) / len(halves) ** 2 for logs in halves]
    df = sum(parts) ** 2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, halves, strict=True))
    half, n = t_quantile(df, (1 + level) / 2) * math.sqrt(sum(parts)), sum(map(len, halves))
    mean = float(np.mean([logs.mean() for logs in halves]))
    low, high = log_bounds(mean, half)
    method = f"mean of {len(halves)} geometric means, {n} block ratios in all; Welch t"
    return Estimate(point=math.exp(mean), low=low, high=high, level=level, n=n, of="blocks", unit="x", method=method)


def at_level(estimate: Estimate, level: float) -> Estimate:
    """The same speedup with its interval at another level; without an interval it stays without.

    The half width in logarithms is multiplied by t(df, new level) / t(df, old level). Raises `UsageError` for an
    interval that is not Student's on logarithms.
    """
    _check_level(level)
    half = log_half(estimate)
    if half is None:
        return estimate.model_copy(update={"level": level, "low": None, "high": None})
    df = degrees_of_freedom(estimate)
    half *= t_critical(df, level) / t_critical(df, estimate.level)
    low, high = log_bounds(math.log(estimate.point), half)
    return estimate.model_copy(update={"level": level, "low": low, "high": high})


def with_doubt(estimate: Estimate, variance: float, df: int) -> Estimate:
    """The same speedup where its logarithm has this much more variance than its units show (`doubt`).

    The variances add up, and t has the smaller degrees of freedom. Infinite variance: no interval, since too little was
    measured. Raises `UsageError` like `at_level`.
    """
    if math.isinf(variance):
        why = "too little was measured: most of the result would be an estimate"
        return estimate.model_copy(update={"low": None, "high": None, "method": why})
    half = log_half(estimate)
    if half is None or variance == 0:
        return estimate
    error, df = half / t_critical(degrees_of_freedom(estimate), estimate.level), min(df, degrees_of_freedom(estimate))
    low, high = log_bounds(math.log(estimate.point), t_critical(df, estimate.level) * math.sqrt(error**2 + variance))
    method = f"{estimate.method}; with the error of what was completed"
    return estimate.model_copy(update={"low": low, "high": high, "df": df, "method": method})


def simultaneous(estimate: Estimate, among: int) -> Estimate:
    """One of `among` intervals that all hold together with the estimate's level: for the best of several arms.

    Bonferroni: each is made at level 1 - (1 - level) / among. Whatever the arms have in common (blocks and baseline),
    the chance that any of them misses is at most the sum of the chances; shared blocks make it smaller still. Sidak's
    1 - level^(1/among) would be under 1 % narrower and asks for more: it holds for dependent arms only where their
    distribution is of the right kind.

    Raises `UsageError` like `at_level`, and when there is no arm.
    """
    if among < 1:
        raise UsageError(
            f"simultaneous intervals of {among} arms", fix="give the number of arms that share the baseline"
        )
    if among == 1:
        return estimate
    wide = at_level(estimate, 1 - (1 - estimate.level) / among)
    method = f"{estimate.method}; together with {among - 1} more (Bonferroni)"
    return wide.model_copy(update={"level": estimate.level, "method": method})


def bootstrap_speedup(pairs: Sequence[Pair], *, level: float = 0.95, resamples: int = 9999, seed: int = 1) -> Estimate:
    """The same point with a bootstrap interval over blocks: a second opinion that assumes no normal distribution.

    Blocks are drawn with replacement; the interval is the percentile interval, widened for small n as Hesterberg
    proposes: percentiles Phi(-+ sqrt(n/(n-1)) t) instead of Phi(-+ z), since resampled means vary less than they
    should by (n-1)/n and take s for known.

    Limits: resampling cannot leave the range of the data, and n blocks from a symmetric distribution straddle their
    centre with probability 1 - 2^(1-n). Where that is below `level` (n < 6 at 95 %) no bootstrap interval can be
    right, and none is given. The draw is fixed by `seed`. Raises `UsageError` like `geometric_speedup`.
    """
    logs = _log_ratios(pairs, level)
    n = len(logs)
    mean, name = math.exp(logs.mean()), _mean_of(n, "block ratio")
    if _copies(logs):
        return Estimate(point=mean, level=level, n=n, unit="x", method=f"{name}; {no_interval(n)}")
    if 1 - 2.0 ** (1 - n) < level:
        return Estimate(point=mean, level=level, n=n, unit="x", method=f"{name}; too few blocks for a bootstrap")
    tail = normal_below(-math.sqrt(n / (n - 1)) * t_critical(n - 1, level))
    drawn = np.random.default_rng(seed).integers(0, n, size=(resamples, n), dtype=np.uint16)
    low, high = np.quantile(logs[drawn].mean(axis=1), [tail, 1 - tail])
    return Estimate(
        point=mean,
        low=math.exp(low),
        high=math.exp(high),
        level=level,
        n=n,
        unit="x",
        method=f"{name}; bootstrap over blocks, {resamples} draws, seed {seed}",
    )


def pooled_rate(pools: Sequence[Pool], *, of: str = "blocks", level: float = 0.95) -> Estimate:
    """An arm's decode rate in tok/s: all tokens over all time, with an interval over the units (blocks).

    The ratio estimator's error, taken on the logarithm: R exp(+- t(n - 1) * standard error / R). A rate cannot be
    negative, and few unequal blocks would push the lower end of a symmetric interval below 0. Raises as `pooled_ratio`.
    """
    plain = pooled_ratio(pools, unit="tok/s", scale=1000, of=of, level=level)
    if plain.high is None or plain.point <= 0:
        return plain
    relative = min((plain.high - plain.point) / plain.point, UNBOUNDED)
    ends = {"low": plain.point * math.exp(-relative), "high": plain.point * math.exp(relative)}
    return plain.model_copy(update={**ends, "method": f"{plain.method}, on logarithms"})


def pooled_ratio(
    parts: Sequence[tuple[float, float]],
    *,
    unit: str,
    of: str,
    scale: float = 1.0,
    floor: float = 0.0,
    level: float = 0.95,
) -> Estimate:
    """R = scale * (sum a) / (sum b) over units that each give (a, b), with the ratio estimator's interval.

    The numerator's residuals e = a - R b carry the noise (Cochran's linearisation):

        standard error = scale * sqrt(n / (n - 1) * sum e^2) / sum b,    interval = R +- t(n - 1) * standard error

    cut at `floor`, which R cannot pass; a numerator may be negative only down to such a floor. `of` names the units.
    The interval is a little short for few and very unequal units. What has a ceiling as well is for
    `bounded_ratio`.

    Raises `UsageError` when the b do not sum to something positive, or when a value is negative or not finite.
    """
    _check_level(level)
    values = np.array(parts, dtype=np.float64).reshape(-1, 2)
    total = values.sum(axis=0)
    if not np.isfinite(values).all() or (values < (min(floor, 0.0), 0.0)).any() or not total[1] > 0:
        raise UsageError(
            f"{unit} over {of}: counts and times must be finite, not negative, and not all zero",
            fix="remove units without measurements",
        )
    used = values[values[:, 1] > 0]
    n = len(used)
    ratio = total[0] / total[1]
    residuals = used[:, 0] - ratio * used[:, 1]
    copies = n < 2 or float(np.abs(residuals).max()) <= SAME * float(np.abs(used).max())
    if copies:
        method = f"pooled over {counted(n, of)}; {no_interval(n)}"
        return Estimate(point=scale * ratio, level=level, n=n, of=of, unit=unit, method=method)
    error = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / total[1]
    half = t_critical(n - 1, level) * error
    return Estimate(
        point=scale * ratio,
        low=max(floor, scale * (ratio - half)),
        high=scale * (ratio + half),
        level=level,
        n=n,
        of=of,
        unit=unit,
        method=f"pooled over {n} {of}; Student t, ratio estimator",
    )


def median_estimate(values: Sequence[float], *, unit: str, of: str, level: float = 0.95) -> Estimate:
    """The median of independent repetitions, with an interval that holds whatever their distribution is.

    Its ends are the k-th smallest and the k-th largest value, with the largest k that a binomial of n tosses permits:
    the median lies outside with probability 2 P(B <= k - 1) <= 1 - level. Fewer than six values cannot give 95 %, and
    get no interval. Disturbances only ever lengthen a time, some of them many times over: they move a mean, not this.

    `of` names the repetitions in `method`. Raises `UsageError` without values, or for one that is not finite. Source:
    Conover 1999, "Practical Nonparametric Statistics", ch. 3.2.
    """
    _check_level(level)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n == 0 or not np.isfinite(ordered).all():
        raise UsageError(f"median over {of}: {n} values, not all finite", fix="remove missing values")
    rank = bisect_right(range(n // 2), 1 - level, key=lambda below: 2 * binomial_below(below, n, 0.5))
    low, high = (float(ordered[rank - 1]), float(ordered[n - rank])) if rank else (None, None)
    how = f"ranks {rank} and {n + 1 - rank} of {n}" if rank else "too few for an interval"
    method = f"median over {n} {of}; {how}"
    return Estimate(point=float(np.median(ordered)), low=low, high=high, level=level, n=n, unit=unit, method=method)


def _over_units(logs: Floats, level: float, of: str, over: str) -> Estimate:
    """exp of the mean log with Student's t, or without an interval where there can be none."""
    n = len(logs)
    half = None if _copies(logs) else t_critical(n - 1, level) * float(logs.std(ddof=1)) / math.sqrt(n)
    return _student(float(logs.mean()), half, n, level, of, over)


def _student(mean: float, half: float | None, n: int, level: float, of: str, over: str) -> Estimate:
    """The estimate whose logarithm is mean +- half."""
    low, high = (None, None) if half is None else log_bounds(mean, half)
    method = f"{_mean_of(n, of)}; {no_interval(n) if half is None else STUDENT + over}"
    return Estimate(point=math.exp(mean), low=low, high=high, level=level, n=n, of=over, unit="x", method=method)


def log_bounds(mean: float, half: float) -> tuple[float, float]:
    return math.exp(mean - half), math.exp(min(mean + half, UNBOUNDED))


def degrees_of_freedom(estimate: Estimate) -> int:
    """Of Student's t behind an interval."""
    return estimate.n - 1 if estimate.df is None else estimate.df


def log_half(estimate: Estimate) -> float | None:
    """Half the width of a speedup's interval in logarithms; None without one, or where it says nothing at all."""
    if estimate.low is None or estimate.high is None:
        return None
    if estimate.unit != "x" or STUDENT not in estimate.method:
        raise UsageError(f"not a Student interval of a speedup: {estimate.method}", fix="use geometric_speedup")
    if estimate.low <= 0 or estimate.high >= math.exp(UNBOUNDED):
        return None
    return (math.log(estimate.high) - math.log(estimate.low)) / 2


def _mean_of(n: int, of: str) -> str:
    return f"geometric mean of {n} {of}s" if n > 1 else f"one {of}"


def _log_ratios(pairs: Sequence[Pair], level: float) -> Floats:
    _check_level(level)
    if not pairs:
        raise UsageError(
            "speedup: no block contains both the arm and its baseline", fix="measure both in the same blocks"
        )
    values = np.array(pairs, dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        place = int(np.argmax(~(np.isfinite(values) & (values > 0)).all(axis=(1, 2))))
        raise UsageError(
            f"speedup: pair {place} has no positive rate (tokens and ms must be positive): {pairs[place]}",
            fix="remove blocks in which the arm or its baseline has no measurement",
        )
    rates = np.log(values[..., 0]) - np.log(values[..., 1])
    return rates[:, 0] - rates[:, 1]


def _copies(logs: Floats) -> bool:
    """Whether the values cannot give an interval: fewer than two, or all the same."""
    return len(logs) < 2 or float(np.ptp(logs)) <= SAME


def counted(n: int, of: str) -> str:
    """`4 prompts`, `1 prompt`."""
    return f"{n} {of.removesuffix('s') if n == 1 else of}"


def no_interval(n: int) -> str:
    """Why n units that are one, or all the same, give no interval."""
    return "one unit, no interval" if n < 2 else "units do not vary, no interval"


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise UsageError(f"level: {level} is not between 0 and 1", fix="use 0.95 for a 95% interval")


_FARTHEST = 700.0
"""Logits beyond this are 0 or 1 to every digit."""


def bounded_ratio(
    parts: Sequence[tuple[float, float]],
    *,
    unit: str,
    of: str,
    floor: float = 0.0,
    ceiling: float = math.inf,
    level: float = 0.95,
) -> Estimate:
    """R = (sum a) / (sum b) over units that each give (a, b), with an interval strictly within `floor` and `ceiling`.

    `of` names the units. There is no interval for one unit, for units that all give the same ratio, and for a ratio
    that lies on a bound or beyond it. Raises `UsageError` where the b do not sum to something positive, and for a value
    that is negative or not finite.
    """
    values = np.array(parts, dtype=np.float64).reshape(-1, 2)
    total = values.sum(axis=0)
    if not np.isfinite(values).all() or (values < 0).any() or not total[1] > 0:
        raise UsageError(
            f"{unit} over {of}: counts must be finite, not negative, and not all zero",
            fix="remove units without counts",
        )
    used = values[values[:, 1] > 0]
    n, ratio = len(used), float(total[0] / total[1])
    residuals = used[:, 0] - ratio * used[:, 1]
    why = ""
    if n < 2 or float(np.abs(residuals).max()) <= SAME * float(np.abs(used).max()):
        why = no_interval(n)
    elif not floor < ratio < ceiling:
        why = f"not between {floor:g} and {ceiling:g}, no interval"
    if why:
        return Estimate(point=ratio, level=level, n=n, of=of, unit=unit, method=f"pooled over {counted(n, of)}; {why}")
    error = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / float(total[1])
    half = t_critical(n - 1, level) * error
    if math.isinf(ceiling):
        above = ratio - floor
        ends = [floor + above * math.exp(min(side * half / above, _FARTHEST)) for side in (-1, 1)]
    else:
        q = (ratio - floor) / (ceiling - floor)
        wide = half / (ceiling - floor) / (q * (1 - q))
        centre = math.log(q / (1 - q))
        ends = [floor + (ceiling - floor) * _share(centre + side * wide) for side in (-1, 1)]
    scale = "ln" if math.isinf(ceiling) else "logit"
    method = f"pooled over {n} {of}; Student t on the {scale} scale, ratio estimator"
    return Estimate(point=ratio, low=ends[0], high=ends[1], level=level, n=n, of=of, unit=unit, method=method)


def over_prompts(
    parts: Sequence[tuple[float, float]],
    *,
    unit: str,
    floor: float = 0.0,
    ceiling: float = math.inf,
    level: float = 0.95,
) -> Estimate:
    """`bounded_ratio` over prompts, without an interval for fewer than `MIN_PROMPTS` of them."""
    found = bounded_ratio(parts, unit=unit, of="prompts", floor=floor, ceiling=ceiling, level=level)
    if found.low is None or found.n >= MIN_PROMPTS:
        return found
    method = f"pooled over {found.n} prompts; too few for an interval"
    return found.model_copy(update={"low": None, "high": None, "method": method})


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -_FARTHEST), _FARTHEST)))


_ROUNDS = 2000
_SETTLED = 1e-10
MIN_DF = 3
"""Residuals with fewer degrees of freedom do not tell how large the error of a completed value is."""
MAX_COMPLETED = 0.5
"""Where a larger share of a table is completed, it is a guess more than a measurement."""


class ImputationVariance(NamedTuple):
    """What completed values add to the uncertainty of a mean."""

    variance: float
    """To be added to what the units' scatter shows, of the logarithm; infinite where too little was measured."""
    df: int
    """Degrees of freedom of the residuals."""


def imputation_error(values: Floats, expected: Floats, shares: Floats, units: Ints) -> ImputationVariance:
    """What completing adds to the variance of the mean over units.

    `values` are blocks x prompts, NaN where `expected` takes their place; `shares` weigh the prompts of each block, and
    `units` numbers the unit of each block.
    """
    known = np.isfinite(values)
    df = int(known.sum()) - sum(known.shape) + 1
    if df < MIN_DF or 1 - float(known.mean()) > MAX_COMPLETED:
        return ImputationVariance(math.inf, max(0, df))
    noise = float(np.nansum((values - expected) ** 2)) / df
    weights = np.stack([_weights(known, shares, units == unit) for unit in np.unique(units)])
    if len(weights) < 2:
        return ImputationVariance(0.0, df)
    mean = weights.mean(axis=0)
    seen = float(((weights - mean) ** 2).sum()) / (len(weights) - 1) / len(weights)
    return ImputationVariance(noise * max(0.0, float((mean**2).sum()) - seen), df)


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
