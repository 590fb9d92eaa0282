"""What the serving benchmarks of vLLM and SGLang have in common: one JSON object per benchmark of many requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read.document import count, positive, read_objects, read_text, text


def read_benchmarks(path: Path, fields_of: Callable[[Mapping[str, object]], dict[str, Any]]) -> Iterator[Claim]:
    """One claim per object of the file, its fields as `fields_of` finds them; what it refuses becomes a problem.

    Raises `UsageError` for a file that cannot be read.
    """
    yield from claims_of(read_objects(read_text(path), path), path, fields_of)


def claims_of(
    objects: Iterable[tuple[str, Mapping[str, object] | str]],
    path: Path,
    fields_of: Callable[[Mapping[str, object]], dict[str, Any]],
) -> Iterator[Claim]:
    """The same for objects that were found already: (place, object, or why there is none)."""
    for place, item in objects:
        if isinstance(item, str):
            yield Claim(source=str(path), row=place, problem=f"cannot be read: {item}")
            continue
        names = ("label", "model_id", "tag", "test_name", "Test name", "model")
        label = next((found for name in names if (found := text(item, name))), "")
        try:
            fields: dict[str, Any] = {"label": label}
            fields.update(fields_of(item))
        except ValueError as error:
            yield Claim(source=str(path), row=place, label=label, problem=str(error))
            continue
        yield claim_of(source=str(path), row=place, **fields)


def serving_fields(item: Mapping[str, object]) -> dict[str, Any]:
    """Rate, counts, time and concurrency of a serving benchmark.

    The rate is that of all requests together, over the whole duration, prompts included; the interval between tokens
    is that of one request, and what memory bandwidth is held against.
    """
    completed = count(item, "completed")
    if completed == 0:
        raise ValueError("completed is 0: no request succeeded")
    duration = positive(item, "duration")
    fields: dict[str, Any] = {
        "decode_rate": positive(item, "output_throughput"),
        "predicted_n": count(item, "total_output_tokens"),
        "prompt_n": count(item, "total_input_tokens"),
        "wall_ms": None if duration is None else 1e3 * duration,
        "token_interval_ms": _interval(item),
        "runs": completed,
        "concurrency": _concurrency(item, completed, duration),
        "window": "with prompt",
        "rounding": {"wall_ms": 0.5, "token_interval_ms": 0.0},
    }
    notes: list[str] = []
    failed = count(item, "failed")
    if failed:
        notes.append(f"{failed} requests failed; their tokens may be in some counters and not in others")
    if text(item, "dataset_name").startswith("random"):
        notes.append("random prompts: their acceptance says nothing about real text")
    if notes:
        fields["notes"] = tuple(notes)
    return fields


def _interval(item: Mapping[str, object]) -> float | None:
    """Mean time per output token; benchmarks print 0 where no request had two tokens."""
    value = item.get("mean_tpot_ms")
    return None if value in (0, 0.0) else positive(item, "mean_tpot_ms")


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
