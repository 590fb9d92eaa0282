"""Pages of advices and schedules, with those that they link to: a stage's report, the advice of each load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.schedule import Schedule, clients_of, folder_of
from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.show.page.document import read_document
from specmeter.show.page.files import make_folder, write_made, write_page
from specmeter.show.page.page import report_page
from specmeter.show.schedule_report import report_of
from specmeter.store.guarded import is_run
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice


ADVICE_PAGE = "advice.html"


def page_name(found: Advice | Schedule) -> str:
    """Of its page in its folder."""
    return "schedule.html" if isinstance(found, Schedule) else ADVICE_PAGE


def write_advised_page(
    found: Advice | Schedule,
    folder: Path,
    path: Path,
    languages: Sequence[str],
    *,
    inside: bool = False,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Write the page; `inside` a folder of ours also those below it, to which it then links: the report of each stage,
    or the advice of each load with its own. The page first. `index` and `downloads` as of `report_page`.

    What cannot be read is not linked to. Raises `UsageError` where the page cannot be written.
    """
    written: list[Path] = []
    links: dict[str, str] = {}
    above = None if index is None else f"../{index}"
    for name, advice in _below(found) if inside else ():
        place = folder / name
        if is_link(place) or (advice is None and not is_run(place)):  # a link may lead anywhere, and is left alone
            continue
        try:
            to = make_folder(path.parent, name)
            if advice is None:
                pages = [write_page(read_document(place), to / REPORT_NAME, languages, inside=True, index=above)]
            else:
                pages = write_advised_page(advice, place, to / ADVICE_PAGE, languages, inside=True, index=above)
        except UsageError:
            continue
        links[name] = f"{name}/{pages[0].name}"
        written += pages
    page = report_page(report_of(found, own(folder), links), languages, index=index, downloads=downloads)
    return [write_made(path, page.encode(), inside=inside), *written]


def _below(found: Advice | Schedule) -> Iterable[tuple[str, Advice | None]]:
    """(folder, advice) of what has a page below it; of stages None."""
    if isinstance(found, Schedule):
        return [(folder_of(clients_of(it)), it) for it in found.advices]
    return dict.fromkeys(it.folder for it in found.stages).items()


def own(folder: Path) -> Path:
    """A folder as pages name it, which others may see."""
    return Path(folder.resolve().name)
