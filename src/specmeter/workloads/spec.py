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
Paths = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(min_length=1, max_length=10_000),
    AfterValidator(_distinct),
]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
ALL_KINDS: tuple[Kind, ...] = ("fact", "code", "reason", "zh", "edit")


class WorkloadBase(Record):
    """What every source has."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Longest output for these prompts; overrides `generation.max_tokens`."""
    baseline_per_block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Run baselines on only this many prompts per block, in turn, and compare on those. Default: all."""
    thinking: bool | None = None
    """`off` or `on`: set `enable_thinking` of the model's chat template, and check every reply for it. Default: the
    template's. Only with format `chat`."""


class BenchWorkload(WorkloadBase):
    """Held-out text of the types that bench models were trained on; only for them."""

    source: Literal["bench"]
    name: Name = "bench"
    """Name for `workloads` in `arms`."""
    format: PromptFormat = "completion"
    """Continue the text, or use it as the user's turn in the chat template."""
    kinds: Kinds = ALL_KINDS
    """Prompt types."""
    per_kind: Annotated[int, Field(ge=1, le=1000)] = 2
    """Prompts of each type."""
    seed: Seed = 1
    """Selects the prompts."""


class StudiesWorkload(WorkloadBase):
    """Prompts for real models: the four types of published studies, and text to edit."""

    source: Literal["studies"]
    name: Name = "studies"
    """Name for `workloads` in `arms`."""
    format: PromptFormat = "chat"
    """Use the prompt as the user's turn in the chat template, or continue it."""
    collection: Literal["rtx3090-19", "moe-306-lengths"] | None = None
    """All prompts of one study, instead of some of each type."""
    kinds: Kinds = ALL_KINDS
    """Prompt types."""
    per_kind: Annotated[int, Field(ge=1, le=1000)] = 4
    """Prompts of each type."""
    seed: Seed = 1
    """Selects the prompts."""

    @model_validator(mode="after")
    def _whole_collection(self) -> Self:
        fields = type(self).model_fields
        chosen = [name for name in ("kinds", "per_kind", "seed") if getattr(self, name) != fields[name].default]
        if self.collection is not None and chosen:
            raise ValueError(f"a collection is always used as a whole; remove {' and '.join(chosen)}")
        return self


class LengthWorkload(WorkloadBase):
    """Prompts of an exact number of tokens, cut by the target's tokenizer."""

    source: Literal["length"]
    name: Name = "length"
    """Name for `workloads` in `arms`."""
    format: PromptFormat = "completion"
    """Continue the text, or put it into the chat template, which adds tokens."""
    lengths: Lengths = (32, 128, 512, 1024)
    """Tokens, without those that the engine adds at the start."""
    per_length: Annotated[int, Field(ge=1, le=1000)] = 1
    """Prompts of each length."""
    file: Annotated[str, Field(min_length=1)] | None = None
    """Text to cut, relative to the experiment file; `bundled:prompts`: prompts for real models. Default: text for bench
    models."""
    seed: Seed = 1
    """Selects the cuts."""


class FileWorkload(WorkloadBase):
    """Your own prompts."""

    source: Literal["file"]
    name: Name = "file"
    """Name for `workloads` in `arms`."""
    format: PromptFormat = "chat"
    """Use the prompt as the user's turn in the chat template, or continue it."""
    paths: Paths
    """Files, relative to the experiment file: `*.jsonl` and `*.json` with prompts or conversations, `*.csv` with column
    names in the first row (`prompt`, `kind`, ...); any other file is one prompt."""
    per_line: bool = False
    """Every line of those other files is a prompt."""
    count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Draw only this many prompts. Default: all."""
    seed: Seed = 1
    """Selects the prompts drawn."""
    kind: Name = "user"
    """Type of prompts that have none."""


class SessionsWorkload(WorkloadBase):
    """Recorded sessions: every call of the model is asked again, after what was really said before it."""

    source: Literal["sessions"]
    name: Name = "sessions"
    """Name for `workloads` in `arms`."""
    format: Literal["chat"] = "chat"
    """Always the chat template."""
    paths: Paths
    """Files of `specmeter record`, or conversations as others keep them, relative to the experiment file."""
    turns: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Ask only this many calls, which stand for all of them by depth and type. Default: all."""
    seed: Seed = 1
    """Selects the calls."""


class RandomWorkload(WorkloadBase):
    """An exact number of random tokens: for timing dense models; acceptance on them is meaningless."""

    source: Literal["random"]
    name: Name = "random"
    """Name for `workloads` in `arms`."""
    format: PromptFormat = "completion"
    """Continue the tokens, or put them into the chat template, which adds tokens."""
    lengths: Lengths = (128,)
    """Tokens, without those that the engine adds at the start."""
    per_length: Annotated[int, Field(ge=1, le=1000)] = 1
    """Prompts of each length."""
    seed: Seed = 1
    """Selects the tokens."""


WorkloadSpec = Annotated[
    BenchWorkload | StudiesWorkload | LengthWorkload | FileWorkload | SessionsWorkload | RandomWorkload,
    Field(discriminator="source"),
]
"""One entry of an experiment's `workloads`."""
