"""The judge: a claim in, a ruling out. Pure.

Every bound for which the claim has data is tried, with each printed number taken where it favours the claim. A claim
is *impossible* when one bound is broken beyond rounding and noise; *possible* when a bound that could have been broken
was not; else *cannot tell*, with what is missing. Possible does not mean true.

Noise. Two timings of one configuration on a quiet machine seldom agree better than a percent, and a baseline is a
timing too. A speedup that exceeds a bound by less than `NOISE` is not called impossible, and a speedup within `NOISE`
of 1 is no gain that would need an explanation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.counters import check_conservation, check_failed_forwards, check_window, remarks
from specmeter.audit.memory import check_bandwidth
from specmeter.audit.outcome import Outcome, is_baseline, speculates
from specmeter.audit.printed import number
from specmeter.audit.speedup import (
    acceptance_range,
    check_cost,
    check_drafting_time,
    check_tau,
    disagreement,
    speedup_range,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOISE = 0.01
"""Relative difference that two timings of the same thing may show."""

STRENGTH = (
    "synthetic-on",
    "target-decode-failed",
    "conservation",
    "speedup-above-tau",
    "draft-time-bound",
    "speedup-above-cost-bound",
    "window-mismatch",
    "bandwidth-bound",
)
"""Bounds and laws, the strongest first: what needs the fewest assumptions decides."""


def judge(claim: Claim, *, noise: float = NOISE) -> Ruling:
    """What is to be said about a claim; never raises for what a claim contains.

    A share whose unit the source does not say is read both ways; where the verdict depends on it, nothing is ruled.
    """
    if claim.problem is not None:
        return Ruling(claim=claim, verdict="cannot tell", bound="unreadable", arithmetic=claim.problem)
    ruling = _rule(claim, noise)
    if "acceptance" in claim.unit_unsaid and claim.acceptance is not None:
        return _with_both_units(claim, ruling, noise)
    return ruling


def _with_both_units(claim: Claim, as_fraction: Ruling, noise: float) -> Ruling:
    percent = {"acceptance": (claim.acceptance or 0) / 100}
    rounding = claim.rounding | {"acceptance": claim.rounding.get("acceptance", 0.0) / 100}
    as_percent = _rule(claim.model_copy(update={**percent, "rounding": rounding}), noise)
    if as_percent.verdict == as_fraction.verdict:
        return as_fraction
    share = number(claim.acceptance or 0)
    arithmetic = (
        f"acceptance {share} may be {number((claim.acceptance or 0) * 100)} % ({as_fraction.verdict}) or {share} % "
        f"({as_percent.verdict}): the unit decides"
    )
    others = (as_fraction.arithmetic, as_percent.arithmetic, *as_fraction.others)
    return Ruling(claim=claim, verdict="cannot tell", bound="unit", arithmetic=arithmetic, others=others)


def _rule(claim: Claim, noise: float) -> Ruling:
    outcomes = sorted(_outcomes(claim, noise), key=lambda outcome: STRENGTH.index(outcome.bound))
    broken = [outcome for outcome in outcomes if outcome.result == "broken"]
    doubtful = [outcome for outcome in outcomes if outcome.result == "doubtful"]
    if broken:
        return _ruling(claim, "impossible", broken[0], outcomes)
    if doubtful:
        return _ruling(claim, "cannot tell", doubtful[0], outcomes)
    held = _deciding(claim, outcomes, noise)
    if held is not None:
        return _ruling(claim, "possible", held, outcomes)
    return _ruling(claim, "cannot tell", _missing(claim, outcomes), outcomes)


def _outcomes(claim: Claim, noise: float) -> Iterator[Outcome]:
    if claim.synthetic:
        yield Outcome(
            "synthetic-on", "broken", "acceptance was decided by dice: a cost probe, not a speedup of any model"
        )
    for outcome in (
        check_failed_forwards(claim),
        check_tau(claim, noise),
        check_drafting_time(claim, noise),
        check_cost(claim, noise),
        check_window(claim),
    ):
        if outcome is not None:
            yield outcome
    yield from check_conservation(claim)
    yield from check_bandwidth(claim, noise)


def _deciding(claim: Claim, outcomes: list[Outcome], noise: float) -> Outcome | None:
    """The outcome that makes a claim possible: for a claimed gain, one that is about gains."""
    held = [outcome for outcome in outcomes if outcome.result == "holds"]
    speedup = speedup_range(claim)
    if speedup is not None and speedup.low > 1 + noise and not is_baseline(claim):
        held = [outcome for outcome in held if outcome.bound in {"speedup-above-tau", "speedup-above-cost-bound"}]
    return max(held, key=lambda outcome: _RELEVANCE.index(outcome.bound), default=None)


_RELEVANCE = ("conservation", "bandwidth-bound", "speedup-above-tau", "speedup-above-cost-bound")
"""Of bounds that hold: the sharpest last."""


def _missing(claim: Claim, outcomes: list[Outcome]) -> Outcome:
    """What would have to be known to say more, as the reason for saying nothing."""
    memory = [outcome for outcome in outcomes if outcome.bound == "bandwidth-bound" and outcome.result == "undecided"]
    if is_baseline(claim) or not (speculates(claim) or speedup_range(claim)):
        if claim.decode_rate is None and claim.token_interval_ms is None:
            return Outcome("bandwidth-bound", "undecided", "no decode rate")
        return memory[0] if memory else Outcome("bandwidth-bound", "undecided", "nothing to hold the rate against")
    tau = [outcome for outcome in outcomes if outcome.bound == "speedup-above-tau"]
    if tau:
        line = tau[0].line
        if tau[0].result == "weak":
            line += ": draft length alone permits nearly anything, the acceptance is missing"
        return Outcome("speedup-above-tau", "undecided", line)
    lacking = ["no speedup or baseline rate"]
    if acceptance_range(claim) is None and claim.tau is None:
        lacking.append("no acceptance")
    elif claim.gamma is None and claim.tau is None:
        lacking.append("no draft length")
    return Outcome("speedup-above-tau", "undecided", "; ".join(lacking))


def _ruling(claim: Claim, verdict: str, decides: Outcome, outcomes: list[Outcome]) -> Ruling:
    order = ("broken", "doubtful", "holds", "undecided", "weak")
    rest = sorted(
        (o for o in outcomes if o is not decides and o.line != decides.line), key=lambda o: order.index(o.result)
    )
    others = [f"{outcome.bound}: {_WORDS[outcome.result]}{outcome.line}" for outcome in rest]
    others += [line for line in (*remarks(claim), disagreement(claim)) if line is not None]
    return Ruling.model_validate(
        {
            "claim": claim,
            "verdict": verdict,
            "bound": decides.bound,
            "arithmetic": decides.line,
            "others": tuple(others),
        }
    )


_WORDS = {"broken": "broken, ", "doubtful": "in doubt, ", "holds": "", "undecided": "open, ", "weak": ""}
