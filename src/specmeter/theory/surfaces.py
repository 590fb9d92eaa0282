"""A measured cost surface: what a target forward over b sequences of n tokens each took, with intervals.

    T(b, n)                             one forward for b requests, each with n tokens: gamma + 1 of them verify
    T(b, n) / T(b, 1)                   v(gamma) at b requests: what verification costs when the machine is shared
    T(b, 1) / T(b, gamma + 1)           target efficiency (MoESD): its inverse; 1 is ideal
    b / T(b, 1)                         tokens that plain decoding yields, of all requests together

Between measured points the surface is interpolated by straight lines, first in n and then in b: a forward that reads
all weights once and computes for every row is a plane in b n and b. Outside of them it says nothing, and refuses;
`theory.surface_fits` has models that go on, and say that they do.

A dense model at one request has arithmetic to spare, so n tokens cost little more than one; at many requests the
arithmetic is used already, and v(gamma) approaches gamma + 1. A mixture of experts reads new experts for every token
at one request, so v is large there; at moderately many requests the union of experts is nearly complete before
anything is drafted, so that drafts are cheap again, until arithmetic decides there too (MoESD).

Source of the term and of that argument: MoESD, arXiv 2505.19645 (read in the paper). The surface: measured here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.estimates import bare, between, quotient_in_quadrature
from specmeter.theory.arguments import numbers, plain
from specmeter.theory.curves import CostCurve, CostPoint

if TYPE_CHECKING:
    from specmeter.record import BatchPoint, Estimate
    from specmeter.theory.arguments import Floats, Many, Values


@dataclass(frozen=True)
class CostSurface:
    """T(b, n) of one target on one machine at one depth: for each b a curve over n."""

    curves: tuple[tuple[int, CostCurve], ...]
    """(b, T(b, .)), ascending in b."""
    depth: int
    """Tokens that each sequence has in its context before."""

    @classmethod
    def of(cls, points: Iterable[BatchPoint]) -> CostSurface:
        """From measured points, in any order. Raises `UsageError` without any, for points that come twice, or of
        several depths."""
        rows: dict[int, list[CostPoint]] = {}
        depths: set[int] = set()
        for point in points:
            rows.setdefault(point.sequences, []).append(CostPoint(tokens=point.tokens, ms=point.ms))
            depths.add(point.depth)
        if len(depths) != 1:
            problem = "a cost surface without points" if not depths else f"points at depths {sorted(depths)}"
            raise UsageError(problem, fix="measure with `specmeter probe --batch 1,2,4,8`, at one depth")
        curves = [
            (b, CostCurve(points=tuple(sorted(row, key=lambda it: it.tokens)))) for b, row in sorted(rows.items())
        ]
        return cls(tuple(curves), depths.pop())

    @property
    def sequences(self) -> Floats:
        """b that were measured, ascending."""
        return np.array([b for b, _ in self.curves], dtype=np.float64)

    def covers(self, sequences: float, tokens: float) -> bool:
        """Whether (b, n) lies within what was measured."""
        around = self._around(sequences)
        return bool(around) and all(curve.tokens[0] <= tokens <= curve.tokens[-1] for _, curve in around)

    @overload
    def ms_at(self, sequences: float, tokens: float) -> float: ...
    @overload
    def ms_at(self, sequences: Many, tokens: Values) -> Floats: ...
    @overload
    def ms_at(self, sequences: Values, tokens: Many) -> Floats: ...
    def ms_at(self, sequences: Values, tokens: Values) -> float | Floats:
        """T(b, n) in ms within what was measured; shapes broadcast. Raises `UsageError` outside."""
        pairs = np.broadcast(numbers("sequences", sequences, least=1), numbers("tokens", tokens, least=1))
        found = [self.estimate(float(b), float(n)).point for b, n in pairs]
        return plain(np.array(found, dtype=np.float64).reshape(pairs.shape))

    def estimate(self, sequences: float, tokens: float) -> Estimate:
        """T(b, n) in ms, with an interval where its neighbours have one: its ends are interpolated as the point is.

        That is as if the neighbours erred together, which on a machine that is slow for a while they do. `n` is that of
        the neighbour with fewest units. Raises `UsageError` outside of what was measured.
        """
        if not self.covers(sequences, tokens):
            most = ", ".join(f"b = {b}: n to {curve.tokens[-1]:g}" for b, curve in self.curves)
            raise UsageError(
                f"T({sequences:g}, {tokens:g}) was not measured: the surface covers {most}",
                fix="probe with larger --batch or --tokens, or take a fitted model and call it a prediction",
            )
        around = [(float(b), _between(curve, tokens)) for b, curve in self._around(sequences)]
        return _mixed(around, sequences, f"T({sequences:g}, {tokens:g})")

    def curve(self, sequences: float) -> CostCurve:
        """T(b, .) as a curve over the n that were measured at b, or on both sides of it."""
        around = self._around(sequences)
        if not around:
            raise UsageError(
                f"b = {sequences:g} was not measured: the surface covers {self.curves[0][0]} to {self.curves[-1][0]}",
                fix="probe with a larger --batch",
            )
        counts = [{point.tokens for point in curve.points} for _, curve in around]
        shared = sorted(counts[0] & counts[-1])
        return CostCurve(points=tuple(CostPoint(tokens=n, ms=self.estimate(sequences, n)) for n in shared))

    def verification(self, sequences: float, gamma: float) -> Estimate:
        """v(gamma) at b requests: T(b, gamma + 1) / T(b, 1).

        Half widths of the logarithms add in quadrature, as if the two were measured independently.
        """
        if gamma == 0:
            return bare(1.0, "1", "T(b, 1) / T(b, 1)")
        return quotient_in_quadrature(
            self.estimate(sequences, gamma + 1),
            self.estimate(sequences, 1),
            unit="1",
            method=f"T({sequences:g}, {gamma + 1:g}) / T({sequences:g}, 1)",
        )

    def target_efficiency(self, sequences: float, gamma: float) -> Estimate:
        """T(b, 1) / T(b, gamma + 1): MoESD, arXiv 2505.19645. 1 is ideal, 1 / (gamma + 1) gains nothing at all."""
        if gamma == 0:
            return bare(1.0, "1", "T(b, 1) / T(b, 1)")
        return quotient_in_quadrature(
            self.estimate(sequences, 1),
            self.estimate(sequences, gamma + 1),
            unit="1",
            method=f"T({sequences:g}, 1) / T({sequences:g}, {gamma + 1:g})",
        )

    def _around(self, sequences: float) -> tuple[tuple[int, CostCurve], ...]:
        """The curve of b, or those of its neighbours on both sides; nothing outside."""
        for b, curve in self.curves:
            if b == sequences:
                return ((b, curve),)
        for low, high in pairwise(self.curves):
            if low[0] < sequences < high[0]:
                return (low, high)
        return ()


def _between(curve: CostCurve, tokens: float) -> Estimate:
    """T(n) of a point, or between two."""
    exact = next((point.ms for point in curve.points if point.tokens == tokens), None)
    if exact is not None:
        return exact
    low, high = next((a, b) for a, b in pairwise(curve.points) if a.tokens < tokens < b.tokens)
    return _mixed([(float(low.tokens), low.ms), (float(high.tokens), high.ms)], tokens, f"T({tokens:g})")


def _mixed(around: list[tuple[float, Estimate]], at: float, what: str) -> Estimate:
    """The estimate at a place between two, or the only one."""
    if len(around) == 1:
        return around[0][1]
    (low, first), (high, second) = around
    weight = (at - low) / (high - low)

    def mix(one: float, other: float) -> float:
        return (1 - weight) * one + weight * other

    method, n = f"{what}, between measured points", min(first.n, second.n)
    point = mix(first.point, second.point)
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return bare(point, first.unit, f"{method}; no interval", n=n)
    return between(point, mix(first.low, second.low), mix(first.high, second.high), first.unit, method, n=n)
