"""The claims about the ladder of quantizations, held against one measurement of it.

Three words of the document have no number of their own. They are taken so: *near-lossless*, perplexity up by less than
1 %; *suits*, up by less than 10 % at a third of the size or less; *unusable*, perplexity at least doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below, scaled
from specmeter.studies.quantization.rungs import Rung, bandwidth, faster, named, percent_change, rungs, worse
from specmeter.studies.telling import by_intervals, only_of, quoted, ruling

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter.studies.study import ClaimRuling, Finding, StudyData
    from specmeter.studies.telling import Found

NEAR, SUITS, UNUSABLE = 1.01, 1.10, 2.0
Q2_PERCENT, ABOUT = 267.0, 0.1
"""The document's increase, and by which share of it a measured one may differ."""
BITS = 4.0
"""Bits per weight, as the file holds them: names of formats say less."""
NAMED = "Qwen3.5-4B"
SMALLER = 0.5
"""Q6_K has at most so much of F16's size: the document says 59 % less."""
SAME = (0.8, 1.25)
"""Bytes per second that differ by less than this factor count as one bandwidth."""


def rulings(data: StudyData) -> tuple[ClaimRuling, ...]:
    """Every claim the document makes about the ladder."""
    ladder = rungs(data)
    page, table = "project page, finding 2", "table of quantizations"
    return (
        ruling(
            "memory-bound",
            "Generation is bound by memory: the fewer bytes a token reads, the faster it comes.",
            "project page, finding 1",
            _memory_bound(data, ladder),
        ),
        ruling(
            "smaller-is-faster",
            "Quantization cuts the model's size, and with it the time of a token: each rung is faster than the larger.",
            f"project page, finding 1; {table}",
            _order(ladder),
        ),
        ruling("q8-near-lossless", "Q8_0 is near-lossless (0.18 % perplexity).", page, _near_lossless(ladder)),
        ruling("q6-dominates-q5", "Q6_K dominates Q5_K_M on both speed and quality.", page, _dominates(ladder)),
        ruling(
            "q6-numbers",
            "Q6_K: 1.68x faster, 59 % smaller, 0.54 % quality loss (all three against F16).",
            f"{page}; {table}",
            only_of(data, NAMED, _q6(ladder)),
        ),
        ruling("q4-suits", "Q4_K_M suits setups with little memory (4.07 % perplexity).", page, _suits(ladder)),
        ruling("sub-4-bit-unusable", "Below 4 bit, models are unusable.", page, _unusable(ladder)),
        ruling(
            "q2-perplexity", "Q2_K raises perplexity by 267 %.", f"{page}; {table}", only_of(data, NAMED, _q2(ladder))
        ),
    )


def _memory_bound(data: StudyData, ladder: Sequence[Rung]) -> Found:
    timed = sorted((rung for rung in ladder if rung.generation), key=lambda rung: rung.bytes_per_token)
    if len(timed) < 2 or timed[0].bytes_per_token * 1.5 > timed[-1].bytes_per_token:
        return "cannot tell", "Needs two rungs whose sizes differ by half or more."
    small, large = timed[0], timed[-1]
    ratio = faster(small, large)
    assert ratio is not None
    read = scaled(ratio, small.bytes_per_token / large.bytes_per_token)
    shown = "; ".join(
        f"{rung.title} {quoted(scaled(found, 1e-9), 0, ' GB/s')}"
        for rung in (large, small)
        if (found := bandwidth(rung)) is not None
    )
    text = (
        f"Were memory alone the limit, every rung would read the same bytes per second. Read: {shown}; "
        f"{small.title} over {large.title}: {quoted(read)}, taken as the same from {SAME[0]:g} to {SAME[1]:g}."
    )
    if data.bandwidth_bytes_per_s:
        best = max((found.point for rung in timed if (found := bandwidth(rung)) is not None), default=0.0)
        text += f" The most that is read is {best / data.bandwidth_bytes_per_s:.0%} of the machine's bandwidth."
    if below(read, SAME[0]) or above(read, SAME[1]):
        return "contradicted", text
    return ("supported" if above(read, SAME[0]) and below(read, SAME[1]) else "cannot tell"), text


def _order(ladder: Sequence[Rung]) -> Found:
    timed = sorted((rung for rung in ladder if rung.generation), key=lambda rung: -rung.size_bytes)
    if len(timed) < 2:
        return "cannot tell", "Needs the rates of two rungs."
    steps = [(faster(small, large, among=len(timed) - 1), small, large) for large, small in pairwise(timed)]
    right = [step for step in steps if above(step[0], 1)]
    wrong = [step for step in steps if below(step[0], 1)]
    whole = faster(timed[-1], timed[0])
    text = (
        f"Of {len(steps)} steps down, {len(right)} are faster beyond the interval, {len(wrong)} slower, the others "
        f"cannot be told (intervals that hold together): {'; '.join(_step(*step) for step in steps)}. From "
        f"{timed[0].title} to {timed[-1].title}: {quoted(whole, unit='x')}."
    )
    if wrong:
        return "contradicted", text
    return ("supported" if len(right) == len(steps) else "cannot tell"), text


def _step(ratio: Estimate | None, small: Rung, large: Rung) -> str:
    return f"{small.title} over {large.title} {quoted(ratio, unit='x')}"


def _near_lossless(ladder: Sequence[Rung]) -> Found:
    loss, text = _loss(ladder, "Q8_0")
    if loss is None:
        return "cannot tell", text
    text = f"{text} Near-lossless is taken as less than {NEAR - 1:.0%}."
    return _below_or_above(loss, NEAR), text


def _suits(ladder: Sequence[Rung]) -> Found:
    loss, text = _loss(ladder, "Q4_K_M")
    rung, full = named(ladder, "Q4_K_M"), _full(ladder)
    if loss is None or rung is None or full is None:
        return "cannot tell", text
    share = rung.size_bytes / full.size_bytes
    text = (
        f"{text} It has {share:.0%} of {full.title}'s size. Suiting is taken as less than {SUITS - 1:.0%} at a third."
    )
    if share > 1 / 3:
        return ("contradicted" if above(loss, SUITS) else "cannot tell"), text
    return _below_or_above(loss, SUITS), text


def _q2(ladder: Sequence[Rung]) -> Found:
    loss, text = _loss(ladder, "Q2_K")
    if loss is None:
        return "cannot tell", text
    change = percent_change(loss)
    assert change is not None
    return by_intervals([(change, Q2_PERCENT)], ABOUT), f"{text} Taken as within {ABOUT:.0%} of {Q2_PERCENT:g} %."


def _unusable(ladder: Sequence[Rung]) -> Found:
    full = _full(ladder)
    low = [rung for rung in ladder if rung.quality.bits_per_weight < BITS]
    by_name = [rung for rung in ladder if rung not in low and rung.bits is not None and rung.bits < BITS]
    known = [(rung, loss) for rung in low if full is not None and (loss := worse(rung, full)) is not None]
    if not known:
        return "cannot tell", "No file that holds less than 4 bits per weight was scored beside the full model."
    shown = "; ".join(
        f"{rung.title} ({rung.quality.bits_per_weight:.2f} bits per weight in its file) {quoted(loss, unit='x')}"
        for rung, loss in known
    )
    text = f"Perplexity over the full model's: {shown}. Unusable is taken as at least doubled."
    if by_name:
        names = ", ".join(f"{rung.title} ({rung.quality.bits_per_weight:.2f} bits per weight)" for rung in by_name)
        text += f" Below 4 by its name alone, and not counted: {names}."
    if any(below(loss, UNUSABLE) for _, loss in known):
        return "contradicted", text
    return ("supported" if all(above(loss, UNUSABLE) for _, loss in known) else "cannot tell"), text


def _dominates(ladder: Sequence[Rung]) -> Found:
    six, five = named(ladder, "Q6_K"), named(ladder, "Q5_K_M")
    if six is None or five is None:
        return "cannot tell", "Needs Q6_K and Q5_K_M, which llama-quantize makes."
    speed, loss = faster(six, five), worse(six, five)
    text = (
        f"Q6_K over Q5_K_M: rate {quoted(speed, unit='x')}, perplexity {quoted(loss, 4, 'x')}, size "
        f"{six.size_bytes / five.size_bytes:.2f}x. Beside the two that the document names, size is a third, and there "
        f"{'Q6_K loses' if six.size_bytes > five.size_bytes else 'Q6_K wins as well'}."
    )
    if below(speed, 1) or above(loss, 1):
        return "contradicted", text
    return ("supported" if above(speed, 1) and below(loss, 1) else "cannot tell"), text


def _q6(ladder: Sequence[Rung]) -> Found:
    six, full = named(ladder, "Q6_K"), _full(ladder)
    if six is None or full is None or six is full:
        return "cannot tell", "Needs Q6_K, which llama-quantize makes, and F16."
    speed, loss, share = faster(six, full), worse(six, full), six.size_bytes / full.size_bytes
    five = named(ladder, "Q5_K_M")
    against = f"; against Q5_K_M, which the sentence names, {six.size_bytes / five.size_bytes:.2f}x" if five else ""
    text = (
        f"Against {full.title}: rate {quoted(speed, unit='x')}, size {1 - share:.1%} less{against}; perplexity "
        f"{quoted(percent_change(loss), 2, ' %')}. Held against: faster, half the size or less, under {NEAR - 1:.0%}."
    )
    if below(speed, 1) or share > SMALLER or above(loss, NEAR):
        return "contradicted", text
    return ("supported" if above(speed, 1) and below(loss, NEAR) else "cannot tell"), text


def _full(ladder: Sequence[Rung]) -> Rung | None:
    return named(ladder, "F16")


def _loss(ladder: Sequence[Rung], name: str) -> tuple[Estimate | None, str]:
    rung, full = named(ladder, name), _full(ladder)
    loss = None if rung is None or full is None else worse(rung, full)
    if loss is None:
        return None, f"{name} and F16 were not both scored on the same windows."
    text = f"Perplexity of {name} against F16: {quoted(percent_change(loss), 2, ' %')} ({loss.method})."
    return loss, text


def _below_or_above(estimate: Estimate, limit: float) -> Finding:
    return "supported" if below(estimate, limit) else "contradicted" if above(estimate, limit) else "cannot tell"
