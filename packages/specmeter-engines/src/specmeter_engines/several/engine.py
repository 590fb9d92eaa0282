"""Starts each session with the engine that its target names."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.engines.registry import check_arm, load_engine, own_options, spec_of
from specmeter.engines.session import Engine
from specmeter.errors import ExperimentError, ModelError
from specmeter.models.reference import resolve
from specmeter.record import PLAIN, Arm, EngineIdentity, EngineSettings, ModelIdentity
from specmeter_engines.several.spec import SEVERAL, Options

if TYPE_CHECKING:
    from specmeter.engines.session import EngineSession, Launch


def model_of(options: Options, name: str, reference: str) -> ModelIdentity:
    """A target, in the form that its engine reads; a draft, which has no engine of its own, as a GGUF file."""
    engine, _, model = reference.partition(":")
    named = engine in options.engines
    found = as_read_by(engine, name, model) if named else resolve(name, reference, base_dir=Path())
    return found.model_copy(update={"reference": reference, "origin": "engine"})


def as_read_by(engine: str, name: str, reference: str) -> ModelIdentity:
    """A model in the form that an engine reads. Raises `ModelError`."""
    kind = spec_of(engine)
    if kind.traits.model_formats:
        return resolve(name, reference, base_dir=Path())
    if kind.model is None:
        raise ModelError(f"{reference[:200]}: the engine {engine} cannot describe models", fix="use another engine")
    return kind.model(own_options(engine, {}), name, reference)


class SeveralEngines(Engine):
    """The engines of its options. Raises `EngineStartError` where one of them is not usable."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @cached_property
    def _engines(self) -> dict[str, Engine]:
        return {name: load_engine(name) for name in self.options.engines}

    def identify(self) -> EngineIdentity:
        """Which engines these are, by all of their checksums."""
        found = [it.identify() for it in self._engines.values()]
        sums = {name: digest for it in found for name, digest in {it.binary: it.binary_sha256, **it.libraries}.items()}
        first = next(iter(sums), "")
        return EngineIdentity(
            kind="several",
            version="; ".join(f"{it.kind}: {it.version}" for it in found) or "chosen by the experiment",
            build=hashlib.sha256("".join(it.build for it in found).encode()).hexdigest()[:16],
            binary=first,
            binary_sha256=sums.pop(first, ""),
            libraries=sums,
            traits=SEVERAL.traits,
        )

    def start(self, launch: Launch) -> EngineSession:
        """A session of an arm, of the engine that its target names. Raises as that engine does."""
        name, _, reference = launch.target.reference.partition(":")
        if name not in self._engines:
            raise ExperimentError(
                f"arm {launch.arm.id}: {launch.target.reference[:200]} does not start with an engine of this run",
                fix=f"write targets as ENGINE:MODEL, with one of "
                f"{', '.join(self._engines) or '(engine.options.engines)'}",
            )
        arm, draft = self._translated(name, launch.arm), launch.draft
        check_arm(name, arm, has_draft=draft is not None)
        target = launch.target.model_copy(update={"reference": reference})
        if draft is not None:
            draft = as_read_by(name, draft.name, draft.reference)
        return self._engines[name].start(replace(launch, arm=arm, target=target, draft=draft))

    def _translated(self, name: str, arm: Arm) -> Arm:
        """The arm in the words of an engine: its own method, whole drafts, and settings that it has."""
        traits = spec_of(name).traits
        kept = {it: getattr(arm.engine, it) for it in ("context", "threads") if it in traits.settings}
        settings = EngineSettings.model_validate(kept | self.options.settings.get(name, {}))
        changes: dict[str, Any] = {"engine": settings}
        if arm.methods != (PLAIN,):
            (drafter,) = SEVERAL.traits.drafters(arm.methods)
            own = next((it for it in traits.methods if it.drafter == drafter), None)
            if own is None:
                raise ExperimentError(
                    f"arm {arm.id}: the engine {name} has no method {arm.methods[0]}",
                    fix="remove this configuration, or change its method",
                )
            changes["methods"] = (own.name,)
            changes["ngram_n"] = arm.ngram_n if "ngram_n" in own.parameters else None
            changes["p_min"] = 0.0 if "p_min" in own.parameters else None
        return arm.model_copy(update=changes)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()
