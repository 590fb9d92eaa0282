"""onnxruntime-genai: speculative decoding with a draft model, on models that its builder makes of folders.

Its n-grams are left out: on such a model they take a forward for every token. With the policy `adaptive` it chooses the
length of drafts by itself, from one token up to `gamma` (its `min_adaptive_k`).

A session is a process of its own (`child`).
"""

from __future__ import annotations

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits
from specmeter_engines import WHOLE, by_model

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
