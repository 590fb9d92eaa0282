"""One stage of an advice: a run folder that is measured, or gone on with, and what it says when it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import StageRun
from specmeter.advise.grid import changed
from specmeter.errors import StoreError
from specmeter.experiments.file import load
from specmeter.laboratory.run import part_of, run
from specmeter.record import Arm, Estimate, Prediction
from specmeter.store import RunStore
from specmeter.store.run import EXPERIMENT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specmeter.advise.advice import Stage
    from specmeter.laboratory.run import Prepared, Then
    from specmeter.measure import Observer
    from specmeter.record import Request


@dataclass(frozen=True)
class Plan:
    """What a stage measures."""

    stage: Stage
    name: str
    """Of its folder within the advice's."""
    arms: tuple[str, ...]
    """Ids, baselines among them."""
    prompts: tuple[str, ...]
    changes: tuple[str, ...]
    """What is changed in the design, as `--set` takes it."""


def prepared_for(whole: Prepared, plan: Plan, folder: Path) -> Prepared:
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


def carry_out(
    prepared: Prepared,
    folder: Path,
    observer: Observer,
    *,
    expected: Mapping[str, Estimate | None],
    then: Then | None = None,
    thorough: bool = False,
) -> None:
    """Measure what is missing of a stage; `expected` are the speedups that the screen foretold.

    Raises as `laboratory.run` does; nothing where it is done.
    """
    if not is_done(folder):
        run(prepared, folder, observer, foresight=_Foretold(expected), then=then, thorough=thorough)


def seen(folder: Path, stage: Stage, seconds: float) -> StageRun | None:
    """How far a stage has come; None where it holds nothing yet."""
    try:
        with RunStore.open(folder, readonly=True) as store:
            rows, certificate = list(store.rows()), store.certificate()
            texts = {prompt.id: prompt.of or prompt.id for prompt in store.prompts()}  # a load repeats them
            return StageRun(
                stage=stage,
                folder=folder.name,
                verdict=certificate.verdict if certificate else None,
                certificate_sha256=store.certificate_sha256() if certificate else None,
                seconds=seconds,
                blocks=len({row.block for row in rows}),
                sessions=sum(1 for _ in store.sessions()),
                prompts=len({texts.get(row.prompt_id, row.prompt_id) for row in rows}),
            )
    except StoreError:
        return None


@dataclass(frozen=True)
class _Foretold:
    """What the screen expects of arms, as a run keeps it; see `measure.Foresight`."""

    expected: Mapping[str, Estimate | None]

    def saw(self, requests: Iterable[Request]) -> None: ...

    def prepare(self, arm: Arm) -> None: ...

    def predict(self, arm: Arm, now: float) -> Prediction:
        found = self.expected.get(arm.id)
        why = "" if found is not None else "the screen of the advice expects nothing of it"
        known = "the screen of the advice" if found is not None else ""
        return Prediction(arm_id=arm.id, made_at=now, speedup=found, reason=why, cost=known, acceptance=known)
