"""The judge of audits: a claim in, a ruling out.

Every bound (`BOUNDS`) for which the claim has data is tried, with each printed number taken where it favours the claim.

    impossible    breaks arithmetic or counting, whatever the machine
    implausible   breaks a bound that rests on named assumptions; the ruling says how far they would have to be wrong
    possible      a bound that could have been broken was not, which does not mean true
    cannot tell   something is missing, and the ruling says what; or noise or a mean that is said to be one explains it

*Noise.* A speedup that exceeds a bound by less than the noise is not ruled, and a speedup within the noise of 1 is not
a gain that would need an explanation. `specmeter.audit.across` finds the noise of a whole table. A row that drafted
nothing compares decoding without speculation with itself: its speedup is noise, and never more than `cannot tell`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.audit import counters, speedup
from specmeter.audit.across import USUAL, noise_of_row
from specmeter.audit.claim import AuditVerdict, BoundOutcome, Claim, Ruling, may_be_tree, needed
from specmeter.audit.equations import Equation, equations_of
from specmeter.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specmeter.messages import Value


# --- the bounds -------------------------------------------------------------------------------------------------------


BOUNDS: dict[str, tuple[str, ...]] = {
    "synthetic-on": (),
    "target-decode-failed": (),
    "conservation": ("one-request", "last-draft", "one-method", "pooled"),
    "speedup-not-its-rates": ("one-window", "pooled", "baseline"),
    "window-mismatch": ("one-request", "one-window", "pooled"),
    "tau-not-its-acceptance": ("acceptance", "pooled"),
    "speedup-above-tau": ("forward", "pooled", "acceptance", "one-method", "same-load", "baseline"),
    "draft-time-bound": ("draft-rate",),
    "speedup-above-cost-bound": (
        *("forward", "pooled", "acceptance", "full-length", "in-turn", "draft-rate", "one-method", "same-load"),
        "baseline",
    ),
    "bandwidth-bound": ("bandwidth", "weights"),
}
"""Name -> names of the assumptions that it may rest on (messages `assumption.NAME`); none: arithmetic. The strongest
first: what needs the fewest assumptions decides."""

STRENGTH = tuple(BOUNDS)
ASSUMPTIONS = tuple(dict.fromkeys(name for assumed in BOUNDS.values() for name in assumed))


# --- the ruling -------------------------------------------------------------------------------------------------------

NOTHING_DRAFTED = "nothing-drafted"
"""Decides about rows without drafts where no bound does."""


def rule_claim(claim: Claim, *, noise: float = USUAL) -> Ruling:
    """What is to be said about a claim; never raises for what a claim contains. `noise` is a share.

    If it is refused, its other likely readings are ruled too, and the weakest ruling wins, with a note: a row is only
    refused if every reading of it is, and `impossible` only if it is impossible in all of them.
    """
    if claim.problem is not None:
        return Ruling(claim=claim, verdict="cannot tell", bound="unreadable", arithmetic=claim.problem)
    first = weakest = _rule(claim, noise_of_row(claim, noise))
    for rival in (*_without_own(claim), *claim.rivals) if _weight(first) else ():
        rulings = [_rule(it, noise_of_row(it, noise)) for it in rival]
        worst = max(rulings, key=_weight)
        if _weight(worst) < _weight(weakest):
            alike = next((it for it in rulings if it.claim.row == claim.row), worst)
            weakest = alike.model_copy(update={"claim": _noted(claim, alike.claim, first)})
        if not _weight(weakest):
            break
    return weakest


def _weight(ruling: Ruling) -> int:
    """How much a ruling refuses: 0 nothing, 1 numbers that contradict each other, 2 implausible, 3 impossible."""
    return {"impossible": 3, "implausible": 2}.get(ruling.verdict, 1 if ruling.contradictions else 0)


def _noted(claim: Claim, rival: Claim, refused: Ruling) -> Claim:
    """The rival with a note on what it reads otherwise, and why."""
    names = [name for name in _READ if getattr(rival, name) != getattr(claim, name)]
    how: Sequence[Message] = [Message("audit.read_as", how=name, found=getattr(rival, name)) for name in names]
    why = refused.arithmetic if refused.broken else refused.contradictions[0]
    note = Message("audit.read_otherwise", how=how, refused=why)
    return rival.model_copy(update={"notes": (*rival.notes, note), "row": claim.row, "columns": claim.columns})


_READ = (
    *("speedup", "speedup_of", "decode_rate", "baseline_rate", "token_ms", "predicted_ms", "wall_ms", "step_ms"),
    *("acceptance", "acceptance_of", "tau", "gamma", "drafted", "accepted", "steps", "predicted_n", "positions"),
)
"""Fields that are named if another reading of them wins."""


def _without_own(claim: Claim) -> tuple[tuple[Claim, ...], ...]:
    """More accepted than drafted may count the target's own token of each step; without it they may be fewer."""
    accepted, drafted, steps = claim.accepted, claim.drafted, claim.steps or claim.target_forwards
    if accepted is None or not drafted or not steps or not drafted < accepted <= drafted + steps or accepted < steps:
        return ()
    decoded = claim.decoded_tokens
    if decoded is not None and abs(accepted / decoded - 1) > FIRST_AND_LAST:
        return ()
    drafts = accepted - steps
    share = {} if claim.acceptance is None or claim.acceptance < 1 else {"acceptance": drafts / drafted}
    return ((claim.model_copy(update={"accepted": drafts, **share}),),)


FIRST_AND_LAST = 0.05
"""By which counts of a row that include the target's own tokens may miss all that it decoded."""


def _rule(claim: Claim, noise: float) -> Ruling:
    equations = equations_of(claim)
    outcomes = sorted(_outcomes(claim, equations, noise), key=lambda outcome: STRENGTH.index(outcome.bound))
    against_itself = list(counters.contradictions(claim, equations))
    verdict, decides = _decided(claim, outcomes, against_itself, noise)
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
        contradictions=tuple(it.line for it in against_itself),
        others=(*others, *counters.remarks(claim)),
    )


def _decided(
    claim: Claim, outcomes: Sequence[BoundOutcome], against_itself: Sequence[BoundOutcome], noise: float
) -> tuple[AuditVerdict, BoundOutcome]:
    if impossible := [it for it in outcomes if it.impossible]:
        return "impossible", impossible[0]
    if broken := [it for it in outcomes if it.result == "broken"]:
        return "implausible", broken[0]
    if doubtful := [it for it in outcomes if it.result == "doubtful"]:
        return ("implausible" if against_itself else "cannot tell"), [*against_itself, *doubtful][0]
    if claim.drafted_nothing and (plain := _plain_against_plain(claim, noise)) is not None:
        return plain
    if (held := _deciding(claim, outcomes, noise)) is not None:
        return "possible", held
    if against_itself:
        return "implausible", against_itself[0]
    return "cannot tell", _what_is_missing(claim, outcomes)


def _plain_against_plain(claim: Claim, noise: float) -> tuple[AuditVerdict, BoundOutcome] | None:
    """A speedup without drafts: noise, or two things that are not alike; None where there is no speedup."""
    gain = speedup.speedup_range(claim)
    if gain is None:
        return None
    found = {"speedup": gain.value, "noise": noise}
    if gain.low <= 1 + noise and gain.high >= 1 / (1 + noise):
        return "possible", BoundOutcome(NOTHING_DRAFTED, "holds", Message("audit.plain_alike", **found))
    return "cannot tell", _undecided(NOTHING_DRAFTED, "audit.plain_unlike", **found)


def _outcomes(claim: Claim, found: Sequence[Equation], noise: float) -> Iterator[BoundOutcome]:
    if claim.synthetic and not claim.is_baseline:
        yield BoundOutcome("synthetic-on", "broken", Message("audit.synthetic"))
    outcomes = (
        *(counters.check_failed_forwards(claim), speedup.check_ratio(claim, found), speedup.check_share(claim)),
        *(check(claim, noise) for check in (speedup.check_tau, speedup.check_drafting_time, speedup.check_cost)),
    )
    yield from (outcome for outcome in outcomes if outcome is not None)
    yield from counters.check_equations(claim, found)
    yield from counters.check_conservation(claim)
    yield from counters.check_bandwidth(claim, noise)


def _deciding(claim: Claim, outcomes: Sequence[BoundOutcome], noise: float) -> BoundOutcome | None:
    """The outcome that makes a claim possible: for a claimed gain, one that is about gains."""
    gain = speedup.speedup_range(claim)
    gains = gain is not None and gain.low > 1 + noise and not claim.is_baseline
    held = [it for it in outcomes if it.result == "holds" and (not gains or it.bound in _RELEVANCE[2:])]
    return max(held, key=lambda outcome: _RELEVANCE.index(outcome.bound), default=None)


_RELEVANCE = ("conservation", "bandwidth-bound", "speedup-above-tau", "speedup-above-cost-bound")
"""Of bounds that hold: the sharpest last. The last two are about gains."""


def _what_is_missing(claim: Claim, outcomes: Sequence[BoundOutcome]) -> BoundOutcome:
    """What would have to be known to say more, as the reason for saying nothing."""
    if claim.drafted_nothing or not (claim.speculates or speedup.speedup_range(claim)):
        if claim.decode_rate is None and claim.token_interval_ms is None:
            return _undecided("bandwidth-bound", "audit.no_decode_rate")
        memory = (it for it in outcomes if it.bound == "bandwidth-bound" and it.result == "undecided")
        return next(memory, _undecided("bandwidth-bound", "audit.nothing_to_compare"))
    of_tau = next((it for it in outcomes if it.bound == "speedup-above-tau"), None)
    if of_tau is not None and of_tau.result == "weak":
        tree = claim.acceptance is not None and may_be_tree(claim)
        code = "audit.gamma_alone_of_tree" if tree else "audit.gamma_alone"
        return _undecided("speedup-above-tau", code, line=of_tau.line)
    if of_tau is not None:
        return BoundOutcome("speedup-above-tau", "undecided", of_tau.line)
    if speedup.acceptance_range(claim) is None and claim.tau is None:
        return _undecided("speedup-above-tau", "audit.no_speedup_no_acceptance")
    if claim.gamma is None and claim.tau is None:
        return _undecided("speedup-above-tau", "audit.no_speedup_no_gamma")
    if (limit := speedup.most_tau(claim)) is not None:
        return _undecided("speedup-above-tau", "audit.no_speedup_yet", tau=limit.value)
    return _undecided("speedup-above-tau", "audit.no_speedup")


def _undecided(bound: str, code: str, **values: Value) -> BoundOutcome:
    return BoundOutcome(bound, "undecided", Message(code, **values))


def in_words(verdict: AuditVerdict) -> Message:
    """What a verdict is called."""
    return Message(f"audit.verdict.{verdict}")
