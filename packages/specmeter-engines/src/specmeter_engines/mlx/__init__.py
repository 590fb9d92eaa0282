"""mlx-lm: speculative decoding with a draft model, as on Apple silicon; the same code computes on other machines' CPUs.

A session is a process of its own (`child`). Models are folders with `config.json` and weights, or `bench:NAME`.
"""

from __future__ import annotations

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits
from specmeter_engines import WHOLE, by_model

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
