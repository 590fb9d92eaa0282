"""moe-306: the paper's contributions, findings and advice, ruled from data.

What decides is always an interval, or an exact count. Speedups that are impossible or were found invalid count for
nothing; where the paper's condition (acceptance under 4 %) does not hold in the data, that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from specmeter.record import Estimate
from specmeter.studies.moe306_equations import at_acceptance
from specmeter.studies.moe306_lines import (
    DENSE,
    GAMMAS,
    LARGE,
    MOE,
    SMALL,
    above,
    at,
    believable,
    below,
    by_kind,
    by_length,
    exceeds,
    label,
    listed,
    model,
    named,
    overall,
    said,
    scaled,
    speculative,
)
from specmeter.studies.moe306_mechanism import (
    LOW_ACCEPTANCE,
    amortization,
    by_bounds,
    equation_2,
    moe_tax,
    verification_cost,
)
from specmeter.studies.study import ArmResult, ClaimRuling, Finding, StudyData

LEAST_EXACT = 3
"""So many generations, all on one side, are an exact count that needs no interval."""


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """Contributions, findings, advice, then what they rest on."""
    return (
        low_acceptance(data),
        amortization(data),
        total_parameters(data),
        lengths_and_gamma(data),
        works_for_moe(data),
        hierarchy(data),
        best_configuration(data),
        contexts(data),
        always_enable(data),
        smallest_draft(data),
        maximise_gamma(data),
        better_drafts(data),
        equation_2(data),
        moe_tax(data),
        verification_cost(data),
        quantization(data),
    )


# --- acceptance ------------------------------------------------------------------------------------------------------


def low_acceptance(data: StudyData) -> ClaimRuling:
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
    found = _none(lines) if not usable else f"Above 4 % for certain: {len(over)} of {len(lines)} configurations. "
    if over:
        worst = max(over, key=_acceptance)
        requests = _drafting(data, worst)
        found += f"The highest: {named(worst)} (suite {worst.suite}) {_percent(worst.acceptance)}"
        if requests and all(share == requests[0] for share in requests):
            found += f", the same in all {len(requests)} of its generations"
        found += "."
    elif usable:
        found += "The highest: " + _percent(max(usable, key=_acceptance).acceptance) + "."
    refuted = [line for line in lines if line.verdict == "invalid"]
    if refuted and usable:
        found += f" {len(refuted)} more are invalid and were not counted."
    return ClaimRuling(
        id="contribution-1",
        claim="Acceptance of small dense drafts is uniformly low, below 4 %, for MoE and dense targets alike.",
        where="abstract; section 1, contribution 1; section 4.7, Figure 4",
        ruling=ruling,
        found=found,
    )


def _surely_above(data: StudyData, line: ArmResult, value: float) -> bool:
    """By the interval, or because every single generation lies there."""
    shares = _drafting(data, line)
    exact = len(shares) >= LEAST_EXACT and all(share > value for share in shares)
    return above(line.acceptance, value) or (line.acceptance is not None and line.acceptance.low is None and exact)


def _drafting(data: StudyData, line: ArmResult) -> list[float]:
    """Acceptance of every generation of a configuration."""
    return [r.acceptance for r in data.results if r.config == line.config and r.acceptance is not None]


# --- gains on MoE ----------------------------------------------------------------------------------------------------


def works_for_moe(data: StudyData) -> ClaimRuling:
    """Finding 1."""
    lines = [line for line in speculative(data, "B") if line.draft == SMALL]
    usable = believable(lines)
    low = [line for line in usable if below(line.acceptance, LOW_ACCEPTANCE)]
    if low:
        ruling = _all(low, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
        found = f"At under 4 % acceptance: {listed(low)}."
    elif usable:
        expected = [(line, most) for line in usable if (most := at_acceptance(line, LOW_ACCEPTANCE)) is not None]
        losing = [below(most, 1) for _, most in expected]
        ruling = "contradicted" if expected and all(losing) else "cannot tell"
        found = f"Acceptance is not below 4 % here ({_span(usable)}); measured: {listed(usable)}."
        if expected:
            line, most = max(expected, key=lambda item: item[1].point)
            found += f" The same steps at 4 % acceptance would give at most {said(most, unit='x')} ({named(line)})."
    else:
        ruling, found = by_bounds(data, lines)
    return ClaimRuling(
        id="finding-1",
        claim="Speculation works for MoE: 1.18-1.30x despite acceptance under 4 %.",
        where="section 6, finding 1; Table 5",
        ruling=ruling,
        found=found,
    )


def always_enable(data: StudyData) -> ClaimRuling:
    """Practical implication 1."""
    advised = [line for target in MOE if (line := at(data, target, SMALL, GAMMAS[-1])) is not None]
    usable = believable(advised)
    if usable:
        ruling = _any_against(usable, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
        found = f"As advised (smallest draft, gamma {GAMMAS[-1]}): {listed(usable)}."
        others = believable(speculative(data, "B"))
        losing = [line for line in others if below(line.speedup, 1)]
        found += f" Of all {len(others)} MoE configurations {len(losing)} lose for certain."
    else:
        ruling, found = by_bounds(data, advised)
    return ClaimRuling(
        id="practice-1",
        claim="Always enable speculation on MoE models: a 0.8B draft with gamma 16 gives 26-30 % for free.",
        where="section 5.4, implication 1",
        ruling=ruling,
        found=found,
    )


def better_drafts(data: StudyData) -> ClaimRuling:
    """Practical implication 4."""
    lines = believable(speculative(data, "B"))
    well = [line for line in lines if above(line.acceptance, 0.5)]
    if well:
        ruling = _all(well, lambda line: above(line.speedup, 3), lambda line: below(line.speedup, 3))
        found = (
            f"{len(well)} MoE configurations accept more than 50 % ({_span(well)}) and reach: {listed(_best(well), 3)}."
        )
    elif lines:
        ruling, found = "cannot tell", f"No MoE configuration accepts more than 50 % for certain ({_span(lines)})."
    else:
        ruling, found = "cannot tell", "No MoE configuration with a believable speedup accepts more than 50 %."
    return ClaimRuling(
        id="practice-4",
        claim="With drafts that match the MoE, more than 50 % would be accepted, and speedups of 3-5x follow.",
        where="section 5.4, implication 4",
        ruling=ruling,
        found=found,
    )


# --- what the gain depends on ----------------------------------------------------------------------------------------


def total_parameters(data: StudyData) -> ClaimRuling:
    """Contribution 3: the more parameters in all, the more gain, at gamma 8 (Figure 1)."""
    rows = [
        (line, used.parameters)
        for target in (*DENSE, *MOE)
        if (line := at(data, target, SMALL, 8)) is not None
        and (used := model(data, target)) is not None
        and used.parameters is not None
    ]
    usable = [(line, total) for line, total in rows if believable([line])]
    ordered = sorted(usable, key=lambda item: item[1])
    steps = [(a, b) for (a, of_a), (b, of_b) in pairwise(ordered) if of_b > of_a]
    # Every pair counts against the claim; for it, each next one has to gain more.
    against = [(a, b) for a, of_a in usable for b, of_b in usable if of_b > of_a and exceeds(a.speedup, b.speedup)]
    if len({total for _, total in usable}) < 3:
        ruling, found = (
            _impossible([line for line, _ in rows])
            if rows and not usable
            else (
                "cannot tell",
                "Three sizes of targets with a speedup that can be believed are needed.",
            )
        )
    else:
        ruling = (
            "contradicted"
            if against
            else "supported"
            if all(exceeds(b.speedup, a.speedup) for a, b in steps)
            else ("cannot tell")
        )
        found = f"At gamma 8, from few to many parameters in all: {listed([line for line, _ in ordered])}."
        if against:
            fewer, more = against[0]
            found += f" {named(more)} has more parameters than {label(fewer.target)}, and gains less for certain."
    return ClaimRuling(
        id="contribution-3",
        claim="The gain scales with the target's total parameters (memory footprint), not with its active ones.",
        where="abstract; section 1, contribution 3; section 4.3, Figure 1",
        ruling=ruling,
        found=found,
    )


def hierarchy(data: StudyData) -> ClaimRuling:
    """Finding 2."""
    small, large = (at(data, target, SMALL, GAMMAS[-1]) for target in DENSE)
    mixtures = [line for target in MOE if (line := at(data, target, SMALL, GAMMAS[-1])) is not None]
    lines = [line for line in (small, *mixtures, large) if line is not None]
    between = believable(mixtures)
    if small is not None and large is not None and len(believable([small, large])) == 2 and between:
        ruling = _any_against(
            between,
            lambda line: exceeds(line.speedup, small.speedup) and exceeds(large.speedup, line.speedup),
            lambda line: exceeds(small.speedup, line.speedup) or exceeds(line.speedup, large.speedup),
        )
        found = f"At gamma {GAMMAS[-1]}: {listed(lines)}."
    else:
        ruling, found = _impossible(lines)
    return ClaimRuling(
        id="finding-2",
        claim="MoE gains more than the dense 4B, whose active parameters are alike, and less than the dense 9B.",
        where="section 4.3; section 6, finding 2; summary page",
        ruling=ruling,
        found=found,
    )


def smallest_draft(data: StudyData) -> ClaimRuling:
    """Practical implication 2."""
    rows = [(at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)) for target in MOE for gamma in GAMMAS]
    both = [(a, b) for a, b in rows if a is not None and b is not None]
    usable = [(a, b) for a, b in both if len(believable([a, b])) == 2]
    if usable:
        for_it = [exceeds(a.speedup, b.speedup) for a, b in usable]
        against = [exceeds(b.speedup, a.speedup) for a, b in usable]
        ruling = "contradicted" if any(against) else "supported" if all(for_it) else "cannot tell"
        found = (
            f"The smaller draft is faster for certain in {sum(for_it)} of {len(usable)} pairs, slower in "
            f"{sum(against)}: "
            + "; ".join(
                f"{label(a.target)} gamma {a.gamma} {said(a.speedup, unit='x')} against {said(b.speedup, unit='x')}"
                for a, b in usable
            )
            + "."
        )
    else:
        ruling, found = _impossible([line for pair in both for line in pair])
    return ClaimRuling(
        id="practice-2",
        claim="Use the smallest draft: 0.8B is 0.12-0.14x faster than 2B although it is accepted less.",
        where="section 4.5, Table 6; section 5.4, implication 2",
        ruling=ruling,
        found=found,
    )


def maximise_gamma(data: StudyData) -> ClaimRuling:
    """Practical implication 3."""
    ruling, found = _rising(data, (*MOE, *DENSE))
    return ClaimRuling(
        id="practice-3",
        claim="Maximise gamma: larger gamma always gains more, since verification is amortized over more tokens.",
        where="section 4.4, Figure 2; section 5.4, implication 3",
        ruling=ruling,
        found=found,
    )


def best_configuration(data: StudyData) -> ClaimRuling:
    """Finding 3."""
    bests: list[tuple[ArmResult, ArmResult]] = []
    rulings: list[Finding] = []
    candidates = speculative(data, "B")
    for target in MOE:
        usable = believable(line for line in candidates if line.target == target)
        advised = next((line for line in usable if (line.draft, line.gamma) == (SMALL, GAMMAS[-1])), None)
        rest = [line for line in usable if line is not advised]
        if advised is None or not rest:
            continue
        bests.append((advised, _best(usable)[0]))
        beaten = all(exceeds(advised.speedup, other.speedup) for other in rest)
        beats = any(exceeds(other.speedup, advised.speedup) for other in rest)
        rulings.append("supported" if beaten else "contradicted" if beats else "cannot tell")
    if rulings:
        ruling = _together(rulings)
        found = "; ".join(
            f"{named(advised)} {said(advised.speedup, unit='x')}"
            + ("" if best is advised else f", where {named(best)} has {said(best.speedup, unit='x')}")
            for advised, best in bests
        )
        found = f"Best of each target by point: {found}."
    else:
        ruling, found = _impossible(candidates)
    return ClaimRuling(
        id="finding-3",
        claim="The best configuration is the smallest draft with the largest gamma (0.8B, gamma 16).",
        where="section 6, finding 3",
        ruling=ruling,
        found=found,
    )


def quantization(data: StudyData) -> ClaimRuling:
    """Section 5.3."""
    four, eight = (at(data, target, SMALL, GAMMAS[-1]) for target in MOE)
    lines = [line for line in (four, eight) if line is not None]
    if four is not None and eight is not None and len(believable(lines)) == 2:
        ruling: Finding = "cannot tell"
        if exceeds(eight.speedup, four.speedup):
            ruling = "supported"
        elif exceeds(four.speedup, eight.speedup):
            ruling = "contradicted"
        found = f"At gamma {GAMMAS[-1]}: {listed(lines)}."
    else:
        ruling, found = _impossible(lines)
    return ClaimRuling(
        id="section-5-3",
        claim="The larger file gains more: MoE Q8 (1.30x) is more bound by bandwidth than MoE Q4 (1.26x).",
        where="section 5.3",
        ruling=ruling,
        found=found,
    )


# --- contexts --------------------------------------------------------------------------------------------------------


def lengths_and_gamma(data: StudyData) -> ClaimRuling:
    """Contribution 4."""
    of_lengths, lengths = _lengths(data)
    of_gamma, gamma = _rising(data, MOE)
    return ClaimRuling(
        id="contribution-4",
        claim="The gain on MoE is robust across prompt lengths (1.19-1.26x) and rises monotonically with gamma.",
        where="section 1, contribution 4; section 4.8, Figure 5; section 4.4, Figure 2",
        ruling=_together([of_lengths, of_gamma]),
        found=f"Lengths ({of_lengths}): {lengths} Gamma ({of_gamma}): {gamma}",
    )


def contexts(data: StudyData) -> ClaimRuling:
    """Finding 4."""
    of_lengths, lengths = _lengths(data)
    lines = [line for target in MOE for line in by_kind(data, target, SMALL, 8)]
    usable = believable(lines)
    if usable:
        of_kinds = _any_against(usable, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
        shown = ", ".join(f"{label(line.target)} {line.prompt} {said(line.speedup, unit='x')}" for line in usable)
        kinds = f"gamma 8: {shown}."
    else:
        of_kinds, kinds = _impossible(lines)
    return ClaimRuling(
        id="finding-4",
        claim="The gain is robust across contexts: prompt lengths (1.19-1.26x) and kinds of prompts.",
        where="section 4.8; section 6, finding 4",
        ruling=_together([of_lengths, of_kinds]),
        found=f"Lengths ({of_lengths}): {lengths} Kinds ({of_kinds}): {kinds}",
    )


def _lengths(data: StudyData) -> tuple[Finding, str]:
    """Whether every length gains; a counter that can only say 100 % is no acceptance, and its speedups no evidence."""
    lines = [line for line in by_length(data) if line.speculates]
    usable = believable(lines)
    if not usable:
        return _impossible(lines)
    shown = ", ".join(f"{line.prompt_tokens} tokens {said(line.speedup, unit='x')}" for line in usable) + "."
    configs = {line.config for line in usable}
    shares = [r.acceptance for r in data.results if r.config in configs and r.acceptance is not None]
    if len(shares) >= LEAST_EXACT and all(share == 1 for share in shares):
        return "cannot tell", (
            f"{shown} But all {len(shares)} generations say that exactly 100 % was accepted: that is not the "
            "speculation of the other suites, whose acceptance is the paper's subject, and a counter that cannot say "
            "anything else is no evidence."
        )
    ruling = _any_against(usable, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
    return ruling, shown


def _rising(data: StudyData, targets: Sequence[str]) -> tuple[Finding, str]:
    """Whether the speedup rises with gamma on every curve."""
    rising, falling, open_, curves = 0, list[str](), 0, 0
    lines = speculative(data, target=targets)
    for target in targets:
        for draft in (SMALL, LARGE):
            curve = believable(line for gamma in GAMMAS if (line := at(data, target, draft, gamma)) is not None)
            if len(curve) < 2:
                continue
            curves += 1
            if any(exceeds(a.speedup, b.speedup) for a, b in pairwise(curve)):
                shown = " > ".join(f"{b.speedup.point:.2f}" if b.speedup else "?" for b in curve)
                falling.append(f"{label(target)} with draft {label(draft)} ({shown})".replace(" > ", ", "))
            elif len(curve) == len(GAMMAS) and all(exceeds(b.speedup, a.speedup) for a, b in pairwise(curve)):
                rising += 1
            else:
                open_ += 1
    if not curves:
        return _impossible(lines)
    ruling: Finding = "contradicted" if falling else "supported" if rising == curves else "cannot tell"
    found = f"of {curves} curves {rising} rise for certain from each gamma to the next, {len(falling)} fall somewhere"
    if falling:
        found += f" (gamma {', '.join(map(str, GAMMAS))}: {'; '.join(falling)})"
    return ruling, f"{found}, {open_} cannot be told."


# --- rulings from lines ----------------------------------------------------------------------------------------------


def _all(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> Finding:
    """Supported when all lines are for it, contradicted when all are against it."""
    if lines and all(map(for_it, lines)):
        return "supported"
    return "contradicted" if lines and all(map(against, lines)) else "cannot tell"


def _any_against(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> Finding:
    """For claims of every case: one line against it contradicts."""
    if any(map(against, lines)):
        return "contradicted"
    return "supported" if lines and all(map(for_it, lines)) else "cannot tell"


def _together(rulings: Sequence[Finding]) -> Finding:
    """Of a claim in several parts."""
    if "contradicted" in rulings:
        return "contradicted"
    return "supported" if all(ruling == "supported" for ruling in rulings) else "cannot tell"


def _impossible(lines: Sequence[ArmResult]) -> tuple[Finding, str]:
    """No speedup that could decide: what is wrong with those that are there."""
    return "cannot tell", _none(lines)


def _none(lines: Sequence[ArmResult]) -> str:
    refuted = [line for line in lines if line.verdict == "invalid"]
    if not lines:
        return "The configurations that decide were not measured."
    if not refuted and believable(lines):
        return f"Not all configurations that decide were measured; there are: {listed(believable(lines))}."
    if not refuted:
        return f"None of {len(lines)} configurations has a baseline on its own prompts in its own blocks."
    bounds = Counter(line.why.partition(":")[0] for line in refuted)
    counted = ", ".join(f"{count} by {bound}" for bound, count in bounds.most_common())
    worst = max(refuted, key=lambda line: line.claimed_speedup or 0)
    return (
        f"{len(refuted)} of {len(lines)} speedups are false and support nothing ({counted}). For example "
        f"{named(worst)}: {worst.why}."
    )


def _best(lines: Iterable[ArmResult]) -> list[ArmResult]:
    """By speedup, the highest first."""
    return sorted(lines, key=lambda line: line.speedup.point if line.speedup else 0, reverse=True)


def _acceptance(line: ArmResult) -> float:
    return line.acceptance.point if line.acceptance else 0.0


def _span(lines: Sequence[ArmResult]) -> str:
    shares = sorted(map(_acceptance, lines))
    return f"{100 * shares[0]:.0f} to {100 * shares[-1]:.0f} %"


def _percent(estimate: Estimate | None) -> str:
    return "unknown" if estimate is None else said(scaled(estimate, 100), 1, " %")
