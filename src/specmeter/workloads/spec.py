"""What an experiment file says about prompts: one small model per source, distinguished by `source`.

workloads:
  - {source: bench, kinds: [fact, edit], per_kind: 4}
  - {source: length, lengths: [32, 256, 1024]}
  - {source: file, name: mine, paths: [prompts.jsonl]}

Texts that prompts are made of: those that ship with the package, and cuts of an exact number of tokens.

`bench/` is for the bench models, `studies/` for real ones. Each folder holds one `KIND.jsonl` per kind, with `id`,
`kind` and `text` on every line, and `bench/heldout.txt`, plain text that the bench models were not trained on.
`studies/collections/NAME.jsonl` holds, in the same form, prompts that were written for one study and belong together. A
choice of prompts depends on the seed and the prompts' own ids only, so asking for more prompts keeps those that were
chosen before.

Cutting the token ids of a long text after n tokens is not enough: their text, tokenized again by the engine, may come
out longer or shorter, because tokens merge differently at the cut, a character is split, or a tokenizer adds and drops
a space at the start. So every cut is tokenized again, moved until the count is n, and refused if it never is. The same
holds for a prompt behind other text, where decoding begins deep in the context: text and prompt together have exactly
as many tokens more than the prompt alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage, Prompt, Record
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
            raise ValueError(f"a collection is taken as a whole; leave {' and '.join(chosen)} out")
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
    """Only so many of the prompts, drawn by `seed`; none: all."""
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


class Item(NamedTuple):
    """What a source gives for one prompt, before it is named within its workload and hashed."""

    id: str
    """Unique within the workload."""
    kind: str
    text: str
    max_tokens: int | None = None
    token_count: int | None = None
    """Exact length by the target's tokenizer, where it was asked for."""
    random_tokens: bool = False
    before: tuple[ChatMessage, ...] = ()
    """Of a conversation: what was said before its last turn of the user."""


Folder = Literal["bench", "studies"]

BROKEN = "\ufffd"
"""What a detokenizer writes for half a character."""
PLACES_PER_PROMPT = 50
"""Places of the text that are tried before giving up on a prompt."""
MOVES_PER_PLACE = 12
CHARACTERS_PER_TOKEN = 24
"""So much text is tokenized for each token wanted; ordinary text has 1 to 5."""
VOCABULARY = 512
"""Different tokens that random prompts are made of: enough for timing, and few enough to look at one by one."""

FIRST = 6
"""Prompts of a kind for real models that were there from the beginning."""

BETWEEN = "\n\n"
"""Stands between the other text and the prompt."""


def packaged(folder: Folder, kinds: Sequence[str], per_kind: int, seed: int) -> Iterator[Item]:
    """`per_kind` prompts of each kind, kinds as given and prompts in the order of their file. Prompts that were added
    later come after all `FIRST` ones, so that an experiment of few prompts keeps those that it had.

    Raises `ExperimentError` when there are not so many.
    """
    for kind in kinds:
        items = _of_kind(folder, kind)
        if per_kind > len(items):
            raise ExperimentError(
                f"workloads: per_kind is {per_kind}, but source {folder} has {len(items)} prompts of kind {kind}",
                fix=f"set per_kind to {len(items)} or less",
            )
        first = len(items) if folder == "bench" else FIRST
        yield from drawn(items[:first], min(per_kind, first), seed)
        yield from drawn(items[first:], max(0, per_kind - first), seed)


def drawn(items: Sequence[Item], count: int | None, seed: int) -> Sequence[Item]:
    """`count` of them, in their order; which, depends on the seed and their own ids only. None: all."""
    if count is None:
        return items
    chosen = {item.id for item in sorted(items, key=lambda it: sha256(f"{seed}:{it.id}".encode()).digest())[:count]}
    return [item for item in items if item.id in chosen]


def collection(name: str) -> Iterator[Item]:
    """All prompts that were written for one study, in the order of their file."""
    yield from _of_kind("studies", f"collections/{name}")


def held_out_text() -> str:
    """Text of all bench kinds, from which length-controlled prompts are cut."""
    return _read("bench", "heldout.txt")


def natural_text() -> str:
    """The first prompts of all kinds for real models, one after the other."""
    return "\n".join(item.text for kind in ALL_KINDS for item in _of_kind("studies", kind)[:FIRST])


def sample_text() -> str:
    """A little of every kind of text, natural and bench, to see which tokens a tokenizer uses."""
    return f"{natural_text()}\n{held_out_text()[:20_000]}"


def _of_kind(folder: Folder, kind: str) -> list[Item]:
    return [Item(**json.loads(line)) for line in _read(folder, f"{kind}.jsonl").splitlines()]


def _read(folder: Folder, name: str) -> str:
    return (files("specmeter.workloads") / folder / name).read_text(encoding="utf-8")


class Tokenizer(NamedTuple):
    """The target's tokenizer."""

    tokenize: Callable[[str], tuple[int, ...]]
    """Text -> token ids, without special tokens added."""
    detokenize: Callable[[tuple[int, ...]], str]
    """Token ids -> text."""


def cut(text: str, count: int, tokenizer: Tokenizer, after: str = "") -> str | None:
    """The start of `text`, with `after` behind it, that has exactly `count` tokens more than `after` alone; None when
    no cut has, or when the text is too short."""
    ids = tokenizer.tokenize(text)
    besides = len(tokenizer.tokenize(after)) if after else 0
    between = BETWEEN if after else ""
    size, tried = count, set[int]()
    while 0 < size <= len(ids) and size not in tried and len(tried) < MOVES_PER_PLACE:
        tried.add(size)
        start = tokenizer.detokenize(ids[:size])
        counted = len(tokenizer.tokenize(start + between + after)) - besides
        if counted == count and (BROKEN not in start or BROKEN in text):
            return start + between + after
        size += count - counted or 1
    return None


def cut_lengths(
    text: str, lengths: Sequence[int], per_length: int, seed: int, tokenizer: Tokenizer, place: str
) -> Iterator[Item]:
    """Prompts of each length, beginning at different lines of `text` (at any character where lines are few).

    `place` names the text in messages. Raises `ExperimentError` when a length cannot be reached.
    """
    starts = [0, *(index + 1 for index, character in enumerate(text[:-1]) if character == "\n")]
    if len(starts) < PLACES_PER_PROMPT:
        starts = list(range(len(text)))
    for length in lengths:
        order = random.Random(f"{seed}:{length}").sample(starts, len(starts))
        pieces = (text[start : start + CHARACTERS_PER_TOKEN * length] for start in order)
        for index, prompt in enumerate(_cut_several(pieces, length, per_length, tokenizer, place)):
            yield Item(f"{length}-{index}", f"length-{length}", prompt, token_count=length)


def random_lengths(lengths: Sequence[int], per_length: int, seed: int, tokenizer: Tokenizer) -> Iterator[Item]:
    """Prompts of random tokens, drawn evenly from those that occur in a sample of ordinary text.

    Tokens that are not whole characters are left out. Raises `ExperimentError` when a length cannot be reached.
    """
    known = sorted(set(tokenizer.tokenize(sample_text())))
    drawn = random.Random(f"{seed}").sample(known, min(len(known), VOCABULARY))
    usable = [token for token in drawn if BROKEN not in tokenizer.detokenize((token,))]
    for length in lengths:
        pieces = _random_texts(usable, 2 * length + 64, random.Random(f"{seed}:{length}"), tokenizer)
        texts = _cut_several(pieces, length, per_length, tokenizer, "random tokens")
        for index, prompt in enumerate(texts):
            yield Item(f"{length}-{index}", f"random-{length}", prompt, token_count=length, random_tokens=True)


def _random_texts(usable: Sequence[int], count: int, rng: random.Random, tokenizer: Tokenizer) -> Iterator[str]:
    """Texts of `count` tokens drawn from `usable`; longer than needed, since neighbours may merge."""
    while usable:
        yield tokenizer.detokenize(tuple(rng.choices(usable, k=count)))


def _cut_several(
    pieces: Iterable[str], length: int, per_length: int, tokenizer: Tokenizer, place: str
) -> Iterable[str]:
    """`per_length` different prompts of `length` tokens, from the first pieces that allow it."""
    texts: dict[str, None] = {}
    for piece in islice(pieces, PLACES_PER_PROMPT * per_length):
        text = cut(piece, length, tokenizer)
        if text is not None:
            texts[text] = None
        if len(texts) == per_length:
            return texts
    raise ExperimentError(
        f"workloads: found {len(texts)} of {per_length} prompts of exactly {length} tokens in {place}",
        fix="use a longer text, a smaller length, or a smaller per_length",
    )


def behind(prompt: Prompt, depth: int, text: str, tokenizer: Tokenizer) -> Prompt:
    """The prompt with exactly `depth` tokens of `text` before what it says, beginning at a line of its own choice;
    `text` is repeated where it is too short. Raises `ExperimentError` where no place of it gives that number."""
    alone = len(tokenizer.tokenize(prompt.text))
    lines = [0, *(at + 1 for at, it in enumerate(text[:-1]) if it == "\n")]
    first = int.from_bytes(sha256(f"{prompt.id}@{depth}".encode()).digest()[:8], "big")
    wanted = CHARACTERS_PER_TOKEN * (depth + MOVES_PER_PLACE)
    for place in range(PLACES_PER_PROMPT):
        start = lines[(first + place) % len(lines)]
        around = text[start:] + "\n" + text
        piece = (around * (1 + wanted // len(around)))[:wanted]
        said = cut(piece, depth, tokenizer, prompt.text)
        if said is not None:
            named = {"id": f"{prompt.id}@{depth}", "of": prompt.of or prompt.id}
            made = prompt.model_copy(update={**named, "text": said, "token_count": depth + alone})
            return made.model_copy(update={"sha256": made.digest()})
    raise ExperimentError(
        f"load.depth: found no text of exactly {depth} tokens before prompt {prompt.id!r}", fix="try another depth"
    )
