"""Write a trained core as GGUF: `python export.py NAME...` reads `work/NAME.pt` and writes into the package."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import quantize
from tokenizers import Tokenizer

from cores import BY_NAME, CONTEXT, CORES, Core
from model import EPSILON
from tokenizer import CHAT_END, CHAT_START, CHAT_TEMPLATE, END, SPECIAL
from train import WORK

QUANTIZATION_BLOCK = 32
"""Weights that share a scale in Q4_0 to Q8_0."""
SHIPPED = Path(__file__).parents[1] / "src" / "specmeter" / "models" / "cores"

# Where each parameter of a block goes. Vectors and routers stay in 32-bit, as llama.cpp's own converter leaves them.
BLOCK_NAMES = {
    "attention_norm": "attn_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "attention.q.weight": "attn_q.weight",
    "attention.k.weight": "attn_k.weight",
    "attention.v.weight": "attn_v.weight",
    "attention.o.weight": "attn_output.weight",
    "attention.q_norm": "attn_q_norm.weight",
    "attention.k_norm": "attn_k_norm.weight",
    "ffn.gate.weight": "ffn_gate.weight",
    "ffn.up.weight": "ffn_up.weight",
    "ffn.down.weight": "ffn_down.weight",
    "ffn.router.weight": "ffn_gate_inp.weight",
    "ffn.gate": "ffn_gate_exps.weight",
    "ffn.up": "ffn_up_exps.weight",
    "ffn.down": "ffn_down_exps.weight",
}


def gguf_name(parameter: str) -> str:
    """The GGUF name of a parameter of `model.Model`."""
    if parameter == "embedding.weight":
        return "token_embd.weight"
    if parameter == "norm":
        return "output_norm.weight"
    _, layer, inner = parameter.split(".", 2)
    return f"blk.{layer}.{BLOCK_NAMES[inner]}"


def quantized(name: str, weight: np.ndarray, quantization: str) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """The bytes that are stored for one tensor, and their type."""
    if weight.ndim < 2 or "ffn_gate_inp" in name:
        return weight.astype(np.float32), gguf.GGMLQuantizationType.F32
    kind = gguf.GGMLQuantizationType[quantization]
    return quantize(weight.astype(np.float32), kind), kind


def write_metadata(writer: gguf.GGUFWriter, core: Core) -> None:
    """Everything that llama.cpp needs to know about the shape."""
    shape = core.shape
    writer.add_name(f"specmeter bench {core.name}")
    writer.add_description(
        "A tiny model trained on generated text, for measuring speculative decoding; it knows nothing about the world."
    )
    writer.add_license("MIT")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(shape.rope_theta)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.top_k)
        writer.add_expert_feed_forward_length(shape.ffn)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{core.quantization}"])


def write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer, end: str = END) -> None:
    """The tokenizer; `end` is the text of the end-of-sequence token."""
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    merges: list[list[str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.token_to_id(end))
    writer.add_eot_token_id(tokenizer.token_to_id(CHAT_END))
    writer.add_pad_token_id(tokenizer.token_to_id(END))
    writer.add_bos_token_id(tokenizer.token_to_id(END if end == END else CHAT_START))
    writer.add_add_bos_token(end != END)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def tokenizer_of(core: Core) -> Tokenizer:
    """The tokenizer that a core was trained with."""
    return Tokenizer.from_file(str(WORK / f"tokenizer-{core.shape.vocabulary}.json"))


def write_gguf(path: Path, core: Core, weights: dict[str, torch.Tensor], end: str = END) -> None:
    """One GGUF file."""
    writer = gguf.GGUFWriter(path, core.shape.architecture)
    write_metadata(writer, core)
    write_vocabulary(writer, tokenizer_of(core), end)
    for parameter, weight in weights.items():
        name = gguf_name(parameter)
        data, kind = quantized(name, weight.float().numpy(), core.quantization)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def with_outliers(weights: dict[str, torch.Tensor], core: Core) -> dict[str, torch.Tensor]:
    """The same model with a few weights far larger than their neighbours, as large models have them.

    In every layer some channels of the two norms are divided by a power of two, and the weights that read them are
    multiplied by it. In floating point nothing changes, to the last bit; but formats that share one scale among 32
    neighbours lose precision on the other 31. Without this, a model of this size has next to nothing to lose.
    """
    if core.outliers == 1:
        return weights
    generator = torch.Generator().manual_seed(core.seed)
    planted = dict(weights)
    readers = {
        "attention_norm": ("attention.q.weight", "attention.k.weight", "attention.v.weight"),
        "ffn_norm": ("ffn.gate.weight", "ffn.up.weight"),
    }
    for layer in range(core.shape.layers):
        for norm, matrices in readers.items():
            scale = torch.ones(core.shape.hidden)
            blocks = torch.arange(0, core.shape.hidden, QUANTIZATION_BLOCK)
            scale[blocks + torch.randint(QUANTIZATION_BLOCK, blocks.shape, generator=generator)] = core.outliers
            planted[f"blocks.{layer}.{norm}"] = weights[f"blocks.{layer}.{norm}"] / scale
            for matrix in matrices:
                planted[f"blocks.{layer}.{matrix}"] = weights[f"blocks.{layer}.{matrix}"] * scale
    return planted


def manifest_entry(path: Path, core: Core, name: str, role: str, parameters: int) -> dict[str, Any]:
    """What `cores.json` says about one file."""
    return {
        "name": name,
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "architecture": core.shape.architecture,
        "parameters": parameters,
        "quantization": core.quantization,
        "role": role,
        "training_seed": core.seed,
        "training_tokens": core.tokens,
    }


def export(core: Core) -> list[dict[str, Any]]:
    """Write the file or files of one core and return their entries of the manifest."""
    weights = with_outliers(torch.load(WORK / f"{core.name}.pt", map_location="cpu"), core)
    parameters = sum(weight.numel() for weight in weights.values())
    path = SHIPPED / f"{core.name}.gguf"
    write_gguf(path, core, weights)
    entries = [manifest_entry(path, core, core.name, core.role, parameters)]
    if core.name == "draft-small":
        # The same weights under other special tokens: the end is <|im_end|>, and a start token is asked for.
        other = SHIPPED / "draft-other-special.gguf"
        write_gguf(other, core, weights, end=CHAT_END)
        entries.append(manifest_entry(other, core, "draft-other-special", "incompatible draft", parameters))
    return entries


def update_manifest(entries: list[dict[str, Any]]) -> None:
    """Replace these entries of `cores.json` and keep the others."""
    path = SHIPPED / "cores.json"
    known: list[dict[str, Any]] = json.loads(path.read_text())["cores"] if path.exists() else []
    merged = {entry["name"]: entry for entry in [*known, *entries]}
    path.write_text(json.dumps({"cores": [merged[name] for name in sorted(merged)]}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[core.name for core in CORES])
    SHIPPED.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().names:
        update_manifest(export(BY_NAME[name]))
        print(f"{name}: written")


if __name__ == "__main__":
    main()
