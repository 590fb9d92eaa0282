"""The records that every other room speaks: immutable, validated, one list of fields each.

Columns of exports, the reference page of the documentation and the JSON in the run folder all derive from these
types. Units live in names (`decode_ms`, `size_bytes`); times of day are seconds since the epoch (UTC).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MethodName = Literal[
    "none",
    "draft-simple",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "draft-mtp",
    "draft-eagle3",
    "draft-dflash",
    "draft-dspark",
]
"""How draft tokens are made, by llama.cpp's own names; `none` is plain decoding."""

DRAFT_MODEL_METHODS: frozenset[MethodName] = frozenset({"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Methods that need a second model file (`draft-mtp` may use heads inside the target instead)."""

PolicyName = Literal["entropy", "utility", "cost-table"]
"""Who decides how long drafts are: the draft's own doubt, the utility measured so far, or a measured table of costs."""

RuleName = Literal["rejection", "sample-match"]
"""How drafts are verified: by rejection sampling, or by llama.cpp's rule (draw the target's token and compare)."""

RefusedDraft = Literal["refuse", "measure"]

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


def _switch(value: object) -> object:
    """YAML reads a bare `on` as true."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


FlashAttention = Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)]
ProbeSetting = Annotated[Literal["auto", "off"], BeforeValidator(_switch)]

_ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?:([0-9]{1,5})")
_RELAY = re.compile(r"relay:([0-9]{1,5}(?:\.[0-9]{1,6})?)ms(?:@([0-9]{1,7}(?:\.[0-9]{1,6})?)Mbit)?")


class Network(NamedTuple):
    """What lies between two machines."""

    rtt_ms: float
    """Round-trip time: there and back."""
    mbit_per_s: float | None
    """Bandwidth of each direction; None: unlimited."""


def network_of(address: str) -> Network | None:
    """The network of an address like `relay:0.5ms@1000Mbit`; None for the address of a machine."""
    found = _RELAY.fullmatch(address)
    if found is None:
        return None
    rate = float(found[2]) if found[2] else None
    return None if rate == 0 else Network(float(found[1]), rate)


def _address(value: str) -> str:
    found = _ADDRESS.fullmatch(value)
    if network_of(value) is None and (found is None or not 0 < int(found.group(1)) < 65_536):
        raise ValueError(
            f"{value[:100]!r} is not HOST:PORT, such as 192.168.0.103:50052, nor a relay, such as relay:0.5ms@1000Mbit"
        )
    return value


Address = Annotated[str, AfterValidator(_address)]
"""`HOST:PORT`, the host a name or an IPv4 address (llama.cpp takes no other); or `relay:RTTms`, `relay:RTTms@RATEMbit`:
this machine, behind a relay with that round-trip time and bandwidth."""


class Record(BaseModel):
    """Base of all records: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


# --- what is asked for -----------------------------------------------------------------------------------------------


class EngineSettings(Record):
    """How the engine is configured; `None` leaves the engine's own default (read back and stored as resolved)."""

    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads for decoding and for batches; None: all physical cores."""
    context: Annotated[int, Field(ge=16, le=16_777_216)] = 4096
    """Context length in tokens, of the target and of the draft."""
    kv_type_k: KvType | None = None
    """Type of the K cache."""
    kv_type_v: KvType | None = None
    """Type of the V cache."""
    draft_kv_type_k: KvType | None = None
    """Type of the draft model's K cache."""
    draft_kv_type_v: KvType | None = None
    """Type of the draft model's V cache."""
    flash_attention: FlashAttention | None = None
    """Flash attention."""
    gpu_layers: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Layers of the target to offload; None: the engine decides (all of them where a GPU is)."""
    draft_gpu_layers: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Layers of the draft to offload."""
    devices: tuple[str, ...] = ()
    """Devices for the target, by the engine's names (`CUDA0`, `RPC0`); empty: the engine decides."""
    draft_devices: tuple[str, ...] = ()
    """Devices for the draft."""
    rpc: Annotated[tuple[Address, ...], Field(max_length=16)] = ()
    """Machines that run `ggml-rpc-server`, whose devices are then called `RPC0`, `RPC1`, ... (`native` only). Only what
    `devices` or `draft_devices` name is placed there."""
    batch: Annotated[int, Field(ge=1)] | None = None
    """Logical batch size in tokens."""
    ubatch: Annotated[int, Field(ge=1)] | None = None
    """Physical batch size in tokens."""
    mmap: bool | None = None
    """Map the model file instead of reading it."""
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Parallel sequences of the server; anything but 1 shares the machine between requests."""
    prompt_cache: bool = False
    """Let the server reuse the KV cache of an earlier request."""
    trace_steps: bool = True
    """Record every draft-then-verify step from the server's log (LLAMA_TRACE), baseline arms included."""
    stream_tokens: bool = True
    """Receive tokens one by one, with their arrival times. It costs the engine up to 0.1 ms of CPU per token, which a
    fast model notices where every core decodes; off, there are no arrival times and no time to first token."""
    extra_flags: tuple[str, ...] = ()
    """More command line flags for a native server, as they are."""
    record_experts: bool = False
    """Keep the experts that every step reads (`libllama` only). That slows decoding down: times are not comparable."""


class Generation(Record):
    """What is generated for each prompt."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0 is greedy decoding."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """0 switches it off. Only for temperature > 0."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**32 - 2)] = 1
    """Where every sampled generation starts from. Each block has a seed of its own, made of this one, the invocation
    and the block, and shared by all of its arms. Without effect at temperature 0."""
    ignore_eos: bool = True
    """Go on after an end-of-sequence token, so that every arm generates the same number of tokens."""


class Arm(Record):
    """One configuration under comparison: a target, how it is drafted for, and the engine's settings."""

    id: str
    """Readable and unique within the experiment, for example `moe/draft-simple/small/g8`."""
    target: str
    """Name of the target in the experiment."""
    methods: tuple[MethodName, ...] = ("none",)
    """One method, or several combined as llama.cpp allows."""
    draft: str | None = None
    """Name of the draft model in the experiment."""
    gamma: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Most draft tokens per step; None: the engine's default (read back)."""
    gamma_min: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Shorter drafts are thrown away."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Drafting stops when the draft model's best probability is below this."""
    ngram_n: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Length of the n-gram that is looked up."""
    ngram_min_hits: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How often an n-gram must have been seen (`ngram-map-*`)."""
    synthetic_rates: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Acceptance decided by dice with these per-position rates: a cost probe. A server's text then means nothing;
    `libllama` plants errors into the target's own continuation, and its text keeps its meaning."""
    policy: PolicyName | None = None
    """Who decides how long drafts are, up to gamma (`libllama` only). None: always gamma, or fewer where `p_min` says
    so; with `entropy`, `p_min` bounds the acceptance that the draft's entropy lets expect."""
    rule: RuleName | None = None
    """How drafts are verified at temperature > 0 (`libllama` only, default `rejection`; servers match samples)."""
    refused_draft: RefusedDraft = "refuse"
    """Whether a draft that llama.cpp would refuse stops the experiment, or is measured all the same: by plain decoding
    under another name, which is found invalid."""
    engine: EngineSettings = EngineSettings()
    role: Literal["baseline", "speculative", "control"] = "speculative"
    baseline_id: str | None = None
    """The arm this one is compared with; None for a baseline."""
    workloads: tuple[str, ...] = ()
    """Names of the workloads this arm runs; empty: all of them."""

    @property
    def speculates(self) -> bool:
        """Whether any drafting is asked for."""
        return self.methods != ("none",)


class Prompt(Record):
    """One workload item."""

    id: str
    """Unique within the experiment."""
    workload: str
    """Name of the workload it comes from."""
    kind: str
    """What sort of text it is: `fact`, `code`, `reason`, `zh`, `edit`, `length-256`, `user`, ..."""
    text: str
    """The user's turn, or the text to be continued."""
    format: Literal["completion", "chat"] = "completion"
    """Whether the text is continued as it is, or put into the model's chat template."""
    sha256: str
    """Of the UTF-8 text."""
    token_count: int | None = None
    """Exact number of tokens asked for (length-controlled prompts only)."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Overrides the experiment's `generation.max_tokens` for this item."""
    random_tokens: bool = False
    """Made of random tokens: good for timing dense models, meaningless for acceptance."""


# --- identity --------------------------------------------------------------------------------------------------------


class ModelHeader(Record):
    """What a model file says about its shape, as far as judging a measurement needs it."""

    architecture: str | None
    layers: int | None
    experts: int
    """Experts per layer to choose from; 0 for dense models."""
    experts_used: int
    """Experts chosen for a token."""
    recurrent: bool
    """Carries a recurrent state, so that rejected tokens cannot simply be forgotten."""
    parameters: int
    bytes_per_token: int
    """Weights read to decode one token by itself: of an MoE the chosen experts only."""
    kv_bytes_per_token: int | None
    """KV cache of one more token in 16-bit; None when the layout is not known."""
    active_parameters: int | None = None
    """Used for one token: without the experts that are not chosen and without draft heads; None in older runs."""
    quantization: str = ""
    """Number format of the largest share of the weights, like `Q4_K`; empty in older runs."""


class ModelIdentity(Record):
    """A model file as it was used."""

    name: str
    """Name in the experiment."""
    reference: str
    """As written in the experiment: a path, `bench:...` or `hf:...`."""
    path: str
    sha256: str
    size_bytes: int
    origin: Literal["path", "bench", "hf", "mock"]
    timing_only: bool = False
    """Random weights: fit for timing, refused as a source of acceptance."""
    header: ModelHeader | None = None
    """None for a mock, and in runs of early versions."""


class Condition(Record):
    """One thing that target and draft should have in common."""

    name: str
    status: Literal["ok", "refused", "warning"]
    target: str
    """What the target has."""
    draft: str
    """What the draft has."""
    why: str
    """What the condition is about, or what follows from breaking it."""


class DraftPair(Record):
    """A target and a draft of the experiment, compared before anything was measured."""

    target: str
    """Name in the experiment."""
    draft: str
    """Name in the experiment."""
    conditions: tuple[Condition, ...]


class EngineIdentity(Record):
    """Which engine, to the byte."""

    kind: str
    """`embedded`, `native`, `mock`, ..."""
    version: str
    """Package or build version as the engine reports it."""
    build: str
    """Build information line of the engine."""
    binary: str
    """Path of the executable, or of the extension module."""
    binary_sha256: str
    """Of that file."""
    libraries: dict[str, str] = {}
    """File name -> SHA-256 of every shared object that belongs to the engine."""
    system_info: str = ""
    """CPU features and backends as the engine prints them."""


class DeviceUse(Record):
    """What one device held in a session, read from the engine's log."""

    device: str
    model_buffer_bytes: int = 0
    kv_buffer_bytes: int = 0
    compute_buffer_bytes: int = 0


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


# --- what is measured ------------------------------------------------------------------------------------------------


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
    draft_n: Annotated[int, Field(ge=0)] = 0
    """Tokens drafted."""
    draft_n_accepted: Annotated[int, Field(ge=0)] = 0
    """Draft tokens that the target agreed with."""


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


class Telemetry(Record):
    """State of the machine at one moment, sampled about once a second while requests run."""

    at: float
    """When it was sampled."""
    cpu_percent: float
    """All cores together, 0-100."""
    other_cpu_percent: float
    """Share used by processes that are neither specmeter nor its engine, 0-100 of the whole machine."""
    memory_available_bytes: int
    """Memory that could be given to processes."""
    engine_rss_bytes: int | None = None
    """Memory resident in the engine's processes."""
    cpu_mhz: float | None = None
    """Mean clock of the cores."""
    cpu_celsius: float | None = None
    """Hottest sensor of the processor."""
    on_battery: bool | None = None
    """Whether the machine ran on its battery."""
    gpus: tuple[GpuSample, ...] = ()
    """State of each GPU."""


class GpuSample(Record):
    """State of one GPU at one moment."""

    index: int
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    celsius: float | None = None
    throttle_reasons: tuple[str, ...] = ()


class PowerMeter(Record):
    """What of a machine's electric energy can be read, and its power at rest."""

    sources: tuple[str, ...] = ()
    """`package-0` (a processor), `dram-0` (memory beside it), `gpu-0`, `chip` (a Mac's CPU, GPU and neural engine)."""
    unread: tuple[str, ...] = ()
    """What cannot be read, and how to allow it."""
    idle_w: Annotated[float, Field(ge=0)] | None = None
    """Power of all sources together before anything was started; None where that is not known."""
    idle_cpu_percent: float | None = None
    """Share of the processor that was busy meanwhile: at rest it is next to nothing."""


class RequestEnergy(Record):
    """Electric energy that the machine took during one request, its prompt included."""

    invocation: int
    """Of the request, as the next three."""
    block: int
    """Of the request."""
    arm_id: str
    """Of the request."""
    prompt_id: str
    """Of the request."""
    joules: dict[str, Annotated[float, Field(ge=0)]]
    """By source, see `PowerMeter`."""
    seconds: Annotated[float, Field(gt=0)]
    """From just before it was sent to just after its last token had come."""
    unseen_s: Annotated[float, Field(ge=0)]
    """Of them without a reading, of the source that covers the least: sensors that are slow, or were not answered."""


class Gpu(Record):
    """One graphics processor."""

    index: int
    name: str
    vendor: str
    memory_bytes: int | None = None
    driver: str | None = None
    runtime: str | None = None
    """CUDA, Metal, Vulkan or ROCm version."""
    power_limit_w: float | None = None


class Host(Record):
    """The machine a run was made on."""

    hostname_sha256: str
    """The name itself is nobody's business; its hash tells machines apart."""
    os: str
    os_version: str
    kernel: str
    machine: str
    """`x86_64`, `arm64`, ..."""
    python: str
    specmeter: str
    cpu: str
    physical_cores: int | None
    logical_cores: int
    usable_cores: float | None = None
    """Cores this process may use (affinity and container quota); None: all logical ones."""
    cpu_flags: tuple[str, ...] = ()
    """Instruction sets that matter, by llama.cpp's own names (`AVX2`, `AVX512_VNNI`, `NEON`)."""
    governor: str | None = None
    """Clock policy: the cpufreq governor, macOS's energy mode or Windows's power scheme."""
    power_source: Literal["mains", "battery", "unknown"] = "unknown"
    memory_bytes: int
    """Memory of the machine, or the container's limit where that is smaller."""
    memory_available_bytes: int
    swap_used_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    container: str | None = None
    """Virtualisation or container, where it can be told."""
    load_average: tuple[float, float, float] | None = None
    busy_processes: tuple[str, ...] = ()
    """Names and CPU shares of other processes that were busy at the start."""
    power_meter: PowerMeter | None = None
    """What of its electric energy was read; None where nothing was asked."""


# --- what can be believed -------------------------------------------------------------------------------------------

Severity = Literal["invalid", "suspect", "note"]
"""What a finding does to what it is about: the number is false; it may not mean what it says; good to know."""

Verdict = Literal["valid", "suspect", "invalid"]
Standing = Literal["valid", "suspect", "implausible", "invalid"]
"""The verdict about a number. Ours come from the checks of a run. Of published ones nothing is ever shown to be valid:
`invalid` is *impossible* by arithmetic or counting, `implausible` breaks a bound that rests on named assumptions."""


class Finding(Record):
    """Something that a validity check saw."""

    check: str
    """Which check: `conservation`, `host-busy`, ..."""
    severity: Severity
    """What it does to that which it is about."""
    scope: Literal["request", "arm", "run"]
    """What it is about."""
    message: str
    """What is wrong, in one sentence with its numbers."""
    remedy: str
    """What to do about it."""
    evidence: dict[str, bool | int | float | str | None] = {}
    """The numbers, or the lines of a log, that show it."""
    arm_id: str | None = None
    """The arm; None for the whole run."""
    invocation: int | None = None
    """Of the request; None unless the scope is `request`, as the next two."""
    block: int | None = None
    """Of the request."""
    prompt_id: str | None = None
    """Of the request."""


class Unchecked(Record):
    """What a check could not look at: absence of a finding is not a pass then."""

    reason: str
    arm_id: str | None = None
    """The arm it could not look at; None for the whole run."""
    applies: bool = True
    """False where there is nothing to be checked (an arm without a draft model has no draft to compare)."""


class Outcome(Record):
    """How one check ended."""

    check: str
    threat: str
    """What goes wrong in measurements, that this check looks for."""
    status: Literal["passed", "partly", "skipped", "found"]
    """`partly`: nothing found, but some of the run could not be checked; `skipped`: none of it could."""
    invalid: int = 0
    """Findings of this severity; the same for the next two."""
    suspect: int = 0
    note: int = 0
    unchecked: tuple[Unchecked, ...] = ()
    saw: tuple[str, ...]
    """Parts of the run's data that it read; `Certificate.data` has their hashes."""


class Certificate(Record):
    """What was checked, on which data, and what follows."""

    specmeter: str
    """Version that checked."""
    checked_at: float
    state: Literal["complete", "partial", "failed"]
    """Of the run when it was checked."""
    verdict: Verdict
    """Of the run: the worst of its arms and of findings about the whole of it."""
    arms: dict[str, Verdict]
    """Arm id -> verdict; an arm is no better than its baseline."""
    requests: dict[Verdict, int]
    """How many requests have which verdict."""
    checks: tuple[Outcome, ...]
    data: dict[str, str]
    """Part of the run's data -> SHA-256 of it."""


class Margin(Record):
    """How sure the target was where a greedy text left its baseline's: asked of the target itself, afterwards."""

    arm_id: str
    """Arm whose text differs."""
    prompt_id: str
    """The workload item."""
    invocation: int
    """Of the request that differs; its baseline is that of the same block."""
    block: int
    """Of the request that differs."""
    position: int
    """First generated token that differs, from 0."""
    baseline_token: int
    """Id of the token that the baseline has there."""
    arm_token: int
    """Id of the token that the arm has there."""
    baseline_logprob: float | None
    """Natural logarithm of the target's probability; None when it is not among the likeliest that the engine lists."""
    arm_logprob: float | None
    """The same of the arm's token."""
    best_logprob: float | None
    """Of the likeliest token at that place."""


class PromptTokens(Record):
    """A prompt as a target's engine tokenized it: what a template and the model add is part of it."""

    target: str
    """Name of the target in the experiment."""
    prompt_id: str
    """The workload item."""
    token_ids: tuple[int, ...]
    """Everything that is processed before the first token is generated."""


class MatchProfile(Record):
    """Where a draft model agrees with one text: what it would draft after every token of it, from one pass."""

    prompt_id: str
    """The workload item."""
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
    """Whether the draft may propose a token that ends the text: a server's may, whatever the target is told."""
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
    reason: str = ""
    """Why they are missing; empty where none is."""


class Estimate(Record):
    """A number with its uncertainty, or openly without: `low` and `high` are None when there is no interval."""

    point: float
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    n: int
    """Number of independent units (blocks, prompts, ...) behind it."""
    of: str = ""
    """What these units are: `blocks`, `invocations`, `prompts`; empty where `method` alone says it."""
    df: int | None = None
    """Degrees of freedom of Student's t where they are fewer than n - 1."""
    unit: str
    """`x`, `tok/s`, `1`, ..."""
    method: str
    """How point and interval were obtained."""


class UnionPoint(Record):
    """Experts that so many consecutive tokens choose."""

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
    """The arm whose texts were read, one for each prompt."""
    texts: int = 0
    """Texts that were read."""
    tokens: int = 0
    """Their tokens."""
    union: ExpertUnion | None = None
    """Experts of windows of consecutive tokens, intervals over texts; None: `failure` says why."""
    layers: dict[int, tuple[float, ...]] = {}
    """Number of a layer -> its distinct experts at each point of `union`."""
    failure: str = ""
    """Why nothing is known; empty where something is."""


class StepRound(Record):
    """A session of a probe that decodes plainly, and one that drafts and has nothing accepted, on the same prompts."""

    plain_ms: Annotated[float, Field(gt=0)]
    """Of a plain token: decode time over tokens after the first, the median request."""
    step_ms: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0)]]
    """Tokens drafted -> median time of such a step, drafting included."""
    drafting_ms: Annotated[float, Field(ge=0)] | None = None
    """Making drafts, per drafted token; None where the engine does not say."""
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
    started_at: float
    """By the clock of the engine."""
    ended_at: float
    prompts: tuple[str, ...] = ()
    """The run's own prompts that it was taken on."""
    rounds: tuple[StepRound, ...] = ()
    """Those that count."""
    left_out: tuple[StepRound, ...] = ()
    """Those in which other programs took too much of the machine."""
    failure: str = ""
    """Why no round counts; empty where one does."""


class Prediction(Record):
    """What was expected of an arm, written down before it was measured; or openly nothing."""

    arm_id: str
    """The arm."""
    made_at: float
    """When it was made, by the clock of the engine that measures."""
    speedup: Estimate | None
    """None where there is no prediction; `reason` says why."""
    reason: str = ""
    """Why there is no prediction; empty where there is one."""
    cost: str = ""
    """Where the cost of a step was taken from: steps probed in the run itself, a probe, or the bytes of both models."""
    acceptance: str = ""
    """Where acceptance was taken from: a replay on the baseline's texts, arms measured before in the same run, given
    rates, or an assumed range."""
    inputs: dict[str, bool | int | float | str | None] = {}
    """The numbers behind it: `gamma`, `tau`, `drafted` tokens per step, and the parts of a step's cost in target
    forwards of one token: `draft`, `verify`, `restore`, `rest`."""


Telemetry.model_rebuild()
