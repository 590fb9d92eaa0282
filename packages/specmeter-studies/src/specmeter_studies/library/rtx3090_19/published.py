"""rtx3090-19: the document's own numbers, the summary of 19 configurations and their 190 requests.

Two *comparisons* are false by what the document itself says, before any bound is tried: one configuration was compared
with a baseline of another KV type, and the draft of another one has another vocabulary, so that nothing speculates. The
rates of both are ordinary ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.theory.catalogue import devices as catalogue
from specmeter.theory.catalogue import models
from specmeter_studies import from_claims
from specmeter_studies.library.rtx3090_19.lines import F16, OTHER_VOCABULARY
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, Requests, StudyData

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

STUDY, _SUMMARY = "rtx3090-19", "rtx3090-19/summary.csv"
DEVICE = "RTX 3090"
TARGET = "Qwen3.6-35B-A3B"
ABOVE = "Qwen3.5-122B-A10B"
"""Not measured: a model that the document says lies above the threshold."""
_UNLIKE = Message("study.because", name="baseline-unlike", why=Message("rtx3090-19.unlike"))
_VOCABULARY = Message("study.because", name="vocab-mismatch", why=Message("rtx3090-19.vocabulary"))


def published() -> StudyData:
    """What the document printed, with what is known against it."""
    return StudyData(
        study="rtx3090-19",
        origin="published",
        title=Message("rtx3090-19.published"),
        results=tuple(_results()),
        arms=tuple(_lines()),
        models=(_model(TARGET, size_bytes=21e9, quantization="UD-Q4_K_XL"), _model(ABOVE)),
        machine=DEVICE,
        bandwidth_bytes_per_s=peak.high if (peak := catalogue.peak(DEVICE)) else None,
        notes=(
            (Message("rtx3090-19.rates")),
            Message("rtx3090-19.requests"),
            Message("rtx3090-19.once"),
            Message("rtx3090-19.withdrawn"),
            (Message("rtx3090-19.struck")),
            Message("rtx3090-19.audited", tally=from_claims.tally("rtx3090-19")),
            Message("rtx3090-38.ruled_again"),
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


def _lines() -> Iterator[ArmResult]:
    printed = zip(from_claims.rulings(STUDY, _SUMMARY), tables.cells(_SUMMARY), strict=True)
    by_name = {ruling.claim.label: (ruling, cells) for ruling, cells in printed}
    for configuration in tables.cells("rtx3090-19/configurations.csv"):
        ruling, cells = by_name[configuration["label"]]
        line = from_claims.arm(ruling, max_tokens=int(cells["max_tokens"]))
        remarks = [it for it in ruling.others if it.values.get("check") == "acceptance-by-construction"]
        judged = _judged(line)
        yield judged.model_copy(
            update={
                "baseline": cells["reference"] if cells["reference"] != line.config else None,
                "one_by_one": _requests(ruling.claim, cells),
                "decode_rate": _pooled(line.decode_rate),
                **({"why": _remark(remarks[0])} if remarks and not judged.why else {}),
            }
        )


def _remark(said: Message) -> Message:
    """A bound that was tried besides, and what it says."""
    return Message("study.because", name=said.values["check"], why=said.values["line"])


def _judged(line: ArmResult) -> ArmResult:
    why = {F16: _UNLIKE, OTHER_VOCABULARY: _VOCABULARY}.get(line.config)
    if why is None:
        return line
    claimed = line.speedup.point if line.speedup else line.claimed_speedup
    of_comparison = {"comparison_only": True, "verdict": "invalid", "rate_verdict": line.verdict}
    return line.model_copy(update={**of_comparison, "why": why, "speedup": None, "claimed_speedup": claimed})


def _pooled(rate: Estimate | None) -> Estimate | None:
    return rate and rate.model_copy(update={"method": "pooled as printed; no interval"})


def _requests(claim: Claim, cells: dict[str, str]) -> Requests:
    return Requests(
        mean_rate=float(cells["request_rate_mean"]),
        median_rate=float(cells["request_rate_median"]),
        lowest_rate=float(cells["request_rate_lowest"]),
        highest_rate=float(cells["request_rate_highest"]),
        rate_sd=float(cells["request_rate_sd"]),
        generated=claim.predicted_n or 0,
        decode_ms=claim.predicted_ms or 0.0,
        drafted=claim.drafted or 0,
        accepted=claim.accepted or 0,
        drafting=int(cells["requests_with_drafts"]),
    )


def _results() -> Iterator[PromptResult]:
    for ruling in from_claims.rulings(STUDY, "rtx3090-19/requests.csv"):
        claim = ruling.claim
        result = from_claims.result(ruling, config=claim.label.partition(", ")[0])
        counted = {"drafted": claim.drafted or 0, "accepted": claim.accepted or 0}
        yield result.model_copy(update={"generated": claim.predicted_n, "decode_ms": claim.predicted_ms, **counted})
