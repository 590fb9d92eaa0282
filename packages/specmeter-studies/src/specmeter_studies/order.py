"""The parts of a study as they were asked for: experiments and quality plans with variants, overrides and models."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from specmeter.errors import UsageError
from specmeter.experiments import file as experiment_file
from specmeter.models.reference import file_of, with_dense
from specmeter_studies.loading import Study, find
from specmeter_studies.quality.plan import LoadedPlan, bundled_plans, load_plan
from specmeter_studies.rules import LOOKS
from specmeter_studies.setting import REAL

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.file import LoadedExperiment


@dataclass(frozen=True)
class StudyOrder:
    """What was asked for."""

    study: str
    """Name of a bundled one, or the folder of a user's own."""
    variants: tuple[str, ...] = ()
    """Each part takes those that it has."""
    overrides: tuple[str, ...] = ()
    """`PART.KEY=VALUE` for one part, `KEY=VALUE` for every part."""
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """The study's name of a model -> the reference that takes its place."""
    models_from: Path | None = None
    """Folder whose files take the place of files of their names."""
    offline: bool = False
    trusted: bool = False
    """Whether code of a user's folder may run."""
    budget_s: float = 900.0
    """For experiments whose bench or real models are measured until claims are decided."""

    @property
    def until_decided(self) -> bool:
        """Whether claims decide how many blocks there are: with bench or real models, unless seconds are to do."""
        return bool({"bench", REAL} & {*self.variants}) and "quick" not in self.variants

    @cached_property
    def definition(self) -> Study:
        """The study. Raises `UsageError` for an unknown one and for code that is not trusted, `ExperimentError` for a
        bad `study.yaml`."""
        found = find(self.study, trusted=self.trusted)
        found.refuse_untrusted()
        return found

    @property
    def changes(self) -> tuple[str, ...]:
        """Overrides and models as one list: two orders with the same list are the same."""
        folder = () if self.models_from is None else (f"--models {self.models_from}",)
        return (*self.overrides, *(f"{name}={reference}" for name, reference in self.models.items()), *folder)


@dataclass(frozen=True)
class ExperimentPart:
    """An experiment of a study."""

    name: str
    loaded: LoadedExperiment


@dataclass(frozen=True)
class QualityPart:
    """A quality measurement of a study."""

    name: str
    loaded: LoadedPlan


AnyPart = ExperimentPart | QualityPart


def read_models(given: Sequence[str]) -> dict[str, str]:
    """`NAME=REFERENCE` as a mapping. Raises `UsageError` for anything else, and for a name that is given twice."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, reference = text.partition("=")
        if not (name and equals and reference):
            raise UsageError(
                f"--model {text[:80]!r}: not NAME=REFERENCE", fix="write for example --model moe_q4=file.gguf"
            )
        if name in found:
            raise UsageError(f"--model {name[:80]}: given twice", fix="remove one of the two")
        found[name] = reference
    return found


def variants_of(study: Study) -> dict[str, tuple[str, ...]]:
    """Part -> the variants that it offers. Raises `UsageError` for an unknown part, `ExperimentError` for a bad one."""
    return {part: _source(study, part).variants for part in study.parts}


def load_parts(order: StudyOrder) -> tuple[AnyPart, ...]:
    """The parts of a study, ready to be looked at. Raises `UsageError` for an unknown study, and for a variant or a
    model that no part has; `ExperimentError` for what an override makes of a part."""
    study = order.definition
    offered = variants_of(study)
    _refuse_unknown("--variant", order.variants, [it for variants in offered.values() for it in variants], study.name)
    parts = tuple(
        _load(
            _source(study, name),
            overrides_of(name, study.parts, order.overrides),
            [variant for variant in order.variants if variant in offered[name]],
            order.until_decided,
        )
        for name in study.parts
    )
    _refuse_unknown(
        "--model", tuple(order.models), [name for part in parts for name in references_of(part)], study.name
    )
    if order.models_from is not None:
        _refuse_other_files(order.models_from, files_of(parts))
    return tuple(_with_models(part, {**_from_folder(part, order.models_from), **order.models}) for part in parts)


def files_of(parts: Sequence[AnyPart]) -> tuple[str, ...]:
    """Names of the files that the parts use."""
    references = [reference for part in parts for reference in references_of(part).values()]
    return tuple(dict.fromkeys(name for reference in references if (name := file_of(reference)) is not None))


def _from_folder(part: AnyPart, folder: Path | None) -> dict[str, str]:
    """Model -> the same with the file of its name in the folder, for those that are there."""
    if folder is None:
        return {}
    return {
        name: with_dense(reference, str(folder / file))
        for name, reference in references_of(part).items()
        if (file := file_of(reference)) is not None and (folder / file).is_file()
    }


def _refuse_other_files(folder: Path, wanted: Sequence[str]) -> None:
    if not any((folder / name).is_file() for name in wanted):
        fix = f"put these there: {', '.join(wanted)}" if wanted else "leave the option out: the study uses no files"
        raise UsageError(f"--models {folder}: none of the study's files is there", fix=fix)


def overrides_of(part: str, parts: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides of one part: its own, without its name, and those of every part."""
    return tuple(_of_part(part, parts, overrides))


def references_of(part: AnyPart) -> dict[str, str]:
    """The part's names of its models -> their references; of those that are made from another by a plan, none."""
    if isinstance(part, QualityPart):
        return {name: model.reference or "" for name, model in part.loaded.value.models.items()}
    return {**part.loaded.experiment.targets, **part.loaded.experiment.drafts}


@dataclass(frozen=True)
class _Source:
    """Where a part comes from."""

    name: str
    reference: str
    """Name of a bundled file, or the path of one beside `study.yaml`."""
    is_quality: bool
    variants: tuple[str, ...]


def _source(study: Study, part: str) -> _Source:
    """A file of the study's own folder, else a bundled one."""
    if study.folder is not None:
        for name, is_quality in ((f"{part}.yaml", False), (f"{part}.quality.yaml", True)):
            path = study.folder / name
            if path.is_file():
                loaded = load_plan(str(path)) if is_quality else experiment_file.load(str(path))
                return _Source(part, str(path), is_quality, loaded.variants)
    for shelf, is_quality in ((experiment_file.bundled(), False), (bundled_plans(), True)):
        if part in shelf:
            return _Source(part, part, is_quality, shelf[part].variants)
    beside = "reinstall specmeter" if study.folder is None else f"write {study.folder / part}.yaml"
    raise UsageError(f"parts: {part}: no bundled experiment or quality plan has this name", fix=beside)


def _load(source: _Source, overrides: Sequence[str], variants: Sequence[str], until_decided: bool) -> AnyPart:
    if source.is_quality:
        return QualityPart(source.name, load_plan(source.reference, overrides, variants=variants))
    if until_decided:
        overrides = ("design.stopping=decided", f"design.blocks={LOOKS[-1]}", *overrides)
    return ExperimentPart(source.name, experiment_file.load(source.reference, overrides, variants=variants))


def _of_part(part: str, parts: Sequence[str], overrides: Sequence[str]) -> Iterator[str]:
    for override in overrides:
        head, dot, rest = override.partition(".")
        if dot and head in parts:
            if head == part:
                yield rest
        else:
            yield override


def _with_models(part: AnyPart, models: Mapping[str, str]) -> AnyPart:
    """The part with other models in the place of those that it names; names that it lacks are passed over."""
    if not set(references_of(part)) & set(models):
        return part
    if isinstance(part, ExperimentPart):
        return replace(part, loaded=_experiment_with(part.loaded, models))
    plan = part.loaded.value
    changed = {
        name: model.model_copy(update={"reference": models[name]}) if name in models else model
        for name, model in plan.models.items()
    }
    return replace(part, loaded=replace(part.loaded, value=plan.model_copy(update={"models": changed})))


def _experiment_with(loaded: LoadedExperiment, models: Mapping[str, str]) -> LoadedExperiment:
    experiment: Experiment = loaded.experiment
    sections = {
        section: {name: models.get(name, reference) for name, reference in getattr(experiment, section).items()}
        for section in ("targets", "drafts")
    }
    data: dict[str, Any] = yaml.safe_load(loaded.text)
    data.pop("variants", None)
    text = yaml.safe_dump({**data, **sections}, sort_keys=False, allow_unicode=True)
    return replace(loaded, value=experiment.model_copy(update=sections), text=text)


def _refuse_unknown(flag: str, given: Sequence[str], known: Sequence[str], study: str) -> None:
    names = list(dict.fromkeys(known))
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{flag} {name[:80]!r}: {study} has none of this name",
                fix=f"{hint}use one of: {', '.join(names)}" if names else "leave the option out: the study has none",
            )
