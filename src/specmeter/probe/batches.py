"""T(b, n): times of one forward over b sequences of n tokens each, and the experts that such a forward reads.

As many sequences as the largest b are put into memory once, each at a place of its own in the text, `depth` tokens
deep. A round times every b with every n, in an order drawn anew: one forward that is not timed (llama.cpp builds its
graph anew), the next one along the texts, and all is cut back. From round to round other sequences take part.

Sequences lie in streams of their own, as in a server with several slots: each attends to its own text only. llama.cpp
joins such sequences in one forward only where their numbers are consecutive and they have equally many tokens; so here
they are and have. (T(2, 1) of a bench model took 66.7 ms with scattered numbers and 27.6 ms with consecutive ones.)

The experts of b texts are not read again: from those of one text (`routing`), b windows of n tokens are drawn from all
over it, and their union is counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from specmeter.errors import UsageError
from specmeter.numbers.estimates import student_mean
from specmeter.numbers.stats import median_estimate
from specmeter.probe.sweep import MOST_TOKENS, Place
from specmeter.record import BatchPoint, EngineSettings, Record

if TYPE_CHECKING:
    from specmeter.llama_binding.context import Context
    from specmeter.probe.routing import Routing
    from specmeter.record import Estimate

MOST_SEQUENCES = 256
"""llama.cpp's own limit."""
TOKENS = (1, 2, 3, 5, 9)
"""n that are timed with every b, unless others are asked for."""
_UBATCH = 512
"""Tokens that llama.cpp computes at once unless told otherwise; longer forwards are several, and not measured."""
_DRAWS = 12
"""Forwards that a union of experts is the mean over."""
_CELLS = 256

Shape = tuple[int, int]
"""(b, n)"""


class BatchSweep(Record):
    """What is to be measured; `specmeter.probe.child` reads it."""

    target: str
    """Path of the model file."""
    settings: EngineSettings
    """Its context is that of one sequence."""
    sequences: tuple[Annotated[int, Field(ge=1, le=MOST_SEQUENCES)], ...]
    tokens: tuple[Annotated[int, Field(ge=1, le=MOST_TOKENS)], ...]
    depth: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    seed: int
    text: str


class BatchSamples(Record):
    """What was measured."""

    shapes: tuple[Shape, ...]
    ms: tuple[tuple[float, ...], ...]
    """Of each shape, ms of each round."""
    unified: bool
    """Whether all sequences lay in one memory."""


def shapes(sequences: Sequence[int], tokens: Sequence[int], ubatch: int | None) -> list[Shape]:
    """(b, n) that llama.cpp computes at once, ascending."""
    most = ubatch or _UBATCH
    return [(b, n) for b in sorted(set(sequences)) for n in sorted(set(tokens)) if b * n <= most]


def sweep_batches(order: BatchSweep, done: Callable[[int], None]) -> BatchSamples:
    """Measure; calls `done` with the number of rounds that are complete.

    Raises `UsageError` for a text that is too short or shapes that are too large, `EngineError` when llama.cpp fails.
    """
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.model import Model

    asked = shapes(order.sequences, order.tokens, order.settings.ubatch)
    if not asked:
        raise UsageError("no number of sequences and tokens is small enough for one forward", fix="lower --batch")
    most, longest = max(b for b, _ in asked), 2 * max(n for _, n in asked)
    rows = max(b * n for b, n in asked)
    each = -(-(order.depth + longest) // _CELLS) * _CELLS
    settings = order.settings.model_copy(
        update={"context": most * each, "batch": max(rows, order.settings.batch or 2048, order.depth)}
    )
    times: dict[Shape, list[float]] = {shape: [] for shape in asked}
    rng = np.random.default_rng(order.seed)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(Model(Path(order.target), gpu_layers=settings.gpu_layers, devices=settings.devices))
        text = model.tokenize(order.text, add_special=False, parse_special=False)
        needed = order.depth + longest
        if len(text) < needed:
            raise UsageError(
                f"the text has {len(text)} tokens, {needed} are needed for each sequence",
                fix="give a longer one with --text, or lower --depth or --tokens",
            )
        memory = stack.enter_context(
            Context(model, settings, threads=settings.threads or 1, rows=rows, sequences=most, unified=False)
        )
        starts = [int(at) for at in np.linspace(0, len(text) - needed, most)]
        for sequence, start in zip(memory.sequences, starts, strict=True):
            sequence.extend(text[start : start + order.depth])
        places = [Place(sequence) for sequence in memory.sequences]
        ahead = [text[start + order.depth : start + needed] for start in starts]
        for index in range(order.rounds + 1):
            turns: list[int] = rng.permutation(len(asked)).tolist()
            for b, n in (asked[turn] for turn in turns):
                first = index * b % (most - b + 1)
                ms = _timed(memory, range(first, first + b), ahead, n)
                for number in range(first, first + b):
                    places[number].go_back()
                if index:
                    times[b, n].append(ms)
            done(index)
        unified = memory.unified
    return BatchSamples(shapes=tuple(asked), ms=tuple(tuple(times[shape]) for shape in asked), unified=unified)


def _timed(memory: Context, numbers: Sequence[int], ahead: Sequence[Sequence[int]], n: int) -> float:
    """ms of a forward over n tokens of each of these sequences, after one that is not timed."""
    from specmeter.llama_binding.context import Forward

    took = 0.0
    for start in (0, n):
        forwards = [Forward(memory.sequences[it], ahead[it][start : start + n], "all") for it in numbers]
        started = time.perf_counter()
        memory.decode_together(forwards)
        took = time.perf_counter() - started
    return 1e3 * took


def batch_points(samples: BatchSamples, depth: int, routing: Routing | None) -> tuple[BatchPoint, ...]:
    """What was measured, each b with its n ascending; with unions where the experts of a text are given."""
    unions: Mapping[Shape, Estimate] = {} if routing is None else batch_unions(routing, samples.shapes)
    return tuple(
        BatchPoint(
            sequences=b,
            tokens=n,
            depth=depth,
            ms=median_estimate(ms, unit="ms", of="rounds"),
            union=unions.get((b, n)),
        )
        for (b, n), ms in zip(samples.shapes, samples.ms, strict=True)
    )


def batch_unions(routing: Routing, asked: Sequence[Shape], seed: int = 1) -> dict[Shape, Estimate]:
    """Distinct experts of a layer that forwards over b texts of n tokens each read, mean over layers.

    Windows are drawn from all segments, each within one; the text is short beside what many sequences read, so large
    shapes share tokens from draw to draw, and their intervals are too narrow. Windows longer than a segment are left
    out.
    """
    rng = np.random.default_rng(seed)
    begins = np.cumsum((0, *routing.segments[:-1]))
    found: dict[Shape, Estimate] = {}
    for b, n in asked:
        able = [(int(at), length) for at, length in zip(begins, routing.segments, strict=True) if length >= n]
        if not able:
            continue
        # Windows that begin a whole number of windows apart do not overlap; only where these run out they come again.
        windows = np.array([at + n * place for at, length in able for place in range(length // n)])
        means: list[float] = []
        for _ in range(_DRAWS):
            starts = rng.choice(windows, size=b, replace=b > len(windows))
            tokens = (starts[:, np.newaxis] + np.arange(n)).ravel()
            means.append(float(np.mean([len(np.unique(layer[tokens])) for layer in routing.ids])))
        method = f"mean over {_DRAWS} draws of {b} places of the text, and layers"
        found[b, n] = student_mean(
            means, "experts", f"{method}; Student t over draws", alone=f"{method}; no interval", of="draws"
        )
    return found
