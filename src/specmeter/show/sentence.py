"""What a run, or a comparison of two, says in one sentence, and what must be known beside it, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import MOST_FAILED, NOISY_MARGIN
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import LEAST_PROMPTS
from specmeter.show.names import Names, load_name
from specmeter.text import bound, brackets

if TYPE_CHECKING:
    from specmeter.analysis.answer import Answer, OfKind
    from specmeter.analysis.comparison import ArmComparison, RunComparison
    from specmeter.analysis.requests import Stalls
    from specmeter.record import Estimate, Load
    from specmeter.show.words import Words

_PATIENCE = 200
"""Blocks that might still be measured where the machine is noisy."""
NAMELESS = Names()
"""Arms are called by their ids."""
GAP = 0.01
"""Total time and the mean over blocks that differ by more are worth a word."""


def sentence(answer: Answer, words: Words, names: Names = NAMELESS) -> str:
    """Like `dense: 1.93x as fast with small draft, 4 tokens (1.85 to 2.01; 4 blocks of 4 prompts)`."""
    if answer.load is not None:
        return _at_load(answer, answer.load, words, names)
    alone, together, equivalence = answer.speedup, answer.speedup_simultaneous, answer.comparison.equivalence
    said = {
        "target": answer.baseline_id.replace("/none", "", 1),
        "method": names.render(answer.arm_id, words),
        "where": words("answer.where", kind=answer.kind) if answer.kind else "",
        "speedup": f"{alone.point:.2f}",
        "rests": _rests(answer, words),
        "margin": f"{answer.comparison.margin:.0%}",
    }
    if answer.arm_id in answer.idle:
        return words("answer.idle", **said)
    failed = {"failed": answer.failed, "tried": answer.tried}
    if (alone.low is None or alone.high is None) and answer.failed > MOST_FAILED * answer.tried:
        return words("answer.failed_most", **said, **failed)
    if alone.low is None or alone.high is None:
        more = words(f"answer.{'more' if alone.n > 1 else 'three'}_{answer.unit}s")
        return words("answer.no_interval", **said, more=more)
    if answer.decision == "do not speculate":
        behind = any(it.prompts for it in answer.behind)
        return words("answer.slower_rest" if behind else "answer.slower", **said)
    if answer.decision == "depends on the text":
        kinds = words.listed(_on_kind(it, answer.arm_id, words, names) for it in answer.by_kind)
        return words("answer.depends", **said, kinds=kinds)
    if answer.decision == "not advised":
        return words("answer.not_advised", **said, **failed)
    if answer.decision == "too few":
        return words(f"answer.too_few_{answer.unit}s", **said, least=answer.units_least)
    if answer.decision == "too noisy":
        over = {"units": _units(answer, together, words), "prompts": _which_prompts(answer, words)}
        return words("answer.too_noisy", **said, **over, advice=_help(answer, words))
    if answer.decision == "speculate":
        return words("answer.faster", **said, advice=_advice(answer, words) if _is_wide(together) else "")
    if answer.comparison.conclusion == "equivalent":
        return words("answer.equivalent", **said)
    if answer.comparison.conclusion == "not worse" and (equivalence.low or 0.0) <= 1:
        return words("answer.not_worse", **said)
    return words("answer.not_shown", **said, advice=_advice(answer, words))


def at_load(answer: Answer, load: Load, words: Words) -> str:
    """`dense at 4 clients`."""
    said = words.render(load_name(load))
    return answer.baseline_id.partition("/")[0] + words("answer.at", load=said, where="")


def _at_load(answer: Answer, load: Load, words: Words, names: Names) -> str:
    """Like `dense at 4 clients: 1.18x the tokens per second of plain decoding with small draft, 4 tokens (...)`."""
    where = words("answer.where", kind=answer.kind) if answer.kind else ""
    more = words(f"answer.{'more' if answer.speedup.n > 1 else 'three'}_{answer.unit}s")
    ratio = f"{answer.speedup.point:.2f}"
    return words(
        "answer.idle" if answer.arm_id in answer.idle else f"answer.load.{answer.decision}",
        target=at_load(answer, load, words),
        at=where,
        where=where,
        method=names.without_load(answer.arm_id, words),
        speedup=words("answer.of_rate" if load.clients is None else "answer.of_clients", speedup=ratio),
        rests=_rests(answer, words),
        failed=answer.failed,
        tried=answer.tried,
        units=words(f"headline.{answer.unit}s"),
        least=words(f"found.{answer.unit}s", count=answer.units_least).strip(),
        advice=_help(answer, words),
        more=more,
    )


def _interval(answer: Answer) -> Estimate:
    """The interval that an answer rests on: of all arms together, but for "do not speculate" and "no difference"."""
    if answer.decision == "do not speculate":
        return answer.speedup
    conclusion, equivalence = answer.comparison.conclusion, answer.comparison.equivalence
    # An interval above 1 beside "no gain shown" would contradict it; the wider one by which none is shown says why.
    alike = conclusion == "equivalent" or (conclusion == "not worse" and (equivalence.low or 0.0) <= 1)
    return equivalence if answer.decision == "not shown" and alike else answer.speedup_simultaneous


def _rests(answer: Answer, words: Words) -> str:
    """`1.85 to 2.01; 4 blocks of 4 prompts`; empty without an interval."""
    found = _interval(answer)
    if found.low is None or found.high is None:
        return ""
    low, high = bound(found.low, 2), bound(found.high, 2)
    prompts = _which_prompts(answer, words)
    usual = found.level == answer.speedup.level
    told = {"low": low, "high": high, "units": _units(answer, found, words), "prompts": prompts}
    return words("found.rests", **told) if usual else words("found.rests_level", **told, level=f"{found.level:.0%}")


def _units(answer: Answer, found: Estimate, words: Words) -> str:
    return words(f"found.{answer.unit}s", count=found.n)


def _on_kind(it: OfKind, best: str, words: Words, names: Names) -> str:
    """`code 1.08x`, with what else it is worth saying: that it may be none, and with which arm if not the best one."""
    name = "answer.on_kind_open" if it.sign == "open" else "answer.on_kind"
    said = words(name, kind=it.kind, speedup=f"{it.speedup.point:.2f}")
    method = names.render(it.arm_id, words)
    return said if it.arm_id == best else words("answer.on_kind_with", said=said, method=method)


def details(answer: Answer, words: Words, names: Names = NAMELESS) -> list[str]:
    """What else is true of the answer: its interval, other ways to count, other prompts, and its cautions."""
    gain, among = answer.gain, answer.among
    tells = answer.decision not in ("cannot tell", "too noisy")
    unlike = answer.decision in ("not shown", "too noisy") and any(it.sign != "open" for it in answer.by_kind)
    apart = answer.decision == "depends on the text" or unlike
    return [
        *([_told_interval(answer, words)] if tells else []),
        *([words("detail.by_kind", kinds=_kinds(answer, words, names))] if apart else []),
        *(
            [_with_prompt(gain.with_prompt, among, words), _pooled(answer, words), _prompts(answer, words)]
            if tells and answer.load is None
            else []
        ),
        *cautions(answer, words, names),
    ]


def cautions(answer: Answer, words: Words, names: Names = NAMELESS) -> list[str]:
    """What an answer lacks: prompts, requests or arms that are missing in it, and what stalled."""
    others = [arm_id for arm_id in answer.idle if arm_id != answer.arm_id]
    return [
        *([_counted("left_out", answer.left_out, words)] if answer.left_out else []),
        *([_counted("completed", answer.gain.completed, words)] if answer.gain.completed else []),
        *([_behind(answer, words, names)] if answer.behind else []),
        *([words("detail.idle", arms=words.listed(names.render(it, words) for it in others))] if others else []),
        *([_stalls("stalls", answer.stalls, words, arm=names.render(answer.arm_id, words))] if answer.stalls else []),
        *([_stalls("baseline_stalls", answer.baseline_stalls, words)] if answer.baseline_stalls else []),
    ]


def _told_interval(answer: Answer, words: Words) -> str:
    """What the interval is of, and for which choice it makes up."""
    found = _interval(answer)
    return words(
        "detail.interval" if answer.load is None else "detail.interval.load",
        low="?" if found.low is None else bound(found.low, 2),
        high="?" if found.high is None else bound(found.high, 2),
        level=f"{found.level:.0%}",
        units=_units(answer, found, words),
        adjusted=_adjusted(1 if found is answer.speedup else answer.among, words),
    )


def _adjusted(among: int, words: Words) -> str:
    return words("found.adjusted", among=among) if among > 1 else ""


def _which_prompts(answer: Answer, words: Words) -> str:
    """`4 prompts`, or `the 4 of 8 prompts that it completed; it failed the others`."""
    count = answer.gain.prompts
    if answer.left_out:
        name = "found.completed" if answer.never_completed == answer.left_out else "found.both_completed"
        return words(name, count=count, all=answer.prompts_given)
    return words("found.prompt") if count == 1 else words("found.prompts", count=count)


def _behind(answer: Answer, words: Words, names: Names) -> str:
    """Which arms were not compared, and what each gained on what it completed."""
    told = (
        names.render(it.arm_id, words)
        if it.speedup is None
        else words(
            "detail.behind_one",
            method=names.render(it.arm_id, words),
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
    return words("answer.of_kind_with", **said, method=names.render(it.arm_id, words))


def _is_wide(speedup: Estimate) -> bool:
    """Whether the interval leaves more than 5 % to either side."""
    return speedup.low is None or speedup.high is None or speedup.high > 1.05**2 * speedup.low


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
    if gain.prompts == 1 or gain.lowest is None or gain.highest is None:
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
    """Like `monday against sunday: 1 of 2 configurations lost more than 2%: no speculation 0.91x [0.88, 0.94]`."""
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
        arms = words.listed(_told_of(arm, found, words) for arm in regressed[:_SHOWN])
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


def _told_of(arm: ArmComparison, found: RunComparison, words: Words) -> str:
    ratio, name = ratio_of(arm, found), Names(found.asked).in_full(arm.arm_id, words)
    return name if ratio is None else f"{name} {ratio.point:.3f}x {brackets(ratio, 3)}"
