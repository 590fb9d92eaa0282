"""Rows of the packaged tables, and the precision of a number as it was printed."""

from __future__ import annotations

import csv
from importlib import resources

Row = dict[str, str]


def rows(file: str) -> list[Row]:
    """All rows of a packaged CSV file."""
    text = (resources.files("specmeter.audit.published") / "data" / file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def half_digit(printed: str, unit: float = 1.0) -> float:
    """Half a unit of the last digit of a printed decimal number: 0.05 for `63.4`; times `unit`."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) * unit
