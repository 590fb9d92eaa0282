"""What of an experiment cannot be measured here, and why: the engine, models that are not there, memory.

A study goes on without it. All this is looked at before anything is started, made or downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import SpecmeterError
from specmeter.laboratory import used_models

if TYPE_CHECKING:
    from specmeter.experiment_file import LoadedExperiment
    from specmeter.record import Arm

StudyNeeds = Callable[[str, "LoadedExperiment", "Sequence[Arm]"], Mapping[str, str]]
"""A study's own: (part, experiment, arms that nothing else keeps away) -> arm id -> why it cannot be measured here."""


def engine_problem(loaded: LoadedExperiment) -> str:
    """Why the experiment's engine does not work here; empty where it does."""
    from specmeter.engines import load_engine

    engine = loaded.experiment.engine
    try:
        load_engine(engine.kind, binary=engine.binary, mock=engine.mock).identify()
    except SpecmeterError as error:
        return _told(error)
    return ""


def unavailable(
    part: str,
    loaded: LoadedExperiment,
    *,
    offline: bool = False,
    more: StudyNeeds | None = None,
    available_bytes: int | None = None,
) -> dict[str, str]:
    """Arm id -> why it cannot be measured here; `available_bytes` is memory for models, read now where it is None.

    An arm whose baseline cannot be measured is left out with it. Raises `ExperimentError` for arms that cannot be.
    """
    arms = loaded.experiment.expand()
    found: dict[str, str] = {}
    if loaded.experiment.engine.kind != "mock":
        sizes, lacking = _models(loaded, arms, offline=offline)
        found |= _without_models(arms, lacking)
        memory = _free_bytes() if available_bytes is None else available_bytes
        found |= _too_large([arm for arm in arms if arm.id not in found], sizes, memory)
    if more is not None:
        found |= more(part, loaded, [arm for arm in arms if arm.id not in found])
    for arm in arms:
        if arm.baseline_id in found and arm.id not in found:
            found[arm.id] = f"its baseline {arm.baseline_id} is left out"
    return found


def _models(
    loaded: LoadedExperiment, arms: Sequence[Arm], *, offline: bool
) -> tuple[dict[str, dict[int, int]], dict[str, str]]:
    """(name -> context length -> bytes of weights and KV cache, name -> why the model cannot be had)."""
    from specmeter.models.reference import peek

    contexts = {arm.engine.context for arm in arms}
    sizes: dict[str, dict[int, int]] = {}
    lacking: dict[str, str] = {}
    for name, reference in used_models(loaded.experiment, arms).items():
        try:
            size, present = peek(reference, base_dir=loaded.base_dir, offline=offline)
            if not present and (size is None or (offline and reference.startswith("hf:"))):
                lacking[name] = f"{reference} is not on this machine and cannot be downloaded now"
            else:
                kv = _kv_bytes(reference, loaded.base_dir, contexts) if present else dict.fromkeys(contexts, 0)
                sizes[name] = {context: (size or 0) + kv[context] for context in contexts}
        except SpecmeterError as error:
            lacking[name] = _told(error)
    return sizes, lacking


def _kv_bytes(reference: str, base_dir: Path, contexts: set[int]) -> dict[int, int]:
    from specmeter.models.facts import read_facts
    from specmeter.models.reference import locate

    memory = read_facts(locate(reference, base_dir=base_dir, offline=True)).memory
    return {context: memory.kv_bytes(context) if memory else 0 for context in contexts}


def _without_models(arms: Sequence[Arm], lacking: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for arm in arms:
        for name in _names(arm):
            if name in lacking:
                found.setdefault(arm.id, f"model {name}: {lacking[name]}")
    return found


def _too_large(arms: Sequence[Arm], sizes: Mapping[str, Mapping[int, int]], memory: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for arm in arms:
        needed = sum(sizes[name][arm.engine.context] for name in _names(arm) if name in sizes)
        if needed > memory:
            found[arm.id] = f"weights and KV cache need {needed / 1e9:.1f} GB, {memory / 1e9:.1f} GB are free here"
    return found


def _names(arm: Arm) -> list[str]:
    return [name for name in (arm.target, arm.draft) if name is not None]


def _free_bytes() -> int:
    from specmeter.host import memory_available_bytes
    from specmeter.host.gpu import read_gpus

    return memory_available_bytes() + sum(gpu.memory_bytes or 0 for gpu in read_gpus())


def _told(error: SpecmeterError) -> str:
    """An error as a reason: what is wrong, and what would help."""
    return f"{error.message} ({error.fix})"
