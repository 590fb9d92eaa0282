"""Pages, figures and tables as files."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.report.page import run_page

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
