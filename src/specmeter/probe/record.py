"""A probe: a cost curve T(n) of one target (and of one draft), and what it holds for: machine, engine and settings."""

from __future__ import annotations

from typing import Literal

from specmeter.record import (
    BatchPoint,
    EngineIdentity,
    EngineSettings,
    Estimate,
    ExpertUnion,
    Host,
    ModelIdentity,
    Record,
)
from specmeter.theory.curves import CostCurve


class Probe(Record):
    """Costs of one target, and of one draft, on one machine with one engine."""

    format: Literal[1] = 1
    made_at: float
    """Seconds since the epoch."""
    source: Literal["libllama", "server"]
    """Measured directly, or estimated through a server."""
    host: Host
    engine: EngineIdentity
    settings: EngineSettings
    target: ModelIdentity
    draft: ModelIdentity | None = None
    depth: int
    """Tokens in the context before each forward that was timed."""
    target_ms: CostCurve
    """T(n): a target forward over n tokens, logits of all of them read."""
    draft_ms: CostCurve | None = None
    """The same of the draft model; its T(1) is what a drafted token costs."""
    overhead_ms: Estimate | None = None
    """What a step costs beside its forwards (choosing tokens, cutting caches); None where it was not measured."""
    plain_rounds_ms: tuple[float, ...]
    """T(1) of each round, in their order."""
    other_cpu_percent: tuple[float, ...]
    """Share of the machine that other programs took while it was measured, sampled about once a second."""
    programs: tuple[str, ...] = ()
    """Those that took the most, where they were seen: `python3 (0.98 cores)`."""
    disturbed_percent: tuple[float, ...] = ()
    """Mean share that they took of each attempt before, which was excluded for it."""
    union: ExpertUnion | None = None
    """None for dense targets, and where routing could not be read."""
    batches: tuple[BatchPoint, ...] = ()
    """T(b, n), ascending in b and then in n; empty where it was not asked for."""
    kv_unified: bool | None = None
    """Whether the sequences of `batches` lay in one memory, or in a stream each; None without `batches`."""
