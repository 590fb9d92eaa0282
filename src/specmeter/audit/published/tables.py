"""The published tables by name, read like any other table."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.table import read_table
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

_TABLES = {
    "moe-306": "tables paper summary runs",
    "apple": "page-quantization page-speculation page-machines page-remote-drafts bench mlx devices multimodel sd_runs "
    "cross_first cross_again logs",
    "rtx3090-19": "summary requests",
    "rtx3090-aug": "matrix prompts checkpoints",
    "rtx3090-38": "arms",
}
"""Name -> its tables that claim rates, in the order in which they are audited."""


def names() -> tuple[str, ...]:
    """The studies, by the names that `claims` takes."""
    return tuple(_TABLES)


def claims(name: str) -> Iterator[Claim]:
    """Every claim of a study, tables first. Raises `UsageError` for an unknown name."""
    return (claim for file in _TABLES[_known(name)].split() for claim in table(f"{name}/{file}.csv"))


@cache
def table(name: str) -> tuple[Claim, ...]:
    """The claims of one published table: `apple/perplexity.csv`."""
    found = read_table(_text(name), Path(name), TableOptions())
    return tuple(claim.model_copy(update={"source": name}) for claim in found)


def cells(name: str) -> list[dict[str, str]]:
    """The rows of one published table as they are: what no claim has a field for is there."""
    return list(csv.DictReader(_text(name).splitlines()))


def _text(name: str) -> str:
    return (resources.files("specmeter.audit.published") / "data" / name).read_text(encoding="utf-8")


def _known(name: str) -> str:
    if name not in _TABLES:
        raise UsageError(f"{name!r}: no such published study", fix=f"use one of: {', '.join(_TABLES)}")
    return name
