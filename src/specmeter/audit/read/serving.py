"""JSON of serving benchmarks: those of vLLM and SGLang, and AIPerf's exports.

*vLLM*: `vllm bench serve`, `throughput` and `latency`. Since late 2025 the serving benchmark adds what speculation did
during it, from the server's counters (vllm/benchmarks/serve.py): `spec_decode_acceptance_rate` (percent) and
`spec_decode_acceptance_length` (1 + accepted / drafts, so it is tau). The throughput benchmark counts prompt and output
tokens together. Per request (`--per-request-spec-decode-metrics`) `metrics.speculative_decoding` has counts of the
request and its tau; beside it `generation_time_ms`, from the first to the last output token. `benchmark_results.json`
(.buildkite/performance-benchmarks) keeps three tables column by column, as pandas does.

*SGLang*: JSON Lines of `python -m sglang.bench_serving` and of `bench_one_batch_server`. `accept_length` (`acc_length`
there) is the server's tau, counted since it started, warm-up and earlier runs included. Newer versions add
`server_info`, among it `speculative_num_steps`: the longest chain that can be accepted, hence gamma.

*AIPerf*: `profile_export.jsonl` (a record per request) and `profile_export_aiperf.json` (the whole run). Since 0.13 a
record may carry `spec_decode_acceptance`. Times and counts stand under `metrics` as `{"value": ..., "unit": ...}`,
aggregates as `{"unit": ..., "avg": ...}`. Its rate per user is 1 / (mean time between tokens).
`spec_decode_token_weighted_acceptance_length` and `spec_decode_overall_draft_acceptance_rate` are sums over sums, those
without these words means over requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim, UnreadableError, problem_of
from specmeter.audit.read.document import (
    MAX_LIST,
    Importer,
    claims_of,
    count,
    inner,
    json_keys,
    parse_json,
    positive,
    read_benchmarks,
    read_text,
    text,
)
from specmeter.messages import Message


def serving_fields(item: Mapping[str, object]) -> dict[str, Any]:
    """Rate, counts, time and concurrency of a serving benchmark.

    The rate is that of all requests together, over the whole duration, prompts included; the interval between tokens
    is that of one request, and what memory bandwidth is held against.
    """
    completed = count(item, "completed")
    if completed == 0:
        raise UnreadableError("unread.no_success", name="completed")
    duration = positive(item, "duration")
    fields: dict[str, Any] = {
        "decode_rate": positive(item, "output_throughput"),
        "predicted_n": count(item, "total_output_tokens"),
        "prompt_n": count(item, "total_input_tokens"),
        "wall_ms": None if duration is None else 1e3 * duration,
        "token_interval_ms": positive(item, "mean_tpot_ms") if item.get("mean_tpot_ms") else None,
        "runs": completed,
        "concurrency": _concurrency(item, completed, duration),
        "window": "with prompt",
        "rounding": {"wall_ms": 0.5, "token_interval_ms": 0.0},
    }
    notes: list[Message] = []
    failed = count(item, "failed")
    if failed:
        notes.append(Message("read.requests_failed", failed=failed))
    if text(item, "dataset_name").startswith("random"):
        notes.append(Message("read.random_prompts"))
    if notes:
        fields["notes"] = tuple(notes)
    return fields


def _concurrency(item: Mapping[str, object], completed: int | None, duration: float | None) -> float | None:
    """Requests at once: measured, or the limit that was set, or as many as there were."""
    for key in ("concurrency", "max_concurrency", "max_concurrent_requests"):
        value = item.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return max(1.0, float(value))
    latency = item.get("mean_e2el_ms", item.get("mean_e2e_latency_ms"))
    if completed and duration and isinstance(latency, (int, float)) and latency > 0:
        return max(1.0, completed * latency / 1e3 / duration)
    return float(completed) if completed else None


# --- vLLM -------------------------------------------------------------------------------------------------------------

_REPORT_TABLES = ("latency", "throughput", "serving")
_REPORT_COLUMNS = {
    "Test name": "test_name", "GPU": "gpu_type", "# of req.": "completed", "# of max concurrency.": "max_concurrency",
    "Output Tput (tok/s)": "output_throughput", "Total Token Tput (tok/s)": "total_token_throughput",
    "Mean TPOT (ms)": "mean_tpot_ms", "Num of reqs": "num_requests", "Elapsed time (s)": "elapsed_time",
    "Tput (tok/s)": "tokens_per_second",
}  # fmt: skip
"""What the script calls columns in its tables -> the names of the benchmarks."""


def sniff_vllm(head: str) -> bool:
    """A JSON object with the keys of one of the benchmarks, or of the record of a request."""
    keys = json_keys(head)
    # SGLang's benchmark, and AIPerf's record, hold the same and more.
    if keys & {"total_output_tokens_retokenized", "spec_decode_acceptance"}:
        return False
    return (
        {"output_throughput", "total_token_throughput"} <= keys
        or {"elapsed_time", "num_requests", "tokens_per_second"} <= keys
        or {"avg_latency", "latencies", "percentiles"} <= keys
        or {"num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"} <= keys
        or _is_report(head)
    )


def _is_report(head: str) -> bool:
    return re.match(r'\s*\{\s*"latency"\s*:\s*\{', head) is not None and "test" in head.lower()


def read_vllm(path: Path) -> Iterator[Claim]:
    """One claim per benchmark or request. Raises `UsageError` for a file that cannot be read."""
    content = read_text(path)
    whole = parse_json(content) if _is_report(content[:1000]) else None
    if isinstance(whole, dict) and set(_REPORT_TABLES) <= set(cast("dict[str, object]", whole)):
        report = cast("dict[str, object]", whole)
        return claims_of(
            (
                (
                    f"{name}, row {int(key) + 1 if key.isdecimal() and len(key) < 9 else key[:40]}",
                    {_REPORT_COLUMNS.get(column, column): value for column, value in item.items()},
                )
                for name in _REPORT_TABLES
                for key, item in _rows_of_columns(report[name])
            ),
            path,
            _vllm_fields,
        )
    return read_benchmarks(path, _vllm_fields)


VLLM = Importer(sniff_vllm, read_vllm)


def _rows_of_columns(table: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Rows of a table that is kept column by column, as pandas writes it: `{"tps": {"0": 41.2, "1": 60.3}, ...}`."""
    if not isinstance(table, dict):
        return
    columns = {
        str(name): cast("dict[object, object]", cells)
        for name, cells in cast("dict[object, object]", table).items()
        if isinstance(cells, dict)
    }
    keys = dict.fromkeys(str(key) for cells in columns.values() for key in list(cells)[:MAX_LIST])
    for key in list(keys)[:MAX_LIST]:
        yield key, {name: cells.get(key) for name, cells in columns.items()}


def _vllm_fields(item: Mapping[str, object]) -> dict[str, Any]:
    if (acceptance := _vllm_request(item)) is not None:
        return acceptance
    if "output_throughput" in item:
        return vllm_serving_fields(item)
    if "tokens_per_second" in item:
        elapsed = positive(item, "elapsed_time")
        requests = count(item, "num_requests")
        return {
            "decode_rate": positive(item, "tokens_per_second"),
            "wall_ms": None if elapsed is None else 1e3 * elapsed,
            "runs": requests,
            "concurrency": requests,
            "window": "with prompt",
            "notes": (Message("read.with_prompts"),),
        } | _device(item)
    if "avg_latency" in item:
        latency = positive(item, "avg_latency")
        return {
            "wall_ms": None if latency is None else 1e3 * latency,
            "notes": (Message("read.latency"),),
        }
    raise UnreadableError("unread.no_vllm")


def vllm_serving_fields(item: Mapping[str, object]) -> dict[str, Any]:
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


def _vllm_request(item: Mapping[str, object]) -> dict[str, Any] | None:
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
        found["notes"] = (Message("read.nothing_drafted"),)
    elif (said := _histogram(item)) is not None and said != (steps, accepted):
        counts = {"steps": said[0], "accepted": said[1], "counted_steps": steps, "counted": accepted}
        found["notes"] = (Message("read.histogram", **counts),)
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


# --- SGLang -----------------------------------------------------------------------------------------------------------

_SGLANG_METHODS = {"eagle": "draft-eagle", "eagle3": "draft-eagle3", "nextn": "draft-mtp", "standalone": "draft-simple"}


def sniff_sglang(head: str) -> bool:
    """JSON objects with keys that only SGLang's benchmarks write."""
    keys = json_keys(head)
    serving = {"output_throughput", "duration"} <= keys or "backend" in keys
    serving = serving and bool(keys & {"accept_length", "total_output_tokens_retokenized"})
    return serving or {"acc_length", "output_throughput"} <= keys or {"last_gen_throughput", "batch_size"} <= keys


def _sglang_fields(item: Mapping[str, object]) -> dict[str, Any]:
    if "duration" in item or "completed" in item:
        return _with_speculation(serving_fields(item), item, positive(item, "accept_length"))
    if "output_throughput" not in item:
        raise UnreadableError("unread.no_sglang")
    batch = count(item, "batch_size")
    name = f"{text(item, 'run_name')} batch {batch}".strip()
    found = {
        "label": name,
        "decode_rate": positive(item, "output_throughput"),
        "concurrency": batch or None,
        "window": "all tokens",
    }
    length = item.get("acc_length")
    none = isinstance(length, (int, float)) and length <= 0  # -1 where nothing was drafted
    return _with_speculation(found, item, None if none else positive(item, "acc_length"))


SGLANG = Importer(sniff_sglang, partial(read_benchmarks, fields_of=_sglang_fields))


def _with_speculation(fields: dict[str, Any], item: Mapping[str, object], tau: float | None) -> dict[str, Any]:
    if tau is not None:
        fields["tau"] = tau
        fields["notes"] = (*fields.get("notes", ()), Message("read.since_start"))
    return fields | sglang_speculation(inner(item, "server_info"))


def sglang_speculation(server: Mapping[str, object]) -> dict[str, Any]:
    """Method, draft length and tree by the server's arguments; nothing where these say nothing about drafts."""
    algorithm = text(server, "speculative_algorithm").lower()
    if not algorithm:
        return {"method": "none"} if "speculative_algorithm" in server else {}
    width = count(server, "speculative_eagle_topk")
    return {
        "method": _SGLANG_METHODS.get(algorithm, algorithm),
        "gamma": count(server, "speculative_num_steps") if algorithm in _SGLANG_METHODS else None,
        "tree": None if width is None else width > 1,
    }


# --- AIPerf -----------------------------------------------------------------------------------------------------------


def sniff_aiperf(head: str) -> bool:
    """JSON with the names that only AIPerf writes."""
    keys = json_keys(head)
    record = {"metadata", "metrics"} <= keys and bool(
        keys & {"benchmark_phase", "spec_decode_acceptance", "session_num"}
    )
    whole = bool(keys & {"input_config", "aiperf_version", "schema_version"}) and "request_latency" in keys
    return record or whole or "spec_decode_token_weighted_acceptance_length" in keys


def _aiperf_fields(item: Mapping[str, object]) -> dict[str, Any]:
    metrics = item.get("metrics")
    if isinstance(metrics, dict):
        return _aiperf_request(item, cast("dict[str, object]", metrics))
    if "request_latency" in item or "spec_decode_token_weighted_acceptance_length" in item:
        return _aiperf_run(item)
    raise UnreadableError("unread.no_aiperf")


AIPERF = Importer(sniff_aiperf, partial(read_benchmarks, fields_of=_aiperf_fields))


def _aiperf_request(item: Mapping[str, object], metrics: Mapping[str, object]) -> dict[str, Any]:
    meta = inner(item, "metadata")
    if (error := item.get("error")) is not None:
        what = text(cast("Mapping[str, object]", error), "type") if isinstance(error, dict) else ""
        raise UnreadableError("unread.request_failed_by" if what else "unread.request_failed", error=what)
    acceptance = inner(item, "spec_decode_acceptance")
    fields: dict[str, Any] = acceptance_fields(acceptance) if acceptance else {"runs": 1}
    conversation = text(meta, "conversation_id") or text(meta, "x_request_id")
    kind = text(meta, "source_kind")
    fields["label"] = " ".join(part for part in (kind, conversation[:12]) if part)
    fields["conditions"] = {"category": kind} if kind else {}
    tokens = _metric(metrics, "output_sequence_length")
    fields["predicted_n"] = int(tokens) if tokens else fields.get("predicted_n")
    prompt = _metric(metrics, "input_sequence_length")
    fields["prompt_n"] = int(prompt) if prompt else None
    latency, first = _metric_ms(metrics, "request_latency"), _metric_ms(metrics, "time_to_first_token")
    fields["wall_ms"] = latency
    if latency and first and latency > first:
        fields |= {"predicted_ms": latency - first, "prompt_ms": first, "window": "all but the first"}
        fields["rounding"] = {"predicted_ms": 0.01, "prompt_ms": 0.01}
    fields["decode_rate"] = _metric(metrics, "output_token_throughput_per_user")
    return fields


def _aiperf_run(item: Mapping[str, object]) -> dict[str, Any]:
    requests = _metric(item, "request_count")
    config = inner(item, "input_config")
    concurrency = inner(config, "loadgen").get("concurrency") if config else None
    steps = _metric(item, "total_spec_decode_steps")
    drafted, accepted = _metric(item, "total_draft_tokens"), _metric(item, "total_accepted_draft_tokens")
    pooled_length = _metric(item, "spec_decode_token_weighted_acceptance_length")
    pooled_rate = _metric(item, "spec_decode_overall_draft_acceptance_rate")
    length = pooled_length or _metric(item, "spec_decode_acceptance_length")
    rate = pooled_rate if pooled_rate is not None else _metric(item, "spec_decode_draft_acceptance_rate")
    per_user = _metric(item, "output_token_throughput_per_user")
    found: dict[str, Any] = {
        "runs": int(requests) if requests else None,
        "concurrency": concurrency if isinstance(concurrency, (int, float)) and concurrency > 0 else None,
        "decode_rate": per_user or _metric(item, "output_token_throughput"),
        "token_interval_ms": _metric_ms(item, "inter_token_latency"),
        "steps": int(steps) if steps else None,
        "drafted": int(drafted) if drafted is not None else None,
        "accepted": int(accepted) if accepted is not None else None,
        "tau": length or None,
        "acceptance": None if rate is None else rate / 100,
        "acceptance_of": "drafted",
    }
    if per_user:
        found["window"] = "all but the first"
        found["notes"] = (Message("read.rate_per_request"),)
    means = {"tau": pooled_length is None and length, "acceptance": pooled_rate is None and rate is not None}
    found["averaged"] = (*(("decode_rate",) if per_user else ()), *(name for name, mean in means.items() if mean))
    found["pooled"] = tuple(
        name for name, value in (("tau", pooled_length), ("acceptance", pooled_rate)) if value is not None
    )
    return found


def _metric(metrics: Mapping[str, object], tag: str) -> float | None:
    """The value of a metric: of one request, or the mean of a run. Raises `ValueError` for one that is not a number."""
    found = metrics.get(tag)
    entry = cast("Mapping[str, object]", found) if isinstance(found, dict) else {"value": found}
    key = "value" if "value" in entry else "avg"
    if entry.get(key) in (0, 0.0):
        return 0.0
    try:
        return positive(entry, key)
    except ValueError as error:
        raise UnreadableError("unread.metric", metric=tag, why=problem_of(error)) from None


def _metric_ms(metrics: Mapping[str, object], tag: str) -> float | None:
    """Milliseconds of a metric; None where it is missing or 0. Raises `ValueError` for a unit that is not of time."""
    value = _metric(metrics, tag)
    if not value:
        return None
    found = metrics.get(tag)
    unit = text(cast("Mapping[str, object]", found), "unit") if isinstance(found, dict) else "ms"
    if unit not in _TIMES:
        raise UnreadableError("unread.unit", metric=tag, unit=unit[:20])
    return value * _TIMES[unit]


_TIMES = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
"""To milliseconds."""
