"""Reports as files: JSON, kept in the cache folder unless another place is named."""

from __future__ import annotations

from pathlib import Path

from specmeter.quality import QualityReport
from specmeter.record_files import read_record, write_record

MAX_BYTES = 64 * 2**20


def quality_folder() -> Path:
    """Where reports are kept; it may not exist yet. Raises `ModelError` without a home folder."""
    from specmeter.models.cache import cache_dir

    return cache_dir() / "quality"


def default_path(report: QualityReport) -> Path:
    """A name of its own in that folder: the first model's, its hash, how many more, the time."""
    from specmeter.probe.files import plain_name

    first = report.models[0].model
    more = f"+{len(report.models) - 1}" if len(report.models) > 1 else ""
    name = f"{plain_name(first.reference)}-{first.sha256[:8]}{more}-{report.made_at * 1000:.0f}.json"
    return quality_folder() / name


def save_report(report: QualityReport, path: Path) -> None:
    """Write it, whole or not at all. Raises `UsageError` when that cannot be done."""
    write_record(report, path, what="report")


def load_report(path: Path) -> QualityReport:
    """Read a report. Raises `UsageError` that names the file and what is wrong in it."""
    return read_record(QualityReport, path, what="report", made_by="specmeter quality", max_bytes=MAX_BYTES)
