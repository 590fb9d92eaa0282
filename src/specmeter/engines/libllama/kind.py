"""The instrumented engine as a kind of engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmeter.engines.kinds import EngineKind
from specmeter.engines.llama_cpp.kinds import KV_TYPES, SERVER_TELLS, settings_without
from specmeter.record import Arm, EngineTraits, MethodTraits

if TYPE_CHECKING:
    from specmeter.engines import Engine


def _make(options: Any) -> Engine:  # noqa: ARG001
    from specmeter.engines.libllama.engine import LibllamaEngine

    return LibllamaEngine()


def _check(arm: Arm, has_draft: bool) -> None:
    from specmeter.engines.libllama.methods import check_arm

    check_arm(arm, has_draft=has_draft)


LIBLLAMA = EngineKind(
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
    make=_make,
    check_arm=_check,
)
