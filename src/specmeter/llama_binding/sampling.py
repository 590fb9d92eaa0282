"""From logits to probabilities, as llama.cpp's samplers do it, and from probabilities to a token.

What a request asks for (`record.Generation`), and else llama-server's defaults, is applied in llama-server's order:

    top_k        only the k largest logits stay; 0 switches it off
    top_p        of these, the likeliest whose probabilities first sum to at least p stay, the one that reaches it
                 included; the probabilities are those *before* the temperature
    min_p        of these, those at least p times as likely as the likeliest stay, before the temperature as well
    temperature  logits / temperature, then softmax over whatever stayed

The order matters: at temperature 2 the same top_p keeps as many tokens as at temperature 1, and a cut by top_p after
the temperature would keep more. Greedy decoding (temperature 0) has no distribution; it is `verification.greedy`.

Sums are kept in double precision where llama.cpp adds up floats. So a token that sits on the edge of top_p within
1e-7 may fall on the other side, and of equal logits on the edge of top_k the smaller ids stay, where llama.cpp leaves
it to its sort.

Source: llama.cpp's src/llama-sampler.cpp and common/speculative.cpp, of the version that this package pins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.errors import EngineProtocolError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.record import Generation

    Floats = NDArray[np.float64]
    Logits = NDArray[np.floating[Any]]

DRAFT_TOP_K = 10
"""llama.cpp's drafter looks at this many tokens: its confidence is a share of their probability, not of all."""
_COLDEST = 1e-30
"""Below it, a temperature would be 0 in single precision."""
_FIRST_LOOK = 256
"""Candidates that top_p sorts at first; more only where these do not reach it."""
_BLOCK = 1024
"""Probabilities that `draw` adds up at once."""


def probabilities(logits: Logits, generation: Generation) -> Floats:
    """The distribution that a token is drawn from: shape (vocabulary,) or (n, vocabulary) to the same shape.

    Rows sum to 1; tokens that a filter took out are exactly 0. `generation.temperature` must be above 0. Raises
    `EngineProtocolError` where logits are not numbers.
    """
    if generation.temperature <= 0:
        raise UsageError(
            "temperature is 0: greedy decoding does not sample", fix="use the largest logit (verification.greedy)"
        )
    if logits.ndim == 1:
        return _row(logits, generation)
    return np.stack([_row(row, generation) for row in logits])


class Rows:
    """Distributions of several places, each computed when it is first asked for: places after a rejection never are.

    Stands where verification wants rows of probabilities: `Rows(logits, generation)[i]` is
    `probabilities(logits[i], generation)`.
    """

    def __init__(self, logits: Logits, generation: Generation) -> None:
        self._logits = logits
        self._generation = generation
        self._known: dict[int, Floats] = {}

    def __len__(self) -> int:
        return len(self._logits)

    def __getitem__(self, place: int) -> Floats:
        if place not in self._known:
            self._known[place] = probabilities(self._logits[place], self._generation)
        return self._known[place]


def draw(probabilities: Floats, rng: np.random.Generator) -> int:
    """One token, by a single uniform number: the first one at which the running sum exceeds it.

    `probabilities` >= 0, shape (vocabulary,); their sum need not be 1. A token of probability 0 is never drawn. One
    number per token, whatever the distribution, so that two ways of decoding with one seed stay in step.
    """
    starts = np.arange(0, len(probabilities), _BLOCK)
    sums = np.add.reduceat(probabilities, starts).cumsum()
    total = float(sums[-1])
    if not total > 0 or total == np.inf:
        raise UsageError(f"probabilities sum to {total}: no token can be drawn", fix="give probabilities that sum to 1")
    aim = rng.random() * total
    block = int(sums.searchsorted(aim, side="right"))
    if block < len(starts):
        start = int(starts[block])
        inner = probabilities[start : start + _BLOCK].cumsum()
        place = int(inner.searchsorted(aim - (float(sums[block - 1]) if block else 0.0), side="right"))
        if place < len(inner):
            return start + place
        # By rounding the number lies beyond its own block: the block's last possible token.
        return start + int(np.flatnonzero(probabilities[start : start + _BLOCK])[-1])
    return int(np.flatnonzero(probabilities)[-1])


def best(logits: Logits) -> int:
    """The greedy token: that of the largest logit, the smallest id of equals. Raises `EngineProtocolError` on NaN."""
    token = int(logits.argmax())
    if not logits[token] > -np.inf:  # argmax finds a NaN first
        raise _no_numbers()
    return token


def confidence(logits: Logits, among: int = DRAFT_TOP_K) -> tuple[int, float]:
    """The draft model's best token and its probability among the `among` best ones: what `p_min` is compared with.

    llama.cpp's drafter keeps ten tokens before its softmax, so its confidence is a little higher than the probability
    of the token in the whole vocabulary. `logits` has shape (vocabulary,).
    """
    token = best(logits)
    top = logits if len(logits) <= among else np.partition(logits, len(logits) - among)[-among:]
    return token, 1.0 / float(np.exp(top - logits[token]).sum())


def _row(logits: Logits, generation: Generation) -> Floats:
    top = logits[best(logits)]
    if top == np.inf:
        raise _no_numbers()
    top_k, top_p, min_p = generation.filters
    kept: NDArray[np.intp] | None = None
    if 0 < top_k < len(logits):
        kept = _largest(logits, top_k)
    values = logits if kept is None else logits[kept]
    if top_p < 1:
        places = _nucleus(values, top_p)
        kept = places if kept is None else kept[places]
        values = logits[kept]
    if min_p > 0:
        places = np.flatnonzero(values >= top + np.log(min_p))
        kept = places if kept is None else kept[places]
        values = logits[kept]
    weights = np.exp((values - top) / max(generation.temperature, _COLDEST)).astype(np.float64)
    weights /= weights.sum()
    if kept is None:
        return weights
    result = np.zeros(len(logits))
    result[kept] = weights
    return result


def _largest(values: Logits, count: int) -> NDArray[np.intp]:
    """Places of the `count` largest values, largest first, of equals the first."""
    edge = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= edge)
    return places[np.argsort(-values[places], kind="stable")][:count]


def _nucleus(values: Logits, top_p: float) -> NDArray[np.intp]:
    """Places of the likeliest values whose softmax first sums to `top_p`, likeliest first."""
    weights = np.exp(values - values[values.argmax()])
    share = top_p * float(weights.sum(dtype=np.float64))
    count = min(_FIRST_LOOK, len(values))
    while True:
        places = _largest(values, count)
        sums = weights[places].cumsum(dtype=np.float64)
        if sums[-1] >= share or count == len(values):
            return places[: int(sums.searchsorted(share)) + 1]
        count = min(16 * count, len(values))


def _no_numbers() -> EngineProtocolError:
    return EngineProtocolError(
        "the engine's logits are not finite numbers",
        fix="check the model file (`specmeter models inspect`); if the KV cache is quantized or a GPU is used, try "
        "without",
    )
