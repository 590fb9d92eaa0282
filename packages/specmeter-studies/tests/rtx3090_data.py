"""Made-up data of rtx3090-19: its configurations at rates that a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from originals import rows
from specmeter.messages import Message
from specmeter.record import Estimate, ExpertUnion, Verdict
from specmeter.record.measured import UnionPoint
from specmeter_studies.library.rtx3090_19.lines import F16, LONGER, OTHER_VOCABULARY, RERUNS
from specmeter_studies.study import ArmResult, ModelUsed, Requests, StudyData

PLAIN = 100.0
"""tok/s of the baselines."""
ARMS = {row["config"]: row for row in rows("rtx3090_19_arms.csv")}


class Made(NamedTuple):
    """What a configuration did."""

    ratio: float = 0.8
    drafted: int = 300
    accepted: int = 150
    lowest: float = 0.45
    """Of the baseline's rate."""
    verdict: Verdict = "valid"


def study(
    each: Callable[[str], Made] = lambda _: Made(),
    changes: Mapping[str, Made] | None = None,
    *,
    noise: float = 0.002,
    experts: tuple[int, int] = (256, 8),
    read: float | None = None,
    larger: tuple[int, int] | None = None,
    f16_baseline: bool = False,
    second_draft: Made | None = None,
) -> StudyData:
    """19 configurations; repetitions differ by `noise`. `read`: experts that 95 tokens of text choose.

    `larger`: experts of a model with more active parameters."""
    own = {OTHER_VOCABULARY: Made(1.0, 0, 0, 1.0, "invalid"), **(changes or {})}
    lines: list[ArmResult] = []
    for name, arm in ARMS.items():
        made = own.get(name) or each(name)
        if arm["spec_type"] == "none":
            made = Made(1.0, 0, 0, 1.0)
        if name in RERUNS:
            made = (own.get(RERUNS[name]) or each(RERUNS[name])) if arm["spec_type"] != "none" else made
            made = made._replace(ratio=made.ratio * (1 + noise))
        if name == F16 and not f16_baseline:
            made = made._replace(verdict="invalid")
        reference = "baseline-1000tok" if name in LONGER else "baseline"
        reference = "baseline-kv-fp16" if name == F16 and f16_baseline else reference
        lines.append(line(name, made, None if name in ("baseline", "baseline-1000tok") else reference))
    if f16_baseline:
        lines.append(line("baseline-kv-fp16", Made(1.0, 0, 0, 1.0), None))
    if second_draft is not None:
        lines.append(line("draft-second-max16", second_draft, "baseline"))
    models = [
        ModelUsed(name="moe", reference="moe", active_parameters=3e9, experts=experts[0], experts_used=experts[1])
    ]
    if read is not None:
        of_text = Estimate(point=read, low=read - 2, high=read + 2, n=5, unit="experts", method="made up")
        union = ExpertUnion(experts=256, used=8, points=(UnionPoint(tokens=95, union=of_text),))
        models = [models[0].model_copy(update={"union": union})]
    if larger is not None:
        more = ModelUsed(name="more", reference="more", active_parameters=10e9)
        models.append(more.model_copy(update={"experts": larger[0], "experts_used": larger[1]}))
    return StudyData(study="rtx3090-19", origin="measured", title="made up", arms=tuple(lines), models=tuple(models))


def line(name: str, made: Made, reference: str | None) -> ArmResult:
    """A configuration over ten requests."""
    arm = ARMS.get(name, {"spec_type": "draft-simple" if name.startswith("draft") else "none", "draft_max": "16"})
    rate, generated = PLAIN * made.ratio, 3000
    speculates = arm["spec_type"] != "none"
    invalid = made.verdict == "invalid"
    return ArmResult(
        config=f"moe/{name}",
        target="moe",
        draft={"": None}.get(arm.get("draft_model", "second"), arm.get("draft_model", "second"))
        if speculates
        else None,
        method=arm["spec_type"],
        gamma=int(arm["draft_max"]) if arm["draft_max"] and speculates else None,
        max_tokens=1000 if name.endswith("1000tok") else 300,
        requests=10,
        decode_rate=Estimate(point=rate, n=1, unit="tok/s", method="made up"),
        baseline=f"moe/{reference}" if reference else None,
        claimed_speedup=made.ratio if invalid else None,
        one_by_one=Requests(
            mean_rate=rate * 1.05,
            median_rate=PLAIN,
            lowest_rate=PLAIN * made.lowest,
            highest_rate=PLAIN * 1.01,
            rate_sd=20.0,
            generated=generated,
            decode_ms=1000 * (generated - 10) / rate,
            drafted=made.drafted,
            accepted=made.accepted,
            drafting=3,
        ),
        verdict=made.verdict,
        why=Message("study.because", name="speculation-not-active", why="it did not")
        if name == OTHER_VOCABULARY
        else None,
    )
