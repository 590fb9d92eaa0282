"""What the experts of an MoE model can add to a verification, at most.

Tokens that choose different experts make a forward read more of them: `x` times more than one token does. So a forward
takes at most

    1 + f x    forwards over one token,    f: the experts' share of the bytes that one token reads

How many experts a forward reads is known, in this order, from the steps themselves (`engine.record_experts`), from the
run's texts (`specmeter.laboratory.routing`), from a probe, or else from uniform routing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.analysis.prediction.costs import footprint_of
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from specmeter.probe.record import Probe
    from specmeter.record import ExpertUnion, ModelHeader, ModelIdentity, TextRouting


ExpertSource = Literal["steps", "texts", "probe"]
"""Where the experts of forwards were counted: in the run's own steps, on its texts, or on those of a probe."""


@dataclass(frozen=True)
class ExpertUse:
    """The experts of a target."""

    total: int
    """In each layer."""
    used: int
    """By one token."""
    share: float = 1.0
    """Of the bytes that one token reads; 1 where it is not known, which explains the most."""
    unions: tuple[tuple[int, float], ...] = ()
    """Tokens of a forward -> different experts in a layer, as measured, by tokens; empty where routing was not."""
    source: ExpertSource | None = None
    """What was measured; None where nothing was."""

    def more(self, tokens: float) -> tuple[float, bool]:
        """(how many more experts a forward over `tokens` reads, as a share of those of one; whether it was measured).

        Unmeasured it is what independent routing would read, which real texts do not reach.
        """
        measured = self.measured(tokens)
        if measured is None:
            return self.uniform(tokens) / self.used - 1, False
        return max(0.0, measured / self.used - 1), True

    def measured(self, tokens: float) -> float | None:
        """Experts of a layer that a forward over `tokens` reads, as measured; None where that was not."""
        if not self.unions or not 1 <= tokens <= self.unions[-1][0]:
            return None
        return _on_a_line({1: float(self.used), **dict(self.unions)}, tokens)

    def uniform(self, tokens: float) -> float:
        """The same if routing were uniform and independent (`theory.roofline`)."""
        return float(expected_union(tokens, self.total, self.used))

    def message_for(self, tokens: float) -> Message:
        """What is known of a forward over `tokens`, with the formula beside it."""
        if (measured := self.measured(tokens)) is None:
            return Message("experts.unknown")
        where, uniform = Message(f"experts.of_{self.source}"), self.uniform(tokens)
        return Message("experts.known", measured=measured, total=self.total, where=where, uniform=uniform)

    def most(self, tokens: float) -> float:
        """Most that reading them lets a forward over `tokens` take, in forwards over one token."""
        return 1 + self.share * self.more(tokens)[0]


def experts_of(
    header: ModelHeader | None,
    model: ModelIdentity | None = None,
    probe: Probe | None = None,
    steps: Mapping[int, float] | None = None,
    texts: TextRouting | None = None,
) -> ExpertUse | None:
    """What is known of a target's experts; None for a dense one. `steps`: tokens of a forward -> experts that the run
    itself recorded; `texts`: those of its texts."""
    of_texts = texts.union if texts is not None else None
    of_probe = probe.union if probe is not None else None
    sources: dict[ExpertSource, dict[int, float]] = {
        "steps": dict(steps or {}),
        "texts": _points(of_texts),
        "probe": _points(of_probe),
    }
    source: ExpertSource | None = next((name for name, points in sources.items() if points), None)
    unions = tuple(sorted(sources[source].items())) if source else ()
    if header is None or not header.experts > header.experts_used > 0:
        counted = of_texts or of_probe
        return ExpertUse(counted.experts, counted.used, 1.0, unions, source) if counted is not None else None
    share = 1.0
    if model is not None and header.bytes_per_token > 0:
        footprint = footprint_of(model, header)
        read = footprint.expert_bytes * footprint.used
        share = read / (read + footprint.always_bytes) if read > 0 else 1.0
    return ExpertUse(header.experts, header.experts_used, share, unions, source)


def _points(union: ExpertUnion | None) -> dict[int, float]:
    return {point.tokens: point.union.point for point in union.points} if union is not None else {}


def _on_a_line(known: Mapping[int, float], tokens: float) -> float:
    """What is known at some numbers of tokens, by straight lines between them."""
    places = sorted(known)
    return float(np.interp(tokens, places, [known[n] for n in places]))


def union_at(union: ExpertUnion, tokens: int) -> Estimate | None:
    """Experts of a layer that a forward over `tokens` reads, as measured at a point or, by a straight line, between two
    of them, with its interval; None beyond the last one."""
    known = {point.tokens: point.union for point in union.points}
    if tokens in known or not union.points or not union.points[0].tokens < tokens < union.points[-1].tokens:
        return known.get(tokens)
    lower = max(n for n in known if n < tokens)
    upper = min(n for n in known if n > tokens)
    a, b = known[lower], known[upper]
    pairs = {"point": (a.point, b.point), "low": (a.low, b.low), "high": (a.high, b.high)}
    ends = {
        end: None if one is None or other is None else _on_a_line({lower: one, upper: other}, tokens)
        for end, (one, other) in pairs.items()
    }
    return a.model_copy(update={**ends, "method": f"{a.method}; on a line between {lower} and {upper} tokens"})
