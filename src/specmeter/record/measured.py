"""Records of what was measured: sessions, requests, replies, steps, cells under load.

With them are the records of what is computed besides: margins, profiles, probes, experts, predictions, estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from specmeter.messages import Message, Value
from specmeter.record.base import Record
from specmeter.record.machine import EngineIdentity, Host, Telemetry
from specmeter.record.spec import EngineSettings, KvType, ToolCall


class Margin(Record):
    """How sure the target was where a greedy text left its baseline's: asked of the target itself, afterwards."""

    arm_id: str
    """Configuration whose output differs."""
    prompt_id: str
    """Id of the prompt."""
    invocation: int
    """Of the request that differs from its baseline in the same block."""
    block: int
    """Of the request that differs."""
    position: int
    """First generated token that differs, from 0."""
    baseline_token: int
    """Id of the baseline's token there."""
    arm_token: int
    """Id of the configuration's token there."""
    baseline_logprob: float | None
    """Natural log of the target's probability for the baseline's token; None if the engine does not list it."""
    arm_logprob: float | None
    """The same for the configuration's token."""
    best_logprob: float | None
    """The same for the most likely token."""


class PromptTokens(Record):
    """A prompt as a target's engine tokenized it: what a template and the model add is part of it."""

    target: str
    """Name of the target in the experiment."""
    prompt_id: str
    """Id of the prompt."""
    token_ids: tuple[int, ...]
    """Everything that is processed before the first token is generated."""


class MatchProfile(Record):
    """Where a draft model agrees with one text: what it would draft after every token of it, from one pass."""

    prompt_id: str
    """Id of the prompt."""
    prompt_digest: str
    """Of the prompt's token ids."""
    text_digest: str
    """Of the token ids that were generated after it."""
    draft_sha256: str
    """Of the draft model's file."""
    kv_type_k: KvType | None = None
    """Type of the draft's K cache; None: the engine's default. The same for V below."""
    kv_type_v: KvType | None = None
    """Type of the draft's V cache."""
    drafts_ends: bool = True
    """Whether the draft may propose a token that ends the text: llama-server's may, even under ignore_eos."""
    made_by: str
    """The library that ran the draft."""
    matches: Annotated[str, Field(pattern=r"^[01]*$")]
    """For every token of the text: 1 where it is the draft's best one after all that comes before it, else 0."""
    gaps: tuple[Annotated[float, Field(ge=0)], ...]
    """For every token: logit of the text's token less that of the best other one, without its sign. Where it is small,
    the draft may decide otherwise in a forward over more tokens."""
    confidences: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """For every token: probability of the draft's best one, as `p_min` is compared with it."""
    branches: dict[Annotated[int, Field(ge=0)], tuple[float, ...]] = {}
    """Position of a token that does not match -> confidences of what the draft says after its own token there, one
    after the other. Only for arms with a `p_min`, which ends drafts there."""
    sway: Annotated[float, Field(ge=0)]
    """The most that a gap moved when the draft read the same text in forwards over many tokens."""


class Profiled(Record):
    """What came of reading a run's texts with its drafts, when it had been measured."""

    missing: int
    """Texts without a profile, each counted once for every draft that wrote it."""
    reason: Message | None = None
    """Why they are missing, where some are."""


class Estimate(Record):
    """A number with its interval; `low` and `high` are None if there is none."""

    point: float
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    n: int
    """Number of independent units (blocks, prompts, ...)."""
    of: str = ""
    """Kind of units: `blocks`, `invocations`, `prompts`; empty if `method` says it."""
    df: int | None = None
    """Degrees of freedom of Student's t, if fewer than n - 1."""
    unit: str
    """`x`, `tok/s`, `1`, ..."""
    method: str
    """How point and interval were obtained."""


class UnionPoint(Record):
    """Experts that this many consecutive tokens choose."""

    tokens: int
    """n: consecutive tokens of real text."""
    union: Estimate
    """Distinct experts of a layer, mean over layers and places of the text."""


class ExpertUnion(Record):
    """U(n) of an MoE target, measured on text."""

    experts: int
    """Experts of a layer to choose from."""
    used: int
    """Experts chosen for a token."""
    points: tuple[UnionPoint, ...]


class TextRouting(Record):
    """Which experts an MoE target chooses for the texts of a run, read by the target itself when they had been
    generated; or openly not."""

    target: str
    """Name of the target in the experiment."""
    baseline_id: str
    """The configuration whose outputs were read, one per prompt."""
    texts: int = 0
    """Number of outputs read."""
    tokens: int = 0
    """Their tokens."""
    union: ExpertUnion | None = None
    """Experts of windows of consecutive tokens, intervals over texts; None: `failure` says why."""
    layers: dict[int, tuple[float, ...]] = {}
    """Number of a layer -> its distinct experts at each point of `union`."""
    failure: Message | None = None
    """Why there is no data."""


class StepRound(Record):
    """A session of a probe that decodes without speculation, and one that drafts and has nothing accepted, on the same
    prompts."""

    plain_ms: Annotated[float, Field(gt=0)]
    """Of a plain token: decode time over tokens after the first, the median request. Of several requests at once: of a
    step that emits a token for each of them."""
    step_ms: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0)]]
    """Tokens drafted -> median time of such a step, drafting included; if below the longest, after another length."""
    steady_ms: Annotated[
        dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0)]], Field(exclude_if=lambda value: not value)
    ] = {}
    """The same of steps that follow one as long, where a new length was seen to cost time, as on a GPU."""
    accepted_ms: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0)]] = {}
    """The same where everything was accepted, of MoE targets: steps over new text alone, whose experts were not just
    read by the step before."""
    drafting_ms: Annotated[float, Field(ge=0)] | None = None
    """Making drafts, per drafted token; None where the engine does not say."""
    first_ms: Annotated[float, Field(ge=0)] | None = None
    """What the first step of a request takes beyond others of its length, the median request: a draft model reads the
    prompt in it. None where that cannot be told."""
    other_cpu_percent: tuple[float, ...] = ()
    """Share of the machine that other programs took, sampled about once a second."""


class StepProbe(Record):
    """What steps of one target and one way of drafting cost, measured in a run before its first such arm; or openly
    nothing."""

    baseline_id: str
    """The arm whose plain tokens are the unit."""
    target: str
    """Name of the target in the experiment."""
    draft: str | None
    """Name of the draft model; None: drafts are looked up in the text, which takes no time that counts."""
    engine: EngineSettings
    """Settings of the arms that it serves."""
    gamma: int
    """Longest draft."""
    clients: Annotated[int, Field(ge=1, exclude_if=lambda value: value == 1)] = 1
    """Requests that were answered at once, all of which take part in each step."""
    started_at: float
    """By the clock of the engine."""
    ended_at: float
    prompts: tuple[str, ...] = ()
    """The run's own prompts that it was taken on."""
    rounds: tuple[StepRound, ...] = ()
    """Those that count."""
    left_out: tuple[StepRound, ...] = ()
    """Those in which other programs took too much of the machine."""
    failure: Message | None = None
    """Why no round counts, where none does."""


class Prediction(Record):
    """What was expected of an arm, written down before it was measured; or openly nothing."""

    arm_id: str
    """Id of the configuration."""
    made_at: float
    """Time of the prediction, on the engine's clock."""
    speedup: Estimate | None
    """None where there is no prediction; `reason` says why."""
    reason: Message | None = None
    """Why there is no prediction."""
    cost: Message | None = None
    """Source of the cost of a step: steps probed in the run, a probe, or the size of both models."""
    acceptance: Message | None = None
    """Source of the acceptance rate: a replay on the baseline's outputs, configurations measured before, given
    rates, or an assumed range."""
    inputs: dict[str, bool | int | float | str | None] = {}
    """Its inputs: `gamma`, `tau`, tokens `drafted` per step, and the cost of a step in single-token forward passes
    of the target: `draft`, `verify`, `restore`, `rest`, plus the extra cost of the `first` step."""


Telemetry.model_rebuild()


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
    """An arm in a block: an engine process, or the next requests of one that was kept for it."""

    id: str
    """Unique within the run."""
    arm_id: str
    """Id of its configuration."""
    invocation: int
    """Repetition of the whole experiment, from 0."""
    block: int
    """Block, from 0."""
    position: int
    """Position of the configuration in its block, from 0."""
    argv: tuple[str, ...]
    """Command that was started, with secrets masked."""
    engine: EngineIdentity
    """Which engine, to the byte."""
    started_at: float
    """Start time."""
    ready_ms: float
    """Time from the start of the process until the model was ready."""
    warmup_ms: float = 0.0
    """Time of the warm-up requests, which do not count."""
    ended_at: float | None = None
    """End time; None if not recorded (killed)."""
    log_file: str | None = None
    """Log file, relative to the run folder."""
    server: str | None = None
    """Id of the process, if several sessions share one (its first session warms it up)."""
    resolved: dict[str, Any] = {}
    """Settings in force, read back from the engine (`/props`, `/slots`, log)."""
    speculating: bool | None = None
    """Whether `/slots` reports speculation as active; None if the engine does not report it."""
    devices: tuple[DeviceUse, ...] = ()
    """Memory of the target model on each device."""
    draft_devices: tuple[DeviceUse, ...] = ()
    """Memory of the draft model on each device."""
    layers_offloaded: tuple[int, int] | None = None
    """Layers of the target model: [offloaded, total]."""
    draft_layers_offloaded: tuple[int, int] | None = None
    """Layers of the draft model: [offloaded, total]."""
    prompt_forwards: int | None = None
    """Forward passes of the target for a prompt alone, counted in the configuration's first session."""
    warmup: WarmUp | None = None
    """Warm-up of a baseline's first session; None for others."""


class Step(Record):
    """One draft-then-verify round (or one plain decode)."""

    drafted: Annotated[int, Field(ge=0)]
    """Draft tokens."""
    accepted: Annotated[int, Field(ge=0)]
    """Draft tokens accepted."""
    at_ms: float
    """End of the step, from the start of the request."""
    restored: bool = False
    """Whether a checkpoint was restored and replayed (recurrent and hybrid models)."""
    context: Annotated[int, Field(ge=0)] | None = None
    """Tokens in the target's context before the step; this and the following only from instrumented engines."""
    draft_ms: float | None = None
    """Time for drafting, including the draft model's pass over accepted tokens."""
    verify_ms: float | None = None
    """Time of the target's forward pass, until its logits are available."""
    sample_ms: float | None = None
    """Time to sample from the target's logits and compare with the draft tokens."""
    restore_ms: float | None = None
    """Time to remove rejected tokens: trimming the caches, or saving, restoring and replaying a checkpoint."""
    other_ms: float | None = None
    """The rest of the step."""
    experts: tuple[tuple[int, ...], ...] | None = None
    """Experts chosen in each MoE layer, token by token; None unless requested."""


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
    """Prompt tokens processed, without those found in the cache."""
    prompt_ms: Annotated[float, Field(ge=0)]
    """Time for the prompt, up to the first generated token."""
    predicted_n: Annotated[int, Field(ge=0)]
    """Tokens generated, including the first."""
    predicted_ms: Annotated[float, Field(ge=0)]
    """Time for all generated tokens but the first."""
    cache_n: Annotated[int, Field(ge=0)] = 0
    """Prompt tokens found in the cache."""
    draft_n: Annotated[int, Field(ge=0)] | None = 0
    """Draft tokens; None if the engine does not count them."""
    draft_n_accepted: Annotated[int, Field(ge=0)] | None = 0
    """Draft tokens accepted; None if the engine does not count them."""


UNKNOWN_TOKEN = -1
"""Stands for a token whose id a server never sent."""


class Reply(Record):
    """What an engine gives back for one prompt."""

    text: str
    """Generated text, without reasoning."""
    reasoning: str = ""
    """Generated reasoning."""
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude_if=lambda value: not value)] = ()
    """Functions that the model called, as the server read them from its text."""
    token_ids: tuple[int, ...] = ()
    """Ids of the generated tokens."""
    stop_reason: str
    """`limit`, `eos`, `word`, ..."""
    timings: Timings
    raw_timings: dict[str, Any] = {}
    """Timings and rates under the engine's own names."""
    counters: dict[str, float] = {}
    """Increase of the engine's counters (`/metrics`) during the request, and, if available, `rpc_sent_bytes_total`
    and `rpc_received_bytes_total` to and from remote machines."""
    known_n: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """Of a call of a recorded session: tokens of its prompt that were read before it. Those of them that are not in
    `timings.cache_n` were read again."""
    wall_ms: float
    """Duration of the request at the client."""
    ttft_ms: float | None = None
    """Time to first token at the client."""
    arrival_ms: tuple[float, ...] = ()
    """When each token arrived at the client, from the start of the request."""
    steps: tuple[Step, ...] = ()
    drafting: tuple[Drafting, ...] = ()
    """Time of each drafting method; empty if the engine does not report it."""


class Request(Record):
    """One generation measured."""

    invocation: int
    """Repetition of the whole experiment, from 0."""
    block: int
    """Block, from 0."""
    position: int
    """Position of the configuration in its block, from 0."""
    item: int
    """Position of the prompt within the configuration."""
    arm_id: str
    """Id of the configuration."""
    prompt_id: str
    """Id of the prompt."""
    prompt_sha256: str
    """SHA-256 of the prompt's UTF-8 text."""
    kind: str
    """Prompt type."""
    session_id: str
    """Id of the session."""
    started_at: float
    """When the request was sent."""
    status: Literal["ok", "failed"]
    """`ok`, or `failed` if the engine gave no answer."""
    error: str | None = None
    """Why it failed."""
    reply: Reply | None = None
    """None when the request failed."""


class Sending(Record):
    """How a request of a cell under load was sent; its `Request` has what came back."""

    invocation: int
    """Repetition of the whole experiment, from 0."""
    block: int
    """Block, from 0."""
    arm_id: str
    """Id of the configuration."""
    prompt_id: str
    """Id of the prompt."""
    session_id: str
    """Id of the session; requests of an aborted measurement are kept too."""
    client: int | None
    """Client that sent it, from 0; None in an open loop."""
    due_at: float
    """When it was due, on the engine's clock; in a closed loop, when the client's previous request ended."""
    late_ms: Annotated[float, Field(ge=0)]
    """Delay of the client until it was sent."""
    slot: int | None = None
    """Server slot that answered; None if the engine does not report it."""
    queued_ms: Annotated[float, Field(ge=0)] | None = None
    """Time in the engine's queue; None if the engine does not report it."""


class Filler(Record):
    """A request that kept a client of a closed loop busy before its first or behind its last request of the run. It is
    none of these: what is kept is what proves that clients were busy, and closes the counts of the cell."""

    client: Annotated[int, Field(ge=0)]
    started_at: float
    wall_ms: Annotated[float, Field(ge=0)]
    prompt_n: Annotated[int, Field(ge=0)]
    predicted_n: Annotated[int, Field(ge=0)]
    predicted_ms: Annotated[float, Field(ge=0)]
    draft_n: Annotated[int, Field(ge=0)]
    draft_n_accepted: Annotated[int, Field(ge=0)]
    restores: Annotated[int, Field(ge=0)]
    """Steps that restored a checkpoint, and emitted nothing."""
    stop_reason: str


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
    fillers: tuple[Filler, ...] = ()
    """In the order of their ends; the counters hold them too."""


Cause = Literal["others", "gpu", "clock"]
"""What disturbed a block: other programs, a GPU slowed down by heat or its hardware, the processor's clock."""


def names_of(programs: Sequence[str]) -> list[str | Message]:
    """What programs are called, without the cores that each took; `others` where none is known."""
    return [it.rpartition(" (")[0] or it for it in programs] or [Message("disturbed.others")]


def threads_beside(percent: float, host: Host, now: int | None = None) -> int:
    """Threads of an engine that leaves others, who take so much of the machine, their cores; 0 where none is left, and
    where it has no more than that `now`."""
    taken = math.ceil(percent / 100 * host.logical_cores - 0.2)
    left = max(0, (host.physical_cores or host.logical_cores) - max(1, taken))
    return 0 if now is not None and now <= left else left


class Disturbance(Record):
    """A block that was excluded by telemetry alone, with all its numbers, which are kept and do not count."""

    invocation: int
    block: int
    attempt: Annotated[int, Field(ge=1)]
    """Which time it was that the block was measured."""
    requests: int
    """Requests of the block that had an answer."""
    began_at: float
    ended_at: float
    samples: int
    """Samples of telemetry in that time."""
    mean_percent: float
    """Share of the machine that other programs took, 0-100."""
    highest_percent: float
    slowed: int
    """Samples with a GPU slowed down by heat or its hardware."""
    programs: tuple[str, ...] = ()
    """Other programs that took the most, where they were seen: `python3 (0.98 cores)`."""
    cause: Cause = "others"
    """What disturbed it."""
    clock: Annotated[float, Field(exclude_if=lambda value: value is None)] | None = None
    """Of a clock that fell: the slowest session's over the fastest's."""
    again: bool
    """Whether the block is measured again; not where there were three times as many blocks as planned."""

    @property
    def what(self) -> Message:
        """What disturbed it, in words."""
        if self.cause == "gpu":
            return Message("disturbed.gpu", slowed=self.slowed, samples=self.samples)
        if self.cause == "clock":
            return Message("disturbed.clock", clock=self.clock or 0.0)
        return Message("disturbed.took", programs=self.others, percent=self.mean_percent)

    @property
    def others(self) -> list[str | Message]:
        """Who disturbed it, as far as is known."""
        return names_of(self.programs)

    def ways_out(self, host: Host | None, now: int | None = None) -> dict[str, Value]:
        """What would end it, and what else gives numbers: fewer threads than an engine has `now`, or counting it."""
        if self.cause != "others":
            return {"until": Message("disturbed.cool"), "threads": ""}
        threads = 0 if host is None else threads_beside(self.mean_percent, host, now)
        beside = Message("advised.decide.threads", threads=threads) if threads else Message("advised.decide.keep")
        return {"until": Message("disturbed.ends", programs=self.others), "threads": beside}


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
