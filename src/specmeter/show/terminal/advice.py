"""Prints an advice: the answer in one line, the line to paste, why, what was compared, and three notes; or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmeter.advise.elsewhere import MEASURED, PROGRAMS
from specmeter.show import advice_sentence as said
from specmeter.show.advice_tables import compared, grid
from specmeter.show.table import TONES, Phrase, Tone
from specmeter.show.terminal.console import WIDTH, Screen, output, say_json
from specmeter.show.words import words
from specmeter.text import counted, duration, pasted, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.advise.advice import Advice
    from specmeter.show.names import Names

MOST_NOTES = 3
_WIDE = 160
"""Of details off a terminal."""
_ENGLISH = words("en")


def print_advice(advice: Advice, folder: Path, *, as_json: bool, everything: bool = False) -> None:
    """Write an advice to stdout, as JSON or for people; `everything`: with every arm of the grid and every note."""
    names = said.names_of(advice)
    if as_json:
        say_json(document(advice, folder, names))
        return
    screen = output(_WIDE if everything else WIDTH)
    _print_answer(screen, advice, folder, names)
    _print_grounds(screen, advice, names, everything=everything)
    _print_notes(screen, advice, folder, names, everything=everything)
    screen.line()
    after = said.what_next(advice)
    if after is not None:
        _say(screen, after)
    screen.say(f"advice folder: {folder} ({_took(advice)})", wrap=False)
    if not everything:
        here = quoted(str(folder))
        shown = (f"everything: `specmeter show {here} --details`", f"page: `specmeter report {here}`")
        screen.say_all(shown, tone="faint", wrap=False)


def document(advice: Advice, folder: Path, names: Names) -> dict[str, Any]:
    """The record as it is, with the answer in words and what people call each arm."""
    return {
        "folder": str(folder),
        "headline": said.headline(advice, names).told(_ENGLISH),
        "names": {fate.arm_id: names.told(fate.arm_id, _ENGLISH) for fate in advice.fates},
        **advice.model_dump(mode="json"),
    }


def _print_answer(screen: Screen, advice: Advice, folder: Path, names: Names) -> None:
    verdict: tuple[tuple[str, Tone], ...] = ()
    if advice.verdict is not None:
        verdict = (("; ", ""), (advice.verdict, TONES[advice.verdict]))
    screen.say((said.headline(advice, names).told(_ENGLISH), "strong"), *verdict)
    for phrase in (said.by_kind(advice, names), said.would_decide(advice, folder)):
        if phrase is not None:
            _say(screen, phrase)
    for program, command in said.commands(advice).items():
        if program in PROGRAMS and program != MEASURED:
            _say(screen, Phrase("advised.elsewhere", {"program": program}), tone="faint")
        screen.say(f"  {pasted(command)}", wrap=False)


def _print_grounds(screen: Screen, advice: Advice, names: Names, *, everything: bool) -> None:
    """Why, the short table, and what became of the rest; or of every arm."""
    screen.line()
    reason, table = said.reason(advice), compared(advice, names)
    if reason is not None:
        _say(screen, reason)
    if advice.fates:
        screen.table(table)
        for phrase in said.about_numbers(advice):
            _say(screen, phrase, tone="faint")
    counts = said.counts(advice)
    if counts is not None:
        _say(screen, counts)
    if everything and advice.fates:
        screen.line()
        screen.table(grid(advice, names), caption=True)


def _print_notes(screen: Screen, advice: Advice, folder: Path, names: Names, *, everything: bool) -> None:
    found = list(said.notes(advice, folder, names))
    shown = found if everything else found[:MOST_NOTES]
    if shown:
        screen.line()
    for note in shown:
        screen.say(f"- {note.text.told(_ENGLISH)}", tone=note.tone)
    if len(found) > len(shown):
        more = counted(len(found) - len(shown), "more note")
        screen.say(f"- {more}, with `--details`", tone="faint")


def _took(advice: Advice) -> str:
    stages = ", ".join(f"{it.stage} {duration(it.seconds)}" for it in advice.stages)
    return f"{duration(advice.seconds)}{': ' if stages else ''}{stages}"


def _say(screen: Screen, phrase: Phrase, tone: Tone = "") -> None:
    screen.say(phrase.told(_ENGLISH), tone=tone)
