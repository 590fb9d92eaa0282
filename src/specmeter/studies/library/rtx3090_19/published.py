"""rtx3090-19: the document's own numbers, the summary of 19 configurations and the 30 requests that are packaged.

Two *comparisons* are false by what the document itself says, before any bound is tried: one configuration was compared
with a baseline of another KV type, and the draft of another one has another vocabulary, so that nothing speculates. The
rates of both are ordinary ones.
"""

from __future__ import annotations

from specmeter.audit.published.table import Row, rows
from specmeter.record import Estimate
from specmeter.studies import from_claims
from specmeter.studies.library.rtx3090_19.lines import F16, OTHER_VOCABULARY
from specmeter.studies.study import ArmResult, ModelUsed, Requests, Result, StudyData
from specmeter.theory import catalogue
from specmeter.theory.catalogue import models

DEVICE = "RTX 3090"
TARGET = "Qwen3.6-35B-A3B"
ABOVE = "Qwen3.5-122B-A10B"
"""Not measured: a model that the document says lies above the threshold."""
_UNLIKE = "baseline-unlike: measured with f16 KV, and compared with a baseline of q8_0 KV"
_VOCABULARY = "vocab-mismatch: its vocabulary has 151936 tokens, the target's 248320: no server drafts with it"


def published() -> StudyData:
    """What the document printed, with what is known against it."""
    arms = {row["config"]: row for row in rows("rtx3090_19_arms.csv")}
    return StudyData(
        study="rtx3090-19",
        origin="published",
        title="published by thc1006, April 2026",
        results=tuple(_results(arms)),
        arms=tuple(_lines(arms)),
        models=(_model(TARGET, size_bytes=21e9, quantization="UD-Q4_K_XL"), _model(ABOVE)),
        machine=DEVICE,
        bandwidth_bytes_per_s=peak.high if (peak := catalogue.peak(DEVICE)) else None,
        notes=(
            "Rates divide all tokens by the time of all but the first: 0.3 % too much at 300, in all arms alike.",
            "Single requests are known of three configurations; of the others their summary.",
            "Every configuration was run once. Intervals come from the two that were run twice.",
            "The author withdrew the 100 % acceptance and the mechanism later (August 2026, in the same repository).",
            "Two ratios are struck out, since they compare what is not alike; the rates themselves are as printed.",
            f"`specmeter audit --published rtx3090-19` rules the document's own {from_claims.tally('rtx3090-19')}.",
        ),
    )


def _model(name: str, size_bytes: float | None = None, quantization: str = "") -> ModelUsed:
    """A model of the document; experts are those of its configuration, parameters those of its name."""
    found = models.model(name)
    return ModelUsed(
        name=name,
        reference=f"{name} {quantization}".strip(),
        size_bytes=size_bytes,
        parameters=found.total * 1e9 if found.total else None,
        active_parameters=found.active * 1e9 if found.active else None,
        experts=found.experts.count if found.experts else None,
        experts_used=found.experts.used if found.experts else None,
        quantization=quantization,
    )


def _lines(arms: dict[str, Row]) -> list[ArmResult]:
    printed = {row["config"]: row for row in rows("rtx3090_19_summary.csv")}
    found: dict[str, ArmResult] = {}
    for ruling in from_claims.rulings("rtx3090-19", "rtx3090-19/summary.csv"):
        config = ruling.claim.label
        row, arm = printed[config], arms[config]
        line = from_claims.arm(
            ruling,
            config=config,
            target=TARGET,
            draft=arm["draft_model"] or None,
            max_tokens=int(arm["max_tokens"]),
        )
        remarks = [other for other in ruling.others if other.startswith("acceptance-by-construction")]
        found[config] = _judged(line).model_copy(
            update={
                "baseline": row["reference"] if row["reference"] != config else None,
                "one_by_one": _requests(row),
                "decode_rate": _pooled(row),
                **({"why": remarks[0]} if remarks and not _judged(line).why else {}),
            }
        )
    return [found[config] for config in arms]


def _judged(line: ArmResult) -> ArmResult:
    why = {F16: _UNLIKE, OTHER_VOCABULARY: _VOCABULARY}.get(line.config)
    if why is None:
        return line
    claimed = line.speedup.point if line.speedup else line.claimed_speedup
    of_comparison = {"comparison_only": True, "verdict": "invalid", "rate_verdict": line.verdict}
    return line.model_copy(update={**of_comparison, "why": why, "speedup": None, "claimed_speedup": claimed})


def _pooled(row: Row) -> Estimate:
    n = int(row["requests"])
    return Estimate(point=float(row["pooled_tok_s"]), n=n, unit="tok/s", method="pooled as printed; no interval")


def _requests(row: Row) -> Requests:
    return Requests(
        mean_rate=float(row["request_mean_tok_s"]),
        median_rate=float(row["median_tok_s"]),
        lowest_rate=float(row["min_tok_s"]),
        highest_rate=float(row["max_tok_s"]),
        rate_sd=float(row["across_prompt_sd"]),
        generated=int(row["generated_tokens"]),
        decode_ms=float(row["decode_ms"]),
        drafted=int(row["counted_draft_tokens"]),
        accepted=int(row["counted_draft_accepted"]),
        drafting=int(row["requests_with_draft_rounds"]),
    )


def _results(arms: dict[str, Row]) -> list[Result]:
    found: list[Result] = []
    for ruling in from_claims.rulings("rtx3090-19", "rtx3090-19/requests.csv"):
        claim = ruling.claim
        config, _, prompt = claim.label.partition(", ")
        result = from_claims.result(
            ruling,
            config=config,
            target=TARGET,
            draft=arms[config]["draft_model"] or None,
            prompt=prompt,
            max_tokens=int(arms[config]["max_tokens"]),
        )
        counted = {"drafted": claim.drafted or 0, "accepted": claim.accepted or 0}
        found.append(
            result.model_copy(update={"generated": claim.predicted_n, "decode_ms": claim.predicted_ms, **counted})
        )
    return found
