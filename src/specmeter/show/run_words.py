"""What a run says in one sentence, and what must be known beside it, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import MAX_FAILED, NOISY_MARGIN
from specmeter.messages import Message, Value, words
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import MIN_PROMPTS
from specmeter.show.names import Name, Names, load_name
from specmeter.text import bound, duration, estimated

if TYPE_CHECKING:
    from specmeter.analysis.answer import Answer, BestForKind
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.stalls import Stalls
    from specmeter.record import Disturbance, Estimate, Load


NAMELESS = Names()
"""Arms are called by their ids."""
GAP = 0.01
"""Total time and the mean over blocks that differ by more are worth a word."""


def sentence(answer: Answer, names: Names = NAMELESS) -> Message:
    """Like `dense: 1.93x as fast [1.85, 2.01] with draft model small, 4 draft tokens`."""
    alone, equivalence = answer.speedup, answer.comparison.equivalence
    said: dict[str, Value] = {
        "target": at_load(answer, answer.load) if answer.load else answer.baseline_id.replace("/none", "", 1),
        "method": names.alone(answer.arm_id) if answer.load else names[answer.arm_id],
        "where": where(answer),
        "speedup": f"{alone.point:.2f}",
        "interval": headline_interval(answer),
        "margin": f"{answer.comparison.margin:.0%}",
        "best": best_of(answer, names),
    }
    if answer.arm_id in answer.idle:
        return Message("answer.idle", **said)
    failed: dict[str, Value] = {"failed": answer.failed, "tried": answer.tried}
    if (alone.low is None or alone.high is None) and answer.failed > MAX_FAILED * answer.tried:
        return Message("answer.failed_most", **said, **failed)
    if alone.low is None or alone.high is None:
        if answer.speedup.n > 1:  # as of mocks, whose invocations are copies
            return Message("answer.equal", **said, count=answer.speedup.n)
        return Message("answer.no_interval", **said)
    if answer.decision == "do not speculate":
        return Message("answer.slower", **said)
    if answer.decision == "depends on the text":
        kinds = [_on_kind(it, answer.arm_id, names) for it in answer.by_kind]
        return Message("answer.depends", **said, kinds=kinds)
    if answer.decision == "not advised":
        return Message("answer.not_advised", **said, **failed)
    if answer.decision == "too few" and answer.resumes:
        return Message("answer.too_few_yet", **said)
    if answer.decision == "too few":
        return Message("answer.too_few", **said, unit=Message(f"headline.{answer.unit}s"))
    if answer.decision == "too noisy":
        return Message("answer.too_noisy", **said)
    if answer.decision == "speculate":
        return Message("answer.faster", **said)
    if answer.decision == "no difference":
        return Message("answer.equivalent", **said)
    if answer.comparison.conclusion == "not worse" and (equivalence.low or 0.0) <= 1:
        return Message("answer.not_worse", **said)
    return Message("answer.not_shown", **said)


def would_decide(answer: Answer) -> Message | None:
    """What would decide an answer that is open, which its sentence does not say; None of others."""
    if answer.arm_id in answer.idle or answer.resumes:
        return None
    units = f"{answer.unit}s"
    if answer.speedup.low is None or answer.speedup.high is None:
        least = Message(f"found.{units}", count=answer.units_least)
        return None if answer.speedup.n > 1 else Message("advice.least", units=least)
    if answer.decision == "too few":
        return Message("advice.least", units=Message(f"found.{units}", count=answer.units_least))
    if answer.decision == "too noisy":
        return _help(answer)
    return _advice(answer) if answer.decision == "not shown" else None


def at_load(answer: Answer, load: Load) -> Message:
    """`dense at 4 clients`."""
    return Message("answer.with_load", target=answer.baseline_id.partition("/")[0], load=load_name(load))


def where(answer: Answer) -> Name:
    """` on edit prompts`, or ` over all prompts` where some arms ran only a part of them; else empty."""
    if answer.kind:
        return Message("answer.where", kind=answer.kind)
    return Message("answer.where.whole") if answer.elsewhere else ""


def best_of(answer: Answer, names: Names = NAMELESS) -> Name:
    """`best configuration: `, or of which it is the best, as arms that do not compete may be above it; the name of the
    only one."""
    if any(it.prompts for it in answer.behind):
        return Message("answer.best.completed")
    if answer.idle:
        return Message("answer.best.drafted")
    only = names.alone(answer.arm_id) if answer.load else names[answer.arm_id]
    return Message("answer.best") if answer.among > 1 else Message("answer.best.only", method=only)


def _interval(answer: Answer) -> Estimate:
    """The interval that an answer rests on: of all arms together, but for "do not speculate" and "no difference"."""
    if answer.decision == "do not speculate":
        return answer.speedup
    conclusion, equivalence = answer.comparison.conclusion, answer.comparison.equivalence
    # An interval above 1 beside "no gain shown" would contradict it; the wider one by which none is shown says why.
    alike = answer.decision == "not shown" and conclusion == "not worse" and (equivalence.low or 0.0) <= 1
    return equivalence if alike or answer.decision == "no difference" else answer.speedup_simultaneous


def headline_interval(answer: Answer) -> Name:
    """` [1.85, 2.01]`; with its level where that is not the usual one, empty where there is none."""
    found = _interval(answer)
    if found.low is None or found.high is None:
        return ""
    low, high = bound(found.low, 2), bound(found.high, 2)
    if found.level == answer.speedup.level:
        return Message("crossover.interval", low=low, high=high)
    return Message("headline.interval_level", low=low, high=high, level=f"{found.level:.0%}")


def _units(answer: Answer, found: Estimate) -> Message:
    return Message(f"found.{answer.unit}s", count=found.n)


def _on_kind(it: BestForKind, best: str, names: Names) -> Message:
    """`code 1.08x`, with what else it is worth saying: that it may be none, and with which arm if not the best one."""
    name = "answer.on_kind_open" if it.sign == "open" else "answer.on_kind"
    said = Message(name, kind=it.kind, speedup=f"{it.speedup.point:.2f}")
    method = names[it.arm_id]
    return said if it.arm_id == best else Message("answer.on_kind_with", said=said, method=method)


def details(answer: Answer, names: Names = NAMELESS) -> list[Message]:
    """What else is true of the answer: its interval, other ways to count, other prompts, and its cautions."""
    gain, among = answer.gain, answer.among
    tells = answer.decision not in ("cannot tell", "too noisy")
    unlike = answer.decision in ("not shown", "too noisy") and any(it.sign != "open" for it in answer.by_kind)
    apart = answer.decision == "depends on the text" or unlike
    open_still = would_decide(answer)
    return [
        *([_told_interval(answer)] if tells else []),
        *([Message("detail.by_kind", kinds=_kinds(answer, names))] if apart else []),
        *(
            [_with_prompt(gain.with_prompt, among), _pooled(answer), _prompts(answer)]
            if tells and answer.load is None
            else []
        ),
        *cautions(answer, names),
        *(_may_stall(it, names[arm_id]) for arm_id, it in _stalls_of(answer) if tells and not it.requests),
        *([open_still] if open_still else []),
    ]


def cautions(answer: Answer, names: Names = NAMELESS) -> list[Message]:
    """What an answer lacks: prompts, requests or arms that are missing in it, and what stalled."""
    others = [arm_id for arm_id in answer.idle if arm_id != answer.arm_id]
    return [
        *([Message("detail.left_out", count=answer.left_out)] if answer.left_out else []),
        *([Message("detail.completed", count=answer.gain.completed)] if answer.gain.completed else []),
        *([_behind(answer, names)] if answer.behind else []),
        *([Message("detail.idle", arms=[names[it] for it in others])] if others else []),
        *(_stalls(it, names[arm_id]) for arm_id, it in _stalls_of(answer) if it.requests),
    ]


def _told_interval(answer: Answer) -> Message:
    """What the interval is of, and for which choice it makes up."""
    found = _interval(answer)
    return Message(
        "detail.interval" if answer.load is None else "detail.interval.load",
        low="?" if found.low is None else bound(found.low, 2),
        high="?" if found.high is None else bound(found.high, 2),
        level=f"{found.level:.0%}",
        units=_units(answer, found),
        adjusted="" if found is answer.speedup else _beside_own(answer),
    )


def _beside_own(answer: Answer) -> Name:
    """For which choice an interval makes up, and what it would be without one."""
    own, adjusted = answer.speedup, _adjusted(answer.among)
    if not adjusted or own.low is None or own.high is None:
        return adjusted
    low, high = bound(own.low, 2), bound(own.high, 2)
    return Message("found.alone", adjusted=adjusted, low=low, high=high, level=f"{own.level:.0%}")


def _adjusted(among: int) -> Name:
    return Message("found.adjusted", among=among) if among > 1 else ""


def _behind(answer: Answer, names: Names) -> Message:
    """Which arms were not compared, and what each gained on what it completed."""
    told = [
        names[it.arm_id]
        if it.speedup is None
        else Message(
            "detail.behind_one",
            method=names[it.arm_id],
            speedup=f"{it.speedup.point:.2f}",
            count=it.prompts,
            all=it.of,
        )
        for it in answer.behind
    ]
    return Message("detail.behind", arms=told)


def _kinds(answer: Answer, names: Names) -> Value:
    """Every kind with its interval, and what these intervals hold for."""
    listed = [_of_kind(it, answer.arm_id, names) for it in answer.by_kind]
    level = f"{answer.by_kind[0].speedup.level:.0%}" if answer.by_kind else ""
    return Message("answer.kinds", listed=listed, level=level, count=len(answer.by_kind)) if answer.by_kind else listed


def _of_kind(it: BestForKind, best: str, names: Names) -> Message:
    """`code 1.08x [1.01, 1.15]`, and with which arm where it is not the best one over all."""
    low, high = ("?" if end is None else bound(end, 2) for end in (it.speedup.low, it.speedup.high))
    said: dict[str, Value] = {"kind": it.kind, "speedup": f"{it.speedup.point:.2f}", "low": low, "high": high}
    if it.arm_id == best:
        return Message("answer.of_kind", **said)
    return Message("answer.of_kind_with", **said, method=names[it.arm_id])


def _advice(answer: Answer) -> Message:
    """How much more measuring would help."""
    margin = f"{MARGIN:.0%}"
    if answer.units_advised is None:
        return Message("advice.never", margin=margin)
    return Message(f"advice.{answer.unit}s", count=answer.units_advised, margin=margin)


def _help(answer: Answer) -> Message:
    """What would help where blocks say nothing: a quiet machine, and how many of them if that can be done at all."""
    if answer.units_advised is None:
        return Message("host-busy.fix_others")
    return Message(f"advice.noisy_{answer.unit}s", count=answer.units_advised, margin=f"{NOISY_MARGIN:.0%}")


def _with_prompt(speedup: Estimate, among: int) -> Message:
    point = f"{speedup.point:.2f}"
    if speedup.low is None or speedup.high is None:
        return Message("detail.with_prompt_point", speedup=point)
    low, high = bound(speedup.low, 2), bound(speedup.high, 2)
    return Message("detail.with_prompt", speedup=point, low=low, high=high, adjusted=_adjusted(among))


def _pooled(answer: Answer) -> Message:
    gain = answer.gain
    pooled, gap = f"{gain.pooled.point:.2f}", gain.pooled_differs
    return Message(
        "detail.pooled" if abs(gap) <= GAP else "detail.pooled_differs",
        **({"pooled": pooled} if abs(gap) <= GAP else {"pooled": pooled, "gap": f"{gap:+.1%}"}),
    )


def _prompts(answer: Answer) -> Message:
    gain = answer.gain
    if gain.prompts == 1 or gain.lowest is None or gain.highest is None:
        return Message("detail.one_prompt")
    said = {"lowest": bound(gain.lowest, 2), "highest": bound(gain.highest, 2)}
    other = gain.over_prompts
    if other is not None and other.low is not None and other.high is not None:
        low, high = bound(other.low, 2), bound(other.high, 2)
        outside = not other.low <= gain.decoding.point <= other.high
        return Message(
            "detail.other_prompts",
            **said,
            mean=f"{other.point:.2f}",
            low=low,
            high=high,
            level=f"{other.level:.0%}",
            count=gain.prompts,
            sort=Message("detail.sort_completed" if answer.left_out else "detail.sort"),
            outside=Message("detail.outside") if outside else "",
        )
    if gain.prompts < MIN_PROMPTS:
        return Message("detail.few_prompts", **said, count=gain.prompts)
    return Message("detail.no_other_prompts", **said)


def _stalls_of(answer: Answer) -> list[tuple[str, Stalls]]:
    """Those of the arm and of its baseline, where stalls could be seen."""
    sides = (answer.arm_id, answer.stalls), (answer.baseline_id, answer.baseline_stalls)
    return [(arm_id, stalls) for arm_id, stalls in sides if stalls is not None]


def _stalls(stalls: Stalls, arm: Name) -> Message:
    said = {"arm": arm, "count": stalls.requests, "all": stalls.of, "most": stalls.rate.high}
    return Message("detail.stalls", **said, slowest=f"{stalls.slowest:.1f}")


def _may_stall(stalls: Stalls, arm: Name) -> Message:
    """How often it may stall, though no request did."""
    return Message("detail.may_stall", arm=arm, all=stalls.of, most=stalls.rate.high)


def excluded_block(found: Disturbance, wait_s: float) -> Message:
    """Which block was disturbed, by what, and what becomes of it: so long calm is waited for at most."""
    then = Message("disturbed.again", time=duration(wait_s)) if wait_s >= 1 else Message("disturbed.at_once")
    then = then if found.again else Message("disturbed.given_up")
    return Message("disturbed.block", block=found.block + 1, what=found.what, then=then)


def excluded_blocks(run: RunReport, worst: Disturbance, names: Names) -> Message:
    """How many blocks were excluded, what disturbed the worst, and what all blocks together would say."""
    speedups = [
        Message("arm.of", target=names.in_full(arm_id), name=estimated(speedup, 2))
        for arm_id, speedup in run.over_all_blocks.items()
    ]
    whole = Message("disturbed.whole", speedups=speedups) if speedups else ""
    return Message("disturbed.blocks", count=len(run.disturbances), what=worst.what, whole=whole)


def looks_for(check: str) -> Message | None:
    """What goes wrong in measurements, that a check looks for; of checks of other versions nothing is known."""
    code = f"threat.{check}"
    return Message(code) if code in words() else None


def why_suspect(report: RunReport, arm_id: str) -> tuple[str | Message, ...]:
    """What makes an arm suspect, as notes below a table have it."""
    suspect = report.certificate is not None and report.certificate.arms.get(arm_id) == "suspect"
    return tuple(looks_for(it.check) or it.check for it in report.because(arm_id)) if suspect else ()
