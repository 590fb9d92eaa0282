"""The only loop that measures: schedule -> engine session -> requests.

A cell of the schedule (an arm in a block) gets a session of its own: start, excluded warm-up (unless its server is a
warm one, `engines.warm_servers`), then one request at a time, each on disk before it is reported. Requests that end
within 20 ms of the last write share the next one, since a write takes from 0.4 to 5 ms. What is already in the run
folder is skipped, so the same loop resumes an interrupted run. An engine that dies costs the request it was
working on; the rest of the cell continues with a fresh session.

A cell of an arm with a load is measured by its clients and stored when it has ended (`measure.load`).
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from specmeter.engines import Engine, EngineSession, Launch
from specmeter.errors import EngineError, EngineStartError, ExperimentError, stop_if_asked
from specmeter.experiments.schedule import Cell, prompt_order
from specmeter.host.telemetry import TelemetrySampler, wait_for_calm
from specmeter.measure.calm import MAX_TIMES, disturbance, gate_of
from specmeter.measure.clients import FILLER, DueRequest
from specmeter.measure.load import Kept, LoadedCell
from specmeter.measure.requests import block_seed, request_of
from specmeter.record import (
    Arm,
    Disturbance,
    EngineTraits,
    Generation,
    Host,
    Load,
    ModelIdentity,
    Prediction,
    Prompt,
    PromptTokens,
    Request,
    RequestEnergy,
    Session,
    Telemetry,
    WarmUp,
)

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.host.energy import EnergyMeter, Spent
    from specmeter.messages import Message
    from specmeter.store import RequestKey, RunStore

SHORT_WARMUP_TOKENS = 8
FULL_WARMUP_TOKENS = 256
"""An answer may be longer, and a warm-up as long as that would only take time."""
SHORT_WARMUP_PROMPT = 512
"""Tokens of a prompt that a short warm-up reads; llama.cpp computes no more at once."""
BRIEF_CHARACTERS = 96
TOGETHER_S = 0.02
"""A kill loses no more of what was measured than this, and the request at hand."""
START_FAILURES = 3
"""After this many sessions in a row that never became ready, the run stops: the next one will not start either."""


class Observer(Protocol):
    """Observer for progress displays; must not change the run."""

    def looking_ahead(self, doing: Message) -> None:
        """Something is found out that an arm's prediction needs; `doing` says what, and about how long it takes."""

    def session_starting(self, cell: Cell, requests: int) -> None:
        """A session starts, to measure this many requests."""

    def request_done(self, request: Request) -> None:
        """A request has ended; it is on disk, or will be with its cell under load."""

    def session_failed(self, arm_id: str, error: EngineError) -> None:
        """A session ended before its time."""

    def block_excluded(self, found: Disturbance, wait_s: float) -> None:
        """Others disturbed a block, which does not count; before it is measured again calm is waited for, so long at
        most."""

    def machine_sampled(self, sample: Telemetry, host: Host) -> None:
        """The machine while requests run, about once a second; called from another thread."""


class Predictor(Protocol):
    """Predicts an arm before its first session; `prediction.forecast.Forecaster` is one."""

    def saw(self, requests: Iterable[Request]) -> None:
        """Requests that were measured."""

    def prepare(self, arm: Arm) -> None:
        """Find out what its prediction needs; this may take a while, and the engine."""
        ...

    def predict(self, arm: Arm, now: float) -> Prediction:
        """The prediction for an arm that was not measured yet."""
        ...


@dataclass(frozen=True)
class Work:
    """All that is needed to measure one experiment."""

    experiment: Experiment
    arms: Mapping[str, Arm]
    models: Mapping[str, ModelIdentity]
    """By name in the experiment; targets and drafts."""
    prompts: Mapping[str, tuple[Prompt, ...]]
    """Arm id -> its prompts, in the order of the workloads."""
    cells: Sequence[Cell]
    traits: EngineTraits = field(default_factory=EngineTraits)
    """What the engine states about itself."""

    @property
    def simulated(self) -> bool:
        """Time is virtual: there is no machine to watch."""
        return self.traits.simulated

    @property
    def watched(self) -> bool:
        """Whether this machine is the one that computes."""
        return self.traits.watched and not self.simulated

    def keys(self) -> Iterator[tuple[int, int, str, str]]:
        """Every (invocation, block, arm id, prompt id) that makes the run complete."""
        for cell in self.cells:
            for prompt in self.due(cell):
                yield cell.invocation, cell.block, cell.arm_id, prompt.id

    def due(self, cell: Cell) -> tuple[Prompt, ...]:
        """The prompts to be measured in a cell, in the order of the workloads."""
        return self.experiment.due(self.arms[cell.arm_id], self.prompts[cell.arm_id], cell.invocation, cell.block)


def measure(
    work: Work,
    engine: Engine,
    store: RunStore,
    observer: Observer,
    predictor: Predictor | None = None,
    meter: EnergyMeter | None = None,
) -> None:
    """Measure everything that `store` does not hold yet; keep what `predictor` says of an arm before its first session,
    and what `meter` says of every request.

    A block that others disturbed is excluded and measured again (`measure.calm`).

    Engine failures are recorded with their requests and do not stop the run, unless engines fail to start again and
    again (`EngineStartError`). Raises `ExperimentError` when a prompt does not fit the context, and `ModelError` when a
    model is no longer the file that it was. Any other exception (Ctrl-C included) ends the session at hand and passes
    on. Everything measured before is in the store.
    """
    bench = _CellRunner(work, engine, store, observer, predictor, meter)
    bench.recall()
    given_up = {(it.invocation, it.block) for it in store.disturbances() if not it.again}
    for block, cells in groupby(work.cells, key=lambda cell: (cell.invocation, cell.block)):
        turns = tuple(cells)
        while block not in given_up:
            for cell in turns:
                bench.measure_missing(cell)
            if not bench.exclude_block(block):
                break


@dataclass
class _CellRunner:
    """Measures one cell after the other."""

    work: Work
    engine: Engine
    store: RunStore
    observer: Observer
    predictor: Predictor | None = None
    meter: EnergyMeter | None = None
    done: set[RequestKey] = field(default_factory=set["RequestKey"])
    started: Counter[str] = field(default_factory=Counter[str])
    """Arm id -> sessions that the run has."""
    """Requests that have an answer which counts."""
    whole: set[tuple[int, int, str]] = field(default_factory=set[tuple[int, int, str]])
    """Cells under load that came to their end."""
    predicted: set[str] = field(default_factory=set[str])
    """Arms whose prediction is on record."""
    waited_s: float = 0.0
    """For a calm machine, in all."""
    kept: list[tuple[Request, Sequence[Telemetry], RequestEnergy | None]] = field(
        default_factory=list[tuple[Request, Sequence[Telemetry], "RequestEnergy | None"]]
    )
    """Measured, and neither stored nor reported yet."""
    stored_at: float = -math.inf
    """Of this process's clock."""
    failures: int = 0
    """Sessions in a row that never became ready."""
    fitting: set[str] = field(default_factory=set[str])
    """Arms whose prompts are known to fit the context."""
    lengths: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """(target, prompt id) -> tokens of the prompt."""
    forwards: dict[tuple[str, int], int | None] = field(default_factory=dict[tuple[str, int], "int | None"])
    """(arm, batches of a prompt) -> forwards that such a prompt takes, where the engine counts them."""

    def recall(self) -> None:
        """What an earlier start of the run left."""
        self.done = self.store.done_keys()
        self.started = Counter(it.arm_id for it in self.store.sessions())
        aside = {(it.invocation, it.block): it.ended_at for it in self.store.disturbances()}
        self.whole = {
            (it.invocation, it.block, it.arm_id)
            for it in self.store.load_cells()
            if it.complete and it.began_at > aside.get((it.invocation, it.block), -math.inf)
        }
        if self.predictor is None:
            return
        self.predicted = {prediction.arm_id for prediction in self.store.predictions()}
        if self.expecting:
            self.predictor.saw(self.store.requests())

    @property
    def expecting(self) -> bool:
        """Whether some arm is still to be predicted; once none is, nothing needs to be remembered for it."""
        return any(arm.speculates and arm.id not in self.predicted for arm in self.work.arms.values())

    def predict(self, arm: Arm) -> None:
        """Store the prediction for an arm, once, before its first session."""
        if self.predictor is None or not arm.speculates or arm.id in self.predicted:
            return
        self.predictor.prepare(arm)
        self.store.add_prediction(self.predictor.predict(arm, self.engine.clock()))
        self.predicted.add(arm.id)

    def measure_missing(self, cell: Cell) -> None:
        """Measure what the run folder lacks of a cell. Raises `EngineStartError` where engines fail to start."""
        arm, prompts = self.work.arms[cell.arm_id], self.work.due(cell)
        seed = self.work.experiment.design.seed
        order = prompt_order(prompts, cell.invocation, cell.block, seed)
        missing = [
            (item, prompts[index])
            for item, index in enumerate(order)
            if (cell.invocation, cell.block, cell.arm_id, prompts[index].id) not in self.done
        ]
        if not missing and (arm.load is None or (cell.invocation, cell.block, cell.arm_id) in self.whole):
            return
        if arm.load is not None:  # half a cell is not a measurement
            missing = [(item, prompts[index]) for item, index in enumerate(order)]
        stop_if_asked()
        self.predict(arm)
        self.observer.session_starting(cell, len(missing))
        error = self.measure_cell(cell, missing)
        self.failures = self.failures + 1 if error else 0
        if error and self.failures == START_FAILURES:
            raise EngineStartError(
                f"{self.failures} sessions in a row did not start; last error: {error.message}", fix=error.fix
            )

    def exclude_block(self, block: tuple[int, int]) -> bool:
        """Set a block aside that was disturbed, and wait for a calm machine; whether it is to be measured again."""
        design = self.work.experiment.design
        if not self.work.watched or design.disturbed == "keep" or design.order == "grouped":
            return False
        *_, host = self.store.hosts()
        found = disturbance(self.store, block, self.work.arms, host, design.repeat_s)
        if found is None:
            return False
        self.store.exclude_block(found)
        self.observer.block_excluded(found, design.wait_s - self.waited_s)
        self.done = self.store.done_keys()
        self.whole = {it for it in self.whole if it[:2] != block}
        if found.again:
            began = time.monotonic()
            sessions = [it for it in self.store.sessions() if (it.invocation, it.block) == block]
            wait_for_calm(design.wait_s - self.waited_s, gate_of(self.work.arms, sessions, host))
            self.waited_s += time.monotonic() - began
        return found.again

    def measure_cell(self, cell: Cell, items: Sequence[tuple[int, Prompt]]) -> EngineError | None:
        """Measure the items, with a new session after every death of the engine.

        A session that does not come up fails all items that are left; its error is returned.
        """
        if (load := self.work.arms[cell.arm_id].load) is not None:
            return self._measure_load(cell, load, items)
        remaining = list(items)
        per_session = 1 if self.work.experiment.design.session == "request" else len(remaining)
        while remaining:
            session_id = uuid.uuid4().hex
            ready = False
            try:
                with self._session(cell, session_id, remaining[0][1]) as (session, samples):
                    ready = True
                    for item, prompt in remaining[:per_session]:
                        del remaining[0]
                        self._measure(session, cell, session_id, item, prompt, samples)
            except EngineError as error:
                self.observer.session_failed(cell.arm_id, error)
                if not ready:
                    for item, prompt in remaining:
                        self._keep(request_of(cell, session_id, item, prompt, self.engine.clock(), error))
                    self._store()
                    return error
        return None

    def _measure_load(
        self, cell: Cell, load: Load, items: Sequence[tuple[int, Prompt]], again: int = MAX_TIMES - 1
    ) -> EngineError | None:
        """Measure a cell under load, all of it in one session.

        A session that does not come up fails all of it, and its error is returned; one that ends before its time leaves
        the cell broken off, on record. One whose clients were late is kept and measured `again`, unseen by the observer
        and whatever came out.
        """
        session_id = uuid.uuid4().hex
        asked = [DueRequest(item, prompt, self._generation(prompt, cell)) for item, prompt in items]
        ready = False
        try:
            with self._session(cell, session_id, items[0][1]) as (session, samples):
                ready = True
                seed = self.work.experiment.design.seed
                loaded = LoadedCell(cell, load, session_id, session, self.engine.clock, seed)

                def keep(kept: Kept) -> None:
                    self.store.add_load(kept.requests, _drain(samples), kept.cell)

                first = again == MAX_TIMES - 1
                lead = self._lead(session, cell, load, items)
                kept = loaded.serve(asked, self.observer.request_done if first else _unseen, keep, lead)
        except EngineError as error:
            self.observer.session_failed(cell.arm_id, error)
            if not ready:
                now = self.engine.clock()
                failed = [request_of(cell, session_id, item, prompt, now, error) for item, prompt in items]
                self.store.add_load((request, None) for request in failed)
                for request in failed:
                    self.observer.request_done(request)
                return error
            return None
        if kept.broken_off is not None:
            self.observer.session_failed(cell.arm_id, kept.broken_off)
        if self.predictor is not None and self.expecting:
            self.predictor.saw([request for request, _ in kept.requests])
        if again and kept.is_late(load):
            return self._measure_load(cell, load, items, again - 1)
        return None

    @contextmanager
    def _session(
        self, cell: Cell, session_id: str, first: Prompt
    ) -> Generator[tuple[EngineSession, SimpleQueue[Telemetry]]]:
        """A session that is on record, checked and warmed up; always closed, and its end recorded."""
        arm, settings = self.work.arms[cell.arm_id], self.work.experiment.engine
        launch = Launch(
            arm=arm,
            target=self.work.models[arm.target],
            draft=self.work.models[arm.draft] if arm.draft else None,
            log_path=self.store.log_path(session_id, arm.id),
            start_timeout_s=settings.start_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
            reuse=self.work.experiment.design.reads_once,
            recalls=first.turn is not None and arm.load is None,
            before=self.started[arm.id],
        )
        started_at = self.engine.clock()
        samples: SimpleQueue[Telemetry] = SimpleQueue()
        self._refuse_other_models(launch)
        with ExitStack() as stack:
            identity = self.engine.identify()  # each time: another build may be installed during a run
            session = stack.enter_context(self.engine.start(launch))
            facts = session.facts
            record = Session(
                id=session_id,
                arm_id=arm.id,
                invocation=cell.invocation,
                block=cell.block,
                position=cell.position,
                argv=facts.argv,
                engine=identity,
                started_at=started_at,
                ready_ms=facts.ready_ms,
                log_file=self.store.relative(launch.log_path),
                server=facts.server,
                resolved=facts.resolved,
                speculating=facts.speculating,
                devices=facts.devices,
                draft_devices=facts.draft_devices,
                layers_offloaded=facts.layers_offloaded,
                draft_layers_offloaded=facts.draft_layers_offloaded,
            )
            warm = facts.server is not None and any(
                it.server == facts.server and it.warmup_ms for it in self.store.sessions()
            )
            self.store.add_session(record)
            self.started[arm.id] += 1
            try:
                self._refuse_too_long(session, arm)
                if not warm:
                    with self._sampled(SimpleQueue(), facts.pids):  # told, not kept: nothing of a warm-up counts
                        record = record.model_copy(update=self._warm_up(session, arm, cell, first))
                stack.enter_context(self._sampled(samples, facts.pids))
                yield session, samples
            finally:
                try:
                    self._store()
                finally:
                    stack.close()
                    self.store.update_session(record.model_copy(update={"ended_at": self.engine.clock()}))
                    self.store.add_telemetry(_drain(samples))

    def _sampled(
        self, samples: SimpleQueue[Telemetry], pids: Sequence[int]
    ) -> AbstractContextManager[TelemetrySampler | None]:
        """The machine is sampled meanwhile, where it is the one that computes."""
        return TelemetrySampler(self._tells(samples), pids=pids) if self.work.watched else nullcontext()

    def _tells(self, samples: SimpleQueue[Telemetry]) -> Callable[[Telemetry], None]:
        """Keep a sample, and tell the observer."""
        hosts = list(self.store.hosts())

        def take(sample: Telemetry) -> None:
            samples.put(sample)
            if hosts:
                self.observer.machine_sampled(sample, hosts[-1])

        return take

    def _refuse_other_models(self, launch: Launch) -> None:
        """A model file may be replaced during a run; two models are not one target."""
        from specmeter.models.reference import refuse_changes

        for model in (launch.target, launch.draft):
            if model is not None:
                refuse_changes(model)

    def _refuse_too_long(self, session: EngineSession, arm: Arm) -> None:
        """Nothing is measured with a prompt that the engine would refuse or cut in the middle of a run.

        Every prompt is tokenized once for each target, and what comes out is kept.
        """
        if arm.id in self.fitting or "tokens" not in self.work.traits.tells:
            return
        self._tokenize(session, arm)
        # A server that runs has the context that it was given.
        told = session.facts.resolved.get("slot_context") if self.work.traits.asked else None
        limit = told if isinstance(told, int) else arm.engine.slot_context
        for prompt in self.work.prompts[arm.id]:
            tokens = self.lengths[arm.target, prompt.id]
            wanted = tokens + self._generation(prompt).max_tokens
            if wanted > limit:
                more = f"set engine.context to {needed(arm, wanted)} or" if told is None else "start the server with"
                raise ExperimentError(
                    f"engine.context: prompt {prompt.id!r} has {tokens} tokens plus {wanted - tokens} to generate, "
                    f"but {arm.id} has room for {limit}",
                    fix=f"{more} more, or lower max_tokens",
                )
        self.fitting.add(arm.id)

    def _tokenize(self, session: EngineSession, arm: Arm) -> None:
        new = [prompt for prompt in self.work.prompts[arm.id] if (arm.target, prompt.id) not in self.lengths]
        made = [PromptTokens(target=arm.target, prompt_id=it.id, token_ids=session.prompt_tokens(it)) for it in new]
        if made:
            self.store.add_prompt_tokens(made)
            self.lengths |= {(it.target, it.prompt_id): len(it.token_ids) for it in made}

    def _warm_up(self, session: EngineSession, arm: Arm, cell: Cell, first: Prompt) -> dict[str, object]:
        """Excluded requests: one of the shape that the design says, and in an arm's first session one token alone, to
        see how many forwards a prompt takes.

        Returns what the session's record says of them: their wall time in ms, that number of forwards where the engine
        counts them, and of a baseline's first session the tokens. The words of the prompt come in reverse order: the
        shape is the same, but no n-gram table learns from the warm-up what the measured request is about to say.
        """
        kind = self.work.experiment.design.warmup
        if kind == "none":
            return {}
        started = self.engine.clock()
        generation = self._generation(first)
        tokens = warmup_tokens(kind, generation.max_tokens)
        prompt, batch = self._reversed(session, arm, first, tokens), session.facts.resolved.get("n_batch")
        length = self.lengths.get((arm.target, first.id), 0)
        alike = (arm.id, -(-length // batch) if isinstance(batch, int) and batch > 0 else length)
        if alike in self.forwards or (isinstance(batch, int) and 0 < length <= batch):
            # Otherwise the forwards of the whole prompt are to be counted.
            prompt = _cut(prompt, kind, length)
        reply = session.generate(prompt, generation.model_copy(update={"max_tokens": tokens}))
        one = generation.model_copy(update={"max_tokens": 1})
        if alike not in self.forwards:
            forwards = session.generate(prompt, one).counters.get("n_decode_total")
            self.forwards[alike] = None if forwards is None else round(forwards)
        if kind == "prompts" and session.facts.server is not None:
            self._read_prompts(session, self.work.prompts[arm.id], one)
        told: dict[str, object] = {
            "warmup_ms": (self.engine.clock() - started) * 1000,
            "prompt_forwards": self.forwards[alike],
        }
        opening = cell.block == 0 and cell.invocation == self.work.experiment.invocations[0]
        if arm.role == "baseline" and opening and "tokens" in self.work.traits.tells:
            told["warmup"] = WarmUp(prompt=session.prompt_tokens(prompt), text=reply.token_ids)
        return told

    def _read_prompts(self, session: EngineSession, prompts: Sequence[Prompt], one: Generation) -> None:
        """Let a server read all prompts, for requests to continue from there, alike in all blocks. Nothing more, where
        the first one was not kept (memories that cannot be cut, older servers)."""
        for number, prompt in enumerate(prompts):
            session.generate(prompt, one)
            if number == 1 and 2 * (again := session.generate(prompts[0], one).timings).cache_n < again.prompt_n:
                return

    def _lead(
        self, session: EngineSession, cell: Cell, load: Load, items: Sequence[tuple[int, Prompt]]
    ) -> list[DueRequest]:
        """What each of several clients of a closed loop begins with: warm-ups of the last prompts, ever longer.

        Also the first one: a request that finds the engine at rest does not wait for the end of others' steps.
        """
        found: list[DueRequest] = []
        clients = load.clients or 1
        for client in range(clients if clients > 1 else 0):
            prompt = items[-client % len(items)][1]
            generation = self._generation(prompt, cell)
            tokens = max(1, round(generation.max_tokens * (client + 0.5) / clients))
            prompt = self._reversed(session, self.work.arms[cell.arm_id], prompt, tokens)
            found.append(DueRequest(FILLER, prompt, generation.model_copy(update={"max_tokens": tokens})))
        return found

    def _reversed(self, session: EngineSession, arm: Arm, of: Prompt, tokens: int) -> Prompt:
        """A prompt's words in reverse order, cut where they would not fit: they may be more tokens than the prompt."""
        before = tuple(it.model_copy(update={"content": _reversed_words(it.content)}) for it in of.before)
        changed = {"id": "warm-up", "text": _reversed_words(of.text), "before": before, "max_tokens": None}
        changed |= {"tools": (), "held": {}, "turn": None}
        prompt, length = of.model_copy(update=changed), self.lengths.get((arm.target, of.id), 0)
        room = arm.engine.slot_context - tokens
        if 2 * length <= room:
            return prompt
        while (count := len(session.prompt_tokens(prompt))) > room and len(prompt.text) > 1:
            kept = min(len(prompt.text) - 1, max(1, int(0.98 * len(prompt.text) * room / count)))
            prompt = prompt.model_copy(update={"text": prompt.text[:kept]})
        return prompt

    def _measure(
        self,
        session: EngineSession,
        cell: Cell,
        session_id: str,
        item: int,
        prompt: Prompt,
        samples: SimpleQueue[Telemetry],
    ) -> None:
        stop_if_asked()
        started_at, before = self.engine.clock(), None
        try:
            session.recall(prompt)
            before = self.meter.now() if self.meter else None
            started_at = self.engine.clock()
            reply = session.generate(prompt, self._generation(prompt, cell))
        except EngineError as error:
            self._keep(request_of(cell, session_id, item, prompt, started_at, error), _drain(samples))
            raise
        spent = self.meter.between(before, self.meter.now()) if self.meter else None
        request = request_of(cell, session_id, item, prompt, started_at, reply)
        first_s = None if reply.ttft_ms is None else reply.ttft_ms / 1000
        reading = self.meter.until(before, first_s) if self.meter else None
        self._keep(request, _drain(samples), _energy(request, spent, reading))

    def _keep(self, request: Request, samples: Sequence[Telemetry] = (), energy: RequestEnergy | None = None) -> None:
        self.kept.append((request, samples, energy))
        if time.monotonic() - self.stored_at >= TOGETHER_S:
            self._store()

    def _store(self) -> None:
        """Write what was kept to the disk, then report it."""
        if not self.kept:
            return
        kept, self.kept = self.kept, []
        self.store.add_requests(kept)
        self.stored_at = time.monotonic()
        for request, _, _ in kept:
            if self.predictor is not None and self.expecting:
                self.predictor.saw((request,))
            self.observer.request_done(request)

    def _generation(self, prompt: Prompt, cell: Cell | None = None) -> Generation:
        """What is generated for a prompt; of a measured `cell`, with the seed of its block."""
        generation = self.work.experiment.generation
        changes: dict[str, int] = {}
        if prompt.max_tokens is not None:
            changes["max_tokens"] = prompt.max_tokens
        if cell is not None and generation.temperature > 0:
            changes["seed"] = block_seed(generation.seed, cell.invocation, cell.block)
        return generation.model_copy(update=changes) if changes else generation


def _unseen(_: Request) -> None: ...


def warmup_tokens(kind: str, most: int) -> int:
    """Most tokens of a warm-up before a request of at most this many."""
    return min(most, FULL_WARMUP_TOKENS) if kind == "full" else SHORT_WARMUP_TOKENS


def needed(arm: Arm, tokens: int) -> int:
    """What `engine.context` has to be for requests of this many tokens: under a load it is that of one slot."""
    return (tokens + 64) * (arm.engine.slots if arm.load is None else 1)


def _energy(request: Request, spent: Spent | None, prompt_j: float | None) -> RequestEnergy | None:
    """What the machine used during the request, `prompt_j` of it until the first token; None where nothing could be
    read."""
    if spent is None:
        return None
    return RequestEnergy(
        invocation=request.invocation,
        block=request.block,
        arm_id=request.arm_id,
        prompt_id=request.prompt_id,
        joules=dict(spent.joules),
        seconds=spent.seconds,
        unseen_s=spent.unseen_s,
        prompt_j=prompt_j,
    )


def _reversed_words(text: str) -> str:
    """The same words (or, where there are hardly any, characters) in reverse order."""
    words = text.split()
    return " ".join(reversed(words)) if len(words) >= 4 else text[::-1]


def _cut(prompt: Prompt, kind: str, length: int) -> Prompt:
    """A warm-up's prompt of `length` tokens, as short as its kind allows: a whole batch of the processor's warms all
    buffers, so that the first measured request finds what later ones find."""
    if kind in ("brief", "prompts"):
        return prompt.model_copy(update={"text": prompt.text[:BRIEF_CHARACTERS], "before": ()})
    if kind == "short" and length > SHORT_WARMUP_PROMPT:
        kept = max(1, len(prompt.text) * SHORT_WARMUP_PROMPT // length)
        return prompt.model_copy(update={"text": prompt.text[:kept], "before": ()})
    return prompt


def _drain(samples: SimpleQueue[Telemetry]) -> list[Telemetry]:
    drained: list[Telemetry] = []
    while True:
        try:
            drained.append(samples.get_nowait())
        except Empty:
            return drained
