"""rtx3090-19: what was measured: gains and losses, the slow requests, acceptance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specmeter.numbers.estimates import above, below
from specmeter.numbers.stats import DIP_LIMIT, dip
from specmeter.studies.library.rtx3090_19.lines import Line, Lines, drafting, lines, named, noise, percent, ratio
from specmeter.studies.library.rtx3090_19.mechanism import UNEXPLAINED, budget, budgets_of_requests
from specmeter.studies.study import Finding, StudyData
from specmeter.studies.telling import Found, by_counts

HALF = 0.5
"""Of the baseline's rate; the tail as printed lies at 43 to 49 %."""
LEAST_FOR_DIP = 8
"""Fewer requests have a dip that says nothing."""


def no_gain(data: StudyData) -> Found:
    """None of the configurations is faster than the baseline."""
    known = lines(data)
    compared = drafting(known)
    ratios = {line.name: ratio(known, line) for line in compared}
    strict = {line.name: ratio(known, line, among=len(compared)) for line in compared}
    faster = [line for line in compared if above(strict[line.name], 1)]
    slower = [line for line in compared if below(ratios[line.name], 1)]
    open_ = [line for line in compared if line not in slower and line not in faster]
    ruling: Finding = "cannot tell"
    if faster:
        ruling = "contradicted"
    elif compared and not open_:
        ruling = "supported"
    best = max(compared, key=lambda line: found.point if (found := ratios[line.name]) else 0.0, default=None)
    told = f"{len(slower)} of {len(compared)} configurations that can be compared are slower than their baseline"
    if faster:
        told += f", {len(faster)} faster ({', '.join(f'{it.name} {percent(strict[it.name])}' for it in faster[:4])})"
    if open_:
        told += f"; of {len(open_)} the interval holds 1 or there is none ({named(open_)})"
    if best is not None and not faster:
        told += f"; the best is {best.name} with {percent(ratios[best.name])}"
    out = [line for line in known.values() if line.drafts and not line.believable]
    if out:
        told += f". Left out as invalid: {named(out)}"
    return ruling, f"{told}. {_repeats(known)}"


def tail(data: StudyData) -> Found:
    """Every configuration with drafts has requests at about half the baseline's rate."""
    known = lines(data)
    asked = [line for line in known.values() if line.drafts and line.sums is not None and _base(known, line)]
    slow = [line for line in asked if _lowest(known, line) <= HALF]
    rest = [line for line in asked if line not in slow]
    piles = [(line, found) for line in asked if (found := _dip(known, line)) is not None]
    humps = [line for line, found in piles if found > DIP_LIMIT]
    ruling: Finding = "cannot tell"
    if asked:
        ruling = "supported" if not rest and len(humps) == len(asked) else "contradicted" if rest else "cannot tell"
    told = f"{len(slow)} of {len(asked)} configurations with drafts have a request at half the baseline's rate or less"
    if rest:
        lowest = [_lowest(known, line) for line in rest]
        told += f"; the slowest requests of the others ({named(rest)}) run at {min(lowest):.0%} to {max(lowest):.0%}"
    if piles:
        worst = max(found for _, found in piles)
        told += (
            f". Two humps by Hartigans' dip in {len(humps)} of {len(piles)} whose requests are known (largest "
            f"{worst:.2f}, limit {DIP_LIMIT}): a few slow requests of ten are not yet a second mode"
        )
    return by_counts(ruling, f"{told}.")


def full_acceptance(data: StudyData) -> Found:
    """Whether 100 % acceptance is one."""
    known = lines(data)
    counted = [line for line in drafting(known) if line.sums and line.sums.drafted]
    partial = [line for line in counted if line.sums and line.sums.accepted < line.sums.drafted]
    ruling: Finding = "cannot tell"
    told = "no drafted token was counted"
    if partial:
        ruling = "contradicted"
        shares = [line.acceptance for line in partial]
        told = (
            f"{len(partial)} of {len(counted)} configurations that drafted had tokens rejected; their acceptance is "
            f"{min(shares):.1%} to {max(shares):.1%} ({named(sorted(partial, key=lambda line: line.acceptance))})"
        )
    elif counted:
        counts = [line.sums.drafted / line.sums.generated for line in counted if line.sums]
        over = [line for line in counted if (found := budget(known, line)) and found.unexplained > UNEXPLAINED]
        requests = [found for line in counted for _, found in budgets_of_requests(known, line)]
        ruling = "cannot tell" if over else "supported"
        told = (
            f"accepted equals drafted in all {len(counted)} configurations, the slowest and the fastest alike; drafts "
            f"are counted for {min(counts):.1%} to {max(counts):.1%} of the tokens"
        )
        if over:
            told += (
                f". {len(over)} of them ({named(over)}) spent more than {UNEXPLAINED:.0%} of their time beyond what "
                "decoding every token and drafting every counted one by the target itself takes"
                f" ({_beyond_at_all(known, counted)} spent any, which rates of plain decoding may explain): work that "
                "no counter shows, as rejected drafts would be"
            )
        if over and requests:
            beyond = sum(it.unexplained > UNEXPLAINED for it in requests)
            told += f"; so did {beyond} of {len(requests)} single requests"
    return by_counts(ruling, f"{told}.")


def _beyond_at_all(known: Lines, counted: Sequence[Line]) -> str:
    """How many of the configurations took longer than the bound, by however little."""
    over = sum((found := budget(known, line)) is not None and found.unexplained > 0 for line in counted)
    return f"{over} of {len(counted)}"


def _repeats(known: Lines) -> str:
    repeated = noise(known)
    if repeated is None:
        return "No configuration was repeated"
    return f"The {repeated.n} repeated configurations differ from themselves by {math.expm1(repeated.sd):.2%}."


def _base(known: Lines, line: Line) -> Line | None:
    base = known.get(line.reference)
    return base if base is not None and base is not line and base.pooled else None


def _lowest(known: Lines, line: Line) -> float:
    """The slowest request over the baseline's pooled rate."""
    base = _base(known, line)
    assert base is not None
    assert base.pooled is not None
    assert line.sums is not None
    return line.sums.lowest_rate / base.pooled


def _dip(known: Lines, line: Line) -> float | None:
    """sqrt(n) times the dip of the requests' log rates, each over the baseline's on its prompt where that is known."""
    base = known.get(line.reference)
    usual = {(it.prompt, it.repeat): it.decode_rate for it in base.results if it.decode_rate} if base else {}
    logs = [
        math.log(it.decode_rate / usual.get((it.prompt, it.repeat), 1.0) if usual else it.decode_rate)
        for it in line.results
        if it.decode_rate and (not usual or (it.prompt, it.repeat) in usual)
    ]
    if len(logs) < LEAST_FOR_DIP:
        return None
    return dip(np.array(logs)) * math.sqrt(len(logs))
