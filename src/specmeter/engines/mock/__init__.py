"""An engine without a model: a virtual clock, a cost model, an acceptance model, and faults on demand.

The whole pipeline runs on it in milliseconds, so tests, demonstrations and method development need no model file.

Cost. A target forward over n positions takes

    T(n) = base + token * n + expert * U(n),   U(n) = E (1 - (1 - K/E)^n)

ms, U being the experts touched under uniform routing (0 for a dense target); a step with g draft tokens takes
`draft_ms(g) + T(g + 1)`. Requests in flight share rounds: all sequences draft together, as long as the longest of their
drafts takes, and n counts the positions of all of them, so that a batch reads a union of experts. A prompt adds its
tokens to the round that it comes into.

Acceptance. Every token position of a text carries a die, thrown once per target, draft model and prompt; a draft token
at place j of its draft is accepted when the die falls below a_j, the acceptance rate of its kind of text. So, as in
greedy decoding on a real engine, acceptance repeats exactly over blocks, and arms that differ only in gamma agree
about which tokens are hard. The text itself depends on target and prompt alone: greedy SD is lossless.

The conservation law `predicted_n - 1 = accepted + target forwards after the prompt` holds, unless a fault breaks it
(or a recurrent target restores checkpoints, each of which costs one forward more).
"""

from __future__ import annotations

from specmeter.engines.mock.engine import EPOCH, MockEngine, MockSession
from specmeter.engines.mock.spec import Drafter, Fault, FaultKind, MockSpec, TargetModel, mock_model

__all__ = [
    "EPOCH",
    "Drafter",
    "Fault",
    "FaultKind",
    "MockEngine",
    "MockSession",
    "MockSpec",
    "TargetModel",
    "mock_model",
]
