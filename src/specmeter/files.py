"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_OPEN_ALREADY = re.compile(r"/dev/(std(out|err)|fd/\d+)|/proc/(self|\d+)/fd/\d+")
"""Other names of what a process has open."""


@contextmanager
def whole_file(path: Path) -> Generator[IO[bytes]]:
    """A stream to write to. What is written becomes the file at the end; when anything is raised, nothing of it does.

    A link stays a link: what it points to is replaced. A device or a pipe (`/dev/null`, `/dev/stdout`) is written to
    as it is, since replacing it would take it away from everybody else; so is a file that such a name stands for
    (`--out /dev/stdout >> all.csv`), behind what it holds already. Raises `OSError`.
    """
    if (path.exists() and not path.is_file()) or _OPEN_ALREADY.fullmatch(path.absolute().as_posix()):
        with path.open("ab") as stream:
            yield stream
        return
    place = Path(os.path.realpath(path))
    temporary = place.with_name(place.name + ".part")
    try:
        with temporary.open("wb") as stream:
            yield stream
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of these bytes, as `whole_file` does. Raises `OSError`."""
    with whole_file(path) as stream:
        stream.write(data)
