"""Qwen3 in torch, dense and mixture-of-experts, small enough to train on one CPU core.

Every formula follows llama.cpp's graphs for `qwen3` and `qwen3moe`: normalisation before each half of a block, query
and key normalised per head, rotary positions in the "neox" order (first half with second half), SwiGLU, and one matrix
for input and output embeddings. For experts: softmax over all, the best k kept, their weights made to sum to one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cores import Shape

EPSILON = 1e-6


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight


def rotary(length: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines, one row per position."""
    half = shape.head_dim // 2
    frequency = shape.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q = nn.Linear(shape.hidden, width, bias=False)
        self.k = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm = nn.Parameter(torch.ones(shape.head_dim))
        self.k_norm = nn.Parameter(torch.ones(shape.head_dim))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        s = self.shape
        q = self.q(x).view(batch, length, s.heads, s.head_dim).transpose(1, 2)
        k = self.k(x).view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        v = self.v(x).view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        q = _rotate(_norm(q, self.q_norm), cos, sin).to(x.dtype) * (s.head_dim**-0.5)
        k = _rotate(_norm(k, self.k_norm), cos, sin).to(x.dtype)
        group = s.heads // s.kv_heads
        # Queries of one group stand under each other, so that no key or value is copied.
        q = q.reshape(batch, s.kv_heads, group * length, s.head_dim)
        scores = (q @ k.transpose(-1, -2)).view(batch, s.kv_heads, group, length, length)
        weights = (scores.float() + mask).softmax(-1).to(x.dtype)
        mixed = weights.view(batch, s.kv_heads, group * length, length) @ v
        mixed = mixed.view(batch, s.heads, length, s.head_dim).transpose(1, 2)
        return self.o(mixed.reshape(batch, length, s.heads * s.head_dim))


class DenseFfn(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.down(functional.silu(self.gate(x)) * self.up(x)), x.new_zeros(())


class ExpertFfn(nn.Module):
    """Many small SwiGLUs, of which each token uses `top_k`.

    While training, every expert has the same number of places, so that all of them are three batched products; a token
    that finds its expert full passes it by. The second result is the loss that keeps the experts evenly used.
    """

    capacity_factor = 1.5

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.experts, self.top_k = shape.experts, shape.top_k
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(shape.experts, shape.ffn, shape.hidden))
        self.up = nn.Parameter(torch.empty(shape.experts, shape.ffn, shape.hidden))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.ffn))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Chosen experts, their weights, and all probabilities."""
        chances = functional.linear(x.float(), self.router.weight.float()).softmax(-1)
        weights, chosen = chances.topk(self.top_k, -1)
        return chosen, weights / weights.sum(-1, keepdim=True), chances

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        with torch.autocast("cpu", enabled=False):
            chosen, weights, chances = self.route(x)
        tokens = x.shape[0]
        used = functional.one_hot(chosen.flatten(), self.experts)
        balance = self.experts * ((used.float().mean(0)) * chances.mean(0)).sum()
        wanted = self.capacity_factor * tokens * self.top_k / self.experts
        places = math.ceil(wanted) if self.training else int(used.sum(0).max())
        place = (used.cumsum(0) - 1).gather(1, chosen.flatten()[:, None]).squeeze(1)
        fits = place < places
        slot = torch.where(fits, chosen.flatten() * places + place, self.experts * places)
        owner = torch.arange(tokens, device=x.device).repeat_interleave(self.top_k)
        # One row more than there are places: tokens that do not fit meet there and are cut off.
        source = torch.zeros(self.experts * places + 1, dtype=torch.long).scatter(0, slot, owner)[:-1]
        packed = x[source].view(self.experts, places, -1)
        dtype = x.dtype
        inner = functional.silu(packed @ self.gate.to(dtype).transpose(1, 2)) * (
            packed @ self.up.to(dtype).transpose(1, 2)
        )
        out = (inner @ self.down.to(dtype).transpose(1, 2)).reshape(self.experts * places, -1)
        out = torch.cat((out, out.new_zeros(1, out.shape[1])))
        gathered = out[slot].view(tokens, self.top_k, -1)
        return (gathered * weights.to(dtype)[..., None]).sum(1).view(shape), balance


class Block(nn.Module):
    """One layer; the residual stream stays in 32-bit."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.Parameter(torch.ones(shape.hidden))
        self.ffn_norm = nn.Parameter(torch.ones(shape.hidden))
        self.attention = Attention(shape)
        self.ffn = ExpertFfn(shape) if shape.experts else DenseFfn(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        x = x + self.attention(_norm(x, self.attention_norm).to(dtype), cos, sin, mask)
        out, balance = self.ffn(_norm(x, self.ffn_norm).to(dtype))
        return x + out, balance


class Model(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        self._initialise(seed)

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.ndim < 2:
                    continue
                scale = 0.02 if "embedding" in name else weight.shape[-1] ** -0.5
                if name.endswith(("attention.o.weight", "ffn.down", "ffn.down.weight")):
                    scale /= math.sqrt(2 * self.shape.layers)
                weight.normal_(0.0, scale, generator=generator)

    def forward(self, tokens: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Logits, and the mean balance loss of the expert layers (zero for a dense model)."""
        length = tokens.shape[1]
        cos, sin = rotary(length, self.shape)
        mask = torch.full((length, length), -torch.inf).triu(1)
        x = self.embedding(tokens)
        balance = x.new_zeros(())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            for block in self.blocks:
                x, part = block(x, cos, sin, mask, dtype)
                balance = balance + part
            x = _norm(x, self.norm).to(dtype)
            logits = functional.linear(x, self.embedding.weight.to(dtype))
        return logits, balance / self.shape.layers
