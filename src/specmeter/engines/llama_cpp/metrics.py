"""The Prometheus text of `/metrics`, as far as the counters of llama.cpp's server go."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from specmeter.errors import EngineProtocolError

_SAMPLE = re.compile(r"^(?:\w+:)?(\w+_total)(\{[^{}]{0,200}\})? +(\S+)")
_MAX_SAMPLES = 4096


def parse_counters(text: str) -> dict[str, float]:
    """Every `..._total` sample by its name without the prefix `llamacpp:`, labels included: `n_decode_total`,
    `spec_decode_num_accepted_tokens_per_pos_total{position="0"}`, ...

    Raises `EngineProtocolError` for a value that is not a finite number, or for far too many samples.
    """
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if not (sample := _SAMPLE.match(line)):
            continue
        try:
            value = float(sample.group(3))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or len(counters) >= _MAX_SAMPLES:
            raise EngineProtocolError(
                f"/metrics cannot be parsed at `{line[:120]}`",
                fix="check that the engine is a llama-server; its log is in the run folder",
            )
        counters[sample.group(1) + (sample.group(2) or "")] = value
    return counters


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What each counter grew by; one that first appears in `after` started from 0."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}
