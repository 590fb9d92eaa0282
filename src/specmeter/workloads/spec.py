"""What an experiment file says about prompts: one small model per source, distinguished by `source`.

workloads:
  - {source: bench, kinds: [fact, edit], per_kind: 4}
  - {source: length, lengths: [32, 256, 1024]}
  - {source: file, name: mine, paths: [prompts.jsonl]}"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from specmeter.record import Record
from specmeter.record.base import NAME_PATTERN

Kind = Literal["fact", "code", "reason", "zh", "edit"]
"""Short factual questions, code, long reasoning, Chinese, and text that is mostly copied from the prompt."""

STRUCTURED = (".jsonl", ".json", ".csv")
"""Endings of files that hold several prompts; of others each line is one, or the whole."""

PromptFormat = Literal["completion", "chat"]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]

T = TypeVar("T", bound=Hashable)


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        raise ValueError("the same value is listed twice")
    return values


Kinds = Annotated[tuple[Kind, ...], Field(min_length=1), AfterValidator(_distinct)]
Lengths = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], Field(min_length=1, max_length=64), AfterValidator(_distinct)
]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
ALL_KINDS: tuple[Kind, ...] = ("fact", "code", "reason", "zh", "edit")


class WorkloadBase(Record):
    """What every source has."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens to generate for these prompts; overrides `generation.max_tokens`."""
    baseline_per_block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Baselines run only this many of these prompts per block, in turn, and are compared on those; none: all."""
    thinking: bool | None = None
    """`off` or `on`: switches the reasoning of the model's chat template, by its argument `enable_thinking`, and looks
    in every reply whether it was so; none: the template's own default. Only where the format is `chat`."""


class BenchWorkload(WorkloadBase):
    """Held-out text of the kinds that the bench models were trained on; it suits only them."""

    source: Literal["bench"]
    name: Name = "bench"
    """For arms that run only some workloads."""
    format: PromptFormat = "completion"
    """Continue the text as it is, or put it into the model's chat template as the user's turn."""
    kinds: Kinds = ALL_KINDS
    """Kinds of text."""
    per_kind: Annotated[int, Field(ge=1, le=1000)] = 2
    """Prompts of each kind."""
    seed: Seed = 1
    """Which of the prompts are taken."""


class StudiesWorkload(WorkloadBase):
    """Prompts for real models: the four kinds that published studies use, and text to edit."""

    source: Literal["studies"]
    name: Name = "studies"
    """For arms that run only some workloads."""
    format: PromptFormat = "chat"
    """Put the prompt into the model's chat template as the user's turn, or continue it as it is."""
    collection: Literal["rtx3090-19", "moe-306-lengths"] | None = None
    """All prompts written for one study, instead of some of each kind."""
    kinds: Kinds = ALL_KINDS
    """Kinds of text."""
    per_kind: Annotated[int, Field(ge=1, le=1000)] = 4
    """Prompts of each kind."""
    seed: Seed = 1
    """Which of the prompts are taken."""

    @model_validator(mode="after")
    def _whole_collection(self) -> Self:
        fields = type(self).model_fields
        chosen = [name for name in ("kinds", "per_kind", "seed") if getattr(self, name) != fields[name].default]
        if self.collection is not None and chosen:
            raise ValueError(f"a collection is always used as a whole; remove {' and '.join(chosen)}")
        return self


class LengthWorkload(WorkloadBase):
    """Prompts of an exact number of tokens, cut by the target's own tokenizer."""

    source: Literal["length"]
    name: Name = "length"
    """For arms that run only some workloads."""
    format: PromptFormat = "completion"
    """Continue the text as it is, or put it into the model's chat template, whose tokens come on top."""
    lengths: Lengths = (32, 128, 512, 1024)
    """Numbers of tokens, not counting those that the engine adds at the start."""
    per_length: Annotated[int, Field(ge=1, le=1000)] = 1
    """Prompts of each length, cut from different places of the text."""
    file: Annotated[str, Field(min_length=1)] | None = None
    """Text to cut from, relative to the experiment file; none: held-out text of the bench models."""
    seed: Seed = 1
    """Where the cuts begin."""


class FileWorkload(WorkloadBase):
    """The user's own prompts."""

    source: Literal["file"]
    name: Name = "file"
    """For arms that run only some workloads."""
    format: PromptFormat = "chat"
    """Put the prompt into the model's chat template as the user's turn, or continue it as it is."""
    paths: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(min_length=1, max_length=10_000),
        AfterValidator(_distinct),
    ]
    """Files, relative to the experiment file: `*.jsonl` and `*.json` hold prompts or conversations, `*.csv` a table
    whose first row names its columns (`prompt`, `kind`, ...); any other file is one prompt."""
    per_line: bool = False
    """Every line of those other files is a prompt."""
    count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Only this many of the prompts, drawn by `seed`; none: all."""
    seed: Seed = 1
    """Which of the prompts are drawn."""
    kind: Name = "user"
    """Kind of prompts that do not name one."""


class RandomWorkload(WorkloadBase):
    """An exact number of random tokens: good for timing dense models, but acceptance on them is meaningless."""

    source: Literal["random"]
    name: Name = "random"
    """For arms that run only some workloads."""
    format: PromptFormat = "completion"
    """Continue the tokens as they are, or put them into the model's chat template, whose tokens come on top."""
    lengths: Lengths = (128,)
    """Numbers of tokens, not counting those that the engine adds at the start."""
    per_length: Annotated[int, Field(ge=1, le=1000)] = 1
    """Prompts of each length."""
    seed: Seed = 1
    """Which tokens are drawn."""


WorkloadSpec = Annotated[
    BenchWorkload | StudiesWorkload | LengthWorkload | FileWorkload | RandomWorkload, Field(discriminator="source")
]
"""One entry of an experiment's `workloads`."""
