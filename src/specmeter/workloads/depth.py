"""Prompts behind other text, so that decoding begins deep in the context.

The number of tokens that come before a prompt is exact: text and prompt together have as many tokens more than the
prompt alone. Where tokens merge at the border or a character is cut, the cut moves until that holds.
"""

from __future__ import annotations

from hashlib import sha256

from specmeter.errors import ExperimentError
from specmeter.record import Prompt
from specmeter.workloads.length import BROKEN, CHARACTERS_PER_TOKEN, MOVES_PER_PLACE, PLACES_PER_PROMPT, Tokenizer

BETWEEN = "\n\n"
"""Stands between the other text and the prompt."""


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
        said = _joined(piece, prompt.text, depth, alone, tokenizer)
        if said is not None:
            made = prompt.model_copy(
                update={
                    "id": f"{prompt.id}@{depth}",
                    "of": prompt.of or prompt.id,
                    "text": said,
                    "token_count": depth + alone,
                }
            )
            return made.model_copy(update={"sha256": made.digest()})
    raise ExperimentError(
        f"load.depth: found no text of exactly {depth} tokens before prompt {prompt.id!r}", fix="try another depth"
    )


def _joined(piece: str, prompt: str, depth: int, alone: int, tokenizer: Tokenizer) -> str | None:
    ids = tokenizer.tokenize(piece)
    size, tried = depth, set[int]()
    while 0 < size <= len(ids) and size not in tried and len(tried) < MOVES_PER_PLACE:
        tried.add(size)
        said = tokenizer.detokenize(ids[:size]) + BETWEEN + prompt
        counted = len(tokenizer.tokenize(said)) - alone
        if counted == depth and BROKEN not in said.removesuffix(prompt):
            return said
        size += depth - counted or 1
    return None
