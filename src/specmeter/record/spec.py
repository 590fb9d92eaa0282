"""Records of what is asked of an engine (settings, generation, arm, prompt), and of what it states about itself.

Every question that depends on the engine is answered by a trait, and by nothing else: neither plan nor check knows an
engine by its name. Traits are stored with the engine's identity, so that a run is judged by what its engine said, on a
machine where that engine is not installed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from specmeter.messages import Message
from specmeter.record.base import NAME_PATTERN, Record

MethodName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""How draft tokens are made, by the engine's own name; `none` is decoding without speculation, for every engine."""

PLAIN = "none"
PROBABILISTIC = "probabilistic"

PARAMETERS: Mapping[str, str] = {
    "gamma": "g",
    "gamma_min": "min",
    "p_min": "p",
    "ngram_n": "n",
    "ngram_min_hits": "hits",
}
"""Fields of an arm that say how it drafts -> what ids of arms write before their values. This is the one list of them:
a new one is a field of `Arm`, of `experiments.spec.ArmSpec` and `Exclusion`, and whatever an engine does with it."""

Truth = Literal[
    "drafts",
    "forwards",
    "steps",
    "step-times",
    "tokens",
    "arrivals",
    "candidates",
    "settings",
    "activation",
    "memory",
    "log",
    "identity",
    "processes",
    "experts",
]

TRUTHS: Mapping[Truth, Message] = {it: Message(f"truth.{it}") for it in get_args(Truth)}
"""What an engine may be able to report. A check that needs a truth says so, and is not passed without."""


class MethodTraits(Record):
    """One way of drafting that an engine knows."""

    name: MethodName
    """Its `method` in experiments."""
    drafter: Literal["model", "lookup", "states", "unknown"]
    """What drafts: a draft model, a lookup in prompt and output, heads or a model that read the target's states, or
    whatever a server was started with."""
    draft_model: Literal["needed", "allowed", "none"] = "none"
    """Whether it takes a draft model."""
    parameters: tuple[str, ...] = ()
    """What it supports of `gamma`, `gamma_min`, `p_min`, `ngram_n`, `ngram_min_hits`."""
    remembers: bool = False
    """It drafts from earlier requests of its session, too."""


class EngineTraits(Record):
    """What an engine states about itself. The defaults promise nothing."""

    simulated: bool = False
    """Time is virtual; nothing is measured."""
    model_formats: tuple[str, ...] = ()
    """Formats of model files that it and specmeter read (`gguf`). Empty: it has its own model references
    (`EngineSpec.model`)."""
    methods: tuple[MethodTraits, ...] = ()
    """Drafting methods, without `none`."""
    combines_methods: bool = False
    """A configuration may have several methods."""
    policies: tuple[str, ...] = ()
    """Policies that set the draft length (`Arm.policy`)."""
    sampling: tuple[str, ...] = ()
    """Sampling fields of `Generation` that it supports; others are refused."""
    rules: tuple[str, ...] = ()
    """Rules for verifying drafts at temperature > 0 (`Arm.rule`), the default first; empty: no choice."""
    draft_samplings: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """How it can draw draft tokens at temperature > 0 (`Arm.draft_sampling`), the default first; empty: no choice."""
    settings: tuple[str, ...] = ()
    """Fields of `EngineSettings` that it supports; others are refused."""
    kv_types: tuple[str, ...] = ()
    """KV cache types, by the engine's names."""
    draft_options: tuple[str, ...] = ()
    """Its own options that affect drafting only; configurations that differ only in them share a baseline."""
    synthetic: Literal["none", "random", "planted"] = "none"
    """What `synthetic_rates` do: nothing, random acceptance (the output is meaningless), or errors planted into the
    target's own output (it keeps its meaning)."""
    compares_drafts: bool = False
    """It compares the vocabularies of target and draft model, and runs without speculation if they do not fit; other
    engines refuse the pair."""
    drafting: Literal["llama-server", "specmeter"] | None = None
    """Whose rules its drafts follow to the token, so that they can be replayed; None: its own."""
    pinned: bool = False
    """It is the bundled llama.cpp, so its rules, arithmetic and devices are known."""
    tells: tuple[Truth, ...] = ()
    """What it reports about sessions and requests. Checks that need more are skipped, not passed."""
    replays_sessions: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """It can be asked calls of recorded sessions, with tools, from a cache that holds what was said before."""
    asked: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """What it reports is known only once it runs: its identity may state less than this, and be unwatched."""
    watched: Annotated[bool, Field(exclude_if=lambda value: value)] = True
    """It computes in processes of its own on this machine, so telemetry and energy are its own."""

    def stated_by(self, identity: EngineTraits | None) -> bool:
        """Whether an engine of these traits may have an identity with those."""
        if identity is None or not self.asked:
            return identity == self
        less = identity.model_copy(update={"tells": self.tells, "watched": self.watched})
        return less == self and set(identity.tells) <= set(self.tells)

    def method(self, name: str) -> MethodTraits | None:
        """The way of drafting of that name; None where the engine knows none."""
        return next((method for method in self.methods if method.name == name), None)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Fields of an arm that a method honours."""
        return method.parameters if (method := self.method(name)) is not None else ()

    def drafters(self, methods: tuple[str, ...]) -> set[str]:
        """Who drafts in an arm of these methods, as far as they are known."""
        return {found.drafter for name in methods if (found := self.method(name)) is not None}

    def by_rejection(self, arm: Arm) -> bool:
        """Whether drafts of an arm are verified by rejection sampling at temperature > 0."""
        rule = arm.rule or next(iter(self.rules), None)
        return rule == "rejection" or arm.draft_sampling == PROBABILISTIC


RefusedDraft = Literal["refuse", "measure"]

PolicyName = MethodName
"""Who decides how long drafts are, by the engine's own name."""

RuleName = MethodName
"""How drafts are verified at temperature > 0: `rejection` (rejection sampling), `sample-match` (draw the target's token
and compare), or a name of the engine's own."""

KvType = MethodName
"""Type of a KV cache, by the engine's own name."""


def _switch(value: object) -> object:
    """YAML reads a bare `on` as true."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


ALL_LAYERS = 100_000


def _layers(value: object) -> object:
    return ALL_LAYERS if value == "all" else value


Layers = Annotated[
    int,
    Field(ge=0, le=ALL_LAYERS),
    BeforeValidator(_layers, json_schema_input_type=Annotated[int, Field(ge=0, le=ALL_LAYERS)] | Literal["all"]),
]
"""As llama.cpp has it: a number, or `all`."""

FlashAttention = Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)]

ProbeSetting = Annotated[Literal["auto", "off", "always"], BeforeValidator(_switch)]

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
            f"{value[:100]!r} is neither HOST:PORT (192.168.0.103:50052) nor a relay (relay:0.5ms@1000Mbit)"
        )
    return value


Address = Annotated[str, AfterValidator(_address)]
"""`HOST:PORT`, the host a name or an IPv4 address (llama.cpp takes no other); or `relay:RTTms`, `relay:RTTms@RATEMbit`:
this machine, behind a relay with that round-trip time and bandwidth."""


USUAL_CONTEXT = 4096


class EngineSettings(Record):
    """Settings of the engine. A key left out keeps the engine's default, which is read back and stored."""

    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads. Default: all physical cores."""
    context: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    """Context length in tokens of both models. Default: what the longest prompt and output need."""
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
    gpu_layers: Layers | None = None
    """Layers of the target model on the GPU, or `all`. Default: the engine decides (all, if there is a GPU)."""
    draft_gpu_layers: Layers | None = None
    """Layers of the draft model on the GPU."""
    cpu_moe_layers: Layers | None = None
    """MoE layers of the target, from the first on, whose experts stay in the CPU's memory (`native`, `embedded`), or
    `all`: llama.cpp's -ncmoe and -cmoe."""
    draft_cpu_moe_layers: Layers | None = None
    """The same of the draft model."""
    override_tensors: tuple[str, ...] = ()
    """`PATTERN=DEVICE`: tensors of the target whose names match are kept there (llama.cpp's -ot)."""
    devices: tuple[str, ...] = ()
    """Devices of the target model, by the engine's names (`CUDA0`, `RPC0`). Default: the engine decides."""
    draft_devices: tuple[str, ...] = ()
    """Devices of the draft model."""
    rpc: Annotated[tuple[Address, ...], Field(max_length=16)] = ()
    """Machines with `ggml-rpc-server` (`native` only), called `RPC0`, `RPC1`, ... in `devices` and `draft_devices`;
    others are not used."""
    batch: Annotated[int, Field(ge=1)] | None = None
    """Logical batch size in tokens."""
    ubatch: Annotated[int, Field(ge=1)] | None = None
    """Physical batch size in tokens."""
    kv_unified: bool | None = None
    """One KV cache for all slots, which share its room, instead of one part for each."""
    mmap: bool | None = None
    """Map the model file instead of reading it."""
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Parallel sequences of the server; more than 1 shares the machine between requests."""
    prompt_cache: bool = False
    """Let the server reuse the KV cache of earlier requests."""
    trace_steps: bool = True
    """Record every step from the server's log (LLAMA_TRACE), baselines included."""
    stream_tokens: bool = True
    """Receive tokens one by one, with arrival times and the time to first token. Costs the engine up to 0.1 ms of CPU
    per token, which matters for a fast model on all cores."""
    extra_flags: tuple[str, ...] = ()
    """More flags for a native server, passed unchanged."""
    record_experts: bool = False
    """Record the experts that every step reads (`libllama` only). Slows decoding, so times are not comparable."""
    options: dict[str, Any] = {}
    """The engine's own settings; see its documentation."""

    @property
    def full_context(self) -> int:
        """Tokens of all slots together; the usual number where none was given or found out."""
        return USUAL_CONTEXT if self.context is None else self.context

    @property
    def slot_context(self) -> int:
        """Tokens that one request may have."""
        return self.full_context // self.slots


SAMPLING = ("top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "stop")
"""Fields of `Generation` that an engine need not have (`EngineTraits.sampling`)."""


class Generation(Record):
    """What is generated for each prompt.

    Where a sampling setting is None, the engine's own default holds, or what a found server was started with. In greedy
    decoding only penalties and stop words do anything.
    """

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Longest output in tokens; 256 if `ignore_eos` is on by default."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0 is greedy decoding."""
    top_k: Annotated[int, Field(ge=0)] | None = None
    """As in llama.cpp (default 40); 0: off."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """As in llama.cpp (default 0.95); 1: off."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """As in llama.cpp (default 0.05); 0: off."""
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    """As in llama.cpp; 1: off."""
    presence_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    """As in llama.cpp; 0: off."""
    frequency_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    """As in llama.cpp; 0: off."""
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=16)] = ()
    """Texts that end an output."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 2)] = 1
    """Seed of sampling. Every block has its own, made from this one and shared by all configurations. No effect at
    temperature 0."""
    ignore_eos: bool = False
    """Generate `max_tokens` tokens even if the model ends earlier. On by default if all targets are bench or mock
    models, or all prompts have an exact length."""

    @property
    def penalized(self) -> bool:
        """Whether tokens are chosen by more than the model's own scores, at temperature 0 as well."""
        return any((self.repeat_penalty not in (None, 1), self.presence_penalty, self.frequency_penalty))

    @property
    def filters(self) -> tuple[int, float, float]:
        """(top_k, top_p, min_p) of engines without defaults of their own: llama-server's, so that they compare."""
        k, p, share = self.top_k, self.top_p, self.min_p
        return 40 if k is None else k, 0.95 if p is None else p, 0.05 if share is None else share

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields among `SAMPLING` that are asked for."""
        return {name: value for name in SAMPLING if (value := getattr(self, name)) not in (None, ())}


class Slo(Record):
    """Limits a request must meet to count towards goodput."""

    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    """Longest time to first token."""
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    """Longest mean time per further token."""


class Load(Record):
    """How many requests an arm is given at once, and how much text stands before each."""

    clients: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Closed loop: this many clients, each of which sends its next request when its last one has ended."""
    rate: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """Open loop: requests per second, which arrive by a seeded Poisson process whether or not others have ended."""
    depth: Annotated[int, Field(ge=0, le=16_777_216)] = 0
    """Tokens of other text before each prompt, so that decoding begins that deep in the context."""
    requests: Annotated[int, Field(ge=1, le=1_000_000)]
    """Requests of a cell at least, those of its ramp and drain included: whole passes over the prompts, until there are
    as many, so that every load meets the same texts."""

    @model_validator(mode="after")
    def _one_kind(self) -> Load:
        if (self.clients is None) == (self.rate is None):
            raise ValueError("a load needs either clients or a rate")
        return self

    @property
    def label(self) -> str:
        """How ids of arms end: `c4`, `r0.5`, `c4/d512`."""
        arriving = f"c{self.clients}" if self.clients is not None else f"r{self.rate:g}"
        return f"{arriving}/d{self.depth}" if self.depth else arriving


class Arm(Record):
    """One configuration: a target, its drafting and the engine's settings."""

    id: str
    """Readable and unique within the experiment, for example `moe/draft-simple/small/g8`."""
    target: str
    """Name of the target in the experiment."""
    methods: Annotated[tuple[MethodName, ...], Field(min_length=1)] = (PLAIN,)
    """One method, or several if the engine can combine them."""
    draft: str | None = None
    """Name of the draft model in the experiment."""
    gamma: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Most draft tokens per step; None: the engine's default (read back)."""
    gamma_min: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Shorter drafts are discarded."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Drafting stops when the draft model's best probability is below this."""
    ngram_n: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Length of the n-gram that is looked up."""
    ngram_min_hits: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How often an n-gram must have been seen (`ngram-map-*`)."""
    synthetic_rates: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Synthetic acceptance with these per-position rates: a cost probe. A server's text is then meaningless;
    `libllama` plants errors into the target's own continuation, and its text keeps its meaning."""
    policy: PolicyName | None = None
    """The engine's own controller that chooses how long drafts are, up to gamma (`EngineTraits.policies`). None: always
    gamma, or fewer if `p_min` is set."""
    rule: RuleName | None = None
    """How drafts are verified at temperature > 0 (`libllama` only, default `rejection`; servers match samples)."""
    draft_sampling: Annotated[MethodName | None, Field(exclude_if=lambda value: value is None)] = None
    """How a draft model draws its tokens at temperature > 0: `greedy` (its best one; the target's sample is compared
    with it) or `probabilistic` (a sample, verified by rejection sampling)."""
    refused_draft: RefusedDraft = "refuse"
    """Whether a draft that llama.cpp would refuse stops the experiment, or is measured all the same: without
    speculation under another name, which is found invalid."""
    engine: EngineSettings = EngineSettings()
    role: Literal["baseline", "speculative", "control"] = "speculative"
    baseline_id: str | None = None
    """Id of its baseline; None for a baseline."""
    workloads: tuple[str, ...] = ()
    """Names of the workloads this arm runs; empty: all of them."""
    load: Annotated[Load | None, Field(exclude_if=lambda value: value is None)] = None
    """Parallel requests; None: one after another."""

    @property
    def speculates(self) -> bool:
        """Whether it drafts."""
        return self.methods != (PLAIN,)


def _absent(value: object) -> bool:
    return not value


class ToolCall(Record):
    """A call of a function that a model made."""

    name: str
    """Name of the function."""
    arguments: str
    """JSON as the model wrote it; it may be invalid."""
    id: Annotated[str, Field(exclude_if=_absent)] = ""
    """What the result refers to; servers draw it at random."""


class ChatMessage(Record):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning: Annotated[str, Field(exclude_if=_absent)] = ""
    """What an assistant thought before; a server's `reasoning_content`."""
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude_if=_absent)] = ()
    """Functions that an assistant called."""
    tool_call_id: Annotated[str, Field(exclude_if=_absent)] = ""
    """Of a result: the call that it answers."""

    @property
    def wire(self) -> dict[str, Any]:
        """As OpenAI-compatible servers take it."""
        told: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            told["reasoning_content"] = self.reasoning
        if self.tool_calls:
            told["tool_calls"] = [
                {"id": it.id, "type": "function", "function": {"name": it.name, "arguments": it.arguments}}
                for it in self.tool_calls
            ]
        if self.tool_call_id:
            told["tool_call_id"] = self.tool_call_id
        return told


class Turn(Record):
    """What a prompt is in a recorded session: a call of the model."""

    session: str
    """Name of the session."""
    number: Annotated[int, Field(ge=0)]
    """Place among the calls of the session, from 0."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Calls of the sessions that it stands for, itself included."""
    known: Annotated[int, Field(ge=0)] = 0
    """Messages at the beginning that the server had read or written when this one came."""
    cached: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of its prompt that was in the server's cache; None if the recording does not say."""
    reply: ChatMessage | None = None
    """What was answered; None if the recording does not say."""
    reply_tokens: Annotated[int, Field(ge=1)] | None = None
    """Length of that answer, as the server counted it."""
    wall_ms: Annotated[float, Field(ge=0)] | None = None
    """Time that it took."""


class Prompt(Record):
    """One workload item."""

    id: str
    """Unique within the experiment."""
    workload: str
    """Name of its workload."""
    kind: str
    """Prompt type: `fact`, `code`, `reason`, `zh`, `edit`, `length-256`, `user`, ..."""
    text: str
    """The user's turn, or the text to continue."""
    before: tuple[ChatMessage, ...] = ()
    """Earlier turns of the conversation; only for the format `chat`."""
    format: Literal["completion", "chat"] = "completion"
    """`completion`: the text is continued as it is; `chat`: the model's chat template is used."""
    thinking: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    """Value of `enable_thinking` in the chat template; None: the template's default."""
    sha256: str
    """SHA-256 of the UTF-8 text, or of earlier turns, tools and what the answer is held to with it."""
    token_count: int | None = None
    """Exact length in tokens (only for prompts of a requested length)."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Overrides `generation.max_tokens` for this prompt."""
    random_tokens: bool = False
    """Random tokens: fine for timing dense models, meaningless for acceptance."""
    of: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Under load: the prompt that this one repeats or extends; else None."""
    tools: Annotated[tuple[dict[str, Any], ...], Field(exclude_if=_absent)] = ()
    """Functions that the model may call, as OpenAI-compatible servers take them."""
    held: Annotated[dict[str, Any], Field(exclude_if=_absent)] = {}
    """What the answer is held to (`tool_choice`, `response_format`, ...), as the request had it."""
    turn: Annotated[Turn | None, Field(exclude_if=lambda value: value is None)] = None
    """What it is in a recorded session; None: it is none of one."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation for a chat template: what was said before, then the user's turn if `text` has one."""
        return [*(it.wire for it in self.before), *([{"role": "user", "content": self.text}] if self.text else ())]

    @property
    def said(self) -> str:
        """What a model without a chat template continues: the turns as paragraphs."""
        turns = [*(it.content for it in self.before if it.content), *([self.text] if self.text else ())]
        return "\n\n".join(turns)

    @property
    def template_arguments(self) -> dict[str, Any]:
        """The part of a request that sets arguments of the chat template; empty where its defaults hold."""
        thinking = {} if self.thinking is None else {"chat_template_kwargs": {"enable_thinking": self.thinking}}
        return thinking | ({"tools": list(self.tools)} if self.tools else {}) | self.held

    def digest(self) -> str:
        """What `sha256` has to be."""
        if not (self.before or self.tools or self.held):
            said = self.text
        else:
            more = [it for it in (self.tools, self.held) if it]
            said = json.dumps([self.messages, *more] if more else self.messages, ensure_ascii=False)
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
