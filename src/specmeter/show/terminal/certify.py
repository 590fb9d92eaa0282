"""Prints rulings on controllers: a sentence and a table for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.show.certification import TONES, names_of, sentence, table
from specmeter.show.table import TONES as VERDICTS
from specmeter.show.terminal.console import output, say_json
from specmeter.show.words import words
from specmeter.text import counted, percent

if TYPE_CHECKING:
    from specmeter.advise.certify import Certification


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
            screen.line()
    screen.say_all(_explained(found), tone="faint")
    screen.say(f"run folder: {found.folder}", wrap=False)


def _explained(found: Certification) -> Iterator[str]:
    yield (
        "[low, high]: 95% intervals over blocks of the same prompts; those of the lowest and of the best fixed length "
        "hold whichever kind or length it is"
    )
    oracles = [it for it in found.controllers if it.longest and it.unexplained is not None]
    if oracles:
        longest, most = max(it.longest for it in oracles), max(it.unexplained or 0.0 for it in oracles)
        yield (
            f"oracle: the best of 0 to {longest} tokens at every step, at the costs of this run, which explain the "
            f"time of a text to within {percent(most, 1)}"
        )
    for why in dict.fromkeys(it.no_oracle for it in found.controllers if it.no_oracle):
        yield words("en")("certify.no_oracle", why=why)
    if missing := {arm_id for it in found.controllers for arm_id in it.left_out}:
        yield f"left out: {counted(len(missing), 'fixed length')} without usable numbers"
