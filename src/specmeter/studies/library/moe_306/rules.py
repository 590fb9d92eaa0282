"""moe-306: how a ruling comes from lines, and what is said where none can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from specmeter.numbers.estimates import above, below, scaled
from specmeter.record import Estimate
from specmeter.studies.library.moe_306.blocks import mean_gain, widened
from specmeter.studies.library.moe_306.lines import believable, listed, named
from specmeter.studies.study import ArmResult, Finding, StudyData
from specmeter.studies.telling import Found, fallen, quoted


def unanimous(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> Finding:
    """Supported when all lines are for it, contradicted when all are against it."""
    if lines and all(map(for_it, lines)):
        return "supported"
    return "contradicted" if lines and all(map(against, lines)) else "cannot tell"


def any_against(
    lines: Sequence[ArmResult], for_it: Callable[[ArmResult], bool], against: Callable[[ArmResult], bool]
) -> Finding:
    """For claims of every case: one line against it contradicts."""
    if any(map(against, lines)):
        return "contradicted"
    return "supported" if lines and all(map(for_it, lines)) else "cannot tell"


def gains(data: StudyData, lines: Sequence[ArmResult]) -> Found:
    """Whether all lines gain, and their mean in words.

    Contradicted where they lose on the whole, or where one of them does beyond its interval.
    """
    mean = mean_gain(data, lines)
    if below(mean, 1):
        ruling: Finding = "contradicted"
    else:
        ruling = any_against(
            lines,
            lambda line: above(line.speedup, 1),
            lambda line: line.speedup is not None and below(widened(line.speedup, len(lines)), 1),
        )
    return ruling, in_the_mean(mean, "; all together")


def in_the_mean(mean: Estimate | None, words: str) -> str:
    """Words and the estimate; nothing without one."""
    return "" if mean is None else f"{words} {quoted(mean, unit='x')}"


def together(rulings: Sequence[Finding]) -> Finding:
    """Of a claim in several parts."""
    if "contradicted" in rulings:
        return "contradicted"
    return "supported" if all(ruling == "supported" for ruling in rulings) else "cannot tell"


def undecided(lines: Sequence[ArmResult]) -> Found:
    """No speedup that could decide: what is wrong with those that are there."""
    return "cannot tell", without(lines)


def without(lines: Sequence[ArmResult]) -> str:
    refuted = [line for line in lines if not line.stands]
    if not lines:
        return "The configurations that decide were not measured."
    if not refuted and believable(lines):
        return f"Not all configurations that decide were measured; there are: {listed(believable(lines))}."
    if not refuted:
        return f"None of {len(lines)} configurations has a baseline on its own prompts in its own blocks."
    bounds = Counter(line.why.partition(":")[0] for line in refuted)
    counted = ", ".join(f"{count} by {bound}" for bound, count in bounds.most_common())
    worst = max(refuted, key=lambda line: line.claimed_speedup or 0)
    return f"{fallen(refuted, len(lines))[:-1]} ({counted}). For example {named(worst)}: {worst.why}."


def best_first(lines: Iterable[ArmResult]) -> list[ArmResult]:
    """By speedup, the highest first."""
    return sorted(lines, key=lambda line: line.speedup.point if line.speedup else 0, reverse=True)


def acceptance_of(line: ArmResult) -> float:
    return line.acceptance.point if line.acceptance else 0.0


def acceptances(lines: Sequence[ArmResult]) -> str:
    shares = sorted(map(acceptance_of, lines))
    return f"{100 * shares[0]:.0f} to {100 * shares[-1]:.0f} %"


def percent(estimate: Estimate | None) -> str:
    return "unknown" if estimate is None else quoted(scaled(estimate, 100), 1, " %")
