"""JSON Lines of `python -m sglang.bench_serving` and of `bench_one_batch_server`.

`accept_length` (`acc_length` there) is the server's `avg_spec_accept_length`: tokens emitted per verification, the
target's own included, so it is tau; it is counted since the server started, warm-up and earlier runs included. Newer
versions add `server_info` with the server's arguments, among them `speculative_num_steps`: the longest chain that can
be accepted, hence gamma. (`speculative_num_draft_tokens` counts every node that is verified, the root of the tree
included.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim
from specmeter.audit.read.document import count, positive, text
from specmeter.audit.read.serving import read_benchmarks, serving_fields

_METHODS = {"eagle": "draft-eagle", "eagle3": "draft-eagle3", "nextn": "draft-mtp", "standalone": "draft-simple"}


def sniff(head: str) -> bool:
    """JSON objects with keys that only SGLang's benchmarks write."""
    if not head.lstrip("\ufeff \t\r\n[").startswith("{"):
        return False
    keys = set(re.findall(r'"([a-z_0-9]{3,40})"\s*:', head))
    serving = {"output_throughput", "duration"} <= keys or "backend" in keys
    serving = serving and bool(keys & {"accept_length", "total_output_tokens_retokenized"})
    return serving or {"acc_length", "output_throughput"} <= keys or {"last_gen_throughput", "batch_size"} <= keys


def read(path: Path) -> Iterator[Claim]:
    """One claim per benchmark. Raises `UsageError` for a file that cannot be read."""
    return read_benchmarks(path, _fields)


def _fields(item: Mapping[str, object]) -> dict[str, Any]:
    if "duration" in item or "completed" in item:
        return _with_speculation(serving_fields(item), item, positive(item, "accept_length"))
    if "output_throughput" not in item:
        raise ValueError("no output_throughput: no result of a benchmark of SGLang")
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


def _with_speculation(fields: dict[str, Any], item: Mapping[str, object], tau: float | None) -> dict[str, Any]:
    if tau is not None:
        fields["tau"] = tau
        since_start = "acceptance length is counted since the server started, warm-up included"
        fields["notes"] = (*fields.get("notes", ()), since_start)
    raw = item.get("server_info")
    server: Mapping[str, object] = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    algorithm = text(server, "speculative_algorithm").lower()
    if algorithm:
        fields["method"] = _METHODS.get(algorithm, algorithm)
        fields["gamma"] = count(server, "speculative_num_steps") if algorithm in _METHODS else None
        width = count(server, "speculative_eagle_topk")
        fields["tree"] = None if width is None else width > 1
    elif "speculative_algorithm" in server:
        fields["method"] = "none"
    return fields
