"""A small static site of several studies: an index, a page for each, and its data to download."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specmeter.errors import UsageError
from specmeter.printable import printable
from specmeter.report.document import Document, read_document
from specmeter.report.files import explained, write_figures, write_tables, write_text
from specmeter.report.numbers import size
from specmeter.report.page import document_charts, render, run_page
from specmeter.report.sentence import label
from specmeter.report.table import Cell, Column, Phrase, Row, Table, estimated
from specmeter.report.tables import verdict, verdict_cell
from specmeter.report.words import LANGUAGES, Language

if TYPE_CHECKING:
    from specmeter.answer import Answer

DATA = "data"
"""Folder of downloads beside each study's page."""
_KEPT = ("BENCHMARK_ENV.md", "certificate.json")
"""Files of a run folder that readers may want as they are."""


_GENERATOR = '<meta name="generator" content="specmeter'
_HEAD = 4_000
_FIGURE_CM = 16.0


class Study(NamedTuple):
    """One study of the site."""

    slug: str
    """Its folder."""
    document: Document


def write_site(folder: Path, runs: Sequence[Path], languages: Sequence[Language] = LANGUAGES) -> list[Path]:
    """Write the site; pages of an earlier one are replaced. Returns its pages, the index first.

    Raises `StoreError` for a run, and `UsageError` where there is none, or where `folder` holds something else.
    """
    if not runs:
        raise UsageError("site: no run to show", fix="name run folders, or measure one with `specmeter run demo`")
    _refuse_other_folders(folder)
    studies: list[Study] = []
    for run in runs:
        slug = _slug(run.resolve().name, {study.slug for study in studies})
        studies.append(Study(slug, read_document(run)))
    pages = [folder / "index.html"]
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(pages[0], _index(studies, languages))
    for study in studies:
        page = folder / study.slug / "index.html"
        data = folder / study.slug / DATA
        with explained(data):
            data.mkdir(parents=True, exist_ok=True)
            for name in _KEPT:
                if (study.document.run.folder / name).is_file():
                    shutil.copyfile(study.document.run.folder / name, data / name)
        write_text(data / "experiment.yaml", study.document.experiment_yaml)
        write_tables(study.document, data, languages)
        if importlib.util.find_spec("vl_convert"):
            write_figures(document_charts(study.document), data, ["svg"], _FIGURE_CM, languages)
        downloads = [(f"{DATA}/{path.name}", size(path.stat().st_size)) for path in sorted(data.iterdir())]
        write_text(page, run_page(study.document, languages, index="../index.html", downloads=downloads))
        pages.append(page)
    return pages


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
    """A folder name of harmless characters that is not taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80] or "study"
    slug, number = plain, 2
    while slug in taken:
        slug, number = f"{plain}-{number}", number + 1
    return slug


def _index(studies: Sequence[Study], languages: Sequence[Language]) -> str:
    return render(
        "index.html",
        languages,
        {},
        title="specmeter",
        studies=studies,
        table=_answers(studies),
        verdict=verdict,
    )


def _answers(studies: Sequence[Study]) -> Table:
    """Every answer of every study in one table."""
    columns = (
        Column("study"),
        Column("target"),
        Column("decision"),
        Column("arm"),
        Column("speedup_all", "number"),
        Column("verdict"),
    )
    rows = [_answer(study, answer) for study in studies for answer in study.document.run.answers]
    return Table("answers", columns, rows)


def _answer(study: Study, answer: Answer) -> Row:
    document = study.document
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
