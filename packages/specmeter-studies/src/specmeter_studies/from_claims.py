"""Published rows in the words of studies, with what the audit rules about each.

*Impossible* makes a row invalid: its speedup becomes a claimed one, which is shown struck out and supports nothing.
The speedup of an *implausible* row is a claimed one as well, and supports nothing; it is not struck out, since it may
be true where an assumption fails, which `why` names. *Possible* means that no bound refutes it, which is not the same
as true: such a row has no verdict, and nothing is said against it. Where the audit *cannot tell*, the row has no
verdict either, and `why` says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from specmeter.audit import reading
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import bare, printed, printed_mean
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, PromptResult

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim, Ruling
    from specmeter.record import Standing


class RowNames(TypedDict, total=False):
    """What the study calls otherwise than the published row; what is left out is taken from the claim."""

    config: str
    target: str
    draft: str | None
    method: str
    gamma: int | None
    prompt: str | None
    max_tokens: int | None
    suite: str
    requests: int


def rulings(published: str, *sources: str) -> Iterator[Ruling]:
    """What the audit rules about every claim of a published study, in its order; only of these `sources` where given.

    A source is the claim's own: `moe-306/tables.csv`. Raises `UsageError` for an unknown study.
    """
    ruled = reading.published(published).rulings
    return (ruling for ruling in ruled if not sources or ruling.claim.source in sources)


def tally(published: str, *sources: str) -> Message:
    """How many rows of a published study the audit rules how, in its own words, as `specmeter audit` counts them."""
    return reading.tally(rulings(published, *sources))


def verdict_of(ruling: Ruling) -> tuple[Standing | None, Message | None]:
    """(verdict, why) of a ruled claim."""
    told = Message("study.because", name=ruling.bound, why=ruling.reason)
    match ruling.verdict:
        case "impossible":
            return "invalid", told
        case "implausible":
            return "implausible", told
        case "possible":
            return None, None
        case _:
            return None, Message("study.why.open", bound=ruling.bound, arithmetic=ruling.arithmetic)


def reasons(why: Value) -> Iterator[tuple[str, Value]]:
    """(name of a check or a bound, what it says) of everything that makes a row's verdict worse, in order."""
    if isinstance(why, Message):
        if why.code == "study.because":
            yield str(why.values["name"]), why.values["why"]
        else:
            for value in why.values.values():
                yield from reasons(value)
    elif isinstance(why, Sequence) and not isinstance(why, str):
        for value in why:
            yield from reasons(value)


def reason_of(why: Message | None, name: str) -> Value:
    """What the check or the bound of that name says; None where it says nothing."""
    return dict(reasons(why)).get(name)


def worst_of(rows: Sequence[PromptResult]) -> tuple[Standing | None, Message | None]:
    """(verdict, why) of a line made from single rows: a mean is as good as the worst of what it is a mean of."""
    false = [row for row in rows if row.verdict == "invalid"]
    unlikely = [row for row in rows if row.verdict == "implausible"]
    worst = next(iter((*false, *unlikely)), None)
    if worst is None:
        return None, None
    counts = [
        Message("study.some", number=len(found), what=Message(f"verdict.{word}"))
        for found, word in ((false, "impossible"), (unlikely, "implausible"))
        if found
    ]
    return worst.verdict, Message(
        "study.why.worst", counts=counts, runs=len(rows), prompt=worst.prompt, why=worst.why or ""
    )


def result(ruling: Ruling, **names: Unpack[RowNames]) -> PromptResult:
    """One published generation."""
    claim = ruling.claim
    verdict, why = verdict_of(ruling)
    return PromptResult.model_validate(
        {
            **_identity(claim),
            "prompt": claim.conditions.get("prompt", ""),
            "prompt_tokens": claim.prompt_n,
            "repeat": claim.repeat or 0,
            "max_tokens": claim.conditions.get("max_tokens", claim.predicted_n),
            "decode_rate": claim.decode_rate,
            "acceptance": claim.acceptance,
            "tau": claim.tau if claim.tau is not None else _tau(claim),
            "verdict": verdict,
            "why": why,
            **names,
        }
    )


def arm(ruling: Ruling, **names: Unpack[RowNames]) -> ArmResult:
    """One published line over several generations. A speedup is the printed one, else the rate over the baseline's."""
    claim = ruling.claim
    verdict, why = verdict_of(ruling)
    requests = claim.runs or 1
    speedup = None if claim.method == "none" else printed_speedup(claim)
    broken = verdict in ("invalid", "implausible")
    return ArmResult.model_validate(
        {
            **_identity(claim),
            "requests": requests,
            "decode_rate": printed_rate(claim),
            "speedup": None if broken else speedup,
            "claimed_speedup": speedup.point if broken and speedup is not None else None,
            "acceptance": _printed(claim.acceptance, "1", requests),
            "tau": _printed(claim.tau if claim.tau is not None else _tau(claim), "tokens/forward", requests),
            "verdict": verdict,
            "why": why,
            **names,
        }
    )


def mean_line(rows: Sequence[PromptResult], baseline_rate: float | None, *, prompt: str | None = None) -> ArmResult:
    """The mean over the runs of one configuration that a page prints, as good as the worst of them."""
    told = [row for row in rows if row.decode_rate is not None]
    rate = fmean(row.decode_rate or 0.0 for row in told)
    verdict, why = worst_of(told)
    claimed = None if baseline_rate is None else rate / baseline_rate
    taus = [row.tau for row in told if row.tau is not None]
    return ArmResult(
        **{name: getattr(rows[0], name) for name in ("config", "suite", "target", "draft", "method", "gamma")},
        prompt=prompt,
        requests=len(rows),
        decode_rate=_mean(rate, len(told), "tok/s"),
        speedup=None if verdict or claimed is None else _mean(claimed, len(told), "x"),
        claimed_speedup=claimed if verdict else None,
        acceptance=_mean(fmean(row.acceptance or 0.0 for row in told), len(told), "1"),
        tau=_mean(fmean(taus), len(taus), "tokens/forward") if taus else None,
        verdict=verdict,
        why=why,
    )


def _mean(value: float, n: int, unit: str) -> Estimate:
    return bare(value, unit, f"mean of {n} printed values; no interval", n=n)


def counted_tau(claim: Claim) -> float | None:
    """What the printed counters would mean if every round had been verified."""
    return 1 + claim.accepted / claim.steps if claim.steps and claim.accepted is not None else None


def printed_rate(claim: Claim) -> Estimate | None:
    """The printed decode rate [tok/s]; with Student's interval where the standard deviation of its runs is printed."""
    if claim.decode_rate is None:
        return None
    return printed_mean(claim.decode_rate, claim.decode_rate_sd, claim.runs or 1, unit="tok/s")


def printed_speedup(claim: Claim) -> Estimate | None:
    """The printed speedup, else rate over baseline rate; never with an interval. None where neither is there."""
    if claim.speedup is not None:
        return _printed(claim.speedup, "x", claim.runs or 1)
    if claim.decode_rate is None or claim.baseline_rate is None:
        return None
    ratio = claim.decode_rate / claim.baseline_rate
    return bare(ratio, "x", "ratio of two printed rates; no interval", n=claim.runs or 1)


def _printed(value: float | None, unit: str, n: int) -> Estimate | None:
    return None if value is None else printed(value, unit, n)


def _identity(claim: Claim) -> dict[str, Any]:
    return {
        "config": claim.label or claim.row,
        "target": claim.target or claim.label or claim.row,
        "draft": claim.draft,
        "method": claim.method or "none",
        "gamma": claim.gamma,
    }


def _tau(claim: Claim) -> float | None:
    """From counts: tokens after the first of each generation over target forwards; None where they are not given."""
    forwards, tokens = claim.target_forwards, claim.predicted_n
    if not forwards or tokens is None or tokens - (claim.runs or 1) < forwards:
        return None
    return (tokens - (claim.runs or 1)) / forwards
