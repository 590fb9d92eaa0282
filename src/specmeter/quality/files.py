"""Reports as files: JSON, kept in the cache folder unless another place is named."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from specmeter.errors import SpecmeterError
from specmeter.quality import QualityReport
from specmeter.record.files import read_record, write_record

MAX_BYTES = 64 * 2**20
MOST_LOOKED_AT = 50


def quality_folder() -> Path:
    """Where reports are kept; it may not exist yet. Raises `ModelError` without a home folder."""
    from specmeter.cache import cache_dir

    return cache_dir() / "quality"


def default_path(report: QualityReport) -> Path:
    """A name of its own in that folder: the first model's, its hash, how many more, the time."""
    from specmeter.probe.files import plain_name

    first = report.models[0].model
    more = f"+{len(report.models) - 1}" if len(report.models) > 1 else ""
    name = f"{plain_name(first.reference)}-{first.sha256[:8]}{more}-{report.made_at * 1000:.0f}.json"
    return quality_folder() / name


def save_report(report: QualityReport, path: Path, *, inside: bool = False) -> None:
    """Write it, whole or not at all; see `record.files`. Raises `UsageError` when that cannot be done."""
    write_record(report, path, what="report", inside=inside)


def kept_reports(hashes: Collection[str]) -> tuple[QualityReport, ...]:
    """Reports in the folder that hold one of these models (SHA-256), the newest first; only the newest are looked at.

    What cannot be read is passed over: it was not named.
    """
    try:
        kept = (path for path in quality_folder().glob("*.json") if path.is_file())
        files = sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except (OSError, SpecmeterError):
        return ()
    found: list[QualityReport] = []
    for file in files[:MOST_LOOKED_AT]:
        with contextlib.suppress(SpecmeterError):
            report = load_report(file)
            if any(model.model.sha256 in hashes for model in report.models):
                found.append(report)
    return tuple(found)


def load_report(path: Path, *, inside: bool = False) -> QualityReport:
    """Read a report; see `record.files`. Raises `UsageError` that names the file and what is wrong in it."""
    return read_record(
        QualityReport, path, what="report", made_by="specmeter quality", max_bytes=MAX_BYTES, inside=inside
    )
