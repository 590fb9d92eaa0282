"""The prompts of a cell under load: as many as it has requests, each under an id of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmeter.record import Load, Prompt


def ids_under(prompt_ids: Sequence[str], load: Load | None) -> tuple[str, ...]:
    """Ids of a cell's prompts: whole passes over `prompt_ids`, until a load has its requests.

    `code/3` behind 512 tokens of other text is `code/3@512`, and `code/3#2` the second time.
    """
    if load is None or not prompt_ids:
        return tuple(prompt_ids)
    named = [f"{name}@{load.depth}" for name in prompt_ids] if load.depth else list(prompt_ids)
    passes = -(-load.requests // len(named))
    return tuple(name if number == 1 else f"{name}#{number}" for number in range(1, passes + 1) for name in named)


def prompts_under(prompts: Sequence[Prompt], load: Load | None) -> tuple[Prompt, ...]:
    """The prompts of a cell, those of `load.depth` with the other text before them already."""
    if load is None or not prompts:
        return tuple(prompts)
    ids = ids_under([prompt.of or prompt.id for prompt in prompts], load)
    return tuple(
        prompt if name == prompt.id else prompt.model_copy(update={"id": name, "of": prompt.of or prompt.id})
        for name, prompt in zip(ids, tuple(prompts) * (len(ids) // len(prompts)), strict=True)
    )


def first_id(prompt: Prompt) -> str:
    """What the same prompt is called in the first pass: `code/3@512` for `code/3@512#2`."""
    return prompt.id if prompt.of is None else prompt.of + prompt.id.removeprefix(prompt.of).partition("#")[0]


def first_pass(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """What `prompts_under` made the prompts of a cell from: each once."""
    once: dict[str, Prompt] = {}
    for prompt in prompts:
        once.setdefault(prompt.of or prompt.id, prompt)
    return tuple(once.values())
