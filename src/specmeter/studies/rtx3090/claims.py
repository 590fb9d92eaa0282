"""rtx3090-19: what the document claims, ruled from data.

What decides is an interval (over blocks, else from the configurations that were run twice) or an exact count. What was
found invalid supports nothing: neither the configuration that is compared with an unlike baseline, nor the draft that
never drafted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specmeter.estimates import above, below
from specmeter.record import DRAFT_MODEL_METHODS
from specmeter.stats import DIP_LIMIT, MARGIN, dip
from specmeter.studies.rtx3090.lines import (
    F16,
    LONGER,
    OTHER_VOCABULARY,
    Line,
    Lines,
    change,
    drafting,
    lines,
    named,
    noise,
    percent,
    ratio,
)
from specmeter.studies.rtx3090.mechanism import (
    SPARSITY,
    THRESHOLD,
    budget,
    budgets_of_requests,
    gamma,
    of_model,
    saturation,
)
from specmeter.studies.study import ClaimRuling, Finding, StudyData
from specmeter.theory.experts import expected_union

TAIL = (59.0, 67.0, 135.7)
"""The tail in tok/s, and the baseline that it belongs to, as printed."""
LEAST_FOR_DIP = 8
"""Fewer requests have a dip that says nothing."""
FULL = 0.95
"""Acceptance that counts as full where the question is what full acceptance brings."""
UNEXPLAINED = 0.05
"""Share of the time beyond the bound that rates of plain decoding, which vary by some percent, do not explain."""


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """In the order of the document."""
    known = lines(data)
    return (
        no_gain(known),
        tail(known),
        full_acceptance(known),
        kv_quantization(known),
        output_length(known),
        length_unchanged(known),
        silent_failure(known),
        draft_choice(known),
        threshold(data, known),
        explains(data, known),
        active_parameters(data),
    )


# --- what was measured -----------------------------------------------------------------------------------------------


def no_gain(known: Lines) -> ClaimRuling:
    """None of the configurations is faster than the baseline."""
    compared = drafting(known)
    ratios = {line.name: ratio(known, line) for line in compared}
    strict = {line.name: ratio(known, line, among=len(compared)) for line in compared}
    faster = [line for line in compared if above(strict[line.name], 1)]
    slower = [line for line in compared if below(ratios[line.name], 1)]
    open_ = [line for line in compared if line not in slower and line not in faster]
    ruling: Finding = "cannot tell"
    if faster:
        ruling = "contradicted"
    elif compared and not open_:
        ruling = "supported"
    best = max(compared, key=lambda line: found.point if (found := ratios[line.name]) else 0.0, default=None)
    told = f"{len(slower)} of {len(compared)} configurations that can be compared are slower than their baseline"
    if faster:
        told += f", {len(faster)} faster ({', '.join(f'{it.name} {percent(strict[it.name])}' for it in faster[:4])})"
    if open_:
        told += f"; of {len(open_)} the interval holds 1 or there is none ({named(open_)})"
    if best is not None and not faster:
        told += f"; the best is {best.name} with {percent(ratios[best.name])}"
    out = [line for line in known.values() if line.drafts and not line.believable]
    if out:
        told += f". Left out as invalid: {named(out)}"
    return ClaimRuling(
        id="no-gain",
        claim="No configuration (ngram-cache, ngram-mod with n = 8 to 32, drafts of a small model) is faster than "
        "plain decoding",
        where="first paragraph; summary table",
        ruling=ruling,
        found=f"{told}. {_repeats(known)}",
    )


def tail(known: Lines) -> ClaimRuling:
    """Every configuration with drafts has requests at about half the baseline's rate."""
    asked = [line for line in known.values() if line.drafts and line.sums is not None and _base(known, line)]
    slow = [line for line in asked if _lowest(known, line) <= TAIL[1] / TAIL[2] + 0.005]
    rest = [line for line in asked if line not in slow]
    piles = [(line, found) for line in asked if (found := _dip(known, line)) is not None]
    humps = [line for line, found in piles if found > DIP_LIMIT]
    ruling: Finding = "cannot tell"
    if asked:
        ruling = "supported" if not rest and len(humps) == len(asked) else "contradicted" if rest else "cannot tell"
    told = (
        f"{len(slow)} of {len(asked)} configurations with drafts have a request at {TAIL[1] / TAIL[2]:.0%} of the "
        "baseline's rate or less"
    )
    if rest:
        lowest = [_lowest(known, line) for line in rest]
        told += f"; the slowest requests of the others ({named(rest)}) run at {min(lowest):.0%} to {max(lowest):.0%}"
    if piles:
        worst = max(found for _, found in piles)
        told += (
            f". Two humps by Hartigans' dip in {len(humps)} of {len(piles)} whose requests are known (largest "
            f"{worst:.2f}, limit {DIP_LIMIT}): a few slow requests of ten are not yet a second mode"
        )
    return ClaimRuling(
        id="bimodal-tail",
        claim="Every configuration with drafts has a second mode at 59 to 67 tok/s, about half the baseline's 135.7",
        where="first paragraph; plot per prompt",
        ruling=ruling,
        found=f"{told}.",
    )


def full_acceptance(known: Lines) -> ClaimRuling:
    """Whether 100 % acceptance is one."""
    counted = [line for line in drafting(known) if line.sums and line.sums.drafted]
    partial = [line for line in counted if line.sums and line.sums.accepted < line.sums.drafted]
    told, ruling = "no drafted token was counted", "cannot tell"
    if partial:
        ruling = "contradicted"
        shares = [_acceptance(line) for line in partial]
        told = (
            f"{len(partial)} of {len(counted)} configurations that drafted had tokens rejected; their acceptance is "
            f"{min(shares):.1%} to {max(shares):.1%} ({named(sorted(partial, key=_acceptance))})"
        )
    elif counted:
        counts = [line.sums.drafted / line.sums.generated for line in counted if line.sums]
        over = [line for line in counted if (found := budget(known, line)) and found.unexplained > UNEXPLAINED]
        requests = [found for line in counted for _, found in budgets_of_requests(known, line)]
        ruling = "cannot tell" if over else "supported"
        told = (
            f"accepted equals drafted in all {len(counted)} configurations, the slowest and the fastest alike; drafts "
            f"are counted for {min(counts):.1%} to {max(counts):.1%} of the tokens"
        )
        if over:
            told += (
                f". {len(over)} of them ({named(over)}) took longer than decoding every token and drafting every "
                "counted one by the target itself would: work that no counter shows, as rejected drafts would be"
            )
        if over and requests:
            beyond = sum(it.unexplained > UNEXPLAINED for it in requests)
            told += f"; so did {beyond} of {len(requests)} single requests"
    return ClaimRuling(
        id="full-acceptance",
        claim="All drafts were accepted (100 %), in slow requests too",
        where="first paragraph; counted_draft_tokens and counted_draft_accepted",
        ruling=ruling,
        found=f"{told}.",
    )


# --- controls --------------------------------------------------------------------------------------------------------


def kv_quantization(known: Lines) -> ClaimRuling:
    """Whether f16 KV loses as q8_0 does, against a baseline of f16."""
    line, quantized = known.get(F16), known.get("ngram-cache")
    ruling: Finding = "cannot tell"
    told = "the arm with f16 KV was not measured"
    if line is not None and not line.believable:
        claimed = line.arm.claimed_speedup
        told = (
            f"its {'loss' if (claimed or 1) < 1 else 'ratio'} of {percent_of(claimed)} is against a baseline with q8_0 "
            "KV; a baseline with f16 KV is missing (variant `controls` has one)"
        )
        if line.sums and quantized and quantized.sums:
            told += (
                f". Within the arm the slowest request runs at {line.sums.lowest_rate / line.sums.median_rate:.0%} of "
                f"the median, with q8_0 at {quantized.sums.lowest_rate / quantized.sums.median_rate:.0%}"
            )
    elif line is not None:
        own, other = ratio(known, line), ratio(known, quantized) if quantized else None
        told = f"ngram-cache with f16 KV, against f16: {percent(own)}; with q8_0, against q8_0: {percent(other)}"
        if below(own, 1):
            ruling = "supported"
        elif below(other, 1) and own is not None and (above(own, 1) or _near(own.low, own.high)):
            ruling = "contradicted"
    return ClaimRuling(
        id="kv-quantization",
        claim="KV quantization is not the cause: with f16 KV it loses too",
        where="controls",
        ruling=ruling,
        found=f"{told}.",
    )


def output_length(known: Lines) -> ClaimRuling:
    """Whether longer answers lose as well."""
    pairs = _lengths(known)
    lost = [longer for longer, _ in pairs if below(ratio(known, longer), 1)]
    gaining = [longer for longer, _ in pairs if above(ratio(known, longer, among=len(pairs)), 1)]
    ruling: Finding = "cannot tell"
    if gaining:
        ruling = "contradicted"
    elif pairs and len(lost) == len(pairs):
        ruling = "supported"
    told = "; ".join(
        f"{shorter.name} {percent(ratio(known, shorter))} at {shorter.max_tokens} tokens, "
        f"{percent(ratio(known, longer))} at {longer.max_tokens}"
        for longer, shorter in pairs
    )
    return ClaimRuling(
        id="output-length",
        claim="Short outputs are not the cause: with 1,000 tokens it loses too",
        where="controls",
        ruling=ruling,
        found=f"{told or 'no configuration was measured with both lengths'}.",
    )


def length_unchanged(known: Lines) -> ClaimRuling:
    """Whether the change is the same at both lengths."""
    changes = [(longer, shorter, change(known, longer, shorter)) for longer, shorter in _lengths(known)]
    far = [
        longer.name
        for longer, _, found in changes
        if found and (below(found, 1 / (1 + MARGIN)) or above(found, 1 + MARGIN))
    ]
    near = [longer.name for longer, _, found in changes if found and _near(found.low, found.high)]
    ruling: Finding = "cannot tell"
    if far:
        ruling = "contradicted"
    elif changes and len(near) == len(changes):
        ruling = "supported"
    told = "; ".join(f"{longer.name} over {shorter.name}: {percent(found)}" for longer, shorter, found in changes)
    tokens = {line.name: line.sums.generated for pair in _lengths(known) for line in pair[:1] if line.sums}
    base = known.get("baseline-1000tok")
    if base and base.sums and any(count != base.sums.generated for count in tokens.values()):
        counts = ", ".join(f"{count:,}" for count in tokens.values())
        told += (
            f". The baseline generated {base.sums.generated:,} tokens on the same prompts and these {counts}: other "
            "texts, though decoding is greedy"
        )
    return ClaimRuling(
        id="output-length-unchanged",
        claim="From 300 to 1,000 tokens nothing changes",
        where="controls",
        ruling=ruling,
        found=f"{told or 'no configuration was measured with both lengths'}.",
    )


def silent_failure(known: Lines) -> ClaimRuling:
    """Whether the draft of another vocabulary decodes plainly without a word."""
    line = known.get(OTHER_VOCABULARY)
    base = known.get(line.reference) if line else None
    if line is None or line.sums is None or base is None or not base.pooled or not line.pooled:
        return _silent("cannot tell", "the draft of another vocabulary was not measured")
    speed, repeated = line.pooled / base.pooled, noise(known)
    told = (
        f"{line.sums.drafted} tokens drafted in {line.arm.requests} requests, {100 * (speed - 1):+.1f} % against the "
        f"baseline; {line.arm.why or 'nothing is said against it'}"
    )
    if line.sums.drafted:
        return _silent("contradicted", told)
    plain = repeated is not None and abs(math.log(speed)) <= max(5 * repeated.sd, math.log1p(MARGIN))
    return _silent("supported" if plain and not line.believable else "cannot tell", told)


def _silent(ruling: Finding, told: str) -> ClaimRuling:
    return ClaimRuling(
        id="silent-failure",
        claim="A draft with another vocabulary fails silently: the server decodes as without it",
        where="controls",
        ruling=ruling,
        found=f"{told}.",
    )


def draft_choice(known: Lines) -> ClaimRuling:
    """Whether several drafts that really draft lose alike."""
    of_draft: dict[str, list[Line]] = {}
    for line in drafting(known):
        if line.arm.draft and line.sums and line.sums.drafted and DRAFT_MODEL_METHODS & set(line.arm.method.split("+")):
            of_draft.setdefault(line.arm.draft, []).append(line)
    lost = {draft for draft, own in of_draft.items() if all(below(ratio(known, line), 1) for line in own)}
    won = {draft for draft, own in of_draft.items() if any(above(ratio(known, line), 1) for line in own)}
    ruling: Finding = "cannot tell"
    if lost and won:
        ruling = "contradicted"
    elif len(of_draft) > 1 and len(lost) == len(of_draft):
        ruling = "supported"
    told = "; ".join(
        f"{draft}: " + ", ".join(f"{line.name} {percent(ratio(known, line))}" for line in own)
        for draft, own in of_draft.items()
    )
    refuted = [line for line in known.values() if not line.believable and line.sums and line.sums.drafted]
    refuted = [line for line in refuted if line.arm.draft and line.arm.draft not in of_draft]
    if refuted:
        told += f". Found invalid: {named(refuted)}"
    elif len(of_draft) == 1:
        told += ". One draft model drafted at all; a second with the same vocabulary is missing (variant `controls`)"
    return ClaimRuling(
        id="draft-choice",
        claim="The choice of the draft model is not the cause: one with the right vocabulary loses too",
        where="controls",
        ruling=ruling,
        found=f"{told or 'no draft model drafted'}.",
    )


# --- the mechanism ---------------------------------------------------------------------------------------------------


def threshold(data: StudyData, known: Lines) -> ClaimRuling:
    """Whether drafts lie below the number of tokens that touch nearly all experts."""
    found = saturation(data)
    gammas = sorted({value for line in drafting(known) if (value := gamma(line)) is not None})
    if found is None or not gammas:
        return _threshold("cannot tell", "the target is no mixture of experts whose experts are known")
    over = [value for value in gammas if value + 1 >= found.threshold]
    told = (
        f"{found.used} of {found.experts} experts (sparsity {found.sparsity:.3f}): 95 % are touched after "
        f"{found.tokens:.1f} tokens, rounded up {found.threshold} (printed: {THRESHOLD} at {SPARSITY}); drafts have up "
        f"to {', '.join(map(str, gammas))} tokens"
    )
    return _threshold("contradicted" if over else "supported", told)


def _threshold(ruling: Finding, told: str) -> ClaimRuling:
    return ClaimRuling(
        id="saturation-threshold",
        claim="About 94 tokens saturate the experts at sparsity 0.031, and drafts of 3 to 32 tokens lie well below",
        where="third paragraph",
        ruling=ruling,
        found=f"{told}.",
    )


def explains(data: StudyData, known: Lines) -> ClaimRuling:
    """Whether the union of experts below the threshold can be what the time went into."""
    found = saturation(data)
    under = [line for line in drafting(known) if found and (value := gamma(line)) and value + 1 < found.threshold]
    under = [line for line in under if line.sums and line.sums.drafted]
    if found is None or not under:
        return _explains("cannot tell", "nothing was drafted below a threshold that is known")
    gaining = [line for line in under if above(ratio(known, line, among=len(under)), 1)]
    losing = [line for line in under if below(ratio(known, line), 1)]
    beyond = [line for line in losing if (it := budget(known, line)) and it.unexplained > UNEXPLAINED]
    n = NINE
    union = expected_union(n, found.experts, found.used)
    told = (
        f"below the threshold a forward over n tokens reads at most n times the experts of one ({n} tokens: "
        f"{union:.0f} of {found.experts}, {union / found.used:.1f} times those of one), so drafts that are accepted "
        "cannot make decoding slower"
    )
    if beyond:
        shares = [it.unexplained for line in beyond if (it := budget(known, line))]
        told += (
            f". {len(beyond)} of {len(losing)} losing configurations took longer than that permits, with "
            f"{min(shares):.0%} to {max(shares):.0%} of their time beyond it ({named(beyond)})"
        )
    if gaining:
        told += f". {len(gaining)} configurations below the threshold gain: {_each(known, gaining)}"
    full = [line for line in losing if _acceptance(line) >= FULL]
    if not beyond and not gaining:
        told += f". {len(full)} of {len(losing)} losing configurations had acceptance of {FULL:.0%} or more"
    ruling: Finding = "cannot tell"
    if beyond or gaining:
        ruling = "contradicted"
    elif full and len(full) == len(losing):
        ruling = "supported"
    return _explains(ruling, told)


NINE = 9
"""A draft of eight and the token before it."""


def _explains(ruling: Finding, told: str) -> ClaimRuling:
    return ClaimRuling(
        id="saturation-explains",
        claim="Below the threshold every drafted token brings fresh experts, and no acceptance can make up for it",
        where="third paragraph",
        ruling=ruling,
        found=f"{told}.",
    )


def active_parameters(data: StudyData) -> ClaimRuling:
    """Whether a model with more active parameters lies above the threshold."""
    own = saturation(data)
    others = [found for model in data.models if own and model.name != own.model.name and (found := of_model(model))]
    larger = [
        found
        for found in others
        if own and (found.model.active_parameters or 0) > (own.model.active_parameters or math.inf)
    ]
    ruling: Finding = "cannot tell"
    told = "no second mixture of experts with more active parameters is in this data"
    if own is not None and larger:
        ruling = "supported" if all(found.threshold < own.threshold for found in larger) else "contradicted"
        told = "; ".join(
            f"{found.model.name}: {found.used} of {found.experts} experts, {found.threshold} tokens; {own.model.name}: "
            f"{own.used} of {own.experts}, {own.threshold} tokens"
            for found in larger
        )
        told += ". The threshold depends on the share of experts, not on how many parameters they have"
    return ClaimRuling(
        id="active-parameters",
        claim="Models with about 10 billion active parameters (Qwen3.5-122B-A10B) lie above the threshold, and gain",
        where="fourth paragraph",
        ruling=ruling,
        found=f"{told}.",
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def percent_of(value: float | None) -> str:
    """A ratio without an interval, as a change in percent."""
    return "unknown size" if value is None else f"{100 * (value - 1):+.1f} %"


def _near(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > 1 / (1 + MARGIN) and high < 1 + MARGIN


def _each(known: Lines, found: Sequence[Line], most: int = 4) -> str:
    return ", ".join(f"{line.name} {percent(ratio(known, line))}" for line in found[:most])


def _repeats(known: Lines) -> str:
    repeated = noise(known)
    if repeated is None:
        return "No configuration was repeated"
    return f"The {repeated.n} repeated configurations differ from themselves by {math.expm1(repeated.sd):.2%}."


def _base(known: Lines, line: Line) -> Line | None:
    base = known.get(line.reference)
    return base if base is not None and base is not line and base.pooled else None


def _lowest(known: Lines, line: Line) -> float:
    """The slowest request over the baseline's pooled rate."""
    base = _base(known, line)
    assert base is not None
    assert base.pooled is not None
    assert line.sums is not None
    return line.sums.lowest_rate / base.pooled


def _acceptance(line: Line) -> float:
    return line.sums.accepted / line.sums.drafted if line.sums and line.sums.drafted else 0.0


def _dip(known: Lines, line: Line) -> float | None:
    """sqrt(n) times the dip of the requests' log rates, each over the baseline's on its prompt where that is known."""
    base = known.get(line.reference)
    usual = {(it.prompt, it.repeat): it.decode_rate for it in base.results if it.decode_rate} if base else {}
    logs = [
        math.log(it.decode_rate / usual.get((it.prompt, it.repeat), 1.0) if usual else it.decode_rate)
        for it in line.results
        if it.decode_rate and (not usual or (it.prompt, it.repeat) in usual)
    ]
    if len(logs) < LEAST_FOR_DIP:
        return None
    return dip(np.array(logs)) * math.sqrt(len(logs))


def _lengths(known: Lines) -> list[tuple[Line, Line]]:
    """(longer, shorter) of what was measured, and can be believed, with both lengths."""
    return [
        (known[longer], known[shorter])
        for longer, shorter in LONGER.items()
        if longer in known and shorter in known and known[longer].believable and known[shorter].believable
    ]
