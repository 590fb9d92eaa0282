"""A study from beginning to end: see what can be measured here, measure part after part, leave everything in order.

A part that cannot be measured here is skipped with its reason, and so are arms of an experiment whose models are not
there or do not fit into memory; what is left out of a part when it is begun stays out until it is complete. Everything
that was measured is kept, whatever ends the study: the same order in the same folder goes on where it was left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from specmeter import studies
from specmeter.errors import EngineError, ExperimentError, SpecmeterError, StoreError, UsageError
from specmeter.laboratory import prepare
from specmeter.store import RunStore
from specmeter.studies.folder import LeftOut, Part, StudyFolder, StudyRecord
from specmeter.studies.needs import engine_problem, unavailable
from specmeter.studies.parts import ExperimentPart, Order, load_parts

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.laboratory import Prepared
    from specmeter.store import RunState


class Watch(Protocol):
    """Hears what happens, and measures an experiment in its own way (with a progress display, say)."""

    def part_starting(self, part: Part, number: int, of: int) -> None:
        """A part that is not complete yet is about to be measured."""

    def part_skipped(self, part: Part) -> None:
        """Nothing of a part can be measured here; its `skipped` says why."""

    def part_failed(self, part: Part, error: SpecmeterError) -> None:
        """A part ended before its time; the study goes on."""

    def model_progress(self, name: str, done: int, total: int) -> None:
        """A model is made or downloaded."""

    def measure(self, prepared: Prepared, folder: Path, resumed: bool) -> RunState:
        """Measure an experiment into a run folder: `laboratory.run`, and whatever is to be seen of it."""
        ...


@dataclass(frozen=True)
class Ready:
    """An order whose parts were looked at."""

    order: Order
    parts: tuple[ExperimentPart, ...]
    record: StudyRecord
    """With what is skipped and left out here and now."""


def look(order: Order) -> Ready:
    """Load the parts, and find out what can be measured here; starts, makes and writes nothing.

    Raises `UsageError` or `ExperimentError` for an order that cannot be.
    """
    parts = load_parts(order)
    more = getattr(studies.find(order.study), "needs", None)
    found: list[Part] = []
    for part in parts:
        missing = unavailable(part.name, part.loaded, offline=order.offline, more=more)
        problem = engine_problem(part.loaded) or _nothing_left(part, missing)
        left_out = () if problem else tuple(LeftOut(name=arm, reason=reason) for arm, reason in missing.items())
        found.append(Part(name=part.name, kind="experiment", skipped=problem, left_out=left_out))
    record = StudyRecord(
        study=order.study,
        variants=order.variants,
        overrides=order.changes,
        made_at=time.time(),
        parts=tuple(found),
    )
    return Ready(order, parts, record)


def measure_study(ready: Ready, folder: StudyFolder, watch: Watch) -> bool:
    """Measure what `folder` does not hold yet; create it if it is new. Returns whether every part that was not skipped
    is complete.

    A part whose models or engine turn out to be of no use is skipped, one whose engine fails stays incomplete, and the
    next one is measured. Raises `UsageError` where nothing at all can be measured, `StoreError` for a folder of another
    order or one that cannot be written to. Ctrl-C passes through.
    """
    record = _begun(ready, folder)
    _refuse_nothing(record)
    folder.write(record)
    complete = True
    for number, loaded in enumerate(ready.parts, start=1):
        part = next(item for item in record.parts if item.name == loaded.name)
        if part.skipped:
            watch.part_skipped(part)
            continue
        if folder.state(part).status == "measured":
            continue
        watch.part_starting(part, number, len(ready.parts))
        try:
            complete &= _measure(loaded, part, ready.order, folder, watch)
        except (ExperimentError, StoreError):
            raise
        except SpecmeterError as error:
            if folder.run_state(part) is None and not isinstance(error, EngineError):
                part = part.model_copy(update={"skipped": f"{error.message} ({error.fix})", "left_out": ()})
                record = record.with_part(part)
                folder.write(record)
                watch.part_skipped(part)
                _refuse_nothing(record)
            else:
                complete = False
                watch.part_failed(part, error)
    return complete


def _measure(loaded: ExperimentPart, part: Part, order: Order, folder: StudyFolder, watch: Watch) -> bool:
    """Measure one part; whether it is complete afterwards."""
    prepared = prepare(
        loaded.loaded,
        offline=order.offline,
        progress=watch.model_progress,
        leave_out=[item.name for item in part.left_out],
    )
    place = folder.run_folder(part.name)
    return watch.measure(prepared, place, RunStore.exists(place)).state == "complete"


def _begun(ready: Ready, folder: StudyFolder) -> StudyRecord:
    """The record of a folder that goes on: what was left out of parts that were begun stays as it was."""
    if not folder.record_path.exists():
        return ready.record
    before = folder.record()
    if not before.asked_like(ready.record):
        raise StoreError(
            f"{folder.path}: holds {_told(before)}, not {_told(ready.record)}",
            fix="repeat the same command to go on with it, or name another folder with --out",
        )
    record = ready.record.model_copy(update={"made_at": before.made_at})
    for part in before.parts:
        if not part.skipped and folder.run_state(part) is not None:
            record = record.with_part(part)
    return record


def _nothing_left(part: ExperimentPart, missing: Mapping[str, str]) -> str:
    """Why nothing of an experiment can be measured: the reasons of all its arms; empty where something can."""
    arms = part.loaded.experiment.expand()
    if any(arm.id not in missing for arm in arms):
        return ""
    return "; ".join(dict.fromkeys(missing[arm.id] for arm in arms if arm.baseline_id not in missing))


def _refuse_nothing(record: StudyRecord) -> None:
    if all(part.skipped for part in record.parts):
        reasons = "\n".join(f"  - {part.name}: {part.skipped}" for part in record.parts)
        raise UsageError(
            f"{record.study}: nothing of it can be measured here\n{reasons}",
            fix="give models of your own (--model NAME=FILE.gguf), or run it with models that come with specmeter "
            "(--variant bench)",
        )


def _told(record: StudyRecord) -> str:
    asked: Sequence[str] = (*record.variants, *record.overrides)
    return f"the study {record.study}" + (f" with {', '.join(asked)}" if asked else "")
