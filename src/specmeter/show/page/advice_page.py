"""Pages of advices and schedules, with those that they link to: a stage's report, the advice of each load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.schedule import clients_of, folder_of
from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.show import advice_report, schedule_report
from specmeter.show.page.document import read_document
from specmeter.show.page.files import write_made, write_page
from specmeter.show.page.page import report_page
from specmeter.store.guarded import is_run
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.schedule import Schedule


ADVICE_PAGE = "advice.html"
SCHEDULE_PAGE = "schedule.html"


def write_advice_page(
    advice: Advice, folder: Path, path: Path, languages: Sequence[str], *, inside: bool = False
) -> list[Path]:
    """Write the page; `inside` its folder also the report of each stage, which it then links to. The page first.

    A stage that cannot be read is not linked to. Raises `UsageError` where the page cannot be written.
    """
    reports = _write_reports(advice, folder, languages) if inside else {}
    links = {name: f"{name}/{REPORT_NAME}" for name in reports}
    page = report_page(advice_report.report(advice, own(folder), links), languages)
    return [write_made(path, page.encode(), inside=inside), *reports.values()]


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


def write_schedule_page(
    schedule: Schedule, folder: Path, path: Path, languages: Sequence[str], *, inside: bool = False
) -> list[Path]:
    """Write the page; `inside` its folder also those of its advices with their reports, which it then links to. The
    page first.

    Raises `UsageError` where the page cannot be written.
    """
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
    page = report_page(schedule_report.report(schedule, own(folder), links), languages)
    return [write_made(path, page.encode(), inside=inside), *written]


def own(folder: Path) -> Path:
    """A folder as pages name it, which others may see."""
    return Path(folder.resolve().name)
