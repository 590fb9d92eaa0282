"""What of an experiment cannot be measured here, and why: the engine, models that are not there, memory.

A study continues without it. All this is looked at before anything is started, made or downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.engines.registry import load_engine, spec_of
from specmeter.errors import SpecmeterError
from specmeter.host.machine import memory_free_bytes
from specmeter.laboratory.run import absent, used_models
from specmeter.messages import Message
from specmeter_studies.telling import several

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.models.reference import AbsentModel
    from specmeter.record import Arm
    from specmeter_studies.quality.plan import LoadedPlan


StudyNeeds = Callable[[str, "LoadedExperiment", "Sequence[Arm]"], Mapping[str, Message]]
"""A study's own: (part, experiment, arms that nothing else keeps away) -> arm id -> why it cannot be measured here."""


def engine_problem(loaded: LoadedExperiment) -> Message | None:
    """Why the experiment's engine does not work here; None where it does."""
    engine = loaded.experiment.engine
    try:
        load_engine(engine.kind, **engine.own_options).identify()
    except SpecmeterError as error:
        return reason_of(error)
    return None


def plan_problem(loaded: LoadedPlan, *, offline: bool = False) -> Message | None:
    """Why nothing of a quality plan can be measured here; None where something can. What is then missing of single
    models the report says itself."""
    from specmeter_studies.quality.plan import text_path

    plan = loaded.value
    try:
        text_path(loaded)
    except SpecmeterError as error:
        return reason_of(error)
    references = [name for name, model in plan.models.items() if model.reference is not None]
    lacking = _lacking_of_plan(loaded, offline=offline)
    if len(lacking) < len(references):
        return None
    return several(Message("study.lacks.model", name=name, why=why) for name, why in lacking.items())


def models_of_plan(loaded: LoadedPlan, *, offline: bool = False) -> tuple[list[str], dict[str, Message]]:
    """(models of a plan that will be measured here, others -> why not), as far as that can be told before anything is
    made or fetched."""
    models = loaded.value.models
    lacking = _lacking_of_plan(loaded, offline=offline)
    missing = {name: Message("study.outside", text=why) for name, why in lacking.items()}
    for name, model in models.items():
        if model.reference is None and model.made_from in missing:
            missing[name] = Message("study.lacks.source", source=model.made_from)
    return [name for name, model in models.items() if not model.only_source and name not in missing], missing


def _lacking_of_plan(loaded: LoadedPlan, *, offline: bool) -> dict[str, str]:
    """Model that is given by a reference -> why it is unavailable."""
    from specmeter.models.reference import absent_models

    if loaded.value.engine == "mlx":
        return {}
    references = {name: it.reference for name, it in loaded.value.models.items() if it.reference is not None}
    absent = absent_models(references, base_dir=loaded.base_dir, offline=offline)
    return {model.key: model.why for model in absent if model.why is not None}


def lacking_models(loaded: LoadedExperiment, *, offline: bool = False) -> tuple[AbsentModel, ...]:
    """Models of an experiment that are not on this machine and cannot be fetched either."""
    found = absent(loaded, loaded.experiment.expand(), offline=offline)
    return tuple(model for model in found if model.why is not None)


def unavailable(
    part: str,
    loaded: LoadedExperiment,
    *,
    offline: bool = False,
    more: StudyNeeds | None = None,
    available_bytes: int | None = None,
) -> dict[str, Message]:
    """Arm id -> why it cannot be measured here; `available_bytes` is memory for models, read now where it is None.

    An arm whose baseline cannot be measured is left out with it. Raises `ExperimentError` for arms that cannot be.
    """
    arms = loaded.experiment.expand()
    lacking = {model.key.partition(".")[2]: model for model in lacking_models(loaded, offline=offline)}
    found = {
        arm.id: Message("study.lacks.model", name=name, why=lacking[name].why)
        for arm in arms
        for name in _names(arm)
        if name in lacking
    }
    if spec_of(loaded.experiment.engine.kind).traits.model_formats:
        able = [arm for arm in arms if arm.id not in found]
        memory = memory_free_bytes() if available_bytes is None else available_bytes
        found |= _too_large(able, _sizes(loaded, able, offline=offline), memory)
    if more is not None:
        found |= more(part, loaded, [arm for arm in arms if arm.id not in found])
    for arm in arms:
        if arm.baseline_id in found and arm.id not in found:
            found[arm.id] = Message("study.lacks.baseline", baseline=arm.baseline_id)
    return found


def _sizes(loaded: LoadedExperiment, arms: Sequence[Arm], *, offline: bool) -> dict[str, dict[int, int]]:
    """Model -> context length -> bytes of weights and KV cache, as far as they are known before it is here."""
    from specmeter.models.reference import peek

    contexts = {arm.engine.full_context for arm in arms}
    sizes: dict[str, dict[int, int]] = {}
    for name, reference in used_models(loaded.experiment, arms).items():
        size, present = peek(reference, base_dir=loaded.base_dir, offline=offline)
        kv = _kv_bytes(reference, loaded.base_dir, contexts) if present else dict.fromkeys(contexts, 0)
        sizes[name] = {context: (size or 0) + kv[context] for context in contexts}
    return sizes


def _kv_bytes(reference: str, base_dir: Path, contexts: set[int]) -> dict[int, int]:
    from specmeter.models.facts import read_facts
    from specmeter.models.reference import OFFLINE, locate

    memory = read_facts(locate(reference, base_dir=base_dir, fetching=OFFLINE)).memory
    return {context: memory.kv_bytes(context) if memory else 0 for context in contexts}


def _too_large(arms: Sequence[Arm], sizes: Mapping[str, Mapping[int, int]], memory: int) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for arm in arms:
        needed = sum(sizes[name][arm.engine.full_context] for name in _names(arm) if name in sizes)
        if needed > memory:
            found[arm.id] = Message("study.lacks.memory", needed=needed, free=memory)
    return found


def _names(arm: Arm) -> list[str]:
    return [name for name in (arm.target, arm.draft) if name is not None]


def reason_of(error: SpecmeterError) -> Message:
    """An error as a reason: what is wrong, and what would help."""
    return Message("study.lacks.error", error=error.message, fix=error.fix)
