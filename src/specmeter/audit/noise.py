"""What timing noise may explain: a property of the table that is judged, taken from what it measured more than once.

Repeats are rows that are alike in everything that says what was run, and rows without drafts beside their baselines.
Their rates differ by noise alone. With s the standard deviation of their logarithms, pooled over all such groups, two
timings of one configuration differ by less than

    t_(0.995, degrees of freedom) x sqrt(2) x s

in 99 of 100 cases. Few repeats say little: then noise is what they differ by, and at least `USUAL`. Plain decoding
against plain decoding on a controlled GPU differs by 2 to 6 % from prompt to prompt and from repeat to repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.audit.outcome import drafted_nothing
from specmeter.stats import t_critical

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

USUAL = 0.06
"""Relative difference of two timings of one thing where the table does not show it."""
LEAST = 0.02
"""Repeats of one sitting may agree better than two configurations of it would."""
MOST = 0.25
"""Rows that differ by more are not repeats, whatever they are called."""
ENOUGH = 5
"""Degrees of freedom from which on repeats say how steady a table is."""


@dataclass(frozen=True)
class Noise:
    """What two timings of one configuration may differ by."""

    share: float
    origin: str
    """Where the number is from, in words."""


def noise_of(claims: Sequence[Claim]) -> Noise:
    """The noise of a table, from its own repeats and baselines."""
    groups = list(_groups(claims))
    near = [group for group in groups if max(group) / min(group) <= 1 + MOST]
    freedom = sum(len(group) - 1 for group in near)
    left_out = len(groups) - len(near)
    strange = f"; {left_out} groups of rows alike differ by more than {MOST:.0%} and are left out" if left_out else ""
    if not freedom:
        return Noise(USUAL, f"usual where nothing was measured twice{strange}")
    largest = max(max(group) / min(group) for group in near) - 1
    if freedom < ENOUGH:
        seen = f"the few repeats differ by {largest:.1%}, and {USUAL:.0%} is usual"
        return Noise(max(USUAL, largest), seen + strange)
    squares = sum(_squares([math.log(rate) for rate in group]) for group in near)
    share = t_critical(freedom, 0.99) * math.sqrt(2 * squares / freedom)
    rows = sum(len(group) for group in near)
    seen = f"from {rows} rates of {len(near)} configurations that were measured more than once"
    return Noise(min(MOST, max(LEAST, share)), seen + strange)


def of_row(claim: Claim, noise: float) -> float:
    """Noise of one row: at least that of the table, and more where its own standard deviations say so."""
    spreads = (
        _standard_error(claim.decode_rate, claim.decode_rate_sd, claim.runs),
        _standard_error(claim.baseline_rate, claim.baseline_rate_sd, claim.runs),
    )
    return max(noise, min(MOST, 2 * math.hypot(*spreads)))


def _standard_error(rate: float | None, deviation: float | None, runs: int | None) -> float:
    if not rate or not deviation:
        return 0.0
    return deviation / rate / math.sqrt(runs or 4)  # a deviation takes several runs; four where nothing says how many


def _groups(claims: Sequence[Claim]) -> Iterator[list[float]]:
    """Rates of one configuration, two and more each."""
    alike: dict[tuple[object, ...], list[float]] = {}
    for claim in claims:
        if claim.decode_rate is None or claim.problem is not None:
            continue
        if len(claim.samples) > 1:
            yield list(claim.samples)
        alike.setdefault(_configuration(claim), []).append(claim.decode_rate)
        if drafted_nothing(claim) and claim.method != "none" and claim.baseline_rate is not None:
            yield [claim.decode_rate, claim.baseline_rate]
    for rates in alike.values():
        if len(rates) > 1:
            yield rates


def _configuration(claim: Claim) -> tuple[object, ...]:
    """All that says what was run and how; plain rows are alike whatever would have drafted."""
    plain = drafted_nothing(claim)
    drafting = () if plain else (claim.draft, claim.method, claim.gamma, claim.p_min, claim.tree)
    where = (claim.target, claim.engine, claim.device, claim.concurrency, claim.window, claim.size_bytes, claim.runs)
    sizes = (claim.prompt_n, claim.label if not (plain and claim.target) else "", claim.synthetic)
    return (claim.source, plain, *drafting, *where, *sizes, *sorted(claim.conditions.items()))


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
