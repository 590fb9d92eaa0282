"""moe-306: what is accepted and gained, and what the gain is said to depend on: parameters, draft, gamma, format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter_studies.library.moe_306.equations import at_acceptance
from specmeter_studies.library.moe_306.lines import (
    DENSE,
    GAMMAS,
    LARGE,
    MIN_EXACT,
    MOE,
    SMALL,
    acceptance_of,
    acceptances,
    at,
    believable,
    best_first,
    by_kind,
    by_length,
    label,
    listed,
    model,
    named,
    overall,
    percent,
    speculative,
    with_speedup,
)
from specmeter_studies.library.moe_306.mechanism import LOW_ACCEPTANCE, by_bounds
from specmeter_studies.library.moe_306.ratios import faster, mean_ratio
from specmeter_studies.library.moe_306.rulings import (
    any_against,
    gains,
    in_the_mean,
    ruled,
    together,
    unanimous,
    undecided,
    without,
)
from specmeter_studies.library.moe_306.tables import Configuration, baselines
from specmeter_studies.rules import exceeded
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData
from specmeter_studies.telling import by_counts, by_values, decided, denied_by, quoted, resting_on, where_any

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
    if not usable:
        return ruling, without(lines)
    worst = max(over or usable, key=acceptance_of)
    return ruling, Message(
        "moe-306.over",
        over=len(over),
        lines=len(lines),
        name=named(worst),
        suite=worst.suite,
        acceptance=percent(worst.acceptance),
        invalid=where_any("moe-306.over.invalid", n=len(lines) - len(usable)),
    )


def _printed_acceptance(data: StudyData) -> Found:
    """By every generation of suites B and D; suite F, whose counter says 100 % whatever happens, is not evidence."""
    drafted = {line.config for line in speculative(data)}
    shares = [it.acceptance for it in data.results if it.config in drafted and it.acceptance is not None]
    over = denied_by(shares, most=LOW_ACCEPTANCE, last_digit=0.01)
    printed = [share for line in speculative(data) if (share := acceptance_of(line))]
    swept = [it.acceptance for it in data.results if it.config not in drafted and it.acceptance is not None]
    told = Message(
        "moe-306.generations",
        n=len(shares),
        over=len(over),
        highest=100 * max(shares, default=0),
        means=100 * max(printed, default=0),
        swept=where_any("moe-306.generations.swept", n=len(swept) if all(share == 1 for share in swept) else 0),
    )
    return by_values("contradicted" if over else "cannot tell", told)


def moe_slower(data: StudyData) -> Found:
    """Whether the dense 4B decodes faster than each mixture, on its own."""
    rows = [it for it in baselines(data) if it.line.suite in ("A", "C") and it.line.target in ("dense_4b", *MOE)]

    def dense_over_moe(rows: Sequence[Configuration]) -> list[tuple[Configuration, Configuration]]:
        mixtures = [it for it in rows if it.line.target in MOE]
        return [(it, other) for it in rows if it not in mixtures for other in mixtures]

    empty = Message("moe-306.needs.alone")
    one = "study.against.1"
    return exceeded(rows, "line.decode_rate", dense_over_moe, unit=" tok/s", said=one, empty=empty)


# --- gains on MoE ----------------------------------------------------------------------------------------------------


def works_for_moe(data: StudyData) -> Found:
    """Finding 1 of the paper."""
    lines = [line for line in speculative(data, "B") if line.draft == SMALL]
    usable = believable(lines)
    low = [line for line in usable if below(line.acceptance, LOW_ACCEPTANCE)]
    if low:
        ruling = unanimous(low, lambda line: above(line.speedup, 1), lambda line: below(line.speedup, 1))
        found = Message("moe-306.low", arms=listed(low))
    elif usable:
        expected = [(line, most) for line in usable if (most := at_acceptance(line, LOW_ACCEPTANCE)) is not None]
        losing = [below(most, 1) for _, most in expected]
        ruling = "contradicted" if expected and all(losing) else "cannot tell"
        at_most = ""
        if expected:
            line, most = max(expected, key=lambda item: item[1].point)
            at_most = Message("moe-306.not_low.most", most=quoted(most, "x"), name=named(line))
        found = Message("moe-306.not_low", acceptances=acceptances(usable), arms=listed(usable), most=at_most)
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
    return ruling, Message(
        "moe-306.advised",
        gamma=GAMMAS[-1],
        arms=listed(usable),
        mean=mean,
        others=len(others),
        losing=len(losing),
    )


def better_drafts(data: StudyData) -> Found:
    """Practical implication 4."""
    lines = believable(speculative(data, "B"))
    well = [line for line in lines if above(line.acceptance, 0.5)]
    if well:
        ruling = unanimous(well, lambda line: above(line.speedup, 3), lambda line: below(line.speedup, 3))
        found = Message("moe-306.well", n=len(well), acceptances=acceptances(well), arms=listed(best_first(well), 3))
    elif well_printed := _accepted_well(data):
        gained = [line.speedup.point for line in well_printed if line.speedup]
        told = Message("moe-306.well.printed", n=len(well_printed), low=min(gained), high=max(gained))
        return by_values("contradicted" if max(gained) < 3 else "cannot tell", told)
    elif lines:
        ruling = "cannot tell"
        found = Message("moe-306.well.none", acceptances=acceptances(lines))
    else:
        ruling, found = "cannot tell", Message("moe-306.well.unusable")
    return ruling, found


def _accepted_well(data: StudyData) -> list[ArmResult]:
    """Of the document's own numbers: lengths of suite F, which print that every draft was accepted."""
    swept = [line for line in by_length(data) if line.speculates and (acceptance_of(line) or 0) > 0.5]
    return [line for line in swept if line.speedup is not None] if data.origin == "published" else []


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
        ruling, found = "cannot tell", Message("moe-306.needs.sizes")
    else:
        ruling: RulingWord = "supported" if all(faster(data, b, a) for a, b in steps) else "cannot tell"
        less = ""
        if against:
            fewer, more = against[0]
            ruling = "contradicted"
            less = Message("moe-306.by_parameters.less", more=named(more), fewer=label(fewer.target))
        found = Message("moe-306.by_parameters", arms=listed([line for line, _ in ordered]), less=less)
    return ruling, found


def _printed_against(rows: Sequence[tuple[ArmResult, float, float]]) -> Found | None:
    """What printed speedups of targets say against the claim themselves: more parameters, and less gain."""
    against = [
        (fewer, more) for fewer, more in permutations(rows, 2) if more[1] > fewer[1] and more[2] < fewer[2] - LAST_DIGIT
    ]
    if not against:
        return None
    (few, _, high), (many, _, low) = max(against, key=lambda pair: pair[0][2] - pair[1][2])
    shown = [
        Message("moe-306.printed.of", target=label(it.target), total=total / 1e9, value=value)
        for it, total, value in rows
    ]
    return "contradicted", Message(
        "moe-306.printed",
        many=label(many.target),
        few=label(few.target),
        low=low,
        high=high,
        shown=shown,
        without=without([it for it, *_ in rows]),
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
        found = Message("moe-306.at_gamma", gamma=GAMMAS[-1], arms=listed(lines))
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
        ruling = decided(supported=above(mean, 1) or all(for_it), contradicted=below(mean, 1) or any(against))
        found = Message(
            "moe-306.smaller",
            better=sum(for_it),
            pairs=len(usable),
            worse=sum(against),
            mean=in_the_mean(mean, "moe-306.smaller.mean"),
            each=[
                Message(
                    "moe-306.smaller.of",
                    target=label(a.target),
                    gamma=a.gamma,
                    small=quoted(a.speedup, "x"),
                    large=quoted(b.speedup, "x"),
                )
                for a, b in usable
            ],
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
        found = Message("moe-306.bests", bests=[_best(advised, best) for advised, best in bests])
    else:
        ruling, found = undecided(candidates)
    return ruling, found


def _best(advised: ArmResult, best: ArmResult) -> Message:
    if best is advised:
        return with_speedup(named(advised), advised)
    return Message(
        "moe-306.best",
        advised=named(advised),
        speedup=quoted(advised.speedup, "x"),
        best=named(best),
        more=quoted(best.speedup, "x"),
    )


def quantization(data: StudyData) -> Found:
    """Section 5.3."""
    four, eight = (at(data, target, SMALL, GAMMAS[-1]) for target in MOE)
    lines = [line for line in (four, eight) if line is not None]
    if four is not None and eight is not None and len(believable(lines)) == 2:
        ruling = decided(supported=faster(data, eight, four), contradicted=faster(data, four, eight))
        found = Message("moe-306.at_gamma", gamma=GAMMAS[-1], arms=listed(lines))
    else:
        ruling, found = undecided(lines)
    return ruling, found


# --- contexts --------------------------------------------------------------------------------------------------------


def lengths_and_gamma(data: StudyData) -> Found:
    """Contribution 4."""
    of_lengths, lengths = _lengths(data)
    of_gamma, gamma = _rising(data, MOE)
    told = Message(
        "moe-306.lengths_and_gamma",
        of_lengths=ruled(of_lengths),
        lengths=lengths,
        of_gamma=ruled(of_gamma),
        gamma=gamma,
    )
    return _of_parts(data, (of_lengths, of_gamma), told)


def contexts(data: StudyData) -> Found:
    """Finding 4 of the paper."""
    of_lengths, lengths = _lengths(data)
    lines = [line for target in MOE for line in by_kind(data, target, SMALL, 8)]
    usable = believable(lines)
    if usable:
        of_kinds, _ = gains(data, usable)
        shown = [
            Message("moe-306.kind", target=label(it.target), kind=it.prompt, speedup=quoted(it.speedup, "x"))
            for it in usable
        ]
        kinds = Message("moe-306.kinds", gamma=8, kinds=shown)
    else:
        of_kinds, kinds = undecided(lines)
    told = Message(
        "moe-306.lengths_and_kinds",
        of_lengths=ruled(of_lengths),
        lengths=lengths,
        of_kinds=ruled(of_kinds),
        kinds=kinds,
    )
    return _of_parts(data, (of_lengths, of_kinds), told)


def _of_parts(data: StudyData, rulings: Sequence[RulingWord], told: Message) -> Found:
    """A claim in several parts; of the document's own numbers, the one that decides is a count of prompts."""
    both = together(rulings)
    return by_counts(both, told) if data.origin == "published" else (both, told)


def _lengths(data: StudyData) -> Found:
    """Whether every length gains; a counter that can only say 100 % does not measure acceptance, and its speedups are
    not evidence."""
    lines = [line for line in by_length(data) if line.speculates]
    if data.origin == "published":
        return _one_prompt(lines)
    usable = believable(lines)
    if not usable:
        return undecided(lines)
    shown = [Message("moe-306.length", tokens=line.prompt_tokens, speedup=quoted(line.speedup, "x")) for line in usable]
    configs = {line.config for line in usable}
    shares = [r.acceptance for r in data.results if r.config in configs and r.acceptance is not None]
    if len(shares) >= MIN_EXACT and all(share == 1 for share in shares):
        return "cannot tell", Message("moe-306.lengths.all", lengths=shown, n=len(shares))
    ruling, mean = gains(data, usable)
    return ruling, Message("moe-306.lengths", lengths=shown, mean=mean)


def _one_prompt(lines: Sequence[ArmResult]) -> Found:
    """What the lengths of suite F are: the script cuts them from a text that ends before most of them."""
    from specmeter_studies.library.moe_306.published import swept_words

    words = swept_words()
    longest = max(words.values())
    same = [line for line in lines if line.prompt_tokens is not None and words[line.prompt_tokens] == longest]
    told = Message(
        "moe-306.lengths.one_prompt",
        lengths=[line.prompt_tokens for line in same],
        words=longest,
        low=min(rates := [line.decode_rate.point for line in same if line.decode_rate]),
        high=max(rates),
    )
    return by_counts("contradicted" if len(same) > 1 else "cannot tell", told)


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
    ruling = decided(supported=len(rising) == len(curves), contradicted=bool(falling or below(mean, 1)))
    return ruling, Message(
        "moe-306.curves",
        n=len(curves),
        rising=len(rising),
        falling=len(falling),
        which=Message("moe-306.curves.falling", curves=[*map(_curve, falling)]) if falling else "",
        mean=in_the_mean(mean, "moe-306.curves.mean"),
    )


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
        Message(
            "moe-306.curves.printed",
            n=len(curves),
            falling=len(falling),
            curves=[*map(_curve, falling)],
            without=without([line for curve in curves for line in curve]),
        ),
    )


def _claimed(line: ArmResult) -> float:
    return line.claimed_speedup or 0.0


def _curve(lines: Sequence[ArmResult]) -> Message:
    """`MoE Q4 with draft 0.8B: gamma 4 0.88, gamma 16 0.65`."""
    shown = [
        Message("moe-306.curve.at", gamma=line.gamma, speedup=quoted(line.speedup) if line.speedup else _claimed(line))
        for line in lines
    ]
    return Message("moe-306.curve", target=label(lines[0].target), draft=label(lines[0].draft or ""), points=shown)
