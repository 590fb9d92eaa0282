"""Times of prompts and of generations at given depths, in this process: what `llama-bench` calls pp and tg.

Per depth, the tokens before are put into memory once, untimed; then each test runs from there and is forgotten again.
Prompts are read in batches, logits of the last token only; generations go token by token, each with its logits.
Nothing is sampled: these are rates of the model, not of a request.

Tokens are those of a text, from its beginning and around again. `llama-bench` draws them at random; which experts an
MoE chooses depends on them, and text is what a model is used for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.quality import SpeedTest
from specmeter.errors import UsageError
from specmeter.record import EngineSettings, Record

if TYPE_CHECKING:
    from specmeter.llama_binding.context import Context


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
