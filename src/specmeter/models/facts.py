"""What a GGUF file says about its model: shape, size, vocabulary, and the bytes that decoding costs."""

from __future__ import annotations

from pathlib import Path

from specmeter.errors import ModelError
from specmeter.models.gguf_header import Header
from specmeter.models.kv_cache import Memory, read_memory
from specmeter.models.metadata import Metadata
from specmeter.models.split import read_parts
from specmeter.models.vocabulary import Vocabulary, read_vocabulary
from specmeter.models.weights import Weights, weigh
from specmeter.record import KvType, ModelHeader, Record

MAX_LAYERS = 512
MAX_EXPERTS = 1024
"""llama.cpp ends the whole process on a model with more."""


class ModelFacts(Record):
    """Facts of one model; None is what the file does not say."""

    files: tuple[str, ...]
    """Names of the model's files: more than one when it is split."""
    file_bytes: int
    """All files together."""
    architecture: str | None
    """llama.cpp's name for the kind of network."""
    name: str | None
    layers: int | None
    """Transformer (or recurrent) layers, without draft heads."""
    draft_head_layers: int = 0
    """Layers for multi-token prediction (MTP) within the file."""
    hidden: int | None
    """Width of the residual stream."""
    heads: int | None
    """Attention heads; the most of any layer."""
    kv_heads: int | None
    head_dim_k: int | None
    head_dim_v: int | None
    ffn: int | None
    """Width of the dense feed-forward networks; the most of any layer."""
    experts: int
    """Experts per layer to choose from; 0 for dense models."""
    experts_used: int
    """Experts chosen for a token; the most of any layer."""
    experts_shared: int
    """Experts that every token uses."""
    expert_ffn: int | None
    """Width of one expert."""
    context_length: int | None
    """Longest context the model was trained for, in tokens."""
    vocabulary: Vocabulary
    weights: Weights
    memory: Memory | None

    @property
    def is_recurrent(self) -> bool:
        """Whether it carries a recurrent state, so that rejected tokens cannot simply be forgotten."""
        return self.memory is not None and self.memory.kind != "attention"

    def kv_bytes_per_token(self, k: KvType = "f16", v: KvType = "f16") -> int | None:
        """KV cache bytes for one more token, all attention layers; None when the layout is not known."""
        return None if self.memory is None else self.memory.bytes_per_token(k, v)


def read_facts(path: Path) -> ModelFacts:
    """Facts of the model whose (first) file is `path`.

    Raises `ModelError` when a file is missing, damaged or truncated, or claims what llama.cpp cannot load.
    """
    return describe(read_parts(path))


def read_header(path: Path) -> ModelHeader:
    """The same as far as judging a measurement needs it. Raises `ModelError` like `read_facts`."""
    facts = read_facts(path)
    return ModelHeader(
        architecture=facts.architecture,
        layers=facts.layers,
        experts=facts.experts,
        experts_used=facts.experts_used,
        recurrent=facts.is_recurrent,
        parameters=facts.weights.parameters,
        bytes_per_token=facts.weights.bytes_per_token,
        kv_bytes_per_token=facts.kv_bytes_per_token(),
        active_parameters=facts.weights.active_parameters,
        quantization=facts.weights.quantization[0].type if facts.weights.quantization else "",
    )


def describe(parts: tuple[Header, ...]) -> ModelFacts:
    """Facts of the model with these headers; the first one holds the metadata."""
    metadata = Metadata(parts[0])
    all_layers = _limited(metadata, ".block_count", MAX_LAYERS)
    draft_heads = min(metadata.integer(".nextn_predict_layers") or 0, all_layers or 0)
    layers = all_layers - draft_heads if all_layers else None
    experts = _limited(metadata, ".expert_count", MAX_EXPERTS) or 0
    used = metadata.per_layer(".expert_used_count", layers) if layers and experts else None
    used = [min(count, experts) for count in used] if used else None
    shared = metadata.integer(".expert_shared_count")
    if shared is None:
        shared = 1 if metadata.integer(".expert_shared_feed_forward_length") else 0

    def most(key: str) -> int | None:
        return max(metadata.per_layer(key, layers) or [], default=None) if layers else None

    hidden, heads, ffn = (
        metadata.integer(".embedding_length"),
        most(".attention.head_count"),
        most(".feed_forward_length"),
    )
    head_dim = hidden // heads if hidden and heads else None
    head_dim_k, head_dim_v = (metadata.integer(f".attention.{which}_length") for which in ("key", "value"))
    kv_heads = most(".attention.head_count_kv")
    return ModelFacts(
        files=tuple(part.path.name for part in parts),
        file_bytes=sum(part.file_bytes for part in parts),
        architecture=metadata.architecture,
        name=metadata.text("general.name"),
        layers=layers,
        draft_head_layers=draft_heads,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim_k=head_dim if head_dim_k is None else head_dim_k,
        head_dim_v=head_dim if head_dim_v is None else head_dim_v,
        ffn=ffn,
        experts=experts,
        experts_used=max(used, default=0) if used else 0,
        experts_shared=shared if experts else 0,
        expert_ffn=(most(".expert_feed_forward_length") or ffn) if experts else None,
        context_length=metadata.integer(".context_length"),
        vocabulary=read_vocabulary(metadata),
        weights=weigh((tensor for part in parts for tensor in part.tensors), layers, experts, used),
        memory=read_memory(metadata, layers) if layers else None,
    )


def _limited(metadata: Metadata, key: str, limit: int) -> int | None:
    value = metadata.integer(key)
    if value is not None and value > limit:
        raise ModelError(
            f"{metadata.header.path}: {key.removeprefix('.')} is {value} (llama.cpp allows {limit})",
            fix="the file is damaged or made for another program; use another one",
        )
    return value
