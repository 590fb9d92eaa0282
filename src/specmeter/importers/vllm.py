"""JSON results of `vllm bench serve`, `vllm bench throughput` and `vllm bench latency`.

Since late 2025 the serving benchmark adds what speculation did during it, from the server's counters:
`spec_decode_acceptance_rate` (percent), `spec_decode_acceptance_length` (1 + accepted / drafts, so it is tau),
`spec_decode_num_drafts` (rounds of single requests), `_draft_tokens` and `_accepted_tokens`
(vllm/benchmarks/serve.py). The throughput benchmark counts prompt and output tokens together, and the latency benchmark
writes times without any count of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specmeter.audit.claim import Claim
from specmeter.importers.measured import count, positive
from specmeter.importers.serving import read_benchmarks, serving_fields


def sniff(head: str) -> bool:
    """A JSON object with the keys of one of the three benchmarks."""
    if not head.lstrip("\ufeff \t\r\n[").startswith("{") or "total_output_tokens_retokenized" in head:
        return False
    keys = set(re.findall(r'"([a-z_]{3,40})"\s*:', head))
    return (
        {"output_throughput", "total_token_throughput"} <= keys
        or {"elapsed_time", "num_requests", "tokens_per_second"} <= keys
        or {"avg_latency", "latencies", "percentiles"} <= keys
    )


def read(path: Path) -> Iterator[Claim]:
    """One claim per benchmark. Raises `UsageError` for a file that cannot be read."""
    return read_benchmarks(path, _fields)


def _fields(item: Mapping[str, object]) -> dict[str, Any]:
    if "output_throughput" in item:
        return serving_fields(item) | _speculation(item)
    if "tokens_per_second" in item:
        elapsed = positive(item, "elapsed_time")
        requests = count(item, "num_requests")
        return {
            "decode_rate": positive(item, "tokens_per_second"),
            "wall_ms": None if elapsed is None else 1e3 * elapsed,
            "runs": requests,
            "concurrency": requests,
            "window": "with prompt",
            "notes": ("tokens per second of prompts and output together",),
        }
    if "avg_latency" in item:
        latency = positive(item, "avg_latency")
        return {
            "wall_ms": None if latency is None else 1e3 * latency,
            "notes": ("latency of batches; the file does not say how many tokens they had",),
        }
    raise ValueError("none of the results of `vllm bench serve`, `throughput` or `latency`")


def _speculation(item: Mapping[str, object]) -> dict[str, Any]:
    drafted = count(item, "spec_decode_draft_tokens")
    if not drafted:
        return {}
    rate = item.get("spec_decode_acceptance_rate")
    found: dict[str, Any] = {
        "steps": count(item, "spec_decode_num_drafts"),
        "drafted": drafted,
        "accepted": count(item, "spec_decode_accepted_tokens"),
        "tau": positive(item, "spec_decode_acceptance_length"),
    }
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        found["acceptance"] = rate / 100
    return found
