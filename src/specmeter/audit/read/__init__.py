"""Importers: results of others in, claims out. They read, bounded and without trust, and judge nothing.

Each format is a module with `sniff(head) -> bool` and `read(path) -> Iterator[Claim]`, imported when it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

FORMATS = {
    "llama-bench": "specmeter.audit.read.llama_bench",
    "aiperf": "specmeter.audit.read.aiperf",
    "vllm": "specmeter.audit.read.vllm",
    "sglang": "specmeter.audit.read.sglang",
    "speed-bench": "specmeter.audit.read.speed_bench",
    "spec-bench": "specmeter.audit.read.spec_bench",
    "ik-spec-bench": "specmeter.audit.read.ik_spec_bench",
    "vllm-log": "specmeter.audit.read.vllm_log",
    "llama-speculative": "specmeter.audit.read.llama_speculative",
    "llama-server": "specmeter.audit.read.llama_server_log",
    "table": "specmeter.audit.read.table",
}
"""Name -> module, in the order in which a file is held against them; `table` takes what no other format claims."""
LOGS = ("vllm-log", "llama-speculative", "llama-server")
"""Formats that are known by words that may also stand in a page with tables."""


class Importer(Protocol):
    """What the module of a format has."""

    def sniff(self, head: str) -> bool:
        """Whether a file that begins with `head` (64 KiB at most) is of this format."""
        ...

    def read(self, path: Path) -> Iterator[Claim]:
        """The claims of a file. Raises `UsageError` for a file that cannot be read at all."""
        ...


def load(name: str) -> Importer:
    """The importer of that format, its module imported only now. Raises `UsageError` for an unknown name."""
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", fix=f"use one of {', '.join(FORMATS)}")
    return cast("Importer", importlib.import_module(FORMATS[name]))


_WRITTEN_BY_ANOTHER = {"llama-speculative": "llama-server", "llama-server": "llama-speculative"}
"""Logs of llama.cpp look alike from their beginnings."""


def read(path: Path, name: str) -> Iterator[Claim]:
    """The claims of a file in that format; of a log that holds none, but one of a like format, those of that one.

    Raises `UsageError` for a file that cannot be read, or an unknown format.
    """
    claims = load(name).read(path)
    first = next(claims, None)
    if first is not None and first.problem is not None and name in _WRITTEN_BY_ANOTHER:
        others = load(_WRITTEN_BY_ANOTHER[name]).read(path)
        other = next(others, None)
        if other is not None and other.problem is None:
            first, claims = other, others
    if first is not None:
        yield first
        yield from claims


def _has_table(path: Path) -> bool:
    """Whether a table begins later in a page than where its format is looked for."""
    from specmeter.audit.read.columns import understand
    from specmeter.audit.read.document import is_json, read_text
    from specmeter.audit.read.pages import read_grids

    try:
        text = read_text(path)
        grids = read_grids(text, path, as_json=is_json(text))
    except UsageError:
        return False
    return any(sum(understand(text) is not None for text in grid.headings) >= 2 for grid in grids)


def detect(path: Path) -> str:
    """The format of a file, by how it begins. Raises `UsageError` when it cannot be read or is of none."""
    from specmeter.audit.read.document import read_head
    from specmeter.audit.read.pages import known_headings

    head = read_head(path)
    is_table = known_headings(head) >= 2
    for name in FORMATS:
        if not (is_table and name in LOGS) and load(name).sniff(head):
            return name
    if _has_table(path):
        return "table"
    raise UsageError(
        f"{path}: neither a table with a known column nor a known log or benchmark result",
        fix=f"say what it is with --format ({', '.join(FORMATS)}); `specmeter audit --help` lists known columns",
    )
