"""The surprise of a text's tokens, window by window, in this process through llama.cpp's C interface."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from specmeter.analysis.perplexity import window_length, windows_of
from specmeter.errors import EngineError
from specmeter.record import EngineSettings, Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.llama_binding.context import Context


_BATCH = 2048
_ROW_BYTES = 128 * 2**20
"""Logits of one forward at most; llama.cpp holds them twice."""
_MIN_ROWS = 16


class Scoring(Record):
    """What is to be scored; `specmeter_studies.quality.child` does it."""

    model: str
    """Path of the file."""
    settings: EngineSettings
    """Context: the windows' length as it was asked for."""
    stride: Annotated[int, Field(ge=0)] = 0
    windows: Annotated[int, Field(ge=1)] | None = None
    """Score only this many windows from the beginning of the text; None: all."""
    text: str


class Scores(Record):
    """What was seen."""

    text_tokens: int
    tokens_sha256: str
    train_context: int
    begins_with_bos: bool
    """Whether windows began with the token that begins texts."""
    wants_bos: bool
    """Whether the model asks for it."""
    window_tokens: int
    scored: int
    """Tokens of each window."""
    surprise: tuple[float, ...]
    """Sum over each window's scored tokens, in nats."""
    squares: tuple[float, ...]
    """Sum of squares."""


def score(order: Scoring, done: Callable[[int, int], None]) -> Scores:
    """Score the text; `done(windows scored, windows in all)` is called after each window.

    Raises `UsageError` for a text too short for one window, `EngineError` when llama.cpp fails or computes no numbers.
    """
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.model import Model

    settings = order.settings
    with Model(Path(order.model), gpu_layers=settings.gpu_layers) as model:
        tokens = model.tokenize(order.text, add_special=True, parse_special=False)
        windows = windows_of(len(tokens), settings.full_context, order.stride)
        bos = model.bos
        batch = settings.batch or min(_BATCH, windows.length)
        rows = _rows(model.vocabulary_size, min(batch, windows.scored))
        exact = settings.model_copy(
            update={"context": window_length(settings.full_context, order.stride), "batch": max(batch, rows)}
        )
        sums: list[tuple[float, float]] = []
        with Context(model, exact, threads=settings.threads or 1, rows=rows) as context:
            count = min(windows.count, order.windows or windows.count)
            for index in range(count):
                start = index * windows.step
                window = tokens[start : start + windows.length]
                following = np.array(window[windows.first + 1 :], dtype=np.int64)
                if bos is not None and not order.stride:
                    window[0] = bos
                sums.append(_surprise(context, window, windows.first, following))
                done(index + 1, count)
        return Scores(
            text_tokens=len(tokens),
            tokens_sha256=hashlib.sha256(np.array(tokens, dtype="<i4").tobytes()).hexdigest(),
            train_context=model.training_context,
            begins_with_bos=bos is not None and not order.stride,
            wants_bos=bos is not None,
            window_tokens=windows.length,
            scored=windows.scored,
            surprise=tuple(total for total, _ in sums),
            squares=tuple(square for _, square in sums),
        )


def surprises(logits: NDArray[np.float32], following: NDArray[np.int64]) -> NDArray[np.float64]:
    """-ln of the probability of the token that came, for each row; `logits`, shape (n, vocabulary), is overwritten.

    As in the native tool: exponentials in 32-bit, their sum in 64-bit.
    """
    places = np.arange(len(following))
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[places, following].astype(np.float64)
    np.exp(logits, out=logits)
    return np.log(logits.sum(axis=1, dtype=np.float64)) - chosen


def _surprise(context: Context, window: list[int], first: int, following: NDArray[np.int64]) -> tuple[float, float]:
    """(sum, sum of squares) of the surprise at `following`, which come after window[first], window[first + 1], ..."""
    context.cut(0)
    for start in range(0, first, context.batch_size):
        context.decode(window[start : min(start + context.batch_size, first)], "none")
    total = squares = 0.0
    for start in range(0, len(following), context.rows):
        behind = following[start : start + context.rows]
        begin = first + start
        values = surprises(context.decode(window[begin : begin + len(behind)], "all"), behind)
        total += float(values.sum())
        squares += float(np.square(values).sum())
    if not np.isfinite(squares):
        raise EngineError(
            f"{context.model.path}: llama.cpp computed logits that are not finite numbers",
            fix="try another quantization: the file is damaged, or its values overflow",
        )
    return total, squares


def _rows(vocabulary: int, wanted: int) -> int:
    """Rows of logits of one forward: a vocabulary of 248k takes a megabyte for each."""
    return min(wanted, max(_MIN_ROWS, _ROW_BYTES // (4 * vocabulary)))
