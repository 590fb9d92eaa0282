"""Which tokens of a text are scored, and the perplexity that follows: as llama.cpp's `llama-perplexity` has it.

Without a stride the text is cut into windows of C tokens. The first C // 2 tokens of a window only give context; after
each token from there on, the next one is scored. If the model wants texts to begin with a special token, it replaces
each window's first token. With a stride S, each window begins S tokens after the one before, and its last S tokens are
scored. The tool adds S // 2 to the context and rounds up to a multiple of 256; no such window begins with the special
token.

With v_1 ... v_n the surprises (-ln of the probability that the model gave to the token that came):

    perplexity   exp(mean v)
    +/-          perplexity * sqrt((mean v^2 - (mean v)^2) / (n - 1)), by the tool: tokens taken for independent
    interval     exp of Student's interval over the windows' means
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.estimates import student_geometric
from specmeter.record import Estimate

_CELLS = 256
"""llama.cpp rounds contexts up to a multiple of this."""


@dataclass(frozen=True)
class Windows:
    """Where the windows of a text lie. Window i holds the tokens from i * step on."""

    count: int
    length: int
    """Tokens of a window."""
    step: int
    """From the beginning of one window to that of the next."""
    first: int
    """Place within a window of the first token after which one is scored; the last such place is length - 2."""

    @property
    def scored(self) -> int:
        """Scored tokens of one window."""
        return self.length - 1 - self.first


def window_length(context: int, stride: int) -> int:
    """Tokens of a window for a context that was asked for."""
    return context if not stride else -(-(context + stride // 2) // _CELLS) * _CELLS


def windows_of(tokens: int, context: int, stride: int = 0) -> Windows:
    """The windows of a text of `tokens` tokens.

    Raises `UsageError` for a context below 16, a stride that does not fit into a window, and a text too short for one.
    """
    if context < 16:
        raise UsageError(f"--context: windows of {context} tokens are too short", fix="use --context 16 or more")
    length = window_length(context, stride)
    if not 0 <= stride < length:
        raise UsageError(
            f"a stride of {stride} does not fit in windows of {length} tokens", fix=f"use one below {context}"
        )
    count = tokens // length if not stride else -(-max(0, tokens - length) // stride)
    if count < 1:
        raise UsageError(
            f"the text has {tokens} tokens; one window needs {length}{' and one more' if stride else ''}",
            fix="give a longer text, or a smaller --context",
        )
    return Windows(count, length, stride or length, length - stride - 1 if stride else length // 2)


def perplexity(surprise: Sequence[float], scored: int, *, level: float = 0.95) -> Estimate:
    """Perplexity of windows whose mean surprises are given, each over `scored` tokens, with the windows as units.

    One window, or windows that do not vary, have no interval. Raises `UsageError` for no windows and for values that
    are not finite.
    """
    values = np.asarray(surprise, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        raise UsageError("the model gave no usable probabilities", fix="check the model file")
    n = len(values)
    tokens = f"mean surprise over {n * scored} tokens in {n} windows"
    return student_geometric(values, "1", f"{tokens}; Student t", alone=f"{tokens}; no interval", level=level)


def token_error(total: float, squares: float, n: int) -> float | None:
    """What the native tool prints behind `+/-`, from sums over n tokens of surprise and of its square.

    None where it has none: for fewer than two tokens, or when all are equally likely.
    """
    mean = total / n
    variance = squares / n - mean * mean
    if n < 2 or variance <= 0:
        return None
    return math.exp(mean) * math.sqrt(variance / (n - 1))


def relative(ours: Sequence[float], theirs: Sequence[float], scored: int, *, level: float = 0.95) -> Estimate:
    """Perplexity over that of another model on the same windows: paired, so that hard windows weigh on both.

    `ours` and `theirs` are mean surprises by window. Raises `UsageError` when the windows are not the same number.
    """
    if len(ours) != len(theirs) or not len(ours):
        raise UsageError("these perplexities use different windows", fix="measure both with the same text and context")
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return perplexity(difference.tolist(), scored, level=level).model_copy(
        update={"unit": "x", "method": f"paired over {len(difference)} windows; Student t"}
    )
