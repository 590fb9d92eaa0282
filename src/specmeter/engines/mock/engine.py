"""The mock engine and its sessions, on a virtual clock."""

from __future__ import annotations

import fnmatch
import hashlib
import heapq
import math
from collections import Counter, deque
from itertools import count
from typing import NamedTuple

from specmeter import __version__
from specmeter.engines import Candidate, Launch, SessionFacts
from specmeter.engines.mock.player import Performance, Player, gamma
from specmeter.engines.mock.spec import MOCK, FaultKind, MockSpec
from specmeter.engines.mock.tokens import detokenize, tokenize
from specmeter.engines.session import Ended, EngineSession, Ticket
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError, EngineStartError
from specmeter.files import without_links
from specmeter.record import Arm, DeviceUse, EngineIdentity, Generation, Prompt, Reply

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
        """The mock's bytes are its spec; planted faults are not part of it, so that a run can continue without them."""
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
        block = max(self._sessions[launch.arm.id], launch.before)
        self._sessions[launch.arm.id] = block + 1
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
                f"{arm.id}: the mock engine did not start (planted fault)", fix="remove the fault `start-fails`"
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
                f"{arm.id}: the prompt has {wanted} tokens, but the context has room for {room}",
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
        """Count the round at hand, and continue to the next."""
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
                f"{arm}: the mock engine answered `<html>` instead of JSON (planted fault)",
                fix="remove the fault `garbage`",
            )
        if fault == "hangs":
            patience_s = self._launch.idle_timeout_s
            return EngineHungError(
                f"{arm}: no token for {patience_s:g} s (planted fault)", fix="remove the fault `hangs`"
            )
        return self._died()

    def _died(self) -> EngineDiedError:
        return EngineDiedError(
            f"{self._launch.arm.id}: the mock engine has ended", fix="start a new session, or remove the fault `dies`"
        )

    def _log(self, line: str) -> None:
        self._launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._launch.log_path, "a", encoding="utf-8", newline="\n", opener=without_links) as log:
            log.write(line + "\n")
