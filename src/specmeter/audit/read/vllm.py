"""JSON results of `vllm bench serve`, `throughput` and `latency`, and what the server says of single requests.

Since late 2025 the serving benchmark adds what speculation did during it, from the server's counters
(vllm/benchmarks/serve.py): `spec_decode_acceptance_rate` (percent), `spec_decode_acceptance_length` (1 + accepted /
drafts, so it is tau), `spec_decode_num_drafts` (rounds of single requests), `_draft_tokens` and `_accepted_tokens`. The
throughput benchmark counts prompt and output tokens together, and the latency benchmark writes times without any count
of tokens.

Per request (`--per-request-spec-decode-metrics`, docs/features/speculative_decoding/acceptance_metrics.md of v0.32):
`metrics.speculative_decoding` of a response, with `num_draft_tokens` and `num_accepted_draft_tokens` (all of the
request), `num_spec_steps`, `num_spec_tokens` (gamma) and `mean_acceptance_length` (the bonus token included); beside it
`generation_time_ms`, from the first to the last output token.

`benchmark_results.json` (.buildkite/performance-benchmarks/scripts/convert-results-json-to-markdown.py) keeps three
tables column by column, as pandas does: `latency`, `throughput` and `serving`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim
from specmeter.audit.read.document import count, inner, parse_json, positive, read_text, text
from specmeter.audit.read.json_tables import objects_of_columns
from specmeter.audit.read.serving import claims_of, read_benchmarks, serving_fields

_TABLES = ("latency", "throughput", "serving")
_RENAMED = {
    "Test name": "test_name",
    "GPU": "gpu_type",
    "# of req.": "completed",
    "# of max concurrency.": "max_concurrency",
    "Output Tput (tok/s)": "output_throughput",
    "Total Token Tput (tok/s)": "total_token_throughput",
    "Mean TPOT (ms)": "mean_tpot_ms",
    "Num of reqs": "num_requests",
    "Elapsed time (s)": "elapsed_time",
    "Tput (tok/s)": "tokens_per_second",
}
"""What the script calls columns in its tables -> the names of the benchmarks."""


def sniff(head: str) -> bool:
    """A JSON object with the keys of one of the benchmarks, or of the record of a request."""
    if not head.lstrip("\ufeff \t\r\n[").startswith("{") or "total_output_tokens_retokenized" in head:
        return False
    if '"spec_decode_acceptance"' in head:  # AIPerf's record, which holds the same
        return False
    keys = set(re.findall(r'"([a-z_]{3,40})"\s*:', head))
    return (
        {"output_throughput", "total_token_throughput"} <= keys
        or {"elapsed_time", "num_requests", "tokens_per_second"} <= keys
        or {"avg_latency", "latencies", "percentiles"} <= keys
        or {"num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"} <= keys
        or _is_report(head)
    )


def _is_report(head: str) -> bool:
    return re.match(r'\s*\{\s*"latency"\s*:\s*\{', head) is not None and "test" in head.lower()


def read(path: Path) -> Iterator[Claim]:
    """One claim per benchmark or request. Raises `UsageError` for a file that cannot be read."""
    content = read_text(path)
    whole = parse_json(content) if _is_report(content[:1000]) else None
    if isinstance(whole, dict) and set(_TABLES) <= set(cast("dict[str, object]", whole)):
        report = cast("dict[str, object]", whole)
        return claims_of(
            (
                (
                    f"{name}, row {int(key) + 1 if key.isdecimal() and len(key) < 9 else key[:40]}",
                    {_RENAMED.get(column, column): value for column, value in item.items()},
                )
                for name in _TABLES
                for key, item in objects_of_columns(report[name])
            ),
            path,
            _fields,
        )
    return read_benchmarks(path, _fields)


def _fields(item: Mapping[str, object]) -> dict[str, Any]:
    if (acceptance := _per_request(item)) is not None:
        return acceptance
    if "output_throughput" in item:
        return fields_of_benchmark(item)
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
        } | _device(item)
    if "avg_latency" in item:
        latency = positive(item, "avg_latency")
        return {
            "wall_ms": None if latency is None else 1e3 * latency,
            "notes": ("latency of batches; the file does not say how many tokens they had",),
        }
    raise ValueError("none of the results of `vllm bench serve`, `throughput` or `latency`, nor of a request")


def fields_of_benchmark(item: Mapping[str, object]) -> dict[str, Any]:
    """Fields of a result of `vllm bench serve`. Raises `ValueError` for one that measured nothing."""
    return serving_fields(item) | _speculation(item) | _device(item)


def _device(item: Mapping[str, object]) -> dict[str, Any]:
    return {"device": device} if (device := text(item, "gpu_type")) else {}


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
        "acceptance_of": "drafted",
        "pooled": ("acceptance", "tau"),
    }
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        found["acceptance"] = rate / 100
    return found


# --- single requests -------------------------------------------------------------------------------------------------


def _per_request(item: Mapping[str, object]) -> dict[str, Any] | None:
    """Fields of a response with acceptance metrics, of its `metrics`, or of the acceptance metrics alone."""
    metrics = inner(item, "metrics") or item
    acceptance = inner(metrics, "speculative_decoding") or metrics
    if "num_spec_steps" not in acceptance:
        return None
    fields = acceptance_fields(acceptance)
    usage = inner(item, "usage")
    fields["predicted_n"] = count(usage, "completion_tokens") or fields.get("predicted_n")
    fields["prompt_n"] = count(usage, "prompt_tokens")
    generation = metrics.get("generation_time_ms")
    if generation not in (None, 0):
        time_ms = positive(metrics, "generation_time_ms")
        predicted = fields["predicted_n"]
        fields |= {"predicted_ms": time_ms, "window": "all but the first"}
        if time_ms and isinstance(predicted, int) and predicted > 1:
            fields["decode_rate"] = 1e3 * (predicted - 1) / time_ms
    return fields


def acceptance_fields(item: Mapping[str, object]) -> dict[str, Any]:
    """Fields of an acceptance record: vLLM's own, or AIPerf's, which has the same names.

    Raises `ValueError` for a number that is none.
    """
    drafted, accepted = count(item, "num_draft_tokens"), count(item, "num_accepted_draft_tokens")
    steps = count(item, "num_spec_steps")
    length = item.get("mean_acceptance_length")
    found: dict[str, Any] = {
        "steps": steps or None,
        "drafted": drafted,
        "accepted": accepted,
        "gamma": count(item, "num_spec_tokens"),
        "tau": None if not steps or length in (None, 0) else positive(item, "mean_acceptance_length"),
        "predicted_n": count(item, "completion_tokens"),
        "runs": 1,
        "acceptance_of": "drafted",
    }
    if drafted and item.get("draft_acceptance_rate") in (0, 0.0):
        found["acceptance"] = 0.0
    elif drafted and "draft_acceptance_rate" in item:
        found["acceptance"] = positive(item, "draft_acceptance_rate")
    elif drafted and accepted is not None:
        found["acceptance"] = accepted / drafted
    if not steps:
        found["notes"] = ("nothing was drafted for this request",)
    elif (said := _histogram(item)) is not None and said != (steps, accepted):
        found["notes"] = (
            f"its histogram has {said[0]} steps with {said[1]} accepted tokens, its counters {steps} and {accepted}",
        )
    return found


def _histogram(item: Mapping[str, object]) -> tuple[int, int] | None:
    """(steps, accepted tokens) by the histogram of accepted tokens per step; None where it is missing or broken."""
    raw = item.get("acceptance_histogram")
    if isinstance(raw, list):
        pairs: list[tuple[object, object]] = list(enumerate(cast("list[object]", raw)))
    elif isinstance(raw, dict):
        pairs = list(cast("dict[object, object]", raw).items())
    else:
        return None
    steps = accepted = 0
    for length, times in pairs[:10_000]:
        if not str(length).isdecimal() or len(str(length)) > 9 or not isinstance(times, int) or not 0 <= times < 10**15:
            return None
        steps, accepted = steps + times, accepted + int(str(length)) * times
    return steps, accepted
