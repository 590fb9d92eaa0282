"""The instrumented engine: what it states about itself, which arms it can run, and with which values.

Of several methods n-grams are asked first, as in llama.cpp's server.
"""

from __future__ import annotations

from typing import Any

from specmeter.engines.llama_cpp.draft_rules import DRAFT_GAMMA, NGRAM_GAMMA, NGRAM_N
from specmeter.engines.llama_cpp.spec import KV_TYPES, SERVER_TELLS, check_synthetic, settings_without
from specmeter.engines.registry import EngineSpec, late
from specmeter.errors import ExperimentError
from specmeter.record import Arm, EngineTraits, MethodTraits


def check_arm(arm: Arm, has_draft: bool) -> None:  # noqa: ARG001
    """Raise `ExperimentError`, naming the field, for what its traits allow and this engine cannot run all the same."""
    where = f"arm {arm.id}"
    from_model = "draft-simple" in arm.methods
    if arm.p_min is not None and not from_model:
        raise ExperimentError(
            f"{where}: p_min needs a draft model; {' + '.join(arm.methods)} has no probabilities",
            fix="leave p_min out, or use the method draft-simple",
        )
    if not arm.speculates and arm.rule:
        raise ExperimentError(f"{where}: rule has no effect without speculation", fix="leave it out")
    if arm.gamma_min is not None and arm.gamma_min > longest(arm):
        raise ExperimentError(
            f"{where}: gamma_min {arm.gamma_min} is above gamma {longest(arm)}: every draft would be discarded",
            fix="set gamma_min to gamma or less",
        )
    batch = min(arm.engine.batch or 2048, arm.engine.full_context)
    if arm.speculates and longest(arm) >= batch:
        raise ExperimentError(
            f"{where}: gamma {longest(arm)} plus one token does not fit in a batch of {batch}",
            fix=f"lower gamma, or set engine.batch (and engine.context) to {longest(arm) + 1} or more",
        )
    _check_slots(arm, where)
    check_synthetic(arm, where)


def _check_slots(arm: Arm, where: str) -> None:
    """Several requests at once: their forwards are one, so what belongs to a single request's forward is refused."""
    slots = arm.engine.slots
    if slots == 1:
        return
    if arm.engine.record_experts:
        raise ExperimentError(
            f"{where}: engine.record_experts with {slots} slots: a forward pass would mix the experts of several "
            "requests",
            fix="use engine.slots: 1; for shared forward passes use `specmeter probe --batch`",
        )
    batch = min(arm.engine.batch or 2048, arm.engine.full_context)
    if slots * (longest(arm) + 1) > batch:
        raise ExperimentError(
            f"{where}: {slots} slots with {longest(arm)} draft tokens do not fit in a batch of {batch}",
            fix=f"lower gamma or engine.slots, or set engine.batch (and engine.context) to "
            f"{slots * (longest(arm) + 1)} or more",
        )


def longest(arm: Arm) -> int:
    """Most tokens that a draft of this arm may have; 0 for decoding without speculation."""
    if not arm.speculates:
        return 0
    return arm.gamma or max(DRAFT_GAMMA if it == "draft-simple" else NGRAM_GAMMA for it in arm.methods)


def parameters(arm: Arm) -> dict[str, dict[str, Any]]:
    """Method -> value in force by name, as sessions record them."""
    if not arm.speculates:
        return {}
    values: dict[str, dict[str, Any]] = {}
    for method in arm.methods:
        if method == "draft-simple":
            values[method] = {
                "n_max": arm.gamma or DRAFT_GAMMA,
                "n_min": arm.gamma_min or 0,
                "p_min": arm.p_min or 0.0,
            }
        else:
            values[method] = {
                "size_m": arm.gamma or NGRAM_GAMMA,
                "size_n": arm.ngram_n or NGRAM_N,
                "n_min": arm.gamma_min or 0,
            }
    return values


LIBLLAMA = EngineSpec(
    traits=EngineTraits(
        sampling=("top_k", "top_p", "min_p"),
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
        rules=("rejection", "sample-match"),
        settings=settings_without(
            "prompt_cache",
            "extra_flags",
            "rpc",
            "cpu_moe_layers",
            "draft_cpu_moe_layers",
            "override_tensors",
            "kv_unified",
        ),
        kv_types=KV_TYPES,
        synthetic="planted",
        drafting="specmeter",
        pinned=True,
        tells=(*SERVER_TELLS, "step-times", "experts"),
    ),
    make=lambda _: late("specmeter.engines.libllama.engine:LibllamaEngine")(),
    check_arm=check_arm,
    examine=late("specmeter.engines.libllama.engine:examine"),
)
