"""moe-306: what drafts of the mixtures have accepted, and what is gained with them."""

from __future__ import annotations

from specmeter.numbers.estimates import above, below
from specmeter.studies.library.moe_306.equations import at_acceptance
from specmeter.studies.library.moe_306.lines import (
    GAMMAS,
    MOE,
    SMALL,
    at,
    believable,
    listed,
    named,
    overall,
    speculative,
)
from specmeter.studies.library.moe_306.mechanism import LOW_ACCEPTANCE, by_bounds
from specmeter.studies.library.moe_306.rules import (
    acceptance_of,
    acceptances,
    best_first,
    gains,
    percent,
    unanimous,
    without,
)
from specmeter.studies.study import Finding, StudyData
from specmeter.studies.telling import Found, by_values, denied_by, quoted

# --- acceptance ------------------------------------------------------------------------------------------------------


def low_acceptance(data: StudyData) -> Found:
    """Contribution 1."""
    if data.origin == "published":
        return _printed_acceptance(data)
    lines = [line for line in overall(data, "B", "D", "F") if line.speculates and line.acceptance is not None]
    usable = [line for line in lines if line.stands]
    over = [line for line in usable if above(line.acceptance, LOW_ACCEPTANCE)]
    if over:
        ruling: Finding = "contradicted"
    elif usable and len(usable) == len(lines) and all(below(line.acceptance, LOW_ACCEPTANCE) for line in usable):
        ruling = "supported"
    else:
        ruling = "cannot tell"
    found = (
        without(lines)
        if not usable
        else f"Above 4 % with the whole interval: {len(over)} of {len(lines)} configurations. "
    )
    if usable:
        worst = max(over or usable, key=acceptance_of)
        found += f"The highest: {named(worst)} (suite {worst.suite}) {percent(worst.acceptance)}."
    if usable and len(usable) < len(lines):
        found += f" {len(lines) - len(usable)} more do not stand and were not counted."
    return ruling, found


def _printed_acceptance(data: StudyData) -> Found:
    """By every generation of suites B and D; suite F, whose counter says 100 % whatever happens, is not evidence."""
    drafted = {line.config for line in speculative(data)}
    shares = [it.acceptance for it in data.results if it.config in drafted and it.acceptance is not None]
    over = denied_by(shares, most=LOW_ACCEPTANCE, last_digit=0.01)
    told = (
        f"Of {len(shares)} generations of suites B and D {len(over)} accepted more than 4 %, beyond its last digit; "
        f"the highest {100 * max(shares, default=0):.1f} %"
    )
    printed = [share for line in speculative(data) if (share := acceptance_of(line))]
    told += f". The paper's means over prompts reach {100 * max(printed, default=0):.1f} %, and hide these prompts"
    swept = [it.acceptance for it in data.results if it.config not in drafted and it.acceptance is not None]
    if swept and all(share == 1 for share in swept):
        told += f". The 100 % of all {len(swept)} generations of suite F were not counted: it is all that counter says"
    return by_values("contradicted" if over else "cannot tell", f"{told}.")


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
        return by_bounds(data, lines)
    return ruling, found


def always_enable(data: StudyData) -> Found:
    """Practical implication 1."""
    advised = [line for target in MOE if (line := at(data, target, SMALL, GAMMAS[-1])) is not None]
    usable = believable(advised)
    if not usable:
        return by_bounds(data, advised)
    ruling, mean = gains(data, usable)
    others = believable(speculative(data, "B"))
    losing = [line for line in others if below(line.speedup, 1)]
    return ruling, (
        f"As advised (smallest draft, gamma {GAMMAS[-1]}): {listed(usable)}{mean}. Of all {len(others)} MoE "
        f"configurations {len(losing)} lose beyond the interval, each taken by itself."
    )


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
        found = f"No MoE configuration accepts more than 50 % with the whole interval ({acceptances(lines)})."
    else:
        ruling, found = "cannot tell", "No MoE configuration with a believable speedup accepts more than 50 %."
    return ruling, found
