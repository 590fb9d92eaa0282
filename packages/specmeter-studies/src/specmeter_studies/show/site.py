"""A study on a site of several runs and studies: its page, its data, its line in the table of claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specmeter.messages import Message
from specmeter.show.page.files import copy_kept, make_folder, write_text
from specmeter.show.page.site import DATA, INDEX, copy_documents, downloads_of, write_page_figures
from specmeter.show.table import Cell, Column, Row, Table, counted
from specmeter.store.environment import private
from specmeter_studies.folder import StudyFolder
from specmeter_studies.show.data import write_data
from specmeter_studies.show.document import StudyDocument, published_documents, read_study
from specmeter_studies.show.page import study_page, write_study_tables
from specmeter_studies.study import FINDINGS

_VERDICTS = ("invalid", "suspect", "unchecked", "valid")
"""The worst first."""


@dataclass(frozen=True)
class StudyOnSite:
    """A study of a document on the site."""

    slug: str
    document: StudyDocument
    folder: StudyFolder | None = None
    """Where it was measured; None: the numbers are the document's."""
    state: str = ""
    """`complete` or `partial`; empty where nothing is to be measured."""
    verdict: str = ""
    """The worst of its runs; empty where there is no run."""

    @property
    def place(self) -> Path:
        """The folder that it was measured into; of a published one its name."""
        return Path(self.slug) if self.folder is None else self.folder.path

    def write(self, folder: Path, languages: Sequence[str]) -> Path:
        """Write its page and its data; returns the page."""
        data = make_folder(folder, DATA)
        write_study_tables([self.document], data, languages)
        if self.folder is not None:
            _write_measured(self.folder, data)
        write_page_figures(self.document.figures, data, languages)
        page = folder / "index.html"
        text = study_page([self.document], languages, index=INDEX, downloads=downloads_of(data))
        write_text(page, text, inside=True)
        return page


def on_site(place: Path, slug: Callable[[str], str]) -> StudyOnSite:
    """A study folder for a site; `slug` gives a name that is free. Raises `StoreError` or `UsageError`."""
    folder = StudyFolder(place)
    document, state, worst = read_study(folder), _state(folder), _worst_verdict(folder)
    return StudyOnSite(slug(place.resolve().name), document, folder, state, worst)


def published_on_site(name: str, slug: Callable[[str], str]) -> list[StudyOnSite]:
    """The studies of a name or a group, each for a page of its own."""
    documents = [replace(document, prefix="") for document in published_documents(name)]
    return [StudyOnSite(slug(f"{document.name}-published"), document) for document in documents]


def _state(folder: StudyFolder) -> str:
    begun = any(folder.has_begun(part) for part in folder.record().parts)
    return "complete" if begun and folder.is_finished() else "partial"


def _worst_verdict(folder: StudyFolder) -> str:
    known = folder.verdicts()
    begun = [part.name for part in folder.record().parts if folder.run_state(part) is not None]
    return min((known.get(part, "unchecked") for part in begun), key=_VERDICTS.index, default="")


def _write_measured(folder: StudyFolder, data: Path) -> None:
    """Requests, environment and certificate of each run, reports of quality, and what was asked for."""
    parts = [part for part in folder.record().parts if folder.has_begun(part)]
    experiments = [part.name for part in parts if part.kind == "experiment"]
    if experiments:
        write_data(folder, data)
    for name in experiments:
        copy_documents(folder.run_folder(name), data, "" if len(experiments) == 1 else f"{name}.")
    kept = [folder.quality_file(part.name) for part in parts if part.kind == "quality"]
    for path in (folder.record_path, *kept):
        copy_kept(path.parent, path.name, data / path.name, private)


def site_claims(studies: Sequence[StudyOnSite]) -> Table:
    """How many claims of each study were ruled how."""
    columns = (
        Column("study"),
        Column("state"),
        *(Column(ruling.replace(" ", "_"), "number") for ruling in FINDINGS),
        Column("runs_verdict"),
    )
    return Table("site_claims", columns, [_counts(study) for study in studies])


def _counts(study: StudyOnSite) -> Row:
    cells = (
        Cell(study.document.title),
        Cell(Message(f"state.{study.state}" if study.state else "study.origin.published")),
        *(counted(study.document.counts[ruling]) for ruling in FINDINGS),
        Cell(Message(f"verdict.{study.verdict}") if study.verdict else "-"),
    )
    return Row(cells)
