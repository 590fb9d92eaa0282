"""Routers of twins: which experts a token chooses, in a model whose experts are all alike.

`random` takes random directions: what the hidden states have in common decides, so some experts get most tokens.

The others are fitted to the dense model's own hidden states h, read while it decodes a text. Per layer:

1. The rows of the router are orthogonal to the mean of h, so that no expert is preferred.
2. They are random in the whitened space of h: without correlation, logits of variance 1.
3. Slow or fast directions get more weight, by exp(l r) with the correlation r of a direction between neighbours. l is
   chosen so that the union of n consecutive tokens meets the wanted one.
4. A multiple of the mean is added to rows of experts that get too few tokens, until their loads are even. If even the
   slowest directions leave the union too large, some experts are preferred instead.

The wanted union is `theory.roofline.union_of_draws` with the share a of the router's name. It describes how the union
grows with n, in a layer of any number of experts.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.engines.process import Heard, default_threads, run_in_subprocess, serve
from specmeter.errors import EngineError
from specmeter.record import EngineSettings, Record
from specmeter.theory.roofline import union_of_draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Rows = NDArray[np.float32]

RANDOM = "random"
ROUTERS: Mapping[str, float] = {RANDOM: 0.0, "uniform": 1.0, "qwen3.6-35b-a3b": 0.52}
"""Name -> share a of the union: 1 is that of independent tokens. 0.52 fits those of Qwen3.6-35B-A3B within 11%:
22, 36 and 56 of 256 experts after 4, 8 and 16 tokens, 8 at a time. Unused by `random`."""

TOKENS = 768
"""Tokens of the text that a router is fitted to."""
_CHUNK = 64
_WINDOWS = (2, 5, 9, 17)
_DIRECTIONS = 128
"""Principal directions of h that rows are made of, at most."""
_STEEPEST = 40.0
_MOST_SKEW = 4.0
"""Of a preferred expert, in deviations of the logits."""
_HALVINGS = 8
_ROUNDS = 24
_LIMIT_S = 600.0
_FILE = "hidden.npz"


def random_router(layer: int, experts: int, width: int) -> Rows:
    """Random directions. Shape (experts, width)."""
    return (_random(layer).standard_normal((experts, width)) / np.sqrt(width)).astype(np.float32)


def calibrated(model: Path, text: str, experts: int, active: int, router: str) -> Mapping[int, Rows]:
    """Layer -> router of shape (experts, width), fitted to the hidden states of the dense model while it reads `text`.

    Raises `EngineError` when llama.cpp cannot read them.
    """
    with tempfile.TemporaryDirectory(prefix="specmeter-router-") as folder:
        run_in_subprocess(__name__, _Order(model=str(model), text=text), Path(folder), limit_s=_LIMIT_S)
        with np.load(Path(folder) / _FILE, allow_pickle=False) as archive:
            return {
                int(name): fitted_router(archive[name], experts, active, ROUTERS[router], _random(int(name)))
                for name in archive.files
            }


def fitted_router(hidden: Any, experts: int, active: int, share: float, random: np.random.Generator) -> Rows:
    """A router whose unions are those of `share` on these states (tokens, width), with loads as even as that allows.

    Where neighbours hardly differ the union stays smaller: they choose the same experts.
    """
    states: Floats = np.asarray(hidden, dtype=np.float64)
    if experts == active or len(states) <= max(_WINDOWS):
        return random.standard_normal((experts, states.shape[1])).astype(np.float32)
    mean = states.mean(axis=0)
    mean /= np.linalg.norm(mean) or 1.0
    centred = states - np.outer(states @ mean, mean)
    # The space of the largest principal directions, found by random sums of states (Halko et al., arXiv 0909.4061).
    space, _ = np.linalg.qr(centred.T @ random.standard_normal((len(states), _DIRECTIONS)))
    within = centred @ space
    squares, turned = np.linalg.eigh(within.T @ within / len(states))
    kept = int((squares > 1e-8 * squares[-1]).sum())
    whitening = space @ turned[:, -kept:] / np.sqrt(squares[-kept:])  # (width, kept)
    scores = centred @ whitening  # (tokens, kept): of variance 1
    neighbours = (scores[1:] * scores[:-1]).mean(axis=0)
    drawn = random.standard_normal((kept, experts))
    along = states @ mean

    preferred = random.standard_normal(experts)
    wanted = float(np.mean([np.log(union_of_draws(float(n), experts, active, share)) for n in _WINDOWS]))

    def made(slope: float, skew: float) -> tuple[float, Floats, Floats]:
        """(mean logarithm of the unions, rows, multiples of the mean)."""
        weights = np.exp(slope * (neighbours - (neighbours.max() if slope > 0 else neighbours.min())) / 2)
        rows = drawn * weights[:, None]
        rows /= np.linalg.norm(rows, axis=0)
        biases = _balanced(scores @ rows, along, active) + skew * preferred / (np.abs(along).mean() or 1.0)
        unions = _unions(scores @ rows + np.outer(along, biases), active)
        return float(np.mean(np.log(unions))), rows, biases

    def found(place: float) -> tuple[float, Floats, Floats]:
        """From the fastest directions (-1) over the slowest (1) to uneven loads (2): the union falls."""
        return made(_STEEPEST * min(place, 1.0), _MOST_SKEW * max(place - 1.0, 0.0))

    low, high = -1.0, 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle)[0] > wanted else (low, middle)
    _, rows, biases = found((low + high) / 2)
    return (whitening @ rows + np.outer(mean, biases)).T.astype(np.float32)


def _balanced(logits: Floats, along: Floats, active: int) -> Floats:
    """Multiples of the mean state, one per expert, that even out the loads."""
    experts = logits.shape[1]
    biases = np.zeros(experts)
    scale = float(np.abs(along).mean()) or 1.0
    for step in np.geomspace(1.0, 0.02, _ROUNDS):
        shares = np.bincount(_chosen(logits + np.outer(along, biases), active).ravel(), minlength=experts)
        load = shares / shares.mean()
        biases -= 0.3 * step * np.clip(load - 1, -1, 1) / scale
    return biases


def _chosen(logits: Floats, active: int) -> NDArray[np.intp]:
    """Experts with the largest logits. Shape (tokens, active)."""
    return np.argpartition(logits, -active, axis=1)[:, -active:]


def _unions(logits: Floats, active: int) -> list[float]:
    """Mean number of different experts in windows of `_WINDOWS` consecutive tokens."""
    taken = np.zeros(logits.shape, dtype=bool)
    np.put_along_axis(taken, _chosen(logits, active), True, axis=1)
    sums = np.vstack([np.zeros(logits.shape[1], dtype=np.int64), taken.cumsum(axis=0)])
    return [float(((sums[n:] - sums[:-n]) > 0).sum(axis=1).mean()) for n in _WINDOWS]


def _random(layer: int) -> np.random.Generator:
    seed = hashlib.sha256(f"specmeter twin, layer {layer}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(seed[:8], "little")))


# --- in a process of its own -----------------------------------------------------------------------------------------


class _Order(Record):
    model: str
    text: str


def _read_hidden(given: str, folder: Path, heard: Heard) -> None:
    from specmeter.llama_binding.context import Context, LayerTap
    from specmeter.llama_binding.model import Model

    order = _Order.model_validate_json(given)
    path = Path(order.model)
    tap = LayerTap("ffn_norm", np.float32, np.float16)
    settings = EngineSettings(context=TOKENS + _CHUNK)
    with Model(path) as model:
        tokens = model.tokenize(order.text, add_special=False, parse_special=False)[:TOKENS]
        with Context(model, settings, threads=default_threads(), rows=_CHUNK, tap=tap) as context:
            for start in range(0, len(tokens), _CHUNK):
                context.decode(tokens[start : start + _CHUNK], "all")
                heard(start + _CHUNK, TOKENS)
    found = tap.take()
    if not found:
        raise EngineError(f"{path}: llama.cpp shows no hidden states of this model", fix="use --router random")
    arrays: Any = {str(layer): rows for layer, rows in found.items()}
    np.savez(folder / _FILE, **arrays)


if __name__ == "__main__":
    sys.exit(serve(_read_hidden))
