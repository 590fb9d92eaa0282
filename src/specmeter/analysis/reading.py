"""Reads a run as a whole: its records, its summary and its answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.answer import Answer, answers
from specmeter.analysis.answers_made import AnswersMade, answers_made
from specmeter.analysis.consumption import energies_of
from specmeter.analysis.load.summary import LoadTable, cells_of
from specmeter.analysis.prediction.outcomes import PredictionOutcome, outcomes
from specmeter.analysis.sessions import ArmSessions, session_report
from specmeter.analysis.summary import ArmSummary, RunSummary, summarize
from specmeter.engines import Launch
from specmeter.engines.registry import serving_command
from specmeter.messages import Message
from specmeter.numbers.stats import simultaneous
from specmeter.record import (
    Arm,
    Certificate,
    Disturbance,
    Estimate,
    Finding,
    Generation,
    ModelIdentity,
    Session,
    Verdict,
)
from specmeter.record.verdict import VERDICTS, worst
from specmeter.store import RunReader, RunState, RunStore
from specmeter.store.database import DATABASE_NAME, damaged
from specmeter.store.guarded import is_written
from specmeter.store.integrity import certificate_beside, changes, hash_data

if TYPE_CHECKING:
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.store.columns import RequestColumns

_APART = 10_000
"""Between the number of a block and that of the same one, excluded: more than any experiment has."""


@dataclass(frozen=True)
class Measured:
    """What has just been certified: a command that measured a run neither summarises nor hashes it again."""

    summary: RunSummary
    """As it was measured, speedups of invalid arms included."""
    hashes: Mapping[str, str]
    """Of each part of the data."""


@dataclass(frozen=True)
class RunReport:
    """What a run folder says."""

    folder: Path
    """Folder of the run."""
    name: str
    """Of the experiment."""
    study: str | None
    """Study that the experiment belongs to."""
    state: RunState
    """Progress of the run and number of failed requests."""
    arms: tuple[Arm, ...]
    """All configurations, including baselines and controls; results are in `summary`."""
    models: tuple[ModelIdentity, ...]
    """The models used, with file and hash."""
    summary: RunSummary
    """Results, without the speedups of invalid arms."""
    answers: tuple[Answer, ...]
    """One per target and load, then one per prompt type with other candidates."""
    certificate: Certificate | None
    """None if the run was not checked, because it is running or was interrupted."""
    certificate_sha256: str | None
    """SHA-256 of certificate.json, if the run is certified."""
    findings: tuple[Finding, ...]
    """Findings of the checks, and changes since the certificate was issued."""
    withheld: dict[str, Estimate]
    """Arm id -> measured speedup of an invalid arm, to be shown struck out only."""
    withheld_by_kind: dict[tuple[str, str], Estimate]
    """(arm id, prompt type) -> the same for one prompt type."""
    predictions: tuple[PredictionOutcome, ...]
    """Predictions made before measuring, with the measured results."""
    commands: dict[str, tuple[str, ...]]
    """Arm id -> command that serves with it, if the engine has one."""
    cells: LoadTable
    """Results under load, per cell; empty without load."""
    crossovers: tuple[Crossover, ...]
    """Per target measured with several numbers of clients: up to how many clients speculation pays."""
    disturbances: tuple[Disturbance, ...] = ()
    """Excluded blocks."""
    over_all_blocks: dict[str, Estimate] = field(default_factory=dict[str, Estimate])
    """Arm id -> speedup including the excluded blocks, if there are any."""
    sessions: tuple[ArmSessions, ...] = ()
    """Per configuration, what it does to recorded sessions; empty for other prompts."""
    made: AnswersMade | None = None
    """Type and amount of the outputs; None if there are none."""
    written: bool = False
    """Whether a process is writing to it."""

    @property
    def busy(self) -> Disturbance | None:
        """Why there are too few undisturbed blocks for a result; None if there are enough."""
        return self.worst if self.remedy or not (self.answers or self.withheld) else None

    @property
    def remedy(self) -> Message | None:
        """What to do if too few blocks were undisturbed."""
        return next((it.remedy for it in self.findings if it.message.code == "excluded-block.busy"), None)

    @property
    def worst(self) -> Disturbance | None:
        """The most disturbed block."""
        return max(self.disturbances, key=lambda it: it.mean_percent, default=None)

    @property
    def invalid(self) -> frozenset[str]:
        """Arms whose verdict is invalid."""
        return _invalid(self.certificate)

    @property
    def refused(self) -> tuple[str, ...]:
        """Baselines that no arm beats: cite the arms' own intervals there."""
        return _refused(self.answers)

    def cited(self, arm: ArmSummary) -> Estimate | None:
        """An arm's speedup with the interval to cite: simultaneous over all candidates, or its own if none helps."""
        return _cited(arm, self.refused)

    @property
    def simulated(self) -> bool:
        """Whether the engine was a mock, so that nothing was really measured."""
        return any(it.simulated for it in self.models)

    def because(self, arm_id: str) -> list[Finding]:
        """Why an arm is not valid: its own findings, else its baseline's, else the run's. Empty
        for valid arms, and where a check was skipped."""
        verdict = self.certificate.arms.get(arm_id, "valid") if self.certificate else "valid"
        if verdict == "valid":
            return []
        baseline = next((arm.baseline_id for arm in self.arms if arm.id == arm_id), None)
        guilty = [finding for finding in self.findings if VERDICTS[finding.severity] == verdict]
        for about in (arm_id, baseline, None):
            found = {finding.check: finding for finding in reversed(guilty) if finding.arm_id == about}
            if found:
                return list(reversed(found.values()))
        return []

    def headline(self, *arm_ids: str) -> Verdict | None:
        """The verdict of an answer: the worst of its arms and of findings about the whole run; None before a check."""
        if self.certificate is None:
            return None
        found: list[Verdict] = [VERDICTS[it.severity] for it in self.findings if it.arm_id is None]
        return worst([*found, *(self.certificate.arms.get(arm_id, "invalid") for arm_id in arm_ids)])


def _refused(found: Iterable[Answer]) -> tuple[str, ...]:
    return tuple(it.baseline_id for it in found if it.decision == "do not speculate" and not it.kind)


def _cited(arm: ArmSummary, refused: Collection[str]) -> Estimate | None:
    own = arm.speedup
    if own is None or own.low is None or arm.choice is None or arm.baseline_id in refused:
        return own
    return simultaneous(own, arm.choice.compared)


def _resuming(answer: Answer, state: RunState, design: Mapping[str, object]) -> Answer:
    """The same, saying whether going on with the run gives it units enough."""
    planned = int(str(design[f"{answer.unit}s"]))
    resumes = state.state == "partial" and planned >= answer.units_least
    return answer.model_copy(update={"resumes": resumes})


def read_run(folder: Path, *, by_prompt: bool = False, just: Measured | None = None) -> RunReport:
    """Read and summarise a run, finished or not; `by_prompt` asks for speedups on every prompt, `just` is what this
    process has just certified. Raises `StoreError`."""
    with RunStore.open(folder, readonly=True) as store:
        arms, models = tuple(store.arms()), tuple(store.models())
        timing_only = {model.name for model in models if model.timing_only}
        certificate, findings = certified(store, just and just.hashes)
        cells = LoadTable(cells_of(store))
        requests = store.columns()
        measured = just.summary if just is not None and not by_prompt else None
        if measured is None:
            measured = summarize(
                requests,
                arms,
                timing_only=timing_only,
                planned=store.planned(),
                by_prompt=by_prompt,
                energies=energies_of(store),
                cells=cells,
                repeats=repeats(store, arms),
            )
        invalid = _invalid(certificate)
        summary = _believable(measured, invalid)
        state, found = store.state(), answers(summary, arms)
        cited = {arm.arm_id: _cited(arm, _refused(found)) for arm in (*summary.arms, *summary.controls)}
        try:
            experiment = json.loads(store.experiment_json)
            generation = Generation.model_validate(experiment.get("generation", {}))
        except ValueError as error:
            raise damaged(store.folder / DATABASE_NAME, f"the experiment: {error}") from None
        return RunReport(
            folder=folder,
            name=str(experiment["name"]),
            study=experiment.get("study"),
            state=state,
            arms=arms,
            models=models,
            summary=summary,
            answers=tuple(_resuming(it, state, experiment["design"]) for it in found),
            certificate=certificate,
            certificate_sha256=store.certificate_sha256() if certificate is not None else None,
            findings=findings,
            withheld={arm.arm_id: arm.speedup for arm in measured.arms if arm.arm_id in invalid and arm.speedup},
            withheld_by_kind={
                (arm.arm_id, kind): part.speedup
                for arm in measured.arms
                if arm.arm_id in invalid
                for kind, part in arm.kinds.items()
                if part.speedup
            },
            predictions=outcomes(store.predictions(), cited),
            commands=_commands(store, arms, models),
            cells=cells,
            crossovers=_crossovers(summary, arms, cells),
            disturbances=tuple(store.disturbances()),
            over_all_blocks=_over_all_blocks(store, arms, timing_only),
            sessions=session_report(store, {arm.id: arm.baseline_id for arm in arms if arm.id not in invalid}),
            made=made_in(store, generation, requests),
            written=is_written(folder),
        )


def made_in(store: RunReader, generation: Generation, requests: RequestColumns | None = None) -> AnswersMade | None:
    """How the answers of a run were made; None if it has none. Raises `StoreError`."""
    return answers_made(
        requests or store.columns(),
        list(store.prompts()),
        store.arms(),
        generation,
        models=store.models(),
        served=next((it.resolved.get("sampling") for it in store.sessions()), None),
    )


def _crossovers(summary: RunSummary, arms: Sequence[Arm], cells: LoadTable) -> tuple[Crossover, ...]:
    """Up to how many clients speculation pays; none if no arm is under load."""
    if all(arm.load is None for arm in arms):
        return ()
    from specmeter.analysis.load.crossover import crossovers

    return crossovers(summary, arms, cells)


def _over_all_blocks(store: RunReader, arms: Sequence[Arm], timing_only: Collection[str]) -> dict[str, Estimate]:
    """Speedups with the blocks that were excluded, each of these a block of its own; empty where there are none."""
    aside = store.disturbances()
    if not aside:
        return {}

    def place(invocation: int, block: int, at: float) -> int:
        for number, it in enumerate(aside, start=1):
            if (invocation, block) == (it.invocation, it.block) and it.began_at <= at <= it.ended_at:
                return block + number * _APART
        return block

    rows = (
        row._replace(block=place(row.invocation, row.block, row.started_at))
        for row in store.rows(superseded=True)
        if row.status == "ok"
    )
    began = {it.session_id: it.began_at for it in store.load_cells()}
    cells = (
        it._replace(
            figures=it.figures.model_copy(
                update={"block": place(it.figures.invocation, it.figures.block, began[it.figures.session_id])}
            )
        )
        for it in cells_of(store, superseded=True)
    )
    whole = summarize(
        rows,
        arms,
        timing_only=timing_only,
        planned=store.planned(),
        cells=LoadTable(cells),
        repeats=repeats(store, arms),
    )
    return {arm.arm_id: arm.speedup for arm in whole.arms if arm.speedup is not None}


def repeats(store: RunReader, arms: Iterable[Arm]) -> dict[str, str]:
    """Prompt that is repeated under load -> the prompt that it repeats."""
    if all(arm.load is None for arm in arms):
        return {}
    return {prompt.id: prompt.of for prompt in store.prompts() if prompt.of}


def _commands(store: RunReader, arms: Iterable[Arm], models: Iterable[ModelIdentity]) -> dict[str, tuple[str, ...]]:
    """The command that serves with each arm, in the manner of the server that was started for it."""
    known = {model.name: model for model in models}
    sessions = {session.arm_id: session for session in store.sessions()}
    lines = ((arm.id, line_to_paste(arm, known, sessions[arm.id])) for arm in arms if arm.id in sessions)
    return {arm_id: line for arm_id, line in lines if line}


def line_to_paste(arm: Arm, models: Mapping[str, ModelIdentity], session: Session) -> tuple[str, ...]:
    """The command that serves with an arm, in the manner of the server that a session started; empty where the engine
    does not say, or a model is not known."""
    target, draft = models.get(arm.target), models.get(arm.draft or "")
    if target is None or (draft is None and arm.draft is not None):
        return ()
    launch = Launch(arm=arm, target=target, draft=draft, log_path=Path())
    return serving_command(session.engine.kind, launch, session.argv) or ()


def certified(
    store: RunReader, hashes: Mapping[str, str] | None = None
) -> tuple[Certificate | None, tuple[Finding, ...]]:
    """Certificate and findings; all is invalid where the data, whose `hashes` may be known, is not what was certified.

    A certificate that only the file beside the database still has counts where it contradicts what is left.
    """

    certificate, findings = store.certificate(), tuple(store.findings())
    stated = certificate or certificate_beside(store)
    if stated is None:
        return None, findings
    broken = tuple(it for it in changes(store, certificate, hashes or hash_data(store)) if isinstance(it, Finding))
    if not broken:
        return certificate, findings
    arms: dict[str, Verdict] = dict.fromkeys((*stated.arms, *(arm.id for arm in store.arms())), "invalid")
    return stated.model_copy(update={"verdict": "invalid", "arms": arms}), (*broken, *findings)


def _invalid(certificate: Certificate | None) -> frozenset[str]:
    verdicts = certificate.arms if certificate else {}
    return frozenset(arm_id for arm_id, verdict in verdicts.items() if verdict == "invalid")


def _believable(summary: RunSummary, invalid: frozenset[str]) -> RunSummary:
    """The summary without speedups that are false."""
    arms = tuple(_without_speedup(arm) if arm.arm_id in invalid else arm for arm in summary.arms)
    return summary.model_copy(update={"arms": arms})


def _without_speedup(arm: ArmSummary) -> ArmSummary:
    of_kind = ("speedup", "gain", "choice")
    kinds = {name: kind.model_copy(update=dict.fromkeys(of_kind)) for name, kind in arm.kinds.items()}
    nothing = dict.fromkeys((*of_kind, "speedup_bootstrap", "speedup_range", "comparison", "units_advised", "prompts"))
    energy = None
    if arm.energy is not None:
        energy = arm.energy.model_copy(update={"ratio": None, "ratio_above_idle": None})
    return arm.model_copy(update={**nothing, "kinds": kinds, "energy": energy})
