"""Pages, figures and tables as files."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.files import write_whole
from specmeter.show.export.run_table import RunTable
from specmeter.show.page.figures import figures
from specmeter.show.page.page import run_page
from specmeter.show.page.study_page import study_page
from specmeter.show.page.table_text import FORMATS
from specmeter.show.page.tables import checks, kinds, models, parts, predictions, prompts, results
from specmeter.show.words import words
from specmeter.store.seal import sealed

if TYPE_CHECKING:
    from specmeter.show.charts import Chart
    from specmeter.show.page.document import Document
    from specmeter.show.page.study_document import StudyDocument
    from specmeter.show.table import Table
    from specmeter.show.words import Language


def write_page(document: Document, path: Path, languages: Sequence[Language]) -> Path:
    """Write the report of a run, sealed; a file of that name is replaced when the new one is complete."""
    write_bytes(path, sealed(run_page(document, languages).encode(), document.run.certificate_sha256))
    return path


def write_study_page(documents: Sequence[StudyDocument], path: Path, languages: Sequence[Language]) -> Path:
    """Write the page of one study or of several, like `write_page`."""
    write_text(path, study_page(documents, languages))
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file whole. Raises `UsageError` when that is not possible."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole. Raises `UsageError` when that is not possible."""
    with explained(path):
        write_whole(path, data)


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Failures of the file system as `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror or error})",
            fix="check the path, its permissions and disk space, or name another with --out",
        ) from None


def write_figures(
    charts: Mapping[str, Chart], folder: Path, formats: Sequence[str], width_cm: float, languages: Sequence[Language]
) -> list[Path]:
    """Write every chart in every format; a second language gets names like `comparison.zh.svg`."""
    written: list[Path] = []
    _make_folder(folder)
    for language in languages:
        for name, data in figures(charts, words(language), formats, width_cm):
            path = folder / _named(name, language, languages)
            write_bytes(path, data)
            written.append(path)
    return written


def write_tables(document: Document, folder: Path, languages: Sequence[Language]) -> list[Path]:
    """Write every table as Markdown, CSV and LaTeX, and every request as JSON Lines, and as Parquet with pyarrow."""
    _make_folder(folder)
    written: list[Path] = []
    for make in (results, kinds, prompts, parts, predictions, checks, models):
        table = make(document)
        written += _write_table(table, "summary" if table.name == "results" else table.name, folder, languages)
    if document.study is not None:
        written += _write_tables_of(document.study, folder, languages)
    formats = ["jsonl", *(["parquet"] if importlib.util.find_spec("pyarrow") else [])]
    for ending in formats:
        path = folder / f"requests.{ending}"
        RunTable(document.run.folder, "requests").write(path)
        written.append(path)
    return written


def write_study_tables(documents: Sequence[StudyDocument], folder: Path, languages: Sequence[Language]) -> list[Path]:
    """Write the claims and tables of studies, and every configuration, as Markdown, CSV and LaTeX, and every single
    generation as JSON Lines."""
    _make_folder(folder)
    written: list[Path] = []
    for document in documents:
        written += _write_tables_of(document, folder, languages)
        for table in (document.configurations, document.models):
            written += _write_table(table, f"{document.prefix}{table.name.replace('_', '-')}", folder, languages)
        if rows := document.findings.data.results:
            written.append(folder / f"{document.prefix}results.jsonl")
            write_text(written[-1], "".join(f"{row.model_dump_json()}\n" for row in rows))
    return written


def _write_tables_of(document: StudyDocument, folder: Path, languages: Sequence[Language]) -> list[Path]:
    written = _write_table(document.claims, f"{document.prefix}claims", folder, languages)
    for table in document.tables:
        written += _write_table(table, table.name, folder, languages)
    return written


def _write_table(table: Table, name: str, folder: Path, languages: Sequence[Language]) -> list[Path]:
    """A table in every form and language, CSV once; a table without rows is not written."""
    written: list[Path] = []
    for language in languages if table.rows else ():
        for ending, write in FORMATS.items():
            if ending != "csv" or language == languages[0]:
                written.append(folder / _named(f"{name}.{ending}", language, languages))
                write_text(written[-1], write(table, words(language)))
    return written


def _named(name: str, language: Language, languages: Sequence[Language]) -> str:
    stem, _, ending = name.rpartition(".")
    return name if language == languages[0] else f"{stem}.{language}.{ending}"


def _make_folder(folder: Path) -> None:
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
