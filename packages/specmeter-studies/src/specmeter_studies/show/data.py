"""A study's data as files, as documents publish theirs: single requests, tables, and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.messages import words
from specmeter.show.page.files import (
    copy_kept,
    whole_folder,
    write_requests,
    write_text,
)
from specmeter.show.table import csv_text
from specmeter.store.run import ENVIRONMENT_NAME
from specmeter_studies.show.document import study_document

if TYPE_CHECKING:
    from specmeter_studies.folder import StudyFolder


def write_data(folder: StudyFolder, out: Path) -> list[Path]:
    """Write what was measured of a study into the folder `out`; returns the files.

    Each table of the document becomes `TABLE.csv`, with the document's headings; each part that is an experiment gives
    `PART.requests.jsonl`, every request with all its fields, and `PART.BENCHMARK_ENV.md`; the part's name is left out
    where there is one part. Raises `UsageError` where nothing was measured or a file cannot be written, `StoreError`
    for a damaged folder.
    """
    document = study_document(folder.findings())
    parts = [part for part in folder.record().parts if part.kind == "experiment" and folder.run_state(part) is not None]
    if not parts and not document.tables:
        raise UsageError(f"{folder.path}: nothing was measured yet", fix=f"measure it: `{document.findings.command}`")
    written: list[Path] = []
    with whole_folder(out):
        for table in document.tables:
            written.append(out / f"{table.name}.csv")
            write_text(written[-1], csv_text(table, words()), inside=True)
        for part in parts:
            run = folder.run_folder(part.name)
            of = "" if len(parts) == 1 else f"{part.name}."
            requests, environment = out / f"{of}requests.jsonl", out / f"{of}{ENVIRONMENT_NAME}"
            write_requests(run, requests)
            written.append(requests)
            if copy_kept(run, ENVIRONMENT_NAME, environment):
                written.append(environment)
    return written
