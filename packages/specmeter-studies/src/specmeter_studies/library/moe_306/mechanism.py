"""moe-306: what the paper says about *why* (batch verification, Eq. 2, bytes of inactive experts), and in passing.

The mechanism is tested by arithmetic on what was measured, not by another fit: a speedup over the tokens that a step
emits is the time of a plain token over the time of a step, so it says what the same steps would gain if the target
rejected everything. Where the paper's mechanism exists, that number lies above 1. What it says in passing is held
against its own numbers, or against the same of a run of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import MARGIN, above, below, quotient, scaled
from specmeter.record import Estimate
from specmeter.theory import catalogue
from specmeter_studies.apple_published import raw_logs
from specmeter_studies.library.moe_306.lines import (
    DENSE,
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
from specmeter_studies.library.moe_306.tables import (
    Equations,
    Traffic,
    at_acceptance,
    equations,
    evaluate,
    nothing_accepted,
    rounds,
    step_ms,
    tokens_generated,
    traffic,
)
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData, by_counts, by_values, quoted

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import RulingWord, StudyData


LOW_ACCEPTANCE = 0.04
"""The paper: all acceptance rates are below this."""

PREMISE = "as the paper itself has it: its cost grows with the tokens verified, if sub-linearly (2.2, 4.4)"
"""What turns a bound that rests on an assumption into a contradiction: the document makes that very assumption."""

DRAFTS_PAID = "drafts cost the draft model's own time, with gamma tokens in every step"
"""What the second bound rests on beside the premise."""

NEAR = 0.8
"""Traffic of at least this share of what dense models reach explains a rate."""

_GB = 1e-9


def amortization(data: StudyData) -> Found:
    """Gain at near-zero acceptance, by batch verification alone."""
    lines = speculative(data, "B")
    zeros = [(line, zero) for line in lines if (zero := nothing_accepted(line)) is not None and zero.low is not None]
    if not zeros:
        return by_bounds(data, lines)
    best = max(zeros, key=lambda item: item[1].point)
    low = [found for line, _ in zeros if (found := at_acceptance(line, LOW_ACCEPTANCE)) is not None]
    most = max(low, key=lambda found: found.point)
    ruling = _all_or_any(supported=[above(zero, 1) for _, zero in zeros], contradicted=[below(z, 1) for _, z in zeros])
    found = (
        f"With nothing accepted, the measured steps would decode at {min(z.point for _, z in zeros):.2f} to "
        f"{best[1].point:.2f} of plain speed (best: {named(best[0])}, {quoted(best[1], unit='x')}): a step takes "
        f"as long as {1 / best[1].point:.2f} plain tokens or more. At 4 % acceptance they would reach at most "
        f"{quoted(most, unit='x')}."
    )
    return ruling, found


def by_bounds(data: StudyData, lines: Sequence[ArmResult]) -> Found:
    """Without a speedup that can be believed: which bound the audit finds the claimed ones beyond."""
    claimed = [(line, row) for line in lines if line.claimed_speedup and (row := evaluate(data, line)) is not None]
    if not claimed:
        return "cannot tell", "No usable speedup of an MoE target over its baseline comes with a tau."
    broken = sum(line.why.startswith("speedup-above-tau") for line, _ in claimed)
    unpaid = sum(
        line.why.startswith("speedup-above-cost-bound")
        and (line.claimed_speedup or 0) > (row.permitted_at_most or row.tau)
        for line, row in claimed
    )
    line, row = max(claimed, key=lambda item: (item[0].claimed_speedup or 0) / item[1].tau)
    paid = "" if row.permitted is None else f", and {row.permitted:.2f}x with its drafts paid for"
    if row.format is not None and row.permitted_at_most is not None:
        paid += f" ({row.format.told}: {row.permitted_at_most:.2f}x)"
    found = (
        f"By their own acceptance {broken} of {len(claimed)} printed speedups are too high if a verification takes at "
        f"least the time of one plain token, {PREMISE}."
    )
    if unpaid:
        found += f" Too high as well are {unpaid} more once {DRAFTS_PAID}."
    found += (
        f" Claimed for {named(line)}: {line.claimed_speedup:.2f}x at {100 * _share(line):.2f} % accepted, which "
        f"permits {row.tau:.2f}x{paid}."
    )
    decided = broken and broken + unpaid == len(claimed)
    return by_values("contradicted" if decided else "cannot tell", found)


def equation_2(data: StudyData) -> Found:
    """Eq. 2 as the effective speedup."""
    rows = [row for row in equations(data) if isinstance(row.claimed, Estimate) and row.line.speedup is not None]
    claimed = [row for row in equations(data) if isinstance(row.claimed, float)]
    if rows:
        off = [row for row in rows if _off(row)]
        ruling = "contradicted" if off else "supported" if all(map(_right, rows)) else "cannot tell"
        row, over_tau = max(rows, key=_excess), sum(_value(row) > row.tau for row in rows)
        found = (
            "Eq. 2 over the measured speedup is gamma / tau, tokens drafted over tokens emitted per step: "
            f"{min(map(_excess, rows)):.2f} to {_excess(row):.2f}; in {len(off)} of {len(rows)} configurations "
            f"it is off by more than {MARGIN:.0%} with the whole interval. {named(row.line)}: {_value(row):.2f}x "
            f"by Eq. 2, {quoted(row.line.speedup, unit='x')} measured"
            + (f"; in {over_tau} it is above tau, the ceiling of such steps." if over_tau else ".")
        )
    elif claimed:
        row = max(claimed, key=_excess)
        return by_values(
            "contradicted" if all(_excess(row) > 2 for row in claimed) else "cannot tell",
            f"Not even for the paper's own numbers: with its baseline, its rate and its acceptance Eq. 2 gives "
            f"{_value(row):.1f}x for {named(row.line)}, where it prints {_shown(row.line):.2f}x; over all "
            f"configurations {min(map(_excess, claimed)):.1f} to {_excess(row):.1f} times what is printed.",
        )
    else:
        ruling, found = "cannot tell", "No configuration has a speedup, an acceptance and a draft length."
    return ruling, found


def moe_tax(data: StudyData) -> Found:
    """All parameters, active or not, are read for every token."""
    rows = [row for row in traffic(data) if not row.line.speculates]
    mixtures = [row for row in rows if row.model.experts and row.whole is not None and row.line.target in MOE]
    dense = [row.least for row in rows if not row.model.experts and row.least is not None]
    reached = max(dense, key=lambda found: found.point, default=None)
    limit = data.bandwidth_bytes_per_s
    if not mixtures:
        ruling, found = "cannot tell", "No decode rate of an MoE target comes with the size of its file."
    else:
        over_peak = [limit is not None and above(row.whole, limit) for row in mixtures]
        over_dense = [
            reached is not None and reached.high is not None and above(row.whole, reached.high) for row in mixtures
        ]
        near = [
            reached is not None and above(row.whole, NEAR * reached.point) and below(row.whole, 1.05 * reached.point)
            for row in mixtures
        ]
        against = [peak or dense for peak, dense in zip(over_peak, over_dense, strict=True)]
        ruling = _all_or_any(supported=near, contradicted=against)
        found = _tax_found(mixtures, reached, limit)
    return ruling, found


def _tax_found(mixtures: Sequence[Traffic], reached: Estimate | None, limit: float | None) -> str:
    row = max(mixtures, key=lambda row: row.whole.point if row.whole else 0)
    text = f"{label(row.line.target)}: all bytes for every token would be {_gb(row.whole)}"
    if limit is not None:
        text += f", where the machine has {limit * _GB:.1f} GB/s"
    if reached is not None:
        text += f" and its dense models reach {_gb(reached)}"
    if row.least is not None and row.model.bytes_per_token is not None:
        share = row.model.bytes_per_token / (row.model.size_bytes or row.model.bytes_per_token)
        text += f". The {share:.0%} of the file that one token reads take {_gb(row.least)}"
        if reached is not None:
            share = row.least.point / reached.point
            text += f", {share:.0%} of what dense models reach"
            text += ": reading weights does not take all of the time" if share < NEAR else ""
    return text + "."


def verification_cost(data: StudyData) -> Found:
    """Verifying 16 tokens costs about 1.5 times as much as verifying 4."""
    ratios: list[tuple[str, Estimate]] = []
    for target in (*MOE, *DENSE):
        short, long = (_verify_ms(data, at(data, target, SMALL, gamma)) for gamma in (4, 16))
        if short is not None and long is not None:
            ratios.append((label(target), quotient(long, short, unit="x", method="verification at gamma 16 over 4")))
    if not ratios:
        ruling, found = (
            "cannot tell",
            (
                "The time of a verification needs a usable rate, a measured tau and the draft's own rate, at "
                "gamma 4 and at gamma 16."
            ),
        )
    else:
        mixtures = [ratio for name, ratio in ratios if name in {label(target) for target in MOE}] or [
            ratio for _, ratio in ratios
        ]
        ruling = _all_or_any(supported=[below(r, 2) for r in mixtures], contradicted=[above(r, 2) for r in mixtures])
        found = (
            "Verification, the step less its drafts at the draft's own rate, takes at gamma 16 over gamma 4: "
            + ", ".join(f"{name} {quoted(ratio, unit='x')}" for name, ratio in ratios)
            + ". Taken as refuted if the whole interval of an MoE target lies above 2."
            + ("" if (other := other_format(data, SMALL)) is None else f" {other.told[:1].upper()}{other.told[1:]}.")
        )
    return ruling, found


def _verify_ms(data: StudyData, line: ArmResult | None) -> Estimate | None:
    """Time of a step less its gamma drafts; None where nothing is left of one end of the interval."""
    step = step_ms(line) if line is not None else None
    rate = draft_rate(data, line.draft) if line is not None else None
    if line is None or step is None or rate is None or step.low is None or step.high is None:
        return None
    drafts = 1000 * (line.gamma or 0) / rate.point
    if step.low <= drafts:
        return None
    less = {"point": step.point - drafts, "low": step.low - drafts, "high": step.high - drafts}
    return step.model_copy(update=less)


# --- small things ----------------------------------------------------------------------------------------------------


def _all_or_any(*, supported: Sequence[bool], contradicted: Sequence[bool]) -> RulingWord:
    """Supported only when all show it; contradicted when all show the opposite; mixed evidence decides nothing."""
    if supported and all(supported):
        return "supported"
    return "contradicted" if contradicted and all(contradicted) else "cannot tell"


def _share(line: ArmResult) -> float:
    return line.acceptance.point if line.acceptance is not None else 0.0


def _shown(line: ArmResult) -> float:
    return line.speedup.point if line.speedup is not None else line.claimed_speedup or 0.0


def _value(row: Equations) -> float:
    return row.claimed.point if isinstance(row.claimed, Estimate) else row.claimed or 0.0


def _excess(row: Equations) -> float:
    """Eq. 2 over the speedup: gamma / tau."""
    return _value(row) / _shown(row.line)


def _off(row: Equations) -> bool:
    """Whether tau and gamma differ by more than the margin, as far as the whole interval."""
    gamma = row.line.gamma or 0
    return below(row.line.tau, gamma / (1 + MARGIN)) or above(row.line.tau, gamma * (1 + MARGIN))


def _right(row: Equations) -> bool:
    """Whether tau and gamma agree within the margin, as far as the whole interval."""
    gamma = row.line.gamma or 0
    return above(row.line.tau, gamma / (1 + MARGIN)) and below(row.line.tau, gamma * (1 + MARGIN))


def _gb(value: Estimate | None) -> str:
    return "unknown" if value is None else quoted(scaled(value, _GB), 1, " GB/s")


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
    told = f"Its own Table 5 has {len(outside)} of {len(claimed)} configurations of the mixtures outside it"
    return by_values("contradicted" if outside else "cannot tell", f"{told}: {'; '.join(outside)}.")


def draft_cost(data: StudyData) -> Found:
    """The smaller draft is 2.5 times cheaper than the larger one."""
    small, large = draft_rate(data, SMALL), draft_rate(data, LARGE)
    if small is None or large is None:
        return "cannot tell", "The rates of both drafts alone are needed."
    ratio = quotient(small, large, unit="x", method="ratio of two rates")
    where = "By its own Table 4 " if data.origin == "published" else ""
    told = f"{where}{label(alone(SMALL))} is {quoted(ratio, unit='x')} as fast as {label(alone(LARGE))}"
    other = other_format(data, SMALL)
    most = ratio
    if other is not None:
        most = scaled(ratio, other.at_most)
        told += f"; {other.told}, so {quoted(most, unit='x')} at most"
    told += ". In parameters the ratio is 2.5 to 1, but a draft costs time"
    ruling: RulingWord = (
        "contradicted" if below(most, CHEAPER - 0.05) or above(ratio, CHEAPER + 0.05) else "cannot tell"
    )
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
        return "cannot tell", "The machine's peak arithmetic is not known."
    told = "; ".join(
        f"{name} {100 * share.point:.1f} % of {peak / 1e12:.0f} TFLOP/s"
        + ("" if memory is None else f" and {100 * memory.point:.0f} % of the memory's bandwidth")
        for name, share, memory in shares
    )
    told = f"At two operations per parameter and token they use: {told}. Something else takes most of their time."
    idle = all(below(share, MOST_IDLE) for _, share, _ in shares)
    busy = all(above(share, MOST_IDLE) for _, share, _ in shares)
    ruling: RulingWord = "contradicted" if idle else "supported" if busy else "cannot tell"
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
        return "cannot tell", "Decode rates do not include reading the prompt."
    from specmeter_studies.library.moe_306.published import prompts_timed

    timed, rows = prompts_timed()
    plain = [line.decode_rate for line in by_length(data) if not line.speculates and line.decode_rate is not None]
    told = (
        f"Of the {rows} rows of suite F with drafts {timed} print the time of reading the prompt, so whether "
        "their rates include it is not known: the ms per token beside a rate is the rate in another unit"
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
                f"{texts} outputs of {len(apart)} of {len(known)} configurations differ from plain decoding's "
                f"where the target is sure: {', '.join(map(named, apart[:4]))}.",
            )
        return by_counts(
            "supported",
            f"In all {len(known)} configurations that were compared every output is plain decoding's, near ties "
            "of the target aside.",
        )
    if data.origin == "published":
        return (
            "cannot tell",
            f"No text was published, and no output was compared with plain decoding. {_told_by_logs()}",
        )
    return "cannot tell", "No output was compared with plain decoding's: check the run."


def _told_by_logs() -> str:
    logs = raw_logs()
    words = [log.repeated for log in logs]
    return (
        f"In {len(logs)} raw logs of the same author and program {min(words):.0%} to {max(words):.0%} of the words "
        "repeat the word before."
    )
