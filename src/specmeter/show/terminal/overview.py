"""The screen of a run: the answers and what to paste, one table, and at most three notes.

Notes come in this order, and what stands later is left to `--details`: what makes all numbers meaningless (a simulated
run); findings about what the answers rest on, the worst first; numbers that were not checked; a kind of text on which
speculation pays though the answer is not to; findings about other arms, one per arm; what is missing (requests that
failed, then what each answer lacks); other answers for one kind of text; and what the models are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specmeter.analysis.answer import says_nothing
from specmeter.show.names import Names
from specmeter.show.sentence import cautions, sentence
from specmeter.show.table import TONES, Cell, Column, Row, Table, Tone, estimated, numbers
from specmeter.show.terminal.load import print_crossovers, print_load
from specmeter.show.words import words
from specmeter.text import counted, pasted, percent
from specmeter.verdicts import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Verdict
    from specmeter.show.terminal.console import Screen
    from specmeter.verdicts import Group

MOST_NOTES = 3
_ARMS_NAMED = 2
_ENGLISH = words("en")


class Note(NamedTuple):
    text: str
    tone: Tone = ""


def print_overview(screen: Screen, report: RunReport, names: Names, *, by_kind: bool, details: bool) -> None:
    """The answers, the table and the notes; `details`: what the notes leave out is printed elsewhere."""
    _print_answers(screen, report, names)
    screen.line()
    if any(arm.decode_rate is not None and arm.load is None for arm in report.summary.arms):
        screen.table(overview(report, names, by_kind=by_kind))
        screen.say_all(_explained(report), tone="faint")
    print_load(screen, report)
    found = list(notes(report, names))
    if found:
        screen.line()
    for note in found[:MOST_NOTES]:
        screen.say(f"- {note.text}", tone=note.tone)
    if len(found) > MOST_NOTES and not details:
        screen.say(f"- {counted(len(found) - MOST_NOTES, 'more note')}: `specmeter show --details`", tone="faint")


def main_answers(report: RunReport) -> list[Answer]:
    """One answer per baseline; by kind of text only where nothing competes on all of them."""
    whole = {answer.baseline_id for answer in report.answers if not answer.kind}
    return [answer for answer in report.answers if not answer.kind or answer.baseline_id not in whole]


def _print_answers(screen: Screen, report: RunReport, names: Names) -> None:
    state = report.state
    if state.state != "complete":
        why = f" (stopped: {state.reason})" if state.reason else ""
        screen.say(f"unfinished: {state.ok} of {state.planned} requests measured{why}", tone="doubtful")
    print_crossovers(screen, report, names)
    for answer in (it for it in main_answers(report) if it.load is None):
        verdict = report.headline(answer.arm_id)
        simulated = "simulated, " if any(model.simulated for model in report.models) else ""
        screen.say((sentence(answer, _ENGLISH, names), "strong"), f"; {simulated}", _toned(verdict))
        command = report.commands.get(answer.serves or "")
        if command is not None and verdict is not None:
            screen.say(f"  {pasted(command)}", wrap=False)
    if not report.answers:
        why = "every speedup is withheld" if report.withheld else "nothing was compared with a baseline"
        verdict = report.certificate.verdict if report.certificate else None
        screen.say((f"{report.name}: no answer, {why}", "strong"), "; ", _toned(verdict))


def _verdict(report: RunReport, arm_id: str) -> Verdict | None:
    return report.certificate.arms.get(arm_id, "invalid") if report.certificate else None


def _toned(verdict: Verdict | None) -> tuple[str, Tone]:
    return ("not checked", "doubtful") if verdict is None else (verdict, TONES[verdict])


# --- the table -------------------------------------------------------------------------------------------------------


def overview(report: RunReport, names: Names, *, by_kind: bool = False) -> Table:
    """Every arm of every target: rate, speedup and share of accepted drafts; prompts where the report has them."""
    arms = {arm.id: arm for arm in report.arms}
    baselines = [arm for arm in report.summary.arms if arm.role == "baseline" and arm.load is None]
    targets = list(dict.fromkeys(arms[base.arm_id].target for base in baselines))
    indent = "  " if len(targets) > 1 else ""
    rows: list[Row] = []
    for target in targets:
        if indent:
            rows.append(Row((Cell(target), *(Cell(""),) * 3), tone="strong"))
        for base in (it for it in baselines if arms[it.arm_id].target == target):
            for arm in (base, *(it for it in report.summary.arms if it.baseline_id == base.arm_id)):
                name = names.told(arm.arm_id, _ENGLISH) + (f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else "")
                rows.append(Row((Cell(indent + name), *_numbers(report, arm, arm))))
                for kind, part in arm.kinds.items() if by_kind else ():
                    rows.append(Row((Cell(f"{indent}  {kind}"), *_numbers(report, arm, part)), tone="faint"))
                for prompt, speedup in (arm.prompts or {}).items():
                    cells = (Cell(f"{indent}  {prompt}"), Cell(""), estimated(speedup, 2), Cell(""))
                    rows.append(Row(cells, tone="faint"))
    heading = "" if indent or not targets else targets[0]
    columns = (Column("configuration", title=heading or " "), *numbers("tok/s", "speedup", "accepted"))
    return Table("results", columns, rows)


def _numbers(report: RunReport, arm: ArmSummary, part: KindSummary) -> tuple[Cell, Cell, Cell]:
    rate = Cell("-" if part.decode_rate is None else f"{part.decode_rate.point:.1f}")
    accepted = Cell("" if part.acceptance is None else percent(part.acceptance.point))
    verdict = _verdict(report, arm.arm_id)
    mark = "suspect" if verdict == "suspect" else None
    if arm.role == "baseline":
        return rate, Cell("baseline invalid" if verdict == "invalid" else "baseline", mark=mark), accepted
    if verdict == "invalid" and report.certificate is not None:
        return Cell("-"), Cell("invalid", tone="bad"), Cell("")
    low, high = (part.speedup.low, part.speedup.high) if part.speedup is not None else (None, None)
    answered = any(it.arm_id == arm.arm_id and it.decision == "too noisy" for it in report.answers if not it.kind)
    if low is not None and high is not None and (says_nothing(low, high) or (answered and part is arm)):
        return rate, Cell("too noisy", tone="doubtful"), accepted
    return rate, estimated(part.speedup, 2, mark=mark), accepted


def _explained(report: RunReport) -> Iterator[str]:
    """What the brackets are, what a block is, what is accepted, and over which prompts."""
    summary = report.summary
    over = f"{counted(summary.blocks, 'block')} of the same prompts; a block measures each configuration once"
    if summary.invocations > 1:
        over = f"{summary.invocations} repetitions of the whole experiment"
    elif summary.blocks == 1:
        yield "[?]: one block has no interval"
    if summary.invocations > 1 or summary.blocks > 1:
        yield f"[low, high]: a row's own 95% interval over {over}"
    yield "accepted: share of the drafted tokens that the target kept"
    if any(arm.left_out for arm in summary.arms):
        yield "tok/s, accepted: over all that was completed; speedup: over the prompts that its baseline completed too"


# --- notes -----------------------------------------------------------------------------------------------------------


def notes(report: RunReport, names: Names) -> Iterator[Note]:
    """What a reader should know, what matters most first."""
    if any(model.simulated for model in report.models):
        yield Note("simulated: the engine was a mock, nothing was measured", "strong")
    told = main_answers(report)
    answered = {arm_id for answer in told for arm_id in (answer.arm_id, answer.baseline_id)}
    groups = [it for it in grouped(report.findings) if it.first.severity != "note"]
    concerned = [it for it in groups if not it.arms or answered & set(it.arms)]
    yield from (_finding(it, names) for it in concerned)
    if report.certificate is None:
        yield Note("not checked yet: run `specmeter check`", "doubtful")
    against = _against(report.answers, told)
    yield from (Note(sentence(it, _ENGLISH, names)) for it in against)
    named: set[str] = set()
    for group in groups:
        if group not in concerned and not named >= set(group.arms):
            named |= set(group.arms)
            yield _finding(group, names)
    if report.state.failed and not any(it.first.check == "requests-failed" for it in groups):
        yield Note(f"{report.state.failed} of {report.state.planned} requests failed", "doubtful")
    for answer in told:
        where = (
            ""
            if len(told) == 1
            else f"{names.in_full(answer.arm_id, _ENGLISH) if answer.load else answer.baseline_id.partition('/')[0]}: "
        )
        yield from (Note(where + caution, "doubtful") for caution in cautions(answer, _ENGLISH, names))
    by_baseline = {answer.baseline_id: answer for answer in told}
    for answer in report.answers:
        elsewhere = answer.kind and answer not in told and answer not in against
        if elsewhere and answer.arm_id != by_baseline[answer.baseline_id].arm_id:
            yield Note(sentence(answer, _ENGLISH, names))
    if any(model.origin == "bench" for model in report.models):
        yield Note("bench models: real acceptance and memory traffic, meaningless text", "faint")


def _against(answers: Sequence[Answer], told: Sequence[Answer]) -> list[Answer]:
    """Answers for one kind of text that say "speculate" where the target's says not to."""
    off = {answer.baseline_id for answer in told if answer.decision == "do not speculate"}
    return [it for it in answers if it.kind and it.decision == "speculate" and it.baseline_id in off and it not in told]


def _finding(group: Group, names: Names) -> Note:
    """`suspect: MESSAGE (small draft, 4 tokens; memory-paging)`."""
    first = group.first
    arms = [names.in_full(arm_id, _ENGLISH) for arm_id in group.arms]
    more = f" and {len(arms) - _ARMS_NAMED} more" if len(arms) > _ARMS_NAMED else ""
    where = f"{'; '.join(arms[:_ARMS_NAMED])}{more}; " if arms else ""
    return Note(f"{first.severity}: {first.message} ({where}{first.check})", TONES[first.severity])
