"""Prints what a run found: its overview, and on demand all that is known of it; or JSON.

Prints verdicts and findings, and what `specmeter check` says of a run.

The screen of a run under load: up to how many clients speculation pays, speedups by load, and what clients saw.

The screen of a run: the answers and what to paste, one table, and at most three notes.

Notes come in this order, and what stands later is left to `--details`: what makes all numbers meaningless (a simulated
run); findings about what the answers rest on, the worst first; numbers that were not checked; a kind of text on which
speculation pays though the answer is not to; findings about other arms, one per arm; what is missing (requests that
failed, then what each answer lacks); other answers for one kind of text; and what the models are.

Prints runs, or machines, beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specmeter.analysis.answer import says_nothing
from specmeter.analysis.positions import positions
from specmeter.analysis.prediction.forecast import as_data, crossover_outcomes
from specmeter.analysis.reading import read_run
from specmeter.messages import Message, words
from specmeter.record.verdict import grouped
from specmeter.show.names import Names
from specmeter.show.run_tables import brief, looks_for
from specmeter.show.sentence import (
    cautions,
    comparison_sentence,
    crossover_sentence,
    details,
    left_out,
    load_overview,
    load_table,
    loaded,
    main_crossovers,
    sentence,
    speedups_by_load,
    targets_of,
    untold,
    window_span,
)
from specmeter.show.table import TONES, Cell, Column, Row, Table, Tone, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import WIDTH, Said, Screen, output, say_json
from specmeter.show.terminal.explain import print_accuracy, print_positions
from specmeter.store import RunStore
from specmeter.store.integrity import FILES
from specmeter.text import counted, estimated, pasted, percent, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.comparison import Conclusion, RunComparison
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Certificate, CheckOutcome, Finding, Severity, Verdict
    from specmeter.record.verdict import Group
    from specmeter.validity.inspection import Inspection


_SEVERITIES: dict[Severity, Tone] = {"note": "faint", "suspect": "doubtful", "invalid": "bad"}
_SHOWN = 10
"""Files that a certificate does not cover, named."""


def print_inspection(folder: Path, inspection: Inspection, *, issued: bool, every: bool) -> None:
    """Verdicts, findings, checks, and what the certificate says about which files."""
    screen = output()
    certificate, counts = inspection.certificate, inspection.certificate.requests
    screen.say(
        "verdict: ",
        (certificate.verdict, TONES[certificate.verdict]),
        f"  ({certificate.state} run; requests: {counts['valid']} valid, {counts['suspect']} suspect, "
        f"{counts['invalid']} invalid)",
    )
    screen.line()
    _print_arms(screen, certificate, inspection.findings)
    screen.line()
    print_findings(screen, inspection.findings)
    screen.line()
    _print_outcomes(screen, certificate.checks, every=every)
    _print_coverage(screen, folder, inspection, issued)


def print_findings(screen: Screen, findings: Iterable[Finding], *, notes: bool = True) -> None:
    """One paragraph per group: severity, check, where, what, and what to do about it."""
    for group in grouped(findings):
        first = group.first
        if first.severity == "note" and not notes:
            continue
        screen.say((first.severity, _SEVERITIES[first.severity]), " ", (first.check, "strong"), " ", group.where)
        screen.say(first.message, indent=2)
        if first.severity != "note":
            screen.say("fix: ", first.remedy, indent=2, tone="faint")


def _print_arms(screen: Screen, certificate: Certificate, findings: Sequence[Finding]) -> None:
    """One line per arm: its verdict, and the checks that found something about it."""
    rows: list[Row] = []
    for arm_id, verdict in certificate.arms.items():
        reasons = dict.fromkeys(f.check for f in findings if f.arm_id == arm_id and f.severity != "note")
        other = "" if verdict == "valid" else "its baseline, the run, or a skipped check"
        rows.append(row(arm_id, Cell(verdict, tone=TONES[verdict]), ", ".join(reasons) or other))
    screen.table(Table("arms", text("arm", "verdict", "because of"), rows))


def _print_outcomes(screen: Screen, outcomes: Sequence[CheckOutcome], *, every: bool) -> None:
    """How many checks ended how; those that were skipped, with the reason; `every` lists all of them."""
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("passed", "found", "partly")}
    blind = [outcome for outcome in outcomes if outcome.status == "skipped"]
    applicable = [outcome for outcome in blind if any(gap.applies for gap in outcome.unchecked)]
    screen.say(
        f"checks: {len(outcomes)} in all; {counts['passed']} passed, {counts['found']} found something, "
        f"{counts['partly']} partial, {len(applicable)} skipped, "
        f"{len(blind) - len(applicable)} not applicable"
    )
    shown = outcomes if every else [o for o in outcomes if any(gap.applies for gap in o.unchecked)]
    if not shown:
        return
    rows: list[Row] = []
    for outcome in shown:
        idle = outcome in blind and outcome not in applicable
        reasons = (_ENGLISH.render(gap.reason) for gap in outcome.unchecked if gap.applies or idle)
        why, threat = "; ".join(dict.fromkeys(reasons)), _ENGLISH.render(looks_for(outcome))
        told = f"{threat} ({why})" if every and why else threat if every else why
        rows.append(row(outcome.check, "does not apply" if idle else outcome.status, told))
    screen.table(Table("checks", text("check", "status", "looks for" if every else "not checked, because"), rows))


def _print_coverage(screen: Screen, folder: Path, inspection: Inspection, issued: bool) -> None:
    if inspection.refuted:
        state = f"the data in {folder} IS NOT what was certified"
    elif inspection.certified_before:
        state = f"the data in {folder} is what was certified"
    elif issued:
        state = f"certified now: {folder}/certificate.json"
    else:
        state = "not certified: the run is being written to, or its folder is read-only"
    screen.line()
    screen.say(state, wrap=False)
    if not inspection.certified_before and not issued:
        return
    logs = sum(part.startswith("logs/") for part in inspection.covered)
    files = [part for part in inspection.covered if part in FILES]
    tables = len(inspection.covered) - logs - len(files)
    told = [f"run.sqlite ({counted(tables, 'table')})", counted(logs, "log"), *files]
    screen.say(f"covered by the certificate: {', '.join(told)}", wrap=False)
    if others := inspection.uncovered:
        shown = [f"{name} ({remark})" if remark else name for name, remark in list(others.items())[:_SHOWN]]
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        screen.say(f"not covered: {', '.join(shown)}{more}", wrap=False)


def print_load(screen: Screen, report: RunReport) -> None:
    """What is told of the arms under load: nothing where there are none."""
    if not any(it.throughput is not None for _, it in loaded(report)):
        return
    for target in targets_of(report):
        for table in speedups_by_load(report, target):
            screen.table(table)
            screen.line()
    screen.table(load_overview(report))
    screen.say_all(_explained_loads(report), tone="faint")
    for line in left_out(report):
        screen.say("- ", line, tone="doubtful")


def print_crossovers(screen: Screen, report: RunReport, names: Names) -> None:
    """For each target up to how many clients speculation pays, or where nothing crosses, the answer at each load."""
    simulated = "simulated, " if any(model.simulated for model in report.models) else ""
    for found in main_crossovers(report.crossovers):
        verdict = report.headline(*(at.arm_id for at in found.loads))
        _say(screen, crossover_sentence(found, names), simulated, verdict)
    for answer in untold(report):
        if answer.load is not None:
            _say(screen, sentence(answer, names), simulated, report.headline(answer.arm_id))


def _say(screen: Screen, line: Said, simulated: str, verdict: Verdict | None) -> None:
    """A line of the heading, and whether it can be believed."""
    toned: tuple[str, Tone] = ("not checked", "doubtful") if verdict is None else (verdict, TONES[verdict])
    screen.say((line, "strong"), f"; {simulated}", toned)


def _explained_loads(report: RunReport) -> list[str]:
    """What the numbers are of."""
    found = [it for _, it in loaded(report)]
    lines = ["speedup: total tokens per second over plain decoding at the same load, prompts included"]
    if any(it.load.clients is None for it in found):
        lines.append("speedup at a rate: time per output token of plain decoding over that of the configuration")
    lines.append("ttft: time to first token, tpot: time per output token, ms; p95 of 20 requests or more")
    if any(it.goodput is not None for it in found):
        lines.append("good/s: requests per second that keep to the slo")
    if span := window_span(report):
        told = span[0] if span[0] == span[1] else f"{span[0]} to {span[1]}"
        lines.append(f"all of it in the steady window, {told} of a cell's time; ramp and drain are left out")
    return lines


MOST_NOTES = 3
_ARMS_NAMED = 2
_ENGLISH = words()


class Note(NamedTuple):
    text: Said
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
        screen.say("- ", note.text, tone=note.tone)
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
        screen.say((sentence(answer, names), "strong"), f"; {simulated}", _toned(verdict))
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
                name = names.render(arm.arm_id, _ENGLISH) + (
                    f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else ""
                )
                rows.append(Row((Cell(indent + name), *_numbers(report, arm, arm))))
                for kind, part in arm.kinds.items() if by_kind else ():
                    rows.append(Row((Cell(f"{indent}  {kind}"), *_numbers(report, arm, part)), tone="faint"))
                for prompt, speedup in (arm.prompts or {}).items():
                    cells = (Cell(f"{indent}  {prompt}"), Cell(""), estimate_cell(speedup, 2), Cell(""))
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
    return rate, estimate_cell(part.speedup, 2, mark=mark), accepted


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
    yield from (Note(sentence(it, names)) for it in against)
    named: set[str] = set()
    for group in groups:
        if group not in concerned and not named >= set(group.arms):
            named |= set(group.arms)
            yield _finding(group, names)
    if report.state.failed and not any(it.first.check == "requests-failed" for it in groups):
        yield Note(f"{report.state.failed} of {report.state.planned} requests failed", "doubtful")
    for answer in told:
        of = names.in_full(answer.arm_id) if answer.load else answer.baseline_id.partition("/")[0]
        for caution in cautions(answer, names):
            yield Note(caution if len(told) == 1 else Message("arm.of", target=of, name=caution), "doubtful")
    by_baseline = {answer.baseline_id: answer for answer in told}
    for answer in report.answers:
        elsewhere = answer.kind and answer not in told and answer not in against
        if elsewhere and answer.arm_id != by_baseline[answer.baseline_id].arm_id:
            yield Note(sentence(answer, names))
    if any(model.origin == "bench" for model in report.models):
        yield Note("bench models: real acceptance and memory traffic, meaningless text", "faint")


def _against(answers: Sequence[Answer], told: Sequence[Answer]) -> list[Answer]:
    """Answers for one kind of text that say "speculate" where the target's says not to."""
    off = {answer.baseline_id for answer in told if answer.decision == "do not speculate"}
    return [it for it in answers if it.kind and it.decision == "speculate" and it.baseline_id in off and it not in told]


def _finding(group: Group, names: Names) -> Note:
    """`suspect: MESSAGE (small draft, 4 tokens; memory-paging)`."""
    first = group.first
    arms = [_ENGLISH.render(names.in_full(arm_id)) for arm_id in group.arms]
    more = f" and {len(arms) - _ARMS_NAMED} more" if len(arms) > _ARMS_NAMED else ""
    where = f"{'; '.join(arms[:_ARMS_NAMED])}{more}; " if arms else ""
    told = f"{first.severity}: {_ENGLISH.render(first.message)} ({where}{first.check})"
    return Note(told, TONES[first.severity])


_WIDE = 160
"""Of details off a terminal, which have every interval and the ids."""
_STATES: dict[str, Tone] = {"complete": "good", "partial": "doubtful", "failed": "bad"}


def print_run(
    folder: Path,
    *,
    as_json: bool,
    everything: bool = False,
    by_kind: bool = False,
    by_prompt: bool = False,
    with_positions: bool = False,
) -> Verdict | None:
    """Write the run's answers to stdout, as JSON or for people; returns its verdict, None where it was not checked."""
    report = read_run(folder, by_prompt=by_prompt)
    found = None
    if with_positions:
        with RunStore.open(folder, readonly=True) as store:
            found = positions(store)
    verdict = report.certificate.verdict if report.certificate else None
    if as_json:
        more = {} if found is None else {"positions": [it.model_dump(mode="json") for it in found]}
        say_json(_document(report) | more)
        return verdict
    screen, names = output(_WIDE if everything else WIDTH), Names(report.arms)
    print_overview(screen, report, names, by_kind=by_kind, details=everything)
    if found is not None:
        screen.line()
        print_positions(screen, found)
    if everything:
        _print_details(screen, report, names, by_kind=by_kind)
    screen.line()
    screen.say(f"run folder: {folder}", wrap=False)
    if not everything:
        here, divided = quoted(str(folder)), not any(arm.load for arm in report.arms)
        why = (f"why: `specmeter explain {here}`",) if divided else ()
        screen.say_all((f"everything: `specmeter show {here} --details`", *why), tone="faint", wrap=False)
    return verdict


def _print_details(screen: Screen, report: RunReport, names: Names, *, by_kind: bool) -> None:
    """All that the overview leaves out: every number, answer and finding, ids, and how to serve with each arm."""
    screen.line()
    _print_state(screen, report)
    for table in brief(report, by_kind=by_kind):
        screen.table(table)
        screen.line()
    if loaded(report):
        screen.table(load_table(report))
        screen.line()
    for crossover in report.crossovers:
        screen.say(crossover_sentence(crossover, names))
    for answer in report.answers:
        screen.say(sentence(answer, names))
        screen.say_all(details(answer, names), tone="faint", indent=2)
    _print_notes(screen, report)
    if report.commands:
        screen.line()
        screen.say("to serve:")
    for arm_id, command in report.commands.items():
        screen.say(f"  {arm_id}", tone="faint", wrap=False)
        screen.say(f"  {pasted(command)}", wrap=False)


def _print_state(screen: Screen, report: RunReport) -> None:
    state, summary = report.state, report.summary
    screen.say(
        (report.name, "strong"),
        "  ",
        (state.state, _STATES[state.state]),
        f"  {state.ok} of {state.planned} requests, {counted(summary.invocations, 'invocation')} of "
        f"{counted(summary.blocks, 'block')}, {counted(summary.prompts, 'prompt')}",
    )
    if state.reason and state.state != "complete":
        screen.say(f"stopped early: {state.reason}")
    screen.line()


def _print_notes(screen: Screen, report: RunReport) -> None:
    """What a reader must know before believing the table."""
    _print_verdict(screen, report)
    _print_energy(screen, report)
    score = report.summary.balance.score
    if score is not None:
        screen.line()
        screen.say(
            f"balance of the measured order: {score:.2f} (1: every arm was as often early as late)", tone="faint"
        )
    if any(model.origin == "bench" for model in report.models):
        screen.say(
            "Bench models: tiny trained cores inflated to their size. Acceptance and memory traffic are real, the text "
            "is meaningless.",
            tone="faint",
        )
    if any(model.simulated for model in report.models):
        screen.line()
        screen.say("Simulated: the engine was a mock; nothing here was measured.", tone="strong")
    print_accuracy(screen, report.predictions, report.crossovers)
    if report.summary.invocations == 1 and report.state.state == "complete":
        screen.say(
            "[low, high]: 95% interval over the blocks of one invocation; it says how repeatable this session was with "
            "these prompts.",
            tone="faint",
        )


def _print_verdict(screen: Screen, report: RunReport) -> None:
    """The verdict on the table, and the findings behind it."""
    screen.line()
    if report.certificate is None:
        screen.say("not checked yet: `specmeter check` says whether these numbers can be believed", tone="doubtful")
        return
    verdict = report.certificate.verdict
    screen.say("verdict: ", (verdict, TONES[verdict]))
    print_findings(screen, report.findings, notes=False)


def _print_energy(screen: Screen, report: RunReport) -> None:
    """What the joules are of, and those above idle."""
    found = [(arm, arm.energy) for arm in report.summary.arms if arm.energy is not None]
    if not found:
        return
    used = found[0][1]
    rest = "" if used.idle_w is None else f"; at rest the machine draws {used.idle_w:.1f} W"
    screen.line()
    screen.say(
        f"energy: {' + '.join(used.sources)} over whole requests, prompts included; energy column: J/token over the "
        f"baseline's{rest}",
        tone="faint",
    )
    names = Names(report.arms)
    for arm, energy in found:
        if energy.above_idle is not None and energy.power_w is not None:
            line = f"{energy.power_w:.1f} W; above rest {estimated(energy.above_idle, 3)} J/token"
            if (ratio := energy.ratio_above_idle) is not None:
                line += f", {estimated(ratio, 2)} times the baseline's"
        else:
            line = energy.why or (f"{energy.power_w:.1f} W" if energy.power_w is not None else "")
        screen.say("  ", names[arm.arm_id], ": ", line, tone="faint")


def _document(report: RunReport) -> dict[str, Any]:
    return {
        "folder": str(report.folder),
        "name": report.name,
        "state": report.state.state,
        "requests": {"planned": report.state.planned, "ok": report.state.ok, "failed": report.state.failed},
        "reason": report.state.reason,
        "verdict": report.certificate.verdict if report.certificate else None,
        "verdicts": report.certificate.arms if report.certificate else None,
        "withheld": {arm: speedup.model_dump(mode="json") for arm, speedup in report.withheld.items()},
        "findings": [finding.model_dump(mode="json", exclude_none=True) for finding in report.findings],
        "predictions": [as_data(outcome) for outcome in report.predictions],
        "predicted_crossovers": [
            it.model_dump(mode="json", include={"arm", "depth", "predicted"})
            for it in crossover_outcomes(report.crossovers, report.predictions)
        ],
        "commands": report.commands,
        "crossovers": [it.model_dump(mode="json") for it in report.crossovers],
        "answers": [answer.model_dump(mode="json") | {"serves": answer.serves} for answer in report.answers],
        "summary": report.summary.model_dump(mode="json"),
    }


_TONES: dict[Conclusion, Tone] = {
    "regression": "bad",
    "same data": "doubtful",
    "slower": "doubtful",
    "invalid": "bad",
    "faster": "good",
    "same": "good",
    "no regression": "good",
}
_MOST_DIFFERENCES = 20


def print_comparison(found: RunComparison) -> None:
    """The answer, one table over the prompts that both runs have, and what else differs."""
    screen, names = output(), Names(found.asked)
    screen.say((comparison_sentence(found), "strong"))
    screen.line()
    rates = (Column(name, "number", f"{name}, tok/s", narrow="drop") for name in ("reference", "other"))
    columns = (
        Column("configuration", title=" ", most=44),
        *rates,
        *numbers("rate, x", "speedup, x"),
        *text(f"by {found.measure}"),
    )
    rows: list[Row] = []
    for arm in found.arms:
        mark = "suspect" if arm.verdict == "suspect" else "unchecked" if arm.verdict is None else None
        tone = _TONES.get(arm.conclusion, "") if arm.conclusion else ""
        rates_ = (Cell("-" if it is None else f"{it.point:.1f}") for it in (arm.reference_rate, arm.other_rate))
        ratios = (estimate_cell(arm.rate, 3), estimate_cell(arm.speedup, 3))
        rows.append(row(names.in_full(arm.arm_id), *rates_, *ratios, Cell(arm.conclusion or "-", mark=mark, tone=tone)))
    screen.table(Table("arms", columns, rows))
    if found.arms:
        screen.say(
            "rates and ratios are over the prompts that both runs completed; [low, high]: 95% interval", tone="faint"
        )
    under_load = {arm.id for arm in found.asked if arm.load is not None}
    if any(arm.arm_id in under_load for arm in found.arms):
        screen.say("under load: total tokens per second of all clients, over cells with the same texts", tone="faint")
    for name, crossed in ((found.reference, found.reference_crossovers), (found.other, found.other_crossovers)):
        for it in main_crossovers(crossed):
            screen.say(f"{name}: ", crossover_sentence(it, names))
    _print_differences(screen, found)


def _print_differences(screen: Screen, found: RunComparison) -> None:
    if found.differences:
        screen.line()
        screen.say("what differs:")
    for difference in found.differences[:_MOST_DIFFERENCES]:
        screen.say(f"  {difference.what}: {difference.reference} -> {difference.other}", wrap=False)
    if len(found.differences) > _MOST_DIFFERENCES:
        screen.say(f"  and {len(found.differences) - _MOST_DIFFERENCES} more; --json has all")
    for name, arms in ((found.reference, found.only_reference), (found.other, found.only_other)):
        if arms:
            screen.say(f"only in {name}: {', '.join(arms)}", wrap=False)
    screen.line()
