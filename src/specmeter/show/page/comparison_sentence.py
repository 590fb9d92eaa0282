"""What a comparison of two runs says, in one sentence, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.text import brackets

if TYPE_CHECKING:
    from specmeter.analysis.comparison import ArmComparison, RunComparison
    from specmeter.record import Estimate
    from specmeter.show.words import Words

_SHOWN = 3


def comparison_sentence(found: RunComparison, words: Words) -> str:
    """Like `2 of 5 arms regressed beyond 2%: dense/none 0.91x [0.88, 0.94], ...`."""
    said = {"reference": found.reference, "other": found.other, "threshold": f"{100 * found.threshold:g}%"}
    if found.same_data:
        return words("compare.copy", reference=found.reference, other=found.other, count=found.shared_requests)
    told = [_compared(found, words, said)]
    if found.other_work:
        told.append(words("compare.other_work", what=words.listed(one.what for one in found.other_work[:_SHOWN])))
    if found.shared_requests:
        told.append(words("compare.partly_copy", **said, count=found.shared_requests))
    return ". ".join(told)


def _compared(found: RunComparison, words: Words, said: dict[str, str]) -> str:
    judged = [arm for arm in found.arms if ratio_of(arm, found) is not None]
    if not judged:
        return words("compare.nothing", **said)
    regressed = found.of("regression")
    if regressed:
        arms = words.listed(_told(arm, found) for arm in regressed[:_SHOWN])
        more = words("compare.more", count=len(regressed) - _SHOWN) if len(regressed) > _SHOWN else ""
        return words("compare.regression", **said, count=len(regressed), all=len(judged), arms=arms, more=more)
    unsure = sum(arm.conclusion in ("undecided", "slower") for arm in judged)
    if found.other_work:
        counts = {word: len(found.of(word)) for word in ("faster", "slower", "same", "undecided")}
        return words("compare.unlike", **said, **counts)
    return words("compare.undecided" if unsure else "compare.none", **said, count=unsure, all=len(judged))


def ratio_of(arm: ArmComparison, found: RunComparison) -> Estimate | None:
    """The ratio that was asked for."""
    return arm.rate if found.measure == "rate" else arm.speedup


def _told(arm: ArmComparison, found: RunComparison) -> str:
    ratio = ratio_of(arm, found)
    return arm.arm_id if ratio is None else f"{arm.arm_id} {ratio.point:.3f}x {brackets(ratio, 3)}"
