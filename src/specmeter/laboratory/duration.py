"""How long a run takes, roughly, before it starts.

Decoding reads every active weight for each token. It is bound by the memory of all cores together, or, on processors
with few of them, by the arithmetic on quantized weights. Reading prompts, and verifying drafts, is bound by arithmetic.
Both are measured on this machine in a fifth of a second. The shares of them that llama.cpp reaches were found on
Qwen2.5-Coder-0.5B, SmolLM2-135M and Gemma-3-270M in 4 bits.

A GPU is not measured: runs on one end sooner than told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from specmeter.host.limits import usable_cores

SESSION_OVERHEAD_S = 1.5
"""Starting a process and reading metadata, without reading the weights."""
TYPICAL_ANSWER = 300
"""Tokens of an answer that ends on its own."""
_DECODING = 0.55
"""Of what a core reads on its own, while it multiplies."""
_READING = 0.3
"""Of the multiplications of a core on 32-bit numbers."""
_ACCEPTED = 0.7
"""Share of draft tokens that is accepted, where nothing is known."""
_SIDE, _PRODUCTS = 64, 500
_WARM = {"full": 1.0, "short": 0.1, "brief": 0.02, "prompts": 0.02, "none": 0.0}
"""Kind of warm-up -> its share of a request."""


class Speed(NamedTuple):
    """What this machine does, all cores at once."""

    bytes_per_s: float
    """Read from memory."""
    decoded_bytes_per_s: float
    """Of weights, while decoding."""
    products_per_s: float
    """Multiplications while many tokens are read at once."""


class Weighed(NamedTuple):
    """A model."""

    size_bytes: float
    bytes_per_token: float
    parameters: float
    """Used for a token."""


class Workload(NamedTuple):
    """What an arm does in the whole run."""

    target: Weighed
    draft: Weighed | None
    gamma: int
    requests: int
    prompt_tokens: float
    """Of all requests."""
    tokens: float
    """Of all answers."""
    sessions: int
    rate: float | None = None
    """Requests per second of an open loop."""


def measure_speed(size_bytes: int = 128_000_000) -> Speed:
    """Measure now, by processor time, so that other programs do not count: passes over an array larger than caches, by
    one core and by all, and products of matrices that are too small for BLAS to start threads."""
    import numpy as np

    cores = max(1, int(usable_cores()))
    values, matrix = np.ones(size_bytes // 8), np.ones((_SIDE, _SIDE), np.float32)
    parts, product = np.array_split(values, cores), np.empty_like(matrix)
    alone = size_bytes / _best(lambda: np.sum(values))
    with ThreadPoolExecutor(cores) as pool:
        together = cores * size_bytes / _best(lambda: list(pool.map(np.sum, parts)))
    together = max(alone, together)
    products = _PRODUCTS * _SIDE**3 / _best(lambda: [np.matmul(matrix, matrix, out=product) for _ in range(_PRODUCTS)])
    return Speed(together, min(together, _DECODING * alone * cores), _READING * products * cores)


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return max(best, 1e-9)


def expected_s(loads: Sequence[Workload], warmup: str, speed: Speed) -> float:
    """Seconds that all of them take. Requests at once take as long as one after the other."""
    total = 0.0
    for it in loads:
        each = 1 / max(1, it.requests)
        reading = it.prompt_tokens * it.target.parameters / speed.products_per_s
        decoding = it.tokens * _token_s(it, speed)
        working = reading + decoding
        total += working if it.rate is None else max(working, it.requests / it.rate)
        # The prompt of a warm-up is read twice at most, and the answer is as long as its kind says.
        total += it.sessions * each * ((reading if warmup != "none" else 0.0) + _WARM[warmup] * decoding)
        loading = it.target.size_bytes + (it.draft.size_bytes if it.draft else 0.0)
        total += it.sessions * (SESSION_OVERHEAD_S + loading / speed.bytes_per_s)
    return total


def _token_s(it: Workload, speed: Speed) -> float:
    """Of one token of an answer. Drafting costs what the draft model reads; n-grams cost nothing and gain nothing."""
    plain = it.target.bytes_per_token / speed.decoded_bytes_per_s
    if it.draft is None:
        return plain
    step = plain + it.gamma * it.target.parameters / speed.products_per_s
    step += it.gamma * it.draft.bytes_per_token / speed.decoded_bytes_per_s
    return step * (1 - _ACCEPTED) / (1 - _ACCEPTED ** (it.gamma + 1))
