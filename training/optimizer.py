"""Muon for the matrices of the blocks, AdamW for everything else.

Muon replaces the momentum of a matrix by the nearest matrix whose singular values are all about one (a few
Newton-Schulz steps), so that rare directions learn as fast as common ones. On these small models it needs roughly half
the tokens that AdamW needs, which on a CPU is the difference between one hour and two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(-1, -2) if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal; three-dimensional parameters are stacks of matrices (experts)."""

    def __init__(self, parameters: list[nn.Parameter], rate: float, momentum: float = 0.95, decay: float = 0.01):
        super().__init__(parameters, {"lr": rate, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                average = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                direction = _orthogonal(weight.grad.lerp(average, group["momentum"]))
                scale = max(1.0, weight.shape[-2] / weight.shape[-1]) ** 0.5
                weight.mul_(1 - group["lr"] * group["decay"])
                weight.add_(direction.to(weight.dtype), alpha=-group["lr"] * scale)


def optimizers(model: nn.Module, matrix_rate: float, other_rate: float) -> list[torch.optim.Optimizer]:
    """One optimizer for the matrices of the blocks, one for embeddings, norms and routers."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        inside = weight.ndim >= 2 and "embedding" not in name and "router" not in name
        (matrices if inside else others).append(weight)
    return [
        Muon(matrices, matrix_rate),
        torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
