"""What a certification of controllers says: a sentence and a table for each, in any language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter.advise.controllers import ALL, FLOOR
from specmeter.messages import Message, Value
from specmeter.show.names import Names
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Table, estimate_cell, row
from specmeter.text import estimated as told

if TYPE_CHECKING:
    from specmeter.advise.controllers import Certification, Certified, Held
    from specmeter.show.report import Block


_NUMBERS = ("off", "best_fixed", "over_off", "over_best", "over_oracle", "of_oracle")


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


def report(found: Sequence[Certification]) -> Report:
    """The rulings of some runs: a sentence for each controller, then its table and notes."""
    each = [(it, controller) for it in found for controller in it.controllers]
    (ruling, *first), *others = (
        _told(it, controller, f"certify{place}") for place, (it, controller) in enumerate(each)
    )
    unfinished = [Message("certify.unfinished", folder=it.folder) for it in found if not it.complete]
    folders = [Message("run.folder", folder=it.folder) for it in found]
    return Report(
        target=" · ".join(it.name for it in found),
        document=lambda: [it.model_dump(mode="json") | {"passes": it.passes} for it in found],
        answer=[ruling, *(Text(it, "doubtful") for it in unfinished)],
        sections=[Section("controllers", it) for it in (first, *others)],
        closing=[Text(Message("certify.intervals"), "faint"), *(Text(it, at="screen", whole=True) for it in folders)],
    )


def _told(found: Certification, controller: Certified, name: str) -> list[Block]:
    ruling = Text(sentence(controller, names_of(found)), "strong", verdict=controller.verdict or "unchecked")
    shown = replace(table(controller, found), name=name, title=Message("table.certify"))
    of = [Tabled(shown, caption=False)] if controller.rows else []
    return [ruling, *of, *(Text(it, "faint") for it in notes(controller))]
