"""One stage of an advice: a run folder that is measured or resumed, and what its run says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from specmeter.advise.advice import StageRun
from specmeter.analysis.reading import line_to_paste
from specmeter.experiments.file import load, text_of
from specmeter.experiments.spec import Only
from specmeter.laboratory.run import part_of
from specmeter.record import Arm
from specmeter.store import RunStore
from specmeter.store.run import EXPERIMENT_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Stage
    from specmeter.laboratory.run import Prepared
    from specmeter.record import LoadCell, ModelIdentity, Session
    from specmeter.store import RequestRow, RunReader


@dataclass(frozen=True)
class StagePlan:
    """What a stage measures."""

    stage: Stage
    name: str
    """Of its folder within the advice's."""
    arms: tuple[str, ...]
    """Ids, baselines among them."""
    prompts: tuple[str, ...]
    design: Mapping[str, object]
    """What its design has in place of the grid's."""
    turns: tuple[tuple[str, ...], ...] = ()
    """Prompts of each block; empty: each has all."""
    max_tokens: int | None = None
    """None: as the grid says."""


def prepared_for(whole: Prepared, plan: StagePlan, folder: Path) -> Prepared:
    """The part of the grid that a stage measures; as its run has it, if the run was started. Raises
    `ExperimentError`."""
    place = folder / plan.name
    if RunStore.exists(place):
        begun = load(str(place / EXPERIMENT_NAME))
        experiment, text = begun.experiment, begun.text
    else:
        grid = whole.experiment
        tokens = {} if plan.max_tokens is None else {"max_tokens": plan.max_tokens}
        experiment = grid.model_copy(
            update={
                "design": grid.design.model_copy(update={"probe": "off", "controls": False, **plan.design}),
                "only": Only(arms=plan.arms, prompts=plan.prompts, turns=plan.turns or grid.only.turns),
                "generation": grid.generation.model_copy(update=tokens),
            }
        )
        text = text_of(experiment)
    part = part_of(whole, experiment)
    return replace(part, loaded=replace(part.loaded, text=text))


def is_done(folder: Path) -> bool:
    """Whether a stage came to its end: a certificate is issued last, and taken away when a run continues."""
    if not RunStore.exists(folder):
        return False
    with RunStore.open(folder, readonly=True) as store:
        return store.certificate() is not None


MIN_KEPT_BYTES = 64_000_000
"""Of a target whose servers are kept: a smaller one starts at once, and its speed depends on where in the caches each
server lies (7% of CPU time between servers of a 1 MB model, 0.4% at 100 MB, `benchmarks/servers_differ.py`)."""


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
    """The line to paste for an arm, in the manner of the server that a stage started for decoding without
    speculation."""
    session = next((it for it in store.sessions() if it.arm_id == baseline.id), None)
    return () if session is None else line_to_paste(arm, models, session)


def keeps_servers(whole: Prepared) -> bool:
    """Whether servers are worth keeping; never those of an experiment that has one for each request."""
    targets = {whole.work.models[arm.target].size_bytes for arm in whole.work.arms.values()}
    return whole.experiment.design.session != "request" and min(targets) >= MIN_KEPT_BYTES


def cells_s(store: RunReader, arms: Sequence[str]) -> float:
    """Seconds that a session of each of these arms takes, by the median of what its sessions and requests took, under
    load its cells: one that was held up does not count. An arm without any takes as long as all others."""
    sessions, rows = list(store.sessions()), [row for row in store.rows() if row.wall_ms is not None]
    cells = [it for it in store.load_cells() if it.complete]
    return sum(_cell_ms(arm, sessions, rows, cells) for arm in arms) / 1000


def _cell_ms(arm: str, sessions: Sequence[Session], rows: Sequence[RequestRow], cells: Sequence[LoadCell]) -> float:
    own = [it for it in sessions if it.arm_id == arm] or sessions
    if not own:
        return 0.0
    starting = median(it.ready_ms + it.warmup_ms for it in own)
    if cells:
        return starting + 1000 * median(
            it.ended_at - it.began_at for it in [it for it in cells if it.arm_id == arm] or cells
        )
    answered = [row for row in rows if row.arm_id == arm] or rows
    if not answered:
        return 0.0
    return starting + len({row.prompt_id for row in answered}) * median(row.wall_ms or 0.0 for row in answered)
