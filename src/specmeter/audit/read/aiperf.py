"""AIPerf's exports: `profile_export.jsonl` (a record per request) and `profile_export_aiperf.json` (the whole run).

Since 0.13 a record may carry `spec_decode_acceptance` (src/aiperf/common/models/spec_decode_models.py): drafted and
accepted tokens, steps, the most draft tokens per step, and the mean acceptance length, the bonus token included. Times
and counts stand under `metrics` as `{"value": ..., "unit": ...}` (docs/tutorials/working-with-profile-exports.md). Its
rate per user is 1 / (mean time between tokens), the time to the first token left out. Aggregates
(docs/metrics-reference.md) come as `{"unit": ..., "avg": ...}`; `spec_decode_token_weighted_acceptance_length` and
`spec_decode_overall_draft_acceptance_rate` are sums over sums, those without these words means over requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim
from specmeter.audit.read.document import inner, positive, read_objects, read_text, text
from specmeter.audit.read.numbers import TIMES
from specmeter.audit.read.serving import claims_of
from specmeter.audit.read.vllm import acceptance_fields


def sniff(head: str) -> bool:
    """JSON with the names that only AIPerf writes."""
    if not head.lstrip("\ufeff \t\r\n[").startswith("{"):
        return False
    keys = set(re.findall(r'"([a-z_]{3,60})"\s*:', head))
    record = {"metadata", "metrics"} <= keys and bool(
        keys & {"benchmark_phase", "spec_decode_acceptance", "session_num"}
    )
    whole = bool(keys & {"input_config", "aiperf_version", "schema_version"}) and "request_latency" in keys
    return record or whole or "spec_decode_token_weighted_acceptance_length" in keys


def read(path: Path) -> Iterator[Claim]:
    """One claim per request, or one for the run. Raises `UsageError` for a file that cannot be read."""
    return claims_of(read_objects(read_text(path), path), path, _fields)


def _fields(item: Mapping[str, object]) -> dict[str, Any]:
    metrics = item.get("metrics")
    if isinstance(metrics, dict):
        return _record(item, cast("dict[str, object]", metrics))
    if "request_latency" in item or "spec_decode_token_weighted_acceptance_length" in item:
        return _run(item)
    raise ValueError("neither a record of a request nor the aggregate of a run of AIPerf")


def _record(item: Mapping[str, object], metrics: Mapping[str, object]) -> dict[str, Any]:
    meta = inner(item, "metadata")
    if (error := item.get("error")) is not None:
        what = text(cast("Mapping[str, object]", error), "type") if isinstance(error, dict) else ""
        raise ValueError(f"the request failed{f': {what}' if what else ''}")
    acceptance = inner(item, "spec_decode_acceptance")
    fields: dict[str, Any] = acceptance_fields(acceptance) if acceptance else {"runs": 1}
    conversation = text(meta, "conversation_id") or text(meta, "x_request_id")
    kind = text(meta, "source_kind")
    fields["label"] = " ".join(part for part in (kind, conversation[:12]) if part)
    fields["conditions"] = {"category": kind} if kind else {}
    tokens = _value(metrics, "output_sequence_length")
    fields["predicted_n"] = int(tokens) if tokens else fields.get("predicted_n")
    prompt = _value(metrics, "input_sequence_length")
    fields["prompt_n"] = int(prompt) if prompt else None
    latency, first = _time(metrics, "request_latency"), _time(metrics, "time_to_first_token")
    fields["wall_ms"] = latency
    if latency and first and latency > first:
        fields |= {"predicted_ms": latency - first, "prompt_ms": first, "window": "all but the first"}
        fields["rounding"] = {"predicted_ms": 0.01, "prompt_ms": 0.01}
    fields["decode_rate"] = _value(metrics, "output_token_throughput_per_user")
    return fields


def _run(item: Mapping[str, object]) -> dict[str, Any]:
    requests = _value(item, "request_count")
    config = inner(item, "input_config")
    concurrency = inner(config, "loadgen").get("concurrency") if config else None
    steps = _value(item, "total_spec_decode_steps")
    drafted, accepted = _value(item, "total_draft_tokens"), _value(item, "total_accepted_draft_tokens")
    pooled_length = _value(item, "spec_decode_token_weighted_acceptance_length")
    pooled_rate = _value(item, "spec_decode_overall_draft_acceptance_rate")
    length = pooled_length or _value(item, "spec_decode_acceptance_length")
    rate = pooled_rate if pooled_rate is not None else _value(item, "spec_decode_draft_acceptance_rate")
    per_user = _value(item, "output_token_throughput_per_user")
    found: dict[str, Any] = {
        "runs": int(requests) if requests else None,
        "concurrency": concurrency if isinstance(concurrency, (int, float)) and concurrency > 0 else None,
        "decode_rate": per_user or _value(item, "output_token_throughput"),
        "token_interval_ms": _time(item, "inter_token_latency"),
        "steps": int(steps) if steps else None,
        "drafted": int(drafted) if drafted is not None else None,
        "accepted": int(accepted) if accepted is not None else None,
        "tau": length or None,
        "acceptance": None if rate is None else rate / 100,
        "acceptance_of": "drafted",
    }
    if per_user:
        found["window"] = "all but the first"
        found["notes"] = ("the rate is the mean of what each request got by itself",)
    means = {"tau": pooled_length is None and length, "acceptance": pooled_rate is None and rate is not None}
    found["averaged"] = (*(("decode_rate",) if per_user else ()), *(name for name, mean in means.items() if mean))
    found["pooled"] = tuple(
        name for name, value in (("tau", pooled_length), ("acceptance", pooled_rate)) if value is not None
    )
    return found


def _value(metrics: Mapping[str, object], tag: str) -> float | None:
    """The value of a metric: of one request, or the mean of a run. Raises `ValueError` for one that is not a number."""
    found = metrics.get(tag)
    entry = cast("Mapping[str, object]", found) if isinstance(found, dict) else {"value": found}
    key = "value" if "value" in entry else "avg"
    if entry.get(key) in (0, 0.0):
        return 0.0
    try:
        return positive(entry, key)
    except ValueError as error:
        raise ValueError(f"{tag}: {error}") from None


def _time(metrics: Mapping[str, object], tag: str) -> float | None:
    """Milliseconds of a metric; None where it is missing or 0. Raises `ValueError` for a unit that is not of time."""
    value = _value(metrics, tag)
    if not value:
        return None
    found = metrics.get(tag)
    unit = text(cast("Mapping[str, object]", found), "unit") if isinstance(found, dict) else "ms"
    if unit not in TIMES:
        raise ValueError(f"{tag}: its unit {unit[:20]!r} is not ms, s, us or ns")
    return value * TIMES[unit]
