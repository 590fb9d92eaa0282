"""Tests whether two sets of sampled texts come from one distribution: a permutation test on counts of tokens.

Tokens of one text depend on each other, so whole texts are the units. For each prompt p there are n_p texts of one arm
and m_p of the other, each as a vector of counts (of tokens hashed into buckets). With

    d_p = mean vector of one arm - mean vector of the other,    c_p = counts of all texts of the prompt together,
    v_p = variance of each bucket over them, times (1/n_p + 1/m_p),

there are two statistics, sums over the buckets k:

    own way:   sum over p of sum over k of d_pk^2 / c_pk           every prompt's texts may differ in a way of their own
    one way:   sum over k of (sum over p of d_pk)^2 / sum over p of v_pk      the same tokens are more frequent in all

Both are computed again for many random assignments of texts to arms, prompt by prompt. Each assignment, the real one
included, gets the rank that its better statistic has among all. The p-value is the share of the assignments whose rank
is at least as good as that of the real one, which is exact whatever the distribution. Texts of both arms that share a
seed are alike: that makes the test cautious, never rash.

Source: Phipson & Smyth 2010, doi:10.2202/1544-6115.1585 (why the 1 is added); Holm 1979 (several arms).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats


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
        ranks = np.minimum(*(_ranks(values) for values in _statistics(pairs, assignments, count)))
        p = float((ranks <= ranks[0]).mean())
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


def _statistics(pairs: Sequence[tuple[Floats, Floats]], assignments: Assignments, count: int) -> tuple[Floats, Floats]:
    """Both statistics, of the assignment as it was, then of `count` random ones."""
    own_way = np.zeros(count + 1)
    difference: Floats | float = 0.0
    variance: Floats | float = 0.0
    for place, (one, other) in enumerate(pairs):
        n, m = len(one), len(other)
        texts = np.vstack([one, other])
        all_counts = texts.sum(axis=0)
        of_one = assignments.draw(place, n, m, count) @ texts
        apart = of_one / n - (all_counts - of_one) / m
        own_way += apart**2 @ (1 / np.maximum(all_counts, 1.0))
        difference = difference + apart
        variance = variance + texts.var(axis=0) * (1 / n + 1 / m)
    return own_way, (difference**2 / np.maximum(variance, 1e-12)).sum(axis=1)


def _ranks(values: Floats) -> NDArray[np.int64]:
    """How many values are at least as large as each."""
    # Equal up to rounding is equal: it may be the same assignment, mirrored.
    return len(values) - np.searchsorted(np.sort(values), values * (1 - 1e-9), side="left")
