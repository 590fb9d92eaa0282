"""A small static site of runs, advices, schedules and studies: an index, a page for each, and its data to download.

A study of a document comes from its folder, or from the numbers that the document printed; its page is the one that
`specmeter report` writes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from specmeter.advise.schedule import Schedule, read_advised
from specmeter.errors import StoreError, UsageError
from specmeter.messages import LANGUAGES, Message
from specmeter.show.crossover_words import crossover_sentence, main_crossovers, untold
from specmeter.show.page.advice_page import own, write_advised_page
from specmeter.show.page.document import Document, read_document
from specmeter.show.page.files import (
    copy_kept,
    explained,
    make_folder,
    whole_folder,
    write_figures,
    write_report_tables,
    write_tables,
    write_text,
)
from specmeter.show.page.page import document_figures, render, run_page
from specmeter.show.run_tables import verdict, verdict_cell
from specmeter.show.schedule_report import report_of
from specmeter.show.studies import needed, studies
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell
from specmeter.store.environment import private
from specmeter.store.locate import ADVICE_NAME, ADVISED, SCHEDULE_NAME, sort_of
from specmeter.store.run import CERTIFICATE_NAME, ENVIRONMENT_NAME
from specmeter.text import printable, size

if TYPE_CHECKING:
    from specmeter.analysis.answer import Answer
    from specmeter.show.figure import Figure
    from specmeter.show.report import Report
    from specmeter.show.studies import SiteStudy

_Entry: TypeAlias = "SiteRun | SiteAdvice | SiteStudy"
DATA = "data"
"""Folder of downloads beside each page."""

_KEPT = (ENVIRONMENT_NAME, CERTIFICATE_NAME)
"""Files of a run folder that readers may want as they are."""
INDEX = "../index.html"
"""From a page to the index."""
_GENERATOR = '<meta name="generator" content="specmeter'
_HEAD = 4_000
_FIGURE_CM = 16.0


class SiteRun(NamedTuple):
    """A run of the site."""

    slug: str
    """Its folder."""
    document: Document


class SiteAdvice(NamedTuple):
    """An advice or a schedule of the site."""

    slug: str
    """Its folder."""
    place: Path
    """The folder that it was measured into."""
    report: Report
    state: str
    cpu: str
    write: Callable[..., list[Path]]
    """Writes its page, and those of its stages below it."""


class OmittedFolder(NamedTuple):
    """A folder that the site does not show."""

    name: str
    reason: str


def write_site(
    folder: Path,
    measured: Sequence[Path],
    languages: Sequence[str] = LANGUAGES,
    published: Sequence[str] = (),
    *,
    damaged: Callable[[Path, UsageError], None] | None = None,
) -> list[Path]:
    """Write the site of folders of every sort, and of studies as they were `published`, by name or group.

    Pages of an earlier site are replaced. Returns the pages, the index first. A folder of `measured` that cannot be
    read is told to `damaged`, left out, and named on the index. Without `damaged` it raises its error: `StoreError`, or
    `UsageError` for a study. `UsageError` also where nothing is left to show, for a study that printed no numbers, or
    where `folder` holds something else.
    """
    if not measured and not published:
        raise UsageError(
            "site: no runs or studies to show", fix="pass their folders, or measure one with `specmeter run demo`"
        )
    _refuse_other_folders(folder)
    entries: list[_Entry] = []
    left_out: list[OmittedFolder] = []
    taken: set[str] = set()

    def leave_out(place: Path, error: UsageError) -> None:
        if damaged is None:
            raise error
        damaged(place, error)
        left_out.append(OmittedFolder(place.name, private(error.message)))

    for place in measured:
        try:
            entries.append(_read(place, taken))
        except UsageError as error:
            leave_out(place, error)
    for name in published:
        entries += needed(f"--published {name}").published_on_site(name, lambda one: _slug(one, taken))
    if not entries:
        raise UsageError(
            "site: none of these folders contains a readable run or study", fix="measure one with `specmeter run demo`"
        )
    entries.sort(key=lambda entry: isinstance(entry, SiteRun))
    index = folder / "index.html"
    pages: list[Path] = []
    shown: list[_Entry] = []
    with whole_folder(folder):
        write_text(index, _index(entries, left_out, languages), inside=True)  # first: pages alone would be no site
        for entry in entries:
            try:
                pages.append(_write_page(entry, make_folder(folder, entry.slug), languages))
                shown.append(entry)
            except StoreError as error:  # requests are read when they are exported
                leave_out(_place(entry), error)
                shutil.rmtree(folder / entry.slug, ignore_errors=True)
        if len(shown) < len(entries):
            write_text(index, _index(shown, left_out, languages), inside=True)
    return [index, *pages]


def _read(place: Path, taken: set[str]) -> _Entry:
    """Raises `StoreError` or `UsageError` for a folder that is none of them, or that is damaged."""
    sort = sort_of(place)
    if sort in ADVISED:
        found = read_advised(place)
        advices = found.advices if isinstance(found, Schedule) else (found,)
        cpu = next((it.host.cpu for it in advices if it.host), "")
        write = partial(write_advised_page, found, place)
        slug, state = _slug(place.resolve().name, taken), "complete" if found.finished else "partial"
        return SiteAdvice(slug, place, report_of(found, own(place)), state, cpu, write)
    if sort != "study":
        document = read_document(place)
        return SiteRun(_slug(place.resolve().name, taken), document)
    return needed(str(place)).on_site(place, lambda name: _slug(name, taken))


def _place(entry: _Entry) -> Path:
    """The folder that an entry was measured into; of a published study its name."""
    return entry.document.run.folder if isinstance(entry, SiteRun) else entry.place


def _write_page(entry: _Entry, folder: Path, languages: Sequence[str]) -> Path:
    if isinstance(entry, SiteAdvice):
        return _write_advice(entry, folder, languages)
    return _write_run(entry, folder, languages) if isinstance(entry, SiteRun) else entry.write(folder, languages)


def _write_run(run: SiteRun, folder: Path, languages: Sequence[str]) -> Path:
    data = make_folder(folder, DATA)
    copy_documents(run.document.run.folder, data)
    write_text(data / "experiment.yaml", run.document.experiment_yaml, inside=True)
    write_tables(run.document, data, languages)
    write_page_figures(document_figures(run.document).values(), data, languages)
    page = folder / "index.html"
    write_text(page, run_page(run.document, languages, index=INDEX, downloads=downloads_of(data)), inside=True)
    return page


def _write_advice(one: SiteAdvice, folder: Path, languages: Sequence[str]) -> Path:
    data = make_folder(folder, DATA)
    for name in (ADVICE_NAME, SCHEDULE_NAME, CERTIFICATE_NAME):
        copy_kept(one.place, name, data / name, private)
    write_report_tables(one.report, data, languages)
    write_page_figures(one.report.figures(), data, languages)
    page, *_ = one.write(folder / "index.html", languages, inside=True, index=INDEX, downloads=downloads_of(data))
    return page


def copy_documents(run: Path, data: Path, prefix: str = "") -> None:
    """Copy the documents of a run folder that readers may want as they are."""
    for name in _KEPT:
        copy_kept(run, name, data / f"{prefix}{name}")


def write_page_figures(shown: Collection[Figure], data: Path, languages: Sequence[str]) -> None:
    """Write the figures of a page, where the package that draws them is installed."""
    if importlib.util.find_spec("vl_convert"):
        write_figures(shown, data, ["svg"], _FIGURE_CM, languages)


def downloads_of(data: Path) -> list[tuple[str, str]]:
    """(address, size) of what lies beside a page."""
    return [(f"{DATA}/{path.name}", size(path.stat().st_size)) for path in sorted(data.iterdir())]


def _refuse_other_folders(folder: Path) -> None:
    """A site overwrites only a site, never a folder with anything else."""
    index = folder / "index.html"
    with explained(folder):
        if not folder.exists() or not any(folder.iterdir()):
            return
        start = index.read_text("utf-8", errors="replace")[:_HEAD] if index.is_file() else ""
    if _GENERATOR not in start:
        raise UsageError(f"{folder}: is not empty, and not a site made by specmeter", fix="choose a new folder")


def _slug(name: str, taken: set[str]) -> str:
    """A folder name of harmless characters that is not taken; it is from now on."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80] or "study"
    slug, number = plain, 2
    while slug in taken:
        slug, number = f"{plain}-{number}", number + 1
    taken.add(slug)
    return slug


def _index(entries: Sequence[_Entry], left_out: Sequence[OmittedFolder], languages: Sequence[str]) -> str:
    runs = [entry for entry in entries if isinstance(entry, SiteRun)]
    advices = [entry for entry in entries if isinstance(entry, SiteAdvice)]
    measured = [entry for entry in entries if not isinstance(entry, SiteRun | SiteAdvice)]
    package = studies()
    claims = [package.site_claims(measured)] if package is not None and measured else []
    return render(
        "index.html",
        languages,
        (),
        title="specmeter",
        runs=runs,
        advices=advices,
        studies=measured,
        left_out=left_out,
        heads=untold,
        crossings=main_crossovers,
        crossover_of=crossover_sentence,
        rulings=() if package is None else package.RULINGS,
        tables=[table for table in (*claims, _answers(runs)) if table.rows],
    )


def _answers(runs: Sequence[SiteRun]) -> Table:
    """Every answer of every run in one table."""
    columns = (
        Column("run"),
        Column("target"),
        Column("decision"),
        Column("arm"),
        Column("speedup_all", "number"),
        Column("verdict"),
    )
    rows = [_answer(run, answer) for run in runs for answer in run.document.run.answers]
    return Table("answers", columns, rows)


def _answer(run: SiteRun, answer: Answer) -> Row:
    document = run.document
    target = next((arm.target for arm in document.run.arms if arm.id == answer.arm_id), "-")
    cells = (
        Cell(printable(document.run.name)),
        Cell(f"{target} ({answer.kind})" if answer.kind else target),
        Cell(Message(f"decision.{answer.decision}")),
        document.named(answer.arm_id),
        estimate_cell(answer.speedup_simultaneous, 2),
        replace(verdict_cell(document, answer.arm_id), page=f"{run.slug}/index.html"),
    )
    return Row(cells, verdict(document, answer.arm_id))
