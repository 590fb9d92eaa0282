"""Models that are split over several GGUF files (`name-00001-of-00003.gguf`)."""

from __future__ import annotations

import re
from pathlib import Path

from specmeter.errors import ModelError
from specmeter.models.gguf_header import Header, read_header
from specmeter.models.metadata import Metadata

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def is_part(path: str) -> bool:
    """Whether a file with this name is a part of a split model."""
    return _PART.match(path) is not None


def first_part(name: str) -> bool:
    """Whether a file of this name begins a model: the first part of a split one, or one that is not split."""
    match = _PART.match(name)
    return match is None or int(match["number"]) == 1


def part_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model whose first file is `path`, by their names; just `path` when it is not split."""
    match = _PART.match(path.name)
    if match is None:
        return (path,)
    stem, count = match["stem"], int(match["count"])
    if int(match["number"]) != 1:
        first = f"{stem}-00001-of-{match['count']}.gguf"
        raise ModelError(f"{path} is not the first part of a split model", fix=f"name the first part, {first}")
    return tuple(path.with_name(f"{stem}-{number:05d}-of-{match['count']}.gguf") for number in range(1, count + 1))


def read_parts(path: Path) -> tuple[Header, ...]:
    """The headers of all files of a model, the first of which is `path`.

    Raises `ModelError` when a part is missing, damaged, or is not what its name says.
    """
    first = read_header(path)
    count = Metadata(first).integer("split.count") or 1
    if count <= 1:
        return (first,)
    paths = part_paths(path)
    if len(paths) != count:
        raise ModelError(
            f"{path} says that it is one of {count} parts, but its name does not",
            fix=f"give the parts their original names (...-00001-of-{count:05d}.gguf)",
        )
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ModelError(
            f"{path}: {len(missing)} of {count} parts are missing: {shown}",
            fix=f"download the missing parts into {path.parent}",
        )
    headers = (first, *(read_header(part) for part in paths[1:]))
    for number, header in enumerate(headers):
        if Metadata(header).integer("split.no") != number:
            raise ModelError(
                f"{header.path} is not part {number + 1} of the model that its name says",
                fix="download this part again",
            )
    return headers
