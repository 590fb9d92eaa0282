"""What an advice knows so far, what it has used of its budget, and how its stages are carried out.

One instance per invocation; its state is saved before observers are notified.

Who hears how an advice goes on.

One stage of an advice: a run folder that is measured or resumed, and what it says when it is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from specmeter.advise.advice import GRID_NAME, LEAVES_OFF, Fate, StageRun, write_advice
from specmeter.advise.question import Halves, changed, kinds_by_length, prompts_of_half, split
from specmeter.analysis.reading import line_to_paste, made_in
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import load
from specmeter.experiments.schedule import first_pass
from specmeter.host.limits import memory_available_bytes
from specmeter.laboratory.run import kept, part_of, prepare, run
from specmeter.measure import Observer as MeasureObserver
from specmeter.messages import Message
from specmeter.models.reference import ONLINE, Fetching
from specmeter.record import Arm, Estimate, Prediction
from specmeter.store import RunStore
from specmeter.store.run import EXPERIMENT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specmeter.advise.advice import Advice, Basis, Decision, Stage
    from specmeter.laboratory.run import Prepared, Then
    from specmeter.record import ModelIdentity, Prompt, Request, Verdict
    from specmeter.store import RunReader


class AdviseObserver(MeasureObserver, Protocol):
    """Observer for progress displays; must not change the run."""

    def load_starting(self, clients: int, budget_s: float) -> None:
        """The question of a schedule at so many clients, and what it may take."""

    def stage_starting(self, stage: Stage, arms: Mapping[str, Arm], left_s: float) -> None:
        """A stage begins, or a further block of the race: its arms, and what is left of the budget."""

    def told(self, advice: Advice) -> None:
        """The best answer so far."""

    def note(self, text: str) -> None:
        """Something that a person wants to know."""


class Silent(AdviseObserver):
    """Hears all and says nothing."""


@dataclass(frozen=True)
class StagePlan:
    """What a stage measures."""

    stage: Stage
    name: str
    """Of its folder within the advice's."""
    arms: tuple[str, ...]
    """Ids, baselines among them."""
    prompts: tuple[str, ...]
    changes: tuple[str, ...]
    """What is changed in the design, as `--set` takes it."""


def prepared_for(whole: Prepared, plan: StagePlan, folder: Path) -> Prepared:
    """The part of the grid that a stage measures: as it was begun, where it was. Raises `ExperimentError`."""
    place = folder / plan.name
    if RunStore.exists(place):
        loaded = replace(load(str(place / EXPERIMENT_NAME)), base_dir=whole.loaded.base_dir)
    else:
        only = (f"only.arms={json.dumps(plan.arms)}", f"only.prompts={json.dumps(plan.prompts)}")
        loaded = changed(whole.loaded, *only, *plan.changes)
    return part_of(whole, loaded)


def is_done(folder: Path) -> bool:
    """Whether a stage came to its end: a certificate is issued last, and taken away when a run goes on."""
    if not RunStore.exists(folder):
        return False
    with RunStore.open(folder, readonly=True) as store:
        return store.certificate() is not None


@dataclass(frozen=True)
class _Foretold:
    """What the screen expects of arms, as a run keeps it; see `measure.Foresight`."""

    expected: Mapping[str, Estimate | None]

    def saw(self, requests: Iterable[Request]) -> None: ...

    def prepare(self, arm: Arm) -> None: ...

    def predict(self, arm: Arm, now: float) -> Prediction:
        found = self.expected.get(arm.id)
        if found is None:
            reason = Message("prediction.not_screened")
            return Prediction(arm_id=arm.id, made_at=now, speedup=None, reason=reason)
        known = Message("prediction.screen")
        return Prediction(arm_id=arm.id, made_at=now, speedup=found, cost=known, acceptance=known)


CELL_S = 8.0
"""What a session of plain decoding should take in race and confirmation: longer texts are cut to this, where their
length was not asked for."""
LEAST_TOKENS = 24
LEAST_KEPT_BYTES = 64_000_000
"""Of a target whose servers are kept: a smaller one starts at once, and its speed depends on where in the caches each
server lies (7% of CPU time between servers of a 1 MB model, 0.4% at 100 MB, `benchmarks/servers_differ.py`)."""
MOST_PROMPTS_MIB = 1024
PROMPTS_SHARE = 32
"""A server's room for prompts is at most that part of what memory is available."""
PATIENCE = 0.2
"""Share of the budget in which a stage may wait until other programs end, and in which it may measure again: both are
beyond the budget."""


@dataclass(frozen=True)
class _Timer:
    """The stage at hand, by the clock of the engine."""

    stage: Stage
    name: str
    started: float
    before: float
    """Seconds that it took in earlier starts."""


class AdviseSession:
    """One start of an advice. `whole` is the grid with all of its prompts, `halves` how these are shared out."""

    def __init__(
        self,
        advice: Advice,
        folder: Path,
        observer: AdviseObserver,
        *,
        changes: Sequence[str] = (),
        fetching: Fetching = ONLINE,
    ) -> None:
        """Bring the models here, for the grid with the settings that were chosen for it, and `changes`.

        Raises `ExperimentError`, `ModelError` or `EngineError`.
        """
        self.folder = folder
        self.observer = observer
        self._timer: _Timer | None = None
        asked = advice.asked
        base_dir = Path(asked.from_file).parent if asked.from_file else Path.cwd()
        loaded = replace(load(str(folder / GRID_NAME)), base_dir=base_dir)
        found = prepare(changed(loaded, *in_force(advice), *changes), fetching=fetching)
        baseline = next((arm for arm in found.work.arms.values() if arm.role == "baseline"), None)
        if baseline is None:
            raise UsageError("advise: no arm is plain decoding", fix="add one with `method: none`")
        self.baseline = baseline
        kinds = kinds_by_length(first_pass(found.work.prompts[baseline.id]))
        prompts = {
            arm_id: tuple(it.model_copy(update={"kind": kinds.get(it.of or it.id, it.kind)}) for it in mine)
            for arm_id, mine in found.work.prompts.items()
        }
        found = replace(found, work=replace(found.work, prompts=prompts))
        self.servers = kept(found, prompts_mib=_prompts_mib())
        self.whole: Prepared = replace(found, engine=self.servers) if keeps_servers(found) else found
        self.halves: Halves = split(first_pass(prompts[baseline.id]), most=prompts_of_half(asked))
        self.advice = advice.model_copy(
            update={
                "target": found.work.models[baseline.target],
                "engine": found.identity,
                "host": None if found.work.simulated else found.host,
                "baseline": baseline,
                "arms": tuple(found.work.arms.values()),
                "held_out": self.halves.held_out,
                "prompts_given": len(first_pass(prompts[baseline.id])),
                "prompts_used": len({*self.halves.search, *self.halves.other}),
            }
        )

    @property
    def arms(self) -> dict[str, Arm]:
        """All arms of the grid, by id."""
        return dict(self.whole.work.arms)

    def with_baselines(self, arms: Sequence[str]) -> list[str]:
        """Plain decoding, and whatever else some arms are compared with."""
        needed = (self.whole.work.arms[arm].baseline_id for arm in arms)
        return list(dict.fromkeys([self.baseline.id, *(it for it in needed if it is not None)]))

    # --- stages ------------------------------------------------------------------------------------------------------

    @property
    def whole_answers(self) -> bool:
        """Whether answers end where the model ends them. They are never cut then, and each prompt is asked once; see
        `duel`."""
        experiment = self.whole.work.experiment
        return not experiment.generation.ignore_eos and experiment.load is None

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return first_pass(self.whole.work.prompts[self.baseline.id])

    @cached_property
    def searched(self) -> Prepared:
        """The whole grid on the prompts to search by."""
        return self.on(self.halves.search)

    def on(self, prompts: Sequence[str]) -> Prepared:
        """The whole grid on some prompts; for whole answers each of them by itself."""
        only = [f"only.prompts={json.dumps(prompts)}"]
        if self.whole_answers:
            only.append(f"only.turns={json.dumps([[it] for it in prompts])}")
        return part_of(self.whole, changed(self.whole.loaded, *only))

    def carry_out(self, plan: StagePlan, *, then: Then | None = None, thorough: bool = False) -> None:
        """Measure what is missing of a stage, and write down how far it has come, whatever ends it.

        Raises as `laboratory.run` does.
        """
        place = self.folder / plan.name
        prepared = prepared_for(self.whole, plan, self.folder)
        before = next((it.seconds for it in self.advice.stages if it.folder == plan.name), 0.0)
        self._timer = _Timer(plan.stage, plan.name, self.whole.engine.clock(), before)
        by_decoding = self.advice.asked.goal == "throughput"
        expected = _Foretold({it.arm_id: it.predicted for it in self.advice.fates} if by_decoding else {})
        try:
            if not is_done(place):
                self.observer.stage_starting(plan.stage, dict(prepared.work.arms), self.left())
                run(prepared, place, self.observer, foresight=expected, then=then, thorough=thorough)
        finally:
            self._book()
            self._timer = None
            write_advice(self.advice, self.folder)

    def _book(self) -> None:
        """How far the stage at hand has come; one that holds nothing yet is left out."""
        if (timer := self._timer) is None:
            return
        stages = tuple(it for it in self.advice.stages if it.folder != timer.name)
        seconds = self._seconds(timer)
        made_at = self.advice.made_at
        with suppress(StoreError), RunStore.open(self.folder / timer.name, readonly=True) as store:
            if not stages:
                made_at = store.state().started_at or made_at
            stages = (*stages, stage_run(store, timer.stage, timer.name, seconds))
        self._change(stages=stages, seconds=sum(it.seconds for it in stages), made_at=made_at)

    def _seconds(self, timer: _Timer) -> float:
        return timer.before + self.whole.engine.clock() - timer.started

    # --- budget ------------------------------------------------------------------------------------------------------

    def spent(self) -> float:
        """Seconds that were used, over all starts."""
        timer = self._timer
        if timer is None:
            return sum(it.seconds for it in self.advice.stages)
        return sum(it.seconds for it in self.advice.stages if it.folder != timer.name) + self._seconds(timer)

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.advice.asked.budget_s - self.spent())

    @property
    def warming(self) -> str:
        """How servers are warmed up, as `--set` takes it: a few words do where only decoding counts."""
        alone = self.advice.asked.goal == "throughput" and self.advice.asked.load is None
        return f"design.warmup={'brief' if alone else 'short'}"

    @property
    def keeping(self) -> tuple[str, ...]:
        """That servers go on from block to block and stage to stage, where they do, as `--set` takes it."""
        return (*(("design.session=run",) if keeps_servers(self.whole) else ()), self.warming)

    @property
    def repeating(self) -> tuple[str, ...]:
        """The same for a stage that asks each prompt again and again: where only decoding counts it is read once."""
        *keeping, warming = self.keeping
        return (*keeping, "design.warmup=prompts") if keeping and "brief" in warming else (*keeping, warming)

    @property
    def patience_s(self) -> float:
        """How long a stage may wait for a calm machine, and how long it may measure disturbed blocks again."""
        return PATIENCE * self.advice.asked.budget_s

    @property
    def patience(self) -> tuple[str, str]:
        """The same as `--set` takes it."""
        return f"design.wait_s={self.patience_s:.0f}", f"design.repeat_s={self.patience_s:.0f}"

    @cached_property
    def plain_cell_s(self) -> float:
        """Seconds that a session of plain decoding takes in race and confirmation."""
        cell, tokens = self._screened_cell_s, self._tokens
        return cell if tokens is None else cell * tokens / self.whole.work.experiment.generation.max_tokens

    @cached_property
    def shorter(self) -> tuple[str, ...]:
        """What makes texts shorter in race and confirmation than in the screen, as `--set` takes it; often nothing."""
        return () if self._tokens is None else (f"generation.max_tokens={self._tokens}",)

    @cached_property
    def _screened_cell_s(self) -> float:
        with RunStore.open(self.folder / "screen", readonly=True) as store:
            return cell_s(store, self.baseline.id)

    @property
    def _tokens(self) -> int | None:
        asked, generation = self.advice.asked, self.whole.work.experiment.generation
        usual = generation.max_tokens
        given = asked.max_tokens is not None or any(it.startswith("generation.max_tokens=") for it in asked.settings)
        fixed = given or asked.from_file is not None or not generation.ignore_eos  # a real answer is never cut
        if fixed or self._screened_cell_s <= CELL_S:
            return None
        return max(min(LEAST_TOKENS, usual), int(usual * CELL_S / self._screened_cell_s))

    # --- what is known -----------------------------------------------------------------------------------------------

    def fate(self, arm_id: str) -> Fate:
        return next(it for it in self.advice.fates if it.arm_id == arm_id)

    def set_fates(self, fates: Sequence[Fate]) -> None:
        self._change(fates=tuple(fates))

    def answer(
        self,
        decision: Decision,
        basis: Basis,
        arm_id: str | None,
        speedup: Estimate | None,
        verdict: Verdict | None = None,
        **more: Any,
    ) -> None:
        """Tell the best answer so far; where it is left off, `arm_id` is the best other arm, which `speedup` is
        of."""
        arm = None if arm_id is None or decision in LEAVES_OFF else self.whole.work.arms[arm_id]
        generation = self.whole.work.experiment.generation
        if more.get("finished") or more.get("why_undecided"):
            with suppress(StoreError), RunStore.open(self.folder / self._resting(more), readonly=True) as store:
                more["made"] = made_in(store, generation)
        usual = {"tau": None, "doubts": (), "finished": False, "why_undecided": ""}
        self.tell(
            decision=decision,
            basis=basis,
            arm=arm,
            speedup=speedup,
            speedup_of=arm_id if arm is None else None,
            verdict=verdict,
            draft=None if arm is None else self.whole.work.models.get(arm.draft or ""),
            command=self._line(self.baseline if arm is None or decision == "undecided" else arm),
            **{**usual, **more},
        )

    def tell(self, **changes: Any) -> None:
        """Change the advice, write it, and say so."""
        self._change(**changes)
        self._book()
        write_advice(self.advice, self.folder)
        self.observer.told(self.advice)

    def interrupted(self) -> None:
        """Tell the best so far, which decides nothing."""
        advice = self.advice
        best = advice.arm or self.arms.get(advice.speedup_of or "")
        safe = self._line(self.baseline) if advice.command else ()
        self.tell(
            arm=best, speedup_of=None, decision="undecided", finished=False, why_undecided="interrupted", command=safe
        )

    def _change(self, **changes: Any) -> None:
        self.advice = self.advice.model_copy(update=changes)

    def _resting(self, more: Mapping[str, Any]) -> str:
        """The folder of the stage that an answer rests on."""
        return more.get("confirmation") or self._first_stage

    def _line(self, arm: Arm) -> tuple[str, ...]:
        with RunStore.open(self.folder / self._first_stage, readonly=True) as store:
            return line_by(store, self.baseline, arm, self.whole.work.models)

    @property
    def _first_stage(self) -> str:
        begun = (it.folder for it in self.advice.stages if it.stage != "settings")
        return next(begun, self._timer.name if self._timer else "")


def stage_run(store: RunReader, stage: Stage, name: str, seconds: float) -> StageRun:
    """What is on record of a stage, by its run."""
    rows, certificate = list(store.rows()), store.certificate()
    texts = {prompt.id: prompt.of or prompt.id for prompt in store.prompts()}  # a load repeats them
    return StageRun(
        stage=stage,
        folder=name,
        verdict=certificate.verdict if certificate else None,
        certificate_sha256=store.certificate_sha256() if certificate else None,
        seconds=seconds,
        blocks=len({row.block for row in rows}),
        sessions=sum(1 for _ in store.sessions()),
        prompts=len({texts.get(row.prompt_id, row.prompt_id) for row in rows}),
        disturbed=max(store.disturbances(), key=lambda it: it.mean_percent, default=None),
    )


def line_by(store: RunReader, baseline: Arm, arm: Arm, models: Mapping[str, ModelIdentity]) -> tuple[str, ...]:
    """The line to paste for an arm, in the manner of the server that a stage started for plain decoding."""
    session = next((it for it in store.sessions() if it.arm_id == baseline.id), None)
    return () if session is None else line_to_paste(arm, models, session)


def _prompts_mib() -> int:
    """Room that each server has for prompts that it has read; servers end it with what does not fit."""
    return min(MOST_PROMPTS_MIB, memory_available_bytes() // (PROMPTS_SHARE * 2**20))


def keeps_servers(whole: Prepared) -> bool:
    """Whether servers are worth keeping; never those of an experiment that has one for each request."""
    targets = {whole.work.models[arm.target].size_bytes for arm in whole.work.arms.values()}
    return whole.experiment.design.session != "request" and min(targets) >= LEAST_KEPT_BYTES


def in_force(advice: Advice) -> tuple[str, ...]:
    """Settings of the engine that an advice has chosen, as `--set` takes them."""
    chosen = (it.engine for it in advice.settings if it.code == "chosen")
    return tuple(f"engine.{name}={json.dumps(value)}" for engine in chosen for name, value in engine.items())


def cell_s(store: RunReader, arm_id: str) -> float:
    """Seconds that a session of an arm takes, by the median of what its sessions and requests took, under load its
    cells: one that was held up does not count. Of all arms where it had none."""
    sessions, rows = list(store.sessions()), [row for row in store.rows() if row.wall_ms is not None]
    own = [it for it in sessions if it.arm_id == arm_id] or sessions
    cells = [it for it in store.load_cells() if it.complete]
    if own and cells:
        lengths = [it.ended_at - it.began_at for it in cells if it.arm_id == arm_id]
        lengths = lengths or [it.ended_at - it.began_at for it in cells]
        return median(it.ready_ms + it.warmup_ms for it in own) / 1000 + median(lengths)
    answered = [row for row in rows if row.arm_id == arm_id] or rows
    if not own or not answered:
        return 0.0
    requests = len({row.prompt_id for row in answered})
    return (
        median(it.ready_ms + it.warmup_ms for it in own) + requests * median(row.wall_ms or 0.0 for row in answered)
    ) / 1000
