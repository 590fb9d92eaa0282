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

DRAFTING_AXES = (*PARAMETERS, "policy", "rule")
"""Fields of a line of arms that say how drafts are made, and may be lists."""


class ExperimentEngine(EngineSettings):
    """The engine of the experiment and its settings, which arms may override."""

    kind: MethodName = "embedded"
    """`embedded`: llama.cpp's server from the installed wheel; `native`: a llama-server binary; `libllama`: specmeter's
    own loop on the wheel's library, every step timed; `mock`: simulated; or any engine that another package brings
    (`specmeter engines` lists them)."""
    binary: str | None = None
    """Path of the llama-server binary (`native` only); default: $SPECMETER_LLAMA_SERVER, then what
    `specmeter engines build` made, then the PATH."""
    start_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Longest time a model may take to load."""
    idle_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """No token for this long means that the engine hangs."""
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
    """One line of arms: every list is expanded, and all combinations become arms."""

    name: Name | None = None
    """Names the arm: its id is `TARGET/NAME`. A named arm has single values, except for targets."""
    target: Name | tuple[Name, ...] | None = None
    """Targets by name; default: all of them."""
    method: str | tuple[str, ...] = "draft-simple"
    """The engine's name for the drafting method (llama.cpp's names for the default engine); combine with `+`, for
    example `ngram-mod+draft-simple`."""
    draft: Name | tuple[Name, ...] | None = None
    """Draft models by name, for methods that need one; default for those: all of them."""
    gamma: int | tuple[int, ...] | None = None
    """Most draft tokens per step."""
    gamma_min: int | tuple[int, ...] | None = None
    """Drafts shorter than this are discarded."""
    p_min: float | tuple[float, ...] | None = None
    """Drafting stops when the draft model's best probability falls below this."""
    ngram_n: int | tuple[int, ...] | None = None
    """Length of the n-gram looked up."""
    ngram_min_hits: int | tuple[int, ...] | None = None
    """How often an n-gram must have been seen."""
    synthetic_rates: tuple[float, ...] = ()
    """Synthetic acceptance with these rates per position: a cost probe, never a result."""
    refused_draft: RefusedDraft = "refuse"
    """What to do with a draft that llama.cpp refuses: `refuse` stops before anything is measured; `measure` lets the
    server decode without speculation, as it then does, to show that; such an arm's verdict is invalid."""
    policy: PolicyName | tuple[PolicyName | None, ...] | None = None
    """The engine's own controller that chooses the length of drafts, up to gamma (ONNX Runtime: `adaptive`)."""
    rule: RuleName | tuple[RuleName | None, ...] | None = None
    """How drafts are verified at temperature > 0 (engine `libllama` only)."""
    remote: Name | None = None
    """Place the draft on this machine (a name from `remotes`), on its first device."""
    engine: EngineSettings = EngineSettings()
    """Engine settings that these arms change; others stay as in the whole experiment."""
    workloads: Name | tuple[Name, ...] | None = None
    """Run only these workloads; default: all."""
    baseline: Name | Literal[False] | None = None
    """Compare with the plain arm of this name instead of an automatic baseline; `false`: with nothing, so that there is
    no speedup. A plain arm with a baseline is a control."""

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
    """Arms for which every given field matches are left out; a list matches any of its values."""

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

    def matches(self, arm: Arm) -> bool:
        """Whether every field that is set agrees with the arm."""
        given = {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}
        return bool(given) and all(_arm_value(arm, name) in as_tuple(value) for name, value in given.items())


class Constraint(Record):
    """Where `when` matches an arm, `require` must match too; other arms are left out."""

    when: Exclusion
    require: Exclusion


def disturbed_by_default() -> Literal["repeat", "keep"]:
    """`keep` is for machines on which others are always busy, as those of continuous integration."""
    return "keep" if os.environ.get("SPECMETER_DISTURBED") == "keep" else "repeat"


MAX_INVOCATIONS = 2_000


class Design(Record):
    """How measurements are arranged in time."""

    blocks: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Passes over all arms; each block has its own baselines. Use at least 3 for a useful interval."""
    order: Order = "latin"
    """Order of arms within blocks: `latin` balances position, `williams` also which arm runs before which, `random`
    shuffles, `as-written` keeps the file's order. `grouped` measures all blocks of an arm before those of the next, as
    scripts do: that confounds arms with time."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of the order; the same seed gives the same schedule everywhere."""
    invocations: Annotated[int, Field(ge=1, le=MAX_INVOCATIONS)] = 1
    """Repetitions of all blocks, each with its own order."""
    warmup: Literal["full", "short", "brief", "prompts", "none"] = "short"
    """One unmeasured request per session: of the measured shape, up to 256 tokens (`full`), of 8 tokens after no more
    than 512 tokens of a prompt (`short`), of 8 tokens after a few words (`brief`: enough for decoding, not for the time
    to the first token), or none. `prompts` is `brief`, and servers that an advice keeps read each prompt once,
    unmeasured: requests continue from there, and only decoding is measured."""
    session: Literal["arm", "request", "run"] = "arm"
    """A fresh server per arm and block (`arm`), or for every single request (`request`); or a llama.cpp server for all
    blocks of an arm (`run`), warmed up once, where memory holds all of them: what differs between servers of one arm is
    then no part of an interval. Arms that look up n-grams in earlier requests have fresh ones per block even so: what
    they keep within a block is measured."""

    @property
    def reads_once(self) -> bool:
        """Whether prompts are read before anything is measured, so that decoding alone counts."""
        return (self.session, self.warmup) == ("run", "prompts")

    controls: bool = False
    """Add synthetic-acceptance controls (everything accepted, nothing accepted) and a second baseline."""
    probe: ProbeSetting = "auto"
    """Measure what steps cost before the first arm of a draft model is predicted, and let it read the baseline's texts,
    in at most a twentieth of the run's time and two requests of the baseline for each arm, but at least coarsely
    (`auto`; never where the engine is simulated), two rounds whatever they take (`always`), or not (`off`)."""

    disturbed: Literal["repeat", "keep"] = Field(default_factory=disturbed_by_default)
    """What becomes of a block in which other programs were busy, or heat slowed a GPU or the processor down: it is set
    aside whole, for all arms, and measured again (`repeat`; at most three times as many blocks in all), or it counts
    (`keep`). The default is that of the environment variable SPECMETER_DISTURBED, else `repeat`; a run that is resumed
    follows the variable again, and what was excluded stays so.
    Telemetry alone decides: others took 5% of the machine in the mean (one core, where the engine takes all) or 10% in
    a fifth of the samples, of the block or of a session (of a session shorter than three seconds 20%); a GPU was slowed
    in 5% of them; or the processor's clock was a fifth lower in one session than in another with as many threads. A
    `grouped` order has no such blocks."""
    wait_s: Annotated[float, Field(ge=0, le=3_600)] = 300
    """Longest wait for a calm machine, before blocks that are measured again: for all of them together."""
    repeat_s: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    """Time that disturbed blocks may take in all; further ones are given up. None: any."""
    stopping: Literal["planned", "decided"] = "planned"
    """When there are enough blocks: after as many as are planned, or, at `blocks` at the latest, as soon as those that
    were measured decide which arm is the fastest, or the claims of a study (`decided`; only `specmeter advise` and
    `specmeter study run` measure like that)."""


Clients = Annotated[int, Field(strict=True, ge=1, le=10_000)]
ArrivalRate = Annotated[float, Field(ge=0.0001, le=100_000)]
Depth = Annotated[int, Field(ge=0, le=16_777_216)]
MAX_SLOTS = 64
"""Slots of a server, as `engine.slots` has it."""
OPEN_SLOTS = 8
"""Slots for requests that arrive by a rate, unless `load.slots` says otherwise."""


class LoadSpec(Record):
    """Loads under which every line of arms is measured; of two lists all combinations."""

    clients: Clients | Annotated[tuple[Clients, ...], Field(max_length=64)] = ()
    """Closed loop: numbers of clients, each of which sends its next request when its last one has ended."""
    rate: ArrivalRate | Annotated[tuple[ArrivalRate, ...], Field(max_length=64)] = ()
    """Open loop: requests per second, by a seeded Poisson process; the same arrivals for every arm of a block."""
    depth: Depth | Annotated[tuple[Depth, ...], Field(min_length=1, max_length=64)] = 0
    """Tokens of other text before each prompt. Alone, with one client."""
    rounds: Annotated[int, Field(ge=2, le=1_000)] = 4
    """Closed loop: requests of each client in a cell, at least; whole passes over the prompts are made. Before its
    first and behind its last one a client sends fillers, which do not count."""
    requests: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Open loop: requests of a cell, at least; whole passes over the prompts are made."""
    slots: Annotated[int, Field(ge=1, le=64)] | None = None
    """Requests that the engine works on at once; none: as many as clients, up to 64, and 8 for a rate. Further
    requests wait."""
    slo: Slo = Slo()
    """What a request has to keep to count towards goodput; nothing: each counts that is answered."""

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
    """The part of an experiment that is measured."""

    arms: tuple[str, ...] = ()
    """Ids of arms, baselines among them; empty: all."""
    prompts: tuple[str, ...] = ()
    """Ids of prompts (`WORKLOAD/ITEM`); empty: all."""
    invocations: tuple[Annotated[int, Field(ge=0, lt=MAX_INVOCATIONS)], ...] = ()
    """Numbers of invocations, from 0, as the parts of a run on several machines have them; empty: all."""
    turns: Annotated[tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...], Field(max_length=1_000)] = ()
    """Ids of the prompts of each block, the same for all arms; after the last one the first comes again. Empty: each
    block has all prompts."""

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
