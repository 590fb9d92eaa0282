"""References to bench models, `bench:NAME[?key=value&...]`, and the files they stand for.

- `bench:dense`, `bench:draft-small`, ...: a trained core as it is shipped; with `quant`, converted.
- `bench:dense?size=2GB&quant=Q8_0`: a core inflated to a size (`inflate`); `layers` fixes the depth.
- `bench:dense-400m`, ...: named sizes.
- `bench:shape/qwen3-30b-a3b?scale=0.05&quant=Q8_0`: random weights in the shape of a real model (`SHAPES`): for timing
  only.

Files are made on first use and kept in the cache under a name that depends on everything that decides their bytes.
Cores are GGUF files in `cores/`. `cores.json` says of each what it is for, how it was trained, and the checksum of its
file; how they were made is told in `docs/bench-models.md`.

Models with random weights in the shapes of real ones: what they cost is true, what they say is noise.

Scaling keeps everything that a layer costs (width, heads, experts, experts per token, formats) and the whole output
matrix with the real vocabulary; only the number of layers shrinks, to whole groups where layers of several kinds take
turns. So the time of a step is that of the output matrix plus a share of the layers.

Dimensions are those of the published configurations; the tensors are those that llama.cpp reads for each architecture.
The tokenizer is that of a bench core, its vocabulary padded with unused tokens to the real size.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from math import prod, sqrt
from pathlib import Path
from urllib.parse import parse_qsl

from specmeter.errors import ModelError
from specmeter.files import cache_dir, create_once, file_sha256
from specmeter.models import inflate
from specmeter.models.gguf import TYPE_BY_NAME, Header, NumberArray, StringArray, Value, read_header
from specmeter.models.inflate import (
    CONVERTIBLE,
    FILE_TYPE,
    MIXED,
    RANDOM_ONLY,
    Fields,
    RandomBits,
    TensorSource,
    file_bytes,
    random_chunks,
    write_gguf,
)

SHAPES_VERSION = 1
"""Version of everything here that decides a byte of the result; part of the cache key."""

_TIMING_ONLY = "specmeter.timing_only"
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


def is_timing_only(path: str | Path) -> bool:
    """Whether a model file says that its weights are random; raises `ModelError` when it is not a usable GGUF file."""
    return read_header(Path(path)).metadata.get(_TIMING_ONLY) is True


def shape_tensors(shape: Shape, kind: str) -> list[TensorSource]:
    """All tensors in the order of the file; nothing is made yet.

    Matrices are in number format `kind`, or in Q8_0 where its blocks do not fit; MXFP4 is for experts alone, the rest
    is Q8_0, as in llama.cpp's own MXFP4 files. Raises `ModelError` for MXFP4 without experts.
    """
    if kind == "MXFP4" and not shape.experts:
        raise ModelError("MXFP4 is a format for experts, and this shape has none", fix="use quant=Q8_0 or quant=Q4_K")
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
        _TIMING_ONLY: True,
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


PREFIX = "bench:"

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)

_PRESETS = {
    f"{core}-{megabytes}m": (core, megabytes * 10**6, "Q8_0")
    for core in ("dense", "moe")
    for megabytes in (100, 200, 400, 900)
}
"""Name -> (core, size in bytes, format). Dense and MoE of one number have the same total size."""

_FOLDER = Path(__file__).parent / "cores"


@dataclass(frozen=True)
class BenchSpec:
    """A bench model that is asked for; made by `parse`, which has checked it."""

    name: str
    """As in the reference: a core, a preset, or `shape/NAME`."""
    core: str
    """Core whose weights, or for a shape whose tokenizer, are used."""
    quant: str
    """Number format of the matrices."""
    size_bytes: int | None = None
    """Wanted size of the file; None: the core's own dimensions, or those of the shape."""
    layers: int | None = None
    """Wanted number of layers; None: chosen by the size."""
    shape: str | None = None
    """Real model whose dimensions are copied."""
    scale: float = 1.0
    """Share of a shape's layers that is kept."""

    @property
    def timing_only(self) -> bool:
        """Random weights: refused as a source of acceptance."""
        return self.shape is not None


@dataclass(frozen=True)
class BenchModel:
    """What a bench model is or will be, known without building it."""

    reference: str
    path: Path
    """Where the file is or will be."""
    size_bytes: int
    parameters: int
    architecture: str
    layers: int
    core_layers: int
    """Layers that are trained (0 for a shape)."""
    feed_forward: int
    """Neurons per layer, or per expert."""
    core_feed_forward: int
    """Neurons that are trained (0 for a shape)."""
    experts: int
    experts_used: int
    quant: str
    timing_only: bool
    in_place: bool
    """The file is part of the package: nothing is built."""


def names() -> list[str]:
    """All names that can follow `bench:`, cores first."""
    return [*shipped(), *_PRESETS, *(f"shape/{name}" for name in SHAPES)]


def parse(reference: str) -> BenchSpec:
    """The bench model that `reference` asks for.

    Raises `ModelError` for an unknown name, key or value, with near names.
    """
    if not reference.startswith(PREFIX):
        raise ModelError(f"{reference!r} is not a bench model", fix=f"write {PREFIX}NAME, for example bench:dense-200m")
    name, _, query = reference.removeprefix(PREFIX).partition("?")
    values = _query(reference, query)
    if name.startswith("shape/"):
        return _parse_shape(reference, name, values)
    preset = _PRESETS.get(name)
    core = preset[0] if preset else name
    if core not in shipped():
        raise _unknown(f"bench model {name!r} in {reference!r}", name, names())
    _check_keys(reference, values, ("quant",) if preset else ("size", "quant", "layers"))
    own = shipped()[core].quantization
    spec = BenchSpec(name=name, core=core, quant=own)
    if preset:
        spec = replace(spec, size_bytes=preset[1], quant=preset[2])
    if "size" in values:
        spec = replace(spec, size_bytes=_size(reference, values["size"]))
    if "quant" in values:
        spec = replace(spec, quant=_quant(reference, values["quant"], (*CONVERTIBLE, *MIXED)))
    if "layers" in values:
        spec = replace(spec, layers=_integer(reference, "layers", values["layers"], inflate.MAX_LAYERS))
    return spec


def _parse_shape(reference: str, name: str, values: dict[str, str]) -> BenchSpec:
    shape = name.removeprefix("shape/")
    if shape not in SHAPES:
        raise _unknown(f"shape {shape!r} in {reference!r}", shape, list(SHAPES))
    _check_keys(reference, values, ("scale", "quant"))
    allowed = (*CONVERTIBLE, *RANDOM_ONLY)
    return BenchSpec(
        name=name,
        core="dense",
        shape=shape,
        scale=_scale(reference, values.get("scale", "1")),
        quant=_quant(reference, values.get("quant", "Q8_0"), allowed),
    )


def _query(reference: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ModelError(
            f"{reference!r}: {error}", fix="write parameters as ?key=value&key=value, for example ?size=2GB&quant=Q8_0"
        ) from error
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ModelError(f"{reference!r}: a parameter is given twice", fix="give each parameter once")
    return values


def _unknown(what: str, given: str, known: list[str]) -> ModelError:
    near = get_close_matches(given, known)
    if near:
        return ModelError(f"unknown {what}", fix=f"did you mean {' or '.join(near)}?")
    return ModelError(f"unknown {what}", fix=f"use one of: {', '.join(known)}")


def _check_keys(reference: str, values: dict[str, str], allowed: tuple[str, ...]) -> None:
    for key in values:
        if key not in allowed:
            raise _unknown(f"parameter {key!r} in {reference!r}", key, list(allowed))


def _size(reference: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2].lower() not in _UNITS or float(match[1]) == 0:
        raise ModelError(
            f"size={text!r} in {reference!r} is not a size", fix="write for example size=400MB or size=2GB"
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _quant(reference: str, text: str, allowed: tuple[str, ...]) -> str:
    if text.upper() not in allowed:
        raise _unknown(f"number format quant={text!r} in {reference!r}", text.upper(), list(allowed))
    return text.upper()


def _integer(reference: str, key: str, text: str, largest: int) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= largest:
        raise ModelError(
            f"{key}={text!r} in {reference!r} is out of range", fix=f"use a whole number from 1 to {largest}"
        )
    return int(text)


def _scale(reference: str, text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise ModelError(f"scale={text!r} in {reference!r} is out of range", fix="use a number above 0 and up to 1")
    return scale


def describe(spec: BenchSpec) -> BenchModel:
    """What `build` would make, without making it; sizes are exact."""
    return _prepare(spec)[0]


def build(spec: BenchSpec, *, progress: Callable[[int, int], None] | None = None) -> Path:
    """The file of a bench model, made first if it is not in the cache.

    `progress(done, total)` receives the bytes written. Raises `ModelError` when the disk cannot hold it.
    """
    plan, fields, tensors = _prepare(spec)
    if plan.in_place:
        return plan.path
    made = partial(write_gguf, metadata=fields, tensors=tensors, progress=progress)
    return create_once(plan.path, plan.size_bytes, made)


def reference_of(spec: BenchSpec) -> str:
    """The shortest reference that `parse` turns into `spec`."""
    plain = parse(PREFIX + spec.name)
    values = {
        "size": spec.size_bytes if spec.size_bytes != plain.size_bytes else None,
        "layers": spec.layers,
        "scale": spec.scale if spec.scale != 1 else None,
        "quant": spec.quant if spec.quant != plain.quant else None,
    }
    query = "&".join(f"{key}={value}" for key, value in values.items() if value is not None)
    return f"{PREFIX}{spec.name}{'?' if query else ''}{query}"


def _prepare(spec: BenchSpec) -> tuple[BenchModel, Fields, list[TensorSource]]:
    core_path = shipped()[spec.core].path
    core_sha256 = file_sha256(core_path)
    core = inflate.CoreFile.read(core_path)
    if spec.shape:
        shape = SHAPES[spec.shape].scaled(spec.scale)
        tensors = shape_tensors(shape, spec.quant)
        fields: Fields = shape_metadata(shape, spec.shape, spec.quant, core.header)
        own = (shape.layers, 0, shape.width, 0, shape.experts, shape.experts_used or 1)
        architecture, version = shape.architecture, SHAPES_VERSION
    else:
        recipe = inflate.Recipe(spec.layers or core.layers, core.width, spec.quant)
        if spec.size_bytes:
            recipe = inflate.fit(core, spec.quant, spec.size_bytes, spec.layers)
        tensors = inflate.inflated(core, recipe)
        fields = inflate.metadata(core, recipe, core_sha256)
        experts = core.number("expert_count") or 0
        own = (recipe.layers, core.layers, recipe.width, core.width, experts, core.experts_used)
        architecture, version = core.architecture, inflate.RECIPE
    is_core = not spec.shape and own[0] == own[1] and own[2] == own[3] and spec.quant == core.kind
    key = [version, core_sha256, architecture, own, spec.quant, spec.shape, spec.scale]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    file_name = f"{spec.name.replace('/', '-')}-{spec.quant}-{digest}.gguf"
    layers, core_layers, width, core_width, experts, experts_used = own
    plan = BenchModel(
        reference=reference_of(spec),
        path=core_path if is_core else cache_dir() / "models" / file_name,
        size_bytes=core.header.file_bytes if is_core else file_bytes(fields, tensors),
        parameters=sum(prod(tensor.shape) for tensor in tensors),
        architecture=architecture,
        layers=layers,
        core_layers=core_layers,
        feed_forward=width,
        core_feed_forward=core_width,
        experts=experts,
        experts_used=experts_used,
        quant=spec.quant,
        timing_only=spec.timing_only,
        in_place=is_core,
    )
    return plan, fields, tensors


@dataclass(frozen=True)
class Core:
    """One shipped core, as its manifest entry describes it."""

    name: str
    file: str
    sha256: str
    architecture: str
    parameters: int
    quantization: str
    role: str
    training_seed: int
    training_tokens: int

    @property
    def path(self) -> Path:
        """Where the GGUF file lies."""
        return _FOLDER / self.file

    def is_intact(self) -> bool:
        """True if the file is, byte for byte, the one that the manifest speaks of."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256


@cache
def shipped() -> dict[str, Core]:
    """All cores by name, in the order of the manifest."""
    entries = json.loads((_FOLDER / "cores.json").read_text(encoding="utf-8"))["cores"]
    return {entry["name"]: Core(**entry) for entry in entries}
