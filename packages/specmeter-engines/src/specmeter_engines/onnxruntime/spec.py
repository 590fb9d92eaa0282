"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits
from specmeter_engines.traits import WHOLE, by_model

DRAFT, ADAPTIVE = "draft", "adaptive"

ONNXRUNTIME = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(DRAFT),),
        policies=(ADAPTIVE,),
        sampling=("top_k", "top_p"),
        settings=("context", "threads"),
        tells=WHOLE,
    ),
    make=lambda _: late("specmeter_engines.hosted:HostedEngine")("onnxruntime"),
    model=late("specmeter_engines.onnxruntime.folders:onnx_model"),
    forms=(("onnx", late("specmeter_engines.onnxruntime.folders:export_onnx")),),
)
