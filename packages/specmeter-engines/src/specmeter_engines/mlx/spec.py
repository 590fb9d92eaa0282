"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits
from specmeter_engines.traits import WHOLE, by_model

DRAFT = "draft"

MLX = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(DRAFT),),
        sampling=("top_k", "top_p", "min_p"),
        settings=("context",),
        tells=WHOLE,
    ),
    make=lambda _: late("specmeter_engines.hosted:HostedEngine")("mlx"),
    model=late("specmeter_engines.folders:folder_model"),
)
