"""Prints what a run found: one table per target, the answer, what speaks against it, and the path of the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.show.sentence import details, label, sentence
from specmeter.show.table import TONES, Cell, Column, Row, Table, Tone, numbers, text
from specmeter.show.table import estimated as number
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter.show.terminal.explain import print_accuracy, print_positions
from specmeter.show.terminal.verdicts import print_findings
from specmeter.show.words import words
from specmeter.text import counted, estimated, percent

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Verdict
    from specmeter.show.table import Mark

_STATES: dict[str, Tone] = {"complete": "good", "partial": "doubtful", "failed": "bad"}


def print_run(
    folder: Path, *, as_json: bool, by_kind: bool = False, by_prompt: bool = False, with_positions: bool = False
) -> Verdict | None:
    """Write the run's summary to stdout, as JSON or for people; returns its verdict, None where it was not checked."""
    from specmeter.analysis.positions import positions
    from specmeter.analysis.reading import read_run
    from specmeter.store import RunStore

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
    screen = output()
    _print_state(screen, report)
    for baseline in report.summary.arms:
        if baseline.role == "baseline":
            group = [baseline, *(arm for arm in report.summary.arms if arm.baseline_id == baseline.arm_id)]
            screen.table(_results(report, group, by_kind=by_kind))
            screen.line()
    english = words("en")
    for answer in report.answers:
        screen.say(sentence(answer, english))
        screen.say_all(details(answer, english), tone="faint", indent=2)
    if found is not None:
        screen.line()
        print_positions(screen, found)
    _print_notes(screen, report)
    screen.line()
    screen.say(f"run folder: {folder}", wrap=False)
    return verdict


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


def _results(report: RunReport, group: list[ArmSummary], *, by_kind: bool) -> Table:
    """One target: its baseline and what is compared with it."""
    arms = {arm.id: arm for arm in report.arms}
    metered = any(arm.energy is not None and arm.energy.per_token is not None for arm in group)
    rows: list[Row] = []
    for arm in group:
        limited = arms[arm.arm_id].workloads if arm.role != "baseline" else ()
        where = f" (only {', '.join(limited)})" if limited else ""
        probe = f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else ""
        count = f"{arm.requests_ok}" + (f" ({arm.requests_failed} failed)" if arm.requests_failed else "")
        verdict = report.certificate.arms.get(arm.arm_id) if report.certificate else None
        joules = _energy(arm) if metered else ()
        empty = (Cell(""),) * (len(joules) + 1)
        is_baseline = arm.role == "baseline"
        cells = _numbers(arm, is_baseline, verdict)
        rows.append(Row((Cell(label(arm.arm_id) + where + probe), *cells, *joules, Cell(count))))
        for kind, part in arm.kinds.items() if by_kind else ():
            rows.append(Row((Cell(f"  {kind}"), *_numbers(part, is_baseline, verdict), *empty), tone="faint"))
        for prompt, speedup in (arm.prompts or {}).items():
            shown = number(speedup, 2, mark=_mark(verdict))
            rows.append(Row((Cell(f"  {prompt}"), Cell(""), shown, Cell(""), Cell(""), *empty), tone="faint"))
    rate = Column("tok/s", "number", "tok/s", narrow="point")
    energy = ("J/token", "energy") if metered else ()
    columns = (*text(arms[group[0].arm_id].target), rate, *numbers("speedup", "accepted", "tau", *energy, "requests"))
    return Table("results", columns, rows)


def _mark(verdict: Verdict | None) -> Mark | None:
    return "suspect" if verdict == "suspect" else None


def _numbers(part: KindSummary, is_baseline: bool, verdict: Verdict | None) -> tuple[Cell, ...]:
    if is_baseline:
        speedup = Cell("baseline invalid" if verdict == "invalid" else "baseline", mark=_mark(verdict))
    else:
        speedup = Cell("invalid") if verdict == "invalid" else number(part.speedup, 2, mark=_mark(verdict))
    return (
        number(part.decode_rate, 1),
        speedup,
        Cell("-" if part.acceptance is None else percent(part.acceptance.point)),
        Cell("-" if part.tau is None else f"{part.tau.point:.2f}"),
    )


def _energy(arm: ArmSummary) -> tuple[Cell, Cell]:
    """Joules per token, and with an interval over the baseline's."""
    used = arm.energy
    if used is None or used.per_token is None:
        return Cell("-"), Cell("-")
    return Cell(f"{used.per_token.point:.3g}"), Cell("baseline") if arm.role == "baseline" else number(used.ratio, 2)


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
            "is of no use.",
            tone="faint",
        )
    if any(model.origin == "mock" for model in report.models):
        screen.line()
        screen.say("Simulated: the engine was a mock; nothing here was measured.", tone="strong")
    print_accuracy(screen, report.predictions)
    if report.summary.invocations == 1 and report.state.state == "complete":
        screen.say(
            "[low, high]: 95% interval over the blocks of one invocation; it says how repeatable this session was with "
            "these prompts.",
            tone="faint",
        )


def _print_verdict(screen: Screen, report: RunReport) -> None:
    """Whether the table can be believed, and everything that speaks against it."""
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
    for arm, energy in found:
        if energy.above_idle is not None and energy.power_w is not None:
            told = f"{energy.power_w:.1f} W; above rest {estimated(energy.above_idle, 3)} J/token"
            if (ratio := energy.ratio_above_idle) is not None:
                told += f", {estimated(ratio, 2)} times the baseline's"
        else:
            told = energy.why or (f"{energy.power_w:.1f} W" if energy.power_w is not None else "")
        screen.say(f"  {label(arm.arm_id)}: {told}", tone="faint")


def _document(report: RunReport) -> dict[str, Any]:
    from specmeter.analysis.prediction.outcomes import as_data

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
        "answers": [answer.model_dump(mode="json") for answer in report.answers],
        "summary": report.summary.model_dump(mode="json"),
    }
