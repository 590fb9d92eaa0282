"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from typing import Literal

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits, Record
from specmeter_engines.traits import WHOLE, by_lookup, by_model

ASSISTED, LOOKUP = "assisted", "prompt-lookup"


class Options(Record):
    """Settings of its own."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and arithmetic; `auto`: that of the model's folder."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """What computes; `auto`: a GPU where torch sees one."""


TRANSFORMERS = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(ASSISTED, "p_min"), by_lookup(LOOKUP)),
        sampling=("top_k", "top_p", "min_p"),
        settings=("context", "threads"),
        tells=WHOLE,
    ),
    make=lambda _: late("specmeter_engines.hosted:HostedEngine")("transformers"),
    model=late("specmeter_engines.folders:folder_model"),
    options=Options,
)
