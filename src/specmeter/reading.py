"""Reading a run as a whole: its records, its summary and its answers, for whoever tells people about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specmeter.answer import Answer, answers
from specmeter.record import Arm, ModelIdentity
from specmeter.store import RunState, RunStore
from specmeter.summary import RunSummary, summarize


@dataclass(frozen=True)
class RunReport:
    """What a run folder says."""

    folder: Path
    name: str
    """Of the experiment."""
    state: RunState
    arms: tuple[Arm, ...]
    models: tuple[ModelIdentity, ...]
    summary: RunSummary
    answers: tuple[Answer, ...]
    not_speculating: frozenset[str]
    """Arms that were to speculate while their engine said that it did not: their speedup is none."""
    other_load_percent: float | None
    """Mean share of the machine that other programs took during requests, 0-100."""


def read_run(folder: Path) -> RunReport:
    """Read and summarise a run, finished or not. Raises `StoreError`."""
    with RunStore.open(folder, readonly=True) as store:
        arms, models = tuple(store.arms()), tuple(store.models())
        timing_only = {model.name for model in models if model.timing_only}
        summary = summarize(store.rows(), arms, timing_only=timing_only, planned=store.planned())
        asked = {arm.id for arm in arms if arm.speculates}
        not_speculating = frozenset(asked & store.arms_not_speculating())
        return RunReport(
            folder=folder,
            name=str(json.loads(store.experiment_json)["name"]),
            state=store.state(),
            arms=arms,
            models=models,
            summary=summary,
            answers=answers(summary, arms, leave_out=not_speculating),
            not_speculating=not_speculating,
            other_load_percent=store.other_load_percent(),
        )
