"""Pages, figures and tables as files."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.files import (
    NotPlainError,
    fix_for,
    make_folder_inside,
    open_regular,
    read_inside,
    whole_inside,
    write_inside,
    write_whole,
)
from specmeter.messages import words
from specmeter.show.drawing import figures
from specmeter.show.export.run_table import RunTable
from specmeter.show.load_tables import load_table
from specmeter.show.page.page import run_page
from specmeter.show.run_tables import checks, kinds, models, parts, predictions, prompts, results
from specmeter.show.table_files import FORMATS
from specmeter.store.integrity import sealed
from specmeter.store.locate import sort_of
from specmeter.text import printable_lines

if TYPE_CHECKING:
    from specmeter.show.figure import Figure
    from specmeter.show.page.document import Document
    from specmeter.show.report import Report
    from specmeter.show.studies import StudySection
    from specmeter.show.table import Table


def write_page(
    document: Document, path: Path, languages: Sequence[str], *, inside: bool = False, index: str | None = None
) -> Path:
    """Write the report of a run, sealed; a file of that name is replaced when the new one is complete."""
    page = run_page(document, languages, index=index).encode()
    return write_made(path, sealed(page, document.run.certificate_sha256), inside=inside)


def write_made(path: Path, page: bytes, *, inside: bool) -> Path:
    """Write a page, `inside` the folder that it is of, or where nothing else lies. Raises `UsageError`."""
    if not inside:
        refuse_others(path)
    write_bytes(path, page, inside=inside)
    return path


_OWN = re.compile(rb'<!doctype html>.*<meta name="generator" content="specmeter [^"<>]*">', re.S)
_HEAD_BYTES = 2**14


def refuse_others(path: Path) -> None:
    """Raise `UsageError` where a page would replace anything but a page of specmeter, or be taken for a file of a run.

    In the folder of a run, study, advice or schedule a new page needs a name that none of its other files can have.
    """
    fix = "choose a new file, or a page that specmeter wrote"
    try:
        with open_regular(path) as file:
            if not _OWN.match(file.read(_HEAD_BYTES)):
                raise UsageError(f"{path}: already exists, and specmeter did not write it", fix=fix)
    except FileNotFoundError:
        place = path.resolve()
        if place.suffix.lower() != ".html" and any(map(sort_of, place.parents)):
            raise UsageError(
                f"{path}: a run folder may only get .html pages", fix="use a file name that ends in .html"
            ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})", fix=fix) from None


def write_text(path: Path, text: str, *, inside: bool = False) -> None:
    """Write a file whole, like `write_bytes`."""
    write_bytes(path, text.encode(), inside=inside)


def write_bytes(path: Path, data: bytes, *, inside: bool = False) -> None:
    """Write a file whole. A path that a user names may be a link or a pipe; a link `inside` a folder is replaced.

    Raises `UsageError` when that is not possible.
    """
    with explained(path):
        write_inside(path.parent, path.name, data) if inside else write_whole(path, data)


_MAX_BYTES = 64 * 2**20
"""Of a document that is copied."""


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Failures of the file system as `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror or error})",
            fix=f"{fix_for(error)}, or choose another file",
        ) from None


def copy_kept(folder: Path, name: str, to: Path, mask: Callable[[str], str] = str) -> bool:
    """Copy a document of a run or study folder; returns whether there is one: a link is none, and is not published.

    Raises `UsageError` where it cannot be read or written.
    """
    try:
        content = read_inside(folder, name, _MAX_BYTES)
    except (FileNotFoundError, NotPlainError):
        return False
    except OSError as error:
        raise UsageError(
            f"{folder / name}: cannot be read ({error.strerror or error})", fix="check its permissions and its size"
        ) from None
    write_text(to, mask(printable_lines(content.decode("utf-8", "replace"), _MAX_BYTES)) + "\n", inside=True)
    return True


def write_figures(
    shown: Collection[Figure], folder: Path, formats: Sequence[str], width_cm: float, languages: Sequence[str]
) -> list[Path]:
    """Write every figure in every format; a second language gets names like `comparison.zh.svg`."""
    written: list[Path] = []
    with whole_folder(folder):
        for language in languages:
            for name, data in figures(shown, words(language), formats, width_cm):
                written.append(folder / _named(name, language, languages))
                write_bytes(written[-1], data, inside=True)
    return written


def write_tables(document: Document, folder: Path, languages: Sequence[str], only: Sequence[str] = ()) -> list[Path]:
    """Write every table as Markdown, CSV and LaTeX, and every request as JSON Lines, and as Parquet with pyarrow."""
    written: list[Path] = []
    with whole_folder(folder):
        made = (make(document) for make in (results, kinds, prompts, parts, predictions, checks, models))
        for table in (*made, load_table(document.run)):
            name = "summary" if table.name == "results" else table.name
            written += write_table(table, name, folder, languages, only)
        if document.study is not None:
            written += write_section(document.study, folder, languages, only)
        formats = ["jsonl", *(["parquet"] if importlib.util.find_spec("pyarrow") else [])]
        for ending in formats:
            written.append(folder / f"requests.{ending}")
            write_requests(document.run.folder, written[-1])
    return written


def write_report_tables(report: Report, folder: Path, languages: Sequence[str], only: Sequence[str] = ()) -> list[Path]:
    """Write every table of a report as Markdown, CSV and LaTeX."""
    with whole_folder(folder):
        return [path for table in report.tables() for path in write_table(table, table.name, folder, languages, only)]


def write_requests(run: Path, path: Path) -> None:
    """Write every request of a run, in the format that the name ends in, into a folder."""
    with explained(path), whole_inside(path.parent, path.name) as stream:
        RunTable(run, "requests").write(stream, path.suffix.removeprefix("."))


def write_section(study: StudySection, folder: Path, languages: Sequence[str], only: Sequence[str] = ()) -> list[Path]:
    """Write the claims and the tables of a study."""
    written = write_table(study.claims, f"{study.prefix}claims", folder, languages, only)
    for table in study.tables:
        written += write_table(table, table.name, folder, languages, only)
    return written


def write_table(
    table: Table, name: str, folder: Path, languages: Sequence[str], only: Sequence[str] = ()
) -> list[Path]:
    """A table in every form and language, CSV once; a table without rows is not written, and as LaTeX, which has `only`
    the columns of these names where any are given, none without them."""
    written: list[Path] = []
    chosen = {ending: table.only(only) if only and ending == "tex" else table for ending in FORMATS}
    for language in languages if table.rows else ():
        for ending, write in FORMATS.items():
            if chosen[ending].columns and (ending != "csv" or language == languages[0]):
                written.append(folder / _named(f"{name}.{ending}", language, languages))
                write_text(written[-1], write(chosen[ending], words(language)), inside=True)
    return written


def _named(name: str, language: str, languages: Sequence[str]) -> str:
    stem, _, ending = name.rpartition(".")
    return name if language == languages[0] else f"{stem}.{language}.{ending}"


@contextmanager
def whole_folder(folder: Path) -> Generator[None]:
    """Fill a folder, made where it is not there. One that was empty, or not there, is gone where that breaks off."""
    make_folder(folder)
    with explained(folder):
        had_any = any(folder.iterdir())
    try:
        yield
    except BaseException:
        if not had_any:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def make_folder(folder: Path, name: str = "") -> Path:
    """A folder, or one of that name in it, made where it is not there. Raises `UsageError` where that cannot be."""
    with explained(folder / name):
        folder.mkdir(parents=True, exist_ok=True)
        if name:
            make_folder_inside(folder, name)
    return folder / name
