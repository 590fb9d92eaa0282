"""How many experts a forward over n tokens reads: uniform routing, real routing that overlaps, and fits between them.

A mixture-of-experts layer has E experts (`experts`) and sends each token to K of them (`used`); rho = K / E. A forward
over n tokens reads the *union* U(n) of their choices, between K (all alike) and min(E, n K) (all different). It is what
verification of n = gamma + 1 tokens pays for, and what makes v(gamma) of a sparse model so much worse than that of a
dense one.

Uniform and independent routing gives the expectation N(n) = E (1 - (1 - rho)^n). Real routing does not: tokens that
follow each other in a text share experts, so measured unions lie far below. The overlap is therefore a *measured*
parameter here, in one of two forms:

    draws       U(n) = N(1 + a (n - 1)):  each further token acts as a fraction a of an independent one
    power       U(n) = min(E, K n^b):     b = 1 without any overlap of few tokens, 0 where all choose alike

Neither is derived from anything; both have one parameter, reproduce U(1) = K, and are fitted to measured unions by
`fit_union`, which returns the residuals beside the parameter. Numbers of several models that were measured by others
are in docs/explanation/theory.md.

Source of the uniform model: MoESD, arXiv 2505.19645, Eq. 8 (read in the paper). The two overlap models: computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import experts_and_used, numbers, plain, probabilities, same_length

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values

OverlapModel = Literal["draws", "power"]

_ROUNDING = 1e-3
"""Printed means are rounded: a union may miss its bounds by this share."""


@overload
def expected_union(tokens: float, experts: int, used: int) -> float: ...
@overload
def expected_union(tokens: Many, experts: int, used: int) -> Floats: ...
@overload
def expected_union(tokens: Values, experts: int, used: int) -> float | Floats: ...
def expected_union(tokens: Values, experts: int, used: int) -> float | Floats:
    """N(n) = E (1 - (1 - K/E)^n): distinct experts that n tokens touch in one layer, if routing were uniform.

    Each token takes K of E experts, all sets equally likely, independently of other tokens; then an expert is left out
    by all of them with probability (1 - K/E)^n. An upper estimate of real unions. `tokens` >= 0, any shape, need not be
    whole (see `effective_draws`). MoESD, arXiv 2505.19645, Eq. 8 (read in the paper).
    """
    n = np.asarray(numbers("tokens", tokens, least=0))
    total, k = experts_and_used(experts, used)
    if k == total:
        return plain(np.where(n > 0, float(total), 0.0))
    return plain(-total * np.expm1(n * math.log1p(-k / total)))


def saturation_tokens(experts: int, used: int, share: float = 0.95) -> float:
    """Tokens after which uniform routing has touched `share` of the experts: ln(1 - share) / ln(1 - K/E).

    Not rounded; `saturation_threshold` is. `share` in [0, 1); 0 tokens for share 0. Where every token uses all experts
    one token is enough. MoESD, arXiv 2505.19645 (read in the paper); its x is `share`.
    """
    total, k = experts_and_used(experts, used)
    x = probabilities("share", share)
    if x == 1:
        raise UsageError("share is 1: no number of tokens is expected to touch every expert", fix="use 0.95")
    if k == total:
        return math.ceil(x)
    return math.log1p(-x) / math.log1p(-k / total)


def saturation_threshold(experts: int, used: int, share: float = 0.95) -> int:
    """`saturation_tokens`, rounded up: from so many tokens on, further ones read hardly any new expert.

    Below it, which is where single-user speculation lives, each verified token brings experts of its own.
    """
    return math.ceil(saturation_tokens(experts, used, share))


@overload
def mean_load(tokens: float, experts: int, used: int) -> float: ...
@overload
def mean_load(tokens: Many, experts: int, used: int) -> Floats: ...
@overload
def mean_load(tokens: Values, experts: int, used: int) -> float | Floats: ...
def mean_load(tokens: Values, experts: int, used: int) -> float | Floats:
    """Tokens per expert that is touched at all: n K / N(n) = rho n / (1 - (1 - rho)^n).

    1 for one token, n where K = E; it never falls with n. It is the batch that an expert's matrices see, so it decides
    whether reading them pays. Uniform routing; MoESD, arXiv 2505.19645 (read in the paper). `tokens` >= 1, any shape.
    """
    n = np.asarray(numbers("tokens", tokens, least=1))
    return plain(n * used / np.asarray(expected_union(n, experts, used)))


# --- routing that overlaps -------------------------------------------------------------------------------------------


@overload
def effective_draws(union: float, experts: int, used: int) -> float: ...
@overload
def effective_draws(union: Many, experts: int, used: int) -> Floats: ...
@overload
def effective_draws(union: Values, experts: int, used: int) -> float | Floats: ...
def effective_draws(union: Values, experts: int, used: int) -> float | Floats:
    """D with N(D) = U: how many independent, uniformly routed tokens would touch as many experts.

    D = ln(1 - U/E) / ln(1 - K/E). 1 where all tokens choose alike, n where they choose independently; above n where
    they choose *more* differently than by chance. `union` from K up to, but not including, E; any shape. Computed.
    """
    total, k = experts_and_used(experts, used)
    u = np.asarray(numbers("union", union, least=k * (1 - _ROUNDING), most=total))
    if (u >= total).any():
        raise UsageError(
            f"union is {u.max():g}: all {total} experts, which no finite number of draws is expected to touch",
            fix="measure with fewer tokens, below saturation",
        )
    return plain(np.maximum(1.0, np.log1p(-u / total) / math.log1p(-k / total)))


@overload
def independent_share(tokens: float, union: float, experts: int, used: int) -> float: ...
@overload
def independent_share(tokens: Many, union: Many, experts: int, used: int) -> Floats: ...
def independent_share(tokens: Values, union: Values, experts: int, used: int) -> float | Floats:
    """a = (D - 1) / (n - 1): what part of an independent token each further token amounts to.

    0 where all choose alike, 1 under uniform independent routing. `tokens` > 1; shapes broadcast. Computed.
    """
    n = np.asarray(numbers("tokens", tokens, least=1))
    if (n <= 1).any():
        raise UsageError("tokens is 1: one token overlaps with nothing", fix="give unions of two tokens or more")
    return plain((np.asarray(effective_draws(union, experts, used)) - 1) / (n - 1))


@overload
def union_of_draws(tokens: float, experts: int, used: int, share: float) -> float: ...
@overload
def union_of_draws(tokens: Many, experts: int, used: int, share: float) -> Floats: ...
@overload
def union_of_draws(tokens: Values, experts: int, used: int, share: float) -> float | Floats: ...
def union_of_draws(tokens: Values, experts: int, used: int, share: float) -> float | Floats:
    """U(n) = N(1 + a (n - 1)) with a = `share` in [0, 1], from `independent_share` or `fit_union`. `tokens` >= 1."""
    n = np.asarray(numbers("tokens", tokens, least=1))
    return expected_union(plain(1 + probabilities("share", share) * (n - 1)), experts, used)


@overload
def union_of_power(tokens: float, experts: int, used: int, exponent: float) -> float: ...
@overload
def union_of_power(tokens: Many, experts: int, used: int, exponent: float) -> Floats: ...
@overload
def union_of_power(tokens: Values, experts: int, used: int, exponent: float) -> float | Floats: ...
def union_of_power(tokens: Values, experts: int, used: int, exponent: float) -> float | Floats:
    """U(n) = min(E, K n^b) with b = `exponent` in [0, 1]. `tokens` >= 1.

    Simple and close for few tokens; it does not bend as E comes near, so it overstates long drafts of small models.
    """
    n = np.asarray(numbers("tokens", tokens, least=1))
    total, k = experts_and_used(experts, used)
    return plain(np.minimum(total, k * n ** probabilities("exponent", exponent)))


def union_of_pair(used: int, jaccard: float) -> float:
    """Experts that two tokens touch whose choices have Jaccard index J = |both| / |either|: 2 K / (1 + J).

    From |both| + |either| = 2 K. J = 1: K; J = 0: 2 K; uniform routing has about rho / (2 - rho). `jaccard` in [0, 1].
    """
    k = numbers("used", used, least=1, whole=True)
    return 2 * k / (1 + probabilities("jaccard", jaccard))


# --- fits to measured unions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnionFit:
    """One overlap model, fitted to measured unions of one model."""

    model: OverlapModel
    parameter: float
    """a of `union_of_draws`, or b of `union_of_power`."""
    experts: int
    used: int
    tokens: tuple[float, ...]
    """n of the measured points."""
    residuals: tuple[float, ...]
    """(fitted - measured) / measured, point by point."""

    @property
    def rms(self) -> float:
        """Root mean square of the residuals."""
        return math.sqrt(math.fsum(value**2 for value in self.residuals) / len(self.residuals))

    @overload
    def union(self, tokens: float) -> float: ...
    @overload
    def union(self, tokens: Many) -> Floats: ...
    def union(self, tokens: Values) -> float | Floats:
        """U(n) of the fit. Beyond the largest measured n it is an extrapolation: see `covers`."""
        return _overlap(self.model)(tokens, self.experts, self.used, self.parameter)

    def covers(self, tokens: float) -> bool:
        """Whether n lies between 1, where every model is exact, and the largest measured point."""
        return 1 <= tokens <= max(self.tokens)


def fit_union(tokens: Many, unions: Many, experts: int, used: int, model: OverlapModel = "draws") -> UnionFit:
    """The overlap parameter that fits measured unions best, by least squares of ln U.

    Relative errors, so that long drafts do not outweigh the short ones that speculation uses. `tokens` >= 1 and
    `unions` are columns of one length with at least one n > 1; a union outside [K, min(E, n K)] is refused, because no
    routing can produce it. The parameter stays within [0, 1].
    """
    from scipy.optimize import minimize_scalar  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    n, u = same_length(tokens=tokens, unions=unions)
    total, k = experts_and_used(experts, used)
    numbers("tokens", n, least=1)
    _check_unions(n, u, total, k)
    if not (n > 1).any():
        raise UsageError("tokens: unions of one token say nothing about overlap", fix="measure unions of 2 or more")
    curve = _overlap(model)

    def loss(parameter: float) -> float:
        return float(np.square(np.log(u / np.asarray(curve(n, total, k, parameter)))).sum())

    found = cast("Any", minimize_scalar)(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9})
    best = min((0.0, 1.0, float(found.x)), key=loss)
    fitted = np.asarray(curve(n, total, k, best))
    residuals = tuple(float(value) for value in fitted / u - 1)
    return UnionFit(model, best, total, k, tuple(float(value) for value in n), residuals)


def _overlap(model: OverlapModel) -> Callable[[Values, int, int, float], float | Floats]:
    curves: dict[str, Callable[[Values, int, int, float], float | Floats]] = {
        "draws": union_of_draws,
        "power": union_of_power,
    }
    if model not in curves:
        raise UsageError(f"model is {model!r}", fix="use 'draws' or 'power'")
    return curves[model]


def _check_unions(n: Floats, u: Floats, experts: int, used: int) -> None:
    low, high = used * (1 - _ROUNDING), np.minimum(experts, n * used) * (1 + _ROUNDING)
    bad = ~((u >= low) & (u <= high))
    if bad.any():
        place = int(np.argmax(bad))
        raise UsageError(
            f"unions[{place}] is {u[place]:g} for {n[place]:g} tokens: {used} to {min(experts, n[place] * used):g} "
            f"experts are possible with {used} of {experts} per token",
            fix="give distinct experts per layer, averaged over layers, not the sum over layers",
        )
