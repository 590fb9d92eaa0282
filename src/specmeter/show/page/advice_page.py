"""An advice as one page: the answer and what to paste, what was compared, the whole grid, and its stages.

The page of an advice and the reports of its stages, and its tables, as files.

A schedule as one page: the answer, what to use with how many clients, what to paste, and the advice of each load.

The page of a schedule and those of its advices, and its tables, as files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.export_commands import MEASURED, PROGRAMS
from specmeter.advise.schedule import clients_of, folder_of
from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.messages import LANGUAGES, Message
from specmeter.show import advice_report, schedule_report
from specmeter.show.advice_figures import advice_figures, schedule_figures
from specmeter.show.advice_report import compared, grid
from specmeter.show.page.document import read_document
from specmeter.show.page.files import make_folder, refuse_others, write_page, write_table, write_text
from specmeter.show.page.page import machine, moment, render, shareable
from specmeter.show.schedule_report import by_batch_size, by_clients
from specmeter.show.table import Cell, Table, counted, made
from specmeter.store.environment import private
from specmeter.store.guarded import is_run
from specmeter.store.run import REPORT_NAME
from specmeter.text import duration, printable

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.schedule import Schedule
    from specmeter.show.figure import Figure


MOST_NOTES = 30
_LOOKS = {"speculate": "speculate", "off": "stop"}


def advice_page(
    advice: Advice,
    folder: Path,
    languages: Sequence[str] = LANGUAGES,
    *,
    reports: Mapping[str, str] | None = None,
) -> str:
    """The page. `reports`: name of a stage's folder -> its report, relative to the page."""
    names = advice_report.names_of(advice)
    figures = advice_figures(advice, names)
    lines = advice_report.commands(advice)
    elsewhere = {program for program in lines if program in PROGRAMS and program != MEASURED}
    folder = Path(folder.resolve().name)  # others may see the page
    notes = list(advice_report.notes(advice, folder, names))
    return render(
        "advice.html",
        languages,
        figures.values(),
        figures=figures,
        title=f"{printable(advice_report.target_of(advice))} · specmeter",
        advice=advice,
        head=advice_report.headline(advice, names),
        look=_LOOKS.get(advice.decision, "") if advice.basis == "confirmed" else "",
        points=[
            it
            for it in (advice_report.by_kind(advice, names), advice_report.would_decide(advice, folder))
            if it is not None
        ],
        reason=advice_report.reason(advice),
        counts=advice_report.counts(advice),
        about=advice_report.about_numbers(advice),
        commands=[(program, program in elsewhere, shareable(line)) for program, line in lines.items()],
        notes=notes[:MOST_NOTES],
        compared=compared(advice, names),
        grid=grid(advice, names),
        stages=stages(advice),
        reports=reports or {},
        after=advice_report.what_next(advice),
        took=duration(advice.seconds),
        asked=moment(advice.made_at),
        machine=machine,
        models=[(it.name, private(it.reference), it.sha256) for it in (advice.target, advice.draft) if it is not None],
        folder=str(folder),
    )


def advice_tables(advice: Advice) -> list[Table]:
    """Every table of an advice, for files."""
    names = advice_report.names_of(advice)
    return [compared(advice, names), grid(advice, names)]


def all_figures(advice: Advice) -> list[Figure]:
    """Every figure of an advice, for files."""
    return list(advice_figures(advice, advice_report.names_of(advice)).values())


def stages(advice: Advice) -> Table:
    """What was carried out, and how long it took."""
    return made(
        "stages",
        advice.stages,
        ("stage", "text", lambda it: Message(f"stage.{it.stage}")),
        ("seconds", "number", lambda it: Cell(duration(it.seconds), it.seconds)),
        ("blocks", "number", lambda it: counted(it.blocks)),
        ("on_prompts", "number", lambda it: counted(it.prompts)),
        ("verdict", "text", lambda it: Message(f"verdict.{it.verdict or 'unchecked'}")),
        ("report", "text", lambda it: Cell(it.folder, code=True)),
    )


ADVICE_PAGE = "advice.html"


def write_advice_page(
    advice: Advice, folder: Path, path: Path, languages: Sequence[str], *, inside: bool = False
) -> list[Path]:
    """Write the page; `inside` its folder also the report of each stage, which it then links to. The page first.

    A stage that cannot be read is not linked to. Raises `UsageError` where the page cannot be written.
    """
    if not inside:
        refuse_others(path)
    reports = _write_reports(advice, folder, languages) if inside else {}
    links = {name: f"{name}/{REPORT_NAME}" for name in reports}
    write_text(path, advice_page(advice, folder, languages, reports=links), inside=inside)
    return [path, *reports.values()]


def _write_reports(advice: Advice, folder: Path, languages: Sequence[str]) -> dict[str, Path]:
    """Folder of a stage -> its report; a link among them may lead anywhere, and is left alone."""
    written: dict[str, Path] = {}
    for stage in advice.stages:
        place = folder / stage.folder
        if is_link(place) or not is_run(place):
            continue
        try:
            written[stage.folder] = write_page(read_document(place), place / REPORT_NAME, languages, inside=True)
        except UsageError:
            continue
    return written


def write_advice_tables(advice: Advice, folder: Path, languages: Sequence[str]) -> list[Path]:
    """Write what was compared and the whole grid as Markdown, CSV and LaTeX."""
    make_folder(folder)
    written: list[Path] = []
    for table in advice_tables(advice):
        written += write_table(table, table.name, folder, languages)
    return written


MOST_SCHEDULE_NOTES = 60


def schedule_page(
    schedule: Schedule,
    folder: Path,
    languages: Sequence[str] = LANGUAGES,
    *,
    advices: Mapping[int, str] | None = None,
) -> str:
    """The page. `advices`: number of clients -> the page of its advice, relative to this one."""
    figures = schedule_figures(schedule)
    folder = Path(folder.resolve().name)  # others may see the page
    first = schedule.advices[0] if schedule.advices else None
    again = schedule_report.again(schedule)
    return render(
        "schedule.html",
        languages,
        figures.values(),
        figures=figures,
        title=f"{printable(schedule_report.target_of(schedule))} · specmeter",
        schedule=schedule,
        head=schedule_report.headline(schedule),
        look={"always": "speculate", "never": "stop"}.get(schedule.pattern, ""),
        points=[] if again is None else [again],
        table_of=by_clients(schedule),
        about=schedule_report.ABOUT_NUMBERS,
        commands=[
            (load, program in PROGRAMS and program != MEASURED, program, shareable(line))
            for load, program, line in schedule_report.commands(schedule)
        ],
        elsewhere=[
            (program, by_batch_size(found), shareable(found.line) if found.line else "", found.notes)
            for program, found in schedule_report.elsewhere(schedule).items()
        ],
        notes=list(schedule_report.notes(schedule, folder))[:MOST_SCHEDULE_NOTES],
        advices=[(_advice(clients), href) for clients, href in (advices or {}).items()],
        took=duration(sum(it.seconds for it in schedule.advices)),
        asked=moment(schedule.made_at),
        host=None if first is None else first.host,
        engine=None if first is None else first.engine,
        after=schedule_report.what_next(schedule),
        folder=str(folder),
    )


def _advice(clients: int) -> Message:
    return Message("scheduled.advice", loads=schedule_report.clients([clients]))


def schedule_tables(schedule: Schedule) -> list[Table]:
    """Every table of a schedule, for files."""
    return [by_clients(schedule)]


def all_schedule_figures(schedule: Schedule) -> list[Figure]:
    """Every figure of a schedule, for files."""
    return list(schedule_figures(schedule).values())


SCHEDULE_PAGE = "schedule.html"


def write_schedule_page(
    schedule: Schedule, folder: Path, path: Path, languages: Sequence[str], *, inside: bool = False
) -> list[Path]:
    """Write the page; `inside` its folder also those of its advices with their reports, which it then links to. The
    page first.

    Raises `UsageError` where the page cannot be written.
    """
    if not inside:
        refuse_others(path)
    written: list[Path] = []
    links: dict[int, str] = {}
    for advice in schedule.advices if inside else ():
        name = folder_of(clients_of(advice))
        place = folder / name
        if is_link(place):  # it may lead anywhere, and is left alone
            continue
        try:
            written += write_advice_page(advice, place, place / ADVICE_PAGE, languages, inside=True)
        except UsageError:
            continue
        links[clients_of(advice)] = f"{name}/{ADVICE_PAGE}"
    write_text(path, schedule_page(schedule, folder, languages, advices=links), inside=inside)
    return [path, *written]


def write_schedule_tables(schedule: Schedule, folder: Path, languages: Sequence[str]) -> list[Path]:
    """Write what to use with how many clients as Markdown, CSV and LaTeX."""
    make_folder(folder)
    return [path for it in schedule_tables(schedule) for path in write_table(it, it.name, folder, languages)]
