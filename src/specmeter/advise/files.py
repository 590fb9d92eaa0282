"""The file of an advice: read with distrust, since its folder may be a stranger's, and written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from specmeter.advise.advice import Advice
from specmeter.record.json_file import read_record, write_record
from specmeter.store.places import ADVICE_NAME

GRID_NAME = "grid.yaml"
"""The experiment whose arms are the grid, beside the advice."""
_MAX_BYTES = 16 * 2**20
"""A grid of some hundred arms takes less than one."""


def read_advice(folder: Path) -> Advice:
    """The advice of a folder. Raises `UsageError` that names the file and what is wrong in it."""
    path = folder / ADVICE_NAME
    return read_record(
        Advice, path, what="record of an advice", made_by="specmeter advise", max_bytes=_MAX_BYTES, inside=True
    )


def write_advice(advice: Advice, folder: Path) -> None:
    """Write it into its folder, in place of an earlier one. Raises `UsageError` when that cannot be done."""
    write_record(advice, folder / ADVICE_NAME, what="record of an advice", inside=True)
