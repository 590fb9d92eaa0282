"""The page of an advice and the reports of its stages, and its tables, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.show.page.advice_page import advice_page, all_tables
from specmeter.show.page.document import read_document
from specmeter.show.page.files import make_folder, refuse_others, write_page, write_table, write_text
from specmeter.store.guarded import is_run
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.show.words import Language

PAGE_NAME = "advice.html"


def write_advice_page(
    advice: Advice, folder: Path, path: Path, languages: Sequence[Language], *, inside: bool = False
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


def _write_reports(advice: Advice, folder: Path, languages: Sequence[Language]) -> dict[str, Path]:
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


def write_advice_tables(advice: Advice, folder: Path, languages: Sequence[Language]) -> list[Path]:
    """Write what was compared and the whole grid as Markdown, CSV and LaTeX."""
    make_folder(folder)
    written: list[Path] = []
    for table in all_tables(advice):
        written += write_table(table, table.name, folder, languages)
    return written
