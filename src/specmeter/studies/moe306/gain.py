"""moe-306: what drafts of the mixtures have accepted, and what is gained with them."""

from __future__ import annotations

from specmeter.estimates import above, below
from specmeter.studies.moe306.equations import at_acceptance
from specmeter.studies.moe306.lines import (
    GAMMAS,
    LEAST_EXACT,
    MOE,
    SMALL,
    at,
    believable,
    listed,
    named,
    overall,
    speculative,
)
from specmeter.studies.moe306.mechanism import LOW_ACCEPTANCE, by_bounds
from specmeter.studies.moe306.rules import acceptance_of, acceptances, best_first, gains, percent, unanimous, without
from specmeter.studies.study import ArmResult, Finding, StudyData
from specmeter.studies.telling import Found, quoted

# --- acceptance ------------------------------------------------------------------------------------------------------


def low_acceptance(data: StudyData) -> Found:
    """Contribution 1."""
    lines = [line for line in overall(data, "B", "D", "F") if line.speculates and line.acceptance is not None]
    usable = [line for line in lines if line.verdict != "invalid"]
    over = [line for line in usable if _surely_above(data, line, LOW_ACCEPTANCE)]
    if over:
        ruling: Finding = "contradicted"
    elif usable and len(usable) == len(lines) and all(below(line.acceptance, LOW_ACCEPTANCE) for line in usable):
        ruling = "supported"
    else:
        ruling = "cannot tell"
    found = without(lines) if not usable else f"Above 4 % for certain: {len(over)} of {len(lines)} configurations. "
    if over:
        worst = max(over, key=acceptance_of)
        requests = _drafting(data, worst)
        found += f"The highest: {named(worst)} (suite {worst.suite}) {percent(worst.acceptance)}"
        if requests and all(share == requests[0] for share in requests):
            found += f", the same in all {len(requests)} of its generations"
        found += "."
    elif usable:
        found += "The highest: " + percent(max(usable, key=acceptance_of).acceptance) + "."
    refuted = [line for line in lines if line.verdict == "invalid"]
    if refuted and usable:
        found += f" {len(refuted)} more are invalid and were not counted."
    return ruling, found


def _surely_above(data: StudyData, line: ArmResult, value: float) -> bool:
    """By the interval, or because every single generation lies there."""
    shares = _drafting(data, line)
    exact = len(shares) >= LEAST_EXACT and all(share > value for share in shares)
    return above(line.acceptance, value) or (line.acceptance is not None and line.acceptance.low is None and exact)


def _drafting(data: StudyData, line: ArmResult) -> list[float]:
    """Acceptance of every generation of a configuration."""
    return [r.acceptance for r in data.results if r.config == line.config and r.acceptance is not None]


# --- gains on MoE ----------------------------------------------------------------------------------------------------


def works_for_moe(data: StudyData) -> Found:
    """Finding 1."""
    lines = [line for line in speculative(data, "B") if line.draft == SMALL]
    usable = believable(lines)
    low = [line for line in usable if below(line.acceptance, LOW_ACCEPTANCE)]
    if low:
        ruling = unanimous(low, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
        found = f"At under 4 % acceptance: {listed(low)}."
    elif usable:
        expected = [(line, most) for line in usable if (most := at_acceptance(line, LOW_ACCEPTANCE)) is not None]
        losing = [below(most, 1) for _, most in expected]
        ruling = "contradicted" if expected and all(losing) else "cannot tell"
        found = f"Acceptance is not below 4 % here ({acceptances(usable)}); measured: {listed(usable)}."
        if expected:
            line, most = max(expected, key=lambda item: item[1].point)
            found += f" The same steps at 4 % acceptance would give at most {quoted(most, unit='x')} ({named(line)})."
    else:
        ruling, found = by_bounds(data, lines)
    return ruling, found


def always_enable(data: StudyData) -> Found:
    """Practical implication 1."""
    advised = [line for target in MOE if (line := at(data, target, SMALL, GAMMAS[-1])) is not None]
    usable = believable(advised)
    if usable:
        ruling, mean = gains(data, usable)
        found = f"As advised (smallest draft, gamma {GAMMAS[-1]}): {listed(usable)}{mean}."
        others = believable(speculative(data, "B"))
        losing = [line for line in others if below(line.speedup, 1)]
        found += f" Of all {len(others)} MoE configurations {len(losing)} lose for certain, each taken by itself."
    else:
        ruling, found = by_bounds(data, advised)
    return ruling, found


def better_drafts(data: StudyData) -> Found:
    """Practical implication 4."""
    lines = believable(speculative(data, "B"))
    well = [line for line in lines if above(line.acceptance, 0.5)]
    if well:
        ruling = unanimous(well, lambda line: above(line.speedup, 3), lambda line: below(line.speedup, 3))
        found = (
            f"{len(well)} MoE configurations accept more than 50 % ({acceptances(well)}) and reach: "
            f"{listed(best_first(well), 3)}."
        )
    elif lines:
        ruling = "cannot tell"
        found = f"No MoE configuration accepts more than 50 % for certain ({acceptances(lines)})."
    else:
        ruling, found = "cannot tell", "No MoE configuration with a believable speedup accepts more than 50 %."
    return ruling, found
