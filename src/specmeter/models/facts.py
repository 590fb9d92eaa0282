"""What a GGUF file says about its model: shape, size, bytes that decoding reads, vocabulary (as in llama.cpp)."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from specmeter.errors import ModelError
from specmeter.models.gguf import Header, Metadata, StringArray, Tensor, read_parts
from specmeter.models.memory import Memory, read_memory
from specmeter.record import KvType, ModelHeader, Record, TwinOf

MAX_LAYERS = 512
MAX_EXPERTS = 1024
"""llama.cpp ends the whole process on a model with more."""

_LAYER = re.compile(r"^blk\.(\d+)\.")
_STACKED_EXPERTS = re.compile(r"^blk\.\d+\.ffn_\w*exps\.(?:weight|bias|scale)$")
_SINGLE_EXPERT = re.compile(r"^blk\.\d+\.ffn_(?:gate|up|down)\.\d+\.weight$")
"""Files of early 2024 keep each expert in a tensor of its own."""
LOOKUP_TABLES = frozenset({"token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight"})

VocabularyType = Literal["none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test"]

_TYPES: dict[str, VocabularyType] = {
    "none": "none", "no_vocab": "none", "llama": "spm", "bert": "wpm", "gpt2": "bpe", "hybriddna": "bpe",
    "whitespace": "bpe", "gemma4": "bpe", "t5": "ugm", "rwkv": "rwkv", "plamo2": "plamo2", "test": "test",
}  # fmt: skip
"""`tokenizer.ggml.model` -> llama.cpp's vocabulary type, the first thing target and draft must share."""

_DEFAULT_BOS = {"llama": 1, "bert": 101, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 1}
_DEFAULT_EOS = {"llama": 2, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "t5": 1, "plamo2": 2}
_DEFAULT_PAD = {"bert": 0, "t5": 0, "plamo2": 3}
_NO_DEFAULT_BOS_PRE = frozenset({"chatglm-bpe", "glm4", "glm5"})
_ADD_BOS_PRE = frozenset(
    {
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
        "jina-v5-nano",
        "tekken",
        "chameleon",
    }
)
_END_OF_TURN = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip
"""Texts by which llama.cpp recognises the end-of-turn token of a file that does not name it."""


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
    twin: TwinOf | None = None
    """What it was made of; None for all models but those of `models.twin`."""

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
        chat_template=facts.vocabulary.chat_template is not None,
        twin=facts.twin,
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
        twin=_twin(metadata),
    )


def _twin(metadata: Metadata) -> TwinOf | None:
    def said(key: str, longest: int) -> str:
        return (metadata.text(f"specmeter.twin{key}") or "")[:longest]

    if not (form := said("", 20)):
        return None
    parent, sha256 = said("_parent", 200), said("_parent_sha256", 64)
    return TwinOf(form=form, router=said("_router", 40), parent=parent, parent_sha256=sha256)


def _limited(metadata: Metadata, key: str, limit: int) -> int | None:
    value = metadata.integer(key)
    if value is not None and value > limit:
        raise ModelError(
            f"{metadata.header.path}: {key.removeprefix('.')} is {value} (llama.cpp allows {limit})",
            fix="use another file: this one is damaged or made for another program",
        )
    return value


class QuantizationShare(Record):
    """The part of a model that is stored in one number format."""

    type: str
    tensors: int
    parameters: int
    size_bytes: int


class Weights(Record):
    """Parameters and bytes of a model, split by when they are read."""

    parameters: int
    active_parameters: int
    """Used for one token: without the experts that are not chosen and without draft heads (MTP)."""
    size_bytes: int
    quantization: tuple[QuantizationShare, ...]
    """Largest share first."""
    always_read_bytes: int
    """Read for every token: all but embedding tables, experts and draft heads; tied embeddings are read as output."""
    lookup_bytes: int
    """One row of each embedding table."""
    expert_bytes: int
    """One expert in every mixture-of-experts layer."""
    active_expert_bytes: int
    """The experts chosen for one token, in every layer."""
    draft_head_bytes: int = 0
    """Multi-token-prediction layers, which decoding without speculation does not read."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights read to decode one token on its own."""
        return self.always_read_bytes + self.lookup_bytes + self.active_expert_bytes


def weigh(tensors: Iterable[Tensor], layers: int | None, experts: int, experts_used: list[int] | None) -> Weights:
    """Weigh a model's tensors.

    `layers` is the number of layers without draft heads (None: not known), `experts` the number of experts per layer
    and `experts_used` how many of them each layer chooses for a token (None: not known, all).
    """
    tensors = tuple(tensors)
    tied = all(tensor.name != "output.weight" for tensor in tensors)
    always = lookup = one_expert = chosen = draft_heads = 0.0
    inactive_parameters = 0.0
    shares: dict[str, list[int]] = {}
    for tensor in tensors:
        share = shares.setdefault(tensor.type.name, [0, 0, 0])
        for index, amount in enumerate((1, tensor.elements, tensor.bytes)):
            share[index] += amount
        match = _LAYER.match(tensor.name)
        layer = int(match[1]) if match else None
        if layer is not None and layers is not None and layer >= layers:
            draft_heads += tensor.bytes
            inactive_parameters += tensor.elements
        elif experts and (
            _SINGLE_EXPERT.match(tensor.name) or (_STACKED_EXPERTS.match(tensor.name) and tensor.shape[-1] == experts)
        ):
            used = experts_used[layer] if experts_used is not None and layer is not None else experts
            one_expert += tensor.bytes / experts
            chosen += tensor.bytes * used / experts
            inactive_parameters += tensor.elements * (experts - used) / experts
        elif tensor.name in LOOKUP_TABLES:
            lookup += tensor.type.row_bytes(tensor.shape[0])
            always += tensor.bytes if tied and tensor.name == "token_embd.weight" else 0
        else:
            always += tensor.bytes
    parameters = sum(tensor.elements for tensor in tensors)
    mix = sorted(shares.items(), key=lambda item: -item[1][2])
    return Weights(
        parameters=parameters,
        active_parameters=round(parameters - inactive_parameters),
        size_bytes=sum(tensor.bytes for tensor in tensors),
        quantization=tuple(
            QuantizationShare(type=name, tensors=count, parameters=elements, size_bytes=size)
            for name, (count, elements, size) in mix
        ),
        always_read_bytes=round(always),
        lookup_bytes=round(lookup),
        expert_bytes=round(one_expert),
        active_expert_bytes=round(chosen),
        draft_head_bytes=round(draft_heads),
    )


class Vocabulary(Record):
    """Tokens and special tokens; None is what the file does not say and llama.cpp does not assume."""

    model: str | None
    """`tokenizer.ggml.model`, for example `gpt2` for byte-level BPE."""
    type: VocabularyType | None
    """llama.cpp's vocabulary type; None for a tokenizer that it does not know."""
    pre: str | None
    """Pre-tokenizer."""
    size: int | None
    """Number of tokens."""
    sha256: str | None
    """Fingerprint of all token texts, token types and merges, in order."""
    bos: int | None
    eos: int | None
    eot: int | None
    pad: int | None
    add_bos: bool
    """A beginning-of-sequence token is put before every prompt."""
    add_eos: bool
    chat_template: str | None


def vocabulary_type(model: str | None) -> VocabularyType | None:
    """llama.cpp's vocabulary type of a `tokenizer.ggml.model`; None for one that it does not know."""
    return _TYPES.get(model or "")


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """The vocabulary of a model."""
    model, pre = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    kind = vocabulary_type(model)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    size = len(tokens) if tokens is not None else metadata.integer(".vocab_size")

    def special(key: str, default: int | None) -> int | None:
        given = metadata.integer(f"tokenizer.ggml.{key}_token_id")
        ids = [value for value in (given, default) if value is not None and value < (size or 0)]
        return ids[0] if ids else None

    eot = special("eot", None)
    if eot is None and tokens is not None:
        found = [index for text in _END_OF_TURN if (index := tokens.find(text.encode())) is not None]
        eot = min(found, default=None)
    return Vocabulary(
        model=model,
        type=kind,
        pre=pre,
        size=size,
        sha256=_fingerprint(metadata, tokens),
        bos=special("bos", None if pre in _NO_DEFAULT_BOS_PRE else _DEFAULT_BOS.get(model or "")),
        eos=special("eos", _DEFAULT_EOS.get(model or "")),
        eot=eot,
        pad=special("padding", _DEFAULT_PAD.get(model or "")),
        add_bos=_adds_bos(metadata, model, kind, pre),
        add_eos=_or(metadata.flag("tokenizer.ggml.add_eos_token"), kind == "ugm"),
        chat_template=metadata.text("tokenizer.chat_template"),
    )


def _adds_bos(metadata: Metadata, model: str | None, kind: VocabularyType | None, pre: str | None) -> bool:
    if model == "gemma4" or (kind == "bpe" and pre == "gemma4"):
        return True  # whatever the file says: llama.cpp overrides it
    default = kind in ("spm", "wpm") or (kind == "bpe" and pre in _ADD_BOS_PRE)
    return _or(metadata.flag("tokenizer.ggml.add_bos_token"), default)


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _fingerprint(metadata: Metadata, tokens: StringArray | None) -> str | None:
    if tokens is None:
        return None
    digest = hashlib.sha256()
    types = metadata.numbers("tokenizer.ggml.token_type")
    merges = metadata.strings("tokenizer.ggml.merges")
    for part in (array.raw if array is not None else b"" for array in (tokens, types, merges)):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.hexdigest()
