"""A study from beginning to end: see what can be measured here, measure part after part, leave everything in order.

A part that cannot be measured here is skipped with its reason, and so are arms of an experiment whose models are not
there or do not fit into memory; what is left out of a part when it is started stays out until it is complete.
Everything that was measured is kept, whatever ends the study: the same order in the same folder continues where it was
left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specmeter.analysis.quality import load_report, save_report
from specmeter.errors import EngineError, SpecmeterError, StoreError, UsageError
from specmeter.laboratory.run import prepare
from specmeter.messages import Message
from specmeter.models.reference import Fetching, ModelProgress, file_of, refuse_absent
from specmeter.store import RunStore
from specmeter.workloads.spec import FileWorkload, LengthWorkload
from specmeter_studies.availability import (
    StudyNeeds,
    engine_problem,
    lacking_models,
    plan_problem,
    reason_of,
    unavailable,
)
from specmeter_studies.deciding import Deciding
from specmeter_studies.folder import LeftOut, OwnStudy, Part, StudyFolder, StudyRecord
from specmeter_studies.order import AnyPart, ExperimentPart, QualityPart, StudyOrder, load_parts
from specmeter_studies.quality.planned import measure_plan
from specmeter_studies.telling import several

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from specmeter.laboratory.run import NextCells, Prepared
    from specmeter.models.reference import AbsentModel
    from specmeter.store import RunState
    from specmeter_studies.quality.measure import Progress as QualityProgress


class StudyWatch(Protocol):
    """Observer for progress displays; may measure an experiment in its own way."""

    def part_starting(self, part: Part, number: int, of: int) -> None:
        """A part that is not complete yet is about to be measured."""

    def part_skipped(self, part: Part) -> None:
        """Nothing of a part can be measured here; its `skipped` says why."""

    def part_undecided(self, part: Part, claims: Sequence[str], *, out_of_time: bool) -> None:
        """What more blocks of a part did not decide; `out_of_time`: because the budget was spent."""

    def part_failed(self, part: Part, error: SpecmeterError) -> None:
        """A part ended before its time; the study continues."""

    def models(self) -> AbstractContextManager[ModelProgress]:
        """Meanwhile models are made or downloaded."""
        ...

    def measure(self, prepared: Prepared, folder: Path, resumed: bool, next_cells: NextCells | None) -> RunState:
        """Measure an experiment into a run folder: `laboratory.run` with `then`, and whatever is to be seen of it."""
        ...

    def scoring(self) -> AbstractContextManager[QualityProgress]:
        """Meanwhile models are scored and timed."""
        ...


@dataclass(frozen=True)
class Ready:
    """An order whose parts were looked at."""

    order: StudyOrder
    parts: tuple[AnyPart, ...]
    record: StudyRecord
    """With what is skipped and left out here and now."""
    lacking: tuple[AbsentModel, ...] = ()
    """Models of experiments that are not here and cannot be fetched."""


def look(order: StudyOrder) -> Ready:
    """Load the parts, and find out what can be measured here; starts, makes and writes nothing.

    Raises `UsageError` or `ExperimentError` for an order that cannot be.
    """
    parts = load_parts(order)
    study = order.definition
    if study.folder is not None and not study.trusted:
        _refuse_reach(study.folder, parts)
    record = StudyRecord(
        study=study.name,
        own=None if study.folder is None else OwnStudy(folder=str(study.folder), text=study.text),
        variants=order.variants,
        overrides=order.changes,
        made_at=time.time(),
        parts=tuple(_looked_at(part, order.offline, study.unavailable) for part in parts),
    )
    experiments = [part.loaded for part in parts if isinstance(part, ExperimentPart)]
    lacking = [model for loaded in experiments for model in lacking_models(loaded, offline=order.offline)]
    return Ready(order, parts, record, tuple({model.key: model for model in lacking}.values()))


def begin(ready: Ready, folder: StudyFolder) -> StudyRecord:
    """Write down what is going to be measured into `folder`, new or unfinished; what it holds already stays as it was.

    Raises `UsageError` where nothing at all can be measured, `StoreError` for a folder of another order or one that
    cannot be written to.
    """
    record = _begun(ready, folder)
    _refuse_nothing(record, ready.lacking)
    folder.write(record)
    return record


def measure_study(ready: Ready, record: StudyRecord, folder: StudyFolder, watch: StudyWatch) -> bool:
    """Measure what `folder` does not hold yet; returns whether every part that was not skipped is complete.

    A part whose models or engine turn out to be unusable is skipped, one whose engine fails stays incomplete, and the
    next one is measured. Raises `UsageError` when nothing is left, `StoreError` when the folder cannot be written to.
    Ctrl-C passes through.
    """
    complete, ends = True, time.monotonic() + ready.order.budget_s
    for number, loaded in enumerate(ready.parts, start=1):
        part = next(item for item in record.parts if item.name == loaded.name)
        if part.skipped:
            watch.part_skipped(part)
            continue
        if folder.state(part).status == "measured":
            continue
        watch.part_starting(part, number, len(ready.parts))
        try:
            share_s = (ends - time.monotonic()) / (len(ready.parts) - number + 1)
            complete &= _measure(loaded, part, ready.order, folder, watch, share_s)
        except StoreError:
            raise
        except SpecmeterError as error:
            if not folder.has_begun(part) and not isinstance(error, EngineError):
                part = part.model_copy(update={"skipped": reason_of(error), "left_out": ()})
                record = record.with_part(part)
                folder.write(record)
                watch.part_skipped(part)
                _refuse_nothing(record, ready.lacking)
            else:
                complete = False
                watch.part_failed(part, error)
    return complete


def _measure(
    loaded: AnyPart, part: Part, order: StudyOrder, folder: StudyFolder, watch: StudyWatch, budget_s: float
) -> bool:
    """Measure one part; whether it is complete afterwards."""
    if isinstance(loaded, QualityPart):
        return _measure_quality(loaded, order, folder, watch)
    left_out = [item.name for item in part.left_out]
    with watch.models() as progress:
        prepared = prepare(loaded.loaded, fetching=Fetching(order.offline, progress), leave_out=left_out)
    place, deciding = folder.run_folder(part.name), None
    if prepared.experiment.design.stopping == "decided":
        deciding = Deciding(order.definition, folder, part, prepared.experiment, budget_s)
    next_cells = None if deciding is None else deciding.after_block
    complete = watch.measure(prepared, place, RunStore.exists(place), next_cells).state == "complete"
    if deciding is not None and (open_claims := tuple(deciding.undecided())):
        watch.part_undecided(part, open_claims, out_of_time=deciding.out_of_time)
    return complete


def _measure_quality(loaded: QualityPart, order: StudyOrder, folder: StudyFolder, watch: StudyWatch) -> bool:
    path = folder.quality_file(loaded.name)
    earlier = load_report(path, inside=True) if path.exists() else None
    with watch.models() as fetching, watch.scoring() as progress:
        report = measure_plan(
            loaded.loaded,
            progress=progress,
            keep=lambda report: save_report(report, path, inside=True),
            earlier=earlier,
            fetching=Fetching(order.offline, fetching),
        )
    return report.complete


def _looked_at(part: AnyPart, offline: bool, more: StudyNeeds) -> Part:
    """What of a part can be measured here."""
    if isinstance(part, QualityPart):
        return Part(name=part.name, kind="quality", skipped=plan_problem(part.loaded, offline=offline))
    missing = unavailable(part.name, part.loaded, offline=offline, more=more)
    problem = engine_problem(part.loaded) or _nothing_left(part, missing)
    left_out = () if problem else tuple(LeftOut(name=arm, reason=reason) for arm, reason in missing.items())
    return Part(name=part.name, kind="experiment", skipped=problem, left_out=left_out)


def _refuse_reach(folder: Path, parts: Sequence[AnyPart]) -> None:
    """Raise `UsageError` where a folder that is not trusted names programs, flags of programs, or texts outside it."""
    for part in parts:
        if part.loaded.source.startswith("bundled:"):
            continue
        for key, value in _reach(part, folder.resolve()):
            raise UsageError(
                f"{folder / part.name}.yaml: {key}: {value}: a study from a folder may choose programs or read files "
                "outside it only with --trust",
                fix="read its files; if you trust them, add --trust",
            )


def _reach(part: AnyPart, folder: Path) -> Iterator[tuple[str, str]]:
    """(key, what it names) of what lies beyond the study's own data."""
    if isinstance(part, QualityPart):
        plan = part.loaded.value
        texts = [("text", plan.text)] if plan.text else []
    else:
        experiment = part.loaded.experiment
        if binary := experiment.engine.own_options.get("binary"):
            yield "engine.binary", str(binary)
        for arm in experiment.expand():
            if arm.engine.extra_flags:
                yield "engine.extra_flags", " ".join(arm.engine.extra_flags)
        texts: list[tuple[str, str]] = []
        for it in experiment.workloads:
            paths = it.paths if isinstance(it, FileWorkload) else (it.file,) if isinstance(it, LengthWorkload) else ()
            texts += [(f"workloads.{it.name}", path) for path in paths if path]
    for key, path in texts:
        if folder not in (part.loaded.base_dir / path).expanduser().resolve().parents:
            yield key, path


def _begun(ready: Ready, folder: StudyFolder) -> StudyRecord:
    """The record of a folder that continues: what was left out of parts that were started stays as it was."""
    if not folder.record_path.exists():
        return ready.record
    before = folder.record()
    if not before.asked_like(ready.record):
        raise StoreError(
            f"{folder.path}: contains {_told(before)}, not {_told(ready.record)}",
            fix="repeat the command that started it, or choose another folder with --out",
        )
    record = ready.record.model_copy(update={"made_at": before.made_at})
    for part in before.parts:
        if not part.skipped and folder.has_begun(part):
            record = record.with_part(part)
    return record


def _nothing_left(part: ExperimentPart, missing: Mapping[str, Message]) -> Message | None:
    """Why nothing of an experiment can be measured: the reasons of all its arms; None where something can."""
    arms = part.loaded.experiment.expand()
    if any(arm.id not in missing for arm in arms):
        return None
    return several(dict.fromkeys(missing[arm.id] for arm in arms if arm.baseline_id not in missing))


def _refuse_nothing(record: StudyRecord, lacking: Sequence[AbsentModel]) -> None:
    """Raise `UsageError` where every part is skipped: about all models that are missing, where that is the reason."""
    if not all(part.skipped for part in record.parts):
        return
    files = dict.fromkeys(name for model in lacking if (name := file_of(model.reference)) is not None)
    refuse_absent(lacking, f"give a folder with these files: --models DIR ({', '.join(files)})")
    reasons = "\n".join(f"  - {part.name}: {part.skipped}" for part in record.parts)
    raise UsageError(
        f"{record.study}: nothing can be measured here\n{reasons}",
        fix="give your own models (--model NAME=FILE.gguf), or use the bench models (--variant bench)",
    )


def _told(record: StudyRecord) -> str:
    asked: Sequence[str] = (*record.variants, *record.overrides)
    return f"the study {record.study}" + (f" with {', '.join(asked)}" if asked else "")
