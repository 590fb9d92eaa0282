"""Texts that prompts are made of: those that ship with the package, and cuts of an exact number of tokens.

`bench/` is for the bench models, `studies/` for real ones. Each folder holds one `KIND.jsonl` per kind, with `id`,
`kind` and `text` on every line, and `bench/heldout.txt`, plain text that the bench models were not trained on.
`studies/collections/NAME.jsonl` holds, in the same form, prompts that belong together. A choice of prompts depends on
the seed and the prompts' own ids only, so asking for more prompts keeps those that were chosen before.

If the token ids of a long text are cut after n tokens, their text, tokenized again by the engine, may come out longer
or shorter, because tokens merge differently at the cut. So every cut is tokenized again, moved until the count is n,
and refused if it never is. The same holds for a prompt behind other text, where decoding begins deep in the context.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import Any, Literal, NamedTuple

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage, Prompt, Turn
from specmeter.workloads.spec import ALL_KINDS


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
    tools: tuple[dict[str, Any], ...] = ()
    """Functions that the model may call."""
    held: Mapping[str, Any] = {}
    """What the answer is held to."""
    turn: Turn | None = None
    """Of a recorded session: which call of the model it is."""


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

    Raises `ExperimentError` when there are not this many.
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


PROMPTS = "bundled:prompts"
"""In place of a file: `natural_text`."""


def natural_text(part: slice = slice(FIRST)) -> str:
    """The first prompts of all kinds for real models, one after the other; or some of them, by their places."""
    return "\n".join(item.text for kind in ALL_KINDS for item in _of_kind("studies", kind)[:FIRST][part])


def halves(*, bench: bool) -> tuple[str, str]:
    """Text to fit something to, and other text of the same kinds to try it on."""
    if not bench:
        return natural_text(slice(1, None, 2)), natural_text(slice(0, None, 2))
    text = held_out_text()
    return text[: len(text) // 2], text[len(text) // 2 :]


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
