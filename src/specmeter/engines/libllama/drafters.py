"""Where drafted tokens come from: a draft model, n-grams of the text itself, or an oracle with planted errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from specmeter.errors import ExperimentError
from specmeter.llama_binding.context import Forward, extending
from specmeter.llama_binding.sampling import best, confidence, draw, probabilities

if TYPE_CHECKING:
    from specmeter.engines.llama_cpp.draft_rules import NgramLookup
    from specmeter.llama_binding.context import Checkpoint, TokenSequence, Work
    from specmeter.llama_binding.sampling import Floats
    from specmeter.record import Generation


class Draft(NamedTuple):
    """Tokens that may follow."""

    tokens: list[int]
    probabilities: list[Floats] | None = None
    """What each token was drawn from, shape (vocabulary,) each; None where they were chosen, not drawn."""


NOTHING = Draft([])


class Drafter(Protocol):
    """Makes drafts for one sequence after the other."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Another sequence begins with `prompt`."""
        ...

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        """At most `most` >= 1 tokens after `history`: the prompt and what was generated, the last token included.

        What a draft model has to compute is asked for (`context.Work`), so that drafts of several texts can be made
        together.
        """
        ...


class ModelDrafter:
    """A draft model, its memory kept in step with the text."""

    def __init__(
        self,
        memory: TokenSequence,
        vocabulary_size: int,
        generation: Generation,
        *,
        drawn: np.random.Generator | None,
        p_min: float = 0.0,
    ) -> None:
        """`vocabulary_size` is the target's: the two may differ by a few unused tokens.

        `drawn` draws tokens from the draft's own distribution under `generation` (rejection sampling needs that); None
        takes its best ones, as llama.cpp does. A draft ends before a token whose confidence is below `p_min`: the
        token's forward is paid for and the token thrown away, as in llama.cpp's drafter.
        """
        self._memory = memory
        self._generation = generation
        self._rng = drawn
        self._p_min = p_min
        self._sure = 0
        """This many tokens in memory are known to be those of the text."""
        self._tried: list[int] = []
        """Tokens in memory behind them: drafts whose outcome is not known yet."""
        self._checkpoint: Checkpoint | None = None
        """For models that cannot forget: before the first of `_tried`."""
        # Tokens that only one of the two vocabularies has are never drafted.
        self._shared = min(vocabulary_size, memory.model.vocabulary_size)
        self._beyond = np.zeros(vocabulary_size - self._shared)
        self._ends = memory.model.end_tokens[memory.model.end_tokens < self._shared]

    def begin(self, prompt: Sequence[int]) -> None:
        self._memory.cut(0)
        self._sure, self._tried, self._checkpoint = 0, [], None
        if len(prompt) > 1:
            self._memory.extend(prompt[:-1])
            self._sure = len(prompt) - 1

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        most = min(most, self._memory.room - len(history))
        if most < 1:
            return NOTHING
        row = yield from self._catch_up(history)
        tokens: list[int] = []
        drawn: list[Floats] | None = [] if self._rng is not None else None
        while True:
            if self._generation.ignore_eos:
                row[self._ends] = -np.inf
            token, odds = self._choose(row)
            if self._p_min and confidence(row)[1] < self._p_min:
                break
            tokens.append(token)
            if drawn is not None and odds is not None:
                drawn.append(odds)
            if len(tokens) == most:
                break
            row = (yield Forward(self._memory, (token,))).rows[0][: self._shared]
            self._tried.append(token)
        return Draft(tokens, drawn)

    def _choose(self, row: np.ndarray[tuple[int], np.dtype[np.float32]]) -> tuple[int, Floats | None]:
        if self._rng is None:
            return best(row), None
        odds = probabilities(row, self._generation)
        return draw(odds, self._rng), np.concatenate([odds, self._beyond]) if len(self._beyond) else odds

    def _catch_up(self, history: Sequence[int]) -> Work[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        """Bring the memory to `history`; the logits after its last token."""
        memory = self._memory
        for token in self._tried:
            if self._sure >= len(history) - 1 or history[self._sure] != token:
                break
            self._sure += 1
        self._tried = []
        if not memory.cut(self._sure):
            assert self._checkpoint is not None
            memory.restore(self._checkpoint)
            self._sure = memory.length
        rows = yield from extending(memory, history[self._sure :])
        self._sure = len(history)
        if not memory.can_cut:
            self._checkpoint = memory.save()
        return rows[0][: self._shared]


class NgramDrafter:
    """Looks the last tokens up in the text: no model, no time to speak of, and often nothing to say."""

    def __init__(self, lookup: NgramLookup) -> None:
        self._lookup = lookup

    def begin(self, prompt: Sequence[int]) -> None:  # noqa: ARG002
        self._lookup.reset()

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        yield from ()
        return Draft(self._lookup.draft(history, most))


class FirstOf:
    """Several drafters, of which the first that has anything to say is heard: llama.cpp's way to combine methods."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters

    def begin(self, prompt: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.begin(prompt)

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        for drafter in self._drafters:
            draft = yield from drafter.draft(history, most)
            if draft.tokens:
                return draft
        return NOTHING


class Oracle:
    """Knows what the target will say, and plants errors at chosen rates: a cost probe whose text keeps its meaning.

    The share of drafts whose first i tokens are all right is `rates[i - 1]`: never rising, as llama.cpp's synthetic
    acceptance takes them. The place of the error is drawn for each draft; behind it come tokens of the continuation,
    which cannot be accepted any more. With `cost`, a draft model runs over every draft as if it had made it.
    """

    def __init__(
        self,
        rates: Sequence[float],
        rng: np.random.Generator,
        vocabulary_size: int,
        forbidden: frozenset[int] = frozenset(),
        cost: ModelDrafter | None = None,
    ) -> None:
        """`forbidden` tokens are never planted."""
        self._rates = rates
        self._rng = rng
        self._vocabulary_size = vocabulary_size
        self._forbidden = forbidden
        self._cost = cost
        self._continuation: Sequence[int] = ()
        self._prompt = 0

    def foretell(self, continuation: Sequence[int]) -> None:
        """What the target says after the next prompt, without speculation."""
        self._continuation = continuation

    def begin(self, prompt: Sequence[int]) -> None:
        self._prompt = len(prompt)
        if self._cost is not None:
            self._cost.begin(prompt)

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        if self._cost is not None:
            yield from self._cost.draft(history, most)
        at = len(history) - self._prompt
        tokens = list(self._continuation[at : at + min(most, len(self._rates))])
        aim = self._rng.random()
        right = sum(aim < rate for rate in self._rates[: len(tokens)])
        if right < len(tokens):
            tokens[right] = self._wrong(tokens[right])
        return Draft(tokens)

    def _wrong(self, token: int) -> int:
        """A token that is not this one."""
        for step in range(1, self._vocabulary_size):
            other = (token + step) % self._vocabulary_size
            if other not in self._forbidden:
                return other
        raise ExperimentError(
            "the vocabulary has only one token, so no error can be planted", fix="use a real target model"
        )
