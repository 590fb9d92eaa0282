"""moe-306: what the paper says about *why* (batch verification, Eq. 2, bytes of inactive experts), and in passing.

The mechanism is tested by arithmetic on what was measured, not by another fit: a speedup over the tokens that a step
emits is the time of a plain token over the time of a step, so it says what the same steps would gain if the target
rejected everything. Where the paper's mechanism exists, that number lies above 1. What it says in passing is held
against its own numbers, or against the same of a run of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, quotient, scaled
from specmeter.numbers.margin import MARGIN
from specmeter.record import Estimate
from specmeter.theory.catalogue import devices as catalogue
from specmeter_studies.apple_published import raw_logs
from specmeter_studies.library.moe_306.equations import (
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
from specmeter_studies.library.moe_306.rulings import refuted_by
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData
from specmeter_studies.telling import by_counts, by_values, quoted

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import RulingWord, StudyData


LOW_ACCEPTANCE = 0.04
"""The paper: all acceptance rates are below this."""

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
    found = Message(
        "moe-306.nothing_accepted",
        low=min(zero.point for _, zero in zeros),
        high=best[1].point,
        name=named(best[0]),
        best=quoted(best[1], "x"),
        step=1 / best[1].point,
        most=quoted(most, "x"),
    )
    return ruling, found


def by_bounds(data: StudyData, lines: Sequence[ArmResult]) -> Found:
    """Without a speedup that can be believed: which bound the audit finds the claimed ones beyond."""
    claimed = [(line, row) for line in lines if line.claimed_speedup and (row := evaluate(data, line)) is not None]
    if not claimed:
        return "cannot tell", Message("moe-306.no_speedup")
    broken = sum(refuted_by(line) == "speedup-above-tau" for line, _ in claimed)
    unpaid = sum(
        refuted_by(line) == "speedup-above-cost-bound"
        and (line.claimed_speedup or 0) > (row.permitted_at_most or row.tau)
        for line, row in claimed
    )
    line, row = max(claimed, key=lambda item: (item[0].claimed_speedup or 0) / item[1].tau)
    other = ""
    if row.format is not None and row.permitted_at_most is not None:
        other = Message("moe-306.paid.format", format=row.format.message, permitted=row.permitted_at_most)
    # The bound rests on an assumption; what makes it a contradiction is that the document makes that very assumption.
    found = Message(
        "moe-306.too_high",
        broken=broken,
        claimed=len(claimed),
        unpaid=Message("moe-306.too_high.unpaid", unpaid=unpaid) if unpaid else "",
        name=named(line),
        speedup=line.claimed_speedup,
        share=100 * line.acceptance.point if line.acceptance is not None else 0.0,
        tau=row.tau,
        paid="" if row.permitted is None else Message("moe-306.paid", permitted=row.permitted),
        format=other,
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
        found = Message(
            "moe-306.equation_2",
            low=min(map(_excess, rows)),
            high=_excess(row),
            off=len(off),
            rows=len(rows),
            margin=MARGIN,
            name=named(row.line),
            by_equation=_value(row),
            measured=quoted(row.line.speedup, "x"),
            over_tau=Message("moe-306.equation_2.over_tau", n=over_tau) if over_tau else "",
        )
    elif claimed:
        row = max(claimed, key=_excess)
        return by_values(
            "contradicted" if all(_excess(row) > 2 for row in claimed) else "cannot tell",
            Message(
                "moe-306.equation_2.printed",
                by_equation=_value(row),
                name=named(row.line),
                printed=_shown(row.line),
                low=min(map(_excess, claimed)),
                high=_excess(row),
            ),
        )
    else:
        ruling, found = "cannot tell", Message("moe-306.equation_2.needs")
    return ruling, found


def moe_tax(data: StudyData) -> Found:
    """All parameters, active or not, are read for every token."""
    rows = [row for row in traffic(data) if not row.line.speculates]
    mixtures = [row for row in rows if row.model.experts and row.whole is not None and row.line.target in MOE]
    dense = [row.least for row in rows if not row.model.experts and row.least is not None]
    reached = max(dense, key=lambda found: found.point, default=None)
    limit = data.bandwidth_bytes_per_s
    if not mixtures:
        ruling, found = "cannot tell", Message("moe-306.tax.needs")
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


def _tax_found(mixtures: Sequence[Traffic], reached: Estimate | None, limit: float | None) -> Message:
    row = max(mixtures, key=lambda row: row.whole.point if row.whole else 0)
    reads = ""
    if row.least is not None and row.model.bytes_per_token is not None:
        of_dense = ""
        if reached is not None:
            share = row.least.point / reached.point
            other = Message("moe-306.tax.other_work") if share < NEAR else ""
            of_dense = Message("moe-306.tax.of_dense", share=share, other=other)
        reads = Message(
            "moe-306.tax.reads",
            share=row.model.bytes_per_token / (row.model.size_bytes or row.model.bytes_per_token),
            rate=_gb(row.least),
            of_dense=of_dense,
        )
    return Message(
        "moe-306.tax",
        target=label(row.line.target),
        rate=_gb(row.whole),
        limit="" if limit is None else Message("moe-306.tax.limit", limit=limit * _GB),
        reached="" if reached is None else Message("moe-306.tax.reached", rate=_gb(reached)),
        reads=reads,
    )


def verification_cost(data: StudyData) -> Found:
    """Verifying 16 tokens costs about 1.5 times as much as verifying 4."""
    ratios: list[tuple[str, Estimate]] = []
    for target in (*MOE, *DENSE):
        short, long = (_verify_ms(data, at(data, target, SMALL, gamma)) for gamma in (4, 16))
        if short is not None and long is not None:
            ratios.append((target, quotient(long, short, unit="x", method="verification at gamma 16 over 4")))
    if not ratios:
        return "cannot tell", Message("moe-306.verification.needs")
    mixtures = [ratio for target, ratio in ratios if target in MOE] or [ratio for _, ratio in ratios]
    ruling = _all_or_any(supported=[below(r, 2) for r in mixtures], contradicted=[above(r, 2) for r in mixtures])
    other = other_format(data, SMALL)
    return ruling, Message(
        "moe-306.verification",
        ratios=[Message("study.row", name=label(target), number=quoted(ratio, "x")) for target, ratio in ratios],
        format=other.sentence if other else "",
    )


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


def _gb(value: Estimate | None) -> Message:
    return quoted(None if value is None else scaled(value, _GB), " GB/s")


RANGE = (1.18, 1.30)
"""Of speedups on mixtures, as the abstract has it."""
HALF_DIGIT = 0.005
CHEAPER = 2.5
"""The larger draft's cost over the smaller one's, as claimed."""
MAX_IDLE = 0.5
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
        told = Message("moe-306.outside", outside=len(outside), of=len(measured))
        return "contradicted" if outside else "cannot tell", told
    outside = [
        Message("study.row", name=named(line), number=Message("study.number", number=value, unit="x"))
        for line, value in claimed
        if not low <= value <= high
    ]
    told = Message("moe-306.outside.printed", n=len(outside), of=len(claimed), outside=outside)
    return by_values("contradicted" if outside else "cannot tell", told)


def draft_cost(data: StudyData) -> Found:
    """The smaller draft is 2.5 times cheaper than the larger one."""
    small, large = draft_rate(data, SMALL), draft_rate(data, LARGE)
    if small is None or large is None:
        return "cannot tell", Message("moe-306.needs.drafts")
    ratio = quotient(small, large, unit="x", method="ratio of two rates")
    other = other_format(data, SMALL)
    most = ratio if other is None else scaled(ratio, other.at_most)
    ruling: RulingWord = (
        "contradicted" if below(most, CHEAPER - 0.05) or above(ratio, CHEAPER + 0.05) else "cannot tell"
    )
    return ruling, Message(
        f"moe-306.draft_cost.{data.origin}",
        small=label(alone(SMALL)),
        ratio=quoted(ratio, "x"),
        large=label(alone(LARGE)),
        format=""
        if other is None
        else Message("moe-306.draft_cost.format", format=other.message, most=quoted(most, "x")),
    )


def compute_bound(data: StudyData) -> Found:
    """Dense models of 4B and below are bound by arithmetic: two operations per parameter and token, over the peak."""
    peak = _peak_flops(data)
    shares: list[tuple[Message | str, Estimate, Estimate | None]] = []
    for name in ("dense_0.8b", "dense_2b", "dense_4b"):
        used, rate = model(data, name), _plain(data, name)
        if used is not None and rate is not None and used.active_parameters and peak is not None:
            share = scaled(rate, 2 * used.active_parameters / peak, "1")
            memory = None
            if used.bytes_per_token and data.bandwidth_bytes_per_s:
                memory = scaled(rate, used.bytes_per_token / data.bandwidth_bytes_per_s, "1")
            shares.append((label(name), share, memory))
    if not shares or peak is None:
        return "cannot tell", Message("moe-306.no_peak")
    told = Message(
        "moe-306.arithmetic",
        shares=[
            Message(
                "moe-306.arithmetic.of",
                name=name,
                share=100 * share.point,
                peak=peak / 1e12,
                memory="" if memory is None else Message("moe-306.arithmetic.memory", share=100 * memory.point),
            )
            for name, share, memory in shares
        ],
    )
    idle = all(below(share, MAX_IDLE) for _, share, _ in shares)
    busy = all(above(share, MAX_IDLE) for _, share, _ in shares)
    ruling: RulingWord = "contradicted" if idle else "supported" if busy else "cannot tell"
    return ruling, told


def _plain(data: StudyData, target: str) -> Estimate | None:
    return next((line.decode_rate for line in overall(data, "C") if line.target == target), None)


def _peak_flops(data: StudyData) -> float | None:
    """Of the machine that the document names; of others nothing is known."""
    found = catalogue.find(str(data.machine).partition(",")[0]) if data.machine else ()
    peaks = [device.fp16_tflops for device in found if device.fp16_tflops]
    return max(peaks) * 1e12 if peaks else None


def cause_of_decline(data: StudyData) -> Found:
    """The speedup declines with the prompt's length because reading the prompt costs relatively more.

    No rate contains the reading: the program prints it apart (`encoded`), and begins to count what it decoded after it.
    """
    if data.origin != "published":
        return "cannot tell", Message("moe-306.prompts.not_included")
    from specmeter_studies.library.moe_306.published import swept_words, whole_times

    whole, rows = whole_times()
    log = next(it for it in raw_logs() if "35B-A3B" in it.models and "0.8B" in it.models)
    plain = [line.decode_rate.point for line in by_length(data) if not line.speculates and line.decode_rate is not None]
    told = Message(
        "moe-306.prompts",
        whole=whole,
        rows=rows,
        tokens=log.prompt_tokens,
        ms=log.prompt_ms,
        low=min(plain),
        high=max(plain),
        words=max(swept_words().values()),
    )
    return by_counts("contradicted" if whole == rows else "cannot tell", told)


def architecture(data: StudyData) -> Found:
    """128 experts, two of them used by each token."""
    used = next((found for name in MOE if (found := model(data, name)) is not None and found.experts), None)
    if used is None:
        return "cannot tell", Message("moe-306.experts.unknown")
    right = (used.experts, used.experts_used) == EXPERTS
    told = Message(f"moe-306.experts.{data.origin}", experts=used.experts, used=used.experts_used)
    return by_counts("supported" if right else "contradicted", told)


def round_length(data: StudyData) -> Found:
    """256 tokens in about 16 rounds of 229 ms."""
    tokens = tokens_generated(data)
    line = at(data, MOE[0], SMALL, 16)
    found = next((row for row in (rounds(data, tokens) if tokens else ()) if row.line is line), None)
    if found is None or tokens is None:
        return "cannot tell", Message("moe-306.needs.gamma_16")
    tau = tokens / found.rounds
    told = Message(
        "moe-306.rounds",
        tau=tau,
        rounds=ROUNDS,
        give=ROUNDS * tau,
        tokens=tokens,
        needed=found.rounds,
        ms=found.ms.point,
        plain="" if found.plain_ms is None else Message("moe-306.rounds.plain", ms=found.plain_ms.point),
    )
    off = ROUNDS * tau < tokens / 2
    return by_counts("contradicted" if off else "cannot tell", told)


def lossless(data: StudyData) -> Found:
    """No degradation of quality."""
    known = [line for line in speculative(data) if line.texts_apart is not None]
    if known:
        apart = [line for line in known if line.texts_apart]
        if apart:
            texts = sum(line.texts_apart or 0 for line in apart)
            names = [*map(named, apart[:4])]
            told = Message("moe-306.texts_apart", texts=texts, apart=len(apart), known=len(known), names=names)
            return by_counts("contradicted", told)
        return by_counts("supported", Message("moe-306.texts_alike", n=len(known)))
    if data.origin == "published":
        logs = raw_logs()
        words = [log.repeated for log in logs]
        return "cannot tell", Message("moe-306.no_texts", logs=len(logs), low=min(words), high=max(words))
    return "cannot tell", Message("moe-306.not_compared")
