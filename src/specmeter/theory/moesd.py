"""MoESD's model of the time of a target forward, and its fit to measured points.

    T(t) = bias + k1 G(t) + k2 N(t) + k3 G(load)

    t       tokens in the forward (batch x (gamma + 1))
    N(t)    experts touched, `theory.experts.expected_union`; k2 is the time to read one expert of every layer
    load    tokens per touched expert, `theory.experts.mean_load`; k3 G(load) is the arithmetic of the experts
    k1 G    attention, shared experts and output: everything that is dense
    bias    what no token changes
    G       how the time of a dense matrix product grows with its rows, a smooth roofline:

            G(t; x, s) = s^t                       for t <= x      nearly flat: memory decides
                       = s^x (1 + ln s (t - x))    beyond          a straight line: arithmetic decides

            s slightly above 1; the two pieces meet with equal value and slope at x = lambda x ridge point

Six parameters: bias, k1, k2, k3 >= 0, lambda and s within bounds, fitted by bounded least squares. The paper fits 21
points and predicts the rest of its grid of 228. The parameters are not all identified by one curve: bias and k1 trade
against each other where s is near 1, and so do k1 and k3 when K/E never varies. Trust the fit's predictions within the
range of its points more than any single parameter.

Source: MoESD, arXiv 2505.19645 (read in the paper). The way of fitting, a search over (lambda, s) with linear least
squares inside, then all six together, is ours.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import numbers, plain, positive, positives, same_length

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values

_STEEPEST = 30.0
"""ln G at its knee may reach this: a forward that takes e^30 times as long is no forward."""
_STARTS = 3
"""Best cells of the coarse search that are refined."""
_PARAMETERS = 6


@overload
def growth(tokens: float, knee: float, base: float) -> float: ...
@overload
def growth(tokens: Many, knee: float, base: float) -> Floats: ...
@overload
def growth(tokens: Values, knee: float, base: float) -> float | Floats: ...
def growth(tokens: Values, knee: float, base: float) -> float | Floats:
    """G(t; x, s): exponential up to the knee x, its tangent beyond it.

    `tokens` >= 0, any shape; `knee` > 0 in tokens; `base` >= 1.
    """
    t = np.asarray(numbers("tokens", tokens, least=0))
    numbers("base", base, least=1)
    if math.log(base) * min(positive("knee", knee), float(t.max(initial=0))) > _STEEPEST:
        raise UsageError(
            f"base {base:g} with a knee at {knee:g} tokens grows without any bound that a machine has",
            fix="use a base slightly above 1: s^x is how much slower the knee is than one token",
        )
    return plain(_growth(t, knee, math.log(base)))


@dataclass(frozen=True)
class MoesdModel:
    """Parameters of T(t), times in ms."""

    bias: float
    k1: float
    k2: float
    k3: float
    knee_scale: float
    """lambda."""
    base: float
    """s."""
    ridge_point: float
    """Tokens at which the machine's arithmetic would begin to limit: `theory.roofline.ridge_point`, per weight."""

    def forward_ms(self, tokens: Many, experts: Many | float, used: Many | float) -> Floats:
        """T(t) for every point; `experts` (E) and `used` (K) are one number each, or a column like `tokens`."""
        columns = _Columns.of(tokens, experts, used)
        return _predict(columns, np.array(astuple(self)[:_PARAMETERS]), self.ridge_point)


@dataclass(frozen=True)
class MoesdFit:
    """A fitted model and how well it reproduces its points."""

    model: MoesdModel
    residuals_ms: tuple[float, ...]
    """Fitted minus measured, point by point."""

    @property
    def rms_ms(self) -> float:
        """Root mean square of the residuals."""
        return math.sqrt(math.fsum(value**2 for value in self.residuals_ms) / len(self.residuals_ms))


def fit_moesd(
    tokens: Many,
    ms: Many,
    experts: Many | float,
    used: Many | float,
    ridge_point: float,
    *,
    knee_scale: tuple[float, float] = (0.05, 4.0),
    largest_base: float = 2.0,
) -> MoesdFit:
    """Fit the six parameters to measured times.

    `tokens` >= 1 and `ms` > 0 are columns of at least six points; `experts` and `used` one number each or columns, so
    that points of several sparsities are fitted together (which is what tells k1 from k3). `ridge_point` > 0 in tokens
    sets the scale of lambda, which stays within `knee_scale`; s stays between 1 and `largest_base`. Errors are squared
    in ms, as in the paper, so long forwards weigh most. Raises `UsageError` for fewer points than parameters.
    """
    from scipy.optimize import least_squares  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    columns = _Columns.of(tokens, experts, used)
    _, times = same_length(tokens=columns.tokens, ms=ms)
    positives("ms", times)
    if len(times) < _PARAMETERS:
        raise UsageError(
            f"{len(times)} points cannot determine {_PARAMETERS} parameters",
            fix="measure at least 6 batch sizes; the authors of the model used 21 points",
        )
    ridge = positive("ridge_point", ridge_point)
    low, high = (positive("knee_scale", bound) for bound in knee_scale)
    if low >= high:
        raise UsageError(f"knee_scale is {knee_scale}: its ends are out of order", fix="give (smallest, largest)")
    steepest = _STEEPEST / max(1.0, min(high * ridge, float(columns.tokens.max())))
    log_high = min(math.log(max(positive("largest_base", largest_base), 1 + 1e-9)), steepest)

    # Times near 1 keep the tolerances of the solver meaningful, whatever the unit.
    scale = float(times.mean())
    starts = _search(columns, times / scale, ridge, (low, high), log_high)
    bottom, top = np.array([0, 0, 0, 0, low, 1.0]), np.array([*[np.inf] * 4, high, math.exp(log_high)])

    def miss(parameters: Floats) -> Floats:
        return _predict(columns, parameters, ridge) - times / scale

    fits = [
        cast("Any", least_squares)(miss, np.clip(start, bottom, top), bounds=(bottom, top), x_scale="jac", max_nfev=60)
        for start in starts
    ]
    best = np.array(min(fits, key=lambda fit: float(fit.cost)).x, dtype=np.float64)
    residuals = scale * miss(best)
    linear = (float(value) * scale for value in best[:4])
    model = MoesdModel(*linear, knee_scale=float(best[4]), base=float(best[5]), ridge_point=ridge)
    return MoesdFit(model, tuple(float(value) for value in residuals))


@dataclass(frozen=True)
class _Columns:
    """Points as columns, with what depends on the routing alone."""

    tokens: Floats
    union: Floats
    load: Floats

    @staticmethod
    def of(tokens: Many, experts: Many | float, used: Many | float) -> _Columns:
        (t,) = same_length(tokens=tokens)
        numbers("tokens", t, least=1)
        total = np.asarray(numbers("experts", experts, least=1, whole=True))
        k = np.asarray(numbers("used", used, least=1, whole=True))
        try:
            total, k = np.broadcast_to(total, t.shape), np.broadcast_to(k, t.shape)
        except ValueError:
            raise UsageError(
                f"experts and used do not fit {len(t)} points", fix="give one number each, or one for every point"
            ) from None
        if (k > total).any():
            place = int(np.argmax(k > total))
            raise UsageError(
                f"used is {k[place]:g}, but there are only {total[place]:g} experts",
                fix="give K, the experts that one token uses, as `used`, and E, all experts of a layer, as `experts`",
            )
        with np.errstate(divide="ignore"):
            union = -total * np.expm1(t * np.log1p(-k / total))
        return _Columns(t, union, t * k / union)


def _growth(tokens: Floats, knee: float, log_base: float) -> Floats:
    return np.exp(log_base * np.minimum(tokens, knee)) * (1 + log_base * np.maximum(0.0, tokens - knee))


def _design(columns: _Columns, knee: float, log_base: float) -> Floats:
    """The four columns that T is linear in: 1, G(t), N(t), G(load)."""
    dense, routed = _growth(columns.tokens, knee, log_base), _growth(columns.load, knee, log_base)
    return np.stack([np.ones_like(dense), dense, columns.union, routed], axis=1)


def _predict(columns: _Columns, parameters: Floats, ridge: float) -> Floats:
    return _design(columns, float(parameters[4]) * ridge, math.log(parameters[5])) @ parameters[:4]


def _search(
    columns: _Columns, times: Floats, ridge: float, scales: tuple[float, float], log_high: float
) -> list[Floats]:
    """Starting points: over a grid of (lambda, s), the best non-negative linear parameters; the best cells first."""
    from scipy.optimize import nnls  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    cells: list[tuple[float, Floats]] = []
    for knee_scale in np.geomspace(*scales, 12):
        for log_base in np.geomspace(log_high * 1e-4, log_high, 12):
            design = _design(columns, float(knee_scale) * ridge, float(log_base))
            # Columns of one size: G may span orders of magnitude.
            size = design.max(axis=0)
            linear, error = cast("Any", nnls)(design / size, times)
            cells.append((float(error), np.array([*(linear / size), knee_scale, math.exp(log_base)])))
    cells.sort(key=lambda cell: cell[0])
    return [start for _, start in cells[:_STARTS]]
