"""moe-306: its names, which lines belong together, and arithmetic of estimates that its claims rest on.

Suites, as the paper's Table 3 names them:

    A   mixture-of-experts targets by themselves        B   mixture-of-experts targets with drafts
    C   dense models by themselves                      D   dense targets with drafts
    F   prompts of 32 to 1024 tokens, with and without drafts
    E   another architecture (numbered in the paper's data, measured by nobody; optional here)

Intervals of products and quotients are taken at their worst: the lower end of one with the upper end of the other. They
are too wide rather than too narrow, so that a ruling made from them errs on the side of "cannot tell".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specmeter.record import Estimate
from specmeter.studies.study import ArmResult, ModelUsed, StudyData

SUITES = {
    "A": "MoE baselines (no speculation)",
    "B": "MoE with drafts (2 drafts x 3 gamma x 4 prompts)",
    "C": "Dense baselines (no speculation)",
    "D": "Dense with drafts (2 targets, the smaller draft)",
    "E": "Another architecture",
    "F": "Prompt lengths (one MoE target)",
}
"""Suite -> the paper's description; E is ours."""

LABELS = {
    "moe_q4": "MoE Q4",
    "moe_q8": "MoE Q8",
    "moe_other": "Other MoE",
    "dense_0.8b": "Dense 0.8B",
    "dense_2b": "Dense 2B",
    "dense_4b": "Dense 4B",
    "dense_9b": "Dense 9B",
    "draft_0.8b": "0.8B",
    "draft_2b": "2B",
}
"""Names of models -> what the paper prints."""

MOE = ("moe_q4", "moe_q8")
DENSE = ("dense_4b", "dense_9b")
"""Dense models that are targets of speculation, not only measured by themselves."""
SMALL, LARGE = "draft_0.8b", "draft_2b"
GAMMAS = (4, 8, 16)

LEAST_EXACT = 3
"""So many generations, all on one side, are an exact count that needs no interval."""


def suite(line: ArmResult) -> str:
    """The paper's suite of a configuration, told by its target, its method, and the name of the arms of suite F."""
    if line.config.partition("/")[2].startswith("lengths"):
        return "F"
    if line.target == "moe_other":
        return "E"
    if line.target.startswith("moe"):
        return "B" if line.speculates else "A"
    return "D" if line.speculates else "C"


def label(name: str) -> str:
    """How the paper calls a model; our own name for others."""
    return LABELS.get(name, name)


def named(line: ArmResult) -> str:
    """A configuration in a few words: `MoE Q4, 0.8B draft, gamma 8`."""
    if not line.speculates:
        return label(line.target)
    return f"{label(line.target)}, {label(line.draft or line.method)} draft, gamma {line.gamma}"


# --- which lines -----------------------------------------------------------------------------------------------------


def overall(data: StudyData, *suites: str) -> tuple[ArmResult, ...]:
    """Lines over all prompts of a suite; of all suites where none is named."""
    whole = (line for line in data.arms if line.prompt is None and line.prompt_tokens is None)
    return tuple(line for line in whole if not suites or line.suite in suites)


def speculative(
    data: StudyData, *suites: str, target: str | Sequence[str] | None = None, draft: str | None = None
) -> tuple[ArmResult, ...]:
    """Lines over all prompts that speculate, in the suites named (default B and D), by target and gamma."""
    targets = (target,) if isinstance(target, str) else target
    return tuple(
        line
        for line in overall(data, *(suites or ("B", "D")))
        if line.speculates and (targets is None or line.target in targets) and draft in (None, line.draft)
    )


def at(data: StudyData, target: str, draft: str, gamma: int) -> ArmResult | None:
    """One configuration of suite B or D; None where it was not measured."""
    return next((line for line in speculative(data, target=target, draft=draft) if line.gamma == gamma), None)


def by_length(data: StudyData) -> tuple[ArmResult, ...]:
    """Lines of suite F by prompt length, shortest first."""
    found = [line for line in data.arms if line.suite == "F" and line.prompt_tokens is not None]
    return tuple(sorted(found, key=lambda line: line.prompt_tokens or 0))


def by_kind(data: StudyData, target: str, draft: str, gamma: int) -> tuple[ArmResult, ...]:
    """Lines of one configuration of suites B and D on each kind of prompt."""
    return tuple(
        line
        for line in data.arms
        if line.prompt is not None
        and line.suite in ("B", "D")
        and (line.target, line.draft, line.gamma) == (target, draft, gamma)
    )


def baseline_of(data: StudyData, line: ArmResult) -> ArmResult | None:
    """The same target by itself: on prompts of the same lengths for suite F, else over all prompts of its suite."""
    same = data.arms if line.suite == "F" else overall(data, "A", "C", "E")
    return next(
        (
            other
            for other in same
            if not other.speculates
            and other.target == line.target
            and (line.suite != "F" or (other.suite == "F" and other.prompt_tokens == line.prompt_tokens))
        ),
        None,
    )


def refuted(data: StudyData, line: ArmResult) -> float | None:
    """A speedup that is false: what was claimed, else what the paper's reckoning gives without a baseline of its own.

    The latter divides by the same target's rate on other prompts at another time, as the arrangement of the paper does.
    """
    if line.claimed_speedup is not None or line.verdict != "invalid" or not line.speculates:
        return line.claimed_speedup
    base = baseline_of(data, line)
    if base is None or base.decode_rate is None or line.decode_rate is None or not base.decode_rate.point:
        return None
    return line.decode_rate.point / base.decode_rate.point


def draft_rate(data: StudyData, draft: str | None) -> Estimate | None:
    """tok/s of a draft model by itself: suite C measures the same model as `dense_...`."""
    name = (draft or "").replace("draft_", "dense_")
    return next((line.decode_rate for line in overall(data, "C") if line.target == name), None)


def model(data: StudyData, name: str) -> ModelUsed | None:
    """A model as it was used."""
    return next((used for used in data.models if used.name == name), None)


def believable(lines: Iterable[ArmResult]) -> tuple[ArmResult, ...]:
    """Lines with a speedup that nothing refutes."""
    return tuple(line for line in lines if line.verdict != "invalid" and line.speedup is not None)


# --- arithmetic of estimates -----------------------------------------------------------------------------------------


def above(estimate: Estimate | None, value: float) -> bool:
    """Whether the whole interval lies above; never without an interval."""
    return estimate is not None and estimate.low is not None and estimate.low > value


def below(estimate: Estimate | None, value: float) -> bool:
    """Whether the whole interval lies below; never without an interval."""
    return estimate is not None and estimate.high is not None and estimate.high < value


def exceeds(first: Estimate | None, second: Estimate | None) -> bool:
    """Whether the first interval lies wholly above the second."""
    return second is not None and second.high is not None and above(first, second.high)


def product(first: Estimate, second: Estimate, *, unit: str, method: str) -> Estimate:
    """first x second, both positive; without an interval where one of them has none."""
    return _combined(first, second, second.low, second.high, second.point, unit, method)


def quotient(first: Estimate, second: Estimate, *, unit: str, method: str) -> Estimate:
    """first / second, both positive; without an interval where one of them has none."""
    low = None if not second.high else 1 / second.high
    high = None if not second.low else 1 / second.low
    return _combined(first, second, low, high, 1 / second.point, unit, method)


def scaled(estimate: Estimate, factor: float, *, unit: str | None = None) -> Estimate:
    """The estimate times a number above 0."""
    low, high = (None if value is None else value * factor for value in (estimate.low, estimate.high))
    changed = {"point": estimate.point * factor, "low": low, "high": high, "unit": unit or estimate.unit}
    return estimate.model_copy(update=changed)


def _combined(
    first: Estimate, second: Estimate, low: float | None, high: float | None, point: float, unit: str, method: str
) -> Estimate:
    return Estimate(
        point=first.point * point,
        low=None if first.low is None or low is None else first.low * low,
        high=None if first.high is None or high is None else first.high * high,
        level=min(first.level, second.level),
        n=min(first.n, second.n),
        unit=unit,
        method=method,
    )


# --- how numbers are said --------------------------------------------------------------------------------------------


def said(estimate: Estimate | None, digits: int = 2, unit: str = "") -> str:
    """`1.02x [0.99, 1.05]`; without an interval the point alone."""
    if estimate is None:
        return "unknown"
    point = f"{estimate.point:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{point} (no interval)"
    return f"{point} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def listed(lines: Iterable[ArmResult], most: int = 6) -> str:
    """Configurations with their speedups; the rest counted."""
    texts = [f"{named(line)} {said(line.speedup, unit='x')}" for line in lines]
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
