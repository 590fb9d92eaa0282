"""What specmeter asks this package for; see `specmeter.show.studies`. Nothing heavy is imported before it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import specmeter_studies

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.show.studies import Shown
    from specmeter.show.table import Table
    from specmeter_studies.show.document import StudyDocument
    from specmeter_studies.show.site import StudyOnSite
    from specmeter_studies.study import StudyFindings

EXPERIMENTS: str = "specmeter_studies.experiments"
RULINGS: tuple[str, ...] = ("supported", "contradicted", "cannot tell", "does not apply here")


def names() -> tuple[str, ...]:
    """All bundled studies."""
    return specmeter_studies.names()


def of_run(run: RunReport) -> StudyDocument | None:
    """What a run says about its study, where its experiment is one on its own; None for all other runs."""
    from specmeter_studies.show.document import document_of_run

    return document_of_run(run)


def shown(folder: Path, languages: Sequence[str]) -> Shown:
    """A study folder. Raises `StoreError` or `UsageError` for a damaged one."""
    from specmeter.store.run import REPORT_NAME
    from specmeter_studies.folder import StudyFolder
    from specmeter_studies.show.document import read_study

    return _shown([read_study(StudyFolder(folder))], folder / REPORT_NAME, languages)


def load(folder: Path) -> StudyFindings:
    """What a study folder says, finished or not. Raises `StoreError` or `UsageError` for a damaged one."""
    return specmeter_studies.load(folder)


def print_study(folder: Path, *, as_json: bool) -> int:
    """What `specmeter study show` does; returns its exit code."""
    from specmeter_studies.show import terminal

    return terminal.print_study(folder, trusted=False, as_json=as_json)


def published(name: str, languages: Sequence[str]) -> Shown:
    """Studies by the numbers of their documents. Raises `UsageError` for an unknown name."""
    from specmeter.show.page.files import write_made, write_report_tables
    from specmeter.show.page.page import report_page
    from specmeter.show.studies import Shown
    from specmeter_studies.show import documents
    from specmeter_studies.show.document import published_documents

    place = Path(f"{name}-published.html")
    if name != documents.ALL:
        return _shown(published_documents(name), place, languages)
    report = documents.report()

    return Shown(
        report.figures,
        lambda to, only: write_report_tables(report, to, languages, only),
        lambda path, inside: [write_made(path, report_page(report, languages).encode(), inside=inside)],
        place,
    )


def _shown(studies: Sequence[StudyDocument], place: Path, languages: Sequence[str]) -> Shown:
    from specmeter.show.studies import Shown
    from specmeter_studies.show.page import write_study_page, write_study_tables

    return Shown(
        lambda: [it for study in studies for it in study.figures],
        lambda to, only: write_study_tables(studies, to, languages, only),
        lambda path, inside: [write_study_page(studies, path, languages, inside=inside)],
        place,
    )


def list_published() -> Iterator[str]:
    """A line for each name that `published` takes."""
    from specmeter_studies.show.document import GROUPS

    for name in names():
        study = specmeter_studies.find(name)
        printed = "" if study.published() is not None else " (printed no numbers)"
        yield f"{name}: {study.title}{printed}"
    for name, members in GROUPS.items():
        yield f"{name}: {', '.join(members)}"
    yield "all: the answer of all documents on one page, and why they disagree"


def on_site(folder: Path, slug: Callable[[str], str]) -> StudyOnSite:
    """A study folder for a site. Raises `StoreError` or `UsageError` for a damaged one."""
    from specmeter_studies.show import site

    return site.on_site(folder, slug)


def published_on_site(name: str, slug: Callable[[str], str]) -> list[StudyOnSite]:
    """The studies of a name, or of a group of them, each for a page of its own."""
    from specmeter_studies.show import site

    return site.published_on_site(name, slug)


def site_claims(studies: Sequence[StudyOnSite]) -> Table:
    """How many claims of each study of a site were ruled how."""
    from specmeter_studies.show import site

    return site.site_claims(studies)


def compare_machines(
    runs: Sequence[str], bandwidths: Sequence[str], html: Path | None, languages: Sequence[str], *, as_json: bool
) -> int:
    """What `specmeter compare --machines` does; returns its exit code."""
    from specmeter_studies.show import machines

    return machines.compare_machines(runs, bandwidths, html, languages, as_json=as_json)
