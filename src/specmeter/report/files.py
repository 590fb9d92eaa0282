"""Pages, figures and tables as files."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.export import export
from specmeter.report.figures import figures
from specmeter.report.page import document_charts, run_page
from specmeter.report.table_text import FORMATS
from specmeter.report.tables import checks, kinds, models, parts, predictions, prompts, results
from specmeter.report.words import words

if TYPE_CHECKING:
    from specmeter.report.document import Document
    from specmeter.report.words import Language


def write_page(document: Document, path: Path, languages: Sequence[Language]) -> Path:
    """Write the report of a run; a file of that name is replaced when the new one is complete."""
    write_text(path, run_page(document, languages))
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file whole. Raises `UsageError` when that is not possible."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole. Raises `UsageError` when that is not possible."""
    temporary = path.with_name(path.name + ".part")
    with explained(path):
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


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
    document: Document, folder: Path, formats: Sequence[str], width_cm: float, languages: Sequence[Language]
) -> list[Path]:
    """Write every chart in every format; a second language gets names like `comparison.zh.svg`."""
    charts = document_charts(document)
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
    for language in languages:
        for make in (results, kinds, prompts, parts, predictions, checks, models):
            table = make(document)
            for ending, write in FORMATS.items():
                if table.rows and (ending != "csv" or language == languages[0]):
                    name = "summary" if table.name == "results" else table.name
                    path = folder / _named(f"{name}.{ending}", language, languages)
                    write_text(path, write(table, words(language)))
                    written.append(path)
    formats = ["jsonl", *(["parquet"] if importlib.util.find_spec("pyarrow") else [])]
    for ending in formats:
        path = folder / f"requests.{ending}"
        export(document.run.folder, path, format=ending, table="requests")
        written.append(path)
    return written


def _named(name: str, language: Language, languages: Sequence[Language]) -> str:
    stem, _, ending = name.rpartition(".")
    return name if language == languages[0] else f"{stem}.{language}.{ending}"


def _make_folder(folder: Path) -> None:
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
