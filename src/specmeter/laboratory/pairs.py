"""What to do next on this machine: a pair of the models that are here which can be measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from specmeter.errors import SpecmeterError
from specmeter.models.preflight import compare
from specmeter.models.reference import FoundModel

TIME_S = 0.4
"""For comparing vocabularies: a hint has to come at once."""
SMALLER = 3
"""A draft is worth trying from here on: this many times smaller than its target."""


class Pair(NamedTuple):
    """A target, and a draft of its vocabulary."""

    target: FoundModel
    draft: FoundModel


def pair(models: Sequence[FoundModel], memory_bytes: int) -> Pair | None:
    """The largest target that fits into memory with a draft of its vocabulary, and the smallest such draft; None where
    there is none, or none was found in time. `models` begin with the largest."""

    until = time.monotonic() + TIME_S
    for target in models:
        drafts = [it for it in reversed(models) if SMALLER * it.size_bytes <= target.size_bytes]
        for draft in sorted(drafts, key=lambda it: it.name[:4].lower() != target.name[:4].lower()):
            if target.size_bytes + draft.size_bytes > memory_bytes:
                continue
            if time.monotonic() > until:
                return None
            try:
                found = compare(target.path, draft.path)
            except SpecmeterError:
                continue
            if found.accepted and found.method == "draft-simple":
                return Pair(target, draft)
    return None
