"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits, Record
from specmeter_engines.traits import by_lookup, by_model

DRAFT, LOOKUP = "draft", "lookup"


class Options(Record):
    """Which engines, and what each needs besides."""

    engines: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Those that take part, by their names."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """Engine -> settings of its own, such as `extra_flags`."""


SEVERAL = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(DRAFT), by_lookup(LOOKUP)),
        sampling=("top_k", "top_p"),
        settings=("context", "threads"),
        tells=("drafts", "tokens", "arrivals", "activation", "identity", "processes"),
    ),
    make=late("specmeter_engines.several.engine:SeveralEngines"),
    model=late("specmeter_engines.several.engine:model_of"),
    options=Options,
)
