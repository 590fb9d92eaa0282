"""Models of a measured cost surface T(b, n), fitted with residuals; with N = b n tokens in all.

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

Errors are relative and models are compared by AICc, as in `theory.fitting`, which see.

Sources: MoESD, arXiv 2505.19645 (its form of T; read in the paper); the others: computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.experts import expected_union, mean_load
from specmeter.theory.fitting import aicc, least_squares

if TYPE_CHECKING:
    from specmeter.record import BatchPoint
    from specmeter.theory.arguments import Floats

SurfaceModel = Literal["affine", "roofline", "experts", "moesd"]
_KNEES = 40
_STEEPNESS = 10.0 ** np.linspace(-4, -0.3, 24)
"""ln s of MoESD's G that are tried."""


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
