"""Prints what a run found: its overview, and on demand all that is known of it; or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.show.load_sentence import crossover_sentence
from specmeter.show.load_tables import load_table, loaded
from specmeter.show.names import Names
from specmeter.show.run_tables import brief
from specmeter.show.sentence import details, sentence
from specmeter.show.table import TONES, Tone
from specmeter.show.terminal.console import WIDTH, Screen, output, say_json
from specmeter.show.terminal.explain import print_accuracy, print_positions
from specmeter.show.terminal.overview import print_overview
from specmeter.show.terminal.verdicts import print_findings
from specmeter.show.words import words
from specmeter.text import counted, estimated, pasted, quoted

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.record import Verdict

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
    english = words("en")
    for crossover in report.crossovers:
        screen.say(crossover_sentence(crossover, english, names))
    for answer in report.answers:
        screen.say(sentence(answer, english, names))
        screen.say_all(details(answer, english, names), tone="faint", indent=2)
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
    english, names = words("en"), Names(report.arms)
    for arm, energy in found:
        if energy.above_idle is not None and energy.power_w is not None:
            line = f"{energy.power_w:.1f} W; above rest {estimated(energy.above_idle, 3)} J/token"
            if (ratio := energy.ratio_above_idle) is not None:
                line += f", {estimated(ratio, 2)} times the baseline's"
        else:
            line = energy.why or (f"{energy.power_w:.1f} W" if energy.power_w is not None else "")
        screen.say(f"  {names.told(arm.arm_id, english)}: {line}", tone="faint")


def _document(report: RunReport) -> dict[str, Any]:
    from specmeter.analysis.prediction.outcomes import as_data, crossover_outcomes

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
