"""rtx3090-19: what was measured, what the document rules out as a cause, and whether its mechanism explains the rest.

What decides is an interval (over blocks, else from the configurations that were run twice) or an exact count. What was
found invalid supports nothing: neither the configuration that is compared with an unlike baseline, nor the draft that
never drafted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specmeter.engines.llama_cpp.spec import DRAFT_MODEL_METHODS
from specmeter.numbers.distributions import DIP_LIMIT, dip
from specmeter.numbers.estimates import MARGIN, above, below
from specmeter.theory.roofline import expected_union
from specmeter_studies.library.rtx3090_19.lines import (
    F16,
    LONGER,
    OTHER_VOCABULARY,
    Line,
    Lines,
    blind,
    change,
    drafting,
    lines,
    named,
    noise,
    percent,
    ratio,
)
from specmeter_studies.library.rtx3090_19.tables import (
    SPARSITY,
    THRESHOLD,
    UNEXPLAINED,
    budget,
    budgets_of_requests,
    gamma,
    of_model,
    saturation,
)
from specmeter_studies.study import Found, RulingWord, StudyData, by_counts

HALF = 0.5
"""Of the baseline's rate; the tail as printed lies at 43 to 49 %."""
LEAST_FOR_DIP = 8
"""Fewer requests have a dip that says nothing."""


def no_gain(data: StudyData) -> Found:
    """None of the configurations is faster than the baseline."""
    known = lines(data)
    compared = drafting(known)
    ratios = {line.name: ratio(known, line) for line in compared}
    strict = {line.name: ratio(known, line, among=len(compared)) for line in compared}
    faster = [line for line in compared if above(strict[line.name], 1)]
    slower = [line for line in compared if below(ratios[line.name], 1)]
    open_ = [line for line in compared if line not in slower and line not in faster]
    ruling: RulingWord = "cannot tell"
    if faster:
        ruling = "contradicted"
    elif compared and not open_:
        ruling = "supported"
    best = max(compared, key=lambda line: found.point if (found := ratios[line.name]) else 0.0, default=None)
    told = f"{len(slower)} of {len(compared)} configurations that can be compared are slower than their baseline"
    if faster:
        told += f", {len(faster)} faster ({', '.join(f'{it.name} {percent(strict[it.name])}' for it in faster[:4])})"
    if open_:
        told += f"; for {len(open_)} the interval holds 1 or is missing ({named(open_)})"
    if best is not None and not faster:
        told += f"; the best is {best.name} with {percent(ratios[best.name])}"
    out = [line for line in known.values() if line.drafts and not line.believable]
    if out:
        told += f". Left out as invalid: {named(out)}"
    return ruling, f"{told}. {_repeats(known)}"


def tail(data: StudyData) -> Found:
    """Every configuration with drafts has requests at about half the baseline's rate."""
    known = lines(data)
    asked = [line for line in known.values() if line.drafts and line.sums is not None and _base(known, line)]
    slow = [line for line in asked if _lowest(known, line) <= HALF]
    rest = [line for line in asked if line not in slow]
    piles = [(line, found) for line in asked if (found := _dip(known, line)) is not None]
    humps = [line for line, found in piles if found > DIP_LIMIT]
    ruling: RulingWord = "cannot tell"
    if asked:
        ruling = "supported" if not rest and len(humps) == len(asked) else "contradicted" if rest else "cannot tell"
    told = f"{len(slow)} of {len(asked)} configurations with drafts have a request at half the baseline's rate or less"
    if rest:
        lowest = [_lowest(known, line) for line in rest]
        told += f"; the slowest requests of the others ({named(rest)}) run at {min(lowest):.0%} to {max(lowest):.0%}"
    if piles:
        worst = max(found for _, found in piles)
        told += (
            f". Hartigans' dip finds two humps in {len(humps)} of {len(piles)} whose requests are known (largest "
            f"{worst:.2f}, limit {DIP_LIMIT}): a few slow requests of ten are not yet a second mode"
        )
    return by_counts(ruling, f"{told}.")


def full_acceptance(data: StudyData) -> Found:
    """Whether 100 % acceptance is one."""
    known = lines(data)
    counted = [line for line in drafting(known) if line.sums and line.sums.drafted]
    partial = [line for line in counted if line.sums and line.sums.accepted < line.sums.drafted]
    ruling: RulingWord = "cannot tell"
    told = "no drafted token was counted"
    if partial:
        ruling = "contradicted"
        shares = [line.acceptance for line in partial]
        told = (
            f"{len(partial)} of {len(counted)} configurations that drafted had tokens rejected; their acceptance is "
            f"{min(shares):.1%} to {max(shares):.1%} ({named(sorted(partial, key=lambda line: line.acceptance))})"
        )
    elif counted:
        counts = [line.sums.drafted / line.sums.generated for line in counted if line.sums]
        over = [line for line in counted if (found := budget(known, line)) and found.unexplained > UNEXPLAINED]
        requests = [found for line in counted for _, found in budgets_of_requests(known, line)]
        ruling = "cannot tell" if over else "supported"
        told = (
            f"accepted equals drafted in all {len(counted)} configurations, from the slowest to the fastest; "
            f"drafts are counted for {min(counts):.1%} to {max(counts):.1%} of the tokens"
        )
        if over:
            told += (
                f". {len(over)} of them ({named(over)}) spent more than {UNEXPLAINED:.0%} of their time beyond "
                "what decoding every token and drafting every counted one with the target takes "
                f"({_beyond_at_all(known, counted)} spent any, which rates of plain decoding may explain): work "
                "that the counter leaves out, as rejected drafts would be"
            )
        if over and requests:
            beyond = sum(it.unexplained > UNEXPLAINED for it in requests)
            told += f"; so did {beyond} of {len(requests)} single requests"
    return by_counts(ruling, f"{told}.")


def _beyond_at_all(known: Lines, counted: Sequence[Line]) -> str:
    """How many of the configurations took longer than the bound, by however little."""
    over = sum((found := budget(known, line)) is not None and found.unexplained > 0 for line in counted)
    return f"{over} of {len(counted)}"


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


def kv_quantization(data: StudyData) -> Found:
    """Whether f16 KV loses as q8_0 does, against a baseline of f16."""
    known = lines(data)
    line, quantized = known.get(F16), known.get("ngram-cache")
    ruling: RulingWord = "cannot tell"
    told = "the arm with f16 KV was not measured"
    if line is not None and not line.believable:
        claimed = line.arm.claimed_speedup
        told = (
            f"its {'loss' if (claimed or 1) < 1 else 'ratio'} of {_as_change(claimed)} is against a baseline "
            "with q8_0 KV; a baseline with f16 KV is missing (variant `controls` has one)"
        )
        if line.sums and quantized and quantized.sums:
            told += (
                f". Within the arm the slowest request runs at {line.sums.lowest_rate / line.sums.median_rate:.0%} of "
                f"the median, with q8_0 at {quantized.sums.lowest_rate / quantized.sums.median_rate:.0%}"
            )
    elif line is not None:
        own, other = ratio(known, line), ratio(known, quantized) if quantized else None
        told = f"ngram-cache with f16 KV against f16: {percent(own)}; with q8_0 against q8_0: {percent(other)}"
        if below(own, 1):
            ruling = "supported"
        elif below(other, 1) and own is not None and (above(own, 1) or _near(own.low, own.high)):
            ruling = "contradicted"
    return ruling, f"{told}."


def output_length(data: StudyData) -> Found:
    """Whether longer answers lose as well."""
    known = lines(data)
    pairs = _lengths(known)
    lost = [longer for longer, _ in pairs if below(ratio(known, longer), 1)]
    gaining = [longer for longer, _ in pairs if above(ratio(known, longer, among=len(pairs)), 1)]
    ruling: RulingWord = "cannot tell"
    if gaining:
        ruling = "contradicted"
    elif pairs and len(lost) == len(pairs):
        ruling = "supported"
    told = "; ".join(
        f"{shorter.name} {percent(ratio(known, shorter))} at {shorter.max_tokens} tokens, "
        f"{percent(ratio(known, longer))} at {longer.max_tokens}"
        for longer, shorter in pairs
    )
    return ruling, f"{told or 'no configuration was measured with both lengths'}."


def length_unchanged(data: StudyData) -> Found:
    """Whether the change is the same at both lengths."""
    known = lines(data)
    changes = [(longer, shorter, change(known, longer, shorter)) for longer, shorter in _lengths(known)]
    far = [
        longer.name
        for longer, _, found in changes
        if found and (below(found, 1 / (1 + MARGIN)) or above(found, 1 + MARGIN))
    ]
    near = [longer.name for longer, _, found in changes if found and _near(found.low, found.high)]
    ruling: RulingWord = "cannot tell"
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
            f". The baseline generated {base.sums.generated:,} tokens on the same prompts and these {counts}: "
            "other texts, though decoding is greedy"
        )
    return ruling, f"{told or 'no configuration was measured with both lengths'}."


def silent_failure(data: StudyData) -> Found:
    """Whether the draft of another vocabulary decodes plainly without a word."""
    known = lines(data)
    line = known.get(OTHER_VOCABULARY)
    base = known.get(line.reference) if line else None
    if line is None or line.sums is None or base is None or not base.pooled or not line.pooled:
        return "cannot tell", "the draft of another vocabulary was not measured."
    speed, repeated = line.pooled / base.pooled, noise(known)
    told = (
        f"{line.sums.drafted} tokens drafted in {line.arm.requests} requests, {100 * (speed - 1):+.1f} % against "
        f"the baseline; {line.arm.why or 'no check objects to it'}"
    )
    if line.sums.drafted:
        return by_counts("contradicted", f"{told}.")
    plain = repeated is not None and abs(math.log(speed)) <= max(5 * repeated.sd, math.log1p(MARGIN))
    return by_counts("supported" if plain and not line.believable else "cannot tell", f"{told}.")


def draft_choice(data: StudyData) -> Found:
    """Whether several drafts that really draft lose alike."""
    known = lines(data)
    of_draft: dict[str, list[Line]] = {}
    for line in drafting(known):
        if line.arm.draft and line.sums and line.sums.drafted and DRAFT_MODEL_METHODS & set(line.arm.method.split("+")):
            of_draft.setdefault(line.arm.draft, []).append(line)
    lost = {draft for draft, own in of_draft.items() if all(below(ratio(known, line), 1) for line in own)}
    won = {draft for draft, own in of_draft.items() if any(above(ratio(known, line), 1) for line in own)}
    ruling: RulingWord = "cannot tell"
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
        told += ". Only one draft model drafted; a second with the same vocabulary is missing (variant `controls`)"
    return ruling, f"{told or 'no draft model drafted'}."


def _as_change(value: float | None) -> str:
    """A ratio without an interval, as a change in percent."""
    return "unknown size" if value is None else f"{100 * (value - 1):+.1f} %"


def _near(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > 1 / (1 + MARGIN) and high < 1 + MARGIN


def _lengths(known: Lines) -> list[tuple[Line, Line]]:
    """(longer, shorter) of what was measured, and can be believed, with both lengths."""
    return [
        (known[longer], known[shorter])
        for longer, shorter in LONGER.items()
        if longer in known and shorter in known and known[longer].believable and known[shorter].believable
    ]


FULL = 0.95
"""Acceptance that counts as full where the question is what full acceptance brings."""
NINE = 9
"""A draft of eight and the token before it."""


def threshold(data: StudyData) -> Found:
    """Whether drafts lie below the number of tokens that touch nearly all experts."""
    known = lines(data)
    found = saturation(data)
    gammas = sorted({value for line in drafting(known) if (value := gamma(line)) is not None})
    if found is None or not gammas:
        return "cannot tell", "the target is not a mixture of experts with known experts."
    over = [value for value in gammas if value + 1 >= found.threshold]
    told = (
        f"{found.used} of {found.experts} experts (sparsity {found.sparsity:.3f}): 95 % are read after "
        f"{found.tokens:.1f} tokens, rounded up {found.threshold} (printed: {THRESHOLD} at {SPARSITY}); drafts "
        f"have up to {', '.join(map(str, gammas))} tokens"
    )
    return by_counts("contradicted" if over else "supported", f"{told}.")


def explains(data: StudyData) -> Found:
    """Whether the union of experts below the threshold can be what the time went into."""
    known = lines(data)
    found = saturation(data)
    under = [line for line in drafting(known) if found and (value := gamma(line)) and value + 1 < found.threshold]
    under = [line for line in under if line.sums and line.sums.drafted]
    if found is None or not under:
        return "cannot tell", "nothing was drafted below a threshold that is known."
    counted = not blind(known)
    gaining = [line for line in under if above(ratio(known, line, among=len(under)), 1)]
    losing = [line for line in under if below(ratio(known, line), 1)]
    over = [line for line in losing if (it := budget(known, line)) and it.unexplained > UNEXPLAINED]
    beyond = over if counted else []
    union = expected_union(NINE, found.experts, found.used)
    told = (
        "whatever the routing, a forward over n tokens reads at most n times the experts of one, so experts of "
        f"accepted drafts cannot make decoding slower ({NINE} tokens: at most {NINE * found.used} of "
        f"{found.experts}, {union:.0f} if uniform, and less in text: `specmeter probe` counts them)"
    )
    if beyond:
        shares = [it.unexplained for line in beyond if (it := budget(known, line))]
        told += (
            f". {len(beyond)} of {len(losing)} slower configurations took longer than that permits, with "
            f"{min(shares):.0%} to {max(shares):.0%} of their time beyond it ({named(beyond)})"
        )
    if over and not counted:
        told += (
            f". {len(over)} of {len(losing)} slower configurations spent more than {UNEXPLAINED:.0%} of their "
            f"time beyond what their counts permit ({named(over)}), but the counter is blind (accepted equals "
            "drafted everywhere): the time may have gone to rejected drafts that it leaves out, and their experts"
        )
    if gaining:
        told += f". {len(gaining)} configurations below the threshold gain: {_each(known, gaining)}"
    full = [line for line in losing if line.acceptance >= FULL]
    if counted and not beyond and not gaining:
        told += f". {len(full)} of {len(losing)} slower configurations had acceptance of {FULL:.0%} or more"
    ruling: RulingWord = "cannot tell"
    if beyond or gaining:
        ruling = "contradicted"
    elif counted and full and len(full) == len(losing):
        ruling = "supported"
    return ruling, f"{told}."


def active_parameters(data: StudyData) -> Found:
    """Whether a model with more active parameters lies above the threshold."""
    own = saturation(data)
    others = [found for model in data.models if own and model.name != own.model.name and (found := of_model(model))]
    larger = [
        found
        for found in others
        if own and (found.model.active_parameters or 0) > (own.model.active_parameters or math.inf)
    ]
    ruling: RulingWord = "cannot tell"
    told = "this data has no second mixture of experts with more active parameters"
    if own is not None and larger:
        ruling = "supported" if all(found.threshold < own.threshold for found in larger) else "contradicted"
        told = "; ".join(
            f"{found.model.name}: {found.used} of {found.experts} experts, {found.threshold} tokens; {own.model.name}: "
            f"{own.used} of {own.experts}, {own.threshold} tokens"
            for found in larger
        )
        told += ". The threshold depends on the share of experts, not on how many parameters they have"
    return by_counts(ruling, f"{told}.")


def gain_of_larger(_: StudyData) -> Found:
    """Whether a larger mixture gains 15 to 45 %: quoted by the document from elsewhere, without numbers of its own."""
    told = (
        "The document quotes it from another author and prints no rate, acceptance or draft length for it: no "
        "bound can be tried, and no run here uses that model."
    )
    return "cannot tell", told


def _each(known: Lines, found: Sequence[Line], most: int = 4) -> str:
    return ", ".join(f"{line.name} {percent(ratio(known, line))}" for line in found[:most])
