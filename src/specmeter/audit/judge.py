"""The judge: a claim in, a ruling out. Pure.

Every bound for which the claim has data is tried, with each printed number taken where it favours the claim.

    impossible    breaks arithmetic or counting, whatever the machine
    implausible   breaks a bound that rests on named assumptions; the ruling says how far they would have to be wrong
    possible      a bound that could have been broken was not, which does not mean true
    cannot tell   something is missing, and the ruling says what; or noise or a mean that is said to be one explains it

Noise. Two timings of one configuration differ, and a baseline is a timing too. A speedup that exceeds a bound by less
than the noise is not ruled, and a speedup within the noise of 1 is not a gain that would need an explanation.
`specmeter.audit.noise` finds what it is for a whole table. A row that drafted nothing compares plain decoding with
itself: its speedup is noise, and never more than `cannot tell`.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from specmeter.audit.bound import BoundOutcome, number
from specmeter.audit.claim import VERDICTS, Claim, Ruling, Verdict
from specmeter.audit.counters import check_conservation, check_failed_forwards, check_window, contradictions, remarks
from specmeter.audit.laws import STRENGTH
from specmeter.audit.methods import may_be_tree
from specmeter.audit.noise import USUAL, of_row
from specmeter.audit.speedup import (
    acceptance_range,
    check_cost,
    check_drafting_time,
    check_ratio,
    check_share,
    check_tau,
    speedup_range,
)
from specmeter.audit.traffic import check_bandwidth

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING_DRAFTED = "nothing-drafted"
"""Decides about rows without drafts where no bound does."""


def judge(claim: Claim, *, noise: float = USUAL) -> Ruling:
    """What is to be said about a claim; never raises for what a claim contains. `noise` is a share.

    A number that can be read in two ways is read in both; where the verdict depends on it, nothing is ruled.
    """
    if claim.problem is not None:
        return Ruling(claim=claim, verdict="cannot tell", bound="unreadable", arithmetic=claim.problem)
    noise = of_row(claim, noise)
    readings = [(words, _rule(read, noise)) for words, read in _readings(claim)]
    if len(readings) == 1:
        return readings[0][1]
    # A reading that contradicts its own row is none, as long as another does not.
    sound = [
        (words, ruling)
        for words, ruling in readings
        if ruling.verdict != "impossible" and "tau-not-its-acceptance" not in (ruling.bound, *ruling.also_broken)
    ] or readings
    rulings = [ruling for _, ruling in sound]
    if len({ruling.broken for ruling in rulings}) == 1 and (
        rulings[0].broken or len({ruling.verdict for ruling in rulings}) == 1
    ):
        mildest = max(rulings, key=lambda ruling: VERDICTS.index(ruling.verdict))
        return mildest.model_copy(update={"claim": claim})
    arithmetic = "; ".join(f"{words}: {ruling.verdict}" for words, ruling in sound)
    lines = [f"{words}: {ruling.arithmetic}" for words, ruling in sound]
    return Ruling(
        claim=claim,
        verdict="cannot tell",
        bound="unit",
        arithmetic=f"the printed numbers can be read in several ways ({arithmetic})",
        contradictions=rulings[0].contradictions,
        others=(*lines, *rulings[0].others),
    )


def _readings(claim: Claim) -> Iterator[tuple[str, Claim]]:
    """(words, claim) for everything that its numbers may mean; the claim itself first."""
    choices: list[list[tuple[str, dict[str, float], dict[str, float]]]] = []
    if "acceptance" in claim.unit_unsaid and claim.acceptance is not None:
        share, half = claim.acceptance, claim.rounding.get("acceptance", 0.0)
        as_percent = {"acceptance": share / 100}, {"acceptance": half / 100}
        choices.append(
            [
                (f"acceptance of {number(100 * share)} %", {"acceptance": share}, {}),
                (f"of {number(share)} %", *as_percent),
            ]
        )
    if "tau" in claim.unit_unsaid and claim.tau is not None:
        choices.append(
            [
                (f"tau = {number(claim.tau)} with the target's own token", {"tau": claim.tau}, {}),
                (f"{number(claim.tau + 1)} with it", {"tau": claim.tau + 1}, {}),
            ]
        )
    with_own = _without_own(claim)
    if with_own is not None:
        choices.append([(f"{claim.accepted} accepted", {}, {}), with_own])
    for chosen in product(*choices):
        update: dict[str, object] = {}
        rounding = dict(claim.rounding)
        for _, values, halves in chosen:
            update |= values
            rounding |= halves
        words = ", ".join(words for words, _, _ in chosen)
        yield words, claim.model_copy(update={**update, "rounding": rounding}) if chosen else claim


def _without_own(claim: Claim) -> tuple[str, dict[str, float], dict[str, float]] | None:
    """More accepted than drafted may count the target's own token of each step; without it they may be fewer."""
    accepted, drafted, steps = claim.accepted, claim.drafted, claim.steps or claim.target_forwards
    if accepted is None or not drafted or not steps or not drafted < accepted <= drafted + steps or accepted < steps:
        return None
    decoded = claim.decoded_tokens
    if decoded is not None and abs(accepted / decoded - 1) > FIRST_AND_LAST:
        return None
    drafts = accepted - steps
    share = {} if claim.acceptance is None or claim.acceptance < 1 else {"acceptance": drafts / drafted}
    return f"{drafts} of them drafted", {"accepted": drafts, **share}, {}


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
    if doubtful:
        return _ruling(claim, "cannot tell", doubtful[0], outcomes)
    if claim.drafted_nothing and (plain := _plain_against_plain(claim, noise)) is not None:
        verdict, outcome = plain
        return _ruling(claim, verdict, outcome, outcomes)
    held = _deciding(claim, outcomes, noise)
    if held is not None:
        return _ruling(claim, "possible", held, outcomes)
    return _ruling(claim, "cannot tell", _missing(claim, outcomes), outcomes)


def _plain_against_plain(claim: Claim, noise: float) -> tuple[Verdict, BoundOutcome] | None:
    """A speedup without drafts: noise, or two things that are not alike; None where there is no speedup."""
    speedup = speedup_range(claim)
    if speedup is None:
        return None
    line = f"S = {number(speedup.value)}, but nothing was drafted: plain decoding against itself"
    if speedup.low <= 1 + noise and speedup.high >= 1 / (1 + noise):
        return "possible", BoundOutcome(NOTHING_DRAFTED, "holds", f"{line}, within a noise of {noise:.1%}")
    return "cannot tell", BoundOutcome(
        NOTHING_DRAFTED, "undecided", f"{line}, further apart than a noise of {noise:.1%}"
    )


def _outcomes(claim: Claim, noise: float) -> Iterator[BoundOutcome]:
    if claim.synthetic:
        yield BoundOutcome(
            "synthetic-on", "broken", "acceptance was decided by dice: a cost probe, not the speedup of any model"
        )
    for outcome in (
        check_failed_forwards(claim),
        check_ratio(claim),
        check_share(claim),
        check_tau(claim, noise),
        check_drafting_time(claim, noise),
        check_cost(claim, noise),
        check_window(claim),
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


def _missing(claim: Claim, outcomes: list[BoundOutcome]) -> BoundOutcome:
    """What would have to be known to say more, as the reason for saying nothing."""
    memory = [outcome for outcome in outcomes if outcome.bound == "bandwidth-bound" and outcome.result == "undecided"]
    if claim.drafted_nothing or not (claim.speculates or speedup_range(claim)):
        if claim.decode_rate is None and claim.token_interval_ms is None:
            return BoundOutcome("bandwidth-bound", "undecided", "no decode rate")
        return memory[0] if memory else BoundOutcome("bandwidth-bound", "undecided", "nothing to compare the rate with")
    tau = [outcome for outcome in outcomes if outcome.bound == "speedup-above-tau"]
    if tau:
        line = tau[0].line
        if tau[0].result == "weak":
            tree = claim.acceptance is not None and may_be_tree(claim)
            lacking = "its acceptance may be a share of a tree's nodes" if tree else "the acceptance is missing"
            line += f": gamma alone permits nearly anything, {lacking}"
        return BoundOutcome("speedup-above-tau", "undecided", line)
    lacking = ["no speedup or baseline rate"]
    if acceptance_range(claim) is None and claim.tau is None:
        lacking.append("no acceptance")
    elif claim.gamma is None and claim.tau is None:
        lacking.append("no gamma")
    return BoundOutcome("speedup-above-tau", "undecided", "; ".join(lacking))


def _ruling(claim: Claim, verdict: Verdict, decides: BoundOutcome, outcomes: list[BoundOutcome]) -> Ruling:
    order = ("broken", "doubtful", "holds", "undecided", "weak")
    rest = sorted(
        (o for o in outcomes if o is not decides and o.line != decides.line), key=lambda o: order.index(o.result)
    )
    others = [f"{outcome.bound}: {_WORDS[outcome.result]}{outcome.line}{_needs(outcome)}" for outcome in rest]
    also = (outcome.bound for outcome in rest if outcome.result == "broken" and outcome.bound != decides.bound)
    return Ruling(
        claim=claim,
        verdict=verdict,
        bound=decides.bound,
        arithmetic=decides.line,
        rests_on=decides.rests_on,
        also_broken=tuple(dict.fromkeys(also)),
        contradictions=tuple(line for line in contradictions(claim) if line != decides.line),
        others=(*others, *remarks(claim)),
    )


def _needs(outcome: BoundOutcome) -> str:
    return f"; needs {', or '.join(item.needs for item in outcome.rests_on)}" if outcome.rests_on else ""


_WORDS = {"broken": "broken, ", "doubtful": "in doubt, ", "holds": "", "undecided": "open, ", "weak": ""}
