"""What was measured: sessions, requests, replies, and the steps of a reply.

What is recorded of a cell under load, beside its sessions and requests.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specmeter.record.base import Record
from specmeter.record.derived import Estimate
from specmeter.record.machine import EngineIdentity


class DeviceUse(Record):
    """What one device held in a session, read from the engine's log."""

    device: str
    model_buffer_bytes: int = 0
    kv_buffer_bytes: int = 0
    compute_buffer_bytes: int = 0


class WarmUp(Record):
    """What a session generated before anything was measured, as token ids."""

    prompt: tuple[int, ...]
    """Its prompt, the template's tokens included."""
    text: tuple[int, ...]
    """What was generated; the same prompt was then read once more for a single token."""


class Session(Record):
    """One engine process: an arm in a block."""

    id: str
    """Unique within the run."""
    arm_id: str
    """The arm it was started for."""
    invocation: int
    """Run of the whole experiment, from 0."""
    block: int
    """Pass over all arms, from 0."""
    position: int
    """Place of the arm in its block, from 0."""
    argv: tuple[str, ...]
    """What was started; secrets are masked."""
    engine: EngineIdentity
    """Which engine, to the byte."""
    started_at: float
    """When it was started."""
    ready_ms: float
    """From start of the process until it was healthy with the right model."""
    warmup_ms: float = 0.0
    """Wall time of the excluded warm-up requests."""
    ended_at: float | None = None
    """When it was closed; None when that was not recorded (a kill)."""
    log_file: str | None = None
    """Relative to the run folder."""
    resolved: dict[str, Any] = {}
    """Values read back from the engine (`/props`, `/slots`, log): what was really in force."""
    speculating: bool | None = None
    """What `/slots` says about activation; None where the engine cannot tell."""
    devices: tuple[DeviceUse, ...] = ()
    """Memory that the target holds on each device."""
    draft_devices: tuple[DeviceUse, ...] = ()
    """Memory that the draft holds on each device."""
    layers_offloaded: tuple[int, int] | None = None
    """(offloaded, of how many) for the target."""
    draft_layers_offloaded: tuple[int, int] | None = None
    """(offloaded, of how many) for the draft."""
    prompt_forwards: int | None = None
    """Target forwards that a prompt alone takes, calibrated for the conservation law."""
    warmup: WarmUp | None = None
    """The warm-up of a baseline's first session, from which lookups in a session like it go on; None for others."""


class Step(Record):
    """One draft-then-verify round (or one plain decode)."""

    drafted: Annotated[int, Field(ge=0)]
    """Tokens drafted."""
    accepted: Annotated[int, Field(ge=0)]
    """Draft tokens that the target agreed with."""
    at_ms: float
    """When the step ended, from the start of the request."""
    restored: bool = False
    """A checkpoint was restored and replayed (recurrent and hybrid targets)."""
    context: Annotated[int, Field(ge=0)] | None = None
    """Tokens in the target's context before the step. This and the times below: only from instrumented engines."""
    draft_ms: float | None = None
    """Time to make the draft, the draft model's catching up with accepted tokens included."""
    verify_ms: float | None = None
    """Time of the target forward, from its start until its logits could be read."""
    sample_ms: float | None = None
    """Time to choose tokens from the target's logits and to compare them with the draft."""
    restore_ms: float | None = None
    """Time to forget rejected tokens: cutting the caches, or saving, restoring and replaying a checkpoint."""
    other_ms: float | None = None
    """The rest of the step."""
    experts: tuple[tuple[int, ...], ...] | None = None
    """Of each MoE layer, the experts that the forward's tokens chose, token after token; None unless asked for."""


class Drafting(Record):
    """What the engine's own statistics say about one method during one request."""

    method: str
    """By the engine's name: `draft-simple`, `ngram-mod`, ..."""
    calls: Annotated[int, Field(ge=0)]
    """How often it was asked for a draft."""
    begin_ms: Annotated[float, Field(ge=0)]
    """Time to get ready for the request."""
    generate_ms: Annotated[float, Field(ge=0)]
    """Time to make drafts. What a draft model computes to catch up with the target's tokens is not in it."""
    accept_ms: Annotated[float, Field(ge=0)]
    """Time to take in what was accepted."""


class Timings(Record):
    """Counts and times as the engine reports them; every rate is computed from these by one rule."""

    prompt_n: Annotated[int, Field(ge=0)]
    """Prompt tokens processed; those found in the cache are not among them."""
    prompt_ms: Annotated[float, Field(ge=0)]
    """Time for them, up to the first generated token."""
    predicted_n: Annotated[int, Field(ge=0)]
    """Tokens generated, the first included."""
    predicted_ms: Annotated[float, Field(ge=0)]
    """Time for all of them but the first."""
    cache_n: Annotated[int, Field(ge=0)] = 0
    """Prompt tokens found in the cache."""
    draft_n: Annotated[int, Field(ge=0)] | None = 0
    """Tokens drafted; None where the engine does not count them."""
    draft_n_accepted: Annotated[int, Field(ge=0)] | None = 0
    """Draft tokens that the target agreed with; None where the engine does not count them."""


UNKNOWN_TOKEN = -1
"""Stands for a token whose id a server never sent."""


class Reply(Record):
    """What an engine gives back for one prompt."""

    text: str
    """What was generated, without the reasoning."""
    reasoning: str = ""
    """What was generated as reasoning."""
    token_ids: tuple[int, ...] = ()
    """Tokens generated."""
    stop_reason: str
    """`limit`, `eos`, `word`, ..."""
    timings: Timings
    raw_timings: dict[str, Any] = {}
    """Timings as the engine printed them, rates included."""
    counters: dict[str, float] = {}
    """Differences of the engine's counters over the request (`/metrics`), and, where the system counts them,
    `rpc_sent_bytes_total` and `rpc_received_bytes_total` between the engine and its remote machines."""
    wall_ms: float
    """Duration of the request, seen by the client."""
    ttft_ms: float | None = None
    """Time to first token, seen by the client."""
    arrival_ms: tuple[float, ...] = ()
    """When each token arrived at the client, from the start of the request."""
    steps: tuple[Step, ...] = ()
    drafting: tuple[Drafting, ...] = ()
    """Time of each drafting method; empty where the engine does not say."""


class Request(Record):
    """One generation measured."""

    invocation: int
    """Run of the whole experiment, from 0."""
    block: int
    """Pass over all arms, from 0."""
    position: int
    """Place of the arm in its block."""
    item: int
    """Place of the prompt within the arm."""
    arm_id: str
    """The arm."""
    prompt_id: str
    """The workload item."""
    prompt_sha256: str
    """Of the prompt's UTF-8 text."""
    kind: str
    """What sort of text the prompt is."""
    session_id: str
    """The session that answered."""
    started_at: float
    """When the request was sent."""
    status: Literal["ok", "failed"]
    """`ok`, or `failed` where the engine gave no answer."""
    error: str | None = None
    """Why it failed."""
    reply: Reply | None = None
    """None when the request failed."""


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
