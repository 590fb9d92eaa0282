"""Prints a schedule: the answer in one line, what to use with how many clients, the lines to paste, notes; or JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmeter.advise.elsewhere import MEASURED, PROGRAMS, TABLES, also_for
from specmeter.advise.schedule import clients_of
from specmeter.show import advice_sentence, schedule_sentence
from specmeter.show.advice_tables import grid
from specmeter.show.schedule_tables import by_batch_size, by_clients
from specmeter.show.table import TONES, Phrase, Tone
from specmeter.show.terminal.console import WIDTH, Screen, output, say_json
from specmeter.show.words import words
from specmeter.text import counted, duration, pasted, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.advise.schedule import Schedule

MOST_NOTES = 6
_WIDE = 160
"""Of details off a terminal."""
_ENGLISH = words("en")


def print_schedule(
    schedule: Schedule, folder: Path, *, as_json: bool, everything: bool = False, program: str = MEASURED
) -> None:
    """Write a schedule to stdout, as JSON or for people; `everything`: with the grid of each load and every note,
    `program`: also as that one is told it."""
    schedule = also_for(schedule, program)
    if as_json:
        say_json(document(schedule, folder))
        return
    screen = output(_WIDE if everything else WIDTH)
    _print_answer(screen, schedule)
    _print_lines(screen, schedule)
    _print_notes(screen, schedule, folder, everything=everything)
    if everything:
        _print_grids(screen, schedule)
    screen.line()
    after = schedule_sentence.what_next(schedule)
    if after is not None:
        _say(screen, after)
    took = duration(sum(it.seconds for it in schedule.advices))
    screen.say(f"schedule folder: {folder} ({took})", wrap=False)
    if not everything:
        here = quoted(str(folder))
        shown = (f"everything: `specmeter show {here} --details`", f"page: `specmeter report {here}`")
        screen.say_all(shown, tone="faint", wrap=False)


def document(schedule: Schedule, folder: Path) -> dict[str, Any]:
    """The record as it is, with the answers in words, of all loads and of each."""
    crossover = schedule.crossover
    whole = schedule.model_dump(mode="json")
    advices = [
        {"headline": advice_sentence.headline(it, advice_sentence.names_of(it)).told(_ENGLISH), **dumped}
        for it, dumped in zip(schedule.advices, whole["advices"], strict=True)
    ]
    return {
        "folder": str(folder),
        "headline": schedule_sentence.headline(schedule).told(_ENGLISH),
        "pattern": schedule.pattern,
        "crossover": None if crossover is None else crossover.model_dump(mode="json"),
        **whole,
        "advices": advices,
    }


def _print_answer(screen: Screen, schedule: Schedule) -> None:
    verdict: tuple[tuple[str, Tone], ...] = ()
    if schedule.verdict is not None:
        verdict = (("; ", ""), (schedule.verdict, TONES[schedule.verdict]))
    screen.say((schedule_sentence.headline(schedule).told(_ENGLISH), "strong"), *verdict)
    again = schedule_sentence.again(schedule)
    if again is not None:
        _say(screen, again)
    screen.line()
    screen.table(by_clients(schedule))
    for phrase in schedule_sentence.about_numbers(schedule):
        _say(screen, phrase, tone="faint")


def _print_lines(screen: Screen, schedule: Schedule) -> None:
    """The line of each load, then what other programs are told."""
    lines = schedule_sentence.commands(schedule)
    if lines:
        screen.line()
    for load, program, line in lines:
        _say(screen, load, tone="faint")
        if program in PROGRAMS and program != MEASURED:
            _say(screen, Phrase("advised.elsewhere", {"program": program}), tone="faint")
        screen.say(f"  {pasted(line)}", wrap=False)
    for program, found in schedule_sentence.elsewhere(schedule).items():
        if program in TABLES:
            screen.line()
            _say(screen, Phrase("advised.elsewhere", {"program": program}), tone="faint")
        if found.lengths:
            screen.table(by_batch_size(found))
        if found.line:
            screen.say(f"  {pasted(found.line)}", wrap=False)
        screen.say_all(f"- {program}: {note}" for note in found.notes)


def _print_notes(screen: Screen, schedule: Schedule, folder: Path, *, everything: bool) -> None:
    found = list(schedule_sentence.notes(schedule, folder))
    shown = found if everything else found[:MOST_NOTES]
    if shown:
        screen.line()
    for note in shown:
        screen.say(f"- {note.text.told(_ENGLISH)}", tone=note.tone)
    if len(found) > len(shown):
        screen.say(f"- {counted(len(found) - len(shown), 'more note')}, with `--details`", tone="faint")


def _print_grids(screen: Screen, schedule: Schedule) -> None:
    """What became of every configuration at each load."""
    for advice in schedule.advices:
        if advice.fates:
            screen.line()
            found = grid(advice, advice_sentence.names_of(advice))
            title = schedule_sentence.clients([clients_of(advice)]).told(_ENGLISH)
            screen.table(replace(found, title=title), caption=True)


def _say(screen: Screen, phrase: Phrase, tone: Tone = "") -> None:
    screen.say(phrase.told(_ENGLISH), tone=tone)
