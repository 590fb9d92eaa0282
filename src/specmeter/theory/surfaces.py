"""A measured cost surface: what a target forward over b sequences of n tokens each took, with intervals.

    T(b, n)                             one forward for b requests, each with n tokens: gamma + 1 of them verify
    T(b, n) / T(b, 1)                   v(gamma) at b requests: what verification costs when the machine is shared
    T(b, 1) / T(b, gamma + 1)           target efficiency (MoESD): its inverse; 1 is ideal
    b / T(b, 1)                         tokens that plain decoding yields, of all requests together

Between measured points the surface is interpolated by straight lines, first in n and then in b: a forward that reads
all weights once and computes for every row is a plane in b n and b. Outside of them it says nothing, and refuses; the
models below go on, and say that they do.

A dense model at one request has arithmetic to spare, so n tokens cost little more than one; at many requests the
arithmetic is used already, and v(gamma) approaches gamma + 1. A mixture of experts reads new experts for every token
at one request, so v is large there; at moderately many requests the union of experts is nearly complete before
anything is drafted, so that drafts are cheap again, until arithmetic decides there too (MoESD).

Models of a measured surface are fitted with residuals; with N = b n tokens in all:

    affine      T = floor + slope N + sequence b                            every token costs the same
    roofline    T = floor + slope max(0, N - knee) + sequence b             flat while memory decides
    experts     T = floor + slope N + sequence b + expert U(b, n)           every expert touched costs its reading
    moesd       T = bias + k1 G(N) + k2 E(N) + k3 G(load)                   MoESD's own

`sequence` is what every further sequence costs: its KV cache. U(b, n) is not fitted but given, as measured. MoESD
takes uniform routing: E(N) experts (`theory.experts.expected_union`), each with load = N K / E(N) tokens, and

    G(t) = s^t below the knee, s^knee (1 + ln s (t - knee)) above it

so that a machine that waits for memory hardly notices further tokens and one that computes pays for each; the paper
writes the knee as lambda times the ridge point. For a dense model E(N) and the load say nothing new, and T = bias + k1
G(N) is left. On the curve of one request its knee cannot be seen (docs/notebook.md); on a surface it can be.

Errors are relative and models are compared by AICc, as in `theory.curves`, which see.

Sources: MoESD, arXiv 2505.19645 (target efficiency, that argument, and its form of T; read in the paper). The surface:
measured here; the other models: computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.estimates import bare, between, quotient_in_quadrature
from specmeter.theory.arguments import numbers, plain
from specmeter.theory.curves import CostCurve, CostPoint, aicc, least_squares
from specmeter.theory.experts import expected_union, mean_load

if TYPE_CHECKING:
    from specmeter.record import BatchPoint, Estimate
    from specmeter.theory.arguments import Floats, Many, Values

SurfaceModel = Literal["affine", "roofline", "experts", "moesd"]
_KNEES = 40
_STEEPNESS = 10.0 ** np.linspace(-4, -0.3, 24)
"""ln s of MoESD's G that are tried."""


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


@dataclass(frozen=True)
class SurfaceFit:
    """One model, fitted to one surface."""

    model: SurfaceModel
    parameters: dict[str, float]
    """All in ms but `knee`, in tokens, and `s`, a factor per token."""
    residuals: tuple[float, ...]
    """(fitted - measured) / measured, point by point."""

    @property
    def rms(self) -> float:
        """Root mean square of the residuals."""
        return math.sqrt(math.fsum(value**2 for value in self.residuals) / len(self.residuals))

    @property
    def aicc(self) -> float:
        """Akaike's criterion for small samples; infinite with too few points to judge the model at all."""
        return aicc(self.rms, len(self.residuals), len(self.parameters))


def fit_surface(points: Iterable[BatchPoint], experts: int = 0, used: int = 0) -> tuple[SurfaceFit, ...]:
    """All models that the points can judge, best first by AICc; empty where there are too few points.

    `experts` and `used` are those of a mixture of experts, whose points have unions for the model `experts`; without
    unions that model is left out. Raises `UsageError` for points of several depths.
    """
    measured = tuple(points)
    if len({point.depth for point in measured}) > 1:
        raise UsageError("points at several depths are not one surface", fix="fit each depth by itself")
    ms = np.array([point.ms.point for point in measured])
    b = np.array([point.sequences for point in measured], dtype=np.float64)
    tokens = b * np.array([point.tokens for point in measured], dtype=np.float64)
    one = np.ones_like(b)
    unions = [point.union.point for point in measured if point.union is not None]
    able: list[tuple[SurfaceModel, tuple[str, ...]]] = [
        ("affine", ("floor", "slope", "sequence")),
        ("roofline", ("floor", "slope", "sequence", "knee")),
        ("moesd", ("bias", "k1", "k2", "k3", "knee", "s") if experts else ("bias", "k1", "knee", "s")),
    ]
    if unions and len(unions) == len(measured):
        able.append(("experts", ("floor", "slope", "sequence", "expert")))
    found: list[SurfaceFit] = []
    for model, names in able:
        if len(measured) <= len(names) + 2:
            continue
        best: tuple[float, tuple[float, ...], Floats] | None = None
        for shape, columns in _columns(model, tokens, b, one, unions, experts, used):
            linear, fitted = least_squares(columns, ms)
            loss = float(np.square(fitted / ms - 1).sum())
            if best is None or loss < best[0]:
                best = (loss, (*linear, *shape), fitted)
        assert best is not None
        residuals = tuple(float(value) for value in best[2] / ms - 1)
        found.append(SurfaceFit(model, dict(zip(names, best[1], strict=True)), residuals))
    return tuple(sorted(found, key=lambda fit: fit.aicc))


def _columns(
    model: SurfaceModel,
    tokens: Floats,
    b: Floats,
    one: Floats,
    unions: Sequence[float],
    experts: int,
    used: int,
) -> Iterable[tuple[tuple[float, ...], list[Floats]]]:
    """(parameters that are not linear, what each linear one is multiplied with), for all that are tried."""
    knees = np.geomspace(1.0, float(tokens.max()), _KNEES)
    match model:
        case "affine":
            yield (), [one, tokens, b]
        case "experts":
            yield (), [one, tokens, b, np.array(unions)]
        case "roofline":
            for knee in knees:
                yield (float(knee),), [one, np.maximum(0.0, tokens - knee), b]
        case "moesd":
            for knee, steepness in product(knees, _STEEPNESS):
                shape = (float(knee), math.exp(float(steepness)))
                columns = [one, _growth(tokens, *shape)]
                if experts:
                    columns += [
                        np.asarray(expected_union(tokens, experts, used)),
                        _growth(np.asarray(mean_load(tokens, experts, used)), *shape),
                    ]
                yield shape, columns


def _growth(t: Floats, knee: float, s: float) -> Floats:
    """MoESD's G(t)."""
    steepness = math.log(s)
    return np.exp(steepness * np.minimum(t, knee)) * (1 + steepness * np.maximum(0.0, t - knee))
