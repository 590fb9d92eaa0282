"""Prints what a run found: one table per target, the answer, and the path of the run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.positions import ArmPositions
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Estimate, Verdict


def print_run(
    folder: Path, *, as_json: bool, by_kind: bool = False, by_prompt: bool = False, with_positions: bool = False
) -> Verdict | None:
    """Write the run's summary to stdout, as JSON or for people; returns its verdict, None where it was not checked."""
    from specmeter.analysis.positions import positions
    from specmeter.analysis.reading import read_run
    from specmeter.show.terminal.positions import as_data, print_positions
    from specmeter.store import RunStore

    report = read_run(folder, by_prompt=by_prompt)
    verdict = report.certificate.verdict if report.certificate else None
    found: tuple[ArmPositions, ...] = ()
    if with_positions:
        with RunStore.open(folder, readonly=True) as store:
            found = positions(store)
    if as_json:
        more = {"positions": as_data(found)} if with_positions else {}
        click.echo(json.dumps(_json(report) | more, indent=2, ensure_ascii=False))
        return verdict
    from rich.markup import escape
    from rich.padding import Padding

    from specmeter.show.page.sentence import details
    from specmeter.show.terminal.text import output_console
    from specmeter.show.words import words

    console = output_console()
    wide = console.width >= 100
    _print_state(console, report)
    for baseline in report.summary.arms:
        if baseline.role == "baseline":
            group = [baseline, *(arm for arm in report.summary.arms if arm.baseline_id == baseline.arm_id)]
            console.print(_table(report, group, by_kind=by_kind, wide=wide))
            console.print()
    for answer in report.answers:
        console.print(escape(sentence(answer)), highlight=False)
        for line in details(answer, words("en")):
            console.print(Padding(escape(line), (0, 0, 0, 2), expand=False), style="dim", highlight=False)
    if with_positions:
        console.print()
        print_positions(console, found)
    _print_notes(console, report)
    console.print(f"\nrun folder: {escape(str(folder))}", highlight=False, soft_wrap=True)
    return verdict


def sentence(answer: Answer) -> str:
    """The answer in words, like `dense: speculate with draft-simple/small/g4: 1.93x as fast (95 % interval ...)`."""
    from specmeter.show.page.sentence import sentence as say
    from specmeter.show.words import words

    return say(answer, words("en"))


def _print_state(console: Console, report: RunReport) -> None:
    from rich.markup import escape

    from specmeter.show.terminal.text import counted, printable

    state, summary = report.state, report.summary
    colour = {"complete": "green", "partial": "yellow", "failed": "red"}[state.state]
    console.print(
        f"[bold]{escape(report.name)}[/bold]  [{colour}]{state.state}[/{colour}]  "
        f"{state.ok} of {state.planned} requests, "
        f"{counted(summary.invocations, 'invocation')} of {counted(summary.blocks, 'block')}, "
        f"{counted(summary.prompts, 'prompt')}",
        highlight=False,
    )
    if state.reason and state.state != "complete":
        console.print(f"stopped early: {escape(printable(state.reason))}", highlight=False)
    console.print()


def _table(report: RunReport, group: list[ArmSummary], *, by_kind: bool, wide: bool) -> Table:
    """One target: its baseline and what is compared with it. Narrow terminals get rates without intervals."""
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.page.sentence import label

    arms = {arm.id: arm for arm in report.arms}
    table = Table(box=None, pad_edge=False)
    table.add_column(escape(arms[group[0].arm_id].target), overflow="fold", header_style="bold")
    metered = any(arm.energy is not None and arm.energy.per_token is not None for arm in group)
    energy = ("J/token", "energy") if metered else ()
    for column in ("tok/s", "speedup", "accepted", "tau", *energy, "requests"):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in group:
        limited = arms[arm.arm_id].workloads if arm.role != "baseline" else ()
        where = f" (only {', '.join(limited)})" if limited else ""
        probe = f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else ""
        count = f"{arm.requests_ok}" + (f" ({arm.requests_failed} failed)" if arm.requests_failed else "")
        is_baseline = arm.role == "baseline"
        mark = _mark(report, arm.arm_id)
        joules = _energy(arm, is_baseline) if metered else ()
        table.add_row(escape(label(arm.arm_id) + where + probe), *_cells(arm, is_baseline, wide, mark), *joules, count)
        if by_kind:
            for kind, part in arm.kinds.items():
                cells = _cells(part, is_baseline, wide, mark)
                table.add_row(escape(f"  {kind}"), *cells, *("" for _ in joules), "", style="dim")
        for prompt, speedup in (arm.prompts or {}).items():
            table.add_row(
                escape(f"  {prompt}"), "", interval(speedup, 2) + mark, "", "", *("" for _ in joules), "", style="dim"
            )
    return table


def _mark(report: RunReport, arm_id: str) -> str:
    """What stands beside a speedup that may not mean what it says, or in its place when it is false."""
    verdict = report.certificate.arms.get(arm_id) if report.certificate else None
    return {"invalid": "invalid", "suspect": " ?"}.get(verdict or "", "")


def _cells(part: KindSummary, is_baseline: bool, wide: bool, mark: str) -> tuple[str, str, str, str]:
    rate = "-" if part.decode_rate is None else f"{part.decode_rate.point:.1f}"
    speedup = mark if mark == "invalid" else interval(part.speedup, 2) + mark
    return (
        interval(part.decode_rate, 1) if wide else rate,
        "baseline" + mark.replace("invalid", " invalid") if is_baseline else speedup,
        "-" if part.acceptance is None else f"{part.acceptance.point:.0%}",
        "-" if part.tau is None else f"{part.tau.point:.2f}",
    )


def _energy(arm: ArmSummary, is_baseline: bool) -> tuple[str, str]:
    """Joules per token, and with an interval over the baseline's."""
    used = arm.energy
    if used is None or used.per_token is None:
        return "-", "-"
    return f"{used.per_token.point:.3g}", "baseline" if is_baseline else interval(used.ratio, 2)


def interval(estimate: Estimate | None, digits: int) -> str:
    """`1.93 [1.85, 2.01]`, `1.93 [?]` without an interval, or `-` without an estimate."""
    from specmeter.show.text import brackets

    return "-" if estimate is None else f"{estimate.point:.{digits}f} {brackets(estimate, digits)}"


def _print_notes(console: Console, report: RunReport) -> None:
    """What a reader must know before believing the table."""
    from specmeter.show.terminal.prediction import print_accuracy

    _print_verdict(console, report)
    _print_energy(console, report)
    score = report.summary.balance.score
    if score is not None:
        console.print(
            f"\nbalance of the measured order: {score:.2f} (1: every arm was as often early as late)",
            style="dim",
            highlight=False,
        )
    if any(model.origin == "bench" for model in report.models):
        console.print(
            "Bench models: tiny trained cores inflated to their size. Acceptance and memory traffic are real, "
            "the text is of no use.",
            style="dim",
            highlight=False,
        )
    if any(model.simulated for model in report.models):
        console.print("\nSimulated: the engine was a mock; nothing here was measured.", style="bold", highlight=False)
    print_accuracy(console, report.predictions)
    if report.summary.invocations == 1 and report.state.state == "complete":
        console.print(
            "[low, high]: 95 % interval over the blocks of one invocation; it says how repeatable this session was "
            "with these prompts.",
            style="dim",
            highlight=False,
            markup=False,
        )


def _print_energy(console: Console, report: RunReport) -> None:
    """What the joules are of, and those above idle."""
    from rich.markup import escape

    from specmeter.show.page.sentence import label

    found = [(arm, arm.energy) for arm in report.summary.arms if arm.energy is not None]
    if not found:
        return
    used = found[0][1]
    rest = "" if used.idle_w is None else f"; at rest the machine draws {used.idle_w:.1f} W"
    console.print(
        f"\nenergy: {' + '.join(used.sources)} over whole requests, prompts included; energy column: J/token over the "
        f"baseline's{rest}",
        style="dim",
        highlight=False,
    )
    for arm, energy in found:
        if energy.above_idle is not None and energy.power_w is not None:
            told = f"{energy.power_w:.1f} W; above rest {interval(energy.above_idle, 3)} J/token"
            if (ratio := energy.ratio_above_idle) is not None:
                told += f", {interval(ratio, 2)} times the baseline's"
        else:
            told = energy.why or (f"{energy.power_w:.1f} W" if energy.power_w is not None else "")
        console.print(escape(f"  {label(arm.arm_id)}: {told}"), style="dim", highlight=False)


def _print_verdict(console: Console, report: RunReport) -> None:
    """Whether the table can be believed, and everything that speaks against it."""
    from specmeter.show.terminal.verdicts import STYLES, print_findings

    certificate = report.certificate
    if certificate is None:
        console.print("\nnot checked yet: `specmeter check` says whether these numbers can be believed", style="yellow")
        return
    style = STYLES[certificate.verdict]
    console.print(f"\nverdict: [{style}]{certificate.verdict}[/{style}]", highlight=False, end="")
    console.print(
        {"valid": "", "suspect": " (speedups marked ? may not mean what they say)"}.get(certificate.verdict, "")
    )
    print_findings(console, report.findings, notes=False)


def _json(report: RunReport) -> dict[str, Any]:
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
