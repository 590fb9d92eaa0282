"""A table as it is meant, before it becomes HTML, Markdown, CSV or LaTeX: cells know their estimate and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from specmeter.show.text import bound, brackets

if TYPE_CHECKING:
    from specmeter.record import Estimate, Standing

Kind = Literal["text", "number"]


@dataclass(frozen=True)
class Phrase:
    """Words that are told in the reader's language; values come from outside and are shown as they are."""

    key: str
    values: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Cell:
    """One cell. `text` comes from outside, a `Phrase` from us."""

    text: str | Phrase
    value: float | None = None
    """What the column is sorted by and what is copied; None: the text."""
    estimate: Estimate | None = None
    digits: int = 2
    scale: float = 1.0
    """Shown = estimate * scale (100 for percent)."""
    struck: bool = False
    """The number is false: shown struck out."""
    printed: bool = False
    """A document printed it: false or not, files that hold its numbers have it."""
    code: bool = False
    """An identifier."""
    checks: tuple[str, ...] = ()
    """Names of checks whose findings explain the cell."""
    page: str = ""
    """Where these findings are, relative to the page of the table; empty: on it."""

    @property
    def low(self) -> str | None:
        """Lower end as shown; None without an interval."""
        if self.estimate is None or self.estimate.low is None:
            return None
        return bound(self.estimate.low * self.scale, self.digits)

    @property
    def high(self) -> str | None:
        """Upper end as shown."""
        if self.estimate is None or self.estimate.high is None:
            return None
        return bound(self.estimate.high * self.scale, self.digits)

    @property
    def interval(self) -> str:
        """`[1.85, 2.01]`, `[?]`, or nothing where there is no estimate."""
        return "" if self.estimate is None else brackets(self.estimate, self.digits, self.scale)


@dataclass(frozen=True)
class Column:
    """One column; `key` names its heading among the words, and the column in CSV."""

    key: str
    kind: Kind = "text"
    title: str = ""
    """A heading that comes from outside and is shown as it is, instead of words of ours."""

    @property
    def heading(self) -> str | Phrase:
        """What stands above the column."""
        return self.title or Phrase(f"column.{self.key}")


@dataclass(frozen=True)
class Row:
    cells: tuple[Cell, ...]
    verdict: Standing | None = None


@dataclass(frozen=True)
class Table:
    """A table with a name for files and a caption (`table.NAME` among the words)."""

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    title: str = ""
    """A caption that comes from outside and is shown as it is, instead of words of ours."""
    about: str = ""
    """What to mind, from outside."""

    @property
    def caption(self) -> str | Phrase:
        """What stands above the table."""
        return self.title or Phrase(f"table.{self.name}")


def estimated(estimate: Estimate | None, digits: int, *, scale: float = 1.0, struck: bool = False) -> Cell:
    """A cell with a number and its interval, or a dash."""
    if estimate is None:
        return Cell("-")
    text = f"{estimate.point * scale:.{digits}f}"
    return Cell(text, estimate.point, estimate, digits, scale, struck=struck)


def counted(count: int | None) -> Cell:
    """A cell with a whole number, or a dash."""
    return Cell("-") if count is None else Cell(str(count), float(count))
