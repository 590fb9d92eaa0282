"""Tables as lists of cells that can be changed and written back: CSV in its variants, pipe tables, JSON, JSON Lines.

Independent of the reader that is tested, and far simpler: it reads the corpus, nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_RULE = re.compile(r"[\s|:-]+")


@dataclass
class Sheet:
    """One table of a file; numbers are found in cells with whatever stands around them."""

    form: str
    headings: list[str]
    rows: list[list[str]]
    before: list[str] = field(default_factory=list[str])
    rule: str = ""

    @classmethod
    def parse(cls, text: str) -> Sheet:
        """The first table of a text."""
        if text.lstrip().startswith(("[", "{")):
            lines = text.lstrip().startswith("{")
            objects: list[dict[str, Any]] = (
                [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
            )
            headings = list(objects[0])
            rows = [[json.dumps(item[name]) for name in headings] for item in objects]
            return cls("jsonl" if lines else "json", headings, rows)
        kept = text.rstrip("\n").split("\n")
        rule = next((number for number, line in enumerate(kept) if "|" in line and _RULE.fullmatch(line)), None)
        if rule is not None:
            return cls(
                "markdown",
                _cells(kept[rule - 1]),
                [_cells(line) for line in kept[rule + 1 :] if "|" in line],
                kept[: rule - 1],
                kept[rule],
            )
        mark = max("\t;,", key=kept[0].count)
        return cls(mark, kept[0].split(mark), [line.split(mark) for line in kept[1:]])

    def text(self) -> str:
        """The table as it was written."""
        if self.form in {"json", "jsonl"}:
            items = [
                {name: json.loads(cell) for name, cell in zip(self.headings, row, strict=True)} for row in self.rows
            ]
            return json.dumps(items, indent=1) if self.form == "json" else "\n".join(map(json.dumps, items)) + "\n"
        if self.form == "markdown":
            rows = [f"| {' | '.join(row)} |" for row in [self.headings, *self.rows]]
            return "\n".join([*self.before, rows[0], self.rule, *rows[1:]]) + "\n"
        return "\n".join(self.form.join(row) for row in [self.headings, *self.rows]) + "\n"

    def get(self, row: int, heading: str) -> float | None:
        """The number in a cell; None where there is none. Percent stay percent."""
        found = _NUMBER.search(self._cell(row, heading))
        return float(found[0].replace(",", ".")) if found else None

    def put(self, row: int, heading: str, value: float) -> None:
        """The cell with another number, in as many digits as before."""
        cell = self._cell(row, heading)
        found = _NUMBER.search(cell)
        before = found[0] if found else "0"
        decimals = len(re.split("[.,]", before)[1]) if re.search("[.,]", before) else 0
        after = f"{value:.{decimals}f}"
        if "," in before:
            after = after.replace(".", ",")
        column = self.headings.index(heading)
        self.rows[row][column] = cell[: found.start()] + after + cell[found.end() :] if found else after

    def _cell(self, row: int, heading: str) -> str:
        return self.rows[row][self.headings.index(heading)]


_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
