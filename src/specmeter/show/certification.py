"""What a certification of controllers says: a sentence and a table for each, in any language.

Prints rulings on controllers: a sentence and a table for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.advise.controllers import ALL, FLOOR
from specmeter.messages import Message, Value, words
from specmeter.show.names import Names
from specmeter.show.table import TONES as VERDICTS
from specmeter.show.table import Cell, Column, Table, Tone, estimate_cell, row
from specmeter.show.terminal.console import output, say_json
from specmeter.text import estimated as told

if TYPE_CHECKING:
    from specmeter.advise.controllers import Certification, Certified, Held


_NUMBERS = ("off", "best_fixed", "over_off", "over_best", "over_oracle", "of_oracle")
TONES: dict[str, Tone] = {"never-below": "good", "not-shown": "doubtful", "fails": "bad", "invalid": "bad"}


def names_of(found: Certification) -> Names:
    """The names of its arms."""
    return Names(found.arms)


def sentence(controller: Certified, names: Names) -> Message:
    """The ruling: never below, the best fixed length, the oracle; no more than the intervals hold."""
    return Message("certify.said", name=names.in_full(controller.arm_id), rulings=list(_parts(controller)))


def _parts(controller: Certified) -> Iterator[Message]:
    if controller.worst is None or not controller.rows:
        yield Message("certify.invalid")
        return
    worst: Value = told(controller.worst, 2)
    if controller.worst_kind != ALL:
        worst = Message("certify.on", number=worst, kind=controller.worst_kind)
    yield Message(f"certify.{controller.ruling}", floor=FLOOR, worst=worst)
    whole = controller.rows[-1]
    if whole.over_best is not None:
        yield Message("certify.best", number=told(whole.over_best, 2))
    if whole.over_oracle is not None:
        yield Message("certify.oracle", number=told(whole.over_oracle, 2))


def table(controller: Certified, found: Certification) -> Table:
    """One row per kind of text, all kinds together last."""
    gammas = {arm.id: arm.gamma for arm in found.arms}
    rows = [
        row(
            Message("certify.all") if it.kind == ALL else it.kind,
            Cell("-") if it.off is None else Cell(f"{it.off.point:.1f}", it.off.point),
            _best(it, gammas),
            estimate_cell(it.over_off, 2),
            estimate_cell(it.over_best, 2),
            estimate_cell(it.over_oracle, 2),
            estimate_cell(it.share, 0, scale=100),
            verdict=controller.verdict,
        )
        for it in controller.rows
    ]
    return Table("certify", (Column("kind"), *(Column(key, "number") for key in _NUMBERS)), rows)


def _best(held: Held, gammas: dict[str, int | None]) -> Cell:
    if held.best is None or held.best_over_off is None:
        return Cell("-")
    count = gammas[held.best]
    values: dict[str, Value] = {"count": count, "number": held.best_over_off.point}
    return Cell(Message("certify.length", **values), held.best_over_off.point)


def notes(controller: Certified) -> Iterator[Message]:
    """What must be known beside the table: what the oracle is, or why there is none, and what was left out."""
    if controller.no_oracle is not None:
        yield Message("certify.no_oracle", why=controller.no_oracle)
    elif controller.unexplained is not None and controller.rows:
        key = "certify.is_oracle" if controller.probed else "certify.is_oracle.lines"
        yield Message(key, longest=controller.longest, within=controller.unexplained)
    if left := len(controller.left_out):
        yield Message("certify.left_out", count=left)


def print_certifications(found: Sequence[Certification], *, as_json: bool) -> None:
    """Write the rulings to stdout, as JSON or for people."""
    if as_json:
        say_json([it.model_dump(mode="json") | {"passes": it.passes} for it in found])
        return
    for it in found:
        _print(it)


def _print(found: Certification) -> None:
    screen, names, english = output(), names_of(found), words()
    if not found.complete:
        screen.say("unfinished: what was measured so far", tone="doubtful")
    for controller in found.controllers:
        verdict = controller.verdict
        said = ("not checked", "doubtful") if verdict is None else (verdict, VERDICTS[verdict])
        screen.say((sentence(controller, names), TONES[controller.ruling]), "; ", said)
        screen.line()
        if controller.rows:
            screen.table(table(controller, found))
        screen.say_all(notes(controller), tone="faint")
        screen.line()
    screen.say(english("certify.intervals"), tone="faint")
    screen.say(f"run folder: {found.folder}", wrap=False)
