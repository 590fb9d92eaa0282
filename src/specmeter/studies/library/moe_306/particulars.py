"""moe-306: what the paper says in passing, each held against its own numbers or against the same of a run of ours.

Most are about the named models and the document's own tables: where other models were measured they do not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below, exceeds, quotient, scaled
from specmeter.studies.apple_published import raw_logs
from specmeter.studies.library.moe_306.equations import rounds, tokens_generated
from specmeter.studies.library.moe_306.lines import (
    LARGE,
    MOE,
    SMALL,
    alone,
    at,
    by_length,
    draft_rate,
    label,
    model,
    named,
    other_format,
    overall,
    speculative,
)
from specmeter.studies.telling import Found, by_counts, by_values, quoted
from specmeter.theory import catalogue

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter.studies.study import Finding, StudyData

RANGE = (1.18, 1.30)
"""Of speedups on mixtures, as the abstract has it."""
HALF_DIGIT = 0.005
CHEAPER = 2.5
"""The larger draft's cost over the smaller one's, as claimed."""
MOST_IDLE = 0.5
"""A model that uses less than this share of a machine's arithmetic is not bound by it."""
EXPERTS = (128, 2)
"""Experts and experts used, as the paper has them."""
ROUNDS = 16


def gain_range(data: StudyData) -> Found:
    """1.18 to 1.30x on mixtures."""
    lines = speculative(data, "B")
    claimed = [(line, line.claimed_speedup) for line in lines if line.claimed_speedup]
    measured = [line for line in lines if line.speedup is not None and line.stands]
    low, high = RANGE[0] - HALF_DIGIT, RANGE[1] + HALF_DIGIT
    if measured or not claimed:
        outside = [line for line in measured if below(line.speedup, low) or above(line.speedup, high)]
        told = f"{len(outside)} of {len(measured)} configurations lie outside with their whole interval."
        return "contradicted" if outside else "cannot tell", told
    outside = [f"{named(line)} {value:.2f}x" for line, value in claimed if not low <= value <= high]
    told = f"Its own Table 5 has {len(outside)} of {len(claimed)} configurations of the mixtures outside of it"
    return by_values("contradicted" if outside else "cannot tell", f"{told}: {'; '.join(outside)}.")


def slower_than_dense(data: StudyData) -> Found:
    """The mixtures decode more slowly than the dense 4B."""
    rates = {line.target: line.decode_rate for line in overall(data, "A", "C") if not line.speculates}
    dense, mixtures = rates.get("dense_4b"), [(name, rates[name]) for name in MOE if rates.get(name) is not None]
    if dense is None or not mixtures:
        return "cannot tell", "The mixtures and the dense 4B by themselves are needed."
    slower = [exceeds(dense, rate) for _, rate in mixtures]
    faster = [exceeds(rate, dense) for _, rate in mixtures]
    told = ", ".join(f"{label(name)} {quoted(rate, 1, ' tok/s')}" for name, rate in mixtures)
    told = f"{told}; {label('dense_4b')} {quoted(dense, 1, ' tok/s')}."
    ruling: Finding = "supported" if all(slower) else "contradicted" if any(faster) else "cannot tell"
    return ruling, told


def draft_cost(data: StudyData) -> Found:
    """The smaller draft is 2.5 times cheaper than the larger one."""
    small, large = draft_rate(data, SMALL), draft_rate(data, LARGE)
    if small is None or large is None:
        return "cannot tell", "The rates of both drafts by themselves are needed."
    ratio = quotient(small, large, unit="x", method="ratio of two rates")
    where = "By its own Table 4 " if data.origin == "published" else ""
    told = f"{where}{label(alone(SMALL))} is {quoted(ratio, unit='x')} as fast as {label(alone(LARGE))}"
    other = other_format(data, SMALL)
    most = ratio
    if other is not None:
        most = scaled(ratio, other.at_most)
        told += f"; {other.told}, so {quoted(most, unit='x')} at most"
    told += ". In parameters it is 2.5 to 1, but a draft costs time"
    ruling: Finding = "contradicted" if below(most, CHEAPER - 0.05) or above(ratio, CHEAPER + 0.05) else "cannot tell"
    return ruling, f"{told}."


def compute_bound(data: StudyData) -> Found:
    """Dense models of 4B and below are bound by arithmetic: two operations per parameter and token, over the peak."""
    peak = _peak_flops(data)
    shares: list[tuple[str, Estimate, Estimate | None]] = []
    for name in ("dense_0.8b", "dense_2b", "dense_4b"):
        used, rate = model(data, name), _plain(data, name)
        if used is not None and rate is not None and used.active_parameters and peak is not None:
            share = scaled(rate, 2 * used.active_parameters / peak, "1")
            memory = None
            if used.bytes_per_token and data.bandwidth_bytes_per_s:
                memory = scaled(rate, used.bytes_per_token / data.bandwidth_bytes_per_s, "1")
            shares.append((label(name), share, memory))
    if not shares or peak is None:
        return "cannot tell", "The machine's peak of arithmetic is not known."
    told = "; ".join(
        f"{name} {100 * share.point:.1f} % of {peak / 1e12:.0f} TFLOP/s"
        + ("" if memory is None else f" and {100 * memory.point:.0f} % of the memory's bandwidth")
        for name, share, memory in shares
    )
    told = f"At two operations per parameter and token they use: {told}. Something else takes most of their time."
    idle = all(below(share, MOST_IDLE) for _, share, _ in shares)
    busy = all(above(share, MOST_IDLE) for _, share, _ in shares)
    ruling: Finding = "contradicted" if idle else "supported" if busy else "cannot tell"
    return ruling, told


def _plain(data: StudyData, target: str) -> Estimate | None:
    return next((line.decode_rate for line in overall(data, "C") if line.target == target), None)


def _peak_flops(data: StudyData) -> float | None:
    """Of the machine that the document names; of others nothing is known."""
    found = catalogue.find(data.machine.partition(",")[0]) if data.machine else ()
    peaks = [device.fp16_tflops for device in found if device.fp16_tflops]
    return max(peaks) * 1e12 if peaks else None


def cause_of_decline(data: StudyData) -> Found:
    """The speedup declines with the prompt's length because reading the prompt costs relatively more."""
    if data.origin != "published":
        return "cannot tell", "Decode rates leave the prompt's reading out."
    from specmeter.studies.library.moe_306.published import prompts_timed

    timed, rows = prompts_timed()
    plain = [line.decode_rate for line in by_length(data) if not line.speculates and line.decode_rate is not None]
    told = (
        f"Of the {rows} rows of suite F with drafts {timed} print the time of reading the prompt, so whether their "
        "rates hold it is not known: the ms per token beside a rate is the rate in another unit"
    )
    if plain:
        low, high = min(it.point for it in plain), max(it.point for it in plain)
        told += f". Plain decoding, timed without the prompt, stays at {low:.1f} to {high:.1f} tok/s at all lengths"
    return "cannot tell", f"{told}."


def architecture(data: StudyData) -> Found:
    """128 experts, two of them used by each token."""
    used = next((found for name in MOE if (found := model(data, name)) is not None and found.experts), None)
    if used is None:
        return "cannot tell", "The experts of the target are not known."
    right = (used.experts, used.experts_used) == EXPERTS
    where = "published configuration" if data.origin == "published" else "file"
    told = f"Its {where} has {used.experts} experts per layer and chooses {used.experts_used}."
    return by_counts("supported" if right else "contradicted", told)


def round_length(data: StudyData) -> Found:
    """256 tokens in about 16 rounds of 229 ms."""
    tokens = tokens_generated(data)
    line = at(data, MOE[0], SMALL, 16)
    found = next((row for row in (rounds(data, tokens) if tokens else ()) if row.line is line), None)
    if found is None or tokens is None:
        return "cannot tell", "The rate and the acceptance at gamma 16 are needed."
    tau = tokens / found.rounds
    told = (
        f"A round emits 1 + accepted tokens, by the printed acceptance {tau:.2f}: {ROUNDS} rounds give "
        f"{ROUNDS * tau:.0f} tokens of {tokens}, and {tokens} take {found.rounds:.0f} rounds of {found.ms.point:.1f} ms"
    )
    if found.plain_ms is not None:
        told += f", where one plain token takes {found.plain_ms.point:.1f} ms"
    off = ROUNDS * tau < tokens / 2
    return by_counts("contradicted" if off else "cannot tell", f"{told}.")


def lossless(data: StudyData) -> Found:
    """No degradation of quality."""
    known = [line for line in speculative(data) if line.texts_apart is not None]
    if known:
        apart = [line for line in known if line.texts_apart]
        if apart:
            texts = sum(line.texts_apart or 0 for line in apart)
            return by_counts(
                "contradicted",
                f"{texts} answers of {len(apart)} of {len(known)} configurations leave plain decoding's where the "
                f"target is sure: {', '.join(map(named, apart[:4]))}.",
            )
        return by_counts(
            "supported",
            f"In all {len(known)} configurations that were compared every answer is plain decoding's, near ties of the "
            "target aside.",
        )
    if data.origin == "published":
        return "cannot tell", f"No text was published, and none was compared with plain decoding. {_told_by_logs()}"
    return "cannot tell", "No answers were compared with plain decoding's: check the run."


def _told_by_logs() -> str:
    logs = raw_logs()
    words = [log.repeated for log in logs]
    return (
        f"In {len(logs)} raw logs of the same author and program {min(words):.0%} to {max(words):.0%} of the words "
        "repeat the word before."
    )
