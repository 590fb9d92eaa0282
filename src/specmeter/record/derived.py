"""What is worked out beside the requests: margins, profiles, probes, experts, predictions, estimates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specmeter.record.base import Record
from specmeter.record.machine import Telemetry
from specmeter.record.spec import EngineSettings, KvType


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
    """Of a plain token: decode time over tokens after the first, the median request. Of several requests at once: of a
    step that emits a token for each of them."""
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
