"""The surprise of a text's tokens, window by window, in this process through llama.cpp's C interface.

The text that a perplexity is of: a file of the user's, or the one that comes with specmeter.

Times of prompts and of generations at given depths, in this process: what `llama-bench` calls pp and tg.

Per depth, the tokens before are put into memory once, untimed; then each test runs from there and is forgotten again.
Prompts are read in batches, logits of the last token only; generations go token by token, each with its logits.
Nothing is sampled: these are rates of the model, not of a request.

Tokens are those of a text, from its beginning and around again. `llama-bench` draws them at random; which experts an
MoE chooses depends on them, and text is what a model is used for.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from specmeter.analysis.quality import SpeedTest, TextIdentity, window_length, windows_of
from specmeter.errors import EngineError, UsageError
from specmeter.files import read_named
from specmeter.record import EngineSettings, Record
from specmeter.text import size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.llama_binding.context import Context


_BATCH = 2048
_ROW_BYTES = 128 * 2**20
"""Logits of one forward at most; llama.cpp holds them twice."""
_FEWEST_ROWS = 16


class Scoring(Record):
    """What is to be scored; `specmeter_studies.quality.child` does it."""

    model: str
    """Path of the file."""
    settings: EngineSettings
    """Context: the windows' length as it was asked for."""
    stride: Annotated[int, Field(ge=0)] = 0
    windows: Annotated[int, Field(ge=1)] | None = None
    """Score only so many windows from the beginning of the text; None: all."""
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
            f"{context.model.path}: llama.cpp computed logits that are not numbers",
            fix="the file is damaged or its numbers overflow; try another quantization",
        )
    return total, squares


def _rows(vocabulary: int, wanted: int) -> int:
    """Rows of logits of one forward: a vocabulary of 248k takes a megabyte for each."""
    return min(wanted, max(_FEWEST_ROWS, _ROW_BYTES // (4 * vocabulary)))


MOST_BYTES = 64 * 2**20
BUNDLED = "bench held-out text"


def read_text(path: Path | None) -> tuple[str, TextIdentity]:
    """The text and what it is; None: the held-out text of the bench language.

    The bytes are taken as they are, save for one line break at the very end, which `llama-perplexity --file` drops too.
    Raises `UsageError` when the file is missing, too large, empty or not UTF-8.
    """
    if path is None:
        from specmeter.workloads.texts import held_out_text

        return _identified(held_out_text(), BUNDLED, bundled=True)
    try:
        raw = read_named(path, MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--text {path}: cannot be read ({error.strerror or error})", fix="name a text file") from None
    if len(raw) > MOST_BYTES:
        raise UsageError(f"--text {path}: longer than {size(MOST_BYTES)}", fix="use a shorter text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--text {path}: is not UTF-8: byte {raw[error.start]:#04x} at position {error.start}",
            fix="save the file as UTF-8",
        ) from None
    if not text.strip():
        raise UsageError(f"--text {path}: is empty", fix="give a few pages of text")
    return _identified(text, path.name, bundled=False)


def _identified(text: str, name: str, *, bundled: bool) -> tuple[str, TextIdentity]:
    text = text.removesuffix("\n")
    raw = text.encode()
    sha256 = hashlib.sha256(raw).hexdigest()
    return text, TextIdentity(name=name, sha256=sha256, size_bytes=len(raw), bundled=bundled)


_WARM_UP = 8
"""Tokens generated before anything is timed."""


class Timing(Record):
    """What is to be timed once; `specmeter_studies.quality.child` does it."""

    model: str
    """Path of the file."""
    settings: EngineSettings
    """Its context is chosen by the tests."""
    tests: tuple[SpeedTest, ...]
    text: str
    seed: int
    """Of the tests' order."""


class Times(Record):
    """What was seen."""

    ms: tuple[float, ...]
    """Of each test, in the order that they were given in."""


def context_for(tests: Sequence[SpeedTest]) -> int:
    """Tokens that fit every test."""
    return max(16, max(test.depth + test.tokens for test in tests))


def time_tests(order: Timing) -> Times:
    """Time every test once, after a warm-up.

    Depths come in an order drawn from the seed, and the tests of a depth too. Raises `UsageError` for a text without
    tokens, `EngineError` when llama.cpp fails.
    """
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.model import Model

    settings = order.settings.model_copy(update={"context": context_for(order.tests)})
    rng = np.random.default_rng(order.seed)
    ms: dict[SpeedTest, float] = {}
    with (
        Model(Path(order.model), gpu_layers=settings.gpu_layers) as model,
        Context(model, settings, threads=settings.threads or 1, rows=1) as context,
    ):
        text = model.tokenize(order.text, add_special=True, parse_special=False)
        if not text:
            raise UsageError("the text has no tokens", fix="give another text")
        _warm_up(context, text, order.tests)
        for depth in rng.permutation(sorted({test.depth for test in order.tests})).tolist():
            context.cut(0)
            if depth:
                context.extend(_tokens(text, 0, depth))
            checkpoint = None if context.can_cut else context.save()
            here = [test for test in order.tests if test.depth == depth]
            for test in (here[int(place)] for place in rng.permutation(len(here))):
                ms[test] = _timed(context, text, test)
                if checkpoint is None or depth == 0:
                    context.cut(depth)
                else:
                    context.restore(checkpoint)
    return Times(ms=tuple(ms[test] for test in order.tests))


def _tokens(text: list[int], start: int, count: int) -> list[int]:
    return list(islice(cycle(text), start % len(text), start % len(text) + count))


def _timed(context: Context, text: list[int], test: SpeedTest) -> float:
    """ms of one test."""
    tokens = _tokens(text, test.depth, test.tokens)
    started = time.perf_counter()
    if test.kind == "prompt":
        context.extend(tokens)
    else:
        for token in tokens:
            context.decode((token,))
    return (time.perf_counter() - started) * 1e3


def _warm_up(context: Context, text: list[int], tests: Sequence[SpeedTest]) -> None:
    """Every weight is read and every graph built once."""
    prompts = [test.tokens for test in tests if test.kind == "prompt"]
    if prompts:
        context.extend(_tokens(text, 0, max(prompts)))
        context.cut(0)
    for token in _tokens(text, 0, min(_WARM_UP, context.capacity)):
        context.decode((token,))
    context.cut(0)
