"""JSON of llama.cpp's SPEED-Bench client: `speed_bench.py --output` (tools/server/bench/speed-bench, May 2026).

`summary` has a row per category and one for all: `avg_pred_t_s`, the mean over requests of the server's decode rate,
`draft_n` and `accepted`, the sums over requests, and their quotient `accept_rate`. `results` has the requests
themselves. What the client prints, and what `speed_bench_compare.py` makes of two runs, are tables (`table`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim
from specmeter.audit.read.document import MAX_LIST, count, parse_json, positive, read_text, text
from specmeter.audit.read.serving import claims_of
from specmeter.errors import UsageError


def sniff(head: str) -> bool:
    """The keys that the client's file has, in any order."""
    if not head.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    keys = set(re.findall(r'"([a-z_]{3,40})"\s*:', head))
    return {"completed_samples", "config"} <= keys or {"avg_pred_t_s", "accept_rate"} <= keys


def read(path: Path) -> Iterator[Claim]:
    """One claim per category and request. Raises `UsageError` for a file that cannot be read."""
    whole = parse_json(read_text(path))
    if not isinstance(whole, dict):
        reason = whole if isinstance(whole, str) else "a list"
        raise UsageError(f"{path}: not JSON of speed_bench.py: {reason}", fix="give the whole file of --output")
    document = cast("dict[str, object]", whole)
    raw = document.get("config")
    config: Mapping[str, object] = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}

    def objects() -> Iterator[tuple[str, Mapping[str, object] | str]]:
        for name in ("summary", "results"):
            rows = document.get(name)
            for number, row in enumerate(cast("list[object]", rows) if isinstance(rows, list) else [], start=1):
                if number > MAX_LIST:
                    raise UsageError(f"{path}: more than {MAX_LIST:,} {name}", fix="split the file")
                place = f"{name}, row {number}"
                yield place, cast("Mapping[str, object]", row) if isinstance(row, dict) else "not an object"

    return claims_of(objects(), path, lambda item: _fields(item, config))


def _fields(item: Mapping[str, object], config: Mapping[str, object]) -> dict[str, Any]:
    category = text(item, "category")
    drafted = count(item, "draft_n")
    accepted = count(item, "accepted" if "accepted" in item else "draft_n_accepted")
    found: dict[str, Any] = {
        "label": category,
        "target": text(config, "model") or None,
        "conditions": {"category": category} if category else {},
        "concurrency": count(config, "concurrency") or None,
        "drafted": drafted or None,
        "accepted": accepted if drafted else None,
        "acceptance": accepted / drafted if drafted and accepted is not None else None,
        "acceptance_of": "drafted",
        "pooled": ("acceptance",),
        "engine": "llama.cpp",
    }
    if drafted == 0:
        found["method"] = "none"
    if "avg_pred_t_s" in item:
        requests = count(item, "requests")
        if requests == 0:
            raise ValueError("requests is 0: no request succeeded")
        return found | {
            "decode_rate": positive(item, "avg_pred_t_s"),
            "runs": requests,
            "averaged": ("decode_rate",),
        }
    if item.get("ok") is False:
        raise ValueError(f"the request failed: {text(item, 'error')[:80]}")
    return found | {
        "label": " ".join(part for part in (category, text(item, "id")[:20]) if part),
        "conditions": found["conditions"] | ({"prompt": text(item, "id")} if text(item, "id") else {}),
        "decode_rate": positive(item, "predicted_per_second"),
        "predicted_ms": positive(item, "predicted_ms"),
        "prompt_ms": positive(item, "prompt_ms"),
        "predicted_n": count(item, "completion_tokens"),
        "prompt_n": count(item, "prompt_tokens"),
        "runs": max(1, count(item, "turns") or 1),
    }
