"""Predicts the memory that llama.cpp's server will hold, from model headers.

Counted are weights, their repacked copies, caches, buffers and the vocabulary. On a processor llama.cpp copies
matrices of some formats into another order (`ggml_repack_get_optimal_repack_type` in ggml/src/ggml-cpu/repack.cpp).
The mapped file stays resident besides. Embedding tables are not multiplied, unless they are the output as well.

Sizes of buffers and vocabulary were measured on Qwen2.5-Coder 0.5B and 1.5B, SmolLM2-135M and Gemma-3-270M (x86-64,
AVX512): a compute buffer has room for three rows of the feed-forward network and five of the residual stream per token
of a batch, and for the attention mask.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from pathlib import Path

from specmeter.host.gpus import read_gpus
from specmeter.host.machine import read_cpu
from specmeter.models.facts import LOOKUP_TABLES, ModelFacts, describe
from specmeter.models.gguf import Header, Metadata, Tensor, read_parts
from specmeter.models.memory import state_slots
from specmeter.record import Arm, EngineSettings

PROCESS_BYTES = 42_000_000
"""Code and libraries of the server."""
_VOCABULARY_BYTES = 165
"""Of each token and each merge."""
_UBATCH = 512
_GPU_BYTES = 200_000_000
"""Taken for buffers where a GPU computes."""

_SETS: Mapping[str, tuple[tuple[frozenset[str], int], ...]] = {
    "Q4_0": ((frozenset({"AVX2"}), 8), (frozenset({"NEON", "DOTPROD"}), 4)),
    "Q4_K": ((frozenset({"AVX2"}), 8), (frozenset({"NEON", "DOTPROD"}), 8)),
    "Q2_K": ((frozenset({"AVX512"}), 8),),
    "IQ4_NL": ((frozenset({"AVX2"}), 8), (frozenset({"NEON", "DOTPROD"}), 4)),
    "Q8_0": ((frozenset({"NEON", "DOTPROD"}), 4),),
}
"""Format -> (instruction sets that are needed, what the number of rows is a multiple of)."""
_USUAL_SETS = {"x86_64": ("AVX2",), "amd64": ("AVX2",), "arm64": ("NEON", "DOTPROD"), "aarch64": ("NEON", "DOTPROD")}
"""Of machines that do not say which they have."""


class Resident:
    """Foresees memory on this machine; headers are read once."""

    def __init__(self) -> None:
        self._sets = frozenset(read_cpu()[1] or _USUAL_SETS.get(platform.machine().lower(), ()))
        self._gpu = bool(read_gpus())
        self._known: dict[Path, tuple[tuple[Header, ...], ModelFacts]] = {}

    def bytes_of(self, arm: Arm, target: Path, draft: Path | None) -> int:
        """Of a server with the arm's models and settings. Raises `ModelError` for a damaged file.

        Where a GPU takes the layers it is weights and caches alone, wherever they lie.
        """
        settings = arm.engine
        if self._gpu and settings.gpu_layers != 0:
            weights = sum(self._weights_and_cache(it, settings) for it in (target, draft) if it is not None)
            return _GPU_BYTES + weights + self._kept_states(arm, target)
        drafting = settings.model_copy(
            update={"kv_type_k": settings.draft_kv_type_k, "kv_type_v": settings.draft_kv_type_v}
        )
        total = PROCESS_BYTES + self._on_processor(target, settings) + self._kept_states(arm, target)
        return total + (0 if draft is None else self._on_processor(draft, drafting))

    def _read(self, path: Path) -> tuple[tuple[Header, ...], ModelFacts]:
        if path not in self._known:
            parts = read_parts(path)
            self._known[path] = parts, describe(parts)
        return self._known[path]

    def _weights_and_cache(self, path: Path, settings: EngineSettings) -> int:
        facts = self._read(path)[1]
        cache = 0
        if facts.memory is not None:
            cache = facts.memory.kv_bytes(
                settings.full_context,
                settings.kv_type_k or "f16",
                settings.kv_type_v or "f16",
                settings.ubatch or _UBATCH,
            )
            cache += (facts.memory.recurrent_state_bytes or 0) * settings.slots
        return facts.file_bytes + cache

    def _kept_states(self, arm: Arm, target: Path) -> int:
        """Recurrent states beside the one in use: a slot for each draft token, or a checkpoint."""
        facts = self._read(target)[1]
        each = 0 if facts.memory is None else facts.memory.recurrent_state_bytes or 0
        slots = state_slots(facts.architecture, arm.methods, arm.gamma)
        return each * arm.engine.slots * (slots or 1) if arm.speculates else 0

    def _on_processor(self, path: Path, settings: EngineSettings) -> int:
        parts, facts = self._read(path)
        # What is read instead of mapped is read into the repacked form at once.
        copies = 0 if settings.mmap is False else repacked_bytes(parts, self._sets)
        metadata = Metadata(parts[0])
        entries = (metadata.strings(f"tokenizer.ggml.{it}") for it in ("tokens", "merges"))
        vocabulary = _VOCABULARY_BYTES * sum(len(it) for it in entries if it is not None)
        return self._weights_and_cache(path, settings) + copies + vocabulary + _compute_bytes(facts, settings)


def repacked_bytes(parts: Collection[Header], sets: Collection[str]) -> int:
    """Bytes of the matrices that a processor with these instruction sets (llama.cpp's names) gets a second copy of."""
    tensors = [tensor for part in parts for tensor in part.tensors]
    tied = all(tensor.name != "output.weight" for tensor in tensors)
    return sum(it.bytes for it in tensors if _is_multiplied(it, tied=tied) and _is_repacked(it, frozenset(sets)))


def _is_multiplied(tensor: Tensor, *, tied: bool) -> bool:
    if tensor.name in LOOKUP_TABLES:
        return tied and tensor.name == "token_embd.weight"
    return len(tensor.shape) > 1


def _is_repacked(tensor: Tensor, sets: frozenset[str]) -> bool:
    return any(needed <= sets and tensor.shape[1] % rows == 0 for needed, rows in _SETS.get(tensor.type.name, ()))


def _compute_bytes(facts: ModelFacts, settings: EngineSettings) -> int:
    batch = min(settings.ubatch or _UBATCH, settings.full_context)
    widest = max(facts.ffn or 0, facts.experts_used * (facts.expert_ffn or 0))
    row = 4 * (3 * widest + 5 * (facts.hidden or 0)) + 2 * settings.full_context
    if settings.flash_attention == "off":
        row += 4 * (facts.heads or 0) * settings.full_context
    return batch * row
