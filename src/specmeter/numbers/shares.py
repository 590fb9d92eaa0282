"""Shares and yields with intervals that cannot leave their bounds: acceptance in [0, 1], tau in [1, gamma + 1].

Both are ratios of sums, R = (sum a) / (sum b), over prompts: greedy decoding writes the same text in every block, so
another block says nothing new, and only another prompt is another draw. The ratio estimator's standard error,

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.stats import LEAST_PROMPTS, SAME, counted, no_interval, t_critical
from specmeter.record import Estimate

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
            fix="leave out units in which nothing was counted",
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
    """`bounded_ratio` over prompts, without an interval for fewer than `LEAST_PROMPTS` of them."""
    found = bounded_ratio(parts, unit=unit, of="prompts", floor=floor, ceiling=ceiling, level=level)
    if found.low is None or found.n >= LEAST_PROMPTS:
        return found
    method = f"pooled over {found.n} prompts; too few for an interval"
    return found.model_copy(update={"low": None, "high": None, "method": method})


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -_FARTHEST), _FARTHEST)))
