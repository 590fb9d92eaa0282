"""What may come next: one token is asked for, with the probabilities of the likeliest ones before sampling (`n_probs`).

The prompt is an array of the text and the ids generated after it: the server tokenizes the text in there exactly as it
does in a normal request, special tokens included. Of a token that ends within a character the server lists no
probabilities. Since these do not depend on the samplers, they are asked for again with another token forced, one that
is a whole character.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, cast

from specmeter.engines import Candidate
from specmeter.engines.http_client import (
    garbage,
)

_WHAT_NEXT = "/completion (probabilities)"
_NO_CHANCE = -1e30
"""The server prints the lowest of all floats where the probability is zero."""
_FORCE = 1e4
"""Added to a logit, it decides; logits are below 100."""


def question(text: str, generated: tuple[int, ...], count: int, *, ignore_eos: bool) -> dict[str, Any]:
    """The JSON that asks for the `count` likeliest tokens after `text` and the ids `generated`, decoded greedily."""
    return {
        "prompt": [text, *generated] if generated else text,
        "n_predict": 1,
        "stream": False,
        "return_tokens": True,
        "cache_prompt": False,
        "temperature": 0.0,
        "samplers": ["temperature"],
        "ignore_eos": ignore_eos,
        "n_probs": count,
        "post_sampling_probs": False,
    }


def forced(asked: dict[str, Any], token: int) -> dict[str, Any]:
    """The same question, answered with `token`; probabilities are those without force."""
    return asked | {"logit_bias": [[token, _FORCE]]}


def read_chosen(answer: dict[str, Any]) -> int:
    """The one token that was generated. Raises `EngineProtocolError` if the answer does not show it."""
    tokens: Any = answer.get("tokens")
    if not isinstance(tokens, list) or len(cast("list[object]", tokens)) != 1:
        raise garbage(_WHAT_NEXT, answer)
    return _token(cast("list[object]", tokens)[0], answer)


def read_listed(answer: dict[str, Any]) -> tuple[Candidate, ...]:
    """The tokens listed, likeliest first; empty where the server lists none (in the middle of a character).

    Raises `EngineProtocolError` for what cannot be: no ids, no numbers, a token twice, probabilities above one in all,
    or out of order.
    """
    places: Any = answer.get("completion_probabilities", [])
    if not isinstance(places, list):
        raise garbage(_WHAT_NEXT, answer)
    if not places:
        return ()
    first: Any = cast("list[object]", places)[0]
    entries: Any = cast("dict[str, Any]", first).get("top_logprobs") if isinstance(first, dict) else None
    if not isinstance(entries, list):
        raise garbage(_WHAT_NEXT, answer)
    listed = [_candidate(entry, answer) for entry in cast("list[object]", entries)]
    ordered = all(one.logprob >= other.logprob for one, other in pairwise(listed))
    if not ordered or len({candidate.token for candidate in listed}) < len(listed):
        raise garbage(_WHAT_NEXT, listed)
    if math.fsum(math.exp(candidate.logprob) for candidate in listed) > 1.001:
        raise garbage(f"{_WHAT_NEXT}: they sum to more than one", listed)
    return tuple(candidate for candidate in listed if candidate.logprob > _NO_CHANCE)


def from_chosen(listed: tuple[Candidate, ...], chosen: int, *, ignore_eos: bool) -> tuple[Candidate, ...]:
    """The candidates from the token that greedy decoding chose on; those above it were ruled out.

    Raises `EngineProtocolError` when the choice is not listed, or not the likeliest though nothing was ruled out.
    """
    at = next((place for place, candidate in enumerate(listed) if candidate.token == chosen), None)
    if at is None or (not ignore_eos and listed[at].logprob < listed[0].logprob):
        raise garbage(f"{_WHAT_NEXT}: greedy decoding chose token {chosen}", listed[:8])
    # Of tokens that are exactly as likely, the server lists any first.
    rest = (it for it in listed if it.token != chosen and it.logprob <= listed[at].logprob)
    return (listed[at], *rest)


def _candidate(entry: object, answer: dict[str, Any]) -> Candidate:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    logprob = fields.get("logprob")
    if isinstance(logprob, bool) or not isinstance(logprob, int | float) or not logprob <= 1e-3:
        raise garbage(_WHAT_NEXT, answer.get("completion_probabilities"))
    return Candidate(_token(fields.get("id"), answer), min(0.0, float(logprob)))


def _token(value: object, answer: dict[str, Any]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise garbage(_WHAT_NEXT, answer)
    return value
