"""What a run, or a comparison of two, says in one sentence, and what must be known beside it, in any language."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specmeter.analysis.answer import MOST_FAILED, NOISY_MARGIN
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import LEAST_PROMPTS
from specmeter.show.names import Names
from specmeter.text import bound, brackets

if TYPE_CHECKING:
    from specmeter.analysis.answer import Answer, OfKind
    from specmeter.analysis.comparison import ArmComparison, RunComparison
    from specmeter.analysis.stalls import Stalls
    from specmeter.record import Estimate
    from specmeter.show.words import Words

_LEAST, _MOST = 0.1, 10.0
"""Ends of an interval that says nothing, beyond which no digit of it matters."""
_PATIENCE = 200
"""Blocks that might still be measured where the machine is noisy."""
NAMELESS = Names()
"""Arms are called by their ids."""
GAP = 0.01
"""Total time and the mean over blocks that differ by more are worth a word."""


def sentence(answer: Answer, words: Words, names: Names = NAMELESS) -> str:
    """Like `dense: speculate with small draft, 4 tokens: 1.93x as fast while decoding (95% interval 1.85 to 2.01 over 4
    blocks of these 4 prompts)`."""
    said = {
        "target": answer.baseline_id.replace("/none", "", 1),
        "method": names.told(answer.arm_id, words),
        "where": words("answer.where", kind=answer.kind) if answer.kind else "",
    }
    alone, together, comparison = answer.speedup, answer.speedup_simultaneous, answer.comparison
    if answer.arm_id in answer.idle:
        return words("answer.idle", **said)
    failed = {"failed": answer.failed, "tried": answer.tried}
    if (alone.low is None or alone.high is None) and answer.failed > MOST_FAILED * answer.tried:
        return words("answer.failed_most", **said, **failed, speedup=f"{alone.point:.2f}")
    if alone.low is None or alone.high is None:
        more = words(f"answer.{'more' if alone.n > 1 else 'three'}_{answer.unit}s")
        return words("answer.no_interval", **said, speedup=f"{alone.point:.2f}", why=alone.method, more=more)
    if answer.decision == "do not speculate":
        behind = any(it.prompts for it in answer.behind)
        return words("answer.slower_rest" if behind else "answer.slower", **said, found=_found(answer, alone, words, 1))
    found = _found(answer, together, words, answer.among)
    if answer.decision == "depends on the text":
        return words("answer.depends", **said, kinds=_kinds(answer, words, names), found=found)
    if answer.decision == "not advised":
        return words("answer.not_advised", **said, **failed, found=found)
    if answer.decision == "too few":
        return words(f"answer.too_few_{answer.unit}s", **said, found=found, least=answer.units_least)
    if answer.decision == "too noisy":
        return words("answer.too_noisy", **said, **_anything(answer, together, words), advice=_help(answer, words))
    if answer.decision == "speculate":
        advice = _advice(answer, words) if _is_wide(together) else ""
        return words("answer.faster", **said, found=found, advice=advice)
    margin, within = f"{comparison.margin:.0%}", _found(answer, comparison.equivalence, words, answer.among)
    if comparison.conclusion == "equivalent":
        return words("answer.equivalent", **said, margin=margin, found=within)
    # An interval above 1 beside "no gain is shown" would contradict it; the wider one by which none is shown says why.
    if comparison.conclusion == "not worse" and (comparison.equivalence.low or 0.0) <= 1:
        return words("answer.not_worse", **said, margin=margin, found=within)
    return words("answer.not_shown", **said, found=found, advice=_advice(answer, words))


def details(answer: Answer, words: Words, names: Names = NAMELESS) -> list[str]:
    """What else is true of the answer: other ways to count, other prompts, what is missing, what stalled."""
    gain, among = answer.gain, answer.among
    others = [arm_id for arm_id in answer.idle if arm_id != answer.arm_id]
    tells = answer.decision not in ("cannot tell", "too noisy")
    apart = answer.decision in ("not shown", "too noisy") and any(it.sign != "open" for it in answer.by_kind)
    return [
        *([words("detail.by_kind", kinds=_kinds(answer, words, names))] if apart else []),
        *(
            [_with_prompt(gain.with_prompt, among, words), _pooled(answer, words), _prompts(answer, words)]
            if tells
            else []
        ),
        *([_counted("left_out", answer.left_out, words)] if answer.left_out else []),
        *([_counted("completed", gain.completed, words)] if gain.completed else []),
        *([_behind(answer, words, names)] if answer.behind else []),
        *([words("detail.idle", arms=words.listed(names.told(it, words) for it in others))] if others else []),
        *([_stalls("stalls", answer.stalls, words, arm=names.told(answer.arm_id, words))] if answer.stalls else []),
        *([_stalls("baseline_stalls", answer.baseline_stalls, words)] if answer.baseline_stalls else []),
    ]


def _found(answer: Answer, speedup: Estimate, words: Words, among: int) -> str:
    """`1.93x as fast while decoding (95% interval 1.85 to 2.01 over 4 blocks of these 4 prompts, adjusted ...)`."""
    return words(
        "found.interval",
        speedup=f"{speedup.point:.2f}",
        level=f"{speedup.level:.0%}",
        low=bound(speedup.low or 0.0, 2),
        high=bound(speedup.high or 0.0, 2),
        units=words(f"found.{answer.unit}s", count=speedup.n),
        prompts=_which_prompts(answer, words),
        adjusted=_adjusted(among, words),
    )


def _adjusted(among: int, words: Words) -> str:
    return words("found.adjusted", among=among) if among > 1 else ""


def _which_prompts(answer: Answer, words: Words) -> str:
    """`these 4 prompts`, or `the 4 of 8 prompts that it completed; it failed the others`."""
    count = answer.gain.prompts
    if answer.left_out:
        name = "found.completed" if answer.never_completed == answer.left_out else "found.both_completed"
        return words(name, count=count, all=answer.prompts_given)
    return words("found.prompt") if count == 1 else words("found.prompts", count=count)


def _behind(answer: Answer, words: Words, names: Names) -> str:
    """Which arms were not compared, and what each gained on what it completed."""
    told = (
        names.told(it.arm_id, words)
        if it.speedup is None
        else words(
            "detail.behind_one",
            method=names.told(it.arm_id, words),
            speedup=f"{it.speedup.point:.2f}",
            count=it.prompts,
            all=it.of,
        )
        for it in answer.behind
    )
    return words("detail.behind", arms=words.listed(told))


def _kinds(answer: Answer, words: Words, names: Names) -> str:
    """Every kind with its interval, and what these intervals hold for."""
    listed = words.listed(_of_kind(it, answer.arm_id, words, names) for it in answer.by_kind)
    level = f"{answer.by_kind[0].speedup.level:.0%}" if answer.by_kind else ""
    return words("answer.kinds", listed=listed, level=level, count=len(answer.by_kind)) if answer.by_kind else listed


def _of_kind(it: OfKind, best: str, words: Words, names: Names) -> str:
    """`code 1.08x (1.01 to 1.15)`, and with which arm where it is not the best one over all."""
    low, high = ("?" if end is None else bound(end, 2) for end in (it.speedup.low, it.speedup.high))
    said = {"kind": it.kind, "speedup": f"{it.speedup.point:.2f}", "low": low, "high": high}
    if it.arm_id == best:
        return words("answer.of_kind", **said)
    return words("answer.of_kind_with", **said, method=names.told(it.arm_id, words))


def _is_wide(speedup: Estimate) -> bool:
    """Whether the interval leaves more than 5 % to either side."""
    return speedup.low is None or speedup.high is None or speedup.high > 1.05**2 * speedup.low


def _anything(answer: Answer, speedup: Estimate, words: Words) -> dict[str, str]:
    """An interval that says nothing, in as few digits as it deserves."""
    low, high = speedup.low or 0.0, speedup.high or math.inf
    return {
        "level": f"{speedup.level:.0%}",
        "low": f"{low:.1f}" if low >= _LEAST else f"<{_LEAST:g}",
        "high": f"{high:.1f}" if high <= _MOST else f">{_MOST:g}",
        "units": words(f"found.{answer.unit}s", count=speedup.n),
    }


def _advice(answer: Answer, words: Words) -> str:
    """How much more measuring would help."""
    margin = f"{MARGIN:.0%}"
    if answer.units_advised is None:
        return words("advice.never", margin=margin)
    return words(f"advice.{answer.unit}s", count=answer.units_advised, margin=margin)


def _help(answer: Answer, words: Words) -> str:
    """What would help where blocks say nothing: a quiet machine, and how many of them if that can be done at all."""
    if answer.units_advised is None or answer.units_advised > _PATIENCE:
        return words("advice.quiet")
    return words(f"advice.noisy_{answer.unit}s", count=answer.units_advised, margin=f"{NOISY_MARGIN:.0%}")


def _with_prompt(speedup: Estimate, among: int, words: Words) -> str:
    point = f"{speedup.point:.2f}"
    if speedup.low is None or speedup.high is None:
        return words("detail.with_prompt_point", speedup=point)
    low, high = bound(speedup.low, 2), bound(speedup.high, 2)
    return words("detail.with_prompt", speedup=point, low=low, high=high, adjusted=_adjusted(among, words))


def _pooled(answer: Answer, words: Words) -> str:
    gain = answer.gain
    pooled, gap = f"{gain.pooled.point:.2f}", gain.pooled_differs
    return words(
        "detail.pooled" if abs(gap) <= GAP else "detail.pooled_differs",
        **({"pooled": pooled} if abs(gap) <= GAP else {"pooled": pooled, "gap": f"{gap:+.1%}"}),
    )


def _prompts(answer: Answer, words: Words) -> str:
    gain = answer.gain
    if gain.prompts == 1:
        return words("detail.one_prompt")
    said = {"lowest": bound(gain.lowest, 2), "highest": bound(gain.highest, 2)}
    other = gain.over_prompts
    if other is not None and other.low is not None and other.high is not None:
        low, high = bound(other.low, 2), bound(other.high, 2)
        outside = not other.low <= gain.decoding.point <= other.high
        return words(
            "detail.other_prompts",
            **said,
            low=low,
            high=high,
            level=f"{other.level:.0%}",
            count=gain.prompts,
            sort=words("detail.sort_completed" if answer.left_out else "detail.sort"),
            outside=words("detail.outside") if outside else "",
        )
    if gain.prompts < LEAST_PROMPTS:
        return words("detail.few_prompts", **said, count=gain.prompts)
    return words("detail.no_other_prompts", **said)


def _counted(name: str, count: int, words: Words) -> str:
    return words(f"detail.{name}_one") if count == 1 else words(f"detail.{name}", count=count)


def _stalls(name: str, stalls: Stalls, words: Words, **said: str) -> str:
    times = f"{stalls.slowest:.1f}"
    return words(f"detail.{name}", count=stalls.requests, all=stalls.of, slowest=times, **said)


# --- two runs ---------------------------------------------------------------------------------------------------------

_SHOWN = 3


def comparison_sentence(found: RunComparison, words: Words) -> str:
    """Like `2 of 5 arms regressed beyond 2%: dense/none 0.91x [0.88, 0.94], ...`."""
    said = {"reference": found.reference, "other": found.other, "threshold": f"{100 * found.threshold:g}%"}
    if found.same_data:
        return words("compare.copy", reference=found.reference, other=found.other, count=found.shared_requests)
    lines = [_compared(found, words, said)]
    if found.other_work:
        lines.append(words("compare.other_work", what=words.listed(one.what for one in found.other_work[:_SHOWN])))
    if found.shared_requests:
        lines.append(words("compare.partly_copy", **said, count=found.shared_requests))
    return ". ".join(lines)


def _compared(found: RunComparison, words: Words, said: dict[str, str]) -> str:
    judged = [arm for arm in found.arms if ratio_of(arm, found) is not None]
    if not judged:
        return words("compare.nothing", **said)
    regressed = found.of("regression")
    if regressed:
        arms = words.listed(_told_of(arm, found) for arm in regressed[:_SHOWN])
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


def _told_of(arm: ArmComparison, found: RunComparison) -> str:
    ratio = ratio_of(arm, found)
    return arm.arm_id if ratio is None else f"{arm.arm_id} {ratio.point:.3f}x {brackets(ratio, 3)}"
