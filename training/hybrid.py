"""Derive the hybrid recurrent target: `python hybrid.py` writes `hybrid.gguf` (architecture qwen35moe).

Training a recurrent model on a CPU is out of reach here, but a hybrid can carry trained text all the same. Its three
full-attention layers are those of the large draft, and before each of them stand two gated-delta-net layers with random
weights whose output projection is zero: llama.cpp keeps, saves and restores their state at every step, and the text
stays that of the large draft. In the same way the trained feed-forward part is the *shared* expert of each layer, and
the routed experts around it are really chosen and multiplied, but add nothing.

Two gates have no counterpart in Qwen3 and are set to zero weights, so that they are sigmoid(0) = 1/2 everywhere; the
projections behind them are doubled, which is exact.
"""

from __future__ import annotations

import dataclasses

import gguf
import numpy as np
import torch

from cores import BY_NAME, CONTEXT, Core
from export import SHIPPED, manifest_entry, tokenizer_of, update_manifest, write_vocabulary
from model import EPSILON
from train import WORK

BASE = "draft-large"
SEED = 16
INTERVAL = 3
EXPERTS, TOP_K, EXPERT_FFN = 32, 4, 32
STATE, KEY_HEADS, VALUE_HEADS, CONVOLUTION = 64, 2, 4, 4
TRAINED, INERT = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0

Tensors = dict[str, tuple[np.ndarray, gguf.GGMLQuantizationType]]


def full_attention(weights: dict[str, np.ndarray], source: int, core: Core) -> Tensors:
    """The attention half of a trained layer, with a gate per query head that is always one half."""
    shape = core.shape
    of = f"blocks.{source}.attention"
    q = weights[f"{of}.q.weight"].reshape(shape.heads, shape.head_dim, shape.hidden)
    # llama.cpp reads, for each head, first the query rows and then the gate rows.
    joint = np.concatenate((q, np.zeros_like(q)), axis=1).reshape(-1, shape.hidden)
    return {
        "attn_q.weight": (joint, TRAINED),
        "attn_k.weight": (weights[f"{of}.k.weight"], TRAINED),
        "attn_v.weight": (weights[f"{of}.v.weight"], TRAINED),
        "attn_output.weight": (2 * weights[f"{of}.o.weight"], TRAINED),
        "attn_q_norm.weight": (weights[f"{of}.q_norm"], gguf.GGMLQuantizationType.F32),
        "attn_k_norm.weight": (weights[f"{of}.k_norm"], gguf.GGMLQuantizationType.F32),
        "attn_norm.weight": (weights[f"blocks.{source}.attention_norm"], gguf.GGMLQuantizationType.F32),
        "post_attention_norm.weight": (weights[f"blocks.{source}.ffn_norm"], gguf.GGMLQuantizationType.F32),
    }


def recurrent(rng: np.random.Generator, hidden: int) -> Tensors:
    """A gated-delta-net layer: random inside, silent outside."""
    keys, values = STATE * KEY_HEADS, STATE * VALUE_HEADS
    mixed = 2 * keys + values
    plain = gguf.GGMLQuantizationType.F32

    def random(*shape: int) -> np.ndarray:
        return rng.normal(0.0, hidden**-0.5, shape).astype(np.float32)

    return {
        "attn_qkv.weight": (random(mixed, hidden), INERT),
        "attn_gate.weight": (random(values, hidden), INERT),
        "ssm_conv1d.weight": (random(mixed, CONVOLUTION), plain),
        "ssm_dt.bias": (random(VALUE_HEADS), plain),
        "ssm_a": (-np.abs(random(VALUE_HEADS)), plain),
        "ssm_beta.weight": (random(VALUE_HEADS, hidden), plain),
        "ssm_alpha.weight": (random(VALUE_HEADS, hidden), plain),
        "ssm_norm.weight": (np.ones(STATE, np.float32), plain),
        "ssm_out.weight": (np.zeros((hidden, values), np.float32), INERT),
        "attn_norm.weight": (np.ones(hidden, np.float32), plain),
        "post_attention_norm.weight": (np.ones(hidden, np.float32), plain),
    }


def feed_forward(
    rng: np.random.Generator, hidden: int, shared: dict[str, np.ndarray], kind: gguf.GGMLQuantizationType
) -> Tensors:
    """Routed experts that add nothing, and the shared expert, which is the trained part where there is one."""

    def random(*shape: int) -> np.ndarray:
        return rng.normal(0.0, hidden**-0.5, shape).astype(np.float32)

    plain = gguf.GGMLQuantizationType.F32
    return {
        "ffn_gate_inp.weight": (random(EXPERTS, hidden), plain),
        "ffn_gate_exps.weight": (random(EXPERTS, EXPERT_FFN, hidden), INERT),
        "ffn_up_exps.weight": (random(EXPERTS, EXPERT_FFN, hidden), INERT),
        "ffn_down_exps.weight": (np.zeros((EXPERTS, hidden, EXPERT_FFN), np.float32), INERT),
        "ffn_gate_inp_shexp.weight": (np.zeros(hidden, np.float32), plain),
        "ffn_gate_shexp.weight": (shared["gate"], kind),
        "ffn_up_shexp.weight": (shared["up"], kind),
        "ffn_down_shexp.weight": (2 * shared["down"], kind),
    }


def tensors(weights: dict[str, np.ndarray], core: Core) -> Tensors:
    """All tensors of the file, by name."""
    rng = np.random.default_rng(SEED)
    shape = core.shape
    silent = {
        "gate": np.zeros((shape.ffn, shape.hidden), np.float32),
        "up": np.zeros((shape.ffn, shape.hidden), np.float32),
        "down": np.zeros((shape.hidden, shape.ffn), np.float32),
    }
    found: Tensors = {
        "token_embd.weight": (weights["embedding.weight"], TRAINED),
        "output_norm.weight": (weights["norm"], gguf.GGMLQuantizationType.F32),
    }
    for layer in range(shape.layers * INTERVAL):
        source, is_full = layer // INTERVAL, layer % INTERVAL == INTERVAL - 1
        if is_full:
            shared = {part: weights[f"blocks.{source}.ffn.{part}.weight"] for part in silent}
            block = full_attention(weights, source, core) | feed_forward(rng, shape.hidden, shared, TRAINED)
        else:
            block = recurrent(rng, shape.hidden) | feed_forward(rng, shape.hidden, silent, INERT)
        found |= {f"blk.{layer}.{name}": tensor for name, tensor in block.items()}
    return found


def write_metadata(writer: gguf.GGUFWriter, core: Core) -> None:
    """The keys that llama.cpp reads for qwen35moe."""
    shape = core.shape
    writer.add_name("specmeter bench hybrid")
    writer.add_description("The large draft's text in a hybrid recurrent architecture; see docs/bench-models.md.")
    writer.add_license("MIT")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers * INTERVAL)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_expert_feed_forward_length(EXPERT_FFN)
    writer.add_expert_shared_feed_forward_length(shape.ffn)
    writer.add_ssm_conv_kernel(CONVOLUTION)
    writer.add_ssm_inner_size(STATE * VALUE_HEADS)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def main() -> None:
    core = BY_NAME[BASE]
    stored: dict[str, torch.Tensor] = torch.load(WORK / f"{BASE}.pt", map_location="cpu")
    weights = {name: weight.float().numpy() for name, weight in stored.items()}
    path = SHIPPED / "hybrid.gguf"
    writer = gguf.GGUFWriter(path, "qwen35moe")
    write_metadata(writer, core)
    write_vocabulary(writer, tokenizer_of(core))
    parameters = 0
    for name, (weight, kind) in tensors(weights, core).items():
        parameters += weight.size
        writer.add_tensor(name, gguf.quantize(weight.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    described = dataclasses.replace(core, quantization="Q8_0", seed=SEED)
    entry = manifest_entry(path, described, "hybrid", "target", parameters) | {"architecture": "qwen35moe"}
    update_manifest([entry])
    print(f"hybrid: {parameters} parameters")


if __name__ == "__main__":
    main()
