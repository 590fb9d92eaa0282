"""What an advice knows so far, what it has used of its budget, and how its stages are carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.advise.advice import GRID_NAME, LEAVES_OFF, ArmOutcome, write_advice
from specmeter.advise.halves import Halves, kinds_by_length, prompts_of_half, split
from specmeter.advise.stage import cells_s, is_done, keeps_servers, line_by, prepared_for, stage_run
from specmeter.analysis.reading import made_in
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.cells import first_pass
from specmeter.experiments.file import load
from specmeter.host.limits import memory_available_bytes
from specmeter.laboratory.run import kept, part_of, prepare, run
from specmeter.messages import Message
from specmeter.models.reference import ONLINE, Fetching
from specmeter.record import Arm, Estimate, Prediction
from specmeter.store import RunStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specmeter.advise.advice import Advice, Basis, Decision, Stage
    from specmeter.advise.observer import AdviseObserver
    from specmeter.advise.stage import StagePlan
    from specmeter.experiments.experiment import Experiment
    from specmeter.laboratory.run import NextCells, Prepared
    from specmeter.record import Prompt, Request, Verdict


@dataclass(frozen=True)
class _StoredPredictions:
    """What the screen expects of arms, as a run keeps it; see `measure.Predictor`."""

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
"""What a session of decoding without speculation should take in race and confirmation: longer texts are cut to this,
where their length was not asked for."""
MIN_TOKENS = 24
MAX_PROMPTS_MIB = 1024
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
    """One start of an advice. `whole` is the grid with all of its prompts, `halves` how these are shared out; its state
    is saved before observers are notified."""

    def __init__(
        self,
        advice: Advice,
        folder: Path,
        observer: AdviseObserver,
        *,
        trial: Callable[[Experiment], Experiment] | None = None,
        fetching: Fetching = ONLINE,
    ) -> None:
        """Bring the models here, for the grid with the settings that were chosen for it, changed into a `trial`.

        Raises `ExperimentError`, `ModelError` or `EngineError`.
        """
        self.folder = folder
        self.observer = observer
        self._timer: _Timer | None = None
        asked = advice.asked
        base_dir = Path(asked.from_file).parent if asked.from_file else Path.cwd()
        loaded = load(str(folder / GRID_NAME))
        grid = with_chosen(loaded.experiment, advice)
        grid = grid if trial is None else trial(grid)
        found = prepare(replace(loaded, value=grid, base_dir=base_dir), fetching=fetching)
        self._parts: dict[str, Prepared] = {}
        baseline = next((arm for arm in found.work.arms.values() if arm.role == "baseline"), None)
        if baseline is None:
            raise UsageError("advise: no configuration without speculation", fix="add an arm with `method: none`")
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
        """Decoding without speculation, and whatever else some arms are compared with."""
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
        """The whole grid on some prompts; for whole answers each of them on its own."""
        grid = self.whole.experiment
        turns = tuple((it,) for it in prompts) if self.whole_answers else grid.only.turns
        only = grid.only.model_copy(update={"prompts": tuple(prompts), "turns": turns})
        return part_of(self.whole, grid.model_copy(update={"only": only}))

    def part(self, plan: StagePlan) -> Prepared:
        """The part of the grid that a stage measures. Raises `ExperimentError`."""
        if plan.name not in self._parts:
            self._parts[plan.name] = prepared_for(self.whole, plan, self.folder)
        return self._parts[plan.name]

    def carry_out(self, plan: StagePlan, *, next_cells: NextCells | None = None, thorough: bool = False) -> None:
        """Measure what is missing of a stage, and write down how far it has come, whatever ends it.

        Raises as `laboratory.run` does.
        """
        place = self.folder / plan.name
        prepared = self.part(plan)
        before = next((it.seconds for it in self.advice.stages if it.folder == plan.name), 0.0)
        self._timer = _Timer(plan.stage, plan.name, self.whole.engine.clock(), before)
        by_decoding = self.advice.asked.goal == "throughput"
        expected = _StoredPredictions({it.arm_id: it.predicted for it in self.advice.outcomes} if by_decoding else {})
        try:
            if not is_done(place):
                self.observer.stage_starting(plan.stage, dict(prepared.work.arms), self.left())
                run(prepared, place, self.observer, predictor=expected, next_cells=next_cells, thorough=thorough)
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
    def warming(self) -> dict[str, object]:
        """How servers are warmed up, as a design has it: a few words do if only decoding counts."""
        alone = self.advice.asked.goal == "throughput" and self.advice.asked.load is None
        return {"warmup": "brief" if alone else "short"}

    @property
    def keeping(self) -> dict[str, object]:
        """That servers continue from block to block and stage to stage, if they do, as a design has it."""
        return ({"session": "run"} if keeps_servers(self.whole) else {}) | self.warming

    @property
    def repeating(self) -> dict[str, object]:
        """The same for a stage that asks each prompt again and again: if only decoding counts, it is read once."""
        keeping = self.keeping
        once = keeping == {"session": "run", "warmup": "brief"}
        return {**keeping, "warmup": "prompts"} if once else keeping

    @property
    def patience_s(self) -> float:
        """How long a stage may wait for a calm machine, and how long it may measure disturbed blocks again."""
        return PATIENCE * self.advice.asked.budget_s

    @property
    def patience(self) -> dict[str, object]:
        """The same as a design has it."""
        return dict.fromkeys(("wait_s", "repeat_s"), float(round(self.patience_s)))

    @cached_property
    def plain_cell_s(self) -> float:
        """Seconds that a session of decoding without speculation takes in race and confirmation."""
        cell, tokens = self._screened_cell_s, self.shorter
        return cell if tokens is None else cell * tokens / self.whole.experiment.generation.max_tokens

    @cached_property
    def _screened_cell_s(self) -> float:
        with RunStore.open(self.folder / "screen", readonly=True) as store:
            return cells_s(store, [self.baseline.id])

    @cached_property
    def shorter(self) -> int | None:
        """Most tokens of an answer in race and confirmation, if it is shorter there than in the screen."""
        asked, generation = self.advice.asked, self.whole.work.experiment.generation
        usual = generation.max_tokens
        given = asked.max_tokens is not None or any(it.startswith("generation.max_tokens=") for it in asked.settings)
        fixed = given or asked.from_file is not None or not generation.ignore_eos  # a real answer is never cut
        if fixed or self._screened_cell_s <= CELL_S:
            return None
        return max(min(MIN_TOKENS, usual), int(usual * CELL_S / self._screened_cell_s))

    # --- what is known -----------------------------------------------------------------------------------------------

    def outcome(self, arm_id: str) -> ArmOutcome:
        return next(it for it in self.advice.outcomes if it.arm_id == arm_id)

    def change_outcomes(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Change what became of some arms, by their ids."""
        self.set_outcomes([it.model_copy(update=dict(changes.get(it.arm_id, {}))) for it in self.advice.outcomes])

    def set_outcomes(self, outcomes: Sequence[ArmOutcome]) -> None:
        self._change(outcomes=tuple(outcomes))

    def answer(
        self,
        decision: Decision,
        basis: Basis,
        arm_id: str | None,
        speedup: Estimate | None,
        verdict: Verdict | None = None,
        **more: Any,
    ) -> None:
        """Tell the best answer so far; where it is left off, `arm_id` is the best other arm, which `speedup` is of."""
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
        self.observer.best_so_far(self.advice)

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


def _prompts_mib() -> int:
    """Room that each server has for prompts that it has read; servers end it with what does not fit."""
    return min(MAX_PROMPTS_MIB, memory_available_bytes() // (PROMPTS_SHARE * 2**20))


def with_chosen(grid: Experiment, advice: Advice) -> Experiment:
    """The grid with the settings of the engine that an advice has chosen."""
    chosen = {name: it for tried in advice.settings if tried.code == "chosen" for name, it in tried.engine.items()}
    return grid.model_copy(update={"engine": grid.engine.model_copy(update=chosen)})
