"""What an advice says, sentence by sentence: the answer, why, what was compared, what became of the rest, what to mind.

Everything in an advice may come from a stranger's folder: it is filled into our sentences and cleaned there.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import DRAFTS, LEAVES_OFF
from specmeter.advise.confirm import LONGER
from specmeter.advise.export_commands import MEASURED, PROGRAMS, elsewhere
from specmeter.engines import Launch
from specmeter.engines.registry import serving_command
from specmeter.messages import Message, Value, words
from specmeter.numbers.margin import MARGIN
from specmeter.show.names import Names, clients_name
from specmeter.show.report import Text
from specmeter.show.table import TONES
from specmeter.text import brackets, duration, estimated, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.advise.advice import Advice, AdviceOfKind, ArmOutcome, TriedSettings
    from specmeter.record import Estimate


_LEFT_OUT = {
    **dict.fromkeys(("cannot-gain", "cannot-win", "as-good"), "no-better"),
    **{code: code for code in ("no-room", "failed", "open")},
}
"""Outcome of arms that were not raced -> what they are counted as, in this order."""
_SHORT = 6
"""Configurations that are told without a race, the most promising first."""


def names_of(advice: Advice) -> Names:
    """What its arms are called; of all at one load, without it."""
    kinds = (it.arm for it in advice.by_kind)
    known = {arm.id: arm for arm in (*advice.arms, advice.baseline, advice.arm, *kinds) if arm is not None}
    return Names(arm if advice.asked.load is None else arm.model_copy(update={"load": None}) for arm in known.values())


def target_of(advice: Advice) -> str:
    """What its target is called."""
    arm = advice.arm or advice.baseline
    return advice.target.name if advice.target else arm.target if arm else advice.asked.target


# --- the answer ------------------------------------------------------------------------------------------------------


def headline(advice: Advice, names: Names) -> Message:
    """Like `dense: 1.92x as fast [1.85, 1.99] with draft model small, 4 draft tokens`."""
    said: dict[str, Value] = {"target": _asked_of(advice)} | _best(advice, names)
    has_number = "speedup" in said
    if advice.again is not None:
        return _again(advice, said)
    if disagree(advice) and has_number:
        return Message("advised.depends", target=said["target"], kinds=[_in_short(it) for it in advice.by_kind])
    if is_open(advice) or (not has_number and advice.decision not in LEAVES_OFF):
        return Message("advised.undecided", target=said["target"], why=why_undecided(advice))
    if advice.basis == "predicted" and has_number and not advice.outcomes:
        return Message("advised.guess", **said)
    if advice.basis == "predicted" and has_number:
        return Message(f"advised.predicted.{advice.decision}", **said)
    return Message(f"advised.{advice.decision}" if has_number else "advised.off_none", **said)


def rests(advice: Advice, names: Names) -> Message | None:
    """What the first line rests on, and what it does not say: `confirmed on 4 new prompts in 3 blocks`, `best so far:
    1.05x [0.96, 1.14] with ngram-mod, n-max 3; ...`."""
    said = _best(advice, names)
    if advice.again is None and is_open(advice) and advice.verdict != "invalid":
        return Message("advised.best_so_far", **said, rests=_rests(advice)) if said else Message("advised.nothing_yet")
    if not said or advice.basis == "predicted":
        return None
    if advice.again is not None and advice.again.before is not None:
        return Message("advised.again.rests", before=ratio(advice.again.before), rests=_rests(advice))
    if advice.again is None and disagree(advice):
        sort = "" if advice.decision in DRAFTS else "_off" if advice.decision in LEAVES_OFF else "_open"
        return Message(f"advised.over_all{sort}", **said, rests=_rests(advice))
    return _rests(advice)


def _best(advice: Advice, names: Names) -> dict[str, Value]:
    """What the best configuration is called, and its speedup; empty where none has one that counts."""
    if advice.best is None or advice.speedup is None or advice.verdict == "invalid":
        return {}
    interval = brackets(advice.speedup, 2)
    said: dict[str, Value] = {"point": advice.speedup.point, "interval": interval, "speedup": ratio(advice.speedup)}
    return {"method": _method(advice, advice.best, names), **said}


def _method(advice: Advice, best: str, names: Names) -> Value:
    """What an arm is called, or two of which either may be the faster one."""
    if advice.rival and advice.decision in DRAFTS:
        return Message("advised.either", first=names[best], second=names[advice.rival])
    return names[best]


def _asked_of(advice: Advice) -> str | Message:
    """`dense`, `dense, 4 clients`."""
    load = advice.asked.load
    if load is None:
        return target_of(advice)
    return Message("arm.parts", parts=(target_of(advice), clients_name(load)))


def is_open(advice: Advice) -> bool:
    """Whether it is told as undecided: it is, or it was interrupted before anything was confirmed. What the screen
    alone predicts is told as such."""
    stopped = advice.why_undecided == "interrupted" and advice.basis != "confirmed"
    waits = advice.basis == "predicted" and not advice.why_undecided and advice.speedup is not None
    return stopped or (advice.decision == "undecided" and not waits)


def _again(advice: Advice, said: dict[str, Value]) -> Message:
    again = advice.again
    assert again is not None
    if "speedup" not in said:
        told = Message("advised.again.nothing")
    else:
        kept_off = advice.decision in LEAVES_OFF and advice.arm is None and again.before is not None
        told = Message(f"advised.again.{'off' if kept_off else 'now'}", **said)
    return Message(f"advised.again.{again.holds}", target=said["target"], when=day(again.made_at), told=told)


def why_undecided(advice: Advice) -> str | Message:
    """Why it is undecided, in a few words; a code of a later version as it is."""
    code = advice.why_undecided or "unfinished"
    return Message(f"advised.why.{code}", **_busy(advice)) if f"advised.why.{code}" in words() else code


def _busy(advice: Advice) -> dict[str, Value]:
    """Of a busy machine: what disturbed it, what would end that, and how many threads would leave it its cores."""
    found, host = advice.disturbed, advice.host
    if advice.why_undecided != "busy":
        return {}
    what = Message("disturbed.much") if found is None else found.what
    if found is None:
        until = Message("disturbed.ends", programs=[Message("disturbed.others")])
        return {"what": what, "until": until, "threads": Message("advised.decide.keep")}
    return {"what": what, **found.ways_out(host)}


def ratio(speedup: Estimate) -> Message:
    """`1.92x [1.85, 1.99]`."""
    return Message("advised.ratio", point=speedup.point, interval=brackets(speedup, 2))


def _rests(advice: Advice) -> Message:
    stage = advice.stage_of(advice.basis)
    if advice.basis == "predicted":
        return Message("advised.rests.predicted")
    unsettled = is_open(advice) or (advice.again is not None and advice.again.holds != "holds")
    basis = "measured" if advice.basis == "confirmed" and unsettled else advice.basis
    if stage is None or not stage.blocks or (advice.basis == "confirmed" and not stage.prompts):
        return Message(f"advised.rests.{basis}_short")
    other = "other" if advice.held_out else "same"
    said: dict[str, Value] = {
        "prompts": Message(f"advised.{'calls' if advice.asked.sessions else 'prompts'}.{other}", count=stage.prompts),
        "blocks": Message("advised.blocks", count=stage.blocks),
    }
    if basis == "confirmed" and advice.over_prompts is not None:
        return Message("advised.rests.over_prompts", like=brackets(advice.over_prompts, 2), **said)
    if basis == "confirmed" and advice.decision == "on-these-prompts":
        return Message("advised.rests.few", **said)
    return Message(f"advised.rests.{basis}", **said)


def disagree(advice: Advice) -> bool:
    """Whether speculation pays on some kinds of text, and is to be off on others."""
    decisions = {it.decision for it in advice.by_kind}
    found = not decisions.isdisjoint(DRAFTS) and not decisions.isdisjoint(LEAVES_OFF)
    return found and advice.basis == "confirmed" and advice.why_undecided != "interrupted"


def _in_short(it: AdviceOfKind) -> Message:
    """`code 1.90x`, `chat no speculation`."""
    if it.decision in DRAFTS and it.speedup is not None:
        return Message("answer.on_kind", kind=it.kind, speedup=f"{it.speedup.point:.2f}")
    return Message(f"advised.on_kind.{'off' if it.decision in LEAVES_OFF else 'undecided'}", kind=it.kind)


def by_kind(advice: Advice, names: Names) -> list[tuple[Message, tuple[str, ...]]]:
    """`code: 1.90x [1.80, 2.01] with ngram-mod, n-max 8`, `chat: no speculation`, and the commands."""
    return [(_of_kind(it, names), _line(it, advice)) for it in advice.by_kind]


def _line(it: AdviceOfKind, advice: Advice) -> tuple[str, ...]:
    """The command for a kind; none where that of the whole answer serves, or its draft is not known here."""
    arm, target, engine = it.arm, advice.target, advice.engine
    if it.decision not in DRAFTS or arm is None or target is None or engine is None or not commands(advice):
        return ()
    draft = advice.draft if arm.draft is not None else None
    if arm.draft is not None and (draft is None or draft.name != arm.draft):
        return ()
    line = serving_command(engine.kind, Launch(arm, target, draft, Path()), ())
    return () if line is None or line == advice.command else line


def _of_kind(it: AdviceOfKind, names: Names) -> Message:
    said: dict[str, Value] = {"kind": it.kind}
    if it.speedup is not None:
        said["speedup"] = ratio(it.speedup)
    if it.decision in LEAVES_OFF:
        return Message("advised.of_kind.off_at" if it.speedup else "advised.of_kind.off", **said)
    if it.arm is None or it.speedup is None:
        return Message("advised.of_kind.undecided", **said)
    said["method"] = names[it.arm.id]
    return Message(f"advised.of_kind.{'speculate' if it.decision in DRAFTS else 'undecided_at'}", **said)


def commands(advice: Advice) -> dict[str, tuple[str, ...]]:
    """Program -> its command line to paste; none where the numbers are false.

    The record may be a stranger's, and its reader may paste. So the line that was measured starts the program of
    the engine.
    """
    if not advice.command or advice.verdict == "invalid" or not _is_measured(advice, advice.command[0]):
        return {}
    others = {program: it.line for program, it in elsewhere(advice).items() if it.line}
    return {advice.command[0]: advice.command, **others}


def is_elsewhere(program: str) -> bool:
    """Whether nothing was measured with a program."""
    return program in PROGRAMS and program != MEASURED


def _is_measured(advice: Advice, program: str) -> bool:
    """Whether a program is that of the engine that measured: another author's engine says so only where it measured."""
    arm = advice.arm or advice.baseline
    if program == MEASURED or arm is None or advice.target is None or advice.engine is None:
        return program == MEASURED
    line = serving_command(advice.engine.kind, Launch(arm, advice.target, advice.draft, Path()), ())
    return line is not None and line[0] == program


def would_decide(advice: Advice, folder: Path) -> Message | None:
    """What would decide an undecided advice."""
    name = f"advised.decide.{advice.why_undecided or 'unfinished'}"
    if not is_open(advice) or name not in words():
        return None
    said: dict[str, Value] = {"budget": _budget(advice), "folder": _stage_folder(advice, folder), **_busy(advice)}
    aside = [it.folder for it in advice.stages if it.disturbed is not None]
    if aside:
        said["folder"] = quoted(str(folder / aside[-1]))
    return Message(f"{name}.see" if aside and advice.why_undecided == "busy" else name, **said)


def _stage_folder(advice: Advice, folder: Path) -> str:
    """The run that the answer rests on, as it is pasted."""
    stage = advice.stage_of(advice.basis)
    return quoted(str(folder / stage.folder if stage else folder))


def drafts(advice: Advice) -> Iterator[Message]:
    """`qwen-0.5b as draft model: slower at every draft length (best: 0.56x [0.50, 0.62], predicted, 41% of draft tokens
    accepted)`: every draft model that was tried and is not the answer."""
    arms = {arm.id: arm for arm in advice.arms}
    best: dict[str, ArmOutcome] = {}
    for outcome in advice.outcomes:
        draft = arms[outcome.arm_id].draft if outcome.arm_id in arms else None
        if draft is not None and (draft not in best or _known(outcome) > _known(best[draft])):
            best[draft] = outcome
    for draft, outcome in best.items():
        speedup = outcome.confirmed or outcome.raced or outcome.predicted
        if speedup is None or (advice.arm is not None and advice.arm.draft == draft):
            continue
        lost = all(_loses(it) for it in advice.outcomes if it.arm_id in arms and arms[it.arm_id].draft == draft)
        said: dict[str, Value] = {"draft": draft, "speedup": ratio(speedup)}
        said["how"] = Message("advised.draft.predicted" if speedup is outcome.predicted else "advised.draft.measured")
        said["accepted"] = (
            "" if outcome.acceptance is None else Message("advised.draft.accepted", share=outcome.acceptance)
        )
        yield Message("advised.draft.slower" if lost else "advised.draft.best", **said)


def _loses(outcome: ArmOutcome) -> bool:
    speedup = outcome.confirmed or outcome.raced or outcome.predicted
    return outcome.code == "cannot-gain" or (speedup is not None and speedup.high is not None and speedup.high < 1)


def _known(outcome: ArmOutcome) -> tuple[bool, float]:
    """Measured ones first, then by speedup."""
    measured = outcome.confirmed or outcome.raced
    speedup = measured or outcome.predicted
    return measured is not None, 0.0 if speedup is None else speedup.point


# --- why, and the rest of the grid -----------------------------------------------------------------------------------


def reason(advice: Advice) -> Message | None:
    """`Why: an average step yields 3.10 tokens and takes as long as 1.61 steps without speculation.`"""
    decoding = advice.asked.goal == "throughput"
    if not decoding or is_open(advice) or advice.tau is None or advice.speedup is None or advice.speedup.point <= 0:
        return None
    cost = advice.tau.point / advice.speedup.point
    return Message("advised.reason", tau=advice.tau.point, cost=cost)


def is_compared(outcome: ArmOutcome) -> bool:
    """Whether its arm was measured against others."""
    return outcome.raced is not None or outcome.confirmed is not None or outcome.code in ("slower", "equivalent")


def shown_outcomes(advice: Advice) -> list[ArmOutcome]:
    """Outcomes that the short table has: what was compared; before there is any, what is most promising."""
    compared = [outcome for outcome in advice.outcomes if is_compared(outcome) or outcome.code == "winner"]
    if any(is_compared(outcome) for outcome in compared):
        return compared
    known = [outcome for outcome in advice.outcomes if outcome.predicted is not None]
    might_win = [outcome for outcome in known if outcome.code in ("winner", "open", "no-room")] or known
    return sorted(might_win, key=lambda outcome: -(outcome.predicted.point if outcome.predicted else 0))[:_SHORT]


def counts(advice: Advice) -> Message | None:
    """`214 configurations: 5 measured, 209 predicted to be no better.`; None where all were measured."""
    found = Counter(
        "measured" if is_compared(outcome) else _LEFT_OUT.get(outcome.code, outcome.code) for outcome in advice.outcomes
    )
    if found.keys() <= {"measured"}:
        return None
    order = ("measured", *dict.fromkeys(_LEFT_OUT.values()))
    found["other"] = sum(found.values()) - sum(found[code] for code in order)
    parts = [Message(f"advised.count.{code}", count=found[code]) for code in (*order, "other") if found[code]]
    return Message("advised.counts", count=len(advice.outcomes), parts=parts)


def outcome_told(outcome: ArmOutcome, advice: Advice, names: Names) -> Message:
    """What became of an arm, with the numbers behind it."""
    said: dict[str, Value] = {"margin": MARGIN, "blocks": Message("advised.blocks", count=outcome.blocks)}
    if outcome.predicted is not None:
        said["predicted"] = ratio(outcome.predicted)
    if outcome.than is not None and outcome.ratio is not None:
        said |= {"than": names[outcome.than], "ratio": estimated(outcome.ratio, 2)}
    if outcome.why:
        said["why"] = outcome.why
    needs = {
        "cannot-gain": ("predicted",),
        "no-room": ("predicted",),
        "failed": ("why",),
        "winner": (),
    }.get(outcome.code, ("than", "ratio"))
    if outcome.code == "winner":
        return Message(f"advised.outcome.{_winner(advice)}")
    complete = all(name in said for name in needs) and (
        outcome.code not in ("slower", "equivalent", "open") or outcome.blocks
    )
    return Message(f"advised.outcome.{outcome.code}" if complete else f"advised.outcome.{outcome.code}_bare", **said)


def outcome_in_short(outcome: ArmOutcome, advice: Advice) -> Message:
    """The same in a word or two."""
    return Message(f"advised.short.{_winner(advice) if outcome.code == 'winner' else outcome.code}")


def _winner(advice: Advice) -> str:
    if advice.decision in LEAVES_OFF:
        return "winner_off"
    settled = advice.decision in DRAFTS and advice.basis == "confirmed" and not is_open(advice)
    return "winner" if settled else "winner_so_far"


def about_numbers(advice: Advice) -> list[Message]:
    """What the speedups and the brackets of the table are."""
    of = [Message("advised.latency")] if advice.asked.goal == "latency" else []
    return [*of, _intervals(advice)]


def _intervals(advice: Advice) -> Message:
    if any(outcome.confirmed is not None for outcome in advice.outcomes):
        two = advice.held_out and advice.verdict != "invalid" and any(outcome.raced for outcome in advice.outcomes)
        return Message("advised.intervals" if two else "advised.intervals.alone")
    raced = any(is_compared(outcome) for outcome in advice.outcomes)
    return Message("advised.intervals.raced" if raced else "advised.intervals.predicted")


# --- what to mind ----------------------------------------------------------------------------------------------------


def simulated(advice: Advice) -> bool:
    """Whether a mock was asked, so that nothing was measured."""
    return any(it is not None and it.simulated for it in (advice.target, advice.draft))


def notes(advice: Advice, folder: Path, names: Names) -> Iterator[Text]:
    """What a reader should know, what matters most first."""
    models = [it for it in (advice.target, advice.draft) if it is not None]
    if simulated(advice):
        yield Text(Message("advised.note.simulated"), "strong")
    if advice.why_undecided == "changed":
        yield Text(Message("advised.note.changed_since"), "bad")
    elif advice.uncertified:
        told = Message(f"advised.note.uncertified.{advice.uncertified}", folder=quoted(str(folder)))
        yield Text(told, TONES["suspect"])
    elif advice.verdict in ("invalid", "suspect"):
        place: dict[str, Value] = {"folder": _stage_folder(advice, folder)}
        if advice.verdict == "suspect" and advice.doubts:
            checks = [Message(code) if (code := f"threat.{it}") in words() else it for it in advice.doubts]
            yield Text(Message("advised.note.suspect_by", **place, checks=checks), TONES["suspect"])
        else:
            yield Text(Message(f"advised.note.{advice.verdict}", **place), TONES[advice.verdict])
    if advice.again is not None:
        changes = [Text(_changed(it.what, it.before, it.now), "doubtful") for it in advice.again.changed]
        yield from changes or [Text(Message("advised.note.unchanged"))]
    if not advice.finished:
        yield Text(Message("advised.note.uncovered" if is_open(advice) else "advised.note.unfinished"), "doubtful")
    if advice.basis == "confirmed" and not advice.held_out:
        yield Text(Message("advised.note.same_prompts"), "doubtful")
    if advice.basis == "confirmed" and advice.confirmation == LONGER:
        yield Text(Message("advised.note.longer"))
    if 0 < advice.prompts_used < advice.prompts_given:
        given: dict[str, Value] = {"used": advice.prompts_used, "given": advice.prompts_given}
        yield Text(Message("advised.note.prompts_left", **given), "doubtful")
    if advice.seconds > advice.asked.budget_s and not simulated(advice):
        took = duration(advice.seconds)
        yield Text(Message("advised.note.over_budget", took=took, budget=_budget(advice)), "doubtful")
    alike = sum(outcome.code == "open" and bool(outcome.blocks) for outcome in advice.outcomes)
    if alike and advice.decision in DRAFTS and advice.finished:
        yield Text(Message("advised.note.not_told_apart", count=alike))
    yield from _settings(advice)
    for outcome in advice.outcomes:
        if outcome.code == "failed" and outcome.why:
            yield Text(Message("advised.note.failed", method=names[outcome.arm_id], why=outcome.why), "doubtful")
    for it in advice.left_out:
        yield Text(Message("advised.note.left_out", draft=it.reference, why=it.why))
    if any(model.origin == "bench" for model in models):
        yield Text(Message("advised.note.bench"), "faint")


def _settings(advice: Advice) -> Iterator[Text]:
    """What came of trying settings of the engine."""
    chosen = next((it for it in advice.settings if it.code == "chosen"), None)
    if chosen is not None and chosen.speedup is not None:
        said: dict[str, Value] = {"settings": _setting(chosen), "speedup": ratio(chosen.speedup)}
        yield Text(Message("advised.note.settings", **said))
        if chosen.changes_text:
            yield Text(Message("advised.note.kv_types"), "doubtful")
    elif advice.settings:
        tried = "; ".join(map(_setting, advice.settings))
        yield Text(Message("advised.note.settings_kept", settings=tried))


def _setting(tried: TriedSettings) -> str:
    return ", ".join(f"{name}={value}" for name, value in tried.engine.items())


def _changed(what: str, before: str, now: str) -> Message:
    return Message("advised.note.changed", what=Message(f"advised.changed.{what}"), before=before, now=now)


def what_next(advice: Advice) -> Message | None:
    """When to measure again; nothing while it is not decided, which says itself what to do."""
    if is_open(advice) or not advice.finished:
        return None
    stale = advice.again is not None and advice.again.holds == "does-not-hold"
    return Message("advised.renew" if stale else "advised.measure_again")


def _budget(advice: Advice) -> str:
    """`10 min`."""
    return duration(advice.asked.budget_s).removesuffix(" 00 s")


def day(seconds: float) -> str:
    """`2026-11-22`; a time that there is not stays a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


HEADINGS = {"predicted": "expected", "raced": "raced", "confirmed": "confirmed"}
"""Field of a outcome -> the column that shows it."""
