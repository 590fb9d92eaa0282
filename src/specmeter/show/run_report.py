"""The report of a run for a terminal and a notebook: the answers and what to paste, one table, and at most three notes;
with details every number, answer and finding.

Notes come in this order: what makes all numbers meaningless (a simulated run); findings about what the answers rest on,
the worst first; numbers that were not checked; a prompt type on which speculation pays though the answer is not to;
findings about other arms, one per arm; what is missing (requests that failed, then what each answer lacks); and what
the models are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmeter.analysis.answer import is_uninformative
from specmeter.messages import Message
from specmeter.record.verdict import grouped
from specmeter.show.crossover_words import crossover_sentence, main_crossovers, untold
from specmeter.show.names import Names
from specmeter.show.report import Command, Report, Section, Tabled, Text, as_told, hints, verdict_said
from specmeter.show.run_words import at_load, cautions, details, excluded_blocks, sentence, would_decide
from specmeter.show.session_report import session_answers, session_blocks
from specmeter.show.table import TONES, Cell, Column, Row, Table, Tone, estimate_cell
from specmeter.text import estimated, percent, quoted

if TYPE_CHECKING:
    from specmeter.analysis.answer import Answer
    from specmeter.analysis.positions import ArmPositions
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Certificate, Finding, ModelIdentity, Severity, Verdict
    from specmeter.record.verdict import Group
    from specmeter.show.report import Block


_ARMS_NAMED = 2
_SEVERITIES: dict[Severity, Tone] = {"note": "faint", "suspect": "doubtful", "invalid": "bad"}


def report(
    run: RunReport,
    *,
    by_kind: bool = False,
    positions: Sequence[ArmPositions] | None = None,
    details: bool = True,
) -> Report:
    """Of a run; `by_kind`: with a row for each kind of text, `positions`: with which drafted tokens are accepted,
    `details`: with what only pages and those who ask a terminal for details see."""
    names = Names(run.arms)
    drafted, more = list[Section](), dict[str, Any]()
    if positions is not None:
        from specmeter.show import why_report

        drafted = [Section("positions", why_report.positions(positions, names))]
        more = {"positions": [it.model_dump(mode="json") for it in positions]}
    why = ("explain",) if run.state.ok and not any(arm.load for arm in run.arms) else ()
    everything = _details(run, names, by_kind=by_kind) if details else ()
    return Report(
        target=run.name,
        document=lambda: _data(run) | more,
        answer=list(_answer(run, names)),
        sections=[
            Section("comparison", list(_comparison(run, names, by_kind=by_kind))),
            Section("sessions", list(session_blocks(run.sessions, names))),
            Section("load", list(_load(run))),
            *drafted,
            *(Section("details", [replace(it, at="details") for it in part]) for part in everything),
        ],
        notes=list(notes(run, names)),
        closing=[Text(Message("run.folder", folder=str(run.folder)), at="screen"), *hints(run.folder, *why)],
    )


# --- the answers -----------------------------------------------------------------------------------------------------


def main_answers(run: RunReport) -> list[Answer]:
    """One answer per baseline; by kind of text only where nothing competes on all of them."""
    whole = {answer.baseline_id for answer in run.answers if not answer.kind}
    return [answer for answer in run.answers if not answer.kind or answer.baseline_id not in whole]


def _answer(run: RunReport, names: Names) -> Iterator[Block]:
    """For each target whether to speculate, or up to how many clients, and the line to paste."""
    state = run.state
    if run.written or (state.state != "complete" and not refusal_to_resume(run.findings)):
        code = "measuring" if run.written else "unfinished"
        yield Text(Message(f"note.{code}", ok=state.ok, planned=state.planned), "doubtful")
        if state.reason:
            yield Text(Message("facts.reason", reason=state.reason), "doubtful")
    for told in session_answers(run.sessions, names):
        yield _head(run, told.said, verdict := run.headline(told.arm_id))
        if told.word == "faster" and told.arm_id in run.commands and verdict is not None:
            yield Command(run.commands[told.arm_id])
        yield from (Text(it, "faint") for it in told.rests)
    for found in main_crossovers(run.crossovers):
        yield _head(run, crossover_sentence(found, names), run.headline(*(at.arm_id for at in found.loads)))
    loads = [answer for answer in untold(run) if answer.load is not None]
    # Of recorded sessions the time of the calls is the answer; a second one, of tokens per second, would contradict it.
    alone = () if run.sessions else (it for it in main_answers(run) if it.load is None)
    for answer in (*loads, *alone):
        verdict = run.headline(answer.arm_id)
        yield _head(run, sentence(answer, names), verdict)
        if (more := would_decide(answer)) is not None and verdict != "invalid":
            yield Text(more, "faint", indent=2)
        command = run.commands.get(answer.serves or "")
        if command is not None and verdict is not None and answer.load is None:
            yield Command(command)
    told = False
    for arm in run.summary.arms:
        rate, verdict = arm.decode_rate if arm.load is None else arm.load.throughput, run.headline(arm.arm_id)
        if arm.role == "speculative" and arm.baseline_id is None and rate is not None and verdict != "invalid":
            told = True
            code = "run.alone" if arm.acceptance is None else "run.alone_accepted"
            share = None if arm.acceptance is None else arm.acceptance.point
            said = Message(code, name=names[arm.arm_id], rate=f"{rate.point:.1f}", accepted=share)
            yield _head(run, said, verdict)
    if not run.answers and not told:
        said = Message("run.withheld" if run.withheld else "run.nothing", name=run.name)
        said = said if run.busy is None else Message("run.busy", name=run.name, what=run.busy.what)
        yield _head(run, said, run.certificate.verdict if run.certificate else None)
    if run.remedy is not None:
        yield Text(Message("run.fix", remedy=run.remedy), "faint")
    if run.made is not None:
        yield Text(run.made.line, "faint")
        for remark in run.made.remarks:
            yield Text(remark, "doubtful")


def _head(run: RunReport, said: Message, verdict: Verdict | None) -> Text:
    """A line of the heading, and whether it can be believed."""
    told = as_told(run.certificate)
    return Text(said, "strong", verdict=verdict or "unchecked", untold=told, simulated=run.simulated)


# --- the table -------------------------------------------------------------------------------------------------------


def _comparison(run: RunReport, names: Names, *, by_kind: bool) -> Iterator[Block]:
    if any(arm.decode_rate is not None and arm.load is None for arm in run.summary.arms):
        yield Tabled(overview(run, names, by_kind=by_kind), caption=False)
        for line in _explained(run):
            yield Text(line, "faint")
    if run.worst is not None:
        yield Text(excluded_blocks(run, run.worst, names), "doubtful")


def overview(run: RunReport, names: Names, *, by_kind: bool = False) -> Table:
    """Every arm of every target: rate, speedup and share of accepted drafts; prompts where the run has them."""
    arms = {arm.id: arm for arm in run.arms}
    baselines = [arm for arm in run.summary.arms if arm.baseline_id is None and arm.load is None]
    targets = list(dict.fromkeys(arms[base.arm_id].target for base in baselines))
    indent = "  " if len(targets) > 1 else ""
    rows: list[Row] = []
    for target in targets:
        if indent:
            rows.append(Row((Cell(target), *(Cell(""),) * 3), tone="strong"))
        for base in (it for it in baselines if arms[it.arm_id].target == target):
            for arm in (base, *(it for it in run.summary.arms if it.baseline_id == base.arm_id)):
                name = names[arm.arm_id]
                name = Message("cell.cost_probe", arm=name, why=arm.cost_probe) if arm.cost_probe else name
                name = Message("cell.indented", indent=indent, name=name) if indent else name
                rows.append(Row((Cell(name), *_numbers(run, arm, arm))))
                for kind, part in arm.kinds.items() if by_kind else ():
                    rows.append(Row((Cell(f"{indent}  {kind}"), *_numbers(run, arm, part)), tone="faint"))
                for prompt, speedup in (arm.prompts or {}).items():
                    cells = (Cell(f"{indent}  {prompt}"), Cell(""), estimate_cell(speedup, 2), Cell(""))
                    rows.append(Row(cells, tone="faint"))
    heading = "" if indent or not targets else targets[0]
    numbers = (Column(f"brief_{key}", "number") for key in ("rate", "speedup", "accepted"))
    columns = (Column("configuration", title=heading or " "), *numbers)
    return Table("overview", columns, rows, Message("table.results"))


def _numbers(run: RunReport, arm: ArmSummary, part: KindSummary) -> tuple[Cell, Cell, Cell]:
    rate = Cell("-" if part.decode_rate is None else f"{part.decode_rate.point:.1f}")
    accepted = Cell("" if part.acceptance is None else percent(part.acceptance.point))
    verdict = run.certificate.arms.get(arm.arm_id, "invalid") if run.certificate else None
    mark = "suspect" if verdict == "suspect" else None
    if arm.role == "baseline":
        return rate, Cell(Message(f"cell.baseline{'.invalid' if verdict == 'invalid' else ''}"), mark=mark), accepted
    if verdict == "invalid":
        return Cell("-"), Cell(Message("verdict.invalid"), tone="bad"), Cell("")
    speedup = run.cited(arm) if part is arm else part.speedup
    low, high = (speedup.low, speedup.high) if speedup is not None else (None, None)
    answered = any(it.arm_id == arm.arm_id and it.decision == "too noisy" for it in run.answers if not it.kind)
    if low is not None and high is not None and (is_uninformative(low, high) or (answered and part is arm)):
        return rate, Cell(Message("cell.too_noisy"), tone="doubtful"), accepted
    return rate, estimate_cell(speedup, 2, mark=mark), accepted


def interval_to_cite(run: RunReport) -> Message | None:
    """What the brackets of speedups are, and which of them allow for a choice; None with one block."""
    several = run.summary.invocations > 1
    if not several and run.summary.blocks <= 1:
        return None
    compared = [arm for arm in run.summary.arms if arm.baseline_id and arm.speedup and arm.speedup.low is not None]
    chosen = [arm for arm in compared if run.cited(arm) != arm.speedup]
    of = {arm.baseline_id for arm in chosen}
    whole = [it for it in run.answers if not it.kind and it.baseline_id in of]
    targets = [at_load(it, it.load) if it.load else it.baseline_id.replace("/none", "", 1) for it in whole]
    best = Message("run.interval.best") if chosen == compared else Message("run.interval.best_of", targets=targets)
    return Message(
        "run.interval.invocations" if several else "run.interval",
        count=run.summary.invocations if several else run.summary.blocks,
        best=best if chosen else "",
    )


def _explained(run: RunReport) -> Iterator[Message]:
    """What the brackets are, what a block is, what is accepted, and over which prompts."""
    if (said := interval_to_cite(run)) is not None:
        yield said
    yield Message("run.accepted")
    if any(arm.left_out for arm in run.summary.arms):
        yield Message("run.left_out")


# --- under load ------------------------------------------------------------------------------------------------------


def _load(run: RunReport) -> Iterator[Block]:
    """Speedups by load and what clients saw; nothing without clients."""
    if all(arm.load is None for arm in run.summary.arms):
        return
    from specmeter.show.load_tables import left_out, load_overview, loaded, speedups_by_load, targets_of, window_span

    found = [it for _, it in loaded(run)]
    if not any(it.throughput is not None for it in found):
        return
    for target in targets_of(run):
        for table in speedups_by_load(run, target):
            yield Tabled(table, caption=False)
    yield Tabled(load_overview(run), caption=False)
    if any(arm.baseline_id for arm in run.arms):
        yield Text(Message("load.speedup"), "faint")
    if any(it.load.clients is None for it in found):
        yield Text(Message("load.speedup_at_rate"), "faint")
    yield Text(Message("load.latencies"), "faint")
    if any(it.goodput is not None for it in found):
        yield Text(Message("load.goodput"), "faint")
    if (span := window_span(run)) is not None:
        yield Text(Message("load.window", span=span), "faint")
    for line in left_out(run):
        yield Text(line, "doubtful")


# --- notes -----------------------------------------------------------------------------------------------------------


def notes(run: RunReport, names: Names) -> Iterator[Text]:
    """What a reader should know, what matters most first."""
    if run.simulated:
        yield Text(Message("note.mock"), "strong")
    told = main_answers(run)
    answered = {arm_id for answer in told for arm_id in (answer.arm_id, answer.baseline_id)}
    groups = [it for it in grouped(run.findings) if it.first.severity != "note" or it.first.check == "memory-fit"]
    concerned = [it for it in groups if not it.arms or answered & set(it.arms)]
    yield from (_finding(it, names) for it in concerned)
    if run.certificate is None and not run.written:
        yield Text(Message("note.unchecked", folder=quoted(str(run.folder))), "doubtful")
    partial = {arm.id for arm in run.arms if arm.workloads}  # whose row says for which prompts its speedup is
    yield from (Text(sentence(it, names)) for it in _against(run.answers, told) if it.arm_id not in partial)
    named: set[str] = set()
    for group in groups:
        if group not in concerned and not named >= set(group.arms):
            named |= set(group.arms)
            yield _finding(group, names)
    if run.state.failed and not any(it.first.check == "requests-failed" for it in groups):
        yield Text(Message("run.failed", failed=run.state.failed, planned=run.state.planned), "doubtful")
    for answer in told:
        of = names.in_full(answer.arm_id) if answer.load else answer.baseline_id.partition("/")[0]
        for caution in cautions(answer, names):
            yield Text(caution if len(told) == 1 else Message("arm.of", target=of, name=caution), "doubtful")
    if any(model.origin == "bench" for model in run.models):
        yield Text(Message("advised.note.bench"), "faint")


def _against(answers: Sequence[Answer], told: Sequence[Answer]) -> list[Answer]:
    """Answers for one kind of text that say "speculate" where the target's says not to."""
    off = {answer.baseline_id for answer in told if answer.decision == "do not speculate"}
    return [it for it in answers if it.kind and it.decision == "speculate" and it.baseline_id in off and it not in told]


def _finding(group: Group, names: Names) -> Text:
    """`suspect: MESSAGE (draft model small, 4 draft tokens; memory-paging)`."""
    first = group.first
    severity = Message(f"severity.{first.severity}")
    arm = None if first.arm_id is None else names.in_full(first.arm_id)
    said = Message(
        "run.finding", severity=severity, told=group.message_for(arm), where=[*_named(group, names), first.check]
    )
    return Text(said, TONES[first.severity])


def _named(group: Group, names: Names) -> list[str | Message]:
    more = len(group.arms) - _ARMS_NAMED
    rest = [Message("validity.more_arms", count=more)] if more > 0 else []
    return [*(names.in_full(arm_id) for arm_id in group.arms[:_ARMS_NAMED]), *rest]


def refusal_to_resume(findings: Iterable[Finding]) -> Finding | None:
    """Why a run cannot be gone on with: what was certified was changed."""
    return next((it for it in findings if it.check == "data-changed" and it.severity == "invalid"), None)


def found(
    findings: Iterable[Finding], *, with_notes: bool = True, written: bool = False, names: Names | None = None
) -> list[Text]:
    """Findings, one paragraph per group: severity, check, where, what, and what to do about it. `written`: of a run
    that is being measured; `names`: of its arms."""
    called: Callable[[str], str | Message] = str if names is None else names.in_full
    findings = list(findings)
    changed = refusal_to_resume(findings)
    remedy = changed.remedy if changed else Message("incomplete-matrix.wait") if written else None
    if remedy is not None:
        of = "incomplete-matrix"
        findings = [it.model_copy(update={"remedy": remedy}) if it.check == of else it for it in findings]
    lines: list[Text] = []
    for group in grouped(findings):
        first = group.first
        if first.severity == "note" and not with_notes:
            continue
        head = Message(
            "run.found", severity=Message(f"severity.{first.severity}"), check=first.check, where=group.where(called)
        )
        lines += [
            Text(head, _SEVERITIES[first.severity]),
            Text(group.message_for(None if first.arm_id is None else called(first.arm_id)), indent=2),
        ]
        if first.severity != "note":
            lines.append(Text(Message("run.fix", remedy=first.remedy), "faint", indent=2))
    return lines


# --- details ---------------------------------------------------------------------------------------------------------


def _details(run: RunReport, names: Names, *, by_kind: bool) -> Iterator[list[Block]]:
    """All that the overview leaves out: every number, answer and finding, ids, and how to serve with each arm."""
    from specmeter.show.load_tables import load_table, loaded
    from specmeter.show.run_brief import brief

    tables = [*brief(run, by_kind=by_kind), *([load_table(run)] if loaded(run) else [])]
    yield [Text(_state(run)), *(Tabled(table, caption=False) for table in tables)]
    lines = [Text(crossover_sentence(it, names)) for it in run.crossovers]
    for answer in run.answers:
        lines += [Text(sentence(answer, names)), *(Text(it, "faint", indent=2) for it in details(answer, names))]
    lines += [Text(it.message, "faint") for it in run.findings if it.check == "stopped-when-decided"]
    yield [*lines]
    if run.certificate is not None:
        yield [verdict_of(run.certificate), *found(run.findings, with_notes=False, written=run.written, names=names)]
    yield [Text(it, "faint") for it in _measured(run, names)]
    serving = [
        (Text(Message("run.serve", arm=names.in_full(arm)), "faint"), Command(line))
        for arm, line in run.commands.items()
    ]
    yield [block for blocks in serving for block in blocks]


def verdict_of(certificate: Certificate) -> Text:
    """The verdict of a run, and how many of its requests are how."""
    verdict = verdict_said(certificate.verdict, simulated=False, untold=as_told(certificate))
    state = Message(f"state.{certificate.state}")
    requests = certificate.requests
    more = Message("check.unanswered", count=requests["unanswered"]) if "unanswered" in requests else ""
    said = Message("check.verdict", verdict=verdict, state=state, **{**requests, "unanswered": more})
    return Text(said, TONES[certificate.verdict])


def _state(run: RunReport) -> Message:
    state, summary = run.state, run.summary
    counts = {"invocations": summary.invocations, "blocks": summary.blocks, "prompts": summary.prompts}
    done = {"state": Message(f"state.{state.state_now(written=run.written)}"), "ok": state.ok, "planned": state.planned}
    return Message("run.state", name=run.name, **done, **counts)


def _measured(run: RunReport, names: Names) -> Iterator[Message]:
    """What must be known of how the numbers came about."""
    from specmeter.show import why_report

    yield from _energy(run, names)
    if (score := run.summary.balance.score) is not None:
        yield Message("note.balance", score=f"{score:.2f}")
    if any(model.origin == "bench" for model in run.models):
        yield Message("note.bench")
    yield from twins(run.models)
    yield from why_report.foretold(run.predictions, run.crossovers, names)
    if run.summary.invocations == 1 and run.state.state == "complete":
        yield Message("note.interval", level="95%", blocks=run.summary.blocks)


def twins(models: Iterable[ModelIdentity]) -> Iterator[Message]:
    """Which models are made of which dense ones."""
    for model in models:
        if model.header is not None and (twin := model.header.twin) is not None:
            code = "note.twin" if twin.router else "note.twin_dense"
            yield Message(code, name=model.name, form=twin.form, router=twin.router, parent=twin.parent)


def _energy(run: RunReport, names: Names) -> Iterator[Message]:
    """What the joules are of, and those above idle."""
    used = [(arm, arm.energy) for arm in run.summary.arms if arm.energy is not None]
    if not used:
        return
    first = used[0][1]
    yield Message("note.energy", sources=" + ".join(first.sources))
    if first.idle_w is not None:
        yield Message("note.energy.idle", watts=f"{first.idle_w:.1f}")
    for arm, energy in used:
        if energy.above_idle is None or energy.power_w is None:
            why = energy.why or (f"{energy.power_w:.1f} W" if energy.power_w is not None else "")
            yield Message("arm.of", target=names[arm.arm_id], name=why)
            continue
        above = estimated(energy.above_idle, 3)
        times = "" if (ratio := energy.ratio_above_idle) is None else Message("run.times", ratio=estimated(ratio, 2))
        yield Message("run.energy", name=names[arm.arm_id], watts=energy.power_w, above=above, times=times)


def _data(run: RunReport) -> dict[str, Any]:
    from specmeter.analysis.load.crossover import crossover_outcomes
    from specmeter.analysis.prediction.outcomes import as_data

    return {
        "folder": str(run.folder),
        "name": run.name,
        "state": run.state.state_now(written=run.written),
        "answers_made": None if run.made is None else run.made.model_dump(mode="json"),
        "requests": {"planned": run.state.planned, "ok": run.state.ok, "failed": run.state.failed},
        "reason": run.state.reason,
        "verdict": run.certificate.verdict if run.certificate else None,
        "verdicts": run.certificate.arms if run.certificate else None,
        "withheld": {arm: speedup.model_dump(mode="json") for arm, speedup in run.withheld.items()},
        "findings": [finding.model_dump(mode="json", exclude_none=True) for finding in run.findings],
        "predictions": [as_data(outcome) for outcome in run.predictions],
        "predicted_crossovers": [
            it.model_dump(mode="json", include={"arm", "depth", "predicted"})
            for it in crossover_outcomes(run.crossovers, run.predictions)
        ],
        "commands": run.commands,
        "disturbances": [it.model_dump(mode="json") for it in run.disturbances],
        "cited": {arm.arm_id: it.model_dump(mode="json") for arm in run.summary.arms if (it := run.cited(arm))},
        "over_all_blocks": {arm: speedup.model_dump(mode="json") for arm, speedup in run.over_all_blocks.items()},
        "crossovers": [it.model_dump(mode="json") for it in run.crossovers],
        "answers": [answer.model_dump(mode="json") | {"serves": answer.serves} for answer in run.answers],
        "sessions": [it.model_dump(mode="json") for it in run.sessions],
        "summary": run.summary.model_dump(mode="json"),
    }
