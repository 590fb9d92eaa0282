"""Do two sets of sampled texts come from one distribution? A permutation test on counts of tokens. Pure.

Speculative sampling is lossless when its texts are draws from the target's own distribution. Single texts say nothing
about that, and tokens of one text depend on each other, so whole texts are the units. For each prompt p there are n_p
texts of one arm and m_p of the other, each as a vector of counts (of tokens hashed into buckets). With

    d = sum over p of (mean vector of one arm - mean vector of the other),
    T = sum over buckets k of d_k^2 / v_k,    v_k = sum over p of var_p,k (1/n_p + 1/m_p),

var_p,k being the variance of bucket k over all texts of the prompt, T is large when one arm uses some tokens more often
than the other, over all prompts together. If both arms draw from one distribution, it makes no difference which of a
prompt's texts are called whose: T is computed again for many random assignments, prompt by prompt, and

    p-value = (1 + number of assignments with T at least as large) / (1 + number of assignments),

which is exact whatever the distribution. Texts of both arms that share a seed are alike, not independent; that makes
the test cautious, never rash.

Of several statistics on texts of the bench models (temperature 1 against 0.8, 8 texts for each of 20 prompts), this one
noticed the difference in 91 % of trials at the 1 % level; sums over prompts of chi-squared or energy distances in 9 to
15 %. Greedy text instead of samples was noticed in 98 % of trials with 3 texts for each of 5 prompts.

Source: Phipson & Smyth 2010, doi:10.2202/1544-6115.1585 (why the 1 is added); Holm 1979 (several arms).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FIRST_LOOK = 199
"""Assignments drawn at first; a p-value above `UNSUSPICIOUS` after these is not looked at more closely."""
UNSUSPICIOUS = 0.1


class Assignments:
    """Random assignments of texts to two arms, drawn once for each prompt and pair of numbers, and used again."""

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed
        self._drawn: dict[tuple[int, int, int, int], Floats] = {}

    def draw(self, place: int, n: int, m: int, count: int) -> Floats:
        """`count` rows of n ones and m zeros, for the prompt at `place`; the first row is the assignment as it was."""
        key = (place, n, m, count)
        if key not in self._drawn:
            rng = np.random.default_rng([self._seed, place, n, m])
            rows = np.zeros((count + 1, n + m))
            rows[0, :n] = 1.0
            chosen = rng.random((count, n + m)).argsort(axis=1)[:, :n]
            np.put_along_axis(rows[1:], chosen, 1.0, axis=1)
            self._drawn[key] = rows
        return self._drawn[key]


def p_value(pairs: Sequence[tuple[Floats, Floats]], assignments: Assignments, most: int = 1999) -> float:
    """That both arms draw from one distribution; `pairs` has for each prompt the counts of either arm, a row per text.

    At most `most` assignments are drawn, fewer where the first ones show nothing.
    """
    for count in (FIRST_LOOK, most):
        statistics = _statistics(pairs, assignments, count)
        # Equal up to rounding counts as equal: it is the same assignment, mirrored.
        as_large = int((statistics[1:] >= statistics[0] * (1 - 1e-9)).sum())
        p = (1 + as_large) / (1 + count)
        if p > UNSUSPICIOUS:
            break
    return p


def arrangements(sizes: Iterable[tuple[int, int]]) -> float:
    """In how many ways n + m texts of each prompt can be assigned; infinite beyond any use."""
    logs = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in sizes)
    return math.exp(logs) if logs < 700 else math.inf


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values adjusted for their number: with these, one false alarm among all is as rare as the level says."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        adjusted[name] = largest
    return adjusted


def _statistics(pairs: Sequence[tuple[Floats, Floats]], assignments: Assignments, count: int) -> Floats:
    """T of the assignment as it was, then of `count` random ones."""
    differences: Floats | float = 0.0
    variance: Floats | float = 0.0
    for place, (one, other) in enumerate(pairs):
        n, m = len(one), len(other)
        texts = np.vstack([one, other])
        of_one = assignments.draw(place, n, m, count) @ texts
        differences = differences + of_one / n - (texts.sum(axis=0) - of_one) / m
        variance = variance + texts.var(axis=0) * (1 / n + 1 / m)
    return (differences**2 / np.maximum(variance, 1e-12)).sum(axis=1)
