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

*Verification.* Row i of the n + 1 rows is what the target says about place i, given the draft up to there. Every rule
walks along the draft, stops at the first token that it rejects and puts the target's own token there; if it accepts
all, row n gives one more.

    greedy         accept while the draft is the target's best token
    rejection      accept x with probability min(1, target(x) / draft(x)), else draw from max(0, target - draft)
    sample match   draw the target's own token, accept while the draft is the same

Greedy text is exactly the target's. The other two leave its *distribution* exactly as it is: by rejection a token x
comes out with probability min(draft(x), target(x)), plus the probability of a rejection times the residual at x; by
matching, every token that comes out was drawn from the target. Rejection accepts at least as many drafts
(`theory.acceptance`).
A draft is made by a draft model, by n-grams of the text itself, or by an oracle with planted errors.

Sources: Leviathan, Kalman & Matias 2023, arXiv 2211.17192, algorithm 1, section 2.3 and appendix A.1; Chen et al. 2023,
"Accelerating Large Language Model Decoding with Speculative Sampling", arXiv 2302.01318, theorem 1 (rejection).
Matching is what llama.cpp's server does (common_sampler_sample_and_accept_n).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from specmeter.errors import ExperimentError, UsageError
from specmeter.llama_binding.context import Forward, alone, extending
from specmeter.llama_binding.sampling import Rows, best, confidence, draw, probabilities
from specmeter.record import Step

if TYPE_CHECKING:
    from specmeter.engines.llama_cpp.draft_rules import NgramLookup
    from specmeter.llama_binding.context import Checkpoint, RoutingTap, TokenSequence, Work
    from specmeter.llama_binding.context import Rows as LogitRows
    from specmeter.llama_binding.sampling import Floats, Logits
    from specmeter.record import Generation

    class TargetRows(Protocol):
        """Distributions by place: an array of shape (places, vocabulary), or `sampling.Rows`."""

        def __len__(self) -> int: ...

        def __getitem__(self, place: int, /) -> Floats: ...

    DraftRows = Sequence[Floats | None] | Floats | None

    """Distributions that the drafted tokens were drawn from. None, for one place or for all: not drawn but chosen."""


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
        """So many tokens in memory are known to be those of the text."""
        self._tried: list[int] = []
        """Tokens in memory behind them: drafts whose fate is not known yet."""
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
        """What the target says after the next prompt, by plain decoding."""
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
        raise ExperimentError("the vocabulary has only one token, so no error can be planted", fix="use a real model")


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
        """Without a `drafter` this is plain decoding. `rng` draws above temperature 0 (default: of `generation.seed`).

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
                f"a batch of {target.context.batch_size} tokens has no room for a draft",
                fix="set engine.batch to gamma + 1",
            )

    def generate(self, prompt: Sequence[int], *, progress: Progress | None = None) -> Generated:
        """Generate after `prompt`, up to `generation.max_tokens`, the end of the text or that of the context.

        Raises `ContextFullError` when the prompt itself does not fit, `EngineProtocolError` when it is empty.
        """
        return alone(self.work(prompt, progress=progress))

    def work(self, prompt: Sequence[int], *, progress: Progress | None = None) -> Work[Generated]:
        """`generate` as forwards that are asked for one by one, and may be shared with other texts.

        The prompt is processed at the first `next`, by itself. A step's `verify_ms` is the time of the whole forward,
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


# --- verification ----------------------------------------------------------------------------------------------------


class Verification(NamedTuple):
    """What one step emits: the first `accepted` tokens of the draft, then `token`."""

    accepted: int
    token: int
    """The target's own: a correction after a rejection, a bonus after a whole draft."""


def greedy(drafted: Sequence[int], logits: Logits) -> Verification:
    """Accept while the draft is the token of the largest logit. `logits` has shape (len(drafted) + 1, vocabulary).

    Rows after the first rejection are never looked at.
    """
    _check(drafted, len(logits))
    for place, token in enumerate(drafted):
        own = best(logits[place])
        if own != token:
            return Verification(place, own)
    return Verification(len(drafted), best(logits[len(drafted)]))


def rejection(
    drafted: Sequence[int], draft_probs: DraftRows, target_probs: TargetRows, rng: np.random.Generator
) -> Verification:
    """Rejection sampling: the target's distribution, with as many drafts accepted as any rule can.

    `draft_probs` has a row for every drafted token: the distribution that it was drawn from, after the same filters
    and temperature as it was drawn with. A token that was not drawn but chosen (a lookup, a drafter that takes its
    best token) has None in place of its row: all of its probability was on that token, so it is accepted with the
    target's probability of it, and the residual is the target without it. None for all rows where all are such.

    `target_probs` has len(drafted) + 1 rows. Both have shape (..., vocabulary).
    """
    _check(drafted, len(target_probs))
    if draft_probs is not None and len(draft_probs) != len(drafted):
        raise UsageError(
            f"draft_probs has {len(draft_probs)} rows for {len(drafted)} drafted tokens",
            fix="give the distribution that each token was drawn from, or None",
        )
    for place, token in enumerate(drafted):
        target = target_probs[place]
        draft = None if draft_probs is None else draft_probs[place]
        if draft is None:
            if rng.random() < target[token]:
                continue
            residual = target.copy()
            residual[token] = 0.0
        else:
            if not draft[token] > 0:
                raise UsageError(
                    f"drafted[{place}] is token {token}, which its own distribution gives no chance",
                    fix="give the distribution that the token was drawn from",
                )
            if rng.random() * draft[token] < target[token]:
                continue
            residual = np.maximum(target - draft, 0.0)
        # Equal distributions reject nothing; a residual without any mass can only be rounding.
        return Verification(place, draw(residual if residual.any() else target, rng))
    return Verification(len(drafted), draw(target_probs[len(drafted)], rng))


def sample_match(drafted: Sequence[int], target_probs: TargetRows, rng: np.random.Generator) -> Verification:
    """llama.cpp's rule: draw the target's token at each place, accept while the draft is the same one.

    One number of `rng` for each token that comes out, as in plain decoding: with the same seed the text is the same,
    not only its distribution. `target_probs` has len(drafted) + 1 rows of shape (vocabulary,).
    """
    _check(drafted, len(target_probs))
    for place, token in enumerate(drafted):
        own = draw(target_probs[place], rng)
        if own != token:
            return Verification(place, own)
    return Verification(len(drafted), draw(target_probs[len(drafted)], rng))


def _check(drafted: Sequence[int], rows: int) -> None:
    if rows != len(drafted) + 1:
        raise UsageError(
            f"{len(drafted)} drafted tokens need {len(drafted) + 1} rows of the target, not {rows}",
            fix="give one row for each drafted token and one for the token after them",
        )
