"""How long a forward over n tokens takes, from what it reads and computes: the roofline, and what sticks out of it.

    T(n) = overhead + batch [n > 1] + row n + max(bytes(n) / bandwidth, flops(n) / peak)

    bytes(n) = always + U(n) expert + n lookup + context kv + state

`always` is what every forward reads (attention, shared experts, output matrix), `expert` one expert in every layer,
U(n) the distinct experts per layer (`theory.experts`), `lookup` the embedding rows, `kv` the cache of one position,
`state` the recurrent state. While bytes decide, the ratio v = T(n) / T(1) of a mixture of experts is, in terms of the
routed share f of the bytes of one token alone,

    v = (1 - f) + f U(n) / K

1 for a dense model (f = 0), and the whole price of verification for a sparse one.

The terms outside the maximum are what real machines add. `overhead` is time per forward that no reading explains
(launches, synchronisation, sampling); it *helps* speculation, since a step pays it once for several tokens. `batch` is
what changes when there is more than one row at all: other kernels, matrix-matrix in place of matrix-vector. Two-token
verification on launch-bound hardware was seen to cost 1.74 to 2.6 times one token, whatever the experts (second hand);
no count of bytes predicts that. `row` is time per further row, beyond arithmetic.

Bandwidth is what the machine reaches with this engine, fitted or measured: with a datasheet's peak the formula bounds
and does not predict.

Sources: Williams, Waterman & Patterson 2009, doi:10.1145/1498765.1498785 (the roofline model); target efficiency:
MoESD, arXiv 2505.19645 (read in the paper). The decomposition into f and U: computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, overload

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import experts_and_used, numbers, plain, positive, positives, probabilities
from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values


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

    @property
    def routed_share(self) -> float:
        """f: the part of `bytes_per_token` that is routed experts. 0 for dense models."""
        return self.used * self.expert_bytes / self.bytes_per_token


@dataclass(frozen=True)
class MachineRates:
    """How fast a machine is with an engine."""

    bandwidth_bytes_per_s: float
    """What it reaches, not what the datasheet says."""
    flops_per_s: float | None = None
    """Peak of the arithmetic that the engine uses; None: never the limit."""
    overhead_ms: float = 0.0
    """Per forward."""
    batch_ms: float = 0.0
    """Per forward of more than one token."""
    row_ms: float = 0.0
    """Per token of a forward."""

    def __post_init__(self) -> None:
        positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        if self.flops_per_s is not None:
            positive("flops_per_s", self.flops_per_s)
        for name in ("overhead_ms", "batch_ms", "row_ms"):
            numbers(name, getattr(self, name), least=0)


@overload
def forward_bytes(model: Footprint, tokens: float, *, union: float | None = None, context: float = 0) -> float: ...
@overload
def forward_bytes(model: Footprint, tokens: Many, *, union: Many | None = None, context: float = 0) -> Floats: ...
@overload
def forward_bytes(
    model: Footprint, tokens: Values, *, union: Values | None = None, context: float = 0
) -> float | Floats: ...
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
        raise UsageError("union: this model is dense", fix="leave `union` out")
    return plain(size)


@overload
def forward_ms(
    model: Footprint, machine: MachineRates, tokens: float, *, union: float | None = None, context: float = 0
) -> float: ...
@overload
def forward_ms(
    model: Footprint, machine: MachineRates, tokens: Many, *, union: Many | None = None, context: float = 0
) -> Floats: ...
@overload
def forward_ms(
    model: Footprint, machine: MachineRates, tokens: Values, *, union: Values | None = None, context: float = 0
) -> float | Floats: ...
def forward_ms(
    model: Footprint, machine: MachineRates, tokens: Values, *, union: Values | None = None, context: float = 0
) -> float | Floats:
    """T(n) in ms, as in the head of this module. Arguments as for `forward_bytes`."""
    n = np.asarray(numbers("tokens", tokens, least=1))
    seconds = np.asarray(forward_bytes(model, n, union=union, context=context)) / machine.bandwidth_bytes_per_s
    if machine.flops_per_s is not None:
        seconds = np.maximum(seconds, n * model.flops_per_token / machine.flops_per_s)
    return plain(machine.overhead_ms + machine.batch_ms * (n > 1) + machine.row_ms * n + 1000 * seconds)


@overload
def verification(
    model: Footprint, machine: MachineRates, gamma: float, *, union: float | None = None, context: float = 0
) -> float: ...
@overload
def verification(
    model: Footprint, machine: MachineRates, gamma: Many, *, union: Many | None = None, context: float = 0
) -> Floats: ...
def verification(
    model: Footprint, machine: MachineRates, gamma: Values, *, union: Values | None = None, context: float = 0
) -> float | Floats:
    """v(gamma) = T(gamma + 1) / T(1), at least 1. `gamma` >= 0; `union` are those of gamma + 1 tokens."""
    n = np.asarray(numbers("gamma", gamma, least=0)) + 1
    one = forward_ms(model, machine, 1.0, context=context)
    return plain(np.asarray(forward_ms(model, machine, n, union=union, context=context)) / one)


@overload
def routed_verification(union: float, used: int, routed_share: float) -> float: ...
@overload
def routed_verification(union: Many, used: int, routed_share: float) -> Floats: ...
def routed_verification(union: Values, used: int, routed_share: float) -> float | Floats:
    """v = (1 - f) + f U / K: the price of verification where only bytes of weights count.

    `union` >= K distinct experts per layer (any shape), `used` = K >= 1, `routed_share` = f in [0, 1]. Computed.
    """
    k = numbers("used", used, least=1, whole=True)
    u, f = np.asarray(numbers("union", union, least=k)), probabilities("routed_share", routed_share)
    return plain((1 - f) + f * u / k)


@overload
def target_efficiency(verification: float) -> float: ...
@overload
def target_efficiency(verification: Many) -> Floats: ...
def target_efficiency(verification: Values) -> float | Floats:
    """T(1) / T(gamma) = 1 / v: how much of the ideal, verification at the price of one token, a system keeps.

    Defined by MoESD, arXiv 2505.19645 (read in the paper), where gamma stands for the tokens that are verified. 1 is
    ideal; `verification` > 0, any shape.
    """
    return plain(1 / positives("verification", verification))


@overload
def memory_bound_rate(bytes_per_forward: float, bandwidth_bytes_per_s: float, tau: float = 1.0) -> float: ...
@overload
def memory_bound_rate(bytes_per_forward: Many, bandwidth_bytes_per_s: float, tau: Values = 1.0) -> Floats: ...
def memory_bound_rate(bytes_per_forward: Values, bandwidth_bytes_per_s: float, tau: Values = 1.0) -> float | Floats:
    """Ceiling in tokens per second of one sequence: tau bandwidth / bytes per forward.

    With the peak bandwidth of the device that holds the weights it cannot be exceeded, unless weights stay in caches
    (`theory.bounds.traffic` is the same, solved for the bandwidth). `tau` >= 1 tokens per forward; with tau > 1 give
    the bytes of a forward over gamma + 1 tokens. Bytes > 0; shapes broadcast.
    """
    t = np.asarray(numbers("tau", tau, least=1))
    bandwidth = positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return plain(t * bandwidth / positives("bytes_per_forward", bytes_per_forward))


def ridge_point(flops_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Operations per byte at which arithmetic begins to limit: peak / bandwidth.

    A weight of b bytes that is read for n tokens does 2 n operations, so with 16-bit weights the ridge lies at about
    as many tokens; with 4-bit ones at a quarter of it, as far as arithmetic stays 16-bit.
    """
    return positive("flops_per_s", flops_per_s) / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)


def _union(model: Footprint, n: Floats, union: Values | None) -> Floats:
    if union is None:
        return np.asarray(expected_union(n, model.experts, model.used))
    return np.asarray(numbers("union", union, least=model.used, most=model.experts))
