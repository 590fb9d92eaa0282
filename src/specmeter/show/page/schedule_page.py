"""A schedule as one page: the answer, what to use with how many clients, what to paste, and the advice of each load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.elsewhere import MEASURED, PROGRAMS
from specmeter.show import schedule_sentence as said
from specmeter.show.page.page import moment, render, shareable
from specmeter.show.schedule_figures import schedule_figures
from specmeter.show.schedule_tables import by_batch_size, by_clients
from specmeter.show.table import Phrase, Table
from specmeter.show.words import LANGUAGES, Language
from specmeter.text import duration, printable

if TYPE_CHECKING:
    from specmeter.advise.schedule import Schedule
    from specmeter.show.figure import Figure

MOST_NOTES = 60


def schedule_page(
    schedule: Schedule,
    folder: Path,
    languages: Sequence[Language] = LANGUAGES,
    *,
    advices: Mapping[int, str] | None = None,
) -> str:
    """The page. `advices`: number of clients -> the page of its advice, relative to this one."""
    figures = schedule_figures(schedule)
    folder = Path(folder.resolve().name)  # others may see the page
    first = schedule.advices[0] if schedule.advices else None
    again = said.again(schedule)
    return render(
        "schedule.html",
        languages,
        figures.values(),
        figures=figures,
        title=f"{printable(said.target_of(schedule))} · specmeter",
        schedule=schedule,
        head=said.headline(schedule),
        look={"always": "speculate", "never": "stop"}.get(schedule.pattern, ""),
        points=[] if again is None else [again],
        table_of=by_clients(schedule),
        about=said.ABOUT_NUMBERS,
        commands=[
            (load, program in PROGRAMS and program != MEASURED, program, shareable(line))
            for load, program, line in said.commands(schedule)
        ],
        elsewhere=[
            (program, by_batch_size(found), shareable(found.line) if found.line else "", found.notes)
            for program, found in said.elsewhere(schedule).items()
        ],
        notes=list(said.notes(schedule, folder))[:MOST_NOTES],
        advices=[(_advice(clients), href) for clients, href in (advices or {}).items()],
        took=duration(sum(it.seconds for it in schedule.advices)),
        asked=moment(schedule.made_at),
        host=None if first is None else first.host,
        engine=None if first is None else first.engine,
        after=said.what_next(schedule),
        folder=str(folder),
    )


def _advice(clients: int) -> Phrase:
    return Phrase("scheduled.advice", {"loads": said.clients([clients])})


def all_tables(schedule: Schedule) -> list[Table]:
    """Every table of a schedule, for files."""
    return [by_clients(schedule)]


def all_figures(schedule: Schedule) -> list[Figure]:
    """Every figure of a schedule, for files."""
    return list(schedule_figures(schedule).values())
