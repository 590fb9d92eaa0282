"""What a comparison of two runs says in one sentence, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import Message, Value
from specmeter.show.names import Name, Names
from specmeter.text import brackets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specmeter.analysis.comparison import ArmComparison, RunComparison
    from specmeter.record import Estimate


_SHOWN = 3


def comparison_sentence(found: RunComparison) -> Message:
    """Like `monday against sunday: 1 of 2 configurations lost more than 2%: no speculation 0.91x [0.88, 0.94]`."""
    said: dict[str, Value] = {
        "reference": found.reference,
        "other": found.other,
        "threshold": f"{100 * found.threshold:g}%",
    }
    if found.same_data:
        return Message("compare.copy", reference=found.reference, other=found.other, count=found.shared_requests)
    lines = [_compared(found, said)]
    if found.other_work:
        lines.append(Message("compare.other_work", what=[one.what for one in found.other_work[:_SHOWN]]))
    if found.shared_requests:
        lines.append(Message("compare.partly_copy", **said, count=found.shared_requests))
    return Message("compare.said", sentences=lines)


def _compared(found: RunComparison, said: Mapping[str, Value]) -> Message:
    judged = [arm for arm in found.arms if ratio_of(arm, found) is not None]
    if not judged:
        return Message("compare.nothing", **said)
    regressed = found.of("regression")
    if regressed:
        arms = [_told_of(arm, found) for arm in regressed[:_SHOWN]]
        more = Message("compare.more", count=len(regressed) - _SHOWN) if len(regressed) > _SHOWN else ""
        return Message("compare.regression", **said, count=len(regressed), all=len(judged), arms=arms, more=more)
    unsure = sum(arm.conclusion in ("undecided", "slower") for arm in judged)
    if found.other_work:
        counts = {word: len(found.of(word)) for word in ("faster", "slower", "same", "undecided")}
        return Message("compare.unlike", **said, **counts)
    return Message("compare.undecided" if unsure else "compare.none", **said, count=unsure, all=len(judged))


def ratio_of(arm: ArmComparison, found: RunComparison) -> Estimate | None:
    """The ratio that was asked for."""
    return arm.rate if found.measure == "rate" else arm.speedup


def _told_of(arm: ArmComparison, found: RunComparison) -> Name:
    ratio, name = ratio_of(arm, found), Names(found.asked).in_full(arm.arm_id)
    return name if ratio is None else Message("compare.of", name=name, ratio=f"{ratio.point:.3f}x {brackets(ratio, 3)}")
