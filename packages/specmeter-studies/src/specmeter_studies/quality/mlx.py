"""Rates of models in MLX's format, by `mlx_lm`'s own generation loop in a process of its own.

`mlx_lm.generate.generate_step(prompt, model, max_tokens=..., prompt_cache=...)` reads a prompt of token ids and yields
(token, log probabilities), one after another, greedily and without an end. Two times follow:

    prompt     from the call to the first token
    generate   from the first token to the last, behind a prompt of one token

Tokens of prompts are drawn from the seed, as `llama-bench` and `mlx_lm.benchmark` draw theirs: a folder need not even
have a tokenizer. Before anything is timed, the longest prompt is read and some tokens are generated: MLX compiles
kernels at their first use, and would be timed while it does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specmeter.analysis.quality import SpeedTest
from specmeter.errors import EngineError, EngineStartError, UsageError
from specmeter.record import EngineIdentity, Record
from specmeter_studies.quality.mlx_folder import read_folder
from specmeter_studies.quality.timing import Times

_WARM_UP = 16
"""Tokens generated before anything is timed."""


class MlxTiming(Record):
    """What is to be timed once; `specmeter_studies.quality.child` does it."""

    folder: str
    tests: tuple[SpeedTest, ...]
    seed: int
    """Of the tests' order and of the prompts' tokens."""


def missing() -> str:
    """Why MLX cannot be used here; empty where it can. Nothing is loaded."""
    absent = [name for name in ("mlx", "mlx_lm") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed (extra `mlx`: Apple Silicon, or Linux's CPU)" if absent else ""


@cache
def identify() -> EngineIdentity:
    """Which MLX is installed, by its packages' versions and the library's checksum; it is not loaded."""
    from specmeter.cache import file_sha256

    def of(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "unknown"

    spec = find_spec("mlx_lm")
    binary = Path(spec.origin).absolute() if spec is not None and spec.origin else None
    said = f"mlx_lm {of('mlx-lm')} on mlx {of('mlx')}"
    return EngineIdentity(
        kind="mlx",
        version=said,
        build=said,
        binary=str(binary or ""),
        binary_sha256=file_sha256(binary) if binary else "",
    )


def time_tests(order: MlxTiming) -> Times:
    """Time every test once, after a warm-up, in an order drawn from the seed.

    Raises `EngineStartError` when MLX or the model cannot be loaded, `EngineError` when it generates too little.
    """
    loop = _Loop(Path(order.folder))
    rng = random.Random(order.seed)
    longest = max(test.depth + test.tokens for test in order.tests)
    tokens = [rng.randrange(loop.vocabulary) for _ in range(longest + 1)]
    loop.times((), tokens[: max(test.tokens for test in order.tests)], _WARM_UP)
    places = list(range(len(order.tests)))
    rng.shuffle(places)
    ms = {place: _timed(loop, tokens, order.tests[place]) for place in places}
    return Times(ms=tuple(ms[place] for place in range(len(order.tests))))


class _Loop:
    """A loaded model and `mlx_lm`'s loop over it."""

    def __init__(self, folder: Path) -> None:
        self.vocabulary = read_folder(folder).vocabulary
        if not self.vocabulary:
            raise UsageError(f"{folder}: config.json has no vocab_size", fix="use a model that mlx_lm converted")
        try:
            self._mx: Any = import_module("mlx.core")
            generate: Any = import_module("mlx_lm.generate")
            utils: Any = import_module("mlx_lm.utils")
            caches: Any = import_module("mlx_lm.models.cache")
            self._step: Any = generate.generate_step
            self._make_cache: Any = caches.make_prompt_cache
            self._model: Any = utils.load_model(folder)[0]
        except Exception as error:  # whatever MLX and a model's own code raise
            raise EngineStartError(
                f"{folder}: mlx_lm cannot load this model ({type(error).__name__}: {str(error)[:500]})",
                fix="try `mlx_lm.generate --model` with the same folder, or update mlx-lm",
            ) from error

    def times(self, before: Sequence[int], prompt: Sequence[int], tokens: int) -> tuple[float, float]:
        """(ms to the first token behind `prompt`, ms for `tokens` more); `before` is read first, untimed.

        Raises `EngineError` when fewer tokens come.
        """
        memory: Any = self._make_cache(self._model)
        if before:
            self._generate(before, 0, memory)  # reads the prompt and nothing else
        moments = self._generate(prompt, tokens + 1, memory)
        if len(moments) < tokens + 2:
            raise EngineError(f"mlx_lm generated {len(moments) - 1} of {tokens + 1} tokens", fix="update mlx-lm")
        return (moments[1] - moments[0]) * 1e3, (moments[-1] - moments[1]) * 1e3

    def _generate(self, prompt: Sequence[int], tokens: int, memory: Any) -> list[float]:
        """When it began, and when each token came, in seconds."""
        array: Any = self._mx.array(list(prompt))
        moments = [time.perf_counter()]
        try:
            steps = self._step(array, self._model, max_tokens=tokens, prompt_cache=memory)
            moments.extend(time.perf_counter() for _ in steps)
        except Exception as error:  # as above
            raise EngineError(
                f"mlx_lm failed while generating ({type(error).__name__}: {str(error)[:500]})",
                fix="try the same model with `mlx_lm.generate`",
            ) from error
        return moments


def _timed(loop: _Loop, tokens: Sequence[int], test: SpeedTest) -> float:
    """ms of one test."""
    before, behind = tokens[: test.depth], tokens[test.depth :]
    if test.kind == "prompt":
        return loop.times(before, behind[: test.tokens], 0)[0]
    return loop.times(before, behind[:1], test.tokens)[1]
