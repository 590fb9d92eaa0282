"""The judge of audits: a claim in, a ruling out.

Every bound (`BOUNDS`) for which the claim has data is tried, with each printed number taken where it favours the claim.

    impossible    breaks arithmetic or counting, whatever the machine
    implausible   breaks a bound that rests on named assumptions; the ruling says how far they would have to be wrong
    possible      a bound that could have been broken was not, which does not mean true
    cannot tell   something is missing, and the ruling says what; or noise or a mean that is said to be one explains it

A bound without assumptions is arithmetic or counting: what breaks it is impossible. A bound with assumptions makes a
claim as wrong as the assumption that fails least.

*Noise.* A speedup that exceeds a bound by less than the noise is not ruled, and a speedup within the noise of 1 is not
a gain that would need an explanation. `specmeter.audit.across` finds the noise of a whole table. A row that drafted
nothing compares decoding without speculation with itself: its speedup is noise, and never more than `cannot tell`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from specmeter.audit.across import USUAL, noise_of_row
from specmeter.audit.claim import VERDICTS, AuditVerdict, BoundOutcome, Claim, Ruling, may_be_tree, needed
from specmeter.audit.counters import (
    check_bandwidth,
    check_conservation,
    check_failed_forwards,
    check_interval,
    check_window,
    contradictions,
    remarks,
)
from specmeter.audit.speedup import (
    acceptance_range,
    check_cost,
    check_drafting_time,
    check_ratio,
    check_share,
    check_tau,
    most_tau,
    speedup_range,
)
from specmeter.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# --- the bounds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """One bound."""

    name: str
    """By the names of the checks."""
    forbids: str
    assumes: tuple[str, ...] = ()
    """Names of assumptions; empty: arithmetic."""
    exact_where: str = ""
    """When a bound that has assumptions needs none of them."""


BOUNDS = (
    Bound("synthetic-on", "a speedup measured with simulated acceptance"),
    Bound("target-decode-failed", "a rate, if more than 1% of the target's verifications failed"),
    Bound(
        "conservation",
        "counts that do not add up: more accepted than drafted, more tokens than forward passes can give",
        assumes=("one-request", "last-draft", "one-method", "pooled"),
        exact_where="the row is one run or states its concurrency, and always for counts of draft tokens",
    ),
    Bound(
        "speedup-not-its-rates",
        "a printed speedup that is not the ratio of the row's rates",
        assumes=("one-window", "pooled", "baseline"),
        exact_where="the row is one run, or is off by more than 1.5 times without being a mean",
    ),
    Bound(
        "window-mismatch",
        "a rate that is not the row's tokens over its time",
        assumes=("one-request", "one-window"),
        exact_where="the row is one run",
    ),
    Bound("tau-not-its-acceptance", "tau > 1 + acceptance x gamma, if drafts are chains",
        assumes=("acceptance", "pooled")),
    Bound("speedup-above-tau", "speedup > tau",
        assumes=("forward", "pooled", "acceptance", "one-method", "same-load", "baseline")),
    Bound("draft-time-bound", "drafting alone takes longer than the run", assumes=("draft-rate",)),
    Bound("speedup-above-cost-bound", "speedup > tau / (1 + gamma x draft cost), costs in forward passes of the target",
        assumes=("forward", "pooled", "acceptance", "full-length", "in-turn", "draft-rate", "one-method", "same-load",
                 "baseline")),
    Bound("bandwidth-bound", "weights read faster than the memory's peak", assumes=("bandwidth", "weights")),
)  # fmt: skip
"""The strongest first: what needs the fewest assumptions decides."""

STRENGTH = tuple(bound.name for bound in BOUNDS)


ASSUMPTIONS = {
    "forward": (
        "CPUs with Q8_0 weights: rows that need 0.5 or more are undecided there. "
        "`--cheapest-forward` sets your own measurement"
    ),
    "pooled": "means, which exceed tau by up to 18% (undecided if the heading says mean)",
    "acceptance": "shares of the output, and trees (Medusa, EAGLE)",
    "full-length": "drafting that stops early (`p_min`) or adapts its length",
    "in-turn": "PEARL, AMUSD and other methods that draft in parallel",
    "draft-rate": "draft models measured elsewhere, or drafting several tokens per pass",
    "baseline": "baselines of another program or machine",
    "one-window": "means of rates, and end-to-end speedups next to decode rates",
    "one-request": "servers under load",
    "same-load": "servers whose users come and go",
    "one-method": "two methods combined, if the numbers are of one",
    "last-draft": "adaptive draft lengths that no name mentions",
    "bandwidth": "weights in a cache, or in several memories",
    "weights": "MoE models, which read only the active experts, and skipped layers",
}
"""Name -> where it is known to fail. What bounds take for granted is the message `assumption.NAME`."""


# --- the ruling -------------------------------------------------------------------------------------------------------

NOTHING_DRAFTED = "nothing-drafted"
"""Decides about rows without drafts where no bound does."""


def rule_claim(claim: Claim, *, noise: float = USUAL) -> Ruling:
    """What is to be said about a claim; never raises for what a claim contains. `noise` is a share.

    A number that can be read in two ways is read in both; where the verdict depends on it, nothing is ruled.
    """
    if claim.problem is not None:
        return Ruling(claim=claim, verdict="cannot tell", bound="unreadable", arithmetic=claim.problem)
    noise = noise_of_row(claim, noise)
    readings = [(how, _rule(read, noise)) for how, read in _readings(claim)]
    if len(readings) == 1:
        return readings[0][1]
    # A reading that contradicts its own row is none, as long as another does not.
    sound = [
        (how, ruling)
        for how, ruling in readings
        if ruling.verdict != "impossible"
        and not ruling.contradictions
        and "tau-not-its-acceptance" not in (ruling.bound, *ruling.also_broken)
    ] or readings
    rulings = [ruling for _, ruling in sound]
    if len({ruling.broken for ruling in rulings}) == 1 and (
        rulings[0].broken or len({ruling.verdict for ruling in rulings}) == 1
    ):
        mildest = max(rulings, key=lambda ruling: VERDICTS.index(ruling.verdict))
        return mildest.model_copy(update={"claim": claim})
    verdicts = [Message("audit.read_as", how=how, found=in_words(ruling.verdict)) for how, ruling in sound]
    lines = [Message("audit.read_as", how=how, found=ruling.arithmetic) for how, ruling in sound]
    return Ruling(
        claim=claim,
        verdict="cannot tell",
        bound="unit",
        arithmetic=Message("audit.readings", readings=verdicts),
        contradictions=rulings[0].contradictions,
        others=(*lines, *rulings[0].others),
    )


_Meaning: TypeAlias = tuple[Message, dict[str, float], dict[str, float]]
"""What a number may mean, with the fields of the claim and their rounding then."""


def _readings(claim: Claim) -> Iterator[tuple[Sequence[Message], Claim]]:
    """(how its numbers are read, claim) for everything that they may mean; the claim itself first."""
    choices: list[list[_Meaning]] = []
    if "acceptance" in claim.unit_unsaid and claim.acceptance is not None:
        share, half = claim.acceptance, claim.rounding.get("acceptance", 0.0)
        as_fraction = Message("audit.acceptance_of", percent=100 * share), {"acceptance": share}, dict[str, float]()
        as_percent = (
            Message("audit.acceptance_of", percent=share),
            {"acceptance": share / 100},
            {"acceptance": half / 100},
        )
        choices.append([as_fraction, as_percent])
    if (tau := claim.tau) is not None and "tau" in claim.unit_unsaid:
        included = Message("audit.own_included", tau=tau), {"tau": tau}, dict[str, float]()
        choices.append([included, (Message("audit.own_left_out", tau=tau + 1), {"tau": tau + 1}, {})])
    with_own = _without_own(claim)
    if with_own is not None:
        choices.append([(Message("audit.all_drafts", accepted=claim.accepted), {}, {}), with_own])
    for chosen in product(*choices):
        update: dict[str, object] = {}
        rounding = dict(claim.rounding)
        for _, values, halves in chosen:
            update |= values
            rounding |= halves
        how = [meaning for meaning, _, _ in chosen]
        yield how, claim.model_copy(update={**update, "rounding": rounding}) if chosen else claim


def _without_own(claim: Claim) -> _Meaning | None:
    """More accepted than drafted may count the target's own token of each step; without it they may be fewer."""
    accepted, drafted, steps = claim.accepted, claim.drafted, claim.steps or claim.target_forwards
    if accepted is None or not drafted or not steps or not drafted < accepted <= drafted + steps or accepted < steps:
        return None
    decoded = claim.decoded_tokens
    if decoded is not None and abs(accepted / decoded - 1) > FIRST_AND_LAST:
        return None
    drafts = accepted - steps
    share = {} if claim.acceptance is None or claim.acceptance < 1 else {"acceptance": drafts / drafted}
    return Message("audit.drafts_among", drafts=drafts), {"accepted": drafts, **share}, {}


FIRST_AND_LAST = 0.05
"""By which counts of a row that include the target's own tokens may miss all that it decoded."""


def _rule(claim: Claim, noise: float) -> Ruling:
    outcomes = sorted(_outcomes(claim, noise), key=lambda outcome: STRENGTH.index(outcome.bound))
    impossible = [outcome for outcome in outcomes if outcome.impossible]
    broken = [outcome for outcome in outcomes if outcome.result == "broken"]
    doubtful = [outcome for outcome in outcomes if outcome.result == "doubtful"]
    if impossible:
        return _ruling(claim, "impossible", impossible[0], outcomes)
    if broken:
        return _ruling(claim, "implausible", broken[0], outcomes)
    against_itself = list(contradictions(claim))
    if doubtful:
        verdict: AuditVerdict = "implausible" if against_itself else "cannot tell"
        return _ruling(claim, verdict, [*against_itself, *doubtful][0], outcomes)
    if claim.drafted_nothing and (plain := _plain_against_plain(claim, noise)) is not None:
        verdict, outcome = plain
        return _ruling(claim, verdict, outcome, outcomes)
    held = _deciding(claim, outcomes, noise)
    if held is not None:
        return _ruling(claim, "possible", held, outcomes)
    if against_itself:
        return _ruling(claim, "implausible", against_itself[0], outcomes)
    return _ruling(claim, "cannot tell", _what_is_missing(claim, outcomes), outcomes)


def _plain_against_plain(claim: Claim, noise: float) -> tuple[AuditVerdict, BoundOutcome] | None:
    """A speedup without drafts: noise, or two things that are not alike; None where there is no speedup."""
    speedup = speedup_range(claim)
    if speedup is None:
        return None
    found = {"speedup": speedup.value, "noise": noise}
    if speedup.low <= 1 + noise and speedup.high >= 1 / (1 + noise):
        return "possible", BoundOutcome(NOTHING_DRAFTED, "holds", Message("audit.plain_alike", **found))
    return "cannot tell", BoundOutcome(NOTHING_DRAFTED, "undecided", Message("audit.plain_unlike", **found))


def _outcomes(claim: Claim, noise: float) -> Iterator[BoundOutcome]:
    if claim.synthetic:
        yield BoundOutcome("synthetic-on", "broken", Message("audit.synthetic"))
    for outcome in (
        check_failed_forwards(claim),
        check_ratio(claim),
        check_share(claim),
        check_tau(claim, noise),
        check_drafting_time(claim, noise),
        check_cost(claim, noise),
        check_window(claim),
        check_interval(claim),
    ):
        if outcome is not None:
            yield outcome
    yield from check_conservation(claim)
    yield from check_bandwidth(claim, noise)


def _deciding(claim: Claim, outcomes: list[BoundOutcome], noise: float) -> BoundOutcome | None:
    """The outcome that makes a claim possible: for a claimed gain, one that is about gains."""
    held = [outcome for outcome in outcomes if outcome.result == "holds"]
    speedup = speedup_range(claim)
    if speedup is not None and speedup.low > 1 + noise and not claim.is_baseline:
        held = [outcome for outcome in held if outcome.bound in {"speedup-above-tau", "speedup-above-cost-bound"}]
    return max(held, key=lambda outcome: _RELEVANCE.index(outcome.bound), default=None)


_RELEVANCE = ("conservation", "bandwidth-bound", "speedup-above-tau", "speedup-above-cost-bound")
"""Of bounds that hold: the sharpest last."""


def _what_is_missing(claim: Claim, outcomes: list[BoundOutcome]) -> BoundOutcome:
    """What would have to be known to say more, as the reason for saying nothing."""
    memory = [outcome for outcome in outcomes if outcome.bound == "bandwidth-bound" and outcome.result == "undecided"]
    if claim.drafted_nothing or not (claim.speculates or speedup_range(claim)):
        if claim.decode_rate is None and claim.token_interval_ms is None:
            return BoundOutcome("bandwidth-bound", "undecided", Message("audit.no_decode_rate"))
        nothing = BoundOutcome("bandwidth-bound", "undecided", Message("audit.nothing_to_compare"))
        return memory[0] if memory else nothing
    tau = [outcome for outcome in outcomes if outcome.bound == "speedup-above-tau"]
    if tau:
        line = tau[0].line
        if tau[0].result == "weak":
            tree = claim.acceptance is not None and may_be_tree(claim)
            unread = [it for it in claim.notes if isinstance(it, Message) and it.code == "unread.above_whole"]
            line = Message("audit.gamma_alone_of_tree" if tree else "audit.gamma_alone", line=line)
            if unread and claim.acceptance is None:
                line = Message("audit.gamma_alone_unread", line=tau[0].line, unread=unread[0])
        return BoundOutcome("speedup-above-tau", "undecided", line)
    code = "audit.no_speedup"
    if acceptance_range(claim) is None and claim.tau is None:
        code = "audit.no_speedup_no_acceptance"
    elif claim.gamma is None and claim.tau is None:
        code = "audit.no_speedup_no_gamma"
    elif (limit := most_tau(claim)) is not None:
        return BoundOutcome("speedup-above-tau", "undecided", Message("audit.no_speedup_yet", tau=limit.value))
    return BoundOutcome("speedup-above-tau", "undecided", Message(code))


def _ruling(claim: Claim, verdict: AuditVerdict, decides: BoundOutcome, outcomes: list[BoundOutcome]) -> Ruling:
    order = ("broken", "doubtful", "holds", "undecided", "weak")
    rest = sorted(
        (o for o in outcomes if o is not decides and o.line != decides.line), key=lambda o: order.index(o.result)
    )
    others = [
        Message(f"audit.tried.{it.result}", bound=it.bound, line=it.line, needs=needed(it.rests_on)) for it in rest
    ]
    also = (outcome.bound for outcome in rest if outcome.result == "broken" and outcome.bound != decides.bound)
    return Ruling(
        claim=claim,
        verdict=verdict,
        bound=decides.bound,
        arithmetic=decides.line,
        rests_on=decides.rests_on,
        also_broken=tuple(dict.fromkeys(also)),
        contradictions=tuple(it.line for it in contradictions(claim)),
        others=(*others, *remarks(claim)),
    )


def in_words(verdict: AuditVerdict) -> Message:
    """What a verdict is called."""
    return Message(f"audit.verdict.{verdict}")
