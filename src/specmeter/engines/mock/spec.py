"""An engine without a model: a virtual clock, a cost model, an acceptance model, and faults on demand.

Cost. A target forward over n positions takes

    T(n) = base + token * n + expert * U(n),   U(n) = E (1 - (1 - K/E)^n)

ms, U being the experts touched under uniform routing (0 for a dense target); a step with g draft tokens takes
`draft_ms(g) + T(g + 1)`. Requests in flight share rounds: all sequences draft together, as long as the longest of their
drafts takes, and n counts the positions of all of them. A prompt adds its tokens to the round that it comes into.

Acceptance. Every token position of a text carries a die, thrown once per target, draft model and prompt; a draft token
at place j of its draft is accepted when the die falls below a_j, the acceptance rate of its kind of text. So, as in
greedy decoding, acceptance repeats exactly over blocks. The text depends on target and prompt alone. Its traits are
those of llama.cpp's engines, as it stands in for any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from specmeter.engines.llama_cpp.spec import KV_TYPES, METHODS, SERVER_TELLS, settings_without
from specmeter.engines.registry import EngineSpec, late
from specmeter.errors import ModelError
from specmeter.record import PARAMETERS, PROBABILISTIC, EngineTraits, ModelIdentity, Record

Rate = Annotated[float, Field(ge=0, le=1)]
Rates = Annotated[tuple[Rate, ...], Field(min_length=1)]
"""Acceptance rates given that all earlier tokens of the draft were accepted, by place; the last one repeats."""
Ms = Annotated[float, Field(ge=0, le=1e7)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Factor = Annotated[float, Field(gt=0, le=100)]
Bytes = Annotated[int, Field(ge=0, le=10**15)]

M = TypeVar("M", bound=Record)


class TargetModel(Record):
    """Costs of a target model. Default: a dense model at about 27 tok/s."""

    base_ms: Ms = 33.0
    token_ms: Ms = 4.0
    experts: Count = 1
    """Experts per layer; 1: dense."""
    top_k: Count = 1
    """Experts per token."""
    expert_ms: Ms = 0.0
    """Cost of reading one expert, of all layers."""
    prompt_token_ms: Ms = 2.0
    load_ms: Ms = 800.0
    size_bytes: Bytes = 400_000_000
    restore_ms: Ms = 0.0
    """Above 0: a recurrent model. Without `draft-mtp`, a step with a rejected token yields nothing and restores a
    checkpoint; the accepted tokens are verified again in the next step."""
    answer_tokens: Count = 200
    """Typical length of an output with `ignore_eos` off."""
    kernel: Annotated[tuple[Count, Factor] | None, Field(exclude_if=lambda value: value is None)] = None
    """`[8, 0.7]`: a forward over more than 8 positions takes 0.7 of its time, as another kernel would."""

    @model_validator(mode="after")
    def _takes_time(self) -> TargetModel:
        if not self.forward_ms(1) > 0:
            raise ValueError("a forward pass takes no time: set base_ms or token_ms above 0")
        return self

    def forward_ms(self, n: int) -> float:
        """Time of one forward over n positions."""
        touched = self.experts * (1 - (1 - self.top_k / self.experts) ** n) if self.experts > 1 else 0.0
        limit, factor = self.kernel or (n, 1.0)
        return (self.base_ms + self.token_ms * n + self.expert_ms * touched) * (factor if n > limit else 1.0)


class MockDrafter(Record):
    """Costs and acceptance of drafts."""

    token_ms: Ms
    """Time per draft token."""
    acceptance: dict[str, Rates] = Field(default_factory=dict[str, Rates])
    """Acceptance rates by prompt type."""
    other_acceptance: Rates
    """The same for all other types."""
    hits: dict[str, Rate] = Field(default_factory=dict[str, Rate])
    """How often there is a draft, by prompt type (n-grams)."""
    other_hits: Rate = 1.0
    load_ms: Ms = 0.0
    size_bytes: Bytes = 0

    def rates(self, kind: str) -> tuple[float, ...]:
        return self.acceptance.get(kind, self.other_acceptance)


FaultKind = Literal[
    "start-fails",
    "dies",
    "hangs",
    "garbage",
    "interrupt",
    "inactive",
    "decode-failed",
    "acceptance-stuck",
    "text-differs",
    "truncated",
]


class Fault(Record):
    """A fault, wherever all selectors match.

    start-fails: the session never becomes ready. dies, hangs: in mid-generation. garbage: an answer that cannot be
    parsed. interrupt: Ctrl-C. inactive: speculation silently off. decode-failed: half of the verifications fail and
    stale logits are sampled. acceptance-stuck: only fully accepted drafts are counted. text-differs: from the middle
    on. truncated: half of the tokens. The last five spare baselines, except truncated.
    """

    kind: FaultKind
    arm: str = "*"
    """Pattern of ids, as in a shell."""
    prompt: str = "*"
    """Pattern of prompt ids, including warm-ups."""
    block: int | None = None
    """Number of the server start, from 0. Default: all."""
    call: int | None = None
    """Number of the request, from 0, including warm-ups. Default: all."""


def _targets() -> dict[str, TargetModel]:
    moe = TargetModel(
        base_ms=0.8, token_ms=0.2, experts=64, top_k=4, expert_ms=1.44, prompt_token_ms=1.0, size_bytes=900_000_000
    )
    return {"dense": TargetModel(), "moe": moe}


def _drafts() -> dict[str, MockDrafter]:
    return {"small": MockDrafter(token_ms=0.8, other_acceptance=(0.8,), load_ms=50, size_bytes=2_000_000)}


class MockSpec(Record):
    """Settings of the mock engine. Default: a dense and an MoE target model, of which the dense one gains."""

    targets: dict[str, TargetModel] = Field(default_factory=_targets)
    """By NAME of `mock:NAME`."""
    drafts: dict[str, MockDrafter] = Field(default_factory=_drafts)
    """By NAME of `mock:NAME`."""
    heads: MockDrafter = MockDrafter(token_ms=1.5, other_acceptance=(0.85, 0.75, 0.65))
    """Drafting heads of the target model (`draft-mtp`)."""
    ngram: MockDrafter = MockDrafter(
        token_ms=0.001, acceptance={"edit": (0.95,)}, other_acceptance=(0.3,), hits={"edit": 0.9}, other_hits=0.01
    )
    """All n-gram methods."""
    noise: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Standard deviation of the logarithm of a request's duration."""
    block_drift: Annotated[float, Field(gt=-1, le=10)] = 0.0
    """How much slower each block is than the one before (0.02: 2%)."""
    stalls: Rate = 0.0
    """Share of requests that stall once."""
    stall_ms: Ms = 500.0
    """Length of a stall."""
    request_overhead_ms: Ms = 1.0
    """Time of a request besides prompt and decoding."""
    builds: dict[str, Factor] = Field(default_factory=dict[str, float], max_length=16)
    """Name -> how many times as slow as others the arms of this build are."""
    build: str | None = None
    """The build of an arm, by its name."""
    seed: int = 1
    faults: tuple[Fault, ...] = ()

    def target(self, reference: str) -> TargetModel:
        """The target of `mock:NAME`. Raises `ModelError`."""
        return _named(self.targets, reference, "target")

    def draft(self, reference: str) -> MockDrafter:
        """The draft model of `mock:NAME`. Raises `ModelError`."""
        return _named(self.drafts, reference, "draft")


def mock_model(name: str, reference: str, spec: MockSpec | None = None) -> ModelIdentity:
    """Identity of the target or draft `mock:NAME` under the experiment's `name`. Raises `ModelError`."""
    spec = spec or MockSpec()
    model = _named(spec.targets | spec.drafts, reference, "model")
    return ModelIdentity(
        name=name,
        reference=reference,
        path=reference,
        sha256=hashlib.sha256(f"{reference} {model.model_dump_json()}".encode()).hexdigest(),
        size_bytes=model.size_bytes,
        origin="mock",
    )


def _named(models: Mapping[str, M], reference: str, what: str) -> M:
    name = reference.removeprefix("mock:")
    if name not in models:
        raise ModelError(
            f"{reference}: the mock engine has no such {what}",
            fix=f"use one of {', '.join(f'mock:{known}' for known in models)}",
        )
    return models[name]


def _model(options: MockSpec, name: str, reference: str) -> ModelIdentity:
    """Any experiment can be tried out without its models (`--set engine.kind=mock`): each has one of its name."""
    if reference.startswith("mock:"):
        return mock_model(name, reference, options)
    if name not in options.targets | options.drafts:
        raise ModelError(
            f"{reference}: the mock engine has no model {name!r} to simulate it with",
            fix=f"use one of {', '.join(f'mock:{known}' for known in options.targets | options.drafts)} instead, or "
            "describe it under engine.mock.targets or engine.mock.drafts",
        )
    return mock_model(name, f"mock:{name}", options)


MOCK = EngineSpec(
    traits=EngineTraits(
        simulated=True,
        methods=tuple(method.model_copy(update={"parameters": tuple(PARAMETERS)}) for method in METHODS),
        combines_methods=True,
        rules=("sample-match", "rejection"),
        settings=settings_without(),
        kv_types=KV_TYPES,
        synthetic="random",
        compares_drafts=True,
        replays_sessions=True,
        draft_samplings=("greedy", PROBABILISTIC),
        tells=tuple(truth for truth in SERVER_TELLS if truth != "processes"),
    ),
    make=late("specmeter.engines.mock.engine:MockEngine"),
    model=_model,
    options=MockSpec,
)
