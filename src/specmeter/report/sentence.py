"""The answer of a run in one sentence, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.report.numbers import bound
from specmeter.stats import MARGIN, MOST_UNITS

if TYPE_CHECKING:
    from specmeter.answer import Answer
    from specmeter.record import Estimate
    from specmeter.report.words import Words


def sentence(answer: Answer, words: Words) -> str:
    """Like `dense: speculate with draft-simple/small/g4: 1.93x as fast (95% interval 1.85 to 2.01)`."""
    said = {
        "target": answer.baseline_id.replace("/none", "", 1),
        "method": label(answer.arm_id),
        "where": words("answer.where", workloads=words.listed(answer.only_workloads)) if answer.only_workloads else "",
    }
    alone, together, comparison = answer.speedup, answer.speedup_simultaneous, answer.comparison
    if alone is None or together is None or comparison is None:
        return words("answer.nothing", **said)
    if alone.low is None or alone.high is None:
        more = words(f"answer.{'more' if alone.n > 1 else 'three'}_{answer.unit}s")
        return words("answer.no_interval", **said, speedup=f"{alone.point:.2f}", why=alone.method, more=more)
    if answer.decision == "do not speculate":
        return words("answer.slower", **said, found=_found(alone, words))
    found = _found(together, words, answer.among)
    if answer.decision == "speculate":
        advice = _advice(answer, words) if _is_wide(together) else ""
        return words("answer.faster", **said, found=found, advice=advice)
    margin, within = f"{comparison.margin:.0%}", _found(comparison.equivalence, words, answer.among)
    if comparison.conclusion == "equivalent":
        return words("answer.equivalent", **said, margin=margin, found=within)
    # An interval above 1 beside "no gain is shown" would contradict it; the wider one by which none is shown says why.
    if comparison.conclusion == "not worse" and (comparison.equivalence.low or 0.0) <= 1:
        return words("answer.not_worse", **said, margin=margin, found=within)
    return words("answer.not_shown", **said, found=found, advice=_advice(answer, words))


def label(arm_id: str) -> str:
    """An arm's id without its target."""
    return arm_id.partition("/")[2]


def _found(speedup: Estimate, words: Words, among: int = 1) -> str:
    """`1.93x as fast (95% interval 1.85 to 2.01, widened: the best of 2 arms)`."""
    point = f"{speedup.point:.2f}"
    if speedup.low is None or speedup.high is None:
        return words("found.point", speedup=point)
    widened = words("found.widened", among=among) if among > 1 else ""
    low, high = bound(speedup.low, 2), bound(speedup.high, 2)
    return words("found.interval", speedup=point, level=f"{speedup.level:.0%}", low=low, high=high, widened=widened)


def _is_wide(speedup: Estimate) -> bool:
    """Whether the interval leaves more than 5 % to either side."""
    return speedup.low is None or speedup.high is None or speedup.high > 1.05**2 * speedup.low


def _advice(answer: Answer, words: Words) -> str:
    """How much more measuring would help."""
    margin = f"{MARGIN:.0%}"
    if answer.units_advised is None:
        return words(f"advice.never_{answer.unit}s", count=MOST_UNITS, margin=margin)
    return words(f"advice.{answer.unit}s", count=answer.units_advised, margin=margin)
