"""moe-306: what the paper says about *why*: batch verification, its Eq. 2, bytes of inactive experts.

Each function rules one claim. The mechanism is tested by arithmetic on what was measured, not by another fit: a speedup
over the tokens that a step emits is the time of a plain token over the time of a step, so it says what the same steps
would gain if the target rejected everything. Where the paper's mechanism exists, that number lies above 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.numbers.estimates import above, below, quotient, scaled
from specmeter.record import Estimate
from specmeter.studies.library.moe_306.equations import (
    Equations,
    Traffic,
    at_acceptance,
    equations,
    evaluate,
    nothing_accepted,
    step_ms,
    traffic,
)
from specmeter.studies.library.moe_306.lines import (
    DENSE,
    MOE,
    SMALL,
    at,
    draft_rate,
    label,
    named,
    other_format,
    speculative,
)
from specmeter.studies.study import ArmResult, Finding, StudyData
from specmeter.studies.telling import Found, by_values, quoted

LOW_ACCEPTANCE = 0.04
"""The paper: all acceptance rates are below this."""

PREMISE = "as the paper itself has it: its cost grows with the tokens verified, if sub-linearly (2.2, 4.4)"
"""What turns a bound that rests on an assumption into a contradiction: the document makes that very assumption."""

DRAFTS_PAID = "drafts are paid for, at the draft's rate by itself and gamma tokens in every step"
"""What the second bound rests on beside the premise."""

MARGIN = 0.02
"""An equation that is off by less than this is right."""

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
        f"Were nothing accepted, the measured steps would decode at {min(z.point for _, z in zeros):.2f} to "
        f"{best[1].point:.2f} of plain speed (best: {named(best[0])}, {quoted(best[1], unit='x')}): a step takes "
        f"as long as {1 / best[1].point:.2f} plain tokens or more. At 4 % acceptance they would reach at most "
        f"{quoted(most, unit='x')}."
    )
    return ruling, found


def by_bounds(data: StudyData, lines: Sequence[ArmResult]) -> Found:
    """Without a speedup that can be believed: which bound the audit finds the claimed ones beyond."""
    claimed = [(line, row) for line in lines if line.claimed_speedup and (row := evaluate(data, line)) is not None]
    if not claimed:
        return "cannot tell", "No speedup of an MoE target over its baseline that can be believed, with tau, is there."
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
        f"{broken} of {len(claimed)} printed speedups are above what their own acceptance permits if a verification "
        f"takes no less time than one plain token, {PREMISE}. "
        + (f"{unpaid} more are above it once {DRAFTS_PAID}. " if unpaid else "")
        + f"{named(line)}: {line.claimed_speedup:.2f}x is claimed at {100 * _share(line):.2f} % accepted, which "
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
            f"Eq. 2 over the measured speedup is gamma / tau, tokens drafted over tokens emitted per step: "
            f"{min(map(_excess, rows)):.2f} to {_excess(row):.2f}, and off by more than {MARGIN:.0%} with the whole "
            f"interval in {len(off)} of {len(rows)} configurations. {named(row.line)}: {_value(row):.2f}x by Eq. 2, "
            f"{quoted(row.line.speedup, unit='x')} measured"
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
        ruling, found = "cannot tell", "No configuration with a speedup, an acceptance and a draft length."
    return ruling, found


def moe_tax(data: StudyData) -> Found:
    """All parameters, active or not, are read for every token."""
    rows = [row for row in traffic(data) if not row.line.speculates]
    mixtures = [row for row in rows if row.model.experts and row.whole is not None and row.line.target in MOE]
    dense = [row.least for row in rows if not row.model.experts and row.least is not None]
    reached = max(dense, key=lambda found: found.point, default=None)
    limit = data.bandwidth_bytes_per_s
    if not mixtures:
        ruling, found = "cannot tell", "No decode rate of an MoE target with the size of its file."
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
        text += f". The {share:.0%} of the file that one token reads make {_gb(row.least)}"
        if reached is not None:
            share = row.least.point / reached.point
            text += f", {share:.0%} of what dense models reach"
            text += ": reading weights is not all that takes time" if share < NEAR else ""
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
                "The time of a verification needs a believable rate, a measured tau and the draft's own rate, at "
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
            + ". Taken as refuted where the whole interval of an MoE target lies above 2."
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


def _all_or_any(*, supported: Sequence[bool], contradicted: Sequence[bool]) -> Finding:
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
