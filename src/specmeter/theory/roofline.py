"""What a forward over n tokens reads, and how many experts.

    bytes(n) = always + U(n) expert + n lookup + context kv + state

`always` is what every forward reads (attention, shared experts, output matrix), `expert` one expert in every layer,
U(n) the distinct experts per layer, `lookup` the embedding rows, `kv` the cache of one position, `state` the recurrent
state. How bytes become time is in `analysis.prediction.costs`.

*Experts.* A layer has E experts (`experts`) and sends each token to K of them (`used`); rho = K / E. A forward over n
tokens reads the *union* U(n) of their choices. Uniform and independent routing gives the expectation N(n) = E (1 - (1 -
rho)^n); measured unions are far below (docs/explanation/prediction.md). The overlap is a parameter in one of two forms:

    draws       U(n) = N(1 + a (n - 1)):  each further token acts as a fraction a of an independent one
    power       U(n) = min(E, K n^b):     b = 1 without any overlap of few tokens, 0 if all choose alike

Both have U(1) = K. `fit_union` fits them to measured unions, with residuals.

Sources: Williams, Waterman & Patterson 2009, doi:10.1145/1498765.1498785; MoESD, arXiv 2505.19645 (Eq. 8, the uniform
model; read in the paper). The two overlap models: computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.special import lowest
from specmeter.theory.arguments import experts_and_used, numbers, plain, positive, probabilities, same_length

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values


OverlapModel = Literal["draws", "power"]

_ROUNDING = 1e-3
"""Printed means are rounded: a union may miss its bounds by this share."""


@overload
def expected_union(tokens: float, experts: int, used: int) -> float: ...
@overload
def expected_union(tokens: Many, experts: int, used: int) -> Floats: ...
def expected_union(tokens: Values, experts: int, used: int) -> float | Floats:
    """N(n) = E (1 - (1 - K/E)^n): distinct experts that n tokens touch in one layer, if routing were uniform.

    Each token takes K of E experts, all sets equally likely, independently of other tokens; then an expert is left out
    by all of them with probability (1 - K/E)^n. An upper estimate of real unions. `tokens` >= 0, any shape, need not be
    whole. MoESD, arXiv 2505.19645, Eq. 8 (read in the paper).
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
        raise UsageError(
            "share is 1: no finite number of tokens is expected to touch every expert",
            fix="use a share below 1, such as 0.95",
        )
    if k == total:
        return math.ceil(x)
    return math.log1p(-x) / math.log1p(-k / total)


def saturation_threshold(experts: int, used: int, share: float = 0.95) -> int:
    """`saturation_tokens`, rounded up: from this many tokens on, further ones read hardly any new expert.

    Below it, which is where single-user speculation lives, each verified token brings experts of its own.
    """
    return math.ceil(saturation_tokens(experts, used, share))


# --- routing that overlaps -------------------------------------------------------------------------------------------


def union_of_draws(tokens: Values, experts: int, used: int, share: float) -> float | Floats:
    """U(n) = N(1 + a (n - 1)) with a = `share` in [0, 1], from `fit_union`. `tokens` >= 1."""
    n = np.asarray(numbers("tokens", tokens, least=1))
    return expected_union(plain(1 + probabilities("share", share) * (n - 1)), experts, used)


def union_of_power(tokens: Values, experts: int, used: int, exponent: float) -> float | Floats:
    """U(n) = min(E, K n^b) with b = `exponent` in [0, 1]. `tokens` >= 1.

    Simple and close for few tokens; it does not bend as E comes near, so it overstates long drafts of small models.
    """
    n = np.asarray(numbers("tokens", tokens, least=1))
    total, k = experts_and_used(experts, used)
    return plain(np.minimum(total, k * n ** probabilities("exponent", exponent)))


# --- fits to measured unions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnionFit:
    """One overlap model, fitted to measured unions of one model."""

    model: OverlapModel
    parameter: float
    """a of `union_of_draws`, or b of `union_of_power`."""
    experts: int
    used: int
    residuals: tuple[float, ...]
    """(fitted - measured) / measured, point by point."""

    @property
    def rms(self) -> float:
        """Root mean square of the residuals."""
        return math.sqrt(math.fsum(value**2 for value in self.residuals) / len(self.residuals))

    def union(self, tokens: Values) -> float | Floats:
        """U(n) of the fit. Beyond the largest measured n it is an extrapolation."""
        return _overlap(self.model)(tokens, self.experts, self.used, self.parameter)


def fit_union(tokens: Many, unions: Many, experts: int, used: int, model: OverlapModel = "draws") -> UnionFit:
    """The overlap parameter that fits measured unions best, by least squares of ln U.

    Relative errors, so that long drafts do not outweigh the short ones that speculation uses. `tokens` >= 1 and
    `unions` are columns of one length with at least one n > 1; a union outside [K, min(E, n K)] is refused, because no
    routing can produce it. The parameter stays within [0, 1].
    """
    n, u = same_length(tokens=tokens, unions=unions)
    total, k = experts_and_used(experts, used)
    numbers("tokens", n, least=1)
    _check_unions(n, u, total, k)
    if not (n > 1).any():
        raise UsageError("tokens: a union over one token has no overlap", fix="measure unions over 2 or more tokens")
    curve = _overlap(model)

    def loss(parameter: float) -> float:
        return float(np.square(np.log(u / np.asarray(curve(n, total, k, parameter)))).sum())

    best = min((0.0, 1.0, lowest(loss, 0.0, 1.0)[0]), key=loss)
    fitted = np.asarray(curve(n, total, k, best))
    residuals = tuple(float(value) for value in fitted / u - 1)
    return UnionFit(model, best, total, k, residuals)


def _overlap(model: OverlapModel) -> Callable[[Values, int, int, float], float | Floats]:
    curves: dict[str, Callable[[Values, int, int, float], float | Floats]] = {
        "draws": union_of_draws,
        "power": union_of_power,
    }
    if model not in curves:
        raise UsageError(f"no such model: {model!r}", fix="use 'draws' or 'power'")
    return curves[model]


def _check_unions(n: Floats, u: Floats, experts: int, used: int) -> None:
    low, high = used * (1 - _ROUNDING), np.minimum(experts, n * used) * (1 + _ROUNDING)
    bad = ~((u >= low) & (u <= high))
    if bad.any():
        place = int(np.argmax(bad))
        raise UsageError(
            f"unions[{place}] is {u[place]:g} for {n[place]:g} tokens: {used} to {min(experts, n[place] * used):g} "
            f"experts are possible with {used} of {experts} per token",
            fix="give distinct experts per layer, averaged over layers, not summed over layers",
        )


@dataclass(frozen=True)
class Footprint:
    """What forwards of a model read and compute. Bytes are those of all layers together."""

    always_bytes: float
    """Read by every forward."""
    expert_bytes: float = 0.0
    """One expert in every mixture-of-experts layer; 0 for dense models."""
    experts: int = 0
    """E; 0 for dense models."""
    used: int = 0
    """K."""
    lookup_bytes: float = 0.0
    """Rows of embedding tables, for one token."""
    kv_bytes_per_position: float = 0.0
    """KV cache of one position of the context."""
    state_bytes: float = 0.0
    """Recurrent state that a forward reads and writes, whatever the context."""
    flops_per_token: float = 0.0
    """Floating-point operations for one token, about twice its active parameters."""

    def __post_init__(self) -> None:
        for field in fields(self):
            numbers(field.name, getattr(self, field.name), least=0)
        positive("always_bytes", self.always_bytes)
        if self.experts or self.used or self.expert_bytes:
            experts_and_used(self.experts, self.used)

    @property
    def bytes_per_token(self) -> float:
        """Weights read by a forward of one token."""
        return self.always_bytes + self.lookup_bytes + self.used * self.expert_bytes


@overload
def forward_bytes(model: Footprint, tokens: float, *, union: float | None = None, context: float = 0) -> float: ...
@overload
def forward_bytes(model: Footprint, tokens: Many, *, union: Many | None = None, context: float = 0) -> Floats: ...
def forward_bytes(
    model: Footprint, tokens: Values, *, union: Values | None = None, context: float = 0
) -> float | Floats:
    """bytes(n) of one forward over `tokens` >= 1 tokens (any shape) of one sequence.

    `union` are distinct experts per layer for each n, from K to E; None takes uniform routing, which overstates them.
    `context` are positions in the KV cache, which is read once per forward.
    """
    n = np.asarray(numbers("tokens", tokens, least=1))
    size = model.always_bytes + n * model.lookup_bytes + model.state_bytes
    size = size + numbers("context", context, least=0) * model.kv_bytes_per_position
    if model.experts:
        size = size + model.expert_bytes * _union(model, n, union)
    elif union is not None:
        raise UsageError("union: this model is dense and has no experts", fix="leave `union` out")
    return plain(size)


def _union(model: Footprint, n: Floats, union: Values | None) -> Floats:
    if union is None:
        return np.asarray(expected_union(n, model.experts, model.used))
    return np.asarray(numbers("union", union, least=model.used, most=model.experts))
