"""Reports as files: JSON, kept in the cache folder unless another place is named."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from specmeter.errors import UsageError
from specmeter.quality import QualityReport

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
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UsageError(
            f"{path}: the report cannot be written ({error.strerror or error})", fix="name another file with --out"
        ) from None


def load_report(path: Path) -> QualityReport:
    """Read a report. Raises `UsageError` that names the file and what is wrong in it."""
    fix = "name a file made by `specmeter quality`"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})", fix=fix) from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: is no report (larger than {MAX_BYTES // 2**20} MiB)", fix=fix)
    try:
        return QualityReport.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise UsageError(f"{path}: is no report ({where}: {first['msg']})", fix=fix) from None
