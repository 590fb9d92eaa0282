"""moe-306: what is accepted and gained, and what the gain is said to depend on: parameters, draft, gamma, format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

from specmeter.numbers.estimates import above, below
from specmeter_studies.library.moe_306.lines import (
    DENSE,
    GAMMAS,
    LARGE,
    LEAST_EXACT,
    MOE,
    SMALL,
    acceptance_of,
    acceptances,
    any_against,
    at,
    believable,
    best_first,
    by_kind,
    by_length,
    faster,
    gains,
    in_the_mean,
    label,
    listed,
    mean_ratio,
    model,
    named,
    overall,
    percent,
    speculative,
    together,
    unanimous,
    undecided,
    without,
)
from specmeter_studies.library.moe_306.mechanism import LOW_ACCEPTANCE, by_bounds
from specmeter_studies.library.moe_306.tables import Configuration, at_acceptance, baselines
from specmeter_studies.rules import exceeded
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData, by_values, denied_by, quoted, resting_on

# --- acceptance ------------------------------------------------------------------------------------------------------


def low_acceptance(data: StudyData) -> Found:
    """Contribution 1."""
    if data.origin == "published":
        return _printed_acceptance(data)
    lines = [line for line in overall(data, "B", "D", "F") if line.speculates and line.acceptance is not None]
    usable = [line for line in lines if line.stands]
    over = [line for line in usable if above(line.acceptance, LOW_ACCEPTANCE)]
    if over:
        ruling: RulingWord = "contradicted"
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
        found += f" {len(lines) - len(usable)} more are invalid and were not counted."
    return ruling, found


def _printed_acceptance(data: StudyData) -> Found:
    """By every generation of suites B and D; suite F, whose counter says 100 % whatever happens, is not evidence."""
    drafted = {line.config for line in speculative(data)}
    shares = [it.acceptance for it in data.results if it.config in drafted and it.acceptance is not None]
    over = denied_by(shares, most=LOW_ACCEPTANCE, last_digit=0.01)
    told = (
        f"Of {len(shares)} generations of suites B and D {len(over)} accepted more than 4 %, beyond its last "
        f"digit; the highest {100 * max(shares, default=0):.1f} %"
    )
    printed = [share for line in speculative(data) if (share := acceptance_of(line))]
    told += f". The paper's means over prompts hide them: they reach {100 * max(printed, default=0):.1f} %"
    swept = [it.acceptance for it in data.results if it.config not in drafted and it.acceptance is not None]
    if swept and all(share == 1 for share in swept):
        told += (
            f". The 100 % of all {len(swept)} generations of suite F was not counted: that counter can only say 100 %"
        )
    return by_values("contradicted" if over else "cannot tell", f"{told}.")


def moe_slower(data: StudyData) -> Found:
    """Whether the dense 4B decodes faster than each mixture, by itself."""
    rows = [it for it in baselines(data) if it.line.suite in ("A", "C") and it.line.target in ("dense_4b", *MOE)]

    def dense_over_moe(rows: Sequence[Configuration]) -> list[tuple[Configuration, Configuration]]:
        mixtures = [it for it in rows if it.line.target in MOE]
        return [(it, other) for it in rows if it not in mixtures for other in mixtures]

    empty = "The mixtures and the dense 4B alone are needed."
    return exceeded(rows, "line.decode_rate", dense_over_moe, unit=" tok/s", digits=1, empty=empty)


# --- gains on MoE ----------------------------------------------------------------------------------------------------


def works_for_moe(data: StudyData) -> Found:
    """Finding 1 of the paper."""
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
        f"configurations {len(losing)} are slower beyond their own interval."
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
        ruling, found = "cannot tell", "No MoE configuration with a usable speedup accepts more than 50 %."
    return ruling, found


LAST_DIGIT = 0.01
"""Of printed speedups: two of them differ where they are further apart than each was rounded by, together."""


def total_parameters(data: StudyData) -> Found:
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
    apart = [(a, b) for a, of_a in usable for b, of_b in usable if of_b > of_a]
    against = [(a, b) for a, b in apart if faster(data, a, b, among=len(apart))]
    if rows and not usable and data.origin == "published":
        ruling, found = _printed_against([(line, total, line.claimed_speedup or 0) for line, total in rows]) or (
            undecided([line for line, _ in rows])
        )
        return resting_on("printed values", (ruling, found))
    if rows and not usable:
        ruling, found = undecided([line for line, _ in rows])
    elif len({total for _, total in usable}) < 3:
        ruling, found = "cannot tell", "Three sizes of targets with usable speedups are needed."
    else:
        ruling: RulingWord = "supported" if all(faster(data, b, a) for a, b in steps) else "cannot tell"
        found = f"At gamma 8, from few to many parameters in all: {listed([line for line, _ in ordered])}."
        if against:
            fewer, more = against[0]
            ruling = "contradicted"
            found += (
                f" {named(more)} has more parameters than {label(fewer.target)} and gains less, beyond the interval."
            )
    return ruling, found


def _printed_against(rows: Sequence[tuple[ArmResult, float, float]]) -> Found | None:
    """What printed speedups of targets say against the claim themselves: more parameters, and less gain."""
    against = [
        (fewer, more) for fewer, more in permutations(rows, 2) if more[1] > fewer[1] and more[2] < fewer[2] - LAST_DIGIT
    ]
    if not against:
        return None
    (few, _, high), (many, _, low) = max(against, key=lambda pair: pair[0][2] - pair[1][2])
    shown = ", ".join(f"{label(it.target)} {total / 1e9:.3g}e9 {value:.2f}x" for it, total, value in rows)
    return "contradicted", (
        f"The paper's own values at gamma 8 deny it: {label(many.target)} has more parameters than "
        f"{label(few.target)} and gains less, {low:.2f}x against {high:.2f}x ({shown}). "
        f"{without([it for it, *_ in rows])}"
    )


def hierarchy(data: StudyData) -> Found:
    """Finding 2 of the paper."""
    small, large = (at(data, target, SMALL, GAMMAS[-1]) for target in DENSE)
    mixtures = [line for target in MOE if (line := at(data, target, SMALL, GAMMAS[-1])) is not None]
    lines = [line for line in (small, *mixtures, large) if line is not None]
    between = believable(mixtures)
    if small is not None and large is not None and len(believable([small, large])) == 2 and between:
        tests = 2 * len(between)
        ruling = any_against(
            between,
            lambda line: faster(data, line, small) and faster(data, large, line),
            lambda line: faster(data, small, line, among=tests) or faster(data, line, large, among=tests),
        )
        found = f"At gamma {GAMMAS[-1]}: {listed(lines)}."
    else:
        ruling, found = undecided(lines)
    return ruling, found


def smallest_draft(data: StudyData) -> Found:
    """Practical implication 2."""
    rows = [(at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)) for target in MOE for gamma in GAMMAS]
    both = [(a, b) for a, b in rows if a is not None and b is not None]
    usable = [(a, b) for a, b in both if len(believable([a, b])) == 2]
    if usable:
        for_it = [faster(data, a, b) for a, b in usable]
        against = [faster(data, b, a, among=len(usable)) for a, b in usable]
        mean = mean_ratio(data, usable)
        ruling: RulingWord = "supported" if above(mean, 1) or all(for_it) else "cannot tell"
        if below(mean, 1) or any(against):
            ruling = "contradicted"
        found = (
            f"The smaller draft is faster beyond the interval in {sum(for_it)} of {len(usable)} pairs, slower in "
            f"{sum(against)}"
            + in_the_mean(mean, ", on average it runs at")
            + ": "
            + "; ".join(
                f"{label(a.target)} gamma {a.gamma} {quoted(a.speedup, unit='x')} against {quoted(b.speedup, unit='x')}"
                for a, b in usable
            )
            + "."
        )
    else:
        ruling, found = undecided([line for pair in both for line in pair])
    return ruling, found


def maximise_gamma(data: StudyData) -> Found:
    """Practical implication 3."""
    return _rising(data, (*MOE, *DENSE))


def best_configuration(data: StudyData) -> Found:
    """Finding 3 of the paper."""
    bests: list[tuple[ArmResult, ArmResult]] = []
    rulings: list[RulingWord] = []
    candidates = speculative(data, "B")
    for target in MOE:
        usable = believable(line for line in candidates if line.target == target)
        advised = next((line for line in usable if (line.draft, line.gamma) == (SMALL, GAMMAS[-1])), None)
        rest = [line for line in usable if line is not advised]
        if advised is None or not rest:
            continue
        bests.append((advised, best_first(usable)[0]))
        beaten = all(faster(data, advised, other) for other in rest)
        beats = any(faster(data, other, advised, among=len(rest)) for other in rest)
        rulings.append("supported" if beaten else "contradicted" if beats else "cannot tell")
    if rulings:
        ruling = together(rulings)
        found = "; ".join(
            f"{named(advised)} {quoted(advised.speedup, unit='x')}"
            + ("" if best is advised else f", where {named(best)} has {quoted(best.speedup, unit='x')}")
            for advised, best in bests
        )
        found = f"Best of each target by point: {found}."
    else:
        ruling, found = undecided(candidates)
    return ruling, found


def quantization(data: StudyData) -> Found:
    """Section 5.3."""
    four, eight = (at(data, target, SMALL, GAMMAS[-1]) for target in MOE)
    lines = [line for line in (four, eight) if line is not None]
    if four is not None and eight is not None and len(believable(lines)) == 2:
        ruling: RulingWord = "cannot tell"
        if faster(data, eight, four):
            ruling = "supported"
        elif faster(data, four, eight):
            ruling = "contradicted"
        found = f"At gamma {GAMMAS[-1]}: {listed(lines)}."
    else:
        ruling, found = undecided(lines)
    return ruling, found


# --- contexts --------------------------------------------------------------------------------------------------------


def lengths_and_gamma(data: StudyData) -> Found:
    """Contribution 4."""
    of_lengths, lengths = _lengths(data)
    of_gamma, gamma = _rising(data, MOE)
    return together([of_lengths, of_gamma]), f"Lengths ({of_lengths}): {lengths} Gamma ({of_gamma}): {gamma}"


def contexts(data: StudyData) -> Found:
    """Finding 4 of the paper."""
    of_lengths, lengths = _lengths(data)
    lines = [line for target in MOE for line in by_kind(data, target, SMALL, 8)]
    usable = believable(lines)
    if usable:
        of_kinds, _ = gains(data, usable)
        shown = ", ".join(f"{label(line.target)} {line.prompt} {quoted(line.speedup, unit='x')}" for line in usable)
        kinds = f"gamma 8: {shown}."
    else:
        of_kinds, kinds = undecided(lines)
    return together([of_lengths, of_kinds]), f"Lengths ({of_lengths}): {lengths} Kinds ({of_kinds}): {kinds}"


def _lengths(data: StudyData) -> Found:
    """Whether every length gains; a counter that can only say 100 % does not measure acceptance, and its speedups are
    not evidence."""
    lines = [line for line in by_length(data) if line.speculates]
    usable = believable(lines)
    if not usable:
        return undecided(lines)
    shown = ", ".join(f"{line.prompt_tokens} tokens {quoted(line.speedup, unit='x')}" for line in usable) + "."
    configs = {line.config for line in usable}
    shares = [r.acceptance for r in data.results if r.config in configs and r.acceptance is not None]
    if len(shares) >= LEAST_EXACT and all(share == 1 for share in shares):
        return "cannot tell", (
            f"{shown} But all {len(shares)} generations say that exactly 100 % was accepted: that differs from "
            "the speculation of the other suites, whose acceptance is the paper's subject, and a counter that "
            "can only say 100 % is not evidence."
        )
    ruling, mean = gains(data, usable)
    return ruling, f"{shown[:-1]}{mean}."


def _rising(data: StudyData, targets: Sequence[str]) -> Found:
    """Whether the speedup rises with gamma on every curve; by the ends of all curves together, and of each."""
    lines = speculative(data, target=targets)
    curves: list[tuple[ArmResult, ...]] = []
    for target in targets:
        for draft in (SMALL, LARGE):
            curve = believable(line for gamma in GAMMAS if (line := at(data, target, draft, gamma)) is not None)
            if len(curve) > 1:
                curves.append(curve)
    if not curves:
        return (_printed_falls(data, targets) if data.origin == "published" else None) or undecided(lines)
    steps = sum(len(curve) - 1 for curve in curves)
    rising = [
        curve for curve in curves if len(curve) == len(GAMMAS) and all(faster(data, b, a) for a, b in pairwise(curve))
    ]
    falling = [
        curve
        for curve in curves
        if faster(data, curve[0], curve[-1], among=len(curves))
        or any(faster(data, a, b, among=steps) for a, b in pairwise(curve))
    ]
    mean = mean_ratio(data, [(curve[-1], curve[0]) for curve in curves])
    ruling: RulingWord = "supported" if len(rising) == len(curves) else "cannot tell"
    if falling or below(mean, 1):
        ruling = "contradicted"
    found = (
        f"of {len(curves)} curves {len(rising)} rise beyond the interval from each gamma to the next, "
        f"{len(falling)} fall"
    )
    if falling:
        found += f" ({'; '.join(map(_curve, falling))})"
    return ruling, found + in_the_mean(mean, "; from the smallest gamma to the largest the rate changes by") + "."


def _printed_falls(data: StudyData, targets: Sequence[str]) -> Found | None:
    """Curves of printed speedups that fall from one gamma to the next, by more than rounding; None where none does."""
    curves = [
        [line for gamma in GAMMAS if (line := at(data, target, draft, gamma)) is not None and line.claimed_speedup]
        for target in targets
        for draft in (SMALL, LARGE)
    ]
    curves = [curve for curve in curves if len(curve) > 1]
    falling = [curve for curve in curves if any(_claimed(b) < _claimed(a) - LAST_DIGIT for a, b in pairwise(curve))]
    if not falling:
        return None
    return by_values(
        "contradicted",
        f"The paper's own Table 5 denies it: of {len(curves)} curves {len(falling)} fall from one gamma to the next "
        f"({'; '.join(map(_curve, falling))}). {without([line for curve in curves for line in curve])}",
    )


def _claimed(line: ArmResult) -> float:
    return line.claimed_speedup or 0.0


def _curve(lines: Sequence[ArmResult]) -> str:
    """`MoE Q4 with draft 0.8B: gamma 4 0.88, gamma 16 0.65`."""
    shown = ", ".join(
        f"gamma {line.gamma} {line.speedup.point if line.speedup else _claimed(line):.2f}" for line in lines
    )
    return f"{label(lines[0].target)} with draft {label(lines[0].draft or '')}: {shown}"
