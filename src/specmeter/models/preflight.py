"""What is refused before anything is measured: a draft of another vocabulary, models that do not fit.

A server of llama.cpp that refuses a draft goes on without speculation and says so in its log only. An arm may ask for
just that to be measured (`refused_draft: measure`), as a published study did without knowing it: its draft is compared
and recorded like any other, and the checks find the arm invalid. A draft that cannot even be loaded is always refused,
and so is one for an engine that does not compare drafts itself: it would draft tokens of another vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specmeter.errors import ModelError, UsageError
from specmeter.models.metadata import Metadata
from specmeter.record import Arm, DraftPair
from specmeter.text import quoted, size

if TYPE_CHECKING:
    from specmeter.models.metadata import Metadata


class ModelFile(Protocol):
    """Where a model lies; a `ModelIdentity`, or what a dry run knows without reading it."""

    @property
    def reference(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


def check(arms: Sequence[Arm], models: Mapping[str, ModelFile], engine: str = "embedded") -> tuple[DraftPair, ...]:
    """How the drafts go with their targets, after refusing what an engine of that kind would refuse; none for an engine
    that names models in its own way.

    Raises `ExperimentError` for parameters that no method of an arm honours, `ModelError` for a draft that is none of
    its target, `UsageError` for models beyond this machine.
    """
    from specmeter.engines.registry import check_arm, spec_of

    for arm in arms:
        check_arm(engine, arm, has_draft=arm.draft is not None)
    traits = spec_of(engine).traits
    if "gguf" not in traits.model_formats:
        return ()
    read: dict[str, Metadata] = {}
    for arm in arms:
        _refuse_other_kinds(arm, models, read)
    pairs = _pairs(arms, models, compared=traits.compares_drafts)
    _memory(arms, models)
    return pairs


def _pairs(arms: Sequence[Arm], models: Mapping[str, ModelFile], *, compared: bool) -> tuple[DraftPair, ...]:
    from specmeter.models.compatibility import compare

    strict: dict[tuple[str, str], bool] = {}
    for arm in arms:
        if arm.draft is not None:
            pair = (arm.target, arm.draft)
            strict[pair] = strict.get(pair, False) or arm.refused_draft == "refuse" or not compared
    pairs: list[DraftPair] = []
    for (target, draft), refuse in strict.items():
        comparison = compare(Path(models[target].path), Path(models[draft].path))
        loads = not any(it.name == "vocabulary-readable" and it.status == "refused" for it in comparison.conditions)
        if comparison.refusal is not None and (refuse or not loads):
            command = f"specmeter models compare {_shown(models[target])} {_shown(models[draft])}"
            raise ModelError(
                f"drafts.{draft}: llama.cpp refuses it as a draft of {target}: {comparison.refusal}",
                fix=f"choose a draft with the target's vocabulary; `{command}` lists every condition",
            )
        pairs.append(DraftPair(target=target, draft=draft, conditions=comparison.conditions))
    return tuple(pairs)


_NOT_MODELS = {
    "mmproj": "the image or audio part of a model (mmproj)",
    "adapter": "an adapter (LoRA) of a model",
    "vocab": "a vocabulary without a model",
    "imatrix": "an importance matrix",
}
"""What `general.type` of a GGUF file may say beside `model`."""
_NOT_CAUSAL: Mapping[str, str] = {
    **dict.fromkeys(
        ("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
         "gemma-embedding", "llama-embed", "t5encoder"),
        "an encoder, which makes embeddings of texts",
    ),
    "t5": "an encoder with a decoder",
    "wavtokenizer-dec": "a part of a model of speech",
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), "a diffusion model, which does not write in order"),
}  # fmt: skip
"""Architectures of llama.cpp (`LLM_ARCH_NAMES` in src/llama-arch.cpp) that do not write a text token by token."""


def other_than_language_model(metadata: Metadata) -> str | None:
    """What a GGUF file holds instead of a causal language model; None for one (draft models are ones, too)."""
    kind = "mmproj" if metadata.architecture == "clip" else metadata.text("general.type")
    if kind in _NOT_MODELS:
        return _NOT_MODELS[kind]
    if (other := _NOT_CAUSAL.get(metadata.architecture or "")) is not None:
        return other
    if metadata.flag(".attention.causal") is False:
        return "a model without causal attention"
    if metadata.integer(".pooling_type"):
        return "a model of embeddings or of rankings"
    return None


def _refuse_other_kinds(arm: Arm, models: Mapping[str, ModelFile], read: dict[str, Metadata]) -> None:
    """Raise `ModelError` for files that are not language models, and for drafts in a place that is not theirs.

    `read` keeps what headers said: hundreds of arms share a few models.
    """
    from specmeter.models.compatibility import METHOD_BY_ARCHITECTURE
    from specmeter.models.split import read_parts

    for key, name in (("targets", arm.target), ("drafts", arm.draft)):
        if name is None:
            continue
        if name not in read:
            read[name] = Metadata(read_parts(Path(models[name].path))[0])
        metadata = read[name]
        other = other_than_language_model(metadata)
        if other is not None:
            raise ModelError(
                f"{key}.{name}: {models[name].reference} is {other}, not a causal language model",
                fix="name the GGUF file of a model that writes text token by token",
            )
        method = METHOD_BY_ARCHITECTURE.get(metadata.architecture or "")
        if method is not None and key == "targets":
            raise ModelError(
                f"targets.{name}: {models[name].reference} is a draft model ({metadata.architecture}), not a target",
                fix=f"name the model that it was made for as the target and this one as its draft, by method {method}",
            )
        if method is not None and method not in arm.methods:
            raise ModelError(
                f"drafts.{name}: {models[name].reference} drafts by {method} alone, not by {'+'.join(arm.methods)}",
                fix=f"use method {method} (`--method {method}`, or `method: {method}` in the arm)",
            )


def _shown(model: ModelFile) -> str:
    """As a command names it from any folder."""
    return quoted(model.reference if model.reference.startswith(("hf:", "bench:")) else model.path)


def memory_free_bytes() -> int:
    """Memory that models could take on this machine now, its GPUs included."""
    from specmeter.host.gpu import read_gpus
    from specmeter.host.machine import memory_available_bytes

    return memory_available_bytes() + sum(gpu.memory_bytes or 0 for gpu in read_gpus())


def _memory(arms: Sequence[Arm], models: Mapping[str, ModelFile]) -> None:
    from specmeter.models.facts import read_facts

    available = memory_free_bytes()
    kv: dict[str, int] = {}
    for arm in arms:
        needed = 0
        for name in (arm.target, arm.draft):
            if name is None:
                continue
            if name not in kv:
                memory = read_facts(Path(models[name].path)).memory
                kv[name] = memory.kv_bytes(arm.engine.context) if memory else 0
            needed += models[name].size_bytes + kv[name]
        if needed > available:
            raise UsageError(
                f"{arm.id}: weights and KV cache need {size(needed)}, {size(available)} are free here",
                fix="use a smaller model or quantization, lower engine.context, or close other programs",
            )
