"""Measured costs of target forwards, as a curve over n tokens and as a surface over b sequences of n tokens.

    v(gamma) = T(gamma + 1) / T(1)      what verification costs, read off the curve
    T(b, n) / T(b, 1)                   the same at b requests, when the machine is shared
    T(b, 1) / T(b, gamma + 1)           target efficiency (MoESD): its inverse; 1 is ideal
    b / T(b, 1)                         tokens that decoding without speculation yields, of all requests together

Between measured points both are interpolated by straight lines (the surface first in n, then in b); outside them they
refuse. Models that are fitted to them, with residuals, continue beyond the last point, and say that they do. With N = b
n tokens in all:

    affine      T = floor + slope N + sequence b                            every token costs the same
    roofline    T = floor + slope max(0, N - knee) + sequence b             flat while memory decides
    experts     T = floor + slope N + sequence b + expert U(b, n)           every expert touched costs its reading
    moesd       T = bias + k1 G(N) + k2 E(N) + k3 G(load)                   MoESD's own, for surfaces only

On a curve `sequence` is left out. All parameters are at least 0: a fit that says that more tokens make a forward
cheaper has fitted noise. U is given, measured or modelled (`theory.roofline`). MoESD takes uniform routing: E(N)
experts, each with load = N K / E(N) tokens, and

    G(t) = s^t below the knee, s^knee (1 + ln s (t - knee)) above it

Errors are relative: timing noise grows with the time. Models are compared by the small-sample Akaike criterion

    AICc = N ln(RSS / N) + 2 k + 2 k (k + 1) / (N - k - 1),    k = parameters + 1 for the variance

Lower is better, and a difference below 2 is none. It says nothing about a range that was not measured.

Sources: Burnham & Anderson 2002, "Model Selection and Multimodel Inference" (AICc); MoESD, arXiv 2505.19645 (read in
the paper).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Annotated, Literal, Self, overload

import numpy as np
from pydantic import Field, model_validator

from specmeter.errors import UsageError
from specmeter.numbers.estimates import bare, between, quotient_in_quadrature
from specmeter.numbers.special import lowest, non_negative_fit
from specmeter.record import Estimate, Record
from specmeter.theory.arguments import numbers, plain
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from specmeter.record import BatchPoint
    from specmeter.theory.arguments import Floats, Many, Values


CostModel = Literal["affine", "roofline", "experts"]
PARAMETERS: dict[CostModel, tuple[str, ...]] = {
    "affine": ("floor", "slope"),
    "roofline": ("floor", "slope", "knee"),
    "experts": ("floor", "slope", "expert"),
}
"""Names of each model's parameters; all in ms but `knee`, which is in tokens."""

_SMALLEST_ERROR = 1e-6
"""Relative errors below this are those of the arithmetic: exact fits of synthetic curves are equally good."""
_KNEES = 64
"""Places for the knee that are tried before the best one is refined."""


class CostPoint(Record):
    """The time of a forward over this many tokens."""

    tokens: Annotated[int, Field(ge=1)]
    """n: positions that the target computed together; gamma + 1 for a verification."""
    ms: Estimate
    """Time of the forward in ms, with its interval where there is one."""


class CostCurve(Record):
    """T(n) of one target on one machine, ascending in n, each n once."""

    points: tuple[CostPoint, ...]

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if not self.points:
            raise UsageError("this cost curve has no points", fix="measure T(n) at least for n = 1 and n = gamma + 1")
        counts = [point.tokens for point in self.points]
        if any(later <= earlier for earlier, later in pairwise(counts)):
            raise UsageError(
                f"points of a cost curve are not in ascending order: n = {counts}", fix="give each n once, in order"
            )
        for point in self.points:
            if point.ms.point <= 0:
                raise UsageError(
                    f"T({point.tokens}) is {point.ms.point:g} ms", fix="remove points that were not measured"
                )
        return self

    @property
    def tokens(self) -> Floats:
        """n of every point. Shape (points,)."""
        return np.array([point.tokens for point in self.points], dtype=np.float64)

    @property
    def ms(self) -> Floats:
        """T(n) of every point. Shape (points,)."""
        return np.array([point.ms.point for point in self.points], dtype=np.float64)

    @overload
    def ms_at(self, tokens: float) -> float: ...
    @overload
    def ms_at(self, tokens: Many) -> Floats: ...
    def ms_at(self, tokens: Values) -> float | Floats:
        """T(n) between the first and the last measured point, by straight lines; any shape.

        Raises `UsageError` outside them: what a machine does beyond (another kernel, a limit of arithmetic) cannot be
        seen from here. Between points lines may miss a step that a kernel makes; measure the n that matter.
        """
        n = np.asarray(numbers("tokens", tokens, least=1))
        known = self.tokens
        outside = (n < known[0]) | (n > known[-1])
        if outside.any():
            raise UsageError(
                f"T({float(n[outside][0]):g}) was not measured: the curve covers n = {known[0]:g} to {known[-1]:g}",
                fix="measure that n, or use a fitted model (theory.curves) as a prediction",
            )
        return plain(np.interp(n, known, self.ms))

    def verification(self, gamma: float) -> float:
        """v(gamma) = T(gamma + 1) / T(1), interpolated; needs a point at n = 1.

        Not forced to 1 or above: a measured curve may dip by its noise.
        """
        one = self._one().ms.point
        return self.ms_at(numbers("gamma", gamma, least=0) + 1) / one

    def verification_estimate(self, gamma: int) -> Estimate:
        """v(gamma) at a measured point, with an interval where T(gamma + 1) and T(1) both have one.

        Half widths of the logarithms add in quadrature, which assumes that the two times were measured independently;
        `n` is that of the point with fewer units. The same machine state in both makes it a little too wide.
        """
        one = self._one().ms
        measured = {point.tokens: point.ms for point in self.points}
        if gamma + 1 not in measured:
            raise UsageError(
                f"T({gamma + 1}) was not measured, only n = {sorted(measured)}",
                fix="measure it, or use `verification`, which interpolates without an interval",
            )
        many, method = measured[gamma + 1], f"T({gamma + 1}) / T(1)"
        return (
            quotient_in_quadrature(many, one, unit="1", method=method)
            if gamma
            else bare(1.0, "1", f"{method}; no interval", n=one.n, level=one.level)
        )

    def _one(self) -> CostPoint:
        if self.points[0].tokens != 1:
            raise UsageError(
                f"T(1) was not measured: the curve starts at n = {self.points[0].tokens}",
                fix="measure n = 1: ratios are relative to it",
            )
        return self.points[0]


@dataclass(frozen=True)
class Fit:
    """Of a model: what was found, and how well it fits."""

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


@dataclass(frozen=True)
class CostFit(Fit):
    """One model, fitted to one curve."""

    model: CostModel
    union: Callable[[Floats], float | Floats] | None = None
    """U(n) that was given (`experts` only)."""

    def ms_at(self, tokens: Floats) -> Floats:
        """T(n) of the model, within the measured range or beyond."""
        columns = _design(self.model, tokens, self.parameters.get("knee", 0.0), self.union)
        linear = [value for name, value in self.parameters.items() if name != "knee"]
        return np.asarray(sum(value * column for value, column in zip(linear, columns, strict=True)))


def aicc(rms: float, points: int, parameters: int) -> float:
    """The criterion in the head of this module; infinite where there are too few points for this many parameters."""
    k = parameters + 1
    if points - k - 1 <= 0:
        return math.inf
    error = max(rms, _SMALLEST_ERROR) ** 2
    return points * math.log(error) + 2 * k + 2 * k * (k + 1) / (points - k - 1)


def fit_cost(curve: CostCurve, model: CostModel, union: Callable[[Floats], float | Floats] | None = None) -> CostFit:
    """Fit one model by least squares of relative errors, all parameters at least 0.

    `union` maps n to distinct experts per layer, for `experts` alone: `UnionFit.union` of measured unions, or
    `lambda n: expected_union(n, 256, 8)` for uniform routing. Raises `UsageError` with fewer points than parameters.
    """
    if model not in PARAMETERS:
        raise UsageError(f"no such model: {model!r}", fix=f"use one of {', '.join(PARAMETERS)}")
    if (union is None) == (model == "experts"):
        raise UsageError(
            f"union: the model {model} {'needs' if union is None else 'does not use'} the experts touched",
            fix="give `union` only for the model 'experts'",
        )
    n, ms = curve.tokens, curve.ms
    if len(n) < len(PARAMETERS[model]):
        raise UsageError(
            f"{len(n)} points cannot determine the {len(PARAMETERS[model])} parameters of {model}",
            fix="measure more values of n, or fit the model 'affine'",
        )
    knee = _knee(n, ms) if model == "roofline" else 0.0
    linear, fitted = least_squares(_design(model, n, knee, union), ms)
    values = (*linear, knee) if model == "roofline" else linear
    residuals = tuple(float(value) for value in fitted / ms - 1)
    parameters = dict(zip(PARAMETERS[model], values, strict=True))
    return CostFit(parameters, residuals, model, union)


def compare_fits(curve: CostCurve, union: Callable[[Floats], float | Floats] | None = None) -> tuple[CostFit, ...]:
    """All models that the points can judge, best first by AICc; `experts` only where `union` is given.

    The first is to be preferred over the next only where their `aicc` differ by more than 2; otherwise the curve does
    not tell them apart. Raises `UsageError` below five points, which cannot judge even two parameters.
    """
    models: tuple[CostModel, ...] = ("affine", "roofline") if union is None else ("affine", "roofline", "experts")
    able: list[CostModel] = [model for model in models if len(curve.points) > len(PARAMETERS[model]) + 2]
    if not able:
        raise UsageError(
            f"{len(curve.points)} points are too few to choose between cost models",
            fix="measure at least 5 values of n",
        )
    fits = [fit_cost(curve, model, union if model == "experts" else None) for model in able]
    return tuple(sorted(fits, key=lambda fit: fit.aicc))


def _design(model: CostModel, n: Floats, knee: float, union: Callable[[Floats], float | Floats] | None) -> list[Floats]:
    """What each linear parameter is multiplied with."""
    columns = [np.ones_like(n), np.maximum(0.0, n - knee)]
    if model == "experts":
        assert union is not None
        touched = np.asarray(union(n), dtype=np.float64)
        if touched.shape != n.shape or not np.isfinite(touched).all():
            raise UsageError(
                f"union gave shape {touched.shape} for {n.shape} values of n", fix="give a function of an array of n"
            )
        columns.append(touched)
    return columns


def least_squares(columns: list[Floats], ms: Floats) -> tuple[tuple[float, ...], Floats]:
    """Non-negative least squares of relative errors: the parameters, and the fitted times."""
    design = np.stack(columns, axis=-1)
    size = np.maximum(design.max(axis=0), 1e-300)
    linear = non_negative_fit(design / size / ms[:, np.newaxis], np.ones_like(ms)) / size
    return tuple(float(value) for value in linear), design @ linear


def _knee(n: Floats, ms: Floats) -> float:
    """Where the flat part ends, between the first and the last point."""

    def loss(knee: float) -> float:
        _, fitted = least_squares(_design("roofline", n, knee, None), ms)
        return float(np.square(fitted / ms - 1).sum())

    even: Floats = np.geomspace(float(n[0]), float(n[-1]), _KNEES, endpoint=False, dtype=np.float64)
    places = np.unique(np.concatenate([n[:-1], even]))
    losses = [loss(float(place)) for place in places]
    best = int(np.argmin(losses))
    low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    if low >= high:
        return float(places[best])
    place, value = lowest(loss, float(low), float(high))
    return place if value < losses[best] else float(places[best])


SurfaceModel = Literal["affine", "roofline", "experts", "moesd"]
_SURFACE_KNEES = 40
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

    def estimate(self, sequences: float, tokens: float) -> Estimate:
        """T(b, n) in ms, with an interval where its neighbours have one: its ends are interpolated as the point is.

        That is as if the neighbours erred together, which on a machine that is slow for a while they do. `n` is that of
        the neighbour with fewest units. Raises `UsageError` outside of what was measured.
        """
        if not self.covers(sequences, tokens):
            most = ", ".join(f"b = {b}: n to {curve.tokens[-1]:g}" for b, curve in self.curves)
            raise UsageError(
                f"T({sequences:g}, {tokens:g}) was not measured: the surface covers {most}",
                fix="probe with larger --batch or --tokens, or use a fitted model as a prediction",
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
class SurfaceFit(Fit):
    """One model, fitted to one surface."""

    model: SurfaceModel


def fit_surface(points: Iterable[BatchPoint], experts: int = 0, used: int = 0) -> tuple[SurfaceFit, ...]:
    """All models that the points can judge, best first by AICc; empty where there are too few points.

    `experts` and `used` are those of a mixture of experts, whose points have unions for the model `experts`; without
    unions that model is left out. Raises `UsageError` for points of several depths.
    """
    measured = tuple(points)
    if len({point.depth for point in measured}) > 1:
        raise UsageError("the points have different depths", fix="fit each depth separately")
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
        found.append(SurfaceFit(dict(zip(names, best[1], strict=True)), residuals, model))
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
    knees = np.geomspace(1.0, float(tokens.max()), _SURFACE_KNEES)
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
                    union = expected_union(tokens, experts, used)
                    columns += [union, _growth(tokens * used / union, *shape)]
                yield shape, columns


def _growth(t: Floats, knee: float, s: float) -> Floats:
    """MoESD's G(t)."""
    steepness = math.log(s)
    return np.exp(steepness * np.minimum(t, knee)) * (1 + steepness * np.maximum(0.0, t - knee))
