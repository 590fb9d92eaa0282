"""What a plan allows and its author hardly means: drafts larger than their targets, more clients than slots, too few
blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specmeter.analysis.answer import least_units
from specmeter.cache import file_sha256
from specmeter.text import counted, size

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.record import Arm


class Sized(Protocol):
    """A model whose size may be known."""

    @property
    def size_bytes(self) -> int | None: ...


class Located(Protocol):
    """A model whose file is known."""

    @property
    def path(self) -> str: ...


def swapped(arms: Sequence[Arm], models: Mapping[str, Sized]) -> Iterator[str]:
    """Drafts that are larger than their targets."""
    for target, draft in dict.fromkeys((arm.target, arm.draft) for arm in arms):
        if draft is not None and target in models and draft in models:
            mine, theirs = models[draft].size_bytes, models[target].size_bytes
            if mine is not None and theirs is not None and mine > theirs:
                yield f"the draft model {draft} ({size(mine)}) is larger than its target {target} ({size(theirs)}); "
                "swapped?"


def self_drafting(arms: Sequence[Arm], models: Mapping[str, Located]) -> Iterator[str]:
    """Draft models that are their targets, to the byte; several arms may have the same pair."""
    for target, draft in dict.fromkeys((arm.target, arm.draft) for arm in arms):
        if draft is None or target not in models or draft not in models:
            continue
        one, other = Path(models[target].path), Path(models[draft].path)
        if one.is_file() and other.is_file() and _are_same(one, other):
            yield (
                f"the draft model {draft} is the target {target} itself: every token is accepted, and drafting costs "
                "as much as decoding; use a smaller model with the same vocabulary"
            )


def _are_same(one: Path, other: Path) -> bool:
    if one.samefile(other):
        return True
    return one.stat().st_size == other.stat().st_size and file_sha256(one) == file_sha256(other)


def queueing(arms: Sequence[Arm]) -> Iterator[str]:
    """Closed loops with more clients than slots."""
    crowded = {(arm.load.clients, arm.engine.slots) for arm in arms if arm.load is not None and arm.load.clients}
    for clients, slots in sorted(crowded):
        if clients > slots:
            yield (
                f"{clients} clients share {counted(slots, 'slot')}: {counted(clients - slots, 'request')} always "
                "queue, which is part of the time to first token"
            )


def too_few(experiment: Experiment, arms: Sequence[Arm]) -> Iterator[str]:
    """Baselines beside which more arms compete than the blocks of the plan can tell apart."""

    design = experiment.design
    several = design.invocations > 1
    units, unit = (design.invocations, "invocations") if several else (design.blocks, "blocks")
    choices = [arm for arm in arms if arm.role == "speculative" and not arm.synthetic_rates]
    for baseline in (arm.id for arm in arms if arm.role == "baseline"):
        mine = [arm for arm in choices if arm.baseline_id == baseline]
        among = max(
            (sum(not arm.workloads or spec.name in arm.workloads for arm in mine) for spec in experiment.workloads),
            default=0,
        )
        if among and units < least_units(among):
            named, least = "one configuration" if among == 1 else f"{among} configurations", least_units(among)
            option = f"--blocks {least}" if unit == "blocks" else f"--set design.{unit}={least}"
            yield f"{named} for {baseline}: an answer needs at least {least} {unit} ({option}); planned: {units}"
