"""The mock engine at work: its sessions on a virtual clock, what they say, and how long each round of them takes.

A generation has a script, written before time passes, and a performance, round by round. What is said and drafted
depends on text and chance alone; how long a round takes depends on all the sequences that take part in it.

Its tokens are 256 bytes, and 256 words for what the mock itself says. Clock, script and rounds need each other's state,
so they share a file.
"""

from __future__ import annotations

import fnmatch
import hashlib
import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import count, product
from typing import NamedTuple

from specmeter import __version__
from specmeter.engines import Candidate, Launch, SessionFacts
from specmeter.engines.mock.spec import MOCK, FaultKind, MockDrafter, MockSpec
from specmeter.engines.session import Ended, EngineSession, Ticket
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError, EngineStartError
from specmeter.files import without_links
from specmeter.record import Arm, DeviceUse, EngineIdentity, Generation, Prompt, Reply, Step, Timings
from specmeter.record.base import utf8

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
        script = Script(tokens, stop_reason, _prompt_tokens(prompt), self._pace(prompt, block, repeat))
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
            elif rejected and self._target.restore_ms > 0:
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
        return rng.lognormvariate(0.0, self._spec.noise) * (1 + self._spec.block_drift) ** block

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
    raise EngineStartError(f"{launch.arm.id}: method {method} needs a draft model", fix="give the arm a `draft`")


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
            wall_ms=self.ended_ms - self.sent_ms + overhead_ms,
            ttft_ms=self._arrivals[0],
            arrival_ms=tuple(self._arrivals),
            steps=tuple(self._steps),
        )


# --- a tokenizer for an engine without a vocabulary ------------------------------------------------------------------

BYTES = 256
WORDS = 256
WORD_LENGTH = 5


@lru_cache(maxsize=1024)
def tokenize(text: str) -> tuple[int, ...]:
    """Ids below 256 are bytes of the UTF-8 text, the others words. Raises `EngineProtocolError`."""
    known = _word_ids()
    data = utf8(text)
    ids: list[int] = []
    at = 0
    while at < len(data):
        word = known.get(data[at : at + WORD_LENGTH])
        ids.append(data[at] if word is None else word)
        at += 1 if word is None else WORD_LENGTH
    return tuple(ids)


def detokenize(token_ids: tuple[int, ...]) -> str:
    """Inverse of `tokenize`; bytes that are no UTF-8 become U+FFFD."""
    words = _words()
    return b"".join(words[i - BYTES] if i >= BYTES else bytes([i]) for i in token_ids).decode(errors="replace")


@cache
def _words() -> tuple[bytes, ...]:
    """Two syllables each, with the space before them."""
    syllables = [a + b for a, b in product("bdkm", "aeio")]
    return tuple(f" {first}{second}".encode() for first, second in product(syllables, repeat=2))


@cache
def _word_ids() -> dict[bytes, int]:
    return {word: BYTES + index for index, word in enumerate(_words())}


EPOCH = 1_767_225_600.0
"""The virtual clock starts at 2026-01-01T00:00:00Z."""
BREAKING: frozenset[FaultKind] = frozenset({"dies", "hangs", "garbage", "interrupt"})
BENDING: frozenset[FaultKind] = frozenset({"truncated"})
BENDING_SD: frozenset[FaultKind] = frozenset({"truncated", "decode-failed", "acceptance-stuck", "text-differs"})


_Result = Reply | EngineError | KeyboardInterrupt


_Admitted = tuple[FaultKind | None, FaultKind | None, Generation]


class _Asked(NamedTuple):
    """A request that waits for a slot."""

    ticket: Ticket
    sent_ms: float
    prompt: Prompt
    generation: Generation


class MockEngine:
    """Implements `specmeter.engines.Engine`. Time passes only when the engine works."""

    def __init__(self, spec: MockSpec | None = None) -> None:
        self.spec = spec or MockSpec()
        self.now_ms = 0.0
        self.calls = 0
        """`generate` was called so often, warm-ups included."""
        self._sessions: Counter[str] = Counter()

    def identify(self) -> EngineIdentity:
        """The mock's bytes are its spec; planted faults are not part of it, so that a run can go on without them."""
        spec = self.spec.model_dump_json(exclude={"faults"})
        return EngineIdentity(
            kind="mock",
            version=__version__,
            build="virtual clock",
            binary="mock",
            binary_sha256=hashlib.sha256(spec.encode()).hexdigest(),
            traits=MOCK.traits,
        )

    def clock(self) -> float:
        """Virtual seconds since the epoch."""
        return EPOCH + self.now_ms / 1000

    def start(self, launch: Launch) -> MockSession:
        """A session, after the virtual time of loading. Raises `EngineStartError` as planted, `ModelError`."""
        block = self._sessions[launch.arm.id]
        self._sessions[launch.arm.id] += 1
        session = MockSession(self, launch, block)
        self.now_ms += session.facts.ready_ms
        return session

    def fault(
        self, arm: Arm, block: int, kinds: frozenset[FaultKind], prompt_id: str | None = None
    ) -> FaultKind | None:
        """The first planted fault of these kinds that applies here."""
        for fault in self.spec.faults:
            here = fault.kind in kinds and fnmatch.fnmatchcase(arm.id, fault.arm) and fault.block in (None, block)
            this = prompt_id is None or fnmatch.fnmatchcase(prompt_id, fault.prompt)
            if here and this and fault.call in (None, self.calls):
                return fault.kind
        return None


class MockSession(EngineSession):
    """Runs as many requests at once as the arm has slots, in rounds that they share as those of a server do: every
    sequence takes one step in each, and a prompt goes into the first round after it found a slot."""

    def __init__(self, engine: MockEngine, launch: Launch, block: int) -> None:
        arm = launch.arm
        self._engine, self._launch, self._block = engine, launch, block
        self._alive = True
        self._repeats: Counter[str] = Counter()
        self._numbers = count(1)
        self._waiting: deque[_Asked] = deque()
        self._running: dict[Ticket, Performance] = {}
        self._round: dict[Ticket, Performance] = {}
        """Those that take part in the round at hand."""
        self._round_ms = (0.0, 0.0)
        """When that began, and when it ends."""
        self._over: list[tuple[float, Ticket, _Result, Performance | None]] = []
        """What has ended for the engine, and when its client hears of it; a heap."""
        self._breaking: dict[Ticket, FaultKind] = {}
        self._totals: Counter[str] = Counter()
        self._log("mock engine: virtual clock")
        if engine.fault(arm, block, frozenset({"start-fails"})):
            self._log("error: failed to load the model")
            raise EngineStartError(
                f"{arm.id}: the mock engine did not start, as planted", fix="remove the fault `start-fails`"
            )
        active = arm.speculates and engine.fault(arm, block, frozenset({"inactive"})) is None
        if arm.speculates and not active:
            self._log("failed to initialize speculative decoding context")
        if arm.synthetic_rates:
            self._log("synthetic speculative acceptance is enabled")
        self._player = Player(engine.spec, launch, speculating=active, log=self._log)
        drafts = [DeviceUse(device="MOCK0", model_buffer_bytes=launch.draft.size_bytes)] if launch.draft else []
        self.facts = SessionFacts(
            argv=("mock", launch.target.reference, *arm.methods),
            ready_ms=self._player.load_ms,
            resolved={
                "n_ctx": arm.engine.full_context,
                "total_slots": arm.engine.slots,
                "speculative.types": ",".join(arm.methods),
                "speculative.n_max": gamma(arm),
                "speculative.n_min": arm.gamma_min or 0,
                "speculative.p_min": arm.p_min or 0.0,
            },
            speculating=active,
            devices=(DeviceUse(device="MOCK0", model_buffer_bytes=launch.target.size_bytes),),
            draft_devices=tuple(drafts),
            in_flight=arm.engine.slots,
        )

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate in virtual time. Raises what planted faults say, `KeyboardInterrupt` included."""
        breaking, bent, generation = self._admitted(prompt, generation)
        reply = self._player.play(prompt, generation, bent, self._block, self._repeats[prompt.id])
        self._engine.now_ms += reply.wall_ms if breaking is None else reply.wall_ms / 2
        result = self._told(reply if breaking is None else self._broken(breaking))
        self._totals.update(result.counters)
        self._totals["n_busy_slots_total"] += int(result.counters.get("n_decode_total", 0))
        return result

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        """Put a request in flight: it runs now, or when a slot is free."""
        ticket = Ticket(next(self._numbers))
        self._waiting.append(_Asked(ticket, self._engine.now_ms, prompt, generation))
        self._fill()
        return ticket

    def collect(self, timeout_s: float | None = None) -> Ended | None:
        """Let virtual time pass until a request ends."""
        engine = self._engine
        until_ms = math.inf if timeout_s is None else engine.now_ms + timeout_s * 1000
        while True:
            self._begin_round()
            over_ms = self._over[0][0] if self._over else math.inf
            round_ms = self._round_ms[1] if self._round else math.inf
            at_ms = min(over_ms, round_ms)
            if at_ms > until_ms:
                engine.now_ms = until_ms
                return None
            if at_ms == math.inf:
                return None
            engine.now_ms = max(engine.now_ms, at_ms)
            if over_ms <= round_ms:
                return self._collected(*heapq.heappop(self._over)[1:])
            self._end_round()

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up; its slot is free at once."""
        self._waiting = deque(it for it in self._waiting if it.ticket != ticket)
        self._over = [it for it in self._over if it[1] != ticket]
        heapq.heapify(self._over)
        self._running.pop(ticket, None)
        self._round.pop(ticket, None)
        self._fill()

    def wait(self, seconds: float) -> None:
        """On the virtual clock."""
        self._engine.now_ms += seconds * 1000

    def totals(self) -> dict[str, float]:
        """What was counted since the session began."""
        return dict(self._totals)

    def candidates(
        self, prompt: Prompt, generated: tuple[int, ...], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target says at that place of its text, with probability 0.9, before words that it does not say."""
        engine = self._engine
        if not self._alive:
            raise self._died()
        breaking = engine.fault(self._launch.arm, self._block, BREAKING, prompt.id)
        if breaking is not None:
            self._told(self._broken(breaking))
        engine.now_ms += self._player.prompt_ms(prompt, generated)
        return self._player.candidates(prompt, generation, len(generated), count)

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Those of its text: there is no template."""
        return tokenize(prompt.text)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """One id per byte, except for the words that the mock itself says."""
        return tokenize(text)

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Inverse of `tokenize`."""
        return detokenize(token_ids)

    def close(self) -> None:
        """End the session; safe to call twice."""
        self._alive = False
        for left in (self._waiting, self._running, self._round, self._over):
            left.clear()

    def _admitted(self, prompt: Prompt, generation: Generation) -> _Admitted:
        """(the fault that breaks it, the one that bends it, what is generated). Raises what is refused at once."""
        engine, arm = self._engine, self._launch.arm
        if not self._alive:
            raise self._died()
        room, wanted = arm.engine.slot_context, len(tokenize(prompt.text))
        if wanted >= room:
            raise EngineProtocolError(
                f"{arm.id}: the prompt has {wanted} tokens, and the context has room for {room}",
                fix="raise engine.context, or shorten the prompt",
            )
        breaking = engine.fault(arm, self._block, BREAKING, prompt.id)
        bending = BENDING_SD if self.facts.speculating else BENDING
        bent = engine.fault(arm, self._block, bending, prompt.id)
        if prompt.max_tokens is not None:
            generation = generation.model_copy(update={"max_tokens": prompt.max_tokens})
        engine.calls += 1
        self._repeats[prompt.id] += 1
        return breaking, bent, generation

    def _fill(self) -> None:
        """Give what waits the slots that are free."""
        while self._waiting and len(self._running) < self.facts.in_flight:
            asked = self._waiting.popleft()
            try:
                breaking, bent, generation = self._admitted(asked.prompt, asked.generation)
            except EngineError as refused:
                heapq.heappush(self._over, (self._engine.now_ms, asked.ticket, refused, None))
                continue
            repeat = self._repeats[asked.prompt.id]
            script = self._player.write(asked.prompt, generation, bent, self._block, repeat)
            taken = {it.slot for it in self._running.values()}
            slot = next(it for it in count() if it not in taken)
            self._running[asked.ticket] = Performance(script, asked.sent_ms, slot, breaks=breaking is not None)
            if breaking is not None:
                self._breaking[asked.ticket] = breaking

    def _begin_round(self) -> None:
        """Everything in a slot takes part; what comes later waits for the next one."""
        if self._running and not self._round:
            self._round = dict(self._running)
            now_ms = self._engine.now_ms
            self._round_ms = now_ms, now_ms + self._player.round_ms(tuple(self._round.values()))

    def _end_round(self) -> None:
        """Count the round at hand, and go on to the next."""
        self._count_round()
        for ticket, it in self._round.items():
            it.shared = it.shared or len(self._round) > 1
            it.advance(*self._round_ms)
            if not it.over:
                continue
            del self._running[ticket]
            result: _Result
            if ticket in self._breaking:
                overhead_ms, result = 0.0, self._broken(self._breaking.pop(ticket))
            else:
                overhead_ms = self._engine.spec.request_overhead_ms
                result = it.reply(overhead_ms)
            heapq.heappush(self._over, (it.ended_ms + overhead_ms, ticket, result, it))
        self._round = {}
        self._fill()

    def _count_round(self) -> None:
        """As a server does: forwards, and the slots that were busy in each."""
        prompts = [it.script.prompt_forwards for it in self._round.values() if it.now is None]
        drafts = [it.now.draft for it in self._round.values() if it.now is not None]
        steps = sum(it.now is not None and it.now.positions > 0 for it in self._round.values())
        self._totals["n_decode_total"] += max(prompts, default=int(steps > 0))
        self._totals["n_busy_slots_total"] += sum(prompts) + steps
        self._totals["spec_decode_num_drafts_total"] += sum(it.drafted > 0 for it in drafts)
        self._totals["spec_decode_num_draft_tokens_total"] += sum(it.drafted for it in drafts)
        self._totals["spec_decode_num_accepted_tokens_total"] += sum(it.accepted for it in drafts)

    def _collected(self, ticket: Ticket, result: _Result, of: Performance | None) -> Ended:
        started_at = None if of is None else EPOCH + of.sent_ms / 1000
        try:
            reply = self._told(result)
        except EngineError as error:
            if not self._alive:  # all the others end with it
                now_ms = self._engine.now_ms
                self._over += [(now_ms, it, error, of) for it, of in self._running.items()]
                heapq.heapify(self._over)
                self._running, self._round = {}, {}
            self._fill()
            return Ended(ticket, error, started_at)
        return Ended(ticket, reply, started_at, of and of.slot, of and of.queued_ms)

    def _told(self, result: _Result) -> Reply:
        if isinstance(result, Reply):
            return result
        if isinstance(result, EngineHungError) and self._alive:
            self._engine.now_ms += self._launch.idle_timeout_s * 1000
        self._alive = self._alive and not isinstance(result, EngineDiedError | EngineHungError)
        raise result

    def _broken(self, fault: FaultKind) -> _Result:
        arm = self._launch.arm.id
        if fault == "interrupt":
            return KeyboardInterrupt()
        if fault == "garbage":
            return EngineProtocolError(
                f"{arm}: the mock engine answered `<html>` instead of JSON, as planted",
                fix="remove the fault `garbage`",
            )
        if fault == "hangs":
            patience_s = self._launch.idle_timeout_s
            return EngineHungError(f"{arm}: no token for {patience_s:g} s, as planted", fix="remove the fault `hangs`")
        return self._died()

    def _died(self) -> EngineDiedError:
        return EngineDiedError(
            f"{self._launch.arm.id}: the mock engine has ended", fix="start a new session, or remove the fault `dies`"
        )

    def _log(self, line: str) -> None:
        self._launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._launch.log_path, "a", encoding="utf-8", newline="\n", opener=without_links) as log:
            log.write(line + "\n")
