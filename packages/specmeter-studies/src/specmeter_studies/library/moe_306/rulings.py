"""moe-306: how a ruling comes from lines, and what is said where none can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter.record import Estimate
from specmeter_studies.from_claims import reasons
from specmeter_studies.library.moe_306.lines import believable, listed, named
from specmeter_studies.library.moe_306.ratios import mean_gain, widened
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyData
from specmeter_studies.telling import fallen, quoted


def unanimous(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> RulingWord:
    """Supported when all lines are for it, contradicted when all are against it."""
    if lines and all(map(for_it, lines)):
        return "supported"
    return "contradicted" if lines and all(map(against, lines)) else "cannot tell"


def any_against(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> RulingWord:
    """For claims of every case: one line against it contradicts."""
    if any(map(against, lines)):
        return "contradicted"
    return "supported" if lines and all(map(for_it, lines)) else "cannot tell"


def gains(data: StudyData, lines: Sequence[ArmResult]) -> tuple[RulingWord, Message | str]:
    """Whether all lines gain, and their mean in words.

    Contradicted where they lose on the whole, or where one of them does beyond its interval.
    """
    mean = mean_gain(data, lines)
    if below(mean, 1):
        ruling: RulingWord = "contradicted"
    else:
        ruling = any_against(
            lines,
            lambda line: above(line.speedup, 1),
            lambda line: line.speedup is not None and below(widened(line.speedup, len(lines)), 1),
        )
    return ruling, in_the_mean(mean, "moe-306.together")


def in_the_mean(mean: Estimate | None, code: str) -> Message | str:
    """What is said of the mean; nothing without one."""
    return "" if mean is None else Message(code, mean=quoted(mean, "x"))


def together(rulings: Sequence[RulingWord]) -> RulingWord:
    """Of a claim in several parts."""
    if "contradicted" in rulings:
        return "contradicted"
    return "supported" if all(ruling == "supported" for ruling in rulings) else "cannot tell"


def ruled(ruling: RulingWord) -> Message:
    """A ruling as a sentence has it."""
    return Message(f"ruling.{ruling}")


def undecided(lines: Sequence[ArmResult]) -> Found:
    """No speedup that could decide: what is wrong with those that are there."""
    return "cannot tell", without(lines)


def refuted_by(line: ArmResult) -> str:
    """Name of the check or the bound that decides about a line; empty where none does."""
    return next((name for name, _ in reasons(line.why)), "")


def without(lines: Sequence[ArmResult]) -> Message:
    refuted = [line for line in lines if not line.stands]
    if not lines:
        return Message("moe-306.without.all")
    if not refuted and believable(lines):
        return Message("moe-306.without.some", known=listed(believable(lines)))
    if not refuted:
        return Message("moe-306.without.baseline", n=len(lines))
    bounds = Counter(map(refuted_by, refuted))
    worst = max(refuted, key=lambda line: line.claimed_speedup or 0)
    return Message(
        "moe-306.without.refuted",
        fallen=fallen(refuted, len(lines)),
        broken=[Message("moe-306.broken", n=count, bound=bound) for bound, count in bounds.most_common()],
        name=named(worst),
        why=worst.why or "",
    )
