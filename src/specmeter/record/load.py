"""What is recorded of a cell under load, beside its sessions and requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specmeter.record.base import Record
from specmeter.record.derived import Estimate


class Sending(Record):
    """How a request of a cell under load was sent; its `Request` has what came back."""

    invocation: int
    """Run of the whole experiment, from 0. Like the next three that of the request."""
    block: int
    """Pass over all arms, from 0."""
    arm_id: str
    """The arm."""
    prompt_id: str
    """The workload item."""
    session_id: str
    """The session that it was sent to: of a cell that was broken off and measured again, requests of both stay."""
    client: int | None
    """Which client sent it, from 0; None in an open loop."""
    due_at: float
    """When it was to be sent, by the clock of the engine: a closed loop's when its client's last request had ended."""
    late_ms: Annotated[float, Field(ge=0)]
    """How much later it was sent: the client's own delay."""
    slot: int | None = None
    """Slot of the server that answered it; None where the engine does not say."""
    queued_ms: Annotated[float, Field(ge=0)] | None = None
    """How long it waited for the engine to begin with it; None where the engine does not say."""


class LoadCell(Record):
    """A cell under load as a whole: one session, many requests at once."""

    invocation: int
    block: int
    arm_id: str
    session_id: str
    began_at: float
    """When the first request was due, by the clock of the engine."""
    ended_at: float
    """When the last one had ended, or the cell was broken off."""
    complete: bool
    """Whether every request came to an end in this session, answered or failed; half a cell is not a measurement."""
    slots: int
    """Requests that the engine works on at once, read back from it."""
    client_cpu_ms: Annotated[float, Field(ge=0)]
    """CPU time that specmeter's own process took meanwhile."""
    counters: dict[str, float] = {}
    """What the engine's counters grew by over the cell: `n_decode_total`, `n_busy_slots_total` (forwards of all slots
    added up), `spec_decode_num_draft_tokens_total`, ..."""


class BatchPoint(Record):
    """T(b, n): one forward over b sequences of n tokens each."""

    sequences: Annotated[int, Field(ge=1)]
    """b"""
    tokens: Annotated[int, Field(ge=1)]
    """n: tokens of each sequence."""
    depth: Annotated[int, Field(ge=0)]
    """Tokens that each sequence has in its context before."""
    ms: Estimate
    """Time of the forward."""
    union: Estimate | None = None
    """Distinct experts of a layer that it reads, mean over layers; None for dense models, and where not measured."""
