"""The page of a schedule and those of its advices, and its tables, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.schedule import clients_of, folder_of
from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.show.page.advice_files import PAGE_NAME as ADVICE_PAGE
from specmeter.show.page.advice_files import write_advice_page
from specmeter.show.page.files import make_folder, refuse_others, write_table, write_text
from specmeter.show.page.schedule_page import all_tables, schedule_page

if TYPE_CHECKING:
    from specmeter.advise.schedule import Schedule
    from specmeter.show.words import Language

PAGE_NAME = "schedule.html"


def write_schedule_page(
    schedule: Schedule, folder: Path, path: Path, languages: Sequence[Language], *, inside: bool = False
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


def write_schedule_tables(schedule: Schedule, folder: Path, languages: Sequence[Language]) -> list[Path]:
    """Write what to use with how many clients as Markdown, CSV and LaTeX."""
    make_folder(folder)
    return [path for it in all_tables(schedule) for path in write_table(it, it.name, folder, languages)]
