"""The parts of a study as they were asked for: experiments and quality plans with variants, overrides and models."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from specmeter import studies
from specmeter.errors import UsageError
from specmeter.experiments import file as experiment_file
from specmeter.quality.plan import LoadedPlan, bundled_plans, load_plan

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.file import LoadedExperiment


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    study: str
    variants: tuple[str, ...] = ()
    """Each part takes those that it has."""
    overrides: tuple[str, ...] = ()
    """`PART.KEY=VALUE` for one part, `KEY=VALUE` for every part."""
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """The study's name of a model -> the reference that takes its place."""
    offline: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """Overrides and models as one list: two orders with the same list are the same."""
        return (*self.overrides, *(f"{name}={reference}" for name, reference in self.models.items()))


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
                f"--model {text[:80]!r}: not of the form NAME=REFERENCE", fix="for example --model moe_q4=file.gguf"
            )
        if name in found:
            raise UsageError(f"--model {name[:80]}: given twice", fix="leave one of the two out")
        found[name] = reference
    return found


def variants_of(part: str) -> tuple[str, ...]:
    """The variants that a bundled part offers. Raises `UsageError` for an unknown part."""
    return _shelf(part)[part].variants


def load_parts(order: Order) -> tuple[AnyPart, ...]:
    """The parts of a study, ready to be looked at. Raises `UsageError` for an unknown study, and for a variant or a
    model that no part has; `ExperimentError` for what an override makes of a part."""
    names = studies.find(order.study).PARTS
    offered = {name: variants_of(name) for name in names}
    _refuse_unknown("--variant", order.variants, [it for variants in offered.values() for it in variants], order.study)
    parts = tuple(
        _load(
            name,
            overrides_of(name, names, order.overrides),
            [variant for variant in order.variants if variant in offered[name]],
        )
        for name in names
    )
    _refuse_unknown("--model", tuple(order.models), [name for part in parts for name in models_of(part)], order.study)
    return tuple(_with_models(part, order.models) for part in parts)


def overrides_of(part: str, parts: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides of one part: its own, without its name, and those of every part."""
    return tuple(_of_part(part, parts, overrides))


def models_of(part: AnyPart) -> tuple[str, ...]:
    """The part's names of its models."""
    if isinstance(part, QualityPart):
        return tuple(part.loaded.value.models)
    return (*part.loaded.experiment.targets, *part.loaded.experiment.drafts)


def _shelf(part: str) -> Mapping[str, Any]:
    for shelf in (experiment_file.bundled(), bundled_plans()):
        if part in shelf:
            return shelf
    raise UsageError(f"{part}: is neither a bundled experiment nor a bundled quality plan", fix="reinstall specmeter")


def _load(name: str, overrides: Sequence[str], variants: Sequence[str]) -> AnyPart:
    if name in experiment_file.bundled():
        return ExperimentPart(name, experiment_file.load(name, overrides, variants=variants))
    return QualityPart(name, load_plan(name, overrides, variants=variants))


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
    if not set(models_of(part)) & set(models):
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
    return replace(loaded, experiment=experiment.model_copy(update=sections), text=text)


def _refuse_unknown(flag: str, given: Sequence[str], known: Sequence[str], study: str) -> None:
    names = list(dict.fromkeys(known))
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{flag} {name[:80]!r}: no part of {study} has it",
                fix=f"{hint}choose from: {', '.join(names) or 'none'}",
            )
