"""Published tables as their documents have them: what the packaged ones were made from."""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "published"


def rows(file: str) -> list[dict[str, str]]:
    """All rows of a table, by its columns' own names."""
    return list(csv.DictReader((FOLDER / file).read_text(encoding="utf-8").splitlines()))
