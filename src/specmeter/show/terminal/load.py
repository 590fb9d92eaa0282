"""The screen of a run under load: up to how many clients speculation pays, speedups by load, and what clients saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.load_sentence import crossover_sentence, main_crossovers, untold
from specmeter.show.load_tables import left_out, load_overview, loaded, speedups_by_load, targets_of, window_span
from specmeter.show.sentence import sentence
from specmeter.show.table import TONES
from specmeter.show.words import words

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.record import Verdict
    from specmeter.show.names import Names
    from specmeter.show.table import Tone
    from specmeter.show.terminal.console import Screen

_ENGLISH = words("en")


def print_load(screen: Screen, report: RunReport) -> None:
    """What is told of the arms under load: nothing where there are none."""
    if not any(it.throughput is not None for _, it in loaded(report)):
        return
    for target in targets_of(report):
        for table in speedups_by_load(report, target):
            screen.table(table)
            screen.line()
    screen.table(load_overview(report))
    screen.say_all(_explained(report), tone="faint")
    screen.say_all((f"- {line}" for line in left_out(report)), tone="doubtful")


def print_crossovers(screen: Screen, report: RunReport, names: Names) -> None:
    """For each target up to how many clients speculation pays, or where nothing crosses, the answer at each load."""
    simulated = "simulated, " if any(model.simulated for model in report.models) else ""
    for found in main_crossovers(report.crossovers):
        verdict = report.headline(*(at.arm_id for at in found.loads))
        _say(screen, crossover_sentence(found, _ENGLISH, names), simulated, verdict)
    for answer in untold(report):
        if answer.load is not None:
            _say(screen, sentence(answer, _ENGLISH, names), simulated, report.headline(answer.arm_id))


def _say(screen: Screen, line: str, simulated: str, verdict: Verdict | None) -> None:
    """A line of the heading, and whether it can be believed."""
    toned: tuple[str, Tone] = ("not checked", "doubtful") if verdict is None else (verdict, TONES[verdict])
    screen.say((line, "strong"), f"; {simulated}", toned)


def _explained(report: RunReport) -> list[str]:
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
