"""Writes a bench model as a folder of Hugging Face's form, for engines that do not read GGUF.

Weights are written in 32 bits, as what the file's number format stands for; the tokenizer is that of the file, token by
token. `config.json` is written last, so a folder that has it is whole.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from specmeter.errors import ModelError
from specmeter.files import whole_file, write_whole
from specmeter.models.gguf import Metadata, Tensor
from specmeter.models.inflate import CoreFile
from specmeter.models.weights import convert

ARCHITECTURES = {
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
}
"""What can be exported -> the class and the type of model in `config.json`."""

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    **{f"attn_{it}.weight": f"self_attn.{it}_proj.weight" for it in "qkv"},
    **{f"attn_{it}_norm.weight": f"self_attn.{it}_norm.weight" for it in "qk"},
    **{f"ffn_{it}.weight": f"mlp.{it}_proj.weight" for it in ("gate", "up", "down")},
}
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERTS = re.compile(r"ffn_(gate|up|down)_exps\.weight")

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the tokenizer `qwen2` cuts a text into words."""
_CONTROL, _FOUND_FIRST = 3, (3, 4)
"""Kinds of tokens in a file: what steers, and with it all that is found in a text before it is cut."""


def export_hf(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder`, which is made.

    Raises `ModelError` for what cannot be exported, and for a folder that holds a model.
    """
    core = CoreFile.read(source)
    about = Metadata(core.header)
    if core.architecture not in ARCHITECTURES or about.text("tokenizer.ggml.pre") != "qwen2":
        raise ModelError(
            f"{source}: {core.architecture} with tokenizer {about.text('tokenizer.ggml.pre')} cannot be exported",
            fix=f"use a model of {' or '.join(ARCHITECTURES)}, such as bench:dense",
        )
    if (folder / "config.json").exists():
        raise ModelError(f"{folder}: already contains a model", fix="choose another folder, or remove this one")
    names = [it.decode() for it in about.strings("tokenizer.ggml.tokens") or ()]
    config = _config(core, about)
    tokens = {"eos_token_id": config["eos_token_id"], "pad_token_id": config["pad_token_id"]}
    written: dict[str, dict[str, Any]] = {
        "tokenizer.json": _tokenizer(about, names),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "eos_token": names[config["eos_token_id"][0]],
            "pad_token": names[config["pad_token_id"]],
            "chat_template": about.text("tokenizer.chat_template") or "",
        },
        "generation_config.json": tokens,
        "config.json": config,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(core, folder / "model.safetensors")
        for name, content in written.items():
            write_whole(folder / name, json.dumps(content, ensure_ascii=False, indent=1).encode())
    except OSError as error:
        raise ModelError(f"{folder}: cannot be written ({error.strerror})", fix="choose another folder") from None


def _config(core: CoreFile, about: Metadata) -> dict[str, Any]:
    kind, model_type = ARCHITECTURES[core.architecture]
    padding, *ends = (about.integer(f"tokenizer.ggml.{it}_token_id") or 0 for it in ("padding", "eos", "eot"))
    found: dict[str, Any] = {
        "architectures": [kind],
        "model_type": model_type,
        "vocab_size": len(about.strings("tokenizer.ggml.tokens") or ()),
        "hidden_size": core.number("embedding_length"),
        "num_hidden_layers": core.layers,
        "num_attention_heads": core.number("attention.head_count"),
        "num_key_value_heads": core.number("attention.head_count_kv"),
        "head_dim": core.number("attention.key_length"),
        "intermediate_size": core.number("feed_forward_length"),
        "max_position_embeddings": core.number("context_length"),
        "rms_norm_eps": core.header.metadata[f"{core.architecture}.attention.layer_norm_rms_epsilon"],
        "rope_theta": core.header.metadata[f"{core.architecture}.rope.freq_base"],
        "tie_word_embeddings": all(it.name != "output.weight" for it in core.header.tensors),
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": list(dict.fromkeys(ends)),
        "pad_token_id": padding,
    }
    if core.architecture == "qwen3moe":
        found |= {
            "num_experts": core.number("expert_count"),
            "num_experts_per_tok": core.experts_used,
            "moe_intermediate_size": core.width,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return found


def _tokenizer(about: Metadata, names: Sequence[str]) -> dict[str, Any]:
    merges, kinds = about.strings("tokenizer.ggml.merges"), about.numbers("tokenizer.ggml.token_type")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _WORDS}, "behavior": "Isolated", "invert": False}
    added = [
        {"id": at, "content": names[at], "special": kind == _CONTROL, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for at, kind in enumerate(kinds.values() if kinds else ())
        if kind in _FOUND_FIRST
    ]
    model = {
        "type": "BPE",
        **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
        **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
        "vocab": {name: at for at, name in enumerate(names)},
        "merges": [it.decode().split(" ") for it in merges or ()],
    }
    return {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": model,
    }


def _write_weights(core: CoreFile, path: Path) -> None:
    """The tensors as a safetensors file: the length of a header, the header, and one tensor behind the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in core.header.tensors:
        for name, shape in _places(tensor):
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * prod(shape)]}
            at += 4 * prod(shape)
    said = json.dumps(header).encode()
    said += b" " * (-len(said) % 8)
    with whole_file(path) as file:
        file.write(struct.pack("<Q", len(said)) + said)
        for tensor in core.header.tensors:
            file.write(convert(core.data(tensor), tensor.type.name, "F32").data)


def _places(tensor: Tensor) -> Iterator[tuple[str, list[int]]]:
    """(name, shape) of what a tensor of a file is there, in the order of its bytes: one, or one for each expert."""
    shape = list(tensor.shape[::-1])
    layer, part = match.groups() if (match := _LAYER.fullmatch(tensor.name)) else ("", tensor.name)
    within = f"model.layers.{layer}." if layer else ""
    if part in _NAMES:
        yield within + _NAMES[part], shape
    elif (match := _EXPERTS.fullmatch(part)) is not None:
        for expert in range(shape[0]):
            yield f"{within}mlp.experts.{expert}.{match[1]}_proj.weight", shape[1:]
    else:
        raise ModelError(f"tensor {tensor.name} cannot be exported", fix="use a bench model")
