"""The page of one study or of several, and their tables as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specmeter.messages import LANGUAGES
from specmeter.show.page.files import (
    whole_folder,
    write_made,
    write_section,
    write_table,
    write_text,
)
from specmeter.show.page.page import render
from specmeter.text import printable
from specmeter_studies.show.document import StudyDocument


def study_page(
    documents: Sequence[StudyDocument],
    languages: Sequence[str] = LANGUAGES,
    *,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> str:
    """The page of one study or of several: what their numbers are, what they say about each claim, then figures and
    tables. Names of figures must differ, so each of several studies needs its prefix.

    `index` links to the page of all studies, `downloads` (name, size) lie beside the page.
    """
    return render(
        "study.html",
        languages,
        [figure for document in documents for figure in document.figures],
        own={"zh": {en: zh for document in documents for en, zh in document.findings.chinese.items()}},
        title=f"{printable(str(documents[0].title) if len(documents) == 1 else 'Studies')} · specmeter",
        studies=documents,
        index=index,
        downloads=downloads,
    )


def write_study_page(
    documents: Sequence[StudyDocument], path: Path, languages: Sequence[str], *, inside: bool = False
) -> Path:
    """Write the page of one study or of several, like `write_page`."""
    return write_made(path, study_page(documents, languages).encode(), inside=inside)


def write_study_tables(
    documents: Sequence[StudyDocument], folder: Path, languages: Sequence[str], only: Sequence[str] = ()
) -> list[Path]:
    """Write the claims and tables of studies, and every configuration, as Markdown, CSV and LaTeX, and every single
    generation as JSON Lines."""
    written: list[Path] = []
    with whole_folder(folder):
        for document in documents:
            written += write_section(document, folder, languages, only)
            for table in (document.configurations, document.models):
                name = f"{document.prefix}{table.name.replace('_', '-')}"
                written += write_table(table, name, folder, languages, only)
            if rows := document.findings.data.results:
                written.append(folder / f"{document.prefix}results.jsonl")
                write_text(written[-1], "".join(f"{row.model_dump_json()}\n" for row in rows), inside=True)
    return written
