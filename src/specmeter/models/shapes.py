"""Models with random weights in the shapes of real ones: their costs are real, their text is noise.

Scaling keeps everything that a layer costs (width, heads, experts, experts per token, formats) and the whole output
matrix with the real vocabulary; only the number of layers shrinks, to whole groups if layers of several kinds take
turns. So the time of a step is that of the output matrix plus a share of the layers.

Dimensions are published ones. The tokenizer is that of a bench core, padded with unused tokens to the real size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod, sqrt

from specmeter.errors import ModelError
from specmeter.models.gguf import TYPE_BY_NAME, Header, NumberArray, StringArray, Value
from specmeter.models.gguf_writer import TensorSource
from specmeter.models.weights import FILE_TYPE, RandomBits, random_chunks

SHAPES_VERSION = 1
"""Version of everything here that decides a byte of the result; part of the cache key."""

_UNUSED_TOKEN = 5


@dataclass(frozen=True)
class DeltaNetShape:
    """Gated DeltaNet: which layers have it and how large it is."""

    key_heads: int
    value_heads: int
    head: int = 128
    convolution: int = 4
    period: int = 4
    """Every layer but each `period`-th one is linear."""


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model."""

    architecture: str
    """llama.cpp's name."""
    layers: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head: int
    """Elements of one head."""
    width: int
    """Neurons per layer, or per expert."""
    experts: int = 0
    experts_used: int = 0
    shared_width: int = 0
    """Neurons of the expert that every token passes through."""
    tied: bool = False
    """The output matrix is the embedding."""
    group: int = 1
    """Layers of different kinds come in groups of this many."""
    linear: DeltaNetShape | None = None

    def scaled(self, scale: float) -> Shape:
        """The same with `scale` (0 to 1] of the layers, in whole groups, at least one."""
        return replace(self, layers=max(1, round(self.layers / self.group * scale)) * self.group)


def _qwen35(layers: int, hidden: int, width: int, heads: int, kv_heads: int, values: int, tied: bool) -> Shape:
    return Shape(
        "qwen35", layers, hidden, 248_320, heads, kv_heads, 256, width, tied=tied, group=4,
        linear=DeltaNetShape(key_heads=16, value_heads=values),
    )  # fmt: skip


SHAPES = {
    "qwen3.5-35b-a3b": Shape(
        "qwen35moe", 40, 2048, 248_320, 16, 2, 256, 512, 256, 8, shared_width=512, group=4,
        linear=DeltaNetShape(key_heads=16, value_heads=32),
    ),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 151_936, 32, 4, 128, 768, 128, 8),
    "mixtral-8x7b": Shape("llama", 32, 4096, 32_000, 32, 8, 128, 14_336, 8, 2),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 201_088, 64, 8, 64, 2880, 32, 4, group=2),
    "olmoe-1b-7b": Shape("olmoe", 16, 2048, 50_304, 16, 16, 128, 1024, 64, 8),
    "qwen3.5-0.8b": _qwen35(24, 1024, 3584, 8, 2, 16, tied=True),
    "qwen3.5-2b": _qwen35(24, 2048, 6144, 8, 2, 16, tied=True),
    "qwen3.5-4b": _qwen35(32, 2560, 9216, 16, 4, 32, tied=True),
    "qwen3.5-9b": _qwen35(32, 4096, 12_288, 16, 4, 32, tied=False),
}  # fmt: skip
"""Name after `bench:shape/` -> dimensions at full scale."""


def shape_tensors(shape: Shape, kind: str) -> list[TensorSource]:
    """All tensors in the order of the file; nothing is made yet.

    Matrices are in number format `kind`, or in Q8_0 where its blocks do not fit; MXFP4 is for experts alone, the rest
    is Q8_0, as in llama.cpp's own MXFP4 files. Raises `ModelError` for MXFP4 without experts.
    """
    if kind == "MXFP4" and not shape.experts:
        raise ModelError("MXFP4 is only for experts, and this shape has none", fix="use quant=Q8_0 or quant=Q4_K")
    parts = [
        _Part("token_embd.weight", (shape.vocabulary, shape.hidden)),
        _Part("output_norm.weight", (shape.hidden,), 1.0),
    ]
    if not shape.tied:
        parts.append(_Part("output.weight", (shape.vocabulary, shape.hidden)))
    for layer in range(shape.layers):
        linear = shape.linear
        attention = _linear_attention if linear and (layer + 1) % linear.period else _full_attention
        feed_forward = _experts if shape.experts else _dense
        parts += [replace(part, name=f"blk.{layer}.{part.name}") for part in (*attention(shape), *feed_forward(shape))]
    return [_source(part, kind) for part in parts]


@dataclass(frozen=True)
class _Part:
    """A tensor by its contents."""

    name: str
    shape: tuple[int, ...]
    """Slowest dimension first."""
    value: float | None = None
    """F32 with this one value everywhere; None: random."""
    precise: bool = False
    """Random in F32, whatever the model's format."""


def _source(part: _Part, kind: str) -> TensorSource:
    if part.value is not None:
        constant = struct.pack("<f", part.value) * prod(part.shape)
        return TensorSource(part.name, part.shape, "F32", lambda: [constant])
    if part.precise:
        kind = "F32"
    elif part.shape[-1] % TYPE_BY_NAME[kind.lower()].block or (kind == "MXFP4" and "_exps" not in part.name):
        kind = "Q8_0"
    inputs = part.shape[-1]
    bits = RandomBits(f"shape {SHAPES_VERSION}:{part.name}")
    # A standard deviation of 1 / sqrt(inputs) keeps the size of what is multiplied: nothing grows to infinity.
    chunks = partial(random_chunks, kind, prod(part.shape[:-1]), inputs, 1 / sqrt(inputs), bits)
    return TensorSource(part.name, part.shape, kind, chunks)


def _full_attention(shape: Shape) -> Iterator[_Part]:
    """Grouped-query attention with what the architecture adds: norms of heads, an output gate, biases and sinks."""
    architecture, hidden = shape.architecture, shape.hidden
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    yield _Part("attn_norm.weight", (hidden,), 1.0)
    # Qwen3.5 computes an output gate together with the queries.
    yield _Part("attn_q.weight", (queries * (2 if shape.linear else 1), hidden))
    yield _Part("attn_k.weight", (keys, hidden))
    yield _Part("attn_v.weight", (keys, hidden))
    yield _Part("attn_output.weight", (hidden, queries))
    if architecture == "gpt-oss":
        for name, size in (("q", queries), ("k", keys), ("v", keys), ("output", hidden)):
            yield _Part(f"attn_{name}.bias", (size,), 0.0)
        yield _Part("attn_sinks.weight", (shape.heads,), 0.0)
    elif architecture != "llama":
        # OLMoE normalizes all heads at once, the Qwen models each one.
        whole = architecture == "olmoe"
        yield _Part("attn_q_norm.weight", (queries if whole else shape.head,), 1.0)
        yield _Part("attn_k_norm.weight", (keys if whole else shape.head,), 1.0)


def _linear_attention(shape: Shape) -> Iterator[_Part]:
    """Gated DeltaNet."""
    linear = shape.linear
    assert linear
    hidden, heads = shape.hidden, linear.value_heads
    keys, values = linear.key_heads * linear.head, heads * linear.head
    yield _Part("attn_norm.weight", (hidden,), 1.0)
    yield _Part("attn_qkv.weight", (2 * keys + values, hidden))
    yield _Part("attn_gate.weight", (values, hidden))
    yield _Part("ssm_conv1d.weight", (2 * keys + values, linear.convolution), precise=True)
    yield _Part("ssm_dt.bias", (heads,), 0.0)
    yield _Part("ssm_a", (heads,), -1.0)
    yield _Part("ssm_beta.weight", (heads, hidden))
    yield _Part("ssm_alpha.weight", (heads, hidden))
    yield _Part("ssm_norm.weight", (linear.head,), 1.0)
    yield _Part("ssm_out.weight", (hidden, values))


def _norm_before_feed_forward(shape: Shape) -> _Part:
    renamed = shape.linear or shape.architecture == "gpt-oss"
    return _Part("post_attention_norm.weight" if renamed else "ffn_norm.weight", (shape.hidden,), 1.0)


def _dense(shape: Shape) -> Iterator[_Part]:
    yield _norm_before_feed_forward(shape)
    yield from _gated("", shape.hidden, shape.width)


def _experts(shape: Shape) -> Iterator[_Part]:
    hidden, width, experts = shape.hidden, shape.width, shape.experts
    yield _norm_before_feed_forward(shape)
    yield _Part("ffn_gate_inp.weight", (experts, hidden), precise=True)
    yield from _gated("_exps", hidden, width, experts)
    if shape.shared_width:
        yield _Part("ffn_gate_inp_shexp.weight", (hidden,), precise=True)
        yield from _gated("_shexp", hidden, shape.shared_width)
    if shape.architecture == "gpt-oss":
        yield _Part("ffn_gate_inp.bias", (experts,), 0.0)
        for name, size in (("gate", width), ("up", width), ("down", hidden)):
            yield _Part(f"ffn_{name}_exps.bias", (experts, size), 0.0)


def _gated(suffix: str, hidden: int, width: int, *experts: int) -> Iterator[_Part]:
    """The three matrices of a gated feed-forward network."""
    yield _Part(f"ffn_gate{suffix}.weight", (*experts, width, hidden))
    yield _Part(f"ffn_up{suffix}.weight", (*experts, width, hidden))
    yield _Part(f"ffn_down{suffix}.weight", (*experts, hidden, width))


def shape_metadata(shape: Shape, name: str, kind: str, tokenizer: Header) -> dict[str, Value | Sequence[str]]:
    """The model's metadata, with the tokenizer of another model's header padded to the shape's vocabulary."""
    values: dict[str, Value] = {
        "block_count": shape.layers,
        "context_length": 32_768,
        "embedding_length": shape.hidden,
        "vocab_size": shape.vocabulary,
        "feed_forward_length": shape.width,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "rope.dimension_count": shape.head,
    }
    if shape.experts:
        values |= {
            "expert_count": shape.experts,
            "expert_used_count": shape.experts_used,
            "expert_feed_forward_length": shape.width,
        }
    if shape.shared_width:
        values["expert_shared_feed_forward_length"] = shape.shared_width
    if shape.architecture == "gpt-oss":
        values["attention.sliding_window"] = 128
    if linear := shape.linear:
        values |= {
            "full_attention_interval": linear.period,
            "rope.dimension_count": shape.head // 4,
            "rope.dimension_sections": NumberArray("i", struct.pack("<4i", 11, 11, 10, 0)),
            "ssm.conv_kernel": linear.convolution,
            "ssm.state_size": linear.head,
            "ssm.group_count": linear.key_heads,
            "ssm.time_step_rank": linear.value_heads,
            "ssm.inner_size": linear.value_heads * linear.head,
        }
    full = SHAPES[name].layers
    return {
        "general.architecture": shape.architecture,
        "general.name": f"specmeter shape {name} ({shape.layers} of {full} layers, {kind})",
        "general.description": (
            f"Timing only: random weights in the shape of {name}, {shape.layers} of its {full} layers. "
            "Its text means nothing, and neither does any acceptance rate measured on it."
        ),
        "general.file_type": FILE_TYPE[kind],
        "general.quantization_version": 2,
        "specmeter.shape": name,
        "specmeter.shape_layers": full,
        "specmeter.timing_only": True,
        **{f"{shape.architecture}.{key}": value for key, value in values.items()},
        **_padded_tokenizer(tokenizer, shape.vocabulary),
    }


def _padded_tokenizer(source: Header, vocabulary: int) -> dict[str, Value | Sequence[str]]:
    fields: dict[str, Value | Sequence[str]] = {
        key: value for key, value in source.metadata.items() if key.startswith("tokenizer.")
    }
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    assert isinstance(tokens, StringArray)
    assert isinstance(types, NumberArray)
    missing = vocabulary - len(tokens)
    fields["tokenizer.ggml.tokens"] = [token.decode() for token in tokens] + [f"[unused{i}]" for i in range(missing)]
    fields["tokenizer.ggml.token_type"] = NumberArray("i", types.raw + struct.pack("<i", _UNUSED_TOKEN) * missing)
    return fields
