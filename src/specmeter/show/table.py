"""A table as it is meant, before it becomes text, HTML, Markdown, CSV or LaTeX: cells know their estimate and verdict.

Commands and pages make a `Table`. `terminal.console`, the macro `table` of the pages' templates and `table_files` show
it. What comes from outside is cleaned there, and marks are explained below every table that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from specmeter.messages import Message
from specmeter.text import bound, brackets, csv_cell, printable, size

if TYPE_CHECKING:
    from specmeter.record import Estimate, Standing


T = TypeVar("T")
Kind = Literal["text", "number"]
Tone = Literal["", "good", "doubtful", "bad", "strong", "faint"]
"""What colours say besides words, where there are any."""
TONES: dict[str, Tone] = {
    "valid": "good",
    "note": "faint",
    "suspect": "doubtful",
    "implausible": "doubtful",
    "invalid": "bad",
}
UNITS = ("blocks", "invocations", "prompts")
"""Over what intervals are, as legends say it (`legend.over.UNIT`)."""
Mark = Literal["suspect", "unchecked"]
"""What a cell says about its number where no column of verdicts does."""


@dataclass(frozen=True)
class Cell:
    """One cell. `text` comes from outside, a `Message` from us."""

    text: str | Message
    value: float | None = None
    """What the column is sorted by and what is copied; None: the text."""
    estimate: Estimate | None = None
    digits: int = 2
    scale: float = 1.0
    """Shown = estimate * scale (100 for percent)."""
    struck: bool = False
    """The number is false: shown struck out."""
    mark: Mark | None = None
    printed: bool = False
    """A document printed it: false or not, files that hold its numbers have it."""
    code: bool = False
    """An identifier."""
    id: str = ""
    """What programs know it by, where people read a name: files of numbers have it, pages as `data-id`."""
    tone: Tone = ""
    below: tuple[tuple[str | Message, Tone], ...] = ()
    """Further lines, which only terminals show in the cell."""
    checks: tuple[str, ...] = ()
    """Names of checks whose findings explain the cell."""
    page: str = ""
    """Where these findings are, relative to the page of the table; empty: on it."""
    row: str = ""
    """The `id` of the row of data that it comes from, which a page links to."""

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
    title: str | Message = ""
    """A heading of its own, instead of `column.KEY` among the words."""
    narrow: Literal["keep", "point", "drop"] = "keep"
    """On a screen that is too narrow for the table: the column as it is, without intervals, or, from the last column
    on until the others fit, not at all."""
    most: int | None = None
    """Characters beyond which a terminal breaks its text into lines."""

    @property
    def heading(self) -> str | Message:
        """What stands above the column."""
        return self.title or Message(f"column.{self.key}")

    @property
    def name(self) -> str:
        """What files of numbers call it."""
        return csv_cell(printable(str(self.title))) or self.key


@dataclass(frozen=True)
class Row:
    cells: tuple[Cell, ...]
    verdict: Standing | None = None
    tone: Tone = ""
    filed: Mapping[str, str] = field(default_factory=dict[str, str])
    """What readers of a page may filter it by: `target`, `method`, `kind`, `document`, `ruling`."""
    id: str = ""
    """What cells of other tables on its page link to."""
    why: tuple[str | Message, ...] = ()
    """What makes its verdict suspect, where its cells do not say it."""


@dataclass(frozen=True)
class Table:
    """A table with a name for files and a caption (`table.NAME` among the words)."""

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    title: str | Message = ""
    """A caption of its own, instead of `table.NAME` among the words."""
    about: str | Message = ""
    """What to mind."""
    told_over: bool = False
    """Whether its legend says over what the intervals of each column are: for tables whose words are not ours."""

    @property
    def caption(self) -> str | Message:
        """What stands above the table."""
        return self.title or Message(f"table.{self.name}")

    @property
    def legend(self) -> list[Message]:
        """What its marks mean (`legend.MARK` among the words): a line for each kind that it has."""
        cells = [cell for row in self.rows for cell in row.cells]
        struck = [Message("legend.struck")] if any(cell.struck for cell in cells) else []
        marked = struck + ([Message("legend.suspect")] if any(cell.mark == "suspect" for cell in cells) else [])
        over = self._over() if self.told_over else []
        return marked + over + ([Message("legend.no_interval")] if any(it.interval == "[?]" for it in cells) else [])

    def only(self, names: Sequence[str]) -> Table:
        """The columns of these names, in this order, as far as it has them; before them target and load, of several."""
        of = {column.name: place for place, column in enumerate(self.columns)}
        kept = [of[name] for name in names if name in of]
        for name in ("load", "target") if kept else ():
            place = of.get(name, -1)
            if place >= 0 and place not in kept and len({row.cells[place].text for row in self.rows}) > 1:
                kept.insert(0, place)
        rows = [replace(row, cells=tuple(row.cells[place] for place in kept)) for row in self.rows]
        return replace(self, columns=tuple(self.columns[place] for place in kept), rows=rows)

    def _over(self) -> list[Message]:
        """For each sort of unit the columns whose intervals are over it."""
        over: dict[str, list[str | Message]] = {}
        for place, column in enumerate(self.columns):
            found = (row.cells[place].estimate for row in self.rows)
            for unit in dict.fromkeys(
                it.of for it in found if it is not None and it.low is not None and it.of in UNITS
            ):
                over.setdefault(unit, []).append(column.title)
        return [Message(f"legend.over.{unit}", columns=titles) for unit, titles in over.items()]


def text(*titles: str) -> tuple[Column, ...]:
    """Columns of text with these headings."""
    return tuple(Column(title, title=title) for title in titles)


def numbers(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers with these headings."""
    return tuple(Column(title, "number", title) for title in titles)


def made(
    name: str,
    items: Iterable[T],
    *columns: tuple[str, Kind, Callable[[T], Cell | Message | str]],
    verdict: Callable[[T], Standing | None] = lambda _: None,
    why: Callable[[T], tuple[str | Message, ...]] = lambda _: (),
    filed: Callable[[T], Mapping[str, str]] = lambda _: {},
) -> Table:
    """A table of one row per item; each column is its key, its kind and what it shows of an item."""
    shown = ((item, tuple(show(item) for _, _, show in columns)) for item in items)
    rows = [replace(row(*cells, verdict=verdict(it), filed=filed(it)), why=why(it)) for it, cells in shown]
    return Table(name, tuple(Column(key, kind) for key, kind, _ in columns), rows)


def row(
    *cells: str | Message | Cell,
    verdict: Standing | None = None,
    tone: Tone = "",
    filed: Mapping[str, str] | None = None,
) -> Row:
    """A row of cells, of which those that are text only may be given as such."""
    return Row(tuple(it if isinstance(it, Cell) else Cell(it) for it in cells), verdict, tone, filed or {})


def estimate_cell(
    estimate: Estimate | None, digits: int, *, scale: float = 1.0, struck: bool = False, mark: Mark | None = None
) -> Cell:
    """A cell with a number and its interval, or a dash."""
    if estimate is None:
        return Cell("-")
    text = f"{estimate.point * scale:.{digits}f}"
    return Cell(text, estimate.point, estimate, digits, scale, struck=struck, mark=mark)


def sized(size_bytes: float | None) -> Cell:
    """A number of bytes in words, sorted by what it is."""
    return Cell("-") if size_bytes is None else Cell(size(size_bytes), size_bytes)


def counted(count: int | None) -> Cell:
    """A cell with a whole number, or a dash."""
    return Cell("-") if count is None else Cell(str(count), float(count))
