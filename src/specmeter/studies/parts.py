"""The parts of a study as they were asked for: its experiments with variants, overrides and models of one's own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from specmeter import studies
from specmeter.errors import UsageError
from specmeter.experiment_file import LoadedExperiment, bundled, load

if TYPE_CHECKING:
    from specmeter.experiment import Experiment


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


def load_parts(order: Order) -> tuple[ExperimentPart, ...]:
    """The parts of a study, ready to be looked at. Raises `UsageError` for an unknown study, and for a variant,
    override or model that no part has; `ExperimentError` for what an override makes of a part."""
    names = studies.find(order.study).PARTS
    offered = {name: bundled()[name].variants for name in names}
    _refuse_unknown("--variant", order.variants, [it for variants in offered.values() for it in variants], order.study)
    parts = tuple(
        ExperimentPart(
            name,
            load(
                name,
                overrides_of(name, names, order.overrides),
                variants=[variant for variant in order.variants if variant in offered[name]],
            ),
        )
        for name in names
    )
    known = [model for part in parts for model in _models(part.loaded.experiment)]
    _refuse_unknown("--model", tuple(order.models), known, order.study)
    return tuple(replace(part, loaded=with_models(part.loaded, order.models)) for part in parts)


def overrides_of(part: str, parts: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides of one part: its own, without its name, and those of every part."""
    return tuple(_of_part(part, parts, overrides))


def _of_part(part: str, parts: Sequence[str], overrides: Sequence[str]) -> Iterator[str]:
    for override in overrides:
        head, dot, rest = override.partition(".")
        if dot and head in parts:
            if head == part:
                yield rest
        else:
            yield override


def with_models(loaded: LoadedExperiment, models: Mapping[str, str]) -> LoadedExperiment:
    """The experiment with other models in the place of those that it names; names that it lacks are passed over."""
    experiment = loaded.experiment
    if not any(name in models for name in _models(experiment)):
        return loaded
    sections = {
        section: {name: models.get(name, reference) for name, reference in getattr(experiment, section).items()}
        for section in ("targets", "drafts")
    }
    data: dict[str, Any] = yaml.safe_load(loaded.text)
    data.pop("variants", None)
    text = yaml.safe_dump({**data, **sections}, sort_keys=False, allow_unicode=True)
    return replace(loaded, experiment=experiment.model_copy(update=sections), text=text)


def _models(experiment: Experiment) -> list[str]:
    return [*experiment.targets, *experiment.drafts]


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
