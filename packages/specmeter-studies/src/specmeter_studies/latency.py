"""What a network adds to a token drafted on another machine, and how much of it a draft can bear.

    overhead = a + k RTT + B / R            ms per drafted token, beyond what the draft itself computes

    a    fixed_ms   what packing, sending, unpacking and two processors' waking take at no distance, ms
    k    trips      round trips that drafting waits for, per drafted token
    B    bytes_     bytes that drafting waits for, per drafted token, both directions
    RTT             round-trip time of the network, ms
    R               its bandwidth in each direction, Mbit/s

By llama.cpp's RPC a forward of the draft is one graph sent and one output waited for: k is the number of forwards
with an output per drafted token. In a step of d drafted tokens the draft runs d times, and once more to catch up with
what the target chose, so k = (d + 1) / d. An output is a number of 4 bytes for each token of the vocabulary, behind a
length of 8 bytes, whatever is sampled from it. Both are the least: graphs go out too, and a draft with a recurrent
state moves that.

With these a step's time, in plain tokens of t1 ms, and the speedup are

    cost = v + d (c + overhead) / t1         S = tau / cost

where v is the target's forward over d + 1 tokens and all else that a step takes, c the draft's own ms per token there.
A draft bears at most the overhead at which S = 1, and gains over the same draft here while the overhead is less than
what it computes faster there; solved for RTT, that is a break-even distance.

Assumes that nothing overlaps (drafting waits for each output, the target for the draft) and that a message is a burst:
for an output of many packets TCP's window may add round trips, which k does not know.

Sources: ggml/src/ggml-rpc of llama.cpp (read: commands and lengths); the speedup as in `theory.cost`; the rest:
computed here. How well it fits is measured by `specmeter study run cross-device --variant relay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.arguments import numbers, positive, same_length

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats

NUMBER_BYTES, LENGTH_BYTES = 4, 8
"""Of an output: a number per token of the vocabulary; before each answer of the protocol, its length."""


def forwards_per_token(drafted: float) -> float:
    """Forwards of the draft with an output, per drafted token, in steps of `drafted` > 0 tokens: (d + 1) / d."""
    d = positive("drafted", drafted)
    return (d + 1) / d


def output_bytes(vocabulary: float) -> float:
    """Bytes of one output of the draft."""
    return NUMBER_BYTES * numbers("vocabulary", vocabulary, least=1, whole=True) + LENGTH_BYTES


def transfer_ms(size: float, mbit_per_s: float | None) -> float:
    """ms that `size` bytes take at a bandwidth; 0 where it is unlimited (None)."""
    if mbit_per_s is None:
        return 0.0
    return numbers("bytes", size, least=0) * 8e-3 / positive("mbit_per_s", mbit_per_s)


@dataclass(frozen=True)
class LatencyModel:
    """a, k and B of the formula above."""

    fixed_ms: float
    trips: float
    bytes_: float

    def overhead_ms(self, rtt_ms: float, mbit_per_s: float | None) -> float:
        """ms per drafted token that a network adds; `mbit_per_s` None: unlimited."""
        rtt = numbers("rtt_ms", rtt_ms, least=0)
        return self.fixed_ms + self.trips * rtt + transfer_ms(max(0.0, self.bytes_), mbit_per_s)


def least_model(drafted: float, vocabulary: float) -> LatencyModel:
    """What no measurement is needed for: round trips and outputs alone, in steps of `drafted` tokens."""
    trips = forwards_per_token(drafted)
    return LatencyModel(0.0, trips, trips * output_bytes(vocabulary))


def fit_latency(
    rtt_ms: Sequence[float],
    mbit_per_s: Sequence[float | None],
    overhead_ms: Sequence[float],
    *,
    bytes_: float | None = None,
) -> LatencyModel:
    """a, k and B by least squares from one measured overhead per network; with `bytes_`, B is that and not fitted.

    Raises `UsageError` where the networks cannot tell the parameters apart.
    """
    rtt, ms = same_length(rtt_ms=rtt_ms, overhead_ms=overhead_ms)
    slowness = np.asarray([0.0 if rate is None else 8e-3 / positive("mbit_per_s", rate) for rate in mbit_per_s])
    if len(slowness) != len(rtt):
        raise UsageError(
            f"{len(slowness)} bandwidths for {len(rtt)} networks", fix="give one bandwidth for each network, or None"
        )
    columns: list[Floats] = [np.ones_like(rtt), rtt]
    if bytes_ is None:
        columns.append(slowness)
    else:
        ms = ms - numbers("bytes", bytes_, least=0) * slowness
    design = np.stack(columns, axis=-1)
    scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
    if np.linalg.matrix_rank(design / scale) < len(columns):
        raise UsageError(
            f"{len(rtt)} networks with {len(set(rtt.tolist()))} round-trip times and {len(set(slowness.tolist()))} "
            f"bandwidths cannot determine {len(columns)} parameters",
            fix="measure at least two round-trip times, and two bandwidths or the number of bytes",
        )
    solved: Floats = np.asarray(np.linalg.lstsq(design / scale, ms, rcond=None)[0], dtype=np.float64)
    fixed, trips, *size = (float(value) for value in solved / scale)
    return LatencyModel(fixed, trips, size[0] if bytes_ is None else bytes_)


@dataclass(frozen=True)
class DraftStep:
    """A step of speculation without its network."""

    plain_ms: float
    """t1: a token of decoding without speculation."""
    tau: float
    """Tokens that a step emits."""
    drafted: float
    """d: tokens that it drafts."""
    rest: float
    """v: the target's forward and whatever else, in plain tokens."""
    there_ms: float
    """The draft's own time per token on the other machine."""
    here_ms: float | None = None
    """The same on this machine; None where it is not known."""

    def speedup(self, overhead_ms: float) -> float:
        """Over decoding without speculation, drafting there."""
        return self.tau / max(self.rest + self.drafted * (self.there_ms + overhead_ms) / self.plain_ms, 1e-12)

    @property
    def speedup_here(self) -> float | None:
        """Over decoding without speculation, drafting on this machine."""
        if self.here_ms is None:
            return None
        return self.tau / (self.rest + self.drafted * self.here_ms / self.plain_ms)

    @property
    def bearable_ms(self) -> float:
        """The overhead per drafted token at which drafting there is as fast as decoding without speculation; below 0:
        at none."""
        return (self.tau - self.rest) * self.plain_ms / self.drafted - self.there_ms

    @property
    def saved_ms(self) -> float | None:
        """What a drafted token computes faster there: the overhead at which drafting there and here are equal."""
        return None if self.here_ms is None else self.here_ms - self.there_ms
