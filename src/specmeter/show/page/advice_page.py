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
from specmeter.show.page.files import make_folder, write_made, write_page
from specmeter.show.page.page import report_page
from specmeter.store.guarded import is_run
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.schedule import Schedule


ADVICE_PAGE = "advice.html"
SCHEDULE_PAGE = "schedule.html"


def write_advice_page(
    advice: Advice,
    folder: Path,
    path: Path,
    languages: Sequence[str],
    *,
    inside: bool = False,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Write the page; `inside` a folder of ours also the report of each stage below it, which it then links to. The
    page first. `index` and `downloads` as of `report_page`.

    A stage that cannot be read is not linked to. Raises `UsageError` where the page cannot be written.
    """
    reports = _write_reports(advice, folder, path.parent, languages, _above(index)) if inside else {}
    links = {name: f"{name}/{REPORT_NAME}" for name in reports}
    report = advice_report.report(advice, own(folder), links)
    page = report_page(report, languages, index=index, downloads=downloads)
    return [write_made(path, page.encode(), inside=inside), *reports.values()]


def _above(index: str | None) -> str | None:
    """From a folder deeper."""
    return None if index is None else f"../{index}"


def _write_reports(
    advice: Advice, folder: Path, to: Path, languages: Sequence[str], index: str | None
) -> dict[str, Path]:
    """Folder of a stage -> its report; a link among them may lead anywhere, and is left alone."""
    written: dict[str, Path] = {}
    for stage in advice.stages:
        place = folder / stage.folder
        if is_link(place) or not is_run(place):
            continue
        try:
            report = make_folder(to, stage.folder) / REPORT_NAME
            written[stage.folder] = write_page(read_document(place), report, languages, inside=True, index=index)
        except UsageError:
            continue
    return written


def write_schedule_page(
    schedule: Schedule,
    folder: Path,
    path: Path,
    languages: Sequence[str],
    *,
    inside: bool = False,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Write the page; `inside` a folder of ours also those of its advices with their reports, which it then links to.
    The page first.

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
            page = make_folder(path.parent, name) / ADVICE_PAGE
            written += write_advice_page(advice, place, page, languages, inside=True, index=_above(index))
        except UsageError:
            continue
        links[clients_of(advice)] = f"{name}/{ADVICE_PAGE}"
    report = schedule_report.report(schedule, own(folder), links)
    page = report_page(report, languages, index=index, downloads=downloads)
    return [write_made(path, page.encode(), inside=inside), *written]


def own(folder: Path) -> Path:
    """A folder as pages name it, which others may see."""
    return Path(folder.resolve().name)
