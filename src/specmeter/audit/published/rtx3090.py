"""19 configurations of llama-server with Qwen3.6-35B-A3B on one RTX 3090: a loss on each, at 100 % acceptance.

The server of that build verified drafts of a recurrent model by saving its state, restoring it on any rejection and
verifying again what had been accepted; only the second verification was counted. Whatever the draft is worth, accepted
and drafted tokens are then the same number, in every row: acceptance by construction. The rates are another matter:
they divide all tokens by the time of all but the first, in each arm alike, and nothing contradicts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specmeter.audit.claim import Claim
from specmeter.audit.published.table import Row, half_digit, rows

_COMMON: dict[str, Any] = {
    "device": "RTX 3090",
    "size_bytes": 21e9,
    "experts": 256,
    "bytes_per_token": 21e9 * 3 / 35,
    "window": "all tokens",
}
_ROUNDING = {"size_bytes": 0.5e9, "bytes_per_token": 0.5e9 * 3 / 35 + 21e9 * 0.5 / 35}
"""21 GB on disk, 3 billion active of about 35 billion parameters."""


def claims() -> Iterator[Claim]:
    """The summary of all arms, then the published requests."""
    yield from _summary()
    yield from _requests()


def _summary() -> Iterator[Claim]:
    table = rows("rtx3090_19_summary.csv")
    arms = {row["config"]: row for row in rows("rtx3090_19_arms.csv")}
    pooled = {row["config"]: row["pooled_tok_s"] for row in table}
    for number, row in enumerate(table, start=2):
        arm = arms[row["config"]]
        values = _arm(arm)
        values["rounding"] |= {"decode_rate": half_digit(row["pooled_tok_s"]), "predicted_ms": 0.0005}
        if row["config"] != row["reference"]:
            values["baseline_rate"] = float(pooled[row["reference"]])
            values["rounding"] |= {"baseline_rate": half_digit(pooled[row["reference"]])}
            values["speedup"] = 1 + float(row["pooled_delta_pct"]) / 100
            values["rounding"] |= {"speedup": half_digit(row["pooled_delta_pct"], 0.01)}
        if arm["spec_type"] != "none":
            drafted, accepted = int(row["counted_draft_tokens"]), int(row["counted_draft_accepted"])
            values |= {"drafted": drafted, "accepted": accepted, "acceptance": accepted / drafted if drafted else None}
            values["notes"] += (
                f"drafts were counted in {row['requests_with_draft_rounds']} of {row['requests']} requests",
            )
        yield Claim(
            source="rtx3090-19/summary.csv",
            row=f"summary, line {number}",
            decode_rate=float(row["pooled_tok_s"]),
            runs=int(row["requests"]),
            predicted_n=int(row["generated_tokens"]),
            predicted_ms=float(row["decode_ms"]),
            **values,
        )


def _requests() -> Iterator[Claim]:
    table = rows("rtx3090_19_requests_sample.csv")
    arms = {row["config"]: row for row in rows("rtx3090_19_arms.csv")}
    baseline = {row["prompt"]: row["tok_s"] for row in table if row["config"] == "baseline"}
    for number, row in enumerate(table, start=2):
        arm = arms[row["config"]]
        values = _arm(arm)
        values["label"] += f", {row['prompt']}"
        values["rounding"] |= {"decode_rate": half_digit(row["tok_s"]), "predicted_ms": half_digit(row["predicted_ms"])}
        if arm["spec_type"] != "none":
            drafted, accepted = int(row["draft_n"]), int(row["draft_n_accepted"])
            values |= {"drafted": drafted, "accepted": accepted, "acceptance": accepted / drafted if drafted else None}
            values["baseline_rate"] = float(baseline[row["prompt"]])
            values["rounding"] |= {"baseline_rate": half_digit(baseline[row["prompt"]])}
        yield Claim(
            source="rtx3090-19/requests.csv",
            row=f"requests, line {number}",
            decode_rate=float(row["tok_s"]),
            runs=1,
            predicted_n=int(row["predicted_n"]),
            predicted_ms=float(row["predicted_ms"]),
            prompt_n=int(row["prompt_n"]),
            **values,
        )


def _arm(arm: Row) -> dict[str, Any]:
    return {
        "label": arm["config"],
        "method": arm["spec_type"],
        "gamma": int(arm["draft_max"]) if arm["draft_max"] else None,
        "rounding": dict(_ROUNDING),
        "notes": (arm["note"],) if arm["note"] else (),
        **_COMMON,
    }
