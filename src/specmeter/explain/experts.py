"""What a mixture of experts can add to a verification, at most.

Tokens that choose different experts make a forward read more of them: `x` times more than one token does. Nothing but
the experts grows by that, so a forward takes at most

    1 + f x    forwards over one token,    f: the experts' share of the bytes that one token reads

which is 1 + x where everything is experts. Whatever a verification takes beyond that has another reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.prediction.costs import footprint_of
from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from specmeter.probe import Probe
    from specmeter.record import ModelHeader, ModelIdentity


@dataclass(frozen=True)
class Experts:
    """The experts of a target."""

    total: int
    """In each layer."""
    used: int
    """By one token."""
    share: float = 1.0
    """Of the bytes that one token reads; 1 where it is not known, which explains the most."""
    unions: tuple[tuple[int, float], ...] = ()
    """Tokens of a forward -> different experts in a layer, as measured, by tokens; empty where routing was not."""

    def more(self, tokens: float) -> tuple[float, bool]:
        """(how many more experts a forward over `tokens` reads, as a share of those of one; whether it was measured).

        Unmeasured it is what independent routing would read, which real texts do not reach.
        """
        if self.unions and 1 <= tokens <= self.unions[-1][0]:
            known = {1: float(self.used), **dict(self.unions)}
            places = sorted(known)
            union = float(np.interp(tokens, places, [known[n] for n in places]))
            return max(0.0, union / self.used - 1), True
        return float(expected_union(tokens, self.total, self.used)) / self.used - 1, False

    def most(self, tokens: float) -> float:
        """Most that reading them lets a forward over `tokens` take, in forwards over one token."""
        return 1 + self.share * self.more(tokens)[0]


def experts_of(
    header: ModelHeader | None,
    model: ModelIdentity | None = None,
    probe: Probe | None = None,
    unions: Mapping[int, float] | None = None,
) -> Experts | None:
    """What is known of a target's experts; None for a dense one. The run's own routing (`unions`) comes before a
    probe's, which is that of another text."""
    known = dict(unions or {})
    if not known and probe is not None and probe.union is not None:
        known = {point.tokens: point.union.point for point in probe.union.points}
    if header is None or not header.experts > header.experts_used > 0:
        if probe is None or probe.union is None or not known:
            return None
        return Experts(probe.union.experts, probe.union.used, unions=tuple(sorted(known.items())))
    share = 1.0
    if model is not None and header.bytes_per_token > 0:
        footprint = footprint_of(model, header)
        read = footprint.expert_bytes * footprint.used
        share = read / (read + footprint.always_bytes) if read > 0 else 1.0
    return Experts(header.experts, header.experts_used, share, tuple(sorted(known.items())))
