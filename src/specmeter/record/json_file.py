"""Single records as JSON files: read with distrust, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from specmeter.errors import UsageError
from specmeter.files import open_inside, read_named, write_inside, write_whole
from specmeter.record.base import Record
from specmeter.record.faults import first_fault
from specmeter.text import size

Kind = TypeVar("Kind", bound=Record)


def read_record(kind: type[Kind], path: Path, *, what: str, made_by: str, max_bytes: int, inside: bool = False) -> Kind:
    """The record in a file. `what` it should be and the command that it is `made_by` stand in messages.

    A path that a user names may be a link or a pipe; one `inside` a folder that a stranger may have made is a plain
    file. Raises `UsageError` that names the file and what is wrong in it.
    """
    fix = f"name a file made by `{made_by}`"
    if inside:
        fix += ", or remove this one and repeat the command that made its folder"
    try:
        if inside:
            with open_inside(path.parent, path.name) as file:
                content = file.read(max_bytes + 1)
        else:
            content = read_named(path, max_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror or error})", fix=fix) from None
    if len(content) > max_bytes:
        raise UsageError(f"{path}: is not a {what} (larger than {size(max_bytes)})", fix=fix)
    try:
        return kind.model_validate_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a {what} (it is not text)", fix=fix) from None
    except ValidationError as error:
        raise UsageError(f"{path}: is not a {what} ({first_fault(error, 'the whole')})", fix=fix) from None
    except UsageError as error:  # a part that says itself what is wrong with it
        raise UsageError(f"{path}: is not a {what} ({error.message})", fix=fix) from None


def write_record(record: Record, path: Path, *, what: str, inside: bool = False) -> None:
    """Write it, whole or not at all; a link is followed, but for one `inside` a folder that a stranger may have made.

    Raises `UsageError` when that cannot be done.
    """
    data = f"{record.model_dump_json(indent=1)}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_inside(path.parent, path.name, data) if inside else write_whole(path, data)
    except OSError as error:
        raise UsageError(
            f"{path}: the {what} cannot be written ({error.strerror or error})", fix="name another file with --out"
        ) from None
