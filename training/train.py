"""Train one core: `python train.py NAME`. Writes `work/NAME.pt` and a line of progress every 50 steps."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from cores import BY_NAME, CORES, Core
from model import Model
from optimizer import optimizers

WORK = Path(__file__).parent / "work"
WINDOW, LONG_WINDOW, LONG_SHARE = 512, 2048, 0.10
BALANCE_WEIGHT = 0.02
KEEP_EVERY = 200


def token_file(core: Core) -> Path:
    """The tokenized training text of a core's vocabulary."""
    return WORK / f"tokens-{core.shape.vocabulary}.npy"


def batch_at(stream: np.ndarray, start: int, tokens: int, window: int) -> torch.Tensor:
    """The stretch of text at `start` as rows of `window` tokens, each with the token that follows it."""
    piece = stream[start : start + tokens + 1].astype(np.int64)
    return torch.from_numpy(np.stack([piece[at : at + window + 1] for at in range(0, tokens, window)]))


def rate_at(step: int, steps: int) -> float:
    """Factor on the learning rates: a short rise, a plateau, and a straight fall over the last half."""
    return min(1.0, (step + 1) / 30, max(0.02, (steps - step) / (0.5 * steps)))


def train(core: Core, tokens: int) -> Model:
    """The trained model, in 32-bit, after the first `tokens` tokens of the training text."""
    torch.set_num_threads(1)
    torch.manual_seed(core.seed)
    model = Model(core.shape, core.seed)
    model.train()
    for block in model.blocks:
        block.compile(dynamic=False)
    chosen = optimizers(model, core.matrix_rate, core.other_rate)
    base = [[group["lr"] for group in o.param_groups] for o in chosen]
    stream = np.load(token_file(core), mmap_mode="r")
    steps = tokens // core.batch_tokens
    begun = time.monotonic()
    recent: list[float] = []
    for step in range(steps):
        window = WINDOW if step < steps * (1 - LONG_SHARE) else LONG_WINDOW
        batch = batch_at(stream, step * core.batch_tokens, core.batch_tokens, window)
        factor = rate_at(step, steps)
        for optimizer, rates in zip(chosen, base, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        logits, balance = model(batch[:, :-1], torch.bfloat16)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        (loss + BALANCE_WEIGHT * balance).backward()
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        recent.append(loss.item())
        if step % 50 == 49 or step == steps - 1:
            spent = time.monotonic() - begun
            mean = sum(recent) / len(recent)
            recent.clear()
            print(
                f"{core.name} step {step + 1}/{steps} loss {mean:.4f} balance {balance.item():.3f} "
                f"{(step + 1) * core.batch_tokens / spent:.0f} tokens/s {spent:.0f} s",
                flush=True,
            )
        if step % KEEP_EVERY == KEEP_EVERY - 1:
            save(core, model)
    return model


def save(core: Core, model: Model) -> None:
    """Write the weights; an unfinished training can be looked at with `export.py` while it runs."""
    path = WORK / f"{core.name}.pt"
    torch.save({name: weight.detach() for name, weight in model.state_dict().items()}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[core.name for core in CORES])
    parser.add_argument("--tokens", type=int, help="train on this many tokens instead of the core's own number")
    chosen = parser.parse_args()
    core = BY_NAME[chosen.name]
    model = train(core, chosen.tokens or core.tokens)
    save(core, model)


if __name__ == "__main__":
    main()
