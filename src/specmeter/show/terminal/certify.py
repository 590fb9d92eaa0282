"""Prints rulings on controllers: a sentence and a table for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.show.certification import TONES, names_of, notes, sentence, table
from specmeter.show.table import TONES as VERDICTS
from specmeter.show.terminal.console import output, say_json
from specmeter.show.words import words

if TYPE_CHECKING:
    from specmeter.advise.controllers import Certification


def print_certifications(found: Sequence[Certification], *, as_json: bool) -> None:
    """Write the rulings to stdout, as JSON or for people."""
    if as_json:
        say_json([it.model_dump(mode="json") | {"passes": it.passes} for it in found])
        return
    for it in found:
        _print(it)


def _print(found: Certification) -> None:
    screen, names, english = output(), names_of(found), words("en")
    if not found.complete:
        screen.say("unfinished: what was measured so far", tone="doubtful")
    for controller in found.controllers:
        verdict = controller.verdict
        said = ("not checked", "doubtful") if verdict is None else (verdict, VERDICTS[verdict])
        screen.say((sentence(controller, english, names), TONES[controller.ruling]), "; ", said)
        screen.line()
        if controller.rows:
            screen.table(table(controller, found))
        screen.say_all((phrase.told(english) for phrase in notes(controller)), tone="faint")
        screen.line()
    screen.say(english("certify.intervals"), tone="faint")
    screen.say(f"run folder: {found.folder}", wrap=False)
