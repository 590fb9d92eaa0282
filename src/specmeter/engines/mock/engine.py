"""`MockEngine` and `MockSession`: the virtual clock and the life of a session; `play` knows a single generation."""

from __future__ import annotations

import fnmatch
import hashlib
from collections import Counter, deque
from itertools import count

from specmeter import __version__
from specmeter.engines import Candidate, Launch, SessionFacts
from specmeter.engines.mock.kind import MOCK
from specmeter.engines.mock.play import Player, gamma
from specmeter.engines.mock.spec import FaultKind, MockSpec
from specmeter.engines.mock.words import detokenize, tokenize
from specmeter.engines.session import Ended, EngineSession, Ticket
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError, EngineStartError
from specmeter.record import Arm, DeviceUse, EngineIdentity, Generation, Prompt, Reply

EPOCH = 1_767_225_600.0
"""The virtual clock starts at 2026-01-01T00:00:00Z."""
BREAKING: frozenset[FaultKind] = frozenset({"dies", "hangs", "garbage", "interrupt"})
BENDING: frozenset[FaultKind] = frozenset({"truncated"})
BENDING_SD: frozenset[FaultKind] = frozenset({"truncated", "decode-failed", "acceptance-stuck", "text-differs"})


_Result = Reply | EngineError | KeyboardInterrupt


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
    """Runs as many requests at once as the arm has slots. They do not slow one another down."""

    def __init__(self, engine: MockEngine, launch: Launch, block: int) -> None:
        arm = launch.arm
        self._engine, self._launch, self._block = engine, launch, block
        self._alive = True
        self._repeats: Counter[str] = Counter()
        self._numbers = count(1)
        self._waiting: deque[tuple[Ticket, Prompt, Generation]] = deque()
        self._running: dict[Ticket, tuple[float, _Result]] = {}
        """When each ends on the virtual clock, in ms, and how."""
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
                "n_ctx": arm.engine.context,
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
        ms, result = self._play(prompt, generation)
        self._engine.now_ms += ms
        return self._told(result)

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        """Put a request in flight: it runs now, or when a slot is free."""
        ticket = Ticket(next(self._numbers))
        self._waiting.append((ticket, prompt, generation))
        self._fill()
        return ticket

    def collect(self, timeout_s: float | None = None) -> Ended | None:
        """Let virtual time pass until a request ends."""
        if not self._running:
            return None
        engine = self._engine
        ticket = min(self._running, key=lambda it: (self._running[it][0], it))
        ends_ms = self._running[ticket][0]
        if timeout_s is not None and ends_ms > engine.now_ms + timeout_s * 1000:
            engine.now_ms += timeout_s * 1000
            return None
        engine.now_ms = max(engine.now_ms, ends_ms)
        _, result = self._running.pop(ticket)
        try:
            return Ended(ticket, self._told(result))
        except EngineError as error:
            if not self._alive:  # all the others end with it
                self._running = dict.fromkeys(self._running, (engine.now_ms, error))
            return Ended(ticket, error)
        finally:
            self._fill()

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up; its slot is free at once."""
        self._waiting = deque(it for it in self._waiting if it[0] != ticket)
        self._running.pop(ticket, None)
        self._fill()

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
        self._waiting.clear()
        self._running.clear()

    def _play(self, prompt: Prompt, generation: Generation) -> tuple[float, _Result]:
        """(ms that it takes, how it ends). Raises what is refused at once."""
        engine, arm = self._engine, self._launch.arm
        if not self._alive:
            raise self._died()
        room, wanted = arm.engine.context // arm.engine.slots, len(tokenize(prompt.text))
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
        reply = self._player.play(prompt, generation, bent, self._block, self._repeats[prompt.id])
        if breaking is None:
            return reply.wall_ms, reply
        return reply.wall_ms / 2, self._broken(breaking)

    def _fill(self) -> None:
        """Start what waits in the slots that are free."""
        while self._waiting and len(self._running) < self.facts.in_flight:
            ticket, prompt, generation = self._waiting.popleft()
            try:
                ms, result = self._play(prompt, generation)
            except EngineError as refused:
                ms, result = 0.0, refused
            self._running[ticket] = (self._engine.now_ms + ms, result)

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
        with self._launch.log_path.open("a", encoding="utf-8", newline="\n") as log:
            log.write(line + "\n")
