"""Several engines in one run: a target is named `ENGINE:MODEL`, so that each engine has its own plain decoding in every
block, and drafts in its own way by the same two names.

What the run can tell is what all of them can.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits, Record
from specmeter_engines import by_lookup, by_model

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
