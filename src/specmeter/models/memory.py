"""What a model keeps per sequence while it generates: KV cache and recurrent state.

Which layers attend to everything, to a sliding window, or carry a recurrent state instead is written in the file for
some architectures and in llama.cpp's source for others; the tables below repeat the latter."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from specmeter.models.gguf import TYPE_BY_NAME, Metadata
from specmeter.record import KvType, Record

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_HYBRID_BY_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"})
"""Every n-th layer attends, the others are recurrent."""
_HYBRID_BY_KV_HEADS = frozenset(
    {
        "jamba",
        "plamo2",
        "granitehybrid",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "kimi-linear",
        "kimi-k3",
        "bailingmoe3",
        "glm5-next",
    }
)
"""Layers without KV heads are recurrent."""
_HYBRID_EVERYWHERE = frozenset({"falcon-h1"})
"""Every layer does both."""
_ROLLS_BACK = frozenset(
    {
        "kimi-k3",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
        "deepseek4",
        "glm5-next",
        "nemotron_h",
        "nemotron_h_moe",
        "lfm2",
        "lfm2moe",
        "bailingmoe3",
    }
)
"""llm_arch_supports_rs_rollback in llama.cpp's src/llama-arch.cpp (0c1e57098, October 2026)."""
_SLOT_METHODS = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""need_n_rs_seq in llama.cpp's common/common.h (0c1e57098)."""
_UNKNOWN_CACHE = frozenset({"deepseek4"})
"""Compressed caches whose size does not follow from heads and layers."""

_SLIDING: dict[str, tuple[int, bool]] = {
    "exaone-moe": (4, False), "exaone4": (4, False), "gemma2": (2, False), "gemma3": (6, False), "gemma3n": (5, False),
    "olmo2": (4, False), "plamo3": (8, False), "llama4": (4, False), "muse-glimmer": (4, False), "gpt-oss": (2, False),
    "cohere2moe": (4, True), "afmoe": (4, False), "cohere2": (4, False), "laguna": (4, True), "mellum": (4, False),
    "smallthinker": (4, True), "gemma-embedding": (6, False),
}  # fmt: skip
"""Architecture -> (n, whether the full layer is the first of each n layers rather than the last)."""
_LLAMA4_WINDOW = 8192
_GEMMA3N_KV_LAYERS = 20
_F32_BYTES = 4
DEFAULT_GAMMA = 3
"""llama.cpp's `--spec-draft-n-max` where nothing is said."""


class Memory(Record):
    """State per sequence; elements are counted per token, all layers of a kind together."""

    kind: Literal["attention", "hybrid", "recurrent"]
    full_layers: int
    """Layers whose KV cache holds every token."""
    k_elements: int
    v_elements: int
    """0 where V is a view of K (multi-head latent attention)."""
    sliding_layers: int = 0
    """Layers whose KV cache holds the last `window` tokens only."""
    sliding_k_elements: int = 0
    sliding_v_elements: int = 0
    window: int | None = None
    recurrent_layers: int = 0
    recurrent_state_bytes: int | None = 0
    """Size of the state that is saved and restored as a whole, for one sequence; None when it is not known."""

    def bytes_per_token(self, k: KvType = "f16", v: KvType = "f16") -> int:
        """KV cache bytes for one more token, as long as it is within the window of the sliding layers."""
        return _kv_bytes(self.k_elements + self.sliding_k_elements, self.v_elements + self.sliding_v_elements, k, v)

    def kv_bytes(self, context: int, k: KvType = "f16", v: KvType = "f16", ubatch: int = 512) -> int:
        """KV cache bytes of one sequence with `context` tokens; sliding layers hold a window and a batch."""
        cells = context
        if self.window is not None:
            cells = min(context, -(-(self.window + ubatch) // 256) * 256)
        full = _kv_bytes(self.k_elements, self.v_elements, k, v)
        return full * context + _kv_bytes(self.sliding_k_elements, self.sliding_v_elements, k, v) * cells


def state_slots(architecture: str | None, methods: Collection[str], gamma: int | None) -> int:
    """How many further recurrent states llama.cpp keeps per sequence (n_rs_seq): one per draft token, for a rejection
    to go back to. 0: it saves the state before each verification, and after a rejection restores it and replays what
    was accepted. So it does with longer drafts of n-gram methods beside."""
    slots = architecture in _ROLLS_BACK and not _SLOT_METHODS.isdisjoint(methods)
    return (DEFAULT_GAMMA if gamma is None else gamma) if slots else 0


def _kv_bytes(k_elements: int, v_elements: int, k: KvType, v: KvType) -> int:
    return TYPE_BY_NAME[k].row_bytes(k_elements) + TYPE_BY_NAME[v].row_bytes(v_elements)


def read_memory(metadata: Metadata, layers: int) -> Memory | None:
    """The state of a model with `layers` layers; None when the file does not tell."""
    architecture = metadata.architecture
    heads = metadata.per_layer(".attention.head_count", layers)
    hidden = metadata.integer(".embedding_length")
    if architecture is None or heads is None or hidden is None or architecture in _UNKNOWN_CACHE:
        return None
    if metadata.integer(".attention.indexer.key_length") is not None:
        return None  # a further cache for the indexer
    kv_heads = metadata.per_layer(".attention.head_count_kv", layers) or heads
    recurrent = _recurrent_layers(metadata, architecture, layers, kv_heads)
    attending = [False] * layers if architecture in _RECURRENT else [not r for r in recurrent]
    if architecture in _HYBRID_EVERYWHERE:
        attending = [True] * layers
    shared = metadata.integer(".attention.shared_kv_layers") or 0
    with_cache = _GEMMA3N_KV_LAYERS if architecture == "gemma3n" else layers - shared
    attending = [attends and index < with_cache for index, attends in enumerate(attending)]

    window, sliding = _sliding_layers(metadata, architecture, layers)
    elements = _HeadSizes(metadata, hidden, heads)
    full = [i for i in range(layers) if attending[i] and not sliding[i] and kv_heads[i]]
    slid = [i for i in range(layers) if attending[i] and sliding[i] and kv_heads[i]]
    return Memory(
        kind="attention" if not any(recurrent) else "hybrid" if any(attending) else "recurrent",
        full_layers=len(full),
        k_elements=sum(kv_heads[i] for i in full) * elements.k,
        v_elements=sum(kv_heads[i] for i in full) * elements.v,
        sliding_layers=len(slid),
        sliding_k_elements=sum(kv_heads[i] for i in slid) * elements.k_sliding,
        sliding_v_elements=sum(kv_heads[i] for i in slid) * elements.v_sliding,
        window=window if slid else None,
        recurrent_layers=sum(recurrent),
        recurrent_state_bytes=_state_bytes(metadata, hidden, max(heads), sum(recurrent)),
    )


class _HeadSizes:
    """Elements per KV head and token."""

    def __init__(self, metadata: Metadata, hidden: int, heads: list[int]) -> None:
        by_default = hidden // max(heads[0], 1)
        self.k = _else(metadata.integer(".attention.key_length"), by_default)
        self.v = _else(metadata.integer(".attention.value_length"), by_default)
        self.k_sliding = _else(metadata.integer(".attention.key_length_swa"), self.k)
        self.v_sliding = _else(metadata.integer(".attention.value_length_swa"), self.v)
        if metadata.integer(".attention.key_length_mla"):
            self.v = self.v_sliding = 0  # V is a view of the compressed K


def _else(value: int | None, default: int) -> int:
    return default if value is None else value


def _recurrent_layers(metadata: Metadata, architecture: str, layers: int, kv_heads: list[int]) -> list[bool]:
    if architecture in _RECURRENT or architecture in _HYBRID_EVERYWHERE:
        return [True] * layers
    if architecture in _HYBRID_BY_KV_HEADS:
        recurrent = [heads == 0 for heads in kv_heads]
        if architecture.startswith("nemotron_h"):  # layers with a feed-forward network are neither
            ffn = metadata.per_layer(".feed_forward_length", layers) or [0] * layers
            recurrent = [r and not size for r, size in zip(recurrent, ffn, strict=True)]
        return recurrent
    if architecture in _HYBRID_BY_INTERVAL:
        listed = metadata.per_layer(".attention.recurrent_layers", layers)
        if listed is not None:
            return [bool(value) for value in listed]
        interval = metadata.integer(".full_attention_interval") or 4
        return [(index + 1) % interval != 0 for index in range(layers)]
    return [False] * layers


def _sliding_layers(metadata: Metadata, architecture: str, layers: int) -> tuple[int | None, list[bool]]:
    window = metadata.integer(".attention.sliding_window")
    if architecture == "llama4" and window != 0:
        window = _LLAMA4_WINDOW
    if not window:
        return None, [False] * layers
    if metadata.numbers(".attention.sliding_window_pattern") is not None:
        listed = metadata.per_layer(".attention.sliding_window_pattern", layers)
        return window, [bool(value) for value in listed or [0] * layers]
    if architecture not in _SLIDING:
        return None, [False] * layers  # llama.cpp ignores the window there
    every, full_first = _SLIDING[architecture]
    every = _else(metadata.integer(".attention.sliding_window_pattern"), every)
    if every == 0:
        return window, [True] * layers
    return window, [(i % every != 0) if full_first else (i % every < every - 1) for i in range(layers)]


def _state_bytes(metadata: Metadata, hidden: int, heads: int, layers: int) -> int | None:
    """Bytes of the convolution and recurrent states of `layers` recurrent layers."""
    if layers == 0:
        return 0
    elements = _state_elements(metadata, hidden, heads)
    return None if elements is None else _F32_BYTES * elements * layers


def _state_elements(metadata: Metadata, hidden: int, heads: int) -> int | None:
    conv = max((metadata.integer(".ssm.conv_kernel") or 0) - 1, 0)
    if head_size := metadata.integer(".wkv.head_size"):
        return hidden * (_else(metadata.integer(".token_shift_count"), 2) + head_size)
    if cache := metadata.integer(".shortconv.l_cache"):
        return hidden * (cache - 1)
    if head_size := metadata.integer(".kda.head_dim"):
        return heads * head_size * (3 * (conv or 3) + head_size)
    inner, state = metadata.integer(".ssm.inner_size"), metadata.integer(".ssm.state_size")
    if inner is None or state is None:
        return None
    groups = metadata.integer(".ssm.group_count") or 0
    return conv * (inner + 2 * groups * state) + state * inner
