"""Single records as JSON files: read with distrust, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from specmeter.errors import UsageError
from specmeter.files import write_whole
from specmeter.record import Record
from specmeter.text import size

Kind = TypeVar("Kind", bound=Record)


def read_record(kind: type[Kind], path: Path, *, what: str, made_by: str, max_bytes: int) -> Kind:
    """The record in a file. `what` it should be and the command that it is `made_by` stand in messages.

    Raises `UsageError` that names the file and what is wrong in it.
    """
    fix = f"name a file made by `{made_by}`"
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror or error})", fix=fix) from None
    if len(content) > max_bytes:
        raise UsageError(f"{path}: is no {what} (larger than {size(max_bytes)})", fix=fix)
    try:
        return kind.model_validate_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no {what} (it is no text)", fix=fix) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise UsageError(f"{path}: is no {what} ({where}: {first['msg']})", fix=fix) from None
    except UsageError as error:  # a part that says itself what is wrong with it
        raise UsageError(f"{path}: is no {what} ({error.message})", fix=fix) from None


def write_record(record: Record, path: Path, *, what: str) -> None:
    """Write it, whole or not at all. Raises `UsageError` when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{record.model_dump_json(indent=1)}\n".encode())
    except OSError as error:
        raise UsageError(
            f"{path}: the {what} cannot be written ({error.strerror or error})", fix="name another file with --out"
        ) from None
