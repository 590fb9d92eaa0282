"""JSON Lines of ik_llama.cpp's `llama-spec-bench --output-format jsonl` (examples/spec-bench, 8337e4c, August 2026).

A line per attempt, compact (`task`, `decode_tps`, `stages`) or with `--output-details` (`timing`, `tokens`, `variant`,
`speculative`), and a summary line. Its acceptance length is 1 + accepted / drafts, so it is tau. Tokens are counted
with the first one, times from after the prompt. Its Markdown report is a table like any other (`table`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim
from specmeter.audit.read.document import count, inner, positive, read_objects, read_text, text
from specmeter.audit.read.serving import claims_of

_GAMMA = re.compile(r"\bn_max=(\d{1,6})\b")


def sniff(head: str) -> bool:
    """Lines with a `row_type`, and rates or stages."""
    if not head.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    keys = set(re.findall(r'"([a-z_]{3,40})"\s*:', head))
    return "row_type" in keys and bool(keys & {"decode_tps", "stages"})


def read(path: Path) -> Iterator[Claim]:
    """One claim per attempt and for the summary. Raises `UsageError` for a file that cannot be read."""
    return claims_of(read_objects(read_text(path), path), path, _fields)


def _fields(item: Mapping[str, object]) -> dict[str, Any]:
    if item.get("ok") is False or (error := item.get("error")):
        error = item.get("error")
        raise ValueError(f"the attempt failed: {str(error)[:80]}")
    kind = text(item, "row_type")
    timing, tokens, variant = inner(item, "timing"), inner(item, "tokens"), inner(item, "variant")
    seconds = positive(timing or item, "decode_s")
    spec = inner(item, "speculative")
    stages = [cast("Mapping[str, object]", stage) for stage in _list(spec or item, "stages") if isinstance(stage, dict)]
    drafts, drafted, accepted = _totals(spec, stages)
    chain = text(variant, "stage_chain")
    task = text(item, "task") or text(item, "task_name") or kind
    found: dict[str, Any] = {
        "label": task,
        "conditions": {"task": task} if kind == "attempt" else {},
        "engine": "ik_llama.cpp",
        "decode_rate": positive(timing or item, "decode_tps"),
        "predicted_n": count(tokens or item, "generated"),
        "predicted_ms": None if seconds is None else 1e3 * seconds,
        "prompt_n": count(tokens, "prompt"),
        "runs": count(item, "successes") or 1,
        "tree": False,
        "acceptance_of": "drafted",
        "pooled": ("acceptance", "tau"),
        "gamma": int(gamma.group(1)) if (gamma := _GAMMA.search(chain)) else None,
        "window": "all tokens",
    }
    names = "+".join(name for stage in stages if (name := text(stage, "type")))
    if not stages or variant.get("is_baseline") is True:
        return found | {"method": "none"}
    found |= {"method": names or None, "steps": drafts or None, "drafted": drafted, "accepted": accepted}
    if drafted and accepted is not None:
        found["acceptance"] = accepted / drafted
    if drafts and accepted is not None:
        found["tau"] = 1 + accepted / drafts
    return found


def _totals(
    spec: Mapping[str, object], stages: list[Mapping[str, object]]
) -> tuple[int | None, int | None, int | None]:
    """(drafts, drafted tokens, accepted tokens), summed over stages where no sum is given."""
    if "num_drafts" in spec:
        return count(spec, "num_drafts"), count(spec, "draft_tokens"), count(spec, "accepted_tokens")
    sums: list[int | None] = []
    for key, other in (("drafts", "num_drafts"), ("draft_tokens", "draft_tokens"), ("accepted", "accepted_tokens")):
        values = [count(stage, key if key in stage else other) for stage in stages]
        sums.append(sum(value or 0 for value in values) if values else None)
    return sums[0], sums[1], sums[2]


def _list(item: Mapping[str, object], key: str) -> list[object]:
    value = item.get(key)
    return cast("list[object]", value)[:1_000] if isinstance(value, list) else []
