"""The instrumented engine: what it states about itself."""

from __future__ import annotations

from specmeter.engines.llama_cpp.traits import KV_TYPES, SERVER_TELLS, settings_without
from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineTraits, MethodTraits

LIBLLAMA = EngineSpec(
    traits=EngineTraits(
        model_formats=("gguf",),
        methods=(
            MethodTraits(
                name="draft-simple",
                drafter="model",
                draft_model="needed",
                parameters=("gamma", "gamma_min", "p_min"),
            ),
            MethodTraits(name="ngram-simple", drafter="lookup", parameters=("gamma", "gamma_min", "ngram_n")),
        ),
        combines_methods=True,
        policies=("entropy", "utility", "cost-table"),
        rules=("rejection", "sample-match"),
        settings=settings_without("prompt_cache", "extra_flags", "rpc"),
        kv_types=KV_TYPES,
        synthetic="planted",
        drafting="specmeter",
        pinned=True,
        tells=(*SERVER_TELLS, "step-times", "experts"),
    ),
    make=lambda _: late("specmeter.engines.libllama.engine:LibllamaEngine")(),
    check_arm=late("specmeter.engines.libllama.methods:check_arm"),
    examine=late("specmeter.engines.libllama.engine:examine"),
)
