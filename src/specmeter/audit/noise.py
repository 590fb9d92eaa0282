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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.numbers.stats import t_critical

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

USUAL = 0.06
"""Relative difference of two timings of one thing where the table does not show it."""
LEAST = 0.02
"""Repeats of one sitting may agree better than two configurations of it would."""
MOST = 0.25
"""Rows that differ by more are unsteady: nothing about the table, and about them nothing within that difference."""
ENOUGH = 5
"""Degrees of freedom from which on repeats say how steady a table is."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class Noise:
    """What two timings of one configuration may differ by."""

    share: float
    origin: str
    """Where the number is from, in words."""
    unsteady: Mapping[Key, float] = field(default_factory=dict[Key, float])
    """Configurations, and places of plain rows, whose own repeats differ by far more."""

    def of(self, claim: Claim) -> float:
        """The noise of one row, its own repeats and those of its baseline included."""
        return max(self.share, *(self.unsteady.get(key, 0.0) for key in (configuration(claim), _place(claim))))


def noise_of(claims: Sequence[Claim]) -> Noise:
    """The noise of a table, from its own repeats and baselines."""
    near: list[Sequence[float]] = []
    unsteady: dict[Key, float] = {}
    for keys, rates in _groups(claims):
        spread = max(rates) / min(rates) - 1
        if spread <= MOST:
            near.append(rates)
        else:
            unsteady |= {key: max(spread, unsteady.get(key, 0.0)) for key in keys}
    strange = ""
    if unsteady:
        strange = f"; rows that are alike and yet differ by more than {MOST:.0%} have their own"
    freedom = sum(len(group) - 1 for group in near)
    if not freedom:
        return Noise(USUAL, f"usual value, as nothing was measured twice{strange}", unsteady)
    largest = max(max(group) / min(group) for group in near) - 1
    if freedom < ENOUGH:
        seen = f"usual value; the few repeats differ by {largest:.1%}"
        return Noise(max(USUAL, largest), seen + strange, unsteady)
    squares = sum(_squares([math.log(rate) for rate in group]) for group in near)
    share = t_critical(freedom, 0.99) * math.sqrt(2 * squares / freedom)
    rows = sum(len(group) for group in near)
    seen = f"from {rows} rates of {len(near)} configurations that were measured more than once"
    return Noise(min(MOST, max(LEAST, share)), seen + strange, unsteady)


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


def _groups(claims: Sequence[Claim]) -> Iterator[tuple[tuple[Key, ...], Sequence[float]]]:
    """(keys of the rows that they concern, rates of one configuration, two and more)."""
    alike: dict[Key, list[float]] = {}
    keys: dict[Key, tuple[Key, ...]] = {}
    for claim in claims:
        if claim.decode_rate is None or claim.problem is not None:
            continue
        key = configuration(claim)
        keys[key] = (key, _place(claim)) if claim.drafted_nothing else (key,)
        if len(claim.samples) > 1:
            yield keys[key], claim.samples
        alike.setdefault(key, []).append(claim.decode_rate)
        if claim.drafted_nothing and claim.method != "none" and claim.baseline_rate is not None:
            yield keys[key], (claim.decode_rate, claim.baseline_rate)
    for key, rates in alike.items():
        if len(rates) > 1:
            yield keys[key], rates


def configuration(claim: Claim) -> Key:
    """All that says what was run and how; drafts that were accepted alike are of the same text."""
    where = (*_place(claim), claim.concurrency, claim.window, claim.size_bytes, claim.runs, claim.prompt_n)
    if claim.drafted_nothing:
        return ("plain", *where, "" if claim.target else claim.label)
    share = None if claim.acceptance is None else round(claim.acceptance, 2)
    drafts = (claim.draft, claim.method, claim.gamma, claim.p_min, claim.tree, claim.synthetic)
    return ("drafts", *where, claim.label, *drafts, share, claim.accepted, claim.predicted_n)


def _place(claim: Claim) -> Key:
    """What a row and its baseline have in common."""
    return (claim.source, claim.target, claim.engine, claim.device, *sorted(claim.conditions.items()))


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
