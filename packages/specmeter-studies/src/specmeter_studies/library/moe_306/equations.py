"""moe-306: its two equations and its bandwidth analysis, evaluated from what was measured.

Per step a target forward and the drafts before it take T_step, and tau tokens come out. So, with R a decode rate,

    S = R_sd / R_base = tau T_seq / T_step          (an identity between means)

Eq. 2 of the paper, gamma T_seq / (T_draft + T_verify), has the same denominator and *gamma* in the place of tau: it
counts every drafted token as produced, and the rejected ones with them. Hence

    Eq. 2 = S gamma / tau

needs nothing that was not measured, and S / tau is what the same steps would have gained with everything rejected: the
paper's claim is that this lies above 1. The rest of a step (sampling, restoring state) is within T_step.

Eq. 1, (1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1)), takes a probability alpha per token. What engines print is
accepted / drafted, which lies below it; it is converted (`theory.acceptance`). c is the rate of the target over the
rate of the draft, each on its own.

Memory. The paper multiplies the *whole* file by the token rate and gets 1138 GB/s on a machine of 800 GB/s. One token
of a mixture of experts reads what all tokens share and its own experts; a forward over gamma + 1 tokens reads at least
that, and at most the union of all their experts, which uniform routing overstates (`theory.roofline`).
"""

from __future__ import annotations

from dataclasses import dataclass

from specmeter.numbers.estimates import product, quotient, scaled
from specmeter.record import Estimate
from specmeter.theory import bounds
from specmeter.theory.acceptance import alpha_from_acceptance_rate
from specmeter.theory.cost import classical_speedup
from specmeter.theory.roofline import expected_union
from specmeter_studies.library.moe_306.lines import (
    OtherFormat,
    baseline_of,
    believable,
    draft_rate,
    model,
    other_format,
    overall,
    speculative,
)
from specmeter_studies.study import ArmResult, ModelUsed, StudyData


@dataclass(frozen=True)
class Equations:
    """Both equations for one configuration; None where something that they need is missing."""

    line: ArmResult
    tau: float
    """Tokens per target forward: measured, or the most that the acceptance permits."""
    tau_measured: bool
    alpha: float
    """Of the i.i.d. model, from accepted / drafted."""
    draft_cost: float | None
    """c."""
    classical: float | None
    """Eq. 1."""
    permitted: float | None
    """tau / (1 + gamma c): nothing faster is possible at this acceptance, where a forward over many tokens is not
    cheaper than over one."""
    permitted_at_most: float | None
    """The same with a draft as fast as its own number format permits, where it was measured in another one."""
    format: OtherFormat | None
    """That other format."""
    claimed: Estimate | float | None
    """Eq. 2; without an interval where the speedup is one that was only claimed."""
    nothing_accepted: Estimate | None
    """S / tau: the speedup of the same steps if every draft had been rejected."""

    @property
    def rejected(self) -> float:
        """Tokens per step that Eq. 2 counts as produced and that were not: gamma - (tau - 1)."""
        return (self.line.gamma or 0) + 1 - self.tau


def equations(data: StudyData) -> tuple[Equations, ...]:
    """For every configuration of suites B, D and E that drafts, with an acceptance."""
    lines = (*speculative(data), *speculative(data, "E"))
    return tuple(found for line in lines if (found := evaluate(data, line)) is not None)


def evaluate(data: StudyData, line: ArmResult) -> Equations | None:
    """Both equations for one line; None without an acceptance and a draft length."""
    gamma, rate = line.gamma, line.acceptance
    if not gamma or rate is None:
        return None
    share = min(1.0, max(0.0, rate.point))
    tau = line.tau.point if line.tau is not None else bounds.tau_from_acceptance(share, gamma)
    alpha = alpha_from_acceptance_rate(share, gamma)
    base, draft = baseline_of(data, line), draft_rate(data, line.draft)
    cost = None
    if base is not None and base.decode_rate is not None and draft is not None:
        cost = base.decode_rate.point / draft.point
    other = other_format(data, line.draft)
    least = None if cost is None else cost / (other.at_most if other else 1.0)
    return Equations(
        line=line,
        tau=tau,
        tau_measured=line.tau is not None,
        alpha=alpha,
        draft_cost=cost,
        classical=None if cost is None else classical_speedup(alpha, gamma, cost),
        permitted=None if cost is None else bounds.cost_bound(max(1.0, tau), gamma, cost),
        permitted_at_most=None if least is None else bounds.cost_bound(max(1.0, tau), gamma, least),
        format=other,
        claimed=_eq2(line, gamma, tau),
        nothing_accepted=nothing_accepted(line),
    )


def nothing_accepted(line: ArmResult) -> Estimate | None:
    """S / tau = T_seq / T_step; None without a speedup that can be believed and a measured tau."""
    if not believable([line]) or line.speedup is None or line.tau is None:
        return None
    return quotient(line.speedup, line.tau, unit="x", method="speedup / tau: time of a plain token over time of a step")


def at_acceptance(line: ArmResult, acceptance: float) -> Estimate | None:
    """The speedup that the measured steps would give at most at another acceptance: (1 + a gamma) S / tau."""
    zero = nothing_accepted(line)
    if zero is None or not line.gamma:
        return None
    return scaled(zero, bounds.tau_from_acceptance(acceptance, line.gamma))


def step_ms(line: ArmResult) -> Estimate | None:
    """Time of a step: tau / rate, drafts and rest included; None unless both were measured and can be believed."""
    if not line.stands or line.tau is None or line.decode_rate is None:
        return None
    return scaled(quotient(line.tau, line.decode_rate, unit="ms", method="tau / decode rate"), 1000)


def _eq2(line: ArmResult, gamma: int, tau: float) -> Estimate | float | None:
    zero = nothing_accepted(line)
    if zero is not None:
        return scaled(zero, gamma).model_copy(update={"method": "gamma x time of a plain token / time of a step"})
    shown = line.speedup.point if line.speedup is not None else line.claimed_speedup
    return None if shown is None else gamma * shown / tau


# --- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What a configuration reads from memory, in bytes and bytes per second."""

    line: ArmResult
    model: ModelUsed
    tau: float
    whole: Estimate | None
    """The paper's reckoning: the whole file for every token."""
    least: Estimate | None
    """Weights of one token for every forward."""
    most: Estimate | None
    """Weights of gamma + 1 tokens under uniform routing, for every forward."""
    bytes_most: float | None
    """Of one forward, of `most`."""


def traffic(data: StudyData) -> tuple[Traffic, ...]:
    """For every decoding without speculation of suites A and C, then every configuration of B and D, whose model sizes
    are known."""
    found: list[Traffic] = []
    for line in (*overall(data, "A", "C"), *speculative(data)):
        used = model(data, line.target)
        if used is None or used.size_bytes is None or line.decode_rate is None:
            continue
        tau, whole = _tau(line), scaled(line.decode_rate, used.size_bytes, unit="B/s")
        one = used.bytes_per_token or (None if used.experts else used.size_bytes)
        positions = 1 if not line.speculates else (line.gamma or 0) + 1
        most = None if one is None else forward_bytes(used, one, positions)
        forwards = scaled(line.decode_rate, 1 / tau, unit="1/s")
        found.append(
            Traffic(
                line=line,
                model=used,
                tau=tau,
                whole=whole,
                least=None if one is None else scaled(forwards, one, unit="B/s"),
                most=None if most is None else scaled(forwards, most, unit="B/s"),
                bytes_most=most,
            )
        )
    return tuple(found)


def forward_bytes(used: ModelUsed, one: float, positions: int) -> float | None:
    """Weights that a forward over `positions` tokens reads at most; `one`: by one token, of which it holds 1/positions.

    One expert in every layer has (file - one token's bytes) / (E - K); None where the experts are not known.
    """
    if not used.experts or positions == 1:
        return one
    if not used.experts_used or used.size_bytes is None or used.experts_used >= used.experts:
        return None
    expert = (used.size_bytes - one) / (used.experts - used.experts_used)
    union = expected_union(float(positions), used.experts, used.experts_used)
    return one + expert * max(0.0, union - used.experts_used)


@dataclass(frozen=True)
class Rounds:
    """How many verification rounds some tokens take, and how long each lasts."""

    line: ArmResult
    tokens: int
    paper_rounds: float
    """tokens / gamma, as if every draft were output."""
    paper_ms: Estimate
    rounds: float
    """tokens / tau."""
    ms: Estimate
    plain_ms: Estimate | None
    """One token of the target on its own."""


def rounds(data: StudyData, tokens: int) -> tuple[Rounds, ...]:
    """Section 5.2's reckoning for every configuration of suite B, beside the one with tau."""
    found: list[Rounds] = []
    for line in speculative(data, "B"):
        if line.decode_rate is None or not line.gamma:
            continue
        base = baseline_of(data, line)
        each = scaled(_inverse(line.decode_rate), 1000, unit="ms")
        tau = _tau(line)
        plain = base.decode_rate if base is not None else None
        found.append(
            Rounds(
                line=line,
                tokens=tokens,
                paper_rounds=tokens / line.gamma,
                paper_ms=scaled(each, line.gamma),
                rounds=tokens / tau,
                ms=scaled(each, tau) if line.tau is None else product(each, line.tau, unit="ms", method="tau / rate"),
                plain_ms=None if plain is None else scaled(_inverse(plain), 1000, unit="ms"),
            )
        )
    return tuple(found)


def tokens_generated(data: StudyData) -> int | None:
    """Tokens that each request was asked for, where all were asked for the same number."""
    asked = {result.max_tokens for result in data.results}
    return asked.pop() if len(asked) == 1 else None


def _tau(line: ArmResult) -> float:
    if not line.speculates:
        return 1.0
    if line.tau is not None:
        return max(1.0, line.tau.point)
    share = line.acceptance.point if line.acceptance is not None else 0.0
    return bounds.tau_from_acceptance(min(1.0, max(0.0, share)), line.gamma or 0)


def _inverse(rate: Estimate) -> Estimate:
    low, high = (None if not value else 1 / value for value in (rate.high, rate.low))
    return rate.model_copy(update={"point": 1 / rate.point, "low": low, "high": high, "unit": "s"})
