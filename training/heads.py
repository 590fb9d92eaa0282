"""Drafting heads for the hybrid target: `python heads.py train NAME`, `python heads.py export` (mtp, eagle3, dflash).

All three learn what the target itself says, from states that llama.cpp hands to a head of their kind, and give logits
through the target's own output matrix. The trunk is the large draft, whose text the hybrid speaks (see `hybrid.py`):
its layers 2, 5 and 8 are the trained ones, so the inputs of its layers 3 and 6 are the states behind the first two.

- `mtp`: a block of its own inside `hybrid.gguf`. It reads the last state and the token that followed.
- `eagle3`: a file of its own. It reads three states, made one by a matrix, and the token that followed.
- `dflash`: a file of its own. Its layers find three states of every token read so far in their cache, and fill a block
  of masked tokens in one forward.

The first two draft token by token from their own output; training unrolls that three times, so that a head has seen its
own states before it must live on them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchtext import stream
from cores import BY_NAME, TEXT_SEED
from export import (
    BLOCK_NAMES,
    SHIPPED,
    manifest_entry,
    quantized,
    update_manifest,
    write_metadata,
)
from hybrid import INTERVAL, SEED, feed_forward, full_attention
from model import Attention, DenseFfn, Model, _norm, _rotate, rotary
from optimizer import optimizers
from reference import as_shipped
from tokenizer import END, untrained
from train import WORK, batch_at, rate_at

BASE = BY_NAME["draft-large"]
SHAPE = BASE.shape
BATCH, WINDOW = 2048, 256
UNROLLED = 3
BLOCK, ANCHORS, DFLASH_LAYERS = 5, 32, 2
SIZES = (1 / 4, 24.0, 32.0, 0.8)
"""About how large the states before each layer and the last one are: read in units of these; undone in the export."""
MASK_TOKEN = SHAPE.vocabulary - 3
"""The end of a text, which no draft begins with."""
SEEDS = {"mtp": 21, "eagle3": 22, "dflash": 23}
TOKENS = 600_000


class Trunk:
    """The target, which is not trained: its states before each layer, its last state, and what it says next."""

    def __init__(self) -> None:
        self.model: Model = as_shipped(BASE)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        model, length = self.model, tokens.shape[1]
        cos, sin = rotary(length, SHAPE)
        mask = torch.full((length, length), -torch.inf).triu(1)
        states = [model.embedding(tokens)]
        for block in model.blocks:
            states.append(block(states[-1], cos, sin, mask, torch.float32)[0])
        last = _norm(states.pop(), model.norm)
        return states, last, self.says(last)

    def says(self, state: Tensor) -> Tensor:
        return functional.linear(state, self.model.embedding.weight)


def scaled(*states: Tensor, sizes: Sequence[float]) -> Tensor:
    return torch.cat([state / size for state, size in zip(states, sizes, strict=True)], -1)


def spread(attention: Attention, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, heads, rows, head_dim] of rows at positions `at`."""
    cos, sin = (part[at].unsqueeze(-3) for part in rotary(WINDOW + BLOCK, SHAPE))
    parts = [
        layer(x).view(*x.shape[:2], SHAPE.heads, SHAPE.head_dim).transpose(1, 2)
        for layer in (attention.q, attention.k, attention.v)
    ]
    if attention.q_norm is not None:
        parts[0], parts[1] = _norm(parts[0], attention.q_norm), _norm(parts[1], attention.k_norm)
    return _rotate(parts[0], cos, sin) * SHAPE.head_dim**-0.5, _rotate(parts[1], cos, sin), parts[2]


def joined(attention: Attention, mixed: Tensor) -> Tensor:
    return attention.o(mixed.transpose(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1))


def later(rows: Tensor, by: int) -> Tensor:
    """The same rows so many places on; the first ones are zero."""
    return functional.pad(rows, (0, 0, by, 0))[..., : rows.shape[-2], :] if by else rows


class Chain(nn.Module):
    """A head of one layer that reads a state and the token after it, and hands its own state on."""

    def __init__(self, name: str) -> None:
        super().__init__()
        hidden = SHAPE.hidden
        self.name = name
        self.attention, self.ffn = Attention(SHAPE), DenseFfn(SHAPE)
        self.token_norm, self.state_norm, self.attention_norm, self.ffn_norm, self.norm = (
            nn.Parameter(torch.ones(hidden)) for _ in range(5)
        )
        if name == "mtp":
            self.joint = nn.Linear(2 * hidden, hidden, bias=False)
        else:
            self.joint = nn.Linear(3 * hidden, hidden, bias=False)
            self.attention.q, self.attention.k, self.attention.v = (
                nn.Linear(2 * hidden, SHAPE.heads * SHAPE.head_dim, bias=False) for _ in range(3)
            )
            self.attention.q_norm = self.attention.k_norm = self.attention_norm = None

    def first(self, states: Sequence[Tensor], last: Tensor) -> Tensor:
        return last if self.name == "mtp" else self.joint(scaled(states[1], states[2], last, sizes=SIZES[1:]))

    def step(self, embedded: Tensor, state: Tensor, past: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The state that is handed on and the one that speaks; `past` are keys and values of the steps before."""
        both = torch.cat((_norm(embedded, self.token_norm), _norm(state, self.state_norm)), -1)
        if self.name == "mtp":
            carried = self.joint(both)
            both = _norm(carried, self.attention_norm)
        else:
            carried = state
        rows = both.shape[1]
        query, key, value = spread(self.attention, both, torch.arange(rows))
        past.append((key, value))
        turn = len(past) - 1
        # A row sees its own step, one row of each unrolled step before it, and of true states only those before these.
        hidden = torch.full((rows, rows), -torch.inf).triu(1 - turn)
        first = query @ past[0][0].transpose(-1, -2) + hidden
        own = [(query * later(past[it][0], turn - it)).sum(-1, keepdim=True) for it in range(1, turn + 1)]
        weights = torch.cat((first, *own), -1).softmax(-1)
        mixed = weights[..., :rows] @ past[0][1]
        for it in range(1, turn + 1):
            mixed = mixed + weights[..., rows + it - 1, None] * later(past[it][1], turn - it)
        x = carried + joined(self.attention, mixed)
        x = x + self.ffn(_norm(x, self.ffn_norm))[0]
        said = _norm(x, self.norm)
        return (said if self.name == "mtp" else x), said

    def drafts(self, trunk: Trunk, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Logits of each unrolled step, and the target's own for the same tokens."""
        states, last, target = trunk.read(tokens)
        embedded, state = states[0][:, 1:], self.first(states, last)[:, :-1]
        past: list[tuple[Tensor, Tensor]] = []
        found: list[tuple[Tensor, Tensor]] = []
        for turn in range(UNROLLED):
            state, said = self.step(embedded, state, past)
            found.append((trunk.says(said[:, turn:]), target[:, 1 + turn :]))
            state = later(state, 1)
        return found


class DFlashLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.ffn = Attention(SHAPE), DenseFfn(SHAPE)
        self.attention_norm, self.ffn_norm = (nn.Parameter(torch.ones(SHAPE.hidden)) for _ in range(2))


class DFlash(nn.Module):
    """A few layers over a block: the last token and masks for those to come; all of a block see each other."""

    name = "dflash"

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(3 * SHAPE.hidden, SHAPE.hidden, bias=False)
        self.state_norm, self.norm = (nn.Parameter(torch.ones(SHAPE.hidden)) for _ in range(2))
        self.layers = nn.ModuleList(DFlashLayer() for _ in range(DFLASH_LAYERS))

    def drafts(self, trunk: Trunk, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        states, _, target = trunk.read(tokens)
        batch, length = tokens.shape
        fused = _norm(self.joint(scaled(*states, sizes=SIZES[:3])), self.state_norm)
        anchors = torch.randint(1, length - BLOCK, (ANCHORS,)).sort().values
        at = (anchors[:, None] + torch.arange(BLOCK)).flatten()
        block = torch.full((batch, ANCHORS, BLOCK), MASK_TOKEN)
        block[..., 0] = tokens[:, anchors]
        x = trunk.model.embedding(block.flatten(1))
        rows = torch.arange(ANCHORS).repeat_interleave(BLOCK)
        seen = torch.cat((torch.arange(length)[None] < anchors[rows, None], rows[None] == rows[:, None]), -1)
        for layer in self.layers:
            query, key, value = spread(layer.attention, _norm(x, layer.attention_norm), at)
            _, old_key, old_value = spread(layer.attention, fused, torch.arange(length))
            keys, values = torch.cat((old_key, key), -2), torch.cat((old_value, value), -2)
            weights = (query @ keys.transpose(-1, -2)).masked_fill(~seen, -torch.inf).softmax(-1)
            x = x + joined(layer.attention, weights @ values)
            x = x + layer.ffn(_norm(x, layer.ffn_norm))[0]
        said = trunk.says(_norm(x, self.norm)).view(batch, ANCHORS, BLOCK, -1)
        return [(said[:, :, it], target[:, anchors + it - 1]) for it in range(1, BLOCK)]


def text() -> np.ndarray:
    """The beginning of the training text, cut by the vocabulary that the target was shipped with."""
    path = WORK / "tokens-heads.npy"
    if not path.exists():
        fields = gguf.GGUFReader(SHIPPED / f"{BASE.name}.gguf").fields
        tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
        merges: list[str] = fields["tokenizer.ggml.merges"].contents()
        tokenizer = untrained([tuple(pair.split(" ")) for pair in merges], {it: at for at, it in enumerate(tokens)})
        found: list[int] = []
        for document in stream(TEXT_SEED):
            found += [*tokenizer.encode(document).ids, tokenizer.token_to_id(END)]
            if len(found) > TOKENS:
                break
        np.save(path, np.array(found[: TOKENS + 1], np.uint16))
    return np.load(path)


def make(name: str) -> Chain | DFlash:
    torch.manual_seed(SEEDS[name])
    head = DFlash() if name == "dflash" else Chain(name)
    with torch.no_grad():
        for inner, weight in head.named_parameters():
            if weight.ndim == 2:
                small = 0.4 if inner.endswith(("attention.o.weight", "ffn.down.weight")) else 1.0
                weight.normal_(0.0, small * weight.shape[-1] ** -0.5)
    return head


def train(name: str) -> None:
    torch.set_num_threads(1)
    trunk, head = Trunk(), make(name)
    chosen = optimizers(head, 0.02, 0.003)
    base = [[group["lr"] for group in o.param_groups] for o in chosen]
    tokens = text()
    steps, begun = TOKENS // BATCH, time.monotonic()
    for step in range(steps):
        for optimizer, rates in zip(chosen, base, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * rate_at(step, steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            drafts = head.drafts(trunk, batch_at(tokens, step * BATCH, BATCH, WINDOW)[:, :-1])
        losses = [
            functional.cross_entropy(ours.flatten(0, -2).float(), theirs.float().softmax(-1).flatten(0, -2))
            for ours, theirs in drafts
        ]
        sum(0.8**turn * loss for turn, loss in enumerate(losses)).backward()
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 25 == 24 or step == steps - 1:
            same = [(ours.argmax(-1) == theirs.argmax(-1)).float().mean().item() for ours, theirs in drafts]
            spent = time.monotonic() - begun
            print(
                f"{name} step {step + 1}/{steps} loss {losses[0].item():.3f} "
                f"same {' '.join(f'{it:.3f}' for it in same)} {(step + 1) * BATCH / spent:.0f} tokens/s {spent:.0f} s",
                flush=True,
            )
        if step % 100 == 99 or step == steps - 1:
            torch.save(head.state_dict(), WORK / f"{name}.pt")


def weights_of(name: str) -> dict[str, np.ndarray]:
    stored: dict[str, Tensor] = torch.load(WORK / f"{name}.pt", map_location="cpu")
    return {inner: weight.float().numpy() for inner, weight in stored.items()}


def layer_of(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """What `export.BLOCK_NAMES` knows of one layer."""
    return {name: weights[prefix + inner] for inner, name in BLOCK_NAMES.items() if prefix + inner in weights}


def interleaved(matrix: np.ndarray) -> np.ndarray:
    """Rows of a query or key matrix for rotary positions in pairs of neighbours, which llama.cpp has for EAGLE-3."""
    halves = matrix.reshape(SHAPE.heads, 2, SHAPE.head_dim // 2, -1)
    return halves.transpose(0, 2, 1, 3).reshape(matrix.shape)


def eagle3() -> dict[str, np.ndarray]:
    weights = weights_of("eagle3")
    layer = layer_of(weights, "") | {
        "attn_norm.weight": weights["token_norm"],
        "attn_norm_2.weight": weights["state_norm"],
    }
    for name in ("attn_q.weight", "attn_k.weight"):
        layer[name] = interleaved(layer[name])
    return {"fc.weight": unscaled(weights["joint.weight"], SIZES[1:]), "output_norm.weight": weights["norm"]} | {
        f"blk.0.{name}": weight for name, weight in layer.items()
    }


def dflash() -> dict[str, np.ndarray]:
    weights = weights_of("dflash")
    found = {
        "fc.weight": unscaled(weights["joint.weight"], SIZES[:3]),
        "enc.output_norm.weight": weights["state_norm"],
        "output_norm.weight": weights["norm"],
    }
    for at in range(DFLASH_LAYERS):
        found |= {f"blk.{at}.{name}": weight for name, weight in layer_of(weights, f"layers.{at}.").items()}
    return found


def unscaled(matrix: np.ndarray, sizes: Sequence[float]) -> np.ndarray:
    return matrix / np.repeat(np.array(sizes, np.float32), SHAPE.hidden)


def write_draft(name: str, tensors: dict[str, np.ndarray], target_layers: Sequence[int]) -> dict[str, Any]:
    """A draft file without a vocabulary's matrices: llama.cpp takes those of the target."""
    layers = 1 + max(int(it.split(".")[1]) for it in tensors if it.startswith("blk."))
    path = SHIPPED / f"hybrid-{name}.gguf"
    writer = gguf.GGUFWriter(path, name)
    core = replace(BASE, name=f"hybrid-{name}", shape=replace(SHAPE, layers=layers), quantization="Q8_0")
    write_metadata(writer, core)
    writer.add_rope_dimension_count(SHAPE.head_dim)
    writer.add_array(f"{name}.target_layers", target_layers)
    if name == "eagle3":
        writer.add_uint32("eagle3.target_hidden_size", SHAPE.hidden)
    else:
        writer.add_uint32("dflash.block_size", BLOCK)
        writer.add_uint32("tokenizer.ggml.mask_token_id", MASK_TOKEN)
    copy_fields(writer, {"tokenizer."})
    parameters = 0
    for inner, weight in tensors.items():
        data, kind = quantized(inner, weight, "Q8_0")
        writer.add_tensor(inner, data, raw_dtype=kind)
        parameters += weight.size
    close(writer)
    described = replace(core, seed=SEEDS[name], tokens=TOKENS)
    return manifest_entry(path, described, core.name, "head", parameters) | {"architecture": name}


def write_mtp() -> dict[str, Any]:
    """`hybrid.gguf` as it is, and behind its layers the block of the head, with experts that add nothing as in all."""
    weights = weights_of("mtp")
    named = {f"blocks.0.{inner}": weight for inner, weight in weights.items()}
    shared = {part: weights[f"ffn.{part}.weight"] for part in ("gate", "up", "down")}
    rng = np.random.default_rng(SEEDS["mtp"])
    block = full_attention(named, 0, BASE) | feed_forward(rng, SHAPE.hidden, shared, gguf.GGMLQuantizationType.Q8_0)
    for inner, name in (("token_norm", "enorm"), ("state_norm", "hnorm"), ("norm", "shared_head_norm")):
        block[f"nextn.{name}.weight"] = (weights[inner], gguf.GGMLQuantizationType.F32)
    block["nextn.eh_proj.weight"] = (weights["joint.weight"], gguf.GGMLQuantizationType.Q8_0)

    path = SHIPPED / "hybrid.gguf"
    reader = gguf.GGUFReader(path)
    old = {tensor.name: (np.array(tensor.data), tensor.tensor_type) for tensor in reader.tensors}
    layers = SHAPE.layers * INTERVAL
    changed = {"block_count": layers + 1, "nextn_predict_layers": 1}
    writer = gguf.GGUFWriter(path, "qwen35moe")
    copy_fields(writer, {"general.", "qwen35moe.", "tokenizer."}, but={f"qwen35moe.{key}" for key in changed})
    for key, value in changed.items():
        writer.add_uint32(f"qwen35moe.{key}", value)
    parameters = 0
    for tensor in reader.tensors:
        if not tensor.name.startswith(f"blk.{layers}."):
            writer.add_tensor(tensor.name, old[tensor.name][0], raw_dtype=old[tensor.name][1])
            parameters += int(tensor.n_elements)
    for name, (weight, kind) in block.items():
        writer.add_tensor(f"blk.{layers}.{name}", gguf.quantize(weight.astype(np.float32), kind), raw_dtype=kind)
        parameters += weight.size
    close(writer)
    described = replace(BASE, quantization="Q8_0", seed=SEED)
    return manifest_entry(path, described, "hybrid", "target", parameters) | {"architecture": "qwen35moe"}


def copy_fields(writer: gguf.GGUFWriter, beginnings: set[str], but: Collection[str] = ()) -> None:
    """What the hybrid's file says under keys that begin so."""
    for key, field in gguf.GGUFReader(SHIPPED / "hybrid.gguf").fields.items():
        if key.startswith(tuple(beginnings)) and key not in {"general.architecture", *but}:
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("name", choices=SEEDS)
    commands.add_parser("export")
    chosen = parser.parse_args()
    if chosen.command == "train":
        train(chosen.name)
        return
    trained = tuple((layer + 1) * INTERVAL for layer in range(SHAPE.layers))
    update_manifest(
        [write_mtp(), write_draft("eagle3", eagle3(), trained), write_draft("dflash", dflash(), (0, *trained[:2]))]
    )


if __name__ == "__main__":
    main()
