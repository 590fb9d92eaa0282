"""Prompts that ship with the package: `bench/` for the bench models, `studies/` for real ones.

Each folder holds one `KIND.jsonl` per kind, with `id`, `kind` and `text` on every line, and `bench/heldout.txt`, plain
text that the bench models were not trained on. `studies/collections/NAME.jsonl` holds, in the same form, prompts that
were written for one study and belong together. A choice of prompts depends on the seed and the prompts' own ids only,
so asking for more prompts keeps those that were chosen before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Literal

from specmeter.errors import ExperimentError
from specmeter.workloads.spec import ALL_KINDS, Item

Folder = Literal["bench", "studies"]


def packaged(folder: Folder, kinds: Sequence[str], per_kind: int, seed: int) -> Iterator[Item]:
    """`per_kind` prompts of each kind, kinds as given and prompts in the order of their file.

    Raises `ExperimentError` when there are not so many.
    """
    for kind in kinds:
        items = _of_kind(folder, kind)
        if per_kind > len(items):
            raise ExperimentError(
                f"workloads: per_kind is {per_kind}, but source {folder} has {len(items)} prompts of kind {kind}",
                fix=f"set per_kind to {len(items)} or less",
            )
        yield from drawn(items, per_kind, seed)


def drawn(items: Sequence[Item], count: int | None, seed: int) -> Sequence[Item]:
    """`count` of them, in their order; which, depends on the seed and their own ids only. None: all."""
    if count is None:
        return items
    chosen = {item.id for item in sorted(items, key=lambda item: _draw(seed, item.id))[:count]}
    return [item for item in items if item.id in chosen]


def collection(name: str) -> Iterator[Item]:
    """All prompts that were written for one study, in the order of their file."""
    yield from _of_kind("studies", f"collections/{name}")


def held_out_text() -> str:
    """Text of all bench kinds, from which length-controlled prompts are cut."""
    return _read("bench", "heldout.txt")


def natural_text() -> str:
    """The prompts of all kinds for real models, one after the other."""
    return "\n".join(item.text for kind in ALL_KINDS for item in _of_kind("studies", kind))


def sample_text() -> str:
    """A little of every kind of text, natural and bench, to see which tokens a tokenizer uses."""
    return f"{natural_text()}\n{held_out_text()[:20_000]}"


def _of_kind(folder: Folder, kind: str) -> list[Item]:
    return [Item(**json.loads(line)) for line in _read(folder, f"{kind}.jsonl").splitlines()]


def _draw(seed: int, item_id: str) -> bytes:
    return sha256(f"{seed}:{item_id}".encode()).digest()


def _read(folder: Folder, name: str) -> str:
    return (files("specmeter.workloads") / folder / name).read_text(encoding="utf-8")
