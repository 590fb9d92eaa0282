"""rtx3090-19: what the document rules out as a cause: KV quantization, length of answers, choice of the draft."""

from __future__ import annotations

import math

from specmeter.numbers.estimates import above, below
from specmeter.numbers.stats import MARGIN
from specmeter.record import DRAFT_MODEL_METHODS
from specmeter.studies.library.rtx3090_19.lines import (
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
from specmeter.studies.study import Finding, StudyData
from specmeter.studies.telling import Found, by_counts


def kv_quantization(data: StudyData) -> Found:
    """Whether f16 KV loses as q8_0 does, against a baseline of f16."""
    known = lines(data)
    line, quantized = known.get(F16), known.get("ngram-cache")
    ruling: Finding = "cannot tell"
    told = "the arm with f16 KV was not measured"
    if line is not None and not line.believable:
        claimed = line.arm.claimed_speedup
        told = (
            f"its {'loss' if (claimed or 1) < 1 else 'ratio'} of {_as_change(claimed)} is against a baseline with q8_0 "
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
    return ruling, f"{told}."


def output_length(data: StudyData) -> Found:
    """Whether longer answers lose as well."""
    known = lines(data)
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
        f"{line.sums.drafted} tokens drafted in {line.arm.requests} requests, {100 * (speed - 1):+.1f} % against the "
        f"baseline; {line.arm.why or 'nothing is said against it'}"
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
