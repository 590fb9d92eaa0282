"""An advice as one page: the answer and what to paste, what was compared, the whole grid, and its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.elsewhere import MEASURED, PROGRAMS
from specmeter.show import advice_sentence as said
from specmeter.show.advice_figures import advice_figures
from specmeter.show.advice_tables import compared, grid
from specmeter.show.page.page import machine, moment, render, shareable
from specmeter.show.table import Cell, Phrase, Table, counted, made
from specmeter.show.words import LANGUAGES, Language
from specmeter.store.environment import private
from specmeter.text import duration, printable

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.show.figure import Figure

MOST_NOTES = 30
_LOOKS = {"speculate": "speculate", "off": "stop"}


def advice_page(
    advice: Advice,
    folder: Path,
    languages: Sequence[Language] = LANGUAGES,
    *,
    reports: Mapping[str, str] | None = None,
) -> str:
    """The page. `reports`: name of a stage's folder -> its report, relative to the page."""
    names = said.names_of(advice)
    figures = advice_figures(advice, names)
    lines = said.commands(advice)
    elsewhere = {program for program in lines if program in PROGRAMS and program != MEASURED}
    folder = Path(folder.resolve().name)  # others may see the page
    notes = list(said.notes(advice, folder, names))
    return render(
        "advice.html",
        languages,
        figures.values(),
        figures=figures,
        title=f"{printable(said.target_of(advice))} · specmeter",
        advice=advice,
        head=said.headline(advice, names),
        look=_LOOKS.get(advice.decision, "") if advice.basis == "confirmed" else "",
        points=[it for it in (said.by_kind(advice, names), said.would_decide(advice, folder)) if it is not None],
        reason=said.reason(advice),
        counts=said.counts(advice),
        about=said.about_numbers(advice),
        commands=[(program, program in elsewhere, shareable(line)) for program, line in lines.items()],
        notes=notes[:MOST_NOTES],
        compared=compared(advice, names),
        grid=grid(advice, names),
        stages=stages(advice),
        reports=reports or {},
        after=said.what_next(advice),
        took=duration(advice.seconds),
        asked=moment(advice.made_at),
        machine=machine,
        models=[(it.name, private(it.reference), it.sha256) for it in (advice.target, advice.draft) if it is not None],
        folder=str(folder),
    )


def all_tables(advice: Advice) -> list[Table]:
    """Every table of an advice, for files."""
    names = said.names_of(advice)
    return [compared(advice, names), grid(advice, names)]


def all_figures(advice: Advice) -> list[Figure]:
    """Every figure of an advice, for files."""
    return list(advice_figures(advice, said.names_of(advice)).values())


def stages(advice: Advice) -> Table:
    """What was carried out, and how long it took."""
    return made(
        "stages",
        advice.stages,
        ("stage", "text", lambda it: Phrase(f"stage.{it.stage}")),
        ("seconds", "number", lambda it: Cell(duration(it.seconds), it.seconds)),
        ("blocks", "number", lambda it: counted(it.blocks)),
        ("on_prompts", "number", lambda it: counted(it.prompts)),
        ("verdict", "text", lambda it: Phrase(f"verdict.{it.verdict or 'unchecked'}")),
        ("report", "text", lambda it: Cell(it.folder, code=True)),
    )
