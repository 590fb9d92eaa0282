"""Speculative decoding in a loop: draft, verify in one forward, accept, roll back, and say where the time went.

One step, with h the text so far and t its last token, which is not in the target's memory yet:

    draft    d_1 ... d_n after h                                 n <= gamma, or none
    verify   one target forward over t, d_1 ... d_n              n + 1 rows of logits
    sample   a <= n drafts are accepted, and one token is the target's own
    restore  the target forgets d_(a+1) ... d_n

and a + 1 tokens come out. A memory that cannot forget (recurrent and hybrid models) is saved before the forward; after
a rejection it is put back, and a forward over t, d_1 ... d_a and the target's own token brings it to where it should
be; that replay gives one more token. Such a round counts as two steps, as in llama.cpp's server, so that every step is
one target forward and emits one token beside those it accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from specmeter.engines.libllama.drafters import NOTHING, Draft
from specmeter.engines.libllama.verification import Verification, greedy, rejection, sample_match
from specmeter.errors import ExperimentError
from specmeter.llama_binding.context import Forward, alone
from specmeter.llama_binding.sampling import Rows
from specmeter.record import Step

if TYPE_CHECKING:
    from specmeter.engines.libllama.drafters import Drafter
    from specmeter.llama_binding.context import RoutingTap, TokenSequence, Work
    from specmeter.llama_binding.context import Rows as LogitRows
    from specmeter.record import Generation

Rule = Literal["rejection", "sample-match"]
"""How drafts are verified above temperature 0; at temperature 0 both are the greedy rule."""
Progress = Callable[[int], None]
"""Called with the number of tokens generated so far, after every step."""


class _Round(NamedTuple):
    """A step with the moments at which its parts ended, seconds. Cheap to make: it is made between two forwards."""

    drafted: int
    accepted: int
    replayed: bool
    context: int
    begun: float
    drafting_done: float
    saved: float
    joined: float
    verified: float
    resumed: float
    sampled: float
    restored: float
    ended: float
    experts: tuple[tuple[int, ...], ...] | None


@dataclass
class Generated:
    """What came out, and where the time went. Times in ms."""

    tokens: list[int] = field(default_factory=list[int])
    at_ms: list[float] = field(default_factory=list[float])
    """When each token was known, from the start of the generation."""
    rounds: list[_Round] = field(default_factory=list[_Round], repr=False)
    """What happened, as it was noted on the way."""
    steps: list[Step] = field(default_factory=list[Step])
    """One per target forward after the prompt; their times add up to `decode_ms`."""
    prompt_n: int = 0
    prompt_ms: float = 0.0
    """Until the first token was known, the draft's prompt included."""
    decode_ms: float = 0.0
    """From there to the end."""
    stop_reason: Literal["limit", "eos", "context"] = "limit"
    forwards: int = 0
    """Target forwards, those of the prompt and of replays included."""

    @property
    def drafted(self) -> int:
        return sum(step.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        return sum(step.accepted for step in self.steps)


class Decoder:
    """Generates with one target, one text after the other."""

    def __init__(
        self,
        target: TokenSequence,
        generation: Generation,
        *,
        drafter: Drafter | None = None,
        gamma: int = 0,
        rule: Rule = "rejection",
        gamma_min: int = 0,
        rng: np.random.Generator | None = None,
        tap: RoutingTap | None = None,
    ) -> None:
        """Without a `drafter` this is decoding without speculation. `rng` draws above temperature 0 (default: of
        `generation.seed`).

        Drafts have at most `gamma` tokens. Drafts shorter than `gamma_min` are thrown away. With `tap`, the experts of
        every step are recorded. Raises `ExperimentError` when the target's context gives back too few rows for any
        draft.
        """
        self._target = target
        self._generation = generation
        self._drafter = drafter
        self._rule: Rule = rule
        self._gamma_min = gamma_min
        self._rng = rng or np.random.default_rng(generation.seed)
        self._tap = tap
        self._ends = target.model.end_tokens
        self._most_drafted = min(gamma, target.most_rows - 1)
        if drafter is not None and target.most_rows < 2:
            raise ExperimentError(
                f"a batch of {target.context.batch_size} tokens is too small for draft tokens",
                fix="set engine.batch to gamma + 1",
            )

    def generate(self, prompt: Sequence[int], *, progress: Progress | None = None) -> Generated:
        """Generate after `prompt`, up to `generation.max_tokens`, the end of the text or that of the context.

        Raises `ContextFullError` when the prompt itself does not fit, `EngineProtocolError` when it is empty.
        """
        return alone(self.work(prompt, progress=progress))

    def work(self, prompt: Sequence[int], *, progress: Progress | None = None) -> Work[Generated]:
        """`generate` as forwards that are asked for one by one, and may be shared with other texts.

        The prompt is processed at the first `next`, on its own. A step's `verify_ms` is the time of the whole forward,
        shared or not; `other_ms` has all waiting: until the others have drafted, and for their prompts.
        """
        target, out = self._target, Generated(prompt_n=len(prompt))
        before = target.forwards
        started = time.perf_counter()
        target.cut(0)
        logits = target.extend(prompt)
        if self._drafter is not None:
            self._drafter.begin(prompt)
        history = [*prompt]
        self._emit(out, history, [self._choose([], NOTHING, logits).token])
        if self._tap is not None:
            self._tap.take()
        now = time.perf_counter()
        out.prompt_ms = (now - started) * 1e3
        out.at_ms.append(out.prompt_ms)
        first = now
        while not self._over(out):
            now = yield from self._step(out, history, started, now)
            if progress is not None:
                progress(len(out.tokens))
        out.decode_ms = (now - first) * 1e3
        out.forwards = target.forwards - before
        out.steps = list(_steps(out.rounds, started))
        return out

    def _over(self, out: Generated) -> bool:
        """Whether the generation ends here; says why."""
        if not self._generation.ignore_eos and self._target.model.is_end(out.tokens[-1]):
            out.stop_reason = "eos"
        elif len(out.tokens) >= self._generation.max_tokens:
            out.stop_reason = "limit"
        elif self._target.length >= self._target.room:
            out.stop_reason = "context"
        else:
            return False
        return True

    def _step(self, out: Generated, history: list[int], started: float, begun: float) -> Work[float]:
        """One step; comes to when it ended, which is when the next one begins."""
        target, length = self._target, self._target.length
        draft = yield from self._draft(out, history)
        drafted = len(draft.tokens)
        drafting_done = time.perf_counter()
        checkpoint = target.save() if drafted and not target.can_cut else None
        saved = time.perf_counter()
        logits, joined, verified = yield Forward(target, (history[-1], *draft.tokens), "all")
        resumed = time.perf_counter()
        accepted, token = self._choose(draft.tokens, draft, logits)
        sampled = time.perf_counter()
        experts = self._experts()
        tokens = [*draft.tokens[:accepted], token]
        if checkpoint is None:
            target.cut(length + 1 + accepted)
            restored = time.perf_counter()
        elif accepted == drafted or not self._goes_on(out, tokens):
            restored = time.perf_counter()
        else:
            target.restore(checkpoint)
            logits = (yield Forward(target, (history[-1], *tokens))).rows
            restored = time.perf_counter()
            tokens.append(self._choose([], NOTHING, logits).token)
            self._experts()
        replayed = len(tokens) - 1 > accepted
        emitted = self._emit(out, history, tokens)
        # Tokens beyond the end of the text were verified, but they are not part of it.
        accepted = emitted - 1 - replayed
        ended = time.perf_counter()
        at_ms = (ended - started) * 1e3
        out.at_ms += [at_ms] * emitted
        out.rounds.append(
            _Round(
                drafted,
                accepted,
                replayed,
                length,
                begun,
                drafting_done,
                saved,
                joined,
                verified,
                resumed,
                sampled,
                restored,
                ended,
                experts,
            )
        )
        return ended

    def _goes_on(self, out: Generated, tokens: Sequence[int]) -> bool:
        """Whether anything may come after these tokens."""
        ends = not self._generation.ignore_eos and any(self._target.model.is_end(it) for it in tokens)
        return not ends and len(out.tokens) + len(tokens) < self._generation.max_tokens

    def _draft(self, out: Generated, history: list[int]) -> Work[Draft]:
        if self._drafter is None:
            return NOTHING
        left = self._generation.max_tokens - len(out.tokens) - 1
        room = self._target.room - self._target.length - 1
        most = min(left, room, self._most_drafted)
        if most <= 0:
            return NOTHING
        draft = yield from self._drafter.draft(history, most)
        return draft if len(draft.tokens) >= self._gamma_min else NOTHING

    def _choose(self, drafted: Sequence[int], draft: Draft, logits: LogitRows) -> Verification:
        if self._generation.ignore_eos:
            logits[:, self._ends] = -np.inf
        if self._generation.temperature == 0:
            return greedy(drafted, logits)
        rows = Rows(logits, self._generation)
        if self._rule == "sample-match":
            return sample_match(drafted, rows, self._rng)
        return rejection(drafted, draft.probabilities, rows, self._rng)

    def _emit(self, out: Generated, history: list[int], tokens: list[int]) -> int:
        """Add what a step brought, up to the end of the text; how many tokens that were."""
        if not self._generation.ignore_eos:
            end = next((place for place, it in enumerate(tokens) if self._target.model.is_end(it)), None)
            if end is not None:
                del tokens[end + 1 :]
        out.tokens += tokens
        history += tokens
        return len(tokens)

    def _experts(self) -> tuple[tuple[int, ...], ...] | None:
        if self._tap is None:
            return None
        return tuple(tuple(ids.ravel().tolist()) for ids in self._tap.take().values())


def _steps(rounds: Sequence[_Round], started: float) -> Iterator[Step]:
    """Rounds as steps, a replay as one of its own: its time is in the step that restored."""
    for it in rounds:
        step = Step(
            drafted=it.drafted,
            accepted=it.accepted,
            at_ms=(it.ended - started) * 1e3,
            restored=it.replayed,
            context=it.context,
            draft_ms=(it.drafting_done - it.begun) * 1e3,
            verify_ms=(it.verified - it.joined) * 1e3,
            sample_ms=(it.sampled - it.resumed) * 1e3,
            restore_ms=(it.saved - it.drafting_done + it.restored - it.sampled) * 1e3,
            other_ms=(it.joined - it.saved + it.resumed - it.verified + it.ended - it.restored) * 1e3,
            experts=it.experts,
        )
        yield step
        if it.replayed:
            yield step.model_copy(update=_OF_A_REPLAY)


_OF_A_REPLAY: dict[str, object] = {
    "drafted": 0,
    "accepted": 0,
    "restored": False,
    "experts": None,
    **dict.fromkeys(("draft_ms", "verify_ms", "sample_ms", "restore_ms", "other_ms"), 0.0),
}
