"""moe-306: rows of the paper's Tables 2 to 6 and Figures 1 to 5, and of its equations and section 5.2 done right.

What is drawn of a false speedup is what was claimed, marked as such.

moe-306: its two equations and its bandwidth analysis, evaluated from what was measured.

Per step a target forward and the drafts before it take T_step, and tau tokens come out. So, with R a decode rate,

    S = R_sd / R_base = tau T_seq / T_step          (an identity between means)

Eq. 2 of the paper, gamma T_seq / (T_draft + T_verify), has the same denominator and *gamma* in the place of tau: it
counts every drafted token as produced, and the rejected ones with them. Hence

    Eq. 2 = S gamma / tau

needs nothing that was not measured, and S / tau is what the same steps would have gained with everything rejected: the
paper's claim is that this lies above 1. The rest of a step (sampling, restoring state) is within T_step.

Eq. 1, (1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1)), takes a probability alpha per token. What engines print is
accepted / drafted, which lies below it; it is converted (`theory.acceptance`). c is the rate of the target over the
rate of the draft, each by itself.

Memory. The paper multiplies the *whole* file by the token rate and gets 1138 GB/s on a machine of 800 GB/s. One token
of a mixture of experts reads what all tokens share and its own experts; a forward over gamma + 1 tokens reads at least
that, and at most the union of all their experts, which uniform routing overstates (`theory.roofline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specmeter.messages import Message
from specmeter.numbers.estimates import exceeds, product, quotient, scaled
from specmeter.record import Estimate
from specmeter.theory import bounds
from specmeter.theory.acceptance import alpha_from_acceptance_rate
from specmeter.theory.cost import classical_speedup
from specmeter.theory.roofline import expected_union
from specmeter_studies.apple_published import RawLog, raw_logs
from specmeter_studies.library.moe_306.lines import (
    DENSE,
    GAMMAS,
    LARGE,
    MOE,
    SMALL,
    SUITES,
    OtherFormat,
    at,
    baseline_of,
    believable,
    by_length,
    draft_rate,
    label,
    model,
    named,
    other_format,
    overall,
    refuted,
    speculative,
)
from specmeter_studies.study import ArmResult, ModelUsed, StudyCell, StudyData


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
    """For every plain decoding of suites A and C, then every configuration of B and D, whose model sizes are known."""
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
    """One token of the target by itself."""


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


GAMMA_OF_FIGURE_1 = 8


@dataclass(frozen=True)
class Configuration:
    """A configuration as the paper's tables and figures have it."""

    line: ArmResult
    used: ModelUsed | None
    """Its target."""
    drawn: Estimate | float | None
    """Its speedup, or the false one."""

    @property
    def name(self) -> Message | str:
        return named(self.line)

    @property
    def target(self) -> Message | str:
        return label(self.line.target)

    @property
    def draft(self) -> Message | str:
        return label(self.line.draft or self.line.method)

    @property
    def panel(self) -> Message:
        return Message("moe-306.panel", draft=self.draft)

    @property
    def kind(self) -> Message:
        """Of its target, by the file."""
        return _kind(mixture=self.used is not None and bool(self.used.experts))

    @property
    def kind_by_name(self) -> Message:
        return _kind(mixture=self.line.target in MOE)

    @property
    def how(self) -> Message:
        return Message("moe-306.how.drafts" if self.line.speculates else "moe-306.how.alone")

    @property
    def told(self) -> Message:
        """With what is wrong with a false speedup."""
        return Message("moe-306.told", name=self.name, false=self._false)

    @property
    def told_with_total(self) -> Message:
        total = (self.used.parameters if self.used else None) or 0
        return Message("moe-306.told.total", name=self.name, total=total / 1e9, false=self._false)

    @property
    def _false(self) -> Message | str:
        if self.line.speedup is not None or self.drawn is None:
            return ""
        return Message("moe-306.told.false", why=self.line.why or "")

    @property
    def series_by_length(self) -> Message:
        line = self.line
        if not line.speculates:
            return self.how
        return Message("moe-306.draft_gamma", draft=label(line.draft or ""), gamma=line.gamma)

    @property
    def speedup(self) -> StudyCell:
        """Struck out where it is false; one that is only implausible is as it is."""
        if self.line.speedup is not None or self.line.claimed_speedup is not None:
            return self.line.speedup_cell
        return StudyCell(value=self.drawn, text="-", struck=self.drawn is not None)

    @property
    def active(self) -> StudyCell:
        return _billions(self.used.active_parameters if self.used else None)

    @property
    def total(self) -> StudyCell:
        return _billions(self.used.parameters if self.used else None)


def _kind(*, mixture: bool) -> Message:
    return Message("moe-306.kind.mixture" if mixture else "moe-306.kind.dense")


def _made(data: StudyData, line: ArmResult) -> Configuration:
    drawn = refuted(data, line) if line.speedup is None else line.speedup
    return Configuration(line, model(data, line.target), drawn)


def models(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 2."""
    drafted = {line.draft for line in speculative(data, "B", "D", "E", "F")}
    targets = {line.target for line in overall(data) if line.speculates}
    for used in data.models:
        kind = f"{'moe' if used.experts else 'dense'}_{'target' if used.name in targets else 'baseline'}"
        yield {
            "used": used,
            "active": _billions(used.active_parameters),
            "total": _billions(used.parameters),
            "size": _gigabytes(used.size_bytes),
            "per_token": _gigabytes(used.bytes_per_token),
            "role": Message(f"moe-306.role.{'draft' if used.name in drafted else kind}"),
        }


def suites(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 3."""
    counts: dict[str, int] = {}
    for line in overall(data):
        counts[line.suite] = counts.get(line.suite, 0) + line.requests
    for name in sorted(counts):
        yield {"name": name, "what": SUITES.get(name, ""), "requests": counts[name]}
    if counts:
        yield {"name": Message("moe-306.total"), "what": "", "requests": sum(counts.values())}


def baselines(data: StudyData) -> list[Configuration]:
    """Table 4."""
    return [_made(data, line) for line in overall(data, "A", "C", "E") if not line.speculates]


def drafting(data: StudyData) -> list[Configuration]:
    """Table 5."""
    return [_made(data, line) for line in (*speculative(data), *speculative(data, "E"))]


def drafts(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 6: the faster draft is named where the two intervals do not overlap."""
    for target in MOE:
        for gamma in GAMMAS:
            small, large = at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)
            if small is None or large is None:
                continue
            faster = Message("moe-306.faster.none")
            if small.speedup is None or large.speedup is None:
                faster = Message("moe-306.faster.invalid")
            elif exceeds(small.speedup, large.speedup):
                faster = label(SMALL)
            elif exceeds(large.speedup, small.speedup):
                faster = label(LARGE)
            name = Message("moe-306.of_gamma", target=label(target), gamma=gamma)
            yield {"name": name, "small": _made(data, small), "large": _made(data, large), "faster": faster}


def evaluated(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Eq. 1 and 2 of all configurations; Eq. 2 is false where its speedup is."""
    for row in equations(data):
        claimed = StudyCell(value=row.claimed, text="-", struck=row.line.verdict == "invalid")
        yield {"row": row, "own": _made(data, row.line), "claimed": claimed, "rejected": max(0.0, row.rejected)}


def formats(data: StudyData) -> dict[str, Message]:
    """What to mind of tau, and of drafts that were measured by themselves in another number format."""
    found = equations(data)
    drafts = {(label(row.line.draft or ""), row.format.told): None for row in found if row.format is not None}
    each = [Message("moe-306.formats.of", draft=draft, format=it) for draft, it in drafts]
    tau = "" if all(row.tau_measured for row in found) else Message("moe-306.formats.tau")
    told = Message("moe-306.formats.drafts", each=each) if each else ""
    return {"formats": Message("moe-306.formats", drafts=told, tau=tau)}


def read(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Section 5.2: traffic by all bytes, which is wrong of a mixture, as the table says, and by those that are read."""
    peak = data.bandwidth_bytes_per_s
    for row in traffic(data):
        whole = None if row.whole is None else scaled(row.whole, 1e-9, unit="GB/s")
        yield {
            "row": row,
            "name": named(row.line),
            "file": _gigabytes(row.model.size_bytes),
            "whole": StudyCell(value=whole, digits=1, text="-", struck=row.line.verdict == "invalid"),
            "per_token": _gigabytes(row.model.bytes_per_token),
            "per_forward": _gigabytes(row.bytes_most),
            "share": None if row.least is None or not peak else scaled(row.least, 100 / peak, unit="%"),
        }


def limit(data: StudyData) -> dict[str, Message]:
    """The machine's bandwidth."""
    peak = data.bandwidth_bytes_per_s
    return {"limit": Message("moe-306.limit.unknown") if peak is None else Message("moe-306.limit", peak=peak / 1e9)}


def rounds_of(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Section 5.2's reckoning of rounds; none where requests were given different limits."""
    count = tokens_generated(data)
    for row in rounds(data, count) if count else ():
        yield {"row": row, "name": named(row.line), "paper_ms": StudyCell(value=row.paper_ms, digits=1)}


def tokens(data: StudyData) -> dict[str, int | None]:
    """Tokens of a request."""
    return {"tokens": tokens_generated(data)}


def logs(data: StudyData) -> Sequence[RawLog]:
    """Root cause of the document's numbers, by counting in logs of the same author."""
    return raw_logs() if data.origin == "published" else ()


# --- figures ---------------------------------------------------------------------------------------------------------


def by_parameters(data: StudyData) -> list[Configuration]:
    """Figure 1."""
    lines = [at(data, target, SMALL, GAMMA_OF_FIGURE_1) for target in (*DENSE, *MOE)]
    made = [_made(data, line) for line in lines if line is not None]
    return [it for it in made if it.used is not None and it.used.active_parameters]


def plain_and_drafted(data: StudyData) -> Iterator[Configuration]:
    """Figure 3."""
    for target in (*MOE, "dense_0.8b", "dense_2b", *DENSE):
        plain = [line for line in overall(data, "A", "C") if line.target == target and not line.speculates]
        drafted = [at(data, target, draft, gamma) for draft in (SMALL, LARGE) for gamma in GAMMAS]
        for line in (*plain, *drafted):
            if line is not None and line.decode_rate is not None:
                yield _made(data, line)


def of_two_suites(data: StudyData) -> list[Configuration]:
    """Figures 2 and 4."""
    return [_made(data, line) for line in speculative(data) if line.gamma is not None]


def lengths(data: StudyData) -> list[Configuration]:
    """Figure 5, left."""
    return [_made(data, line) for line in by_length(data)]


def gains_by_length(data: StudyData) -> list[Configuration]:
    """Figure 5, right: where the same length has a baseline."""
    found = by_length(data)
    return [_made(data, line) for line in found if line.speculates and baseline_of(data, line) is not None]


# --- cells -----------------------------------------------------------------------------------------------------------


def _gigabytes(value: float | None) -> StudyCell:
    """Small models with more digits."""
    digits = 2 if value is None or value >= 1e9 else 4
    return StudyCell(value=None if value is None else value / 1e9, digits=digits, text="-")


def _billions(value: float | None) -> StudyCell:
    """In 1e9; small models with more digits."""
    digits = 1 if value is None or value >= 1e9 / 2 else 4
    return StudyCell(value=None if value is None else value / 1e9, digits=digits, text="-")
