"""What the mock says and how long it takes: a script, written before time passes, and its performance, round by round.

What is said and drafted depends on text and chance alone; how long a round takes depends on all the sequences that take
part in it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specmeter.engines import Candidate, Launch
from specmeter.engines.mock.spec import FaultKind, MockDrafter, MockSpec
from specmeter.engines.mock.tokens import BYTES, WORDS, detokenize, tokenize
from specmeter.errors import EngineStartError
from specmeter.record import Arm, Generation, Prompt, Reply, Step, Timings

DEFAULT_GAMMA = 3
DEFAULT_NGRAM_GAMMA = 16
CHAT_TEMPLATE_TOKENS = 8


class Die(NamedTuple):
    """Chance at one token position of a text, each from 0 to 1: the same whenever that text is generated."""

    accept: float
    confidence: float
    hit: float


class Player:
    """Generates for one session."""

    def __init__(self, spec: MockSpec, launch: Launch, *, speculating: bool, log: Callable[[str], None]) -> None:
        self._spec = spec
        self._arm = launch.arm
        self._reference = launch.target.reference
        self._log = log
        self._target = spec.target(self._reference)
        self._drafters = [(method, *_drafter(spec, method, launch)) for method in launch.arm.methods if speculating]
        heads = any(method == "draft-mtp" for method in launch.arm.methods)  # they keep states, as in llama.cpp
        self._restores = self._target.restore_ms > 0 and not heads
        self.load_ms = self._target.load_ms + sum(drafter.load_ms for _, _, drafter in self._drafters)
        """Until the session is ready."""

    def play(self, prompt: Prompt, generation: Generation, bent: FaultKind | None, block: int, repeat: int) -> Reply:
        """One generation, alone; `bent` is the fault that falsifies it, `repeat` counts generations for this prompt."""
        performance = Performance(self.write(prompt, generation, bent, block, repeat), sent_ms=0.0)
        now_ms = 0.0
        while not performance.over:
            began_ms, now_ms = now_ms, now_ms + self.round_ms((performance,))
            performance.advance(began_ms, now_ms)
        return performance.reply(self._spec.request_overhead_ms)

    def write(self, prompt: Prompt, generation: Generation, bent: FaultKind | None, block: int, repeat: int) -> Script:
        """What a generation says and does, without its times."""
        tokens, stop_reason = self._answer(prompt, generation, bent)
        stalled_at = self._stalled_at(prompt, block, repeat, len(tokens))
        known = _known_tokens(prompt) if self._arm.engine.prompt_cache else 0
        script = Script(
            tokens, stop_reason, _prompt_tokens(prompt) - known, self._pace(prompt, block, repeat), cached=known
        )
        dice = {source: self._dice(source, prompt, generation, len(tokens)) for _, source, _ in self._drafters}
        stuck = bent == "acceptance-stuck"
        said = 1  # the first token comes with the end of the prompt
        while said < len(tokens):
            draft = self._draft(prompt.kind, dice, at=said, length=len(tokens))
            rejected = draft.accepted < draft.drafted
            stall_ms = 0.0
            if stalled_at is not None and said >= stalled_at:
                stall_ms, stalled_at = self._spec.stall_ms, None
            if bent == "decode-failed" and len(script.rounds) % 2 == 1:
                # A forward that fails returns at once: that is what makes such runs look fast.
                self._log("failed to decode, ret = -1")
                script.rounds.append(MockRound(draft, 0, draft.accepted + 1, stall_ms))
                script.count(draft)
            elif rejected and self._restores:
                script.rounds.append(MockRound(draft, draft.drafted + 1, 0, stall_ms, self._target.restore_ms))
                script.rounds.append(MockRound(MockDraft(), draft.accepted + 2, draft.accepted + 2))
                script.count(MockDraft(draft.accepted, draft.accepted) if stuck else draft)
                said += 1  # with the replay's own token
            else:
                script.rounds.append(MockRound(draft, draft.drafted + 1, draft.accepted + 1, stall_ms))
                script.count(MockDraft() if stuck and rejected else draft)
            said += draft.accepted + 1
        return script

    def round_ms(self, performances: Sequence[Performance]) -> float:
        """Time of one round of all these at once: they draft together, and share a forward of the target."""
        now = [it.now for it in performances]
        rounds = [it for it in now if it is not None]
        prompts = [it.script.prompt_n for it in performances if it.now is None]
        positions = sum(it.positions for it in rounds)
        forward_ms = self._target.forward_ms(positions) if positions or prompts else 0.0
        forward_ms += self._target.prompt_token_ms * sum(prompts)
        others_ms = max((it.draft.ms for it in rounds), default=0.0) + max(
            (it.restore_ms for it in rounds), default=0.0
        )
        pace = sum(it.script.pace for it in performances) / len(performances)
        return pace * (others_ms + forward_ms) + sum(it.stall_ms for it in rounds)

    def prompt_ms(self, prompt: Prompt, generated: tuple[int, ...] = ()) -> float:
        """Time to read the prompt, and tokens `generated` after it."""
        return self._target.base_ms + self._target.prompt_token_ms * (_prompt_tokens(prompt) + len(generated))

    def candidates(self, prompt: Prompt, generation: Generation, at: int, count: int) -> tuple[Candidate, ...]:
        """The token at place `at` of the text with probability 0.9, then others, each half as likely as the last."""
        longer = generation.model_copy(update={"max_tokens": max(generation.max_tokens, at + 1), "ignore_eos": True})
        said = self._answer(prompt, longer, None)[0][at] - BYTES
        return tuple(
            Candidate(BYTES + (said + place) % WORDS, math.log(0.9 if place == 0 else 0.1 * 0.5**place))
            for place in range(min(count, WORDS))
        )

    def _answer(self, prompt: Prompt, generation: Generation, bent: FaultKind | None) -> tuple[tuple[int, ...], str]:
        """Tokens and stop reason; the same for every arm of a target."""
        rng = self._rng("text", prompt, generation)
        natural = max(1, round(self._target.answer_tokens * rng.uniform(0.5, 1.5)))
        ended = natural < generation.max_tokens and not generation.ignore_eos
        length = natural if ended else generation.max_tokens
        tokens = [BYTES + rng.randrange(WORDS) for _ in range(length)]
        half = max(1, length // 2)
        if bent == "truncated":
            return tuple(tokens[:half]), "eos"
        if bent == "text-differs":
            tokens[half:] = [BYTES + (token + 1) % WORDS for token in tokens[half:]]
        if bent == "decode-failed":
            tokens[half:] = [tokens[half - 1]] * (length - half)
        return tuple(tokens), "eos" if ended else "limit"

    def _dice(self, source: str, prompt: Prompt, generation: Generation, length: int) -> list[Die]:
        rng = self._rng(f"dice/{source}", prompt, generation)
        return [Die(rng.random(), rng.random(), rng.random()) for _ in range(length)]

    def _draft(self, kind: str, dice: dict[str, list[Die]], *, at: int, length: int) -> MockDraft:
        """The draft for the step that starts at token `at`; the first method that has one prevails."""
        arm = self._arm
        # Engines never draft past the last token: the verification adds one of its own.
        limit = min(gamma(arm), length - at - 1)
        ms = 0.0
        for method, source, drafter in self._drafters:
            here = dice[source][at : at + limit]
            if method.startswith("ngram") and here and here[0].hit >= drafter.hits.get(kind, drafter.other_hits):
                continue
            rates = arm.synthetic_rates or drafter.rates(kind)
            drafted, accepted = 0, 0
            for place, die in enumerate(here):
                good = die.accept < rates[min(place, len(rates) - 1)]
                ms += drafter.token_ms
                # Draft models are surer of tokens that turn out right: mean 0.8 against 0.5.
                if arm.p_min is not None and die.confidence ** (0.25 if good else 1.0) < arm.p_min:
                    break
                accepted += good and accepted == drafted
                drafted += 1
            if drafted > 0 and drafted >= (arm.gamma_min or 0):
                return MockDraft(drafted, accepted, ms)
        return MockDraft(ms=ms)

    def _pace(self, prompt: Prompt, block: int, repeat: int) -> float:
        """How much longer than by the cost model this generation takes."""
        rng = random.Random(f"{self._spec.seed}/noise/{self._arm.id}/{block}/{prompt.id}/{repeat}")
        slower = self._spec.builds.get(self._arm.engine.options.get("build", ""), 1.0)
        return slower * rng.lognormvariate(0.0, self._spec.noise) * (1 + self._spec.block_drift) ** block

    def _stalled_at(self, prompt: Prompt, block: int, repeat: int, length: int) -> int | None:
        """Before which token this generation is held up, if it is."""
        rng = random.Random(f"{self._spec.seed}/stall/{self._arm.id}/{block}/{prompt.id}/{repeat}")
        return rng.randrange(1, max(2, length)) if rng.random() < self._spec.stalls else None

    def _rng(self, what: str, prompt: Prompt, generation: Generation) -> random.Random:
        """Chance that is the same for every arm and block; at temperature 0 whatever the seed of the generation."""
        seed = generation.seed if generation.temperature > 0 else "greedy"
        return random.Random(
            f"{self._spec.seed}/{what}/{self._reference}/{prompt.of or prompt.id}/{prompt.sha256}/{seed}"
        )


def _prompt_tokens(prompt: Prompt) -> int:
    said = sum(len(tokenize(text)) for text in (*(it.content for it in prompt.before), prompt.text))
    return said + (CHAT_TEMPLATE_TOKENS if prompt.format == "chat" else 0)


def _known_tokens(prompt: Prompt) -> int:
    """Of a call of a recorded session, those that were read before it."""
    if prompt.turn is None:
        return 0
    return sum(len(tokenize(it.content)) for it in prompt.before[: prompt.turn.known])


def gamma(arm: Arm) -> int:
    """Most draft tokens per step that are really in force."""
    if arm.gamma is not None:
        return arm.gamma
    return DEFAULT_NGRAM_GAMMA if all(method.startswith("ngram") for method in arm.methods) else DEFAULT_GAMMA


def _drafter(spec: MockSpec, method: str, launch: Launch) -> tuple[str, MockDrafter]:
    """What a method drafts with, and a name for its chances."""
    if method.startswith("ngram"):
        return "ngram", spec.ngram
    if launch.draft is not None:
        return launch.draft.reference, spec.draft(launch.draft.reference)
    if method == "draft-mtp":
        return "heads", spec.heads
    raise EngineStartError(f"{launch.arm.id}: the method {method} needs a draft model", fix="give the arm a `draft`")


# --- one generation: its script and its performance ------------------------------------------------------------------

PREFILL_BATCH = 2048
"""Prompt tokens per target forward."""


class MockDraft(NamedTuple):
    """What was drafted for one step, and how much of it the target agrees with."""

    drafted: int = 0
    accepted: int = 0
    ms: float = 0.0


class MockRound(NamedTuple):
    """A step of one sequence."""

    draft: MockDraft
    positions: int
    """Its part of the target's forward; 0: that failed, and does not count."""
    emitted: int
    """Tokens; of a replay also those that its restore had accepted."""
    stall_ms: float = 0.0
    """Held up for so long."""
    restore_ms: float = 0.0
    """More than 0: it emits nothing and restores a checkpoint."""


@dataclass
class Script:
    """Everything about a generation but its times."""

    tokens: tuple[int, ...]
    stop_reason: str
    prompt_n: int
    pace: float
    """How much longer than by the cost model its rounds take."""
    rounds: list[MockRound] = field(default_factory=list[MockRound])
    """After the prompt, which emits the first token."""
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    """Prompt tokens that were read before."""

    def count(self, draft: MockDraft) -> None:
        """What the engine's counters make of a draft."""
        self.drafted += draft.drafted
        self.accepted += draft.accepted

    @property
    def prompt_forwards(self) -> int:
        return max(1, math.ceil(self.prompt_n / PREFILL_BATCH))

    def counters(self) -> dict[str, float]:
        """What the engine counts for this generation alone."""
        return {
            "n_decode_total": self.prompt_forwards + sum(it.positions > 0 for it in self.rounds),
            "spec_decode_num_drafts_total": sum(it.draft.drafted > 0 for it in self.rounds),
            "spec_decode_num_draft_tokens_total": self.drafted,
            "spec_decode_num_accepted_tokens_total": self.accepted,
        }


@dataclass
class Performance:
    """A script being played. Times in virtual ms."""

    script: Script
    sent_ms: float
    slot: int = 0
    breaks: bool = False
    """Half-way through, its engine does something else."""
    shared: bool = False
    """Others took part in a round of it."""
    began_ms: float = 0.0
    """When the engine began with its prompt."""
    ended_ms: float = 0.0
    _at: int = -1
    """The next round; -1: the prompt."""
    _arrivals: list[float] = field(default_factory=list[float])
    _steps: list[Step] = field(default_factory=list[Step])

    @property
    def now(self) -> MockRound | None:
        """The round that comes next; None for the prompt."""
        return None if self._at < 0 else self.script.rounds[self._at]

    @property
    def over(self) -> bool:
        rounds = len(self.script.rounds)
        return self._at >= (rounds // 2 if self.breaks else rounds)

    @property
    def queued_ms(self) -> float:
        """From its sending until the engine began with it."""
        return self.began_ms - self.sent_ms

    def advance(self, began_ms: float, ends_ms: float) -> None:
        """A round of it, from `began_ms` to `ends_ms`."""
        step = self.now
        if step is None:
            self.began_ms = began_ms
            self._arrivals.append(ends_ms - self.sent_ms)
        else:
            self._arrivals += [ends_ms - self.sent_ms] * step.emitted
            drafted, accepted, _ = step.draft
            at_ms = ends_ms - self.began_ms
            self._steps.append(Step(drafted=drafted, accepted=accepted, at_ms=at_ms, restored=step.restore_ms > 0))
        self.ended_ms = ends_ms
        self._at += 1

    def reply(self, overhead_ms: float) -> Reply:
        """What came of it. What the engine counts as a whole is left out where others took part."""
        script = self.script
        timings = Timings(
            prompt_n=script.prompt_n,
            prompt_ms=self._arrivals[0] - self.queued_ms,
            predicted_n=len(script.tokens),
            predicted_ms=self._arrivals[-1] - self._arrivals[0],
            cache_n=script.cached,
            draft_n=script.drafted,
            draft_n_accepted=script.accepted,
        )
        return Reply(
            text=detokenize(script.tokens),
            token_ids=script.tokens,
            stop_reason=script.stop_reason,
            timings=timings,
            # Servers print draft counts only when there are any.
            raw_timings=timings.model_dump(exclude=set() if script.drafted else {"draft_n", "draft_n_accepted"}),
            counters={} if self.shared else script.counters(),
            known_n=script.cached or None,
            wall_ms=self.ended_ms - self.sent_ms + overhead_ms,
            ttft_ms=self._arrivals[0],
            arrival_ms=tuple(self._arrivals),
            steps=tuple(self._steps),
        )
