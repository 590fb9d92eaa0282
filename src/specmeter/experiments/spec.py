"""Parts of an experiment file: the engine, a line of arms, what is left out, and how measurements are arranged."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from specmeter.engines.mock.spec import MockSpec
from specmeter.experiments.schedule import Order
from specmeter.record import (
    PARAMETERS,
    PLAIN,
    Arm,
    EngineSettings,
    Load,
    MethodName,
    PolicyName,
    ProbeSetting,
    Record,
    RefusedDraft,
    RuleName,
    Slo,
)
from specmeter.workloads.spec import Name

DRAFTING_AXES = (*PARAMETERS, "policy", "rule", "draft_sampling")
"""Fields of a line of arms that say how drafts are made, and may be lists."""


class ExperimentEngine(EngineSettings):
    """The engine and its settings, which `arms` may override."""

    kind: MethodName = "embedded"
    """`embedded`: llama.cpp's server from the installed wheel; `native`: a llama-server binary; `libllama`: specmeter's
    own loop on the wheel's library, with every step timed; `mock`: simulated; or an engine of another package
    (`specmeter engines` lists them)."""
    binary: str | None = None
    """Path of the llama-server binary (`native` only). Default: $SPECMETER_LLAMA_SERVER, the latest `specmeter engines
    build`, or the PATH."""
    start_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Longest time to load a model."""
    idle_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Longest time without a token before the engine counts as hung."""
    mock: MockSpec | None = None
    """Costs, acceptance and faults of the simulated engine."""

    @property
    def settings(self) -> EngineSettings:
        """The settings alone, without the choice of engine."""
        return EngineSettings(**{name: getattr(self, name) for name in EngineSettings.model_fields})

    @property
    def own_options(self) -> dict[str, Any]:
        """What the engine is made with: its own options, `binary` and `mock` among them, which have keys here."""
        named = {} if self.binary is None else {"binary": self.binary}
        simulated = {} if self.mock is None else {name: getattr(self.mock, name) for name in MockSpec.model_fields}
        return {**self.options, **named, **simulated}


class ArmSpec(Record):
    """Configurations to compare: lists are expanded into all combinations."""

    name: Name | None = None
    """Id of the configuration, as `TARGET/NAME`; then only `target` may be a list."""
    target: Name | tuple[Name, ...] | None = None
    """Names of target models. Default: all."""
    method: str | tuple[str, ...] = "draft-simple"
    """Drafting method, by the engine's name; combine methods with `+`, such as `ngram-mod+draft-simple`."""
    draft: Name | tuple[Name, ...] | None = None
    """Names of draft models. Default: all, for methods that need one."""
    gamma: int | tuple[int, ...] | None = None
    """Draft length: most draft tokens per step."""
    gamma_min: int | tuple[int, ...] | None = None
    """Shorter drafts are discarded (n-min)."""
    p_min: float | tuple[float, ...] | None = None
    """Drafting stops if the draft model's best probability is lower (p-min)."""
    ngram_n: int | tuple[int, ...] | None = None
    """Length of the n-gram to look up (n-match)."""
    ngram_min_hits: int | tuple[int, ...] | None = None
    """How often an n-gram must have occurred."""
    synthetic_rates: tuple[float, ...] = ()
    """Synthetic acceptance rates by position, to measure costs; never a result."""
    refused_draft: RefusedDraft = "refuse"
    """If llama.cpp refuses the draft model: `refuse` stops before measuring; `measure` continues without speculation,
    as the server does, and the result is invalid."""
    policy: PolicyName | tuple[PolicyName | None, ...] | None = None
    """The engine's controller of the draft length, up to gamma (ONNX Runtime: `adaptive`)."""
    rule: RuleName | tuple[RuleName | None, ...] | None = None
    """How drafts are verified at temperature > 0 (`libllama` only)."""
    draft_sampling: MethodName | tuple[MethodName | None, ...] | None = None
    """How a draft model draws its tokens at temperature > 0 (llama.cpp): `greedy`, the default, or `probabilistic`,
    which is verified by rejection sampling."""
    remote: Name | None = None
    """Run the draft model on this machine of `remotes`, on its first device."""
    engine: EngineSettings = EngineSettings()
    """Engine settings that differ from those of the experiment."""
    workloads: Name | tuple[Name, ...] | None = None
    """Names of workloads. Default: all."""
    baseline: Name | Literal[False] | None = None
    """Name of the baseline, a configuration without speculation. Default: an automatic one. `false`: none, so no
    speedup. On a configuration without speculation it makes a control."""

    @field_serializer("engine")
    def _only_what_is_changed(self, value: EngineSettings) -> dict[str, Any]:
        """A default must not come back from JSON as a change."""
        return value.model_dump(exclude_unset=True)

    @field_validator("method")
    @classmethod
    def _known_methods(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for method in as_tuple(value):
            split_methods(method)
        return value

    @model_validator(mode="after")
    def _one_arm_per_name(self) -> ArmSpec:
        for field in ("method", "draft", *DRAFTING_AXES):
            if self.name is not None and len(as_tuple(getattr(self, field))) > 1:
                raise ValueError(
                    f"{self.name!r} is the name of one arm, but {field} is a list; remove the name, or write one arm "
                    "per value"
                )
        if self.baseline and self.name is None and "none" in as_tuple(self.method):
            raise ValueError("an arm without speculation that has a baseline is a control and needs a `name`")
        return self


class Exclusion(Record):
    """Configurations that match all given fields are left out; a list matches any of its values."""

    target: str | tuple[str, ...] | None = None
    method: str | tuple[str, ...] | None = None
    draft: str | tuple[str, ...] | None = None
    gamma: int | tuple[int, ...] | None = None
    gamma_min: int | tuple[int, ...] | None = None
    p_min: float | tuple[float, ...] | None = None
    ngram_n: int | tuple[int, ...] | None = None
    ngram_min_hits: int | tuple[int, ...] | None = None
    policy: str | tuple[str, ...] | None = None
    rule: str | tuple[str, ...] | None = None
    draft_sampling: str | tuple[str, ...] | None = None

    def matches(self, arm: Arm) -> bool:
        """Whether every field that is set agrees with the arm."""
        given = {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}
        return bool(given) and all(_arm_value(arm, name) in as_tuple(value) for name, value in given.items())


class Constraint(Record):
    """Configurations that match `when` must match `require`; others are left out."""

    when: Exclusion
    require: Exclusion


def disturbed_by_default() -> Literal["repeat", "keep"]:
    """`keep` is for machines on which others are always busy, as those of continuous integration."""
    return "keep" if os.environ.get("SPECMETER_DISTURBED") == "keep" else "repeat"


MAX_INVOCATIONS = 2_000


class Design(Record):
    """Order and number of measurements."""

    blocks: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Repetitions of all configurations, each with its own baselines. Use 3 or more for a useful interval."""
    order: Order = "latin"
    """Order of configurations within blocks: `latin` balances position, `williams` also which runs before which,
    `random` shuffles, `as-written` keeps the file's order. `grouped` finishes one configuration before the next, as
    scripts do, which confounds configurations with time."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of the order; the same everywhere."""
    invocations: Annotated[int, Field(ge=1, le=MAX_INVOCATIONS)] = 1
    """Sessions: repetitions of all blocks, each in its own order."""
    warmup: Literal["full", "short", "brief", "prompts", "none"] = "short"
    """One unmeasured request per start of the server: like the measured ones, up to 256 tokens (`full`); 8 tokens after
    at most 512 tokens of a prompt (`short`); 8 tokens after a few words (`brief`: enough for decoding, not for the time
    to first token); or `none`. `prompts`: `brief`, and servers that an advice keeps read each prompt once before
    measuring, so only decoding is timed."""
    session: Literal["arm", "request", "run"] = "arm"
    """A fresh server per configuration and block (`arm`) or per request (`request`); or one llama.cpp server per
    configuration for all blocks (`run`), if memory allows: differences between servers are then not in the intervals.
    Methods that remember earlier requests always get a fresh server per block."""

    @property
    def reads_once(self) -> bool:
        """Whether prompts are read before anything is measured, so that decoding alone counts."""
        return (self.session, self.warmup) == ("run", "prompts")

    controls: bool = False
    """Add controls with synthetic acceptance (all or nothing accepted) and a second baseline."""
    probe: ProbeSetting = "auto"
    """Measure what steps cost before predicting, and let the draft model read the baseline's outputs: `auto` for at
    most a twentieth of the run's time and two baseline requests per configuration (never on the mock engine), `always`
    for two full rounds, or `off`."""

    disturbed: Literal["repeat", "keep"] = Field(default_factory=disturbed_by_default)
    """A block disturbed by other programs or by heat is excluded for all configurations and measured again
    (`repeat`; at most three times as many blocks in all), or it counts (`keep`). Default: $SPECMETER_DISTURBED, or
    `repeat`; a resumed run follows the variable, but excluded blocks stay excluded. A block is disturbed if other
    programs took 5% of the machine on average (one core if the engine uses all), or 10% in a fifth of the samples of
    the block or of one server (20% if that ran for less than 3 s); if a GPU was throttled in 5% of the samples; or if
    the processor's clock was a fifth lower for one server than for another with as many threads. Not with `grouped`."""
    wait_s: Annotated[float, Field(ge=0, le=3_600)] = 300
    """Longest wait for a calm machine before repeating disturbed blocks, in all."""
    repeat_s: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    """Most time for repeating disturbed blocks, in all. Default: no limit."""
    stopping: Literal["planned", "decided"] = "planned"
    """`planned`: after `blocks` blocks. `decided`: earlier, once the fastest configuration or the claims of a study are
    decided (only `specmeter advise` and `specmeter study run`)."""


Clients = Annotated[int, Field(strict=True, ge=1, le=10_000)]
ArrivalRate = Annotated[float, Field(ge=0.0001, le=100_000)]
Depth = Annotated[int, Field(ge=0, le=16_777_216)]
MAX_SLOTS = 64
"""Slots of a server, as `engine.slots` has it."""
OPEN_SLOTS = 8
"""Slots for requests that arrive by a rate, unless `load.slots` says otherwise."""


class LoadSpec(Record):
    """Loads for every configuration; lists are combined."""

    clients: Clients | Annotated[tuple[Clients, ...], Field(max_length=64)] = ()
    """Closed loop: numbers of clients. Each sends its next request when the last one has ended."""
    rate: ArrivalRate | Annotated[tuple[ArrivalRate, ...], Field(max_length=64)] = ()
    """Open loop: requests per second, from a seeded Poisson process, the same for all configurations of a block."""
    depth: Depth | Annotated[tuple[Depth, ...], Field(min_length=1, max_length=64)] = 0
    """Tokens of filler before each prompt. Alone: with one client."""
    rounds: Annotated[int, Field(ge=2, le=1_000)] = 4
    """Closed loop: least requests per client, rounded up to whole passes over the prompts. Uncounted filler requests
    come before and after."""
    requests: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Open loop: least requests, rounded up to whole passes over the prompts."""
    slots: Annotated[int, Field(ge=1, le=64)] | None = None
    """Requests that the engine works on at once. Default: the number of clients, up to 64; 8 for a rate. Other requests
    wait."""
    slo: Slo = Slo()
    """Limits a request must meet to count towards goodput. Default: none."""

    @field_validator("clients", "rate", "depth")
    @classmethod
    def _distinct(cls, value: Any) -> Any:
        if len(set(as_tuple(value))) < len(as_tuple(value)):
            raise ValueError("the same value is listed twice")
        return value

    @model_validator(mode="after")
    def _room_for_all(self) -> LoadSpec:
        most = max(as_tuple(self.clients), default=0)
        if self.slots is None and most > MAX_SLOTS:
            raise ValueError(
                f"clients: {most} clients exceed the maximum of {MAX_SLOTS} slots, so {most - MAX_SLOTS} requests "
                f"would always queue; to measure that, set slots: {MAX_SLOTS}"
            )
        return self

    def loads(self) -> tuple[Load, ...]:
        """Every load, in the order of the file."""
        clients, rates = as_tuple(self.clients), as_tuple(self.rate)
        if not clients and not rates:
            clients = (1,)
        return tuple(
            load
            for depth in as_tuple(self.depth)
            for load in (
                *(Load(clients=it, depth=depth, requests=it * self.rounds) for it in clients),
                *(Load(rate=it, depth=depth, requests=self.requests) for it in rates),
            )
        )


class Only(Record):
    """The part of an experiment to measure. Empty lists mean everything."""

    arms: tuple[str, ...] = ()
    """Ids of configurations, including baselines."""
    prompts: tuple[str, ...] = ()
    """Ids of prompts (`WORKLOAD/ITEM`)."""
    invocations: tuple[Annotated[int, Field(ge=0, lt=MAX_INVOCATIONS)], ...] = ()
    """Numbers of sessions, from 0; several machines share a run by them."""
    turns: Annotated[tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...], Field(max_length=1_000)] = ()
    """Ids of the prompts of each block, the same for all configurations; after the last list the first comes again."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value}


def split_methods(text: str) -> tuple[MethodName, ...]:
    """`ngram-mod+draft-simple` -> its methods, none twice. Which there are, the engine knows.

    Raises `ValueError` (which pydantic reports with the field).
    """
    parts = tuple(part.strip() for part in text.split("+"))
    if len(set(parts)) < len(parts) or (PLAIN in parts and len(parts) > 1):
        raise ValueError(f"method {text!r} cannot be combined like this; list each method once, and `none` only alone")
    return parts


def _arm_value(arm: Arm, name: str) -> Any:
    return "+".join(arm.methods) if name == "method" else getattr(arm, name)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Single values and lists alike."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
