"""May this run be resumed? Only when nothing that it measures has changed, and if not, what has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specmeter.record import Arm, EngineIdentity, ModelIdentity, Prompt

ABSENT = "(absent)"
_LONGEST = 80


@dataclass(frozen=True)
class RunIdentity:
    """All that must stay the same from the first request of a run to its last.

    Parts that a run has not recorded yet (a run killed before its first session has no engine) are empty, and
    compare equal to anything.
    """

    experiment: Mapping[str, Any]
    """The resolved experiment as JSON data."""
    engine: EngineIdentity | None = None
    models: Sequence[ModelIdentity] = ()
    prompts: Sequence[Prompt] = ()
    arms: Sequence[Arm] = ()


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    field: str
    """For example `experiment.design.blocks` or `engine.libraries.libllama.so`."""
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.field}: {self.was} -> {self.now}"


def compare_identity(was: RunIdentity, now: RunIdentity) -> list[Change]:
    """Every field that changed, in the order experiment, arms, engine, models, prompts; empty when none did.

    Paths may change (a cache that moved), bytes may not.
    """
    parts = (
        ("experiment", was.experiment, now.experiment),
        ("arms", _arms(was), _arms(now)),
        ("engine", _engine(was), _engine(now)),
        ("models", _models(was), _models(now)),
        ("prompts", _prompts(was), _prompts(now)),
    )
    return [change for name, before, after in parts if before and after for change in _differences(name, before, after)]


def _arms(identity: RunIdentity) -> dict[str, Any]:
    return {arm.id: arm.model_dump(mode="json") for arm in identity.arms}


def _engine(identity: RunIdentity) -> dict[str, Any]:
    fields = {"kind", "version", "build", "binary_sha256", "libraries"}
    return {} if identity.engine is None else identity.engine.model_dump(mode="json", include=fields)


def _models(identity: RunIdentity) -> dict[str, Any]:
    return {model.name: {"sha256": model.sha256} for model in identity.models}


def _prompts(identity: RunIdentity) -> dict[str, Any]:
    return {prompt.id: prompt.model_dump(mode="json", exclude={"id", "text"}) for prompt in identity.prompts}


def _differences(field: str, was: Any, now: Any) -> Iterator[Change]:
    before, after = _children(was), _children(now)
    if before is not None and after is not None:
        for key in before | after:
            yield from _differences(f"{field}.{key}", before.get(key, ABSENT), after.get(key, ABSENT))
    elif was != now:
        yield Change(field, _shown(was), _shown(now))


def _children(value: Any) -> dict[str, Any] | None:
    """Items of a mapping by key and of a list by index; None for a plain value."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(cast("Sequence[Any]", value))}
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
