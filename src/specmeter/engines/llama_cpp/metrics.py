"""The Prometheus text of `/metrics`, as far as the counters of llama.cpp's server go."""

from __future__ import annotations

import math
import re

from specmeter.errors import EngineProtocolError

_SAMPLE = re.compile(r"^(?:\w+:)?(\w+_total|n_busy_slots_per_decode)(\{[^{}]{0,200}\})? +(\S+)")
_BUSY, _DECODES = "n_busy_slots_per_decode", "n_decode_total"
_MAX_SAMPLES = 4096


def parse_counters(text: str) -> dict[str, float]:
    """Every `..._total` sample by its name without the prefix `llamacpp:`, labels included: `n_decode_total`,
    `spec_decode_num_accepted_tokens_per_pos_total{position="0"}`, ...; and `n_busy_slots_total`, the forwards of all
    slots added up, which the server tells as a mean over its decodes.

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
    if (busy := counters.pop(_BUSY, None)) is not None and _DECODES in counters:
        counters["n_busy_slots_total"] = busy * counters[_DECODES]
    return counters
