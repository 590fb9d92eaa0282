"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from typing import Literal

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits, Record
from specmeter_engines.traits import by_model

DRAFT = "draft"


class Options(Record):
    """Settings of its own."""

    device: Literal["CPU", "GPU", "NPU"] = "CPU"
    """What computes."""
    precision: Literal["auto", "f32"] = "auto"
    """Number format of arithmetic and cache; `auto`: OpenVINO's choice, which may be coarser than the model's weights
    and different from step to step."""


OPENVINO = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(DRAFT),),
        sampling=("top_k", "top_p"),
        settings=("context",),
        tells=("drafts", "steps", "tokens", "arrivals", "activation", "identity", "processes"),
    ),
    make=lambda _: late("specmeter_engines.hosted:HostedEngine")("openvino"),
    model=late("specmeter_engines.openvino.folders:openvino_model"),
    forms=(("openvino", late("specmeter_engines.openvino.folders:export_openvino")),),
    options=Options,
)
