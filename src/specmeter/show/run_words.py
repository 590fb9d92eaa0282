"""What a run, or a comparison of two, says in one sentence, and what must be known beside it, in any language.

What a run says of its loads together, in a sentence: up to how many clients speculation pays, in any language.

The tables of a run under load: speedups by load, and what each configuration did at each load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import MOST_FAILED, NOISY_MARGIN, least_units, says_nothing
from specmeter.analysis.load.crossover import way
from specmeter.messages import Message, Value, words
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import LEAST_PROMPTS
from specmeter.show.names import Name, Names, load_name
from specmeter.show.report import judged
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, numbers
from specmeter.text import bound, brackets, duration, estimated, percent, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specmeter.analysis.answer import Answer, OfKind
    from specmeter.analysis.comparison import ArmComparison, RunComparison
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.load.summary import LatencySummary, LoadSummary
    from specmeter.analysis.prediction.forecast import CrossoverOutcome
    from specmeter.analysis.prediction.speedup import ExpectedCrossover
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.requests import Stalls
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Disturbance, Estimate, Load


NAMELESS = Names()
"""Arms are called by their ids."""
GAP = 0.01
"""Total time and the mean over blocks that differ by more are worth a word."""


def sentence(answer: Answer, names: Names = NAMELESS) -> Message:
    """Like `dense: 1.93x as fast with small draft, 4 tokens (1.85 to 2.01; 4 blocks of 4 prompts)`."""
    if answer.load is not None:
        return _at_load(answer, answer.load, names)
    alone, together, equivalence = answer.speedup, answer.speedup_simultaneous, answer.comparison.equivalence
    said: dict[str, Value] = {
        "target": answer.baseline_id.replace("/none", "", 1),
        "method": names[answer.arm_id],
        "where": Message("answer.where", kind=answer.kind) if answer.kind else "",
        "speedup": f"{alone.point:.2f}",
        "rests": _rests(answer),
        "margin": f"{answer.comparison.margin:.0%}",
        "best": best_of(answer),
    }
    if answer.arm_id in answer.idle:
        return Message("answer.idle", **said)
    failed: dict[str, Value] = {"failed": answer.failed, "tried": answer.tried}
    if (alone.low is None or alone.high is None) and answer.failed > MOST_FAILED * answer.tried:
        return Message("answer.failed_most", **said, **failed)
    if alone.low is None or alone.high is None:
        if answer.speedup.n > 1:  # as of mocks, whose invocations are copies
            return Message("answer.equal", **said, count=answer.speedup.n)
        return Message("answer.no_interval", **said, more=_more(answer))
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
        return Message(f"answer.too_few_{answer.unit}s", **said, least=answer.units_least)
    if answer.decision == "too noisy":
        over: dict[str, Value] = {"units": _units(answer, together), "prompts": _which_prompts(answer)}
        return Message("answer.too_noisy", **said, **over, advice=_help(answer))
    if answer.decision == "speculate":
        return Message("answer.faster", **said, advice=_advice(answer) if _is_wide(together) else "")
    if answer.decision == "no difference":
        return Message("answer.equivalent", **said)
    if answer.comparison.conclusion == "not worse" and (equivalence.low or 0.0) <= 1:
        return Message("answer.not_worse", **said)
    return Message("answer.not_shown", **said, advice=_advice(answer))


def at_load(answer: Answer, load: Load) -> Message:
    """`dense at 4 clients`."""
    return Message("answer.with_load", target=answer.baseline_id.partition("/")[0], load=load_name(load))


def _at_load(answer: Answer, load: Load, names: Names) -> Message:
    """Like `dense at 4 clients: 1.18x the tokens per second of plain decoding with small draft, 4 tokens (...)`."""
    where = Message("answer.where", kind=answer.kind) if answer.kind else ""
    more, too_few_yet = _more(answer), answer.decision == "too few" and answer.resumes
    ratio = f"{answer.speedup.point:.2f}"
    return Message(
        "answer.idle"
        if answer.arm_id in answer.idle
        else "answer.too_few_yet"
        if too_few_yet
        else f"answer.load.{answer.decision}",
        target=at_load(answer, load),
        at=where,
        where=where,
        method=names.alone(answer.arm_id),
        speedup=Message("answer.of_rate" if load.clients is None else "answer.of_clients", speedup=ratio),
        rests=_rests(answer),
        failed=answer.failed,
        tried=answer.tried,
        units=Message(f"headline.{answer.unit}s"),
        least=Message(f"found.{answer.unit}s", count=answer.units_least),
        advice=_help(answer),
        more=more,
        best=best_of(answer),
    )


def best_of(answer: Answer) -> Name:
    """`best tried: `, or of which it is the best, as arms that do not compete may be above it; empty of one arm."""
    if any(it.prompts for it in answer.behind):
        return Message("answer.best.completed")
    if answer.idle:
        return Message("answer.best.drafted")
    if answer.elsewhere:
        return Message("answer.best.whole")
    return Message("answer.best") if answer.among > 1 else ""


def _more(answer: Answer) -> Message:
    """What would give an interval."""
    if answer.resumes:
        return Message("answer.again")
    return Message(f"answer.{'more' if answer.speedup.n > 1 else 'three'}_{answer.unit}s")


def _interval(answer: Answer) -> Estimate:
    """The interval that an answer rests on: of all arms together, but for "do not speculate" and "no difference"."""
    if answer.decision == "do not speculate":
        return answer.speedup
    conclusion, equivalence = answer.comparison.conclusion, answer.comparison.equivalence
    # An interval above 1 beside "no gain shown" would contradict it; the wider one by which none is shown says why.
    alike = answer.decision == "not shown" and conclusion == "not worse" and (equivalence.low or 0.0) <= 1
    return equivalence if alike or answer.decision == "no difference" else answer.speedup_simultaneous


def _rests(answer: Answer) -> Name:
    """`1.85 to 2.01; 4 blocks of 4 prompts`; empty without an interval."""
    found = _interval(answer)
    if found.low is None or found.high is None:
        return ""
    low, high = bound(found.low, 2), bound(found.high, 2)
    prompts = _which_prompts(answer)
    usual = found.level == answer.speedup.level
    told: dict[str, Value] = {"low": low, "high": high, "units": _units(answer, found), "prompts": prompts}
    return Message("found.rests", **told) if usual else Message("found.rests_level", **told, level=f"{found.level:.0%}")


def headline_interval(answer: Answer) -> Name:
    """The same in brackets, as rows have it."""
    found = _interval(answer)
    if found.low is None or found.high is None:
        return ""
    low, high = bound(found.low, 2), bound(found.high, 2)
    if found.level == answer.speedup.level:
        return Message("crossover.interval", low=low, high=high)
    return Message("headline.interval_level", low=low, high=high, level=f"{found.level:.0%}")


def _units(answer: Answer, found: Estimate) -> Message:
    return Message(f"found.{answer.unit}s", count=found.n)


def _on_kind(it: OfKind, best: str, names: Names) -> Message:
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


def _which_prompts(answer: Answer) -> Message:
    """`4 prompts`, or `the 4 of 8 prompts that it completed; it failed the others`."""
    count = answer.gain.prompts
    if answer.left_out:
        name = "found.completed" if answer.never_completed == answer.left_out else "found.both_completed"
        return Message(name, count=count, all=answer.prompts_given)
    return Message("found.prompts", count=count)


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


def _of_kind(it: OfKind, best: str, names: Names) -> Message:
    """`code 1.08x (1.01 to 1.15)`, and with which arm where it is not the best one over all."""
    low, high = ("?" if end is None else bound(end, 2) for end in (it.speedup.low, it.speedup.high))
    said: dict[str, Value] = {"kind": it.kind, "speedup": f"{it.speedup.point:.2f}", "low": low, "high": high}
    if it.arm_id == best:
        return Message("answer.of_kind", **said)
    return Message("answer.of_kind_with", **said, method=names[it.arm_id])


def _is_wide(speedup: Estimate) -> bool:
    """Whether the interval leaves more than 5 % to either side."""
    return speedup.low is None or speedup.high is None or speedup.high > 1.05**2 * speedup.low


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
            low=low,
            high=high,
            level=f"{other.level:.0%}",
            count=gain.prompts,
            sort=Message("detail.sort_completed" if answer.left_out else "detail.sort"),
            outside=Message("detail.outside") if outside else "",
        )
    if gain.prompts < LEAST_PROMPTS:
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


# --- two runs ---------------------------------------------------------------------------------------------------------

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


def crossover_sentence(found: Crossover, names: Names) -> Message:
    """Like `dense: speculation pays up to 3.1 clients [2.6, 3.8], with small draft, 4 tokens; measured at 1, 2, 4, 8
    clients`: never without the loads that it is about."""
    deep = Message("crossover.deep", depth=found.depth) if found.depth else ""
    arms = {it.arm_id for it in found.loads}
    ways = (
        Message("crossover.ways", count=found.ways)
        if found.ways > 1
        else Message("crossover.with", method=names.alone(min(arms)))
    )
    gains, losses = (
        Message(f"crossover.{kind}", loads=clients(at))
        if (at := [it.clients for it in found.loads if it.sign == sign])
        else ""
        for kind, sign in (("gains", "gain"), ("losses", "loss"))
    )
    among = len(found.loads) * found.ways
    needed, least = least_units(among), min((it.speedup.n for it in found.loads), default=0)
    return Message(
        f"crossover.{found.course}",
        few=Message("crossover.few", count=needed, all=among) if least < needed else "",
        over=Message("crossover.over", target=found.target, deep=deep),
        clients="" if found.clients is None else f"{found.clients.point:.1f}",
        interval=interval(found),
        ways=ways,
        gains=gains,
        losses=losses,
        loads=clients(found.measured),
    )


def foreseen_sentence(found: CrossoverOutcome, names: Names) -> Message:
    """Like `dense, with small draft, 4 tokens: predicted before measuring, speculation pays up to 3.1 clients
    [2.6, 3.8]; measured, speculation pays up to 2.9 clients [2.4, 3.3]`."""
    measured = found.measured
    deep = Message("crossover.deep", depth=found.depth) if found.depth else ""
    way = names.alone(min(it.arm_id for it in measured.loads))
    return Message(
        "crossover.foreseen",
        over=Message("crossover.over", target=measured.target, deep=deep),
        method=way,
        predicted=crossing(found.predicted),
        measured=crossing(measured, interval(measured)),
    )


def crossing(found: ExpectedCrossover | Crossover, within: Name = "") -> Message:
    """What a curve does, after `predicted` or `measured`; its interval `within` where that is told with open ends."""
    at = found.clients
    if at is None:
        return Message(f"crossing.{found.course}")
    return Message(f"crossing.{found.course}", clients=f"{at.point:.1f}", interval=within or f" {brackets(at, 1)}")


def main_crossovers(found: Iterable[Crossover]) -> list[Crossover]:
    """One for each target and depth: all ways of drafting together, or the only one."""
    first: dict[tuple[str, int], Crossover] = {}
    for it in found:
        first.setdefault((it.target, it.depth), it)
    return list(first.values())


def untold(report: RunReport) -> list[Answer]:
    """Answers that stand beside the crossovers in a heading: one per baseline, by kind of text only where nothing
    competes on all of them; at loads only where no crossover tells of them."""
    whole = {answer.baseline_id for answer in report.answers if not answer.kind}
    heads = [answer for answer in report.answers if not answer.kind or answer.baseline_id not in whole]
    plain = {arm.id: arm.baseline_id for arm in report.arms}
    crossed = {plain.get(at.arm_id) for it in report.crossovers for at in it.loads if it.course != "not shown"}
    return [answer for answer in heads if answer.baseline_id not in crossed]


def interval(found: Crossover) -> Name:
    """` [2.6, 3.8]`, with `8 or more` for an end that is open."""
    return spread(found.clients, found.measured, open_low=found.open_low, open_high=found.open_high)


def spread(at: Estimate | None, loads: Sequence[int], *, open_low: bool, open_high: bool) -> str | Message:
    """The interval of a crossover between loads, the fewest clients first; an open end lies at the last of them, or
    beyond."""
    if at is None:
        return ""
    if at.low is None or at.high is None:
        return Message("crossover.no_interval")
    low = Message("crossover.or_fewer", first=loads[0]) if open_low else bound(at.low, 1)
    high = Message("crossover.or_more", last=loads[-1]) if open_high else bound(at.high, 1)
    return Message("crossover.interval", low=low, high=high)


def clients(counts: Iterable[int]) -> Message:
    """`1, 2, 4, 8 clients`."""
    listed = list(counts)
    if listed == [1]:
        return Message("crossover.one_client")
    return Message("crossover.clients", counts=listed)


def set_aside(found: Disturbance, wait_s: float) -> Message:
    """Which block was disturbed, by what, and what becomes of it: so long calm is waited for at most."""
    then = Message("disturbed.again", time=duration(wait_s)) if wait_s >= 1 else Message("disturbed.at_once")
    then = then if found.again else Message("disturbed.given_up")
    return Message("disturbed.block", block=found.block + 1, what=found.what, then=then)


def blocks_set_aside(run: RunReport, worst: Disturbance, names: Names) -> Message:
    """How many blocks were set aside, what disturbed the worst, and what all blocks together would say."""
    speedups = [
        Message("arm.of", target=names.in_full(arm_id), name=estimated(speedup, 2))
        for arm_id, speedup in run.over_all_blocks.items()
    ]
    whole = Message("disturbed.whole", speedups=speedups) if speedups else ""
    return Message("disturbed.blocks", count=len(run.disturbances), what=worst.what, whole=whole)


def loaded(report: RunReport) -> list[tuple[ArmSummary, LoadSummary]]:
    """The arms that were measured under load, by target, then by load, baselines first."""
    return [(arm, arm.load) for arm in report.summary.arms if arm.load is not None]


def loads_of(report: RunReport, target: str) -> list[Load]:
    """The loads of a target, in their order."""
    arms = {arm.id: arm for arm in report.arms}
    found = {it.load.label: it.load for arm, it in loaded(report) if arms[arm.arm_id].target == target}
    return sorted(found.values(), key=lambda it: (it.depth, it.clients is None, it.clients or 0, it.rate or 0.0))


def targets_of(report: RunReport) -> list[str]:
    """Targets that were measured under load."""
    arms = {arm.id: arm for arm in report.arms}
    return list(dict.fromkeys(arms[arm.arm_id].target for arm, _ in loaded(report)))


def speedups_by_load(report: RunReport, target: str) -> list[Table]:
    """One target: ways of drafting against loads, a table for clients and one for rates at each depth; in the first row
    the total tokens per second without speculation. None where nothing decodes plainly beside it."""
    if not any(arm.target == target and arm.baseline_id for arm in report.arms):
        return []
    alike: dict[tuple[int, bool], list[Load]] = {}
    for load in loads_of(report, target):
        alike.setdefault((load.depth, load.clients is None), []).append(load)
    return [_speedups(report, target, loads) for loads in alike.values()]


def _speedups(report: RunReport, target: str, loads: Sequence[Load]) -> Table:
    arms = {arm.id: arm for arm in report.arms}
    names, english = Names(report.arms), words()
    labels = {load.label for load in loads}
    rows: dict[str, dict[str, ArmSummary]] = {}
    for arm, it in loaded(report):
        asked = arms[arm.arm_id]
        if asked.target == target and it.load.label in labels:
            rows.setdefault(way(asked), {})[it.load.label] = arm
    shown: list[Row] = []
    for of in rows.values():
        first = next(iter(of.values()))
        name = english.render(names.alone(first.arm_id))
        if first.cost_probe:
            name += f" [cost probe: {first.cost_probe}]"
        if first.role == "baseline":
            name += ", tok/s"
        cells = (_of_load(report, of.get(load.label)) for load in loads)
        shown.append(Row((Cell(name), *cells)))
    columns = [
        Column(named, "number", named, narrow="point") for named in [words().render(load_name(load)) for load in loads]
    ]
    name = "-".join(("speedups_by_load", target, *sorted(labels)))
    return Table(name, (Column("configuration", title=target), *columns), shown, Message("table.speedups_by_load"))


def _of_load(report: RunReport, arm: ArmSummary | None) -> Cell:
    if arm is None or arm.load is None:
        return Cell("")
    verdict = report.certificate.arms.get(arm.arm_id, "invalid") if report.certificate else None
    mark = "suspect" if verdict == "suspect" else None
    if verdict == "invalid":
        return Cell("invalid", tone="bad")
    if arm.role == "baseline":
        rate = arm.load.throughput
        return Cell("-" if rate is None else f"{rate.point:.1f}", mark=mark)
    cited = report.cited(arm)
    low, high = (cited.low, cited.high) if cited else (None, None)
    if low is not None and high is not None and says_nothing(low, high):
        return Cell("too noisy", tone="doubtful")
    return estimate_cell(cited, 2, mark=mark)


def load_table(report: RunReport) -> Table:
    """Every configuration at every load: throughput, what one client gets, latencies, goodput, busy slots."""
    arms, names = {arm.id: arm for arm in report.arms}, Names(report.arms)
    found = loaded(report)
    several = len(targets_of(report)) > 1
    good = any(it.goodput is not None for _, it in found)
    busy = any(it.busy_slots is not None for _, it in found)
    far = any((it.ttft and it.ttft.p99) or (it.tpot and it.tpot.p99) for _, it in found)
    columns = (
        *((Column("target"),) if several else ()),
        Column("load"),
        Column("arm"),
        Column("speedup", "number"),
        Column("throughput", "number", narrow="point"),
        Column("decode_throughput", "number", narrow="drop"),
        Column("per_client", "number", narrow="point"),
        Column("ttft_mean", "number", narrow="drop"),
        *(Column(f"ttft_{it}", "number", narrow="point") for it in ("p50", "p95", *(("p99",) if far else ()))),
        Column("tpot_mean", "number", narrow="drop"),
        *(Column(f"tpot_{it}", "number", narrow="point") for it in ("p50", "p95", *(("p99",) if far else ()))),
        *(Column(f"{of}_{it}", "number", narrow="drop") for of in ("itl", "e2el") for it in ("p50", "p95")),
        Column("requests_rate", "number", narrow="drop"),
        *((Column("goodput", "number", narrow="point"),) if good else ()),
        *((Column("busy_slots", "number", narrow="point"),) if busy else ()),
        Column("acceptance", "number"),
        Column("tau", "number"),
        Column("window_share", "number", narrow="drop"),
        Column("cells", "number"),
        Column("verdict"),
    )
    rows: list[Row] = []
    for target in targets_of(report):
        for load in loads_of(report, target):
            for arm, it in found:
                if it.load != load or arms[arm.arm_id].target != target:
                    continue
                verdict = report.certificate.arms.get(arm.arm_id) if report.certificate else None
                struck = verdict == "invalid"
                cells = (
                    *((Cell(target),) if several else ()),
                    Cell(load_name(load)),
                    Cell(names.alone(arm.arm_id), id=arm.arm_id),
                    Cell(Message("cell.baseline")) if arm.role == "baseline" else _speedup(report, arm),
                    estimate_cell(it.throughput, 1, struck=struck),
                    estimate_cell(it.decode_throughput, 1, struck=struck),
                    estimate_cell(it.per_client, 1, struck=struck),
                    *_latency(it.ttft, 0, far=far, struck=struck),
                    *_latency(it.tpot, 1, far=far, struck=struck),
                    *_latency(it.itl, 1, far=False, struck=struck)[1:],
                    *_latency(it.e2el, 0, far=False, struck=struck)[1:],
                    estimate_cell(it.requests_rate, 2, struck=struck),
                    *((estimate_cell(it.goodput, 2, struck=struck),) if good else ()),
                    *((estimate_cell(it.busy_slots, 2, struck=struck),) if busy else ()),
                    estimate_cell(arm.acceptance, 1, scale=100, struck=struck),
                    estimate_cell(arm.tau, 2, struck=struck),
                    Cell("-" if it.window_share is None else percent(it.window_share), it.window_share),
                    counted(it.cells),
                    judged(verdict, simulated=report.simulated),
                )
                of = {"target": printable(target)}
                rows.append(Row(cells, verdict, filed=of, why=why_suspect(report, arm.arm_id)))
    return Table("load", columns, rows)


def looks_for(check: str) -> Message | None:
    """What goes wrong in measurements, that a check looks for; of checks of other versions nothing is known."""
    code = f"threat.{check}"
    return Message(code) if code in words() else None


def why_suspect(report: RunReport, arm_id: str) -> tuple[str | Message, ...]:
    """What makes an arm suspect, as notes below a table have it."""
    suspect = report.certificate is not None and report.certificate.arms.get(arm_id) == "suspect"
    return tuple(looks_for(it.check) or it.check for it in report.because(arm_id)) if suspect else ()


def _speedup(report: RunReport, arm: ArmSummary) -> Cell:
    """A speedup; struck out where it was measured and is false."""
    withheld = report.withheld.get(arm.arm_id)
    return estimate_cell(withheld, 2, struck=True) if withheld else estimate_cell(report.cited(arm), 2)


def load_overview(report: RunReport) -> Table:
    """The same in brief, for terminals: points alone, grouped by target and load."""
    arms, names, english = {arm.id: arm for arm in report.arms}, Names(report.arms), words()
    found = loaded(report)
    good = any(it.goodput is not None for _, it in found)
    busy = any(it.busy_slots is not None for _, it in found)
    arriving = any(it.load.clients is None for _, it in found)
    several = len(targets_of(report)) > 1
    rows: list[Row] = []
    for target in targets_of(report):
        for load in loads_of(report, target):
            head = english.render(load_name(load))
            rows.append(Row((Cell(f"{target}, {head}" if several else head),), tone="strong"))
            for arm, it in found:
                if it.load != load or arms[arm.arm_id].target != target:
                    continue
                name = Cell(f"  {english.render(names.alone(arm.arm_id))}")
                if arm.arm_id in report.invalid:
                    rows.append(Row((name, Cell("invalid", tone="bad"))))
                    continue
                ttft, tpot = it.ttft, it.tpot
                values = (
                    (it.throughput, 1),
                    (it.per_client, 1),
                    *(((ttft.p50, 0), (ttft.p95, 0)) if ttft else ((None, 0), (None, 0))),
                    *(((tpot.p50, 1), (tpot.p95, 1)) if tpot else ((None, 0), (None, 0))),
                    *(((it.requests_rate, 2),) if arriving else ()),
                    *(((it.goodput, 2),) if good else ()),
                    *(((it.busy_slots, 1),) if busy else ()),
                )
                rows.append(Row((name, *(Cell("-" if at is None else f"{at.point:.{n}f}") for at, n in values))))
    titles = ["tok/s", "per client", "ttft p50", "ttft p95", "tpot p50", "tpot p95"]
    titles += [
        *(["requests/s"] if arriving else []),
        *(["good/s"] if good else []),
        *(["requests/forward"] if busy else []),
    ]
    columns = (Column("configuration", title=" "), *numbers(*titles))
    rows = [Row((*row.cells, *(Cell(""),) * (len(columns) - len(row.cells))), tone=row.tone) for row in rows]
    return Table("load_overview", columns, rows, Message("table.load"))


def _latency(found: LatencySummary | None, digits: int, *, far: bool, struck: bool) -> tuple[Cell, ...]:
    values: Sequence[Estimate | None] = (None,) * 4 if found is None else (found.mean, found.p50, found.p95, found.p99)
    return tuple(estimate_cell(it, digits, struck=struck) for it in (values if far else values[:3]))


def window_span(report: RunReport) -> Value | None:
    """The least and the largest share of an arm's cells that lies in their steady windows."""
    shares = [it.window_share for _, it in loaded(report) if it.window_share is not None]
    if not shares:
        return None
    least, most = percent(min(shares)), percent(max(shares))
    return least if least == most else Message("check.range", low=least, high=most)


LONG_TAIL = 0.6
"""Share of the cells' time below which a few long answers decide: others waited for their ends, and sent fillers."""


def left_out(report: RunReport) -> list[Message]:
    """Arms whose cells do not all count, or not for most of their time, each with why; what a reader of the tables must
    know."""
    names = Names(report.arms)
    lost = [
        Message(
            "load.left_out",
            arm=names.in_full(arm.arm_id),
            broken=it.broken_off,
            windowless=it.without_window,
            all=it.cells + it.broken_off + it.without_window,
        )
        for arm, it in loaded(report)
        if it.broken_off or it.without_window
    ]
    tails = [
        (it.window_share, arm.arm_id)
        for arm, it in loaded(report)
        if (it.load.clients or 1) > 1 and it.window_share is not None and it.window_share < LONG_TAIL
    ]
    if not tails:
        return lost
    share, worst = min(tails)
    return [*lost, Message("load.long_tail", arms=len(tails), share=share, arm=names.in_full(worst))]
