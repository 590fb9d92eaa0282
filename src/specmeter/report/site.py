"""A small static site of several runs and studies: an index, a page for each, and its data to download.

A study of a document comes from its folder, or from the numbers that the document printed; its page is the one that
`specmeter report` writes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specmeter.environment import private
from specmeter.errors import UsageError
from specmeter.printable import printable
from specmeter.report.document import Document, read_document
from specmeter.report.files import explained, write_figures, write_study_tables, write_tables, write_text
from specmeter.report.numbers import size
from specmeter.report.page import document_charts, render, run_page
from specmeter.report.sentence import label
from specmeter.report.study_document import StudyDocument, published_documents, read_study
from specmeter.report.study_files import write_data
from specmeter.report.study_page import study_page
from specmeter.report.table import Cell, Column, Phrase, Row, Table, counted, estimated
from specmeter.report.tables import verdict, verdict_cell
from specmeter.report.words import LANGUAGES, Language
from specmeter.store.run import CERTIFICATE_NAME, ENVIRONMENT_NAME
from specmeter.studies.folder import StudyFolder, exists

if TYPE_CHECKING:
    from specmeter.answer import Answer
    from specmeter.report.charts import Chart

DATA = "data"
"""Folder of downloads beside each page."""
RULINGS = ("supported", "contradicted", "cannot tell")

_KEPT = (ENVIRONMENT_NAME, CERTIFICATE_NAME)
"""Files of a run folder that readers may want as they are."""
_VERDICTS = ("invalid", "suspect", "unchecked", "valid")
"""The worst first."""
_INDEX = "../index.html"
_GENERATOR = '<meta name="generator" content="specmeter'
_HEAD = 4_000
_FIGURE_CM = 16.0


class Run(NamedTuple):
    """A run of the site."""

    slug: str
    """Its folder."""
    document: Document


class Study(NamedTuple):
    """A study of a document on the site."""

    slug: str
    document: StudyDocument
    folder: StudyFolder | None = None
    """Where it was measured; None: the numbers are the document's."""

    @property
    def state(self) -> str:
        """`complete` or `partial`; empty where nothing is to be measured."""
        if self.folder is None:
            return ""
        begun = any(self.folder.has_begun(part) for part in self.folder.record().parts)
        return "complete" if begun and self.folder.is_finished() else "partial"

    @property
    def verdict(self) -> str:
        """The worst of its runs; empty where there is no run."""
        if self.folder is None:
            return ""
        known = self.folder.verdicts()
        begun = [part.name for part in self.folder.record().parts if self.folder.run_state(part) is not None]
        return min((known.get(part, "unchecked") for part in begun), key=_VERDICTS.index, default="")


def write_site(
    folder: Path,
    measured: Sequence[Path],
    languages: Sequence[Language] = LANGUAGES,
    published: Sequence[str] = (),
) -> list[Path]:
    """Write the site of run folders and study folders, and of studies as they were `published`, by name or group.

    Pages of an earlier site are replaced. Returns the pages, the index first. Raises `StoreError` for a folder that is
    neither, and `UsageError` where there is none, for a study that printed no numbers, or where `folder` holds
    something else.
    """
    if not measured and not published:
        raise UsageError(
            "site: no run to show, and no study", fix="name their folders, or measure one with `specmeter run demo`"
        )
    _refuse_other_folders(folder)
    runs: list[Run] = []
    studies: list[Study] = []
    taken: set[str] = set()
    for place in measured:
        slug = _slug(place.resolve().name, taken)
        if exists(place):
            studies.append(Study(slug, read_study(StudyFolder(place)), StudyFolder(place)))
        else:
            runs.append(Run(slug, read_document(place)))
    studies += [Study(_slug(f"{one.name}-published", taken), one) for name in published for one in _published(name)]
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.html"
    write_text(index, _index(runs, studies, languages))
    pages = [_write_study(study, folder / study.slug, languages) for study in studies]
    return [index, *pages, *(_write_run(run, folder / run.slug, languages) for run in runs)]


def _published(name: str) -> list[StudyDocument]:
    """The studies of a name or a group, each for a page of its own."""
    return [replace(document, prefix="") for document in published_documents(name)]


def _write_run(run: Run, folder: Path, languages: Sequence[Language]) -> Path:
    data = _data_folder(folder)
    _copy_kept(run.document.run.folder, data)
    write_text(data / "experiment.yaml", run.document.experiment_yaml)
    write_tables(run.document, data, languages)
    _write_figures(document_charts(run.document), data, languages)
    page = folder / "index.html"
    write_text(page, run_page(run.document, languages, index=_INDEX, downloads=_downloads(data)))
    return page


def _write_study(study: Study, folder: Path, languages: Sequence[Language]) -> Path:
    data = _data_folder(folder)
    write_study_tables([study.document], data, languages)
    if study.folder is not None:
        _write_measured(study.folder, data)
    _write_figures(study.document.charts, data, languages)
    page = folder / "index.html"
    write_text(page, study_page([study.document], languages, index=_INDEX, downloads=_downloads(data)))
    return page


def _write_measured(folder: StudyFolder, data: Path) -> None:
    """Requests, environment and certificate of each run, reports of quality, and what was asked for."""
    parts = [part for part in folder.record().parts if folder.has_begun(part)]
    experiments = [part.name for part in parts if part.kind == "experiment"]
    if experiments:
        write_data(folder, data)
    for name in experiments:
        _copy_kept(folder.run_folder(name), data, "" if len(experiments) == 1 else f"{name}.")
    kept = [folder.quality_file(part.name) for part in parts if part.kind == "quality"]
    for path in (folder.record_path, *kept):
        with explained(data / path.name):
            text = path.read_text("utf-8")
        write_text(data / path.name, private(text))


def _copy_kept(run: Path, data: Path, prefix: str = "") -> None:
    for name in _KEPT:
        if (run / name).is_file():
            with explained(data / f"{prefix}{name}"):
                shutil.copyfile(run / name, data / f"{prefix}{name}")


def _write_figures(charts: Mapping[str, Chart], data: Path, languages: Sequence[Language]) -> None:
    if importlib.util.find_spec("vl_convert"):
        write_figures(charts, data, ["svg"], _FIGURE_CM, languages)


def _data_folder(folder: Path) -> Path:
    data = folder / DATA
    with explained(data):
        data.mkdir(parents=True, exist_ok=True)
    return data


def _downloads(data: Path) -> list[tuple[str, str]]:
    return [(f"{DATA}/{path.name}", size(path.stat().st_size)) for path in sorted(data.iterdir())]


def _refuse_other_folders(folder: Path) -> None:
    """A site is written over a site, never into somebody's folder of other things."""
    index = folder / "index.html"
    with explained(folder):
        if not folder.exists() or not any(folder.iterdir()):
            return
        start = index.read_text("utf-8", errors="replace")[:_HEAD] if index.is_file() else ""
    if _GENERATOR not in start:
        raise UsageError(f"{folder}: holds something that is no site of specmeter", fix="name a new folder")


def _slug(name: str, taken: set[str]) -> str:
    """A folder name of harmless characters that is not taken; it is from now on."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80] or "study"
    slug, number = plain, 2
    while slug in taken:
        slug, number = f"{plain}-{number}", number + 1
    taken.add(slug)
    return slug


def _index(runs: Sequence[Run], studies: Sequence[Study], languages: Sequence[Language]) -> str:
    return render(
        "index.html",
        languages,
        {},
        title="specmeter",
        runs=runs,
        studies=studies,
        rulings=RULINGS,
        tables=[table for table in (_claims(studies), _answers(runs)) if table.rows],
    )


def _claims(studies: Sequence[Study]) -> Table:
    """How many claims of each study were ruled how."""
    columns = (
        Column("study"),
        Column("state"),
        *(Column(ruling.replace(" ", "_"), "number") for ruling in RULINGS),
        Column("runs_verdict"),
    )
    return Table("site_claims", columns, [_counts(study) for study in studies])


def _counts(study: Study) -> Row:
    cells = (
        Cell(printable(study.document.title)),
        Cell(Phrase(f"state.{study.state}" if study.state else "study.origin.published")),
        *(counted(study.document.counts[ruling]) for ruling in RULINGS),
        Cell(Phrase(f"verdict.{study.verdict}") if study.verdict else "-"),
    )
    return Row(cells)


def _answers(runs: Sequence[Run]) -> Table:
    """Every answer of every run in one table."""
    columns = (
        Column("study"),
        Column("target"),
        Column("decision"),
        Column("arm"),
        Column("speedup_all", "number"),
        Column("verdict"),
    )
    rows = [_answer(run, answer) for run in runs for answer in run.document.run.answers]
    return Table("answers", columns, rows)


def _answer(run: Run, answer: Answer) -> Row:
    document = run.document
    target = next((arm.target for arm in document.run.arms if arm.id == answer.arm_id), "-")
    cells = (
        Cell(printable(document.run.name)),
        Cell(target),
        Cell(Phrase(f"decision.{answer.decision}")),
        Cell(label(answer.arm_id), code=True),
        estimated(answer.speedup_simultaneous or answer.speedup, 2),
        verdict_cell(document, answer.arm_id),
    )
    return Row(cells, verdict(document, answer.arm_id))
